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

/// Rows that are kept back until all are there.
#[derive(Debug, Default)]
struct Kept {
    /// Whether the statement fixes their order.
    ordered: bool,
    hashes: Vec<u64>,
    frames: Vec<Frame>,
}

impl Kept {
    fn keep(&mut self, frame: &Frame, text: &[u8], ordered: bool) {
        self.hashes.push(row_hash(text));
        self.frames.push(frame.clone());
        self.ordered = ordered;
    }

    /// In this order, if they are the rows of one.
    fn places(&self, order: Option<&RowOrder>) -> Vec<usize> {
        order
            .and_then(|order| order.of(&self.hashes))
            .unwrap_or_else(|| (0..self.frames.len()).collect())
    }
}

/// Rows of a statement.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// In which order those of its statements came, by statement.
    orders: Vec<RowOrder>,
    /// The statement has other rows.
    others: Option<u32>,
    kept: Kept,
}

/// Rows that are read from cursors which outlive the transaction that declared them. What reads
/// them stands for no transaction that is looked for, so it is known by its rows which it is.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// In which orders rows came that are not read yet.
    orders: Vec<RowOrder>,
    /// There are more rows than in any of these.
    others: bool,
    kept: Kept,
}

impl Fetched {
    /// A cursor was declared, from which rows were read in these orders.
    pub fn declared(&mut self, orders: Vec<RowOrder>) {
        self.orders = orders;
    }

    fn most(&self) -> usize {
        self.orders.iter().map(RowOrder::count).max().unwrap_or(0)
    }

    /// The order in which just the rows that are kept came.
    fn take_order(&mut self) -> Option<RowOrder> {
        let is_theirs = |order: &RowOrder| order.of(&self.kept.hashes).is_some();
        let at = self.orders.iter().position(is_theirs)?;
        Some(self.orders.remove(at))
    }
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
        if frame.tag() != server::DATA_ROW {
            return false;
        }
        let Some(open) = self.transaction.as_mut() else {
            return self.keep_fetched(frame, ordered, out, cx);
        };
        let Some(statement) = open.recorded_statement() else {
            return false;
        };
        let Some(order) = open.rows.order(statement) else {
            return false;
        };
        if open.rows.kept.frames.len() == order.count() {
            // There are more.
            open.rows.others = Some(statement);
            self.give_rows(out, cx);
            return false;
        }
        let text = self.answers.row(frame.body(), &self.settings);
        open.rows.kept.keep(frame, text, ordered);
        true
    }

    /// The same of a row that is read from a cursor outside of transactions.
    fn keep_fetched(
        &mut self,
        frame: &Frame,
        ordered: bool,
        out: &mut Wires,
        cx: &mut impl Context,
    ) -> bool {
        if self.fetched.others || self.fetched.orders.is_empty() {
            return false;
        }
        if self.fetched.kept.frames.len() == self.fetched.most() {
            self.give_fetched(out, cx);
            self.fetched.others = true;
            return false;
        }
        let text = self.answers.row(frame.body(), &self.settings);
        self.fetched.kept.keep(frame, text, ordered);
        true
    }

    fn give_fetched(&mut self, out: &mut Wires, cx: &mut impl Context) {
        self.fetched.others = false;
        if self.fetched.kept.frames.is_empty() {
            return;
        }
        let order = self.fetched.take_order();
        let kept = std::mem::take(&mut self.fetched.kept);
        self.give(&kept, &kept.places(order.as_ref()), out, cx);
    }

    fn give(&mut self, kept: &Kept, places: &[usize], out: &mut Wires, cx: &mut impl Context) {
        for &place in places {
            self.note_answer(&kept.frames[place], kept.ordered, cx);
            self.tell(&kept.frames[place], out, cx);
        }
    }

    /// Tells the client of what was kept back.
    pub(super) fn give_rows(&mut self, out: &mut Wires, cx: &mut impl Context) {
        self.give_fetched(out, cx);
        let Some(open) = &mut self.transaction else {
            return;
        };
        if open.rows.kept.frames.is_empty() {
            return;
        }
        let kept = std::mem::take(&mut open.rows.kept);
        let statement = open.recorded_statement();
        let places = kept.places(statement.and_then(|statement| open.rows.order(statement)));
        self.give(&kept, &places, out, cx);
    }
}
