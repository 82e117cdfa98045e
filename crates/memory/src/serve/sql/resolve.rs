//! From the syntax tree to what can be executed, and a refusal for everything else.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SelectStmt, TransactionStmtKind, VariableSetKind};

use crate::catalog::Catalog;

use super::asked;
use super::output::output_column;
use super::predicate::Operand;
use super::scope::{Scope, no_column};
use super::select::{Output, Select};
use super::tree::{boxed, constant, inner, names, parse, refuse_clauses};
use super::types::TEXT;
use super::{Kind, Plan, STATUS_COLUMNS, SqlError, Statement};

pub(super) fn statement(
    text: &str,
    declared: &[u32],
    catalog: &Catalog,
) -> Result<Statement, SqlError> {
    let Some(node) = parse(text)? else {
        return Ok(Statement::plain(Kind::Empty));
    };
    match node {
        NodeEnum::SelectStmt(select) => selected(&select, declared, catalog),
        NodeEnum::ExplainStmt(explain) => match boxed(&explain.query) {
            Some(NodeEnum::SelectStmt(select)) => {
                let mut statement = selected(select, declared, catalog)?;
                let Plan::Select(select) = statement.plan else {
                    return Err(SqlError::unsupported("EXPLAIN of this"));
                };
                statement.plan = Plan::Explain(select);
                statement.columns = vec![output_column("QUERY PLAN", TEXT)];
                Ok(statement)
            }
            _ => Err(SqlError::unsupported("EXPLAIN of anything but SELECT")),
        },
        NodeEnum::TransactionStmt(stmt) => transaction(stmt.kind, stmt.savepoint_name),
        NodeEnum::VariableShowStmt(show) => Ok(Statement {
            columns: vec![output_column(&show.name, TEXT)],
            plan: Plan::Show(show.name),
            ..Statement::plain(Kind::Show)
        }),
        NodeEnum::VariableSetStmt(set) => match VariableSetKind::try_from(set.kind) {
            Ok(VariableSetKind::VarSetValue) => Ok(Statement::plain(Kind::Set {
                name: set.name,
                value: set
                    .args
                    .iter()
                    .map(setting)
                    .collect::<Result<Vec<_>, _>>()?
                    .join(", "),
                local: set.is_local,
            })),
            Ok(VariableSetKind::VarSetDefault | VariableSetKind::VarReset) => {
                Ok(Statement::plain(Kind::Reset {
                    name: Some(set.name),
                }))
            }
            Ok(VariableSetKind::VarResetAll) => Ok(Statement::plain(Kind::Reset { name: None })),
            // SET TRANSACTION, SET SESSION CHARACTERISTICS: every transaction reads one snapshot
            // anyway.
            Ok(VariableSetKind::VarSetMulti) => Ok(Statement::plain(Kind::Set {
                name: set.name,
                value: String::new(),
                local: false,
            })),
            _ => Err(SqlError::unsupported("SET of this form")),
        },
        NodeEnum::DiscardStmt(_) => Ok(Statement::plain(Kind::DiscardAll)),
        NodeEnum::DeallocateStmt(deallocate) => Ok(Statement::plain(Kind::Deallocate {
            name: (!deallocate.isall).then_some(deallocate.name),
        })),
        NodeEnum::InsertStmt(_) => Err(read_only("INSERT")),
        NodeEnum::UpdateStmt(_) => Err(read_only("UPDATE")),
        NodeEnum::DeleteStmt(_) => Err(read_only("DELETE")),
        NodeEnum::MergeStmt(_) => Err(read_only("MERGE")),
        NodeEnum::TruncateStmt(_) => Err(read_only("TRUNCATE TABLE")),
        NodeEnum::CreateStmt(_) | NodeEnum::CreateTableAsStmt(_) => Err(read_only("CREATE TABLE")),
        NodeEnum::DropStmt(_) => Err(read_only("DROP")),
        NodeEnum::AlterTableStmt(_) => Err(read_only("ALTER TABLE")),
        NodeEnum::IndexStmt(_) => Err(read_only("CREATE INDEX")),
        NodeEnum::LockStmt(_) => Err(read_only("LOCK TABLE")),
        NodeEnum::CopyStmt(_) => Err(SqlError::unsupported("COPY")),
        NodeEnum::DeclareCursorStmt(_) => Err(SqlError::unsupported("a cursor")),
        NodeEnum::PrepareStmt(_) | NodeEnum::ExecuteStmt(_) => {
            Err(SqlError::unsupported("PREPARE in SQL")
                .hint("let the client prepare: in the protocol it works"))
        }
        _ => Err(SqlError::unsupported("a statement of this kind")),
    }
}

fn transaction(kind: i32, name: String) -> Result<Statement, SqlError> {
    Ok(Statement::plain(
        match TransactionStmtKind::try_from(kind) {
            Ok(TransactionStmtKind::TransStmtBegin | TransactionStmtKind::TransStmtStart) => {
                Kind::Begin
            }
            Ok(TransactionStmtKind::TransStmtCommit) => Kind::Commit,
            Ok(TransactionStmtKind::TransStmtRollback) => Kind::Rollback,
            Ok(TransactionStmtKind::TransStmtSavepoint) => Kind::Savepoint { name },
            Ok(TransactionStmtKind::TransStmtRelease) => Kind::Release { name },
            Ok(TransactionStmtKind::TransStmtRollbackTo) => Kind::RollbackTo { name },
            _ => return Err(SqlError::unsupported("a prepared transaction")),
        },
    ))
}

fn read_only(what: &str) -> SqlError {
    SqlError::new(
        "25006",
        format!("cannot execute {what} in a read-only transaction"),
    )
    .hint("this is a standby: write to the primary")
}

fn setting(node: &Node) -> Result<String, SqlError> {
    match inner(node).and_then(constant) {
        Some(Some(literal)) => Ok(literal.text),
        Some(None) => Ok(String::new()),
        None => match inner(node) {
            Some(NodeEnum::TypeCast(cast)) => match boxed(&cast.arg).and_then(constant) {
                Some(Some(literal)) => Ok(literal.text),
                _ => Err(SqlError::unsupported("SET to this value")),
            },
            _ => Err(SqlError::unsupported("SET to this value")),
        },
    }
}

fn selected(stmt: &SelectStmt, declared: &[u32], catalog: &Catalog) -> Result<Statement, SqlError> {
    refuse_clauses(stmt)?;
    if let Some(statement) = status(stmt)?.or_else(|| asked::asked(stmt, declared)) {
        return Ok(statement);
    }
    let mut scope = Scope {
        tables: Vec::new(),
        parameters: declared.to_vec(),
    };
    let mut filter = Vec::new();
    match stmt.from_clause.as_slice() {
        [] => {}
        [one] => scope.from(one, catalog, &mut filter)?,
        _ => {
            return Err(SqlError::unsupported("a list of tables in FROM")
                .hint("write JOIN … ON with the joined table's whole primary key"));
        }
    }
    if let Some(condition) = boxed(&stmt.where_clause) {
        scope.conjuncts(condition, &mut filter)?;
    }
    let mut columns = Vec::new();
    let mut output = Vec::new();
    for target in &stmt.target_list {
        scope.target(target, &mut columns, &mut output)?;
    }
    let mut group: Vec<usize> = Vec::new();
    for node in &stmt.group_clause {
        let number = scope.grouped(inner(node), &output)?;
        scope.must_compare(number, false)?;
        group.push(number);
    }
    let aggregated = output
        .iter()
        .any(|output| matches!(output, Output::Aggregate(_)));
    let group = (aggregated || !group.is_empty()).then_some(group);
    if let Some(group) = &group {
        for (output, column) in output.iter().zip(&columns) {
            if let Output::Value(Operand::Column(number)) = output
                && !group.contains(number)
            {
                return Err(SqlError::new(
                    "42803",
                    format!(
                        "column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                        column.name
                    ),
                ));
            }
        }
    }
    let mut order = Vec::new();
    for node in &stmt.sort_clause {
        order.push(scope.order(node, &columns, &output, group.as_deref())?);
    }
    let limit = scope.count(boxed(&stmt.limit_count))?;
    let offset = scope.count(boxed(&stmt.limit_offset))?;
    // Where nothing says what a parameter is, it is a text, as Postgres has it.
    let parameters = scope
        .parameters
        .iter()
        .map(|&oid| if oid == 0 { TEXT } else { oid })
        .collect();
    Ok(Statement {
        kind: Kind::Select,
        plan: Plan::Select(Box::new(Select {
            tables: scope.tables,
            filter,
            output,
            group,
            order,
            limit,
            offset,
        })),
        columns,
        parameters,
        as_of: None,
    })
}

/// `SELECT … FROM hindcast.status`.
fn status(stmt: &SelectStmt) -> Result<Option<Statement>, SqlError> {
    let [from] = stmt.from_clause.as_slice() else {
        return Ok(None);
    };
    match inner(from) {
        Some(NodeEnum::RangeVar(range))
            if range.schemaname == "hindcast" && range.relname == "status" => {}
        _ => return Ok(None),
    }
    if stmt.where_clause.is_some() || !stmt.group_clause.is_empty() {
        return Err(SqlError::unsupported(
            "a condition on hindcast.status, which has one row,",
        ));
    }
    let mut wanted = Vec::new();
    for target in &stmt.target_list {
        let Some(NodeEnum::ResTarget(target)) = inner(target) else {
            continue;
        };
        match boxed(&target.val) {
            Some(NodeEnum::ColumnRef(column)) => match column.fields.last().and_then(inner) {
                Some(NodeEnum::AStar(_)) => wanted.extend(STATUS_COLUMNS.map(str::to_owned)),
                _ => {
                    let name = names(&column.fields).pop().unwrap_or_default();
                    if !STATUS_COLUMNS.contains(&name.as_str()) {
                        return Err(no_column(&name));
                    }
                    wanted.push(name);
                }
            },
            _ => return Err(SqlError::unsupported("an expression over hindcast.status")),
        }
    }
    Ok(Some(Statement {
        columns: wanted
            .iter()
            .map(|name| output_column(name, TEXT))
            .collect(),
        plan: Plan::Status(wanted),
        ..Statement::plain(Kind::Select)
    }))
}
