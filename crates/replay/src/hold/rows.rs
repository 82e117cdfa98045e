//! Rows of the client's statements come in the order in which they came originally.
//!
//! A statement leaves the order of its rows open, or that of some, and shows them as they lie in
//! the table. So the client is told of rows when they are all there: of the same ones in the
//! recorded order, and of others in that in which the server has sent them.

use hindcast_wire::Wires;
use hindcast_wire::digest::row_hash;
use hindcast_wire::frame::Frame;
use hindcast_wire::message::backend as server;
use hindcast_wire::row_order::RowOrder;

use super::{Context, Holder};

/// Rows of a statement that are kept back until all are there.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// In which order those of its statements came, by statement.
    orders: Vec<RowOrder>,
    /// The statement has other rows.
    others: Option<u32>,
    /// Whether the statement fixes the order of these.
    ordered: bool,
    hashes: Vec<u64>,
    kept: Vec<Frame>,
}

/// Whether no row of the statement follows this message.
pub(super) fn ends_rows(tag: u8) -> bool {
    !matches!(
        tag,
        server::DATA_ROW
            | server::PARAMETER_STATUS
            | server::NOTICE_RESPONSE
            | server::NOTIFICATION_RESPONSE
    )
}

impl Rows {
    /// `kept`: by the recorder.
    pub fn new(kept: &[u8]) -> Self {
        Self {
            orders: RowOrder::all(kept),
            ..Self::default()
        }
    }

    fn order(&self, statement: u32) -> Option<&RowOrder> {
        let by = |order: &RowOrder| order.statement;
        let at = self.orders.binary_search_by_key(&statement, by).ok()?;
        (self.others != Some(statement)).then(|| &self.orders[at])
    }
}

impl Holder {
    /// Keeps a row back, of a statement of which it is known in which order its rows came.
    pub(super) fn keep_row(
        &mut self,
        frame: &Frame,
        ordered: bool,
        out: &mut Wires,
        cx: &mut impl Context,
    ) -> bool {
        let open = self.transaction.as_mut();
        let Some(open) = open.filter(|_| frame.tag() == server::DATA_ROW) else {
            return false;
        };
        let Some(statement) = open.recorded_statement() else {
            return false;
        };
        let Some(order) = open.rows.order(statement) else {
            return false;
        };
        if open.rows.kept.len() == order.count() {
            // There are more.
            open.rows.others = Some(statement);
            self.give_rows(out, cx);
            return false;
        }
        let text = self.answers.row(frame.body(), &self.settings);
        open.rows.hashes.push(row_hash(text));
        open.rows.kept.push(frame.clone());
        open.rows.ordered = ordered;
        true
    }

    /// Tells the client of what was kept back.
    pub(super) fn give_rows(&mut self, out: &mut Wires, cx: &mut impl Context) {
        let Some(open) = &mut self.transaction else {
            return;
        };
        if open.rows.kept.is_empty() {
            return;
        }
        let kept = std::mem::take(&mut open.rows.kept);
        let hashes = std::mem::take(&mut open.rows.hashes);
        let ordered = open.rows.ordered;
        let statement = open.recorded_statement();
        let order = statement.and_then(|statement| open.rows.order(statement));
        let places = order.and_then(|order| order.of(&hashes));
        let places = places.unwrap_or_else(|| (0..kept.len()).collect());
        for place in places {
            self.note_answer(&kept[place], ordered, cx);
            self.tell(&kept[place], out, cx);
        }
    }
}
