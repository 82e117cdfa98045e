//! What the body of a function touches.

use serde_json::Value;

use super::{Statement, parse};

/// A parameter of a routine, as far as reading its body needs it.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    /// `IN`, `OUT`, `INOUT`.
    pub mode: &'static str,
    pub name: String,
    /// It has fields.
    pub composite: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    Nothing,
    One,
    Set,
}

/// The body of a routine in PL/pgSQL. Its true types are replaced, because the parser knows none
/// but the built-in ones and does not need them.
pub(crate) fn routine(parameters: &[Parameter], returns: Returns, body: &str) -> Statement {
    let kind = |parameter: &Parameter| {
        if parameter.composite {
            "record"
        } else {
            "text"
        }
    };
    let mut outputs = parameters.iter().filter(|it| it.mode != "IN");
    // With a single output the parser wants to see its type; with several, a record.
    let one = match (outputs.next(), outputs.next()) {
        (Some(output), None) => kind(output),
        _ => "record",
    };
    let returns = match returns {
        Returns::Nothing => "void".to_owned(),
        Returns::One => one.to_owned(),
        Returns::Set => format!("SETOF {one}"),
    };
    let parameters: Vec<String> = parameters
        .iter()
        .map(|parameter| {
            let name = parameter.name.replace('"', "\"\"");
            format!("{} \"{name}\" {}", parameter.mode, kind(parameter))
        })
        .collect();
    read(&parameters.join(", "), &returns, body)
}

/// What a trigger's function finds declared. As parameters, because the parser's output for
/// functions that return `trigger` cannot be read.
const TRIGGER_PARAMETERS: &str = "new record, old record, tg_name text, tg_when text, tg_level text, tg_op text, \
     tg_relid oid, tg_relname text, tg_table_name text, tg_table_schema text, tg_nargs int, tg_argv text[]";

/// The body of a trigger's function in PL/pgSQL.
pub(crate) fn trigger(body: &str) -> Statement {
    read(TRIGGER_PARAMETERS, "record", body)
}

fn read(parameters: &str, returns: &str, body: &str) -> Statement {
    let body = without_row_types(body);
    let mut quote = "$body$".to_owned();
    while body.contains(&quote) {
        quote.insert(1, 'x');
    }
    let definition = format!(
        "CREATE FUNCTION f({parameters}) RETURNS {returns} LANGUAGE plpgsql AS {quote}{body}{quote}"
    );
    let functions = match parse_deep(definition) {
        Ok(functions) => functions,
        Err(reason) => return Statement::undetermined(reason),
    };
    let mut found = Statement::default();
    walk(&functions, &mut found);
    record_defaults(&functions, &body, &mut found);
    found
}

/// For what it writes about blocks within blocks, the parser does not look after its stack as it
/// does otherwise.
const STACK_BYTES: usize = 256 << 20;

fn parse_deep(definition: String) -> Result<Value, String> {
    let parser = std::thread::Builder::new()
        .name("plpgsql".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || match pg_query::parse_plpgsql(&definition) {
            Err(pg_query::Error::Parse(reason)) => Err(reason),
            Err(pg_query::Error::InvalidJson(_)) => {
                Err("its code is nested too deeply to be analysed".to_owned())
            }
            other => other.map_err(|error| error.to_string()),
        })
        .map_err(|error| format!("its code cannot be read: {error}"))?;
    parser
        .join()
        .unwrap_or_else(|_| Err("its code is not understood by the parser".to_owned()))
}

/// The parser's output leaves out the initial values of variables that have fields, or that it
/// takes to have some; they are read from the text.
fn record_defaults(functions: &Value, body: &str, found: &mut Statement) {
    let pointer = "/0/PLpgSQL_function/datums";
    let datums = functions.pointer(pointer).and_then(Value::as_array);
    for record in datums
        .into_iter()
        .flatten()
        .filter_map(|it| it.get("PLpgSQL_rec"))
    {
        let line = record.get("lineno").and_then(Value::as_u64);
        let name = record.get("refname").and_then(Value::as_str);
        let (Some(line), Some(name)) = (line, name) else {
            continue;
        };
        let skipped = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
        let rest = body.splitn(skipped.saturating_add(1), '\n').last();
        let rest = rest.unwrap_or_default().to_ascii_lowercase();
        let Some((_, declaration)) = rest.split_once(name) else {
            continue;
        };
        let declaration = declaration.split(';').next().unwrap_or_default();
        let value = declaration
            .split_once('=')
            .or_else(|| declaration.split_once(" default "));
        if let Some((_, value)) = value {
            const EXPRESSION: i32 = 2;
            found.absorb(match parse(value, EXPRESSION) {
                Ok(tree) => super::walk::statements(&tree),
                Err(reason) => Statement::undetermined(reason),
            });
        }
    }
}

fn walk(value: &Value, found: &mut Statement) {
    match value {
        Value::Array(all) => all.iter().for_each(|each| walk(each, found)),
        Value::Object(object) => {
            for (key, value) in object {
                match key.as_str() {
                    "PLpgSQL_expr" => expression(value, found),
                    "PLpgSQL_stmt_dynexecute" | "PLpgSQL_stmt_dynfors" | "dynquery" => {
                        found.absorb(Statement::undetermined(
                            "EXECUTE runs a text that is put together when it runs",
                        ));
                        walk(value, found);
                    }
                    _ => walk(value, found),
                }
            }
        }
        _ => {}
    }
}

fn expression(value: &Value, found: &mut Statement) {
    let query = value.get("query").and_then(Value::as_str);
    let mode = value.get("parseMode").and_then(Value::as_i64);
    let (Some(query), Some(mode)) = (query, mode.and_then(|mode| i32::try_from(mode).ok())) else {
        return found.absorb(Statement::undetermined(
            "its code is not read by the parser",
        ));
    };
    found.absorb(match parse(query, mode) {
        Ok(tree) => super::walk::statements(&tree),
        Err(reason) => Statement::undetermined(reason),
    });
}

/// `t%ROWTYPE` becomes `record`: without a database the parser knows no row types, and so no
/// variables of one.
fn without_row_types(definition: &str) -> String {
    const ROWTYPE: &str = "%rowtype";
    let lower = definition.to_ascii_lowercase();
    let mut result = String::with_capacity(definition.len());
    let mut copied = 0;
    for (at, _) in lower.match_indices(ROWTYPE) {
        let before = &definition[copied..at];
        let kept = before.trim_end_matches(|c: char| c.is_alphanumeric() || "_.$\"".contains(c));
        result.push_str(kept);
        result.push_str(" record");
        copied = at + ROWTYPE.len();
    }
    result.push_str(&definition[copied..]);
    result
}
