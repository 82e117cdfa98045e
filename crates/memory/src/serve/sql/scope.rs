//! What names mean: tables, their columns, and how joined tables are looked up.

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{JoinType, Node, RangeVar};

use crate::catalog::Catalog;
use crate::encoding::Kind as Type;

use super::SqlError;
use super::predicate::{Comparison, Operand, Predicate};
use super::select::Source;
use super::term::Term;
use super::tree::{boxed, inner, names};

/// The tables of a query, and the types of its parameters.
pub(super) struct Scope {
    pub tables: Vec<Source>,
    /// Types of the parameters, 0 where that is not known yet.
    pub parameters: Vec<u32>,
}

impl Scope {
    pub(super) fn from(
        &mut self,
        node: &Node,
        catalog: &Catalog,
        filter: &mut Vec<Predicate>,
    ) -> Result<(), SqlError> {
        match inner(node) {
            Some(NodeEnum::RangeVar(range)) => self.table(range, catalog).map(drop),
            Some(NodeEnum::JoinExpr(join)) => {
                if JoinType::try_from(join.jointype) != Ok(JoinType::JoinInner) || join.is_natural {
                    return Err(SqlError::unsupported("an outer or natural join"));
                }
                if join.alias.is_some() {
                    return Err(SqlError::unsupported("an alias for a join"));
                }
                let left = join
                    .larg
                    .as_deref()
                    .ok_or_else(|| SqlError::unsupported("this join"))?;
                self.from(left, catalog, filter)?;
                let Some(NodeEnum::RangeVar(range)) = boxed(&join.rarg) else {
                    return Err(SqlError::unsupported("a join with anything but a table"));
                };
                let joined = self.table(range, catalog)?;
                let mut on = Vec::new();
                match boxed(&join.quals) {
                    Some(condition) => self.conjuncts(condition, &mut on)?,
                    None if join.using_clause.is_empty() => {
                        return Err(SqlError::unsupported("a cross join"));
                    }
                    None => {}
                }
                for name in names(&join.using_clause) {
                    on.push(self.using(&name, joined)?);
                }
                self.look_up(joined, on, filter)
            }
            _ => Err(SqlError::unsupported("a subquery or function in FROM")),
        }
    }

    pub(super) fn table(&mut self, range: &RangeVar, catalog: &Catalog) -> Result<usize, SqlError> {
        let schema = (!range.schemaname.is_empty()).then_some(range.schemaname.as_str());
        let table = catalog.by_name(schema, &range.relname).ok_or_else(|| {
            if matches!(schema, Some("pg_catalog" | "information_schema"))
                || range.relname.starts_with("pg_")
            {
                return SqlError::unsupported(format!("the system catalog ({})", range.relname));
            }
            let full = schema.map_or_else(String::new, |schema| format!("{schema}."));
            SqlError::new(
                "42P01",
                format!("relation \"{full}{}\" does not exist", range.relname),
            )
        })?;
        let alias = match &range.alias {
            Some(alias) if !alias.colnames.is_empty() => {
                return Err(SqlError::unsupported("an alias that renames columns"));
            }
            Some(alias) => alias.aliasname.clone(),
            None => range.relname.clone(),
        };
        if self.tables.iter().any(|source| source.alias == alias) {
            return Err(SqlError::new(
                "42712",
                format!("table name \"{alias}\" specified more than once"),
            ));
        }
        let first = self.width();
        self.tables.push(Source {
            table,
            alias,
            first,
            key: Vec::new(),
        });
        Ok(self.tables.len() - 1)
    }

    pub(super) fn width(&self) -> usize {
        self.tables
            .last()
            .map_or(0, |last| last.first + last.table.columns.len())
    }

    pub(super) fn using(&mut self, name: &str, joined: usize) -> Result<Predicate, SqlError> {
        let right = &self.tables[joined];
        let right = right.first + right.table.column(name).ok_or_else(|| no_column(name))?;
        let left = self.tables[..joined]
            .iter()
            .find_map(|source| Some(source.first + source.table.column(name)?))
            .ok_or_else(|| no_column(name))?;
        self.compare(Comparison::Equal, Term::column(left), Term::column(right))
    }

    /// Conditions of the form key column = something known before become the look-up; the rest
    /// filters.
    pub(super) fn look_up(
        &mut self,
        joined: usize,
        on: Vec<Predicate>,
        filter: &mut Vec<Predicate>,
    ) -> Result<(), SqlError> {
        let source = &self.tables[joined];
        let (first, table) = (source.first, Arc::clone(&source.table));
        let mut key: Vec<Option<Operand>> = vec![None; table.key.len()];
        for predicate in on {
            if let Predicate::Compare {
                comparison: Comparison::Equal,
                left,
                right,
                kinds,
            } = &predicate
            {
                let known = |operand: &Operand| !matches!(operand, Operand::Column(number) if *number >= first);
                for (one, other) in [(left, right), (right, left)] {
                    if let Operand::Column(number) = one
                        && *number >= first
                        && known(other)
                        && let Some(at) =
                            table.key.iter().position(|place| first + place == *number)
                        && kinds.0 == kinds.1
                        && table.columns[table.key[at]].kind == kinds.0
                    {
                        key[at].get_or_insert_with(|| other.clone());
                    }
                }
            }
            filter.push(predicate);
        }
        let columns: Vec<&str> = table
            .key
            .iter()
            .map(|&place| table.columns[place].name.as_str())
            .collect();
        let key: Option<Vec<Operand>> = key.into_iter().collect();
        self.tables[joined].key = key.filter(|key| !key.is_empty()).ok_or_else(|| {
            SqlError::unsupported(match columns.is_empty() {
                true => format!("a join to {}, which has no primary key", table.name),
                false => format!(
                    "a join that does not give {}'s whole primary key ({})",
                    table.name,
                    columns.join(", ")
                ),
            })
        })?;
        Ok(())
    }

    pub(super) fn find(&self, qualifier: Option<&[String]>, name: &str) -> Result<usize, SqlError> {
        if let Some(qualifier) = qualifier {
            let known = self.tables.iter().any(|source| source.is_called(qualifier));
            if !known {
                return Err(SqlError::new(
                    "42P01",
                    format!(
                        "missing FROM-clause entry for table \"{}\"",
                        qualifier.join(".")
                    ),
                ));
            }
        }
        let mut found = None;
        for source in &self.tables {
            let fits = qualifier.is_none_or(|qualifier| source.is_called(qualifier));
            if let Some(place) = source.table.column(name).filter(|_| fits) {
                if found.is_some() {
                    return Err(SqlError::new(
                        "42702",
                        format!("column reference \"{name}\" is ambiguous"),
                    ));
                }
                found = Some(source.first + place);
            }
        }
        found.ok_or_else(|| no_column(name))
    }

    pub(super) fn column(&self, number: usize) -> &crate::catalog::Column {
        let source = self.tables.iter().rfind(|source| source.first <= number);
        let source = source.expect("columns belong to tables");
        &source.table.columns[number - source.first]
    }

    /// Refuses what would be compared otherwise than Postgres does it.
    pub(super) fn must_compare(&self, number: usize, order: bool) -> Result<(), SqlError> {
        let column = self.column(number);
        if column.kind == Type::Other {
            return Err(SqlError::unsupported(format!(
                "comparing values of type {} (column {})",
                column.type_name, column.name
            )));
        }
        if order && !column.in_byte_order {
            return Err(SqlError::unsupported(format!(
                "the order of column {}, which depends on a collation,",
                column.name
            ))
            .hint(format!(
                "write {} COLLATE \"C\" for the order of its bytes",
                column.name
            )));
        }
        Ok(())
    }
}

pub(super) fn no_column(name: &str) -> SqlError {
    SqlError::new("42703", format!("column \"{name}\" does not exist"))
}
