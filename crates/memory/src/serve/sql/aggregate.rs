//! Aggregates over the rows of a group.

use std::collections::HashSet;

use crate::catalog::Column;
use crate::encoding::parse_float;

use super::SqlError;
use super::decimal::{Sum, float4, float8};
use super::predicate::encoded;
use super::select::{Aggregate, Function};

const INT8: u32 = 20;
const FLOAT4: u32 = 700;
const FLOAT8: u32 = 701;

/// What an aggregate has seen so far of its group.
#[derive(Debug)]
pub(super) struct State {
    seen: u64,
    sum: Sum,
    float: f64,
    single: f32,
    /// The least or greatest so far, encoded and as it is.
    extreme: Option<(Vec<u8>, Vec<u8>)>,
    distinct: Option<HashSet<Vec<u8>>>,
}

impl State {
    pub fn new(aggregate: &Aggregate) -> Self {
        Self {
            seen: 0,
            sum: Sum::default(),
            float: 0.0,
            single: 0.0,
            extreme: None,
            distinct: aggregate.distinct.then(HashSet::new),
        }
    }

    /// Takes a row in; `value` is that of the aggregate's column.
    pub fn add(
        &mut self,
        aggregate: &Aggregate,
        column: Option<&Column>,
        value: Option<&[u8]>,
    ) -> Result<(), SqlError> {
        let (Some(column), value) = (column, value) else {
            self.seen += 1;
            return Ok(());
        };
        let Some(value) = value else {
            return Ok(());
        };
        if let Some(known) = &mut self.distinct {
            let mut key = Vec::new();
            encoded(column.kind, value, &mut key)?;
            if !known.insert(key) {
                return Ok(());
            }
        }
        self.seen += 1;
        let text = || std::str::from_utf8(value).unwrap_or("");
        let odd = || SqlError::new("22P02", format!("{:?} is not a number", text()));
        match aggregate.function {
            Function::Count => {}
            Function::Sum | Function::Average => match column.type_oid {
                FLOAT4 if aggregate.function == Function::Sum => {
                    self.single += parse_float(text()).ok_or_else(odd)? as f32;
                }
                FLOAT4 | FLOAT8 => self.float += parse_float(text()).ok_or_else(odd)?,
                _ => self.sum.add(text()).ok_or_else(odd)?,
            },
            Function::Least | Function::Greatest => {
                let mut key = Vec::new();
                encoded(column.kind, value, &mut key)?;
                let better = match &self.extreme {
                    None => true,
                    Some((best, _)) if aggregate.function == Function::Least => key < *best,
                    Some((best, _)) => key > *best,
                };
                if better {
                    self.extreme = Some((key, value.to_vec()));
                }
            }
        }
        Ok(())
    }

    /// The result in text form; `None` is NULL.
    pub fn result(
        &self,
        aggregate: &Aggregate,
        column: Option<&Column>,
    ) -> Result<Option<Vec<u8>>, SqlError> {
        let type_oid = column.map_or(INT8, |column| column.type_oid);
        let text = match aggregate.function {
            Function::Count => Some(self.seen.to_string()),
            Function::Least | Function::Greatest => {
                return Ok(self.extreme.as_ref().map(|(_, value)| value.clone()));
            }
            _ if self.seen == 0 => None,
            Function::Sum => match type_oid {
                FLOAT4 => Some(float4(self.single)),
                FLOAT8 => Some(float8(self.float)),
                21 | 23 => {
                    let total = self.sum.total();
                    if total.parse::<i64>().is_err() {
                        return Err(SqlError::new("22003", "bigint out of range"));
                    }
                    Some(total)
                }
                _ => Some(self.sum.total()),
            },
            Function::Average => match type_oid {
                FLOAT4 | FLOAT8 => Some(float8(self.float / self.seen as f64)),
                _ => self.sum.average(),
            },
        };
        Ok(text.map(String::into_bytes))
    }
}
