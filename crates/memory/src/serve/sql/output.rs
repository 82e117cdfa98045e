//! What a query returns, how it groups, and in which order.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SortByDir, SortByNulls};

use crate::catalog::Column;
use crate::encoding::Kind as Type;

use super::literal::{is_written_plainly, plain_type};
use super::predicate::Operand;
use super::scope::Scope;
use super::select::{Aggregate, Function, Order, OrderBy, Output};
use super::term::Term;
use super::tree::{LiteralKind, boxed, constant, inner, names, string};
use super::types::{FLOAT4, FLOAT8, INT4, INT8, NUMERIC, TEXT, type_named};
use super::{OutputColumn, SqlError};

impl Scope {
    /// The columns of all tables, or those of the table that is called so.
    fn all_columns(
        &self,
        of: Option<&str>,
        columns: &mut Vec<OutputColumn>,
        output: &mut Vec<Output>,
    ) -> Result<(), SqlError> {
        let mut found = false;
        for source in &self.tables {
            if of.is_some_and(|alias| alias != source.alias) {
                continue;
            }
            found = true;
            for (place, column) in source.table.columns.iter().enumerate() {
                columns.push(output_column(&column.name, column.type_oid));
                output.push(Output::Value(Operand::Column(source.first + place)));
            }
        }
        match (found, of) {
            (true, _) => Ok(()),
            (false, Some(alias)) => Err(SqlError::new(
                "42P01",
                format!("missing FROM-clause entry for table \"{alias}\""),
            )),
            (false, None) => Err(SqlError::new(
                "42601",
                "SELECT * with no tables specified is not valid",
            )),
        }
    }

    pub(super) fn target(
        &mut self,
        target: &Node,
        columns: &mut Vec<OutputColumn>,
        output: &mut Vec<Output>,
    ) -> Result<(), SqlError> {
        let Some(NodeEnum::ResTarget(target)) = inner(target) else {
            return Err(SqlError::unsupported("this output"));
        };
        let value = boxed(&target.val);
        let named = |default: &str| match target.name.is_empty() {
            true => default.to_owned(),
            false => target.name.clone(),
        };
        match value {
            Some(NodeEnum::ColumnRef(column))
                if matches!(
                    column.fields.last().and_then(inner),
                    Some(NodeEnum::AStar(_))
                ) =>
            {
                self.all_columns(column.fields.first().and_then(string), columns, output)
            }
            Some(NodeEnum::FuncCall(call)) => {
                let name = names(&call.funcname).pop().unwrap_or_default();
                let (aggregate, type_oid) = self.aggregate(&name, call)?;
                columns.push(output_column(&named(&name), type_oid));
                output.push(Output::Aggregate(aggregate));
                Ok(())
            }
            value => {
                // A cast of a column to text changes nothing: that is the form it has.
                let term = match value {
                    Some(NodeEnum::TypeCast(cast)) => self.cast_output(cast)?,
                    _ => self.term(value)?,
                };
                if let (Operand::Constant(Some(_)), Some(oid)) = (&term.operand, term.cast)
                    && !is_written_plainly(oid)
                {
                    return Err(SqlError::unsupported(
                        "a constant of this type in the output",
                    ));
                }
                let (default, type_oid) = match &term.operand {
                    Operand::Column(number) => {
                        let column = self.column(*number);
                        (column.name.clone(), term.cast.unwrap_or(column.type_oid))
                    }
                    Operand::Parameter(number) => {
                        let number = *number;
                        if self.parameters[number] == 0 {
                            self.parameters[number] = TEXT;
                        }
                        ("?column?".to_owned(), self.parameters[number])
                    }
                    Operand::Constant(_) => {
                        ("?column?".to_owned(), self.type_of(&term).unwrap_or(TEXT))
                    }
                };
                columns.push(output_column(&named(&default), type_oid));
                output.push(Output::Value(term.operand));
                Ok(())
            }
        }
    }

    pub(super) fn cast_output(
        &mut self,
        cast: &pg_query::protobuf::TypeCast,
    ) -> Result<Term, SqlError> {
        let wanted = cast
            .type_name
            .as_ref()
            .map(|name| names(&name.names))
            .unwrap_or_default();
        let to_text = matches!(type_named(&wanted), Some(TEXT | 1043));
        plain_type(cast)?;
        let mut term = self.term(boxed(&cast.arg))?;
        match term.operand {
            Operand::Column(number) if to_text => {
                let column = self.column(number);
                if matches!(column.kind, Type::Bool | Type::Padded) {
                    return Err(SqlError::unsupported(format!(
                        "a cast of column {} to text",
                        column.name
                    )));
                }
                term.cast = Some(TEXT);
                Ok(term)
            }
            _ => self.term(Some(&NodeEnum::TypeCast(Box::new(cast.clone())))),
        }
    }

    pub(super) fn aggregate(
        &mut self,
        name: &str,
        call: &pg_query::protobuf::FuncCall,
    ) -> Result<(Aggregate, u32), SqlError> {
        let function = match name {
            "count" => Function::Count,
            "sum" => Function::Sum,
            "avg" => Function::Average,
            "min" => Function::Least,
            "max" => Function::Greatest,
            _ => return Err(SqlError::unsupported(format!("the function {name}"))),
        };
        if call.agg_filter.is_some() || call.over.is_some() || !call.agg_order.is_empty() {
            return Err(SqlError::unsupported(
                "FILTER, OVER or ORDER BY within an aggregate",
            ));
        }
        if call.agg_star {
            return match function {
                Function::Count => Ok((
                    Aggregate {
                        function,
                        column: None,
                        distinct: false,
                    },
                    INT8,
                )),
                _ => Err(SqlError::new(
                    "42883",
                    format!("function {name}() does not exist"),
                )),
            };
        }
        let [arg] = call.args.as_slice() else {
            return Err(SqlError::unsupported("an aggregate of several arguments"));
        };
        let term = self.term(inner(arg))?;
        let Operand::Column(number) = term.operand else {
            return Err(SqlError::unsupported(
                "an aggregate of anything but a column",
            ));
        };
        let type_oid = type_of(function, name, self.column(number))?;
        if matches!(function, Function::Least | Function::Greatest) {
            self.must_compare(number, !term.in_byte_order)?;
        }
        if call.agg_distinct {
            self.must_compare(number, false)?;
        }
        Ok((
            Aggregate {
                function,
                column: Some(number),
                distinct: call.agg_distinct,
            },
            type_oid,
        ))
    }

    /// A column of GROUP BY: by name, or by place in the output.
    pub(super) fn grouped(
        &mut self,
        node: Option<&NodeEnum>,
        output: &[Output],
    ) -> Result<usize, SqlError> {
        if let Some(place) = place(node)? {
            return match output.get(place) {
                Some(Output::Value(Operand::Column(number))) => Ok(*number),
                _ => Err(SqlError::new(
                    "42P10",
                    "GROUP BY position is not in the select list",
                )),
            };
        }
        match self.term(node)?.operand {
            Operand::Column(number) => Ok(number),
            _ => Err(SqlError::unsupported("GROUP BY of anything but a column")),
        }
    }

    pub(super) fn order(
        &mut self,
        node: &Node,
        columns: &[OutputColumn],
        output: &[Output],
        group: Option<&[usize]>,
    ) -> Result<Order, SqlError> {
        let Some(NodeEnum::SortBy(sort)) = inner(node) else {
            return Err(SqlError::unsupported("this ORDER BY"));
        };
        let descending = match SortByDir::try_from(sort.sortby_dir) {
            Ok(SortByDir::SortbyDesc) => true,
            Ok(SortByDir::SortbyUsing) => return Err(SqlError::unsupported("ORDER BY … USING")),
            _ => false,
        };
        let nulls_first = match SortByNulls::try_from(sort.sortby_nulls) {
            Ok(SortByNulls::SortbyNullsFirst) => true,
            Ok(SortByNulls::SortbyNullsLast) => false,
            _ => descending,
        };
        let node = boxed(&sort.node);
        // A name is first looked for in the output, as in Postgres.
        let by_name = match node {
            Some(NodeEnum::ColumnRef(column)) if column.fields.len() == 1 => {
                let name = names(&column.fields).pop().unwrap_or_default();
                columns.iter().position(|column| column.name == name)
            }
            _ => None,
        };
        let mut in_byte_order = false;
        let by = match place(node)?.or(by_name) {
            Some(at) if at >= output.len() => {
                return Err(SqlError::new(
                    "42P10",
                    "ORDER BY position is not in the select list",
                ));
            }
            Some(at) => match &output[at] {
                Output::Value(Operand::Column(number)) => OrderBy::Column(*number),
                _ => OrderBy::Output(at),
            },
            None => {
                let term = self.term(node)?;
                in_byte_order = term.in_byte_order;
                match term.operand {
                    Operand::Column(number) => OrderBy::Column(number),
                    _ => return Err(SqlError::unsupported("ORDER BY of anything but a column")),
                }
            }
        };
        let kind = match by {
            OrderBy::Column(number) => {
                if group.is_some_and(|group| !group.contains(&number)) {
                    return Err(SqlError::new(
                        "42803",
                        format!(
                            "column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                            self.column(number).name
                        ),
                    ));
                }
                self.must_compare(number, !in_byte_order)?;
                self.column(number).kind
            }
            OrderBy::Output(at) => {
                if let Output::Aggregate(Aggregate {
                    function: Function::Least | Function::Greatest,
                    column: Some(number),
                    ..
                }) = &output[at]
                {
                    self.must_compare(*number, true)?;
                }
                Type::of(columns[at].type_oid)
            }
        };
        Ok(Order {
            by,
            kind,
            descending,
            nulls_first,
        })
    }

    /// LIMIT or OFFSET.
    pub(super) fn count(&mut self, node: Option<&NodeEnum>) -> Result<Option<Operand>, SqlError> {
        let Some(node) = node else {
            return Ok(None);
        };
        let term = self.term(Some(node))?;
        match term.operand {
            Operand::Column(_) => Err(SqlError::unsupported("LIMIT by a column")),
            Operand::Parameter(number) => {
                if self.parameters[number] == 0 {
                    self.parameters[number] = INT8;
                }
                Ok(Some(term.operand))
            }
            // LIMIT ALL and LIMIT NULL.
            Operand::Constant(None) => Ok(None),
            Operand::Constant(_) => Ok(Some(term.operand)),
        }
    }
}

/// A whole number that stands for a place in the output, from 0.
fn place(node: Option<&NodeEnum>) -> Result<Option<usize>, SqlError> {
    match node.and_then(constant) {
        Some(Some(literal)) if literal.kind == LiteralKind::Integer => {
            let number: usize = literal.text.parse().unwrap_or(0);
            number
                .checked_sub(1)
                .map(Some)
                .ok_or_else(|| SqlError::new("42P10", "position 0 is not in the select list"))
        }
        _ => Ok(None),
    }
}

pub(super) fn output_column(name: &str, type_oid: u32) -> OutputColumn {
    OutputColumn {
        name: name.to_owned(),
        type_oid,
    }
}

/// Of which type an aggregate of a column is.
fn type_of(function: Function, name: &str, column: &Column) -> Result<u32, SqlError> {
    Ok(match function {
        Function::Count => INT8,
        Function::Least | Function::Greatest => {
            if matches!(column.kind, Type::Bool | Type::Uuid | Type::Bytes) {
                return Err(SqlError::new(
                    "42883",
                    format!("function {name}({}) does not exist", column.type_name),
                ));
            }
            column.type_oid
        }
        Function::Sum => match column.type_oid {
            21 | INT4 => INT8,
            INT8 | NUMERIC => NUMERIC,
            FLOAT4 => FLOAT4,
            FLOAT8 => FLOAT8,
            _ => {
                return Err(SqlError::unsupported(format!(
                    "sum of {}",
                    column.type_name
                )));
            }
        },
        Function::Average => match column.type_oid {
            20 | 21 | INT4 | NUMERIC => NUMERIC,
            FLOAT4 | FLOAT8 => FLOAT8,
            _ => {
                return Err(SqlError::unsupported(format!(
                    "avg of {}",
                    column.type_name
                )));
            }
        },
    })
}
