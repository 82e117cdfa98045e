//! The values of a row on their way into columns.

use super::column::{Column, Kind, Presence};

/// Takes the values of one row, column after column in declared order.
pub(crate) struct RowWriter<'a> {
    declared: &'static [Column],
    values: &'a mut [Values],
    next: usize,
}

impl<'a> RowWriter<'a> {
    pub(super) fn new(declared: &'static [Column], values: &'a mut [Values]) -> Self {
        Self {
            declared,
            values,
            next: 0,
        }
    }

    pub(super) fn are_filled(&self) -> bool {
        self.next == self.declared.len()
    }

    fn column(&mut self, fits: impl Fn(Presence) -> bool) -> &mut Values {
        assert!(
            fits(self.declared[self.next].presence),
            "column {} is of another shape",
            self.declared[self.next].name
        );
        self.next += 1;
        &mut self.values[self.next - 1]
    }

    pub fn int(&mut self, value: i64) {
        self.column(|presence| presence == Presence::Required)
            .push_int(value);
    }

    pub fn bytes(&mut self, value: &[u8]) {
        self.column(|presence| presence == Presence::Required)
            .push_bytes(value);
    }

    pub fn optional_int(&mut self, value: Option<i64>) {
        let column = self.column(|presence| presence == Presence::Optional);
        column.definition.push(i16::from(value.is_some()));
        if let Some(value) = value {
            column.push_int(value);
        }
    }

    pub fn optional_bytes(&mut self, value: Option<&[u8]>) {
        let column = self.column(|presence| presence == Presence::Optional);
        column.definition.push(i16::from(value.is_some()));
        if let Some(value) = value {
            column.push_bytes(value);
        }
    }

    pub fn ints(&mut self, values: impl Iterator<Item = i64>) {
        self.list(values, Values::push_int);
    }

    pub fn byte_strings<B: AsRef<[u8]>>(&mut self, values: impl Iterator<Item = B>) {
        self.list(values, |column, value| column.push_bytes(value.as_ref()));
    }

    fn list<V>(&mut self, values: impl Iterator<Item = V>, push: impl Fn(&mut Values, V)) {
        let column =
            self.column(|presence| matches!(presence, Presence::List | Presence::ListField { .. }));
        let mut repetition = 0;
        for value in values {
            column.definition.push(1);
            column.repetition.push(repetition);
            push(column, value);
            repetition = 1;
        }
        if repetition == 0 {
            column.definition.push(0);
            column.repetition.push(0);
        }
    }
}

/// What one column has collected for the current row group.
pub(super) struct Values {
    pub data: Data,
    /// Empty for required columns.
    pub definition: Vec<i16>,
    /// Empty for all but lists.
    pub repetition: Vec<i16>,
}

pub(super) enum Data {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    /// End to end in one arena: a million short strings of their own would cost more than they
    /// hold.
    Bytes {
        arena: Vec<u8>,
        ends: Vec<usize>,
    },
}

impl Values {
    pub fn new(column: &Column) -> Self {
        let data = match column.kind {
            Kind::Int64 | Kind::UInt64 | Kind::Timestamp => Data::Int64(Vec::new()),
            Kind::UInt32 | Kind::UInt16 => Data::Int32(Vec::new()),
            Kind::Text | Kind::Binary => Data::Bytes {
                arena: Vec::new(),
                ends: Vec::new(),
            },
        };
        Self {
            data,
            definition: Vec::new(),
            repetition: Vec::new(),
        }
    }

    fn push_int(&mut self, value: i64) {
        match &mut self.data {
            Data::Int64(data) => data.push(value),
            // Unsigned 32-bit values keep their bits.
            Data::Int32(data) => data.push(value as i32),
            Data::Bytes { .. } => unreachable!("an integer for a column of bytes"),
        }
    }

    fn push_bytes(&mut self, value: &[u8]) {
        let Data::Bytes { arena, ends } = &mut self.data else {
            unreachable!("bytes for a column of integers")
        };
        arena.extend_from_slice(value);
        ends.push(arena.len());
    }

    pub fn bytes(&self) -> usize {
        match &self.data {
            Data::Int32(data) => data.len() * 4,
            Data::Int64(data) => data.len() * 8,
            Data::Bytes { arena, ends } => arena.len() + ends.len() * 8,
        }
    }

    pub fn clear(&mut self) {
        match &mut self.data {
            Data::Int32(data) => data.clear(),
            Data::Int64(data) => data.clear(),
            Data::Bytes { arena, ends } => {
                arena.clear();
                ends.clear();
            }
        }
        self.definition.clear();
        self.repetition.clear();
    }
}
