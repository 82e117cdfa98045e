//! What a column is declared as.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Int64,
    UInt64,
    UInt32,
    UInt16,
    /// Microseconds, UTC.
    Timestamp,
    Text,
    Binary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    Optional,
    /// `name` is a list of plain values.
    List,
    /// `list` is a list of structs, of which this column is a field; fields of one list stand next
    /// to each other.
    ListField {
        list: &'static str,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Differences between neighbours, bit-packed: for what grows or stays small.
    Delta,
    /// Distinct values once, then their numbers: for what repeats.
    Dictionary,
    /// As they are, for zstd to deal with.
    Plain,
    /// `Dictionary` or `Plain`, whichever is smaller for the values at hand.
    WhateverIsSmaller,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub presence: Presence,
    pub packing: Packing,
    /// Minimum and maximum per row group, so that a range can leave row groups out.
    pub statistics: bool,
    /// A Bloom filter per row group, so that a value can leave row groups out.
    pub looked_up: bool,
    /// Large and rarely wanted: left unread by lean scans.
    pub bulky: bool,
}

/// A stored value that means nothing, such as an unknown outcome.
#[derive(Debug)]
pub(crate) struct Malformed(pub String);

impl Column {
    pub const fn new(name: &'static str, kind: Kind, packing: Packing) -> Self {
        Self {
            name,
            kind,
            presence: Presence::Required,
            packing,
            statistics: false,
            looked_up: false,
            bulky: false,
        }
    }
    pub const fn optional(mut self) -> Self {
        self.presence = Presence::Optional;
        self
    }
    pub const fn list(mut self) -> Self {
        self.presence = Presence::List;
        self
    }
    pub const fn of(mut self, list: &'static str) -> Self {
        self.presence = Presence::ListField { list };
        self
    }
    pub const fn with_statistics(mut self) -> Self {
        self.statistics = true;
        self
    }
    pub const fn looked_up(mut self) -> Self {
        self.looked_up = true;
        self
    }
    pub const fn bulky(mut self) -> Self {
        self.bulky = true;
        self
    }

    pub(super) fn path(&self) -> ColumnPath {
        let parts = match self.presence {
            Presence::Required | Presence::Optional => vec![self.name],
            Presence::List => vec![self.name, "list", "element"],
            Presence::ListField { list } => vec![list, "list", "element", self.name],
        };
        ColumnPath::new(parts.into_iter().map(str::to_owned).collect())
    }

    pub(super) fn leaf(&self) -> TypePtr {
        let (name, repetition) = match self.presence {
            Presence::Optional => (self.name, Repetition::OPTIONAL),
            Presence::Required | Presence::ListField { .. } => (self.name, Repetition::REQUIRED),
            Presence::List => ("element", Repetition::REQUIRED),
        };
        let (physical, logical) = match self.kind {
            Kind::Int64 => (PhysicalType::INT64, None),
            Kind::UInt64 => (PhysicalType::INT64, Some(LogicalType::integer(64, false))),
            Kind::UInt32 => (PhysicalType::INT32, Some(LogicalType::integer(32, false))),
            Kind::UInt16 => (PhysicalType::INT32, Some(LogicalType::integer(16, false))),
            Kind::Timestamp => (
                PhysicalType::INT64,
                Some(LogicalType::timestamp(true, TimeUnit::MICROS)),
            ),
            Kind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Binary => (PhysicalType::BYTE_ARRAY, None),
        };
        let leaf = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical);
        Arc::new(leaf.build().expect("a declared column is well-formed"))
    }
}
