//! A query that was understood: which rows, in which order, and what of them.

use std::sync::Arc;

use crate::catalog::Table;
use crate::encoding::Kind;

use super::predicate::{Operand, Predicate};

/// The columns of all tables are numbered through, table after table.
#[derive(Clone, Debug)]
pub(super) struct Select {
    /// The first is read; the others are looked up by key for each row of it, in this order.
    /// Without any there is one empty row.
    pub tables: Vec<Source>,
    /// All must be true.
    pub filter: Vec<Predicate>,
    pub output: Vec<Output>,
    /// `Some`: one row for each distinct combination, or just one if the list is empty.
    pub group: Option<Vec<usize>>,
    pub order: Vec<Order>,
    pub limit: Option<Operand>,
    pub offset: Option<Operand>,
}

#[derive(Clone, Debug)]
pub(super) struct Source {
    pub table: Arc<Table>,
    pub alias: String,
    /// The number of its first column.
    pub first: usize,
    /// What its key is equal to, column by column; empty for the table that is read.
    pub key: Vec<Operand>,
}

impl Source {
    /// By its alias, or by schema and name.
    pub fn is_called(&self, qualifier: &[String]) -> bool {
        match qualifier {
            [alias] => self.alias == *alias,
            [schema, table] => self.table.schema == *schema && self.alias == *table,
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Output {
    Value(Operand),
    Aggregate(Aggregate),
}

#[derive(Clone, Debug)]
pub(super) struct Aggregate {
    pub function: Function,
    /// `None`: `count(*)`.
    pub column: Option<usize>,
    pub distinct: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Count,
    Sum,
    Average,
    Least,
    Greatest,
}

#[derive(Clone, Debug)]
pub(super) struct Order {
    pub by: OrderBy,
    pub kind: Kind,
    pub descending: bool,
    pub nulls_first: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OrderBy {
    Column(usize),
    /// The place in the output.
    Output(usize),
}

impl Select {
    pub fn column(&self, number: usize) -> &crate::catalog::Column {
        let source = self.source_of(number);
        &source.table.columns[number - source.first]
    }

    pub fn source_of(&self, number: usize) -> &Source {
        self.tables
            .iter()
            .rfind(|source| source.first <= number)
            .expect("columns belong to tables")
    }
}
