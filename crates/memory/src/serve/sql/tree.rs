//! Small helpers around the syntax tree of Postgres' grammar.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SelectStmt, a_const::Val};

use super::SqlError;
use super::decimal::plain_decimal;

pub(super) fn syntax(error: pg_query::Error) -> SqlError {
    match error {
        pg_query::Error::Parse(reason) => SqlError::new("42601", reason),
        other => SqlError::new("42601", other.to_string()),
    }
}

/// The one statement of a text; `None` if there is none.
pub(super) fn parse(text: &str) -> Result<Option<NodeEnum>, SqlError> {
    let parsed = pg_query::parse(text, 0).map_err(syntax)?;
    let mut statements = parsed.protobuf.stmts.into_iter();
    let first = statements
        .next()
        .and_then(|raw| raw.stmt)
        .and_then(|stmt| stmt.node);
    match statements.next() {
        None => Ok(first),
        Some(_) => Err(SqlError::new(
            "42601",
            "cannot insert multiple commands into a prepared statement",
        )),
    }
}

pub(super) fn inner(node: &Node) -> Option<&NodeEnum> {
    node.node.as_ref()
}

pub(super) fn boxed(node: &Option<Box<Node>>) -> Option<&NodeEnum> {
    node.as_deref().and_then(inner)
}

/// A name, or the part of one.
pub(super) fn string(node: &Node) -> Option<&str> {
    match inner(node)? {
        NodeEnum::String(text) => Some(&text.sval),
        _ => None,
    }
}

/// Names with dots between them.
pub(super) fn names(nodes: &[Node]) -> Vec<String> {
    nodes.iter().filter_map(string).map(str::to_owned).collect()
}

/// A constant in text form. The outer `None`: it is none; the inner one: NULL.
pub(super) fn constant(node: &NodeEnum) -> Option<Option<Literal>> {
    let NodeEnum::AConst(constant) = node else {
        return None;
    };
    if constant.isnull {
        return Some(None);
    }
    let (text, kind) = match constant.val.as_ref()? {
        Val::Ival(value) => (value.ival.to_string(), LiteralKind::Integer),
        Val::Fval(value) => number(&value.fval)?,
        Val::Boolval(value) => (
            if value.boolval { "t" } else { "f" }.to_owned(),
            LiteralKind::Bool,
        ),
        Val::Sval(value) => (value.sval.clone(), LiteralKind::Text),
        Val::Bsval(_) => return None,
    };
    Some(Some(Literal { text, kind }))
}

/// A number that is no `integer`, as Postgres would write it.
fn number(text: &str) -> Option<(String, LiteralKind)> {
    match text.parse::<i64>() {
        Ok(value) => Some((value.to_string(), LiteralKind::Long)),
        Err(_) => Some((plain_decimal(text)?, LiteralKind::Number)),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Literal {
    pub text: String,
    pub kind: LiteralKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LiteralKind {
    Integer,
    /// A whole number that only `bigint` has.
    Long,
    Number,
    Bool,
    /// Of whatever type is wanted.
    Text,
}

/// A clause that is there and must not be.
pub(super) fn refuse_clauses(select: &SelectStmt) -> Result<(), SqlError> {
    let refused = [
        (!select.distinct_clause.is_empty(), "DISTINCT"),
        (select.into_clause.is_some(), "SELECT INTO"),
        (select.having_clause.is_some(), "HAVING"),
        (!select.window_clause.is_empty(), "WINDOW"),
        (!select.values_lists.is_empty(), "VALUES"),
        (select.with_clause.is_some(), "WITH"),
        (select.larg.is_some(), "UNION, INTERSECT and EXCEPT"),
        (
            select.limit_option == pg_query::protobuf::LimitOption::WithTies as i32,
            "WITH TIES",
        ),
        (select.group_distinct, "GROUP BY DISTINCT"),
    ];
    match refused.iter().find(|(is_there, _)| *is_there) {
        Some((_, what)) => Err(SqlError::unsupported(what)),
        None if !select.locking_clause.is_empty() => Err(SqlError::new(
            "25006",
            "cannot execute SELECT FOR UPDATE in a read-only transaction",
        )),
        None => Ok(()),
    }
}
