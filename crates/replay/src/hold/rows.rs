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

/// Rows that are read from cursors which outlive the transaction that declared them. What reads
/// them stands for no transaction that is looked for, so it is known by its rows which it is.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    /// In which orders rows came that are not read yet.
    orders: Vec<RowOrder>,
    /// There are more rows than in any of these.
    others: bool,
    ordered: bool,
    hashes: Vec<u64>,
    kept: Vec<Frame>,
}

impl Fetched {
    /// A cursor was declared, from which rows were read in these orders.
    pub fn declared(&mut self, orders: Vec<RowOrder>) {
        self.orders = orders;
    }

    fn most(&self) -> usize {
        self.orders.iter().map(RowOrder::count).max().unwrap_or(0)
    }

    /// In which order the rows that are kept are to come.
    fn places(&mut self) -> Vec<usize> {
        let mut all = self.orders.iter().map(|order| order.of(&self.hashes));
        match all.position(|places| places.is_some()) {
            Some(at) => self.orders.remove(at).of(&self.hashes),
            None => None,
        }
        .unwrap_or_else(|| (0..self.kept.len()).collect())
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
        if self.fetched.kept.len() == self.fetched.most() {
            self.give_fetched(out, cx);
            self.fetched.others = true;
            return false;
        }
        let text = self.answers.row(frame.body(), &self.settings);
        self.fetched.hashes.push(row_hash(text));
        self.fetched.kept.push(frame.clone());
        self.fetched.ordered = ordered;
        true
    }

    fn give_fetched(&mut self, out: &mut Wires, cx: &mut impl Context) {
        self.fetched.others = false;
        if self.fetched.kept.is_empty() {
            return;
        }
        let places = self.fetched.places();
        let kept = std::mem::take(&mut self.fetched.kept);
        self.fetched.hashes.clear();
        self.give(&kept, &places, self.fetched.ordered, out, cx);
    }

    fn give(
        &mut self,
        kept: &[Frame],
        places: &[usize],
        ordered: bool,
        out: &mut Wires,
        cx: &mut impl Context,
    ) {
        for &place in places {
            self.note_answer(&kept[place], ordered, cx);
            self.tell(&kept[place], out, cx);
        }
    }

    /// Tells the client of what was kept back.
    pub(super) fn give_rows(&mut self, out: &mut Wires, cx: &mut impl Context) {
        self.give_fetched(out, cx);
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
        let places: Vec<_> = places.unwrap_or_else(|| (0..kept.len()).collect());
        self.give(&kept, &places, ordered, out, cx);
    }
}
