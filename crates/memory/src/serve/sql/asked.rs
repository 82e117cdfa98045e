//! What drivers ask as they connect: which server and session it is, and whether it has a type.
//!
//! No type is there by name: a driver that asks for one, such as `hstore`, takes its values as
//! text then, which is what it gets. By its oid a type of some column is there, with its name.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SelectStmt, SqlValueFunctionOp};

use crate::catalog::Catalog;

use super::output::output_column;
use super::tree::{boxed, constant, inner, names};
use super::types::{BOOL, OID, TEXT};
use super::{Kind, OutputColumn, Plan, SqlError, Statement};

/// A question, column by column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Session(Vec<About>),
    /// About the type whose oid is the parameter.
    Type(Vec<OfType>),
}

impl Asked {
    /// The answer, if there is one. `shown`: what `SHOW` can show.
    pub(super) fn row(
        &self,
        shown: &[(&'static str, String)],
        catalog: &Catalog,
        parameters: &[Option<Vec<u8>>],
    ) -> Result<Option<Vec<String>>, SqlError> {
        match self {
            Self::Session(about) => {
                let row: Result<_, _> = about.iter().map(|one| one.answer(shown)).collect();
                row.map(Some)
            }
            Self::Type(wanted) => {
                let oid = parameters.first().and_then(Option::as_deref);
                let oid = oid.map(String::from_utf8_lossy).unwrap_or_default();
                Ok(type_row(catalog, &oid, wanted))
            }
        }
    }
}

/// A call without a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    Version,
    Database,
    User,
    Schema,
    InRecovery,
    Setting(String),
}

impl About {
    /// `shown`: what `SHOW` can show.
    fn answer(&self, shown: &[(&'static str, String)]) -> Result<String, SqlError> {
        let setting = |name: &str| {
            let known = shown.iter();
            let known = known
                .clone()
                .find(|(known, _)| known.eq_ignore_ascii_case(name));
            known.map(|(_, value)| value.clone()).ok_or_else(|| {
                let what = format!("unrecognized configuration parameter \"{name}\"");
                SqlError::new("42704", what)
            })
        };
        Ok(match self {
            Self::Version => format!(
                "PostgreSQL {} (hindcast standby in memory)",
                setting("server_version")?
            ),
            Self::Database => setting("hindcast.database")?,
            Self::User => setting("session_authorization")?,
            Self::Schema => "public".to_owned(),
            Self::InRecovery => "t".to_owned(),
            Self::Setting(name) => setting(name)?,
        })
    }

    /// With the name that its column has.
    fn of(node: &NodeEnum) -> Option<(Self, String)> {
        if let NodeEnum::SqlvalueFunction(value) = node {
            let (about, name) = match SqlValueFunctionOp::try_from(value.op).ok()? {
                SqlValueFunctionOp::SvfopCurrentUser => (Self::User, "current_user"),
                SqlValueFunctionOp::SvfopCurrentRole => (Self::User, "current_role"),
                SqlValueFunctionOp::SvfopUser => (Self::User, "user"),
                SqlValueFunctionOp::SvfopSessionUser => (Self::User, "session_user"),
                SqlValueFunctionOp::SvfopCurrentCatalog => (Self::Database, "current_catalog"),
                SqlValueFunctionOp::SvfopCurrentSchema => (Self::Schema, "current_schema"),
                _ => return None,
            };
            return Some((about, name.to_owned()));
        }
        let NodeEnum::FuncCall(call) = node else {
            return None;
        };
        let name = match names(&call.funcname).as_slice() {
            [name] => name.clone(),
            [schema, name] if schema == "pg_catalog" => name.clone(),
            _ => return None,
        };
        let about = match (name.as_str(), call.args.as_slice()) {
            ("version", []) => Self::Version,
            ("current_database", []) => Self::Database,
            ("current_schema", []) => Self::Schema,
            ("pg_is_in_recovery", []) => Self::InRecovery,
            ("current_setting", [setting]) => {
                Self::Setting(inner(setting).and_then(constant)??.text)
            }
            _ => return None,
        };
        Some((about, name))
    }
}

/// What is said of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfType {
    Oid,
    Name,
    Schema,
    /// That its name needs no schema.
    IsVisible,
    IsArray,
    /// A base type: what others are is not known here, and their values are text as well.
    Kind,
}

impl OfType {
    fn of(node: &NodeEnum) -> Option<Self> {
        match node {
            NodeEnum::ColumnRef(column) => match names(&column.fields).last()?.as_str() {
                "oid" => Some(Self::Oid),
                "typname" => Some(Self::Name),
                "nspname" => Some(Self::Schema),
                "typtype" => Some(Self::Kind),
                _ => None,
            },
            // `n.nspname = ANY (current_schemas(true))`, `typinput = 'array_in'::regproc`.
            NodeEnum::AExpr(compared) => match boxed(&compared.lexpr)? {
                NodeEnum::ColumnRef(column) => match names(&column.fields).last()?.as_str() {
                    "nspname" => Some(Self::IsVisible),
                    "typinput" => Some(Self::IsArray),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }
}

/// The row of a type that some column has.
fn type_row(catalog: &Catalog, oid: &str, wanted: &[OfType]) -> Option<Vec<String>> {
    let number: u32 = oid.parse().ok()?;
    let tables = catalog.all();
    let mut columns = tables.iter().flat_map(|table| &table.columns);
    let column = columns.find(|column| column.type_oid == number)?;
    let (schema, name) = match column.type_name.split_once('.') {
        Some((schema, name)) => (schema, name),
        None => ("pg_catalog", column.type_name.as_str()),
    };
    let plain = |name: &str| name.trim_matches('"').to_owned();
    let one = |of: &OfType| match of {
        OfType::Oid => oid.to_owned(),
        OfType::Name => plain(name),
        OfType::Schema => plain(schema),
        OfType::IsVisible => match schema {
            "pg_catalog" | "public" => "t".to_owned(),
            _ => "f".to_owned(),
        },
        OfType::IsArray => match name.ends_with("[]") {
            true => "t".to_owned(),
            false => "f".to_owned(),
        },
        OfType::Kind => "b".to_owned(),
    };
    Some(wanted.iter().map(one).collect())
}

/// `WHERE t.oid = $1`, and no more than is known of a type.
fn by_oid(stmt: &SelectStmt, declared: &[u32]) -> Option<Statement> {
    let NodeEnum::AExpr(compared) = boxed(&stmt.where_clause)? else {
        return None;
    };
    let is_of_oid = matches!(boxed(&compared.lexpr)?, NodeEnum::ColumnRef(column)
        if names(&column.fields).last().is_some_and(|name| name == "oid"));
    let is_given = matches!(boxed(&compared.rexpr)?, NodeEnum::ParamRef(_));
    if names(&compared.name) != ["="] || !is_of_oid || !is_given {
        return None;
    }
    let of = |target: &Node| match inner(target) {
        Some(NodeEnum::ResTarget(target)) => OfType::of(boxed(&target.val)?),
        _ => None,
    };
    let wanted: Vec<OfType> = stmt.target_list.iter().map(of).collect::<Option<_>>()?;
    let columns = no_type(stmt, &[]).columns.into_iter().zip(&wanted);
    let typed = |(column, of): (OutputColumn, &OfType)| OutputColumn {
        type_oid: match of {
            OfType::Oid => OID,
            OfType::IsVisible | OfType::IsArray => BOOL,
            OfType::Name | OfType::Schema | OfType::Kind => TEXT,
        },
        ..column
    };
    Some(Statement {
        columns: columns.map(typed).collect(),
        plan: Plan::Asked(Asked::Type(wanted)),
        // Some send it as a `bigint`.
        parameters: vec![
            declared
                .first()
                .copied()
                .filter(|&oid| oid != 0)
                .unwrap_or(OID),
        ],
        ..Statement::plain(Kind::Select)
    })
}

/// `None`: it is a question of another kind.
pub(super) fn asked(stmt: &SelectStmt, declared: &[u32]) -> Option<Statement> {
    match stmt.from_clause.as_slice() {
        [] if stmt.where_clause.is_none() => session(stmt),
        [from] if reads_types(from) && is_by_name(boxed(&stmt.where_clause)?) => {
            Some(no_type(stmt, declared))
        }
        [from] if reads_types(from) => by_oid(stmt, declared),
        _ => None,
    }
}

fn session(stmt: &SelectStmt) -> Option<Statement> {
    let mut columns = Vec::new();
    let mut about = Vec::new();
    for target in &stmt.target_list {
        let Some(NodeEnum::ResTarget(target)) = inner(target) else {
            return None;
        };
        let (one, name) = About::of(boxed(&target.val)?)?;
        let name = match target.name.is_empty() {
            true => name,
            false => target.name.clone(),
        };
        let type_oid = match one {
            About::InRecovery => BOOL,
            _ => TEXT,
        };
        columns.push(output_column(&name, type_oid));
        about.push(one);
    }
    (!about.is_empty()).then(|| Statement {
        columns,
        plan: Plan::Asked(Asked::Session(about)),
        ..Statement::plain(Kind::Select)
    })
}

fn reads_types(from: &Node) -> bool {
    match inner(from) {
        Some(NodeEnum::RangeVar(range)) => range.relname == "pg_type",
        Some(NodeEnum::JoinExpr(join)) => [&join.larg, &join.rarg]
            .into_iter()
            .flatten()
            .any(|side| reads_types(side)),
        _ => false,
    }
}

/// `typname = 'hstore'` or `oid = to_regtype('hstore')`, alone.
fn is_by_name(condition: &NodeEnum) -> bool {
    let NodeEnum::AExpr(compared) = condition else {
        return false;
    };
    let is_equality = names(&compared.name) == ["="];
    let sides = [boxed(&compared.lexpr), boxed(&compared.rexpr)];
    let asks = |side: &NodeEnum| match side {
        NodeEnum::ColumnRef(column) => names(&column.fields)
            .last()
            .is_some_and(|name| name == "typname"),
        NodeEnum::FuncCall(call) => names(&call.funcname)
            .last()
            .is_some_and(|name| name == "to_regtype"),
        _ => false,
    };
    is_equality && sides.into_iter().flatten().any(asks)
}

fn no_type(stmt: &SelectStmt, declared: &[u32]) -> Statement {
    let column = |target: &Node| -> OutputColumn {
        let name = match inner(target) {
            Some(NodeEnum::ResTarget(target)) if !target.name.is_empty() => target.name.clone(),
            Some(NodeEnum::ResTarget(target)) => match boxed(&target.val) {
                Some(NodeEnum::ColumnRef(column)) => names(&column.fields).pop(),
                _ => None,
            }
            .unwrap_or_else(|| "?column?".to_owned()),
            _ => "?column?".to_owned(),
        };
        output_column(&name, TEXT)
    };
    let parameters = declared.iter();
    let parameters: Vec<u32> = parameters
        .map(|&oid| if oid == 0 { TEXT } else { oid })
        .collect();
    Statement {
        columns: stmt.target_list.iter().map(column).collect(),
        parameters: match parameters.is_empty() && has_parameter(boxed(&stmt.where_clause)) {
            true => vec![TEXT],
            false => parameters,
        },
        ..Statement::plain(Kind::Select)
    }
}

fn has_parameter(condition: Option<&NodeEnum>) -> bool {
    match condition {
        Some(NodeEnum::ParamRef(_)) => true,
        Some(NodeEnum::AExpr(compared)) => [&compared.lexpr, &compared.rexpr]
            .into_iter()
            .any(|side| has_parameter(boxed(side))),
        Some(NodeEnum::FuncCall(call)) => call
            .args
            .iter()
            .any(|argument| has_parameter(inner(argument))),
        Some(NodeEnum::TypeCast(cast)) => has_parameter(boxed(&cast.arg)),
        _ => false,
    }
}
