//! Which statements are about their connection, and not about what is in the database.

use std::sync::LazyLock;

use hindcast_wire::sql::{Kind, Statement};
use regex::Regex;

use crate::known::Known;

/// What may stand in front of a bracket and is no function.
const WORDS: [&str; 23] = [
    "all", "and", "any", "array", "as", "by", "case", "else", "exists", "filter", "from", "in",
    "join", "lateral", "not", "on", "or", "over", "select", "then", "values", "when", "where",
];

/// Functions that ask for nothing but the catalog and settings, and those that work on what they
/// are given, as far as such statements call them. Whatever begins with `pg_` is not among them.
const FUNCTIONS: [&str; 61] = [
    "array_agg",
    "array_length",
    "array_lower",
    "array_position",
    "array_to_string",
    "array_upper",
    "bool_and",
    "bool_or",
    "btrim",
    "cardinality",
    "cast",
    "coalesce",
    "col_description",
    "concat",
    "count",
    "current_database",
    "current_schema",
    "current_schemas",
    "current_setting",
    "format_type",
    "generate_series",
    "generate_subscripts",
    "greatest",
    "has_schema_privilege",
    "has_table_privilege",
    "json_agg",
    "json_array_elements",
    "json_array_elements_text",
    "json_build_object",
    "json_each",
    "json_each_text",
    "jsonb_agg",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_build_object",
    "jsonb_each",
    "jsonb_each_text",
    "least",
    "left",
    "length",
    "lower",
    "max",
    "min",
    "nullif",
    "obj_description",
    "position",
    "quote_ident",
    "regexp_replace",
    "replace",
    "right",
    "row_number",
    "row_to_json",
    "set_config",
    "shobj_description",
    "split_part",
    "string_agg",
    "string_to_array",
    "substring",
    "unnest",
    "upper",
    "version",
];

/// Whether a statement is about its connection, and not about what is in the database: settings,
/// the question whether the server is there, what the catalog says. It is sent when a connection is
/// opened, or taken from a pool or given back, so in another request the next time.
pub fn sets_up(statement: &Statement) -> bool {
    thread_local! {
        static KNOWN: Known = Known::default();
    }
    KNOWN.with(|known| known.or_find(statement, is_set_up))
}

fn is_set_up(statement: &Statement) -> bool {
    static CALLED: LazyLock<Regex> = LazyLock::new(|| regex(r#"([\w.$"]+)\s*\("#));
    // What is read: `FROM a, b` and `JOIN c`.
    static NAMED: LazyLock<Regex> = LazyLock::new(|| {
        let name = r#"(?:only\s+|lateral\s+)?[\w."$]+"#;
        let alias = r#"\s+(?:as\s+)?(?:\w+|"[^"]*")"#;
        regex(&format!(
            r#"\b(?:from|join)\s+({name}(?:{alias})?(?:\s*,\s*{name}(?:{alias})?)*)"#
        ))
    });
    static JOIN: LazyLock<Regex> = LazyLock::new(|| regex(r"\bjoin\b"));
    // What the statement names itself: `WITH RECURSIVE a(x) AS (…), b AS (…)`.
    static WITH: LazyLock<Regex> = LazyLock::new(|| {
        regex(
            r"(?:\bwith(?:\s+recursive)?|,)\s*(\w+)\s*(?:\([^()]*\)\s*)?\bas\s*(?:not\s+)?(?:materialized\s*)?\(",
        )
    });
    static WRITES: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(?:insert|update|delete|merge)\b"));
    // Of strings those are kept that name something, as in `'array_in(oid)'::regprocedure`.
    static STRING: LazyLock<Regex> = LazyLock::new(|| regex("'[^']*'"));
    let text = statement.fingerprint.text.to_ascii_lowercase();
    match statement.kind {
        Kind::Set | Kind::Show | Kind::Discard { .. } | Kind::Deallocate { .. } => return true,
        Kind::Cursor => return text == "close all",
        Kind::Listen => return text.starts_with("unlisten"),
        Kind::Select => {}
        _ => return false,
    }
    // What it reads may be in what was cut out.
    if statement.fingerprint.is_cut() {
        return false;
    }
    let text = STRING.replace_all(&text, "''");
    if text.starts_with("with") && WRITES.is_match(&text) {
        return false;
    }
    if !statement.locks.is_empty() || !statement.sequences.is_empty() || text.contains("pg_notify")
    {
        return false;
    }
    let mut called = CALLED
        .captures_iter(&text)
        .map(|found| found.extract::<1>().1[0]);
    // It is no other name of what is in front of it.
    let tables = JOIN.replace_all(&text, "; join");
    let mut named = NAMED
        .captures_iter(&tables)
        .flat_map(|found| found.extract::<1>().1[0].split(','))
        .filter_map(|one| {
            one.split_whitespace()
                .find(|word| !is_word_before_name(word))
        });
    let own = WITH.captures_iter(&text);
    let own: Vec<&str> = own.map(|found| found.extract::<1>().1[0]).collect();
    let is_known = |name: &str| {
        let plain = name.replace('"', "");
        is_of_catalog(&plain) || FUNCTIONS.contains(&name) || own.contains(&name)
    };
    called.all(|name| is_known(name) || WORDS.contains(&name)) && named.all(is_known)
}

/// Whether a statement asks the catalog, as drivers do within a client's transaction for what they
/// have not asked on its connection.
pub fn asks_catalog(statement: &Statement) -> bool {
    statement.kind == Kind::Select && sets_up(statement)
}

/// Whether a statement asks the catalog, or shows a setting, which Rails does in the midst of
/// whichever transaction is the first on its connection.
pub fn asks_aside(statement: &Statement) -> bool {
    statement.kind == Kind::Show || asks_catalog(statement)
}

/// Whether a statement asks nothing but whether the server is there, as pools do: `SELECT 1`.
pub fn asks_nothing(statement: &Statement) -> bool {
    static CONSTANT: LazyLock<Regex> = LazyLock::new(|| regex(r"^select \$\d+(?: as \w+)?$"));
    let text = statement.fingerprint.text.to_ascii_lowercase();
    statement.kind == Kind::Select && CONSTANT.is_match(&text)
}

fn is_word_before_name(word: &str) -> bool {
    matches!(word, "only" | "lateral")
}

fn is_of_catalog(name: &str) -> bool {
    const BEGINNINGS: [&str; 3] = ["pg_", "information_schema.", "to_reg"];
    BEGINNINGS.iter().any(|start| name.starts_with(start))
}

fn regex(text: &str) -> Regex {
    Regex::new(text).expect("it is a regular expression")
}

#[cfg(test)]
mod tests {
    use hindcast_wire::sql::{Dialect, Script};

    use super::*;

    #[test]
    fn whether_the_server_is_there_is_asked_of_nothing_else() {
        let of = |text: &str| {
            let script = Script::of(text.as_bytes(), Dialect::default());
            asks_nothing(&script.statements[0])
        };
        assert!(of("SELECT 1"));
        assert!(of("select 1 as alive"));
        for text in [
            "SELECT now()",
            "SELECT current_user",
            "SELECT 1 FROM t",
            "SET a = 1",
        ] {
            assert!(!of(text), "{text}");
        }
    }

    #[test]
    fn what_is_about_a_connection_is_known() {
        let of = |text: &str| {
            let script = Script::of(text.as_bytes(), Dialect::default());
            sets_up(&script.statements[0])
        };
        for text in [
            "SELECT 1",
            "SELECT set_config($1, $2, false)",
            "select set_config(el->>$2, el->>$3, true) from json_array_elements($1::json) el",
            "SELECT set_config(key, value, true) FROM jsonb_each_text($1::jsonb)",
            "SHOW standard_conforming_strings",
            "SELECT pg_advisory_unlock_all()",
            "CLOSE ALL",
            "UNLISTEN *",
            "DEALLOCATE ALL",
            "RESET ALL",
            "DISCARD ALL",
            "SET search_path TO app",
            "SELECT pg_catalog.version()",
            "select current_schema()",
            "SELECT t.oid, typarray FROM pg_type t JOIN pg_namespace ns ON typnamespace = ns.oid WHERE typname = 'hstore'",
            "SELECT oid FROM pg_catalog.pg_class WHERE relname IN ('a', 'b')",
            "SELECT oid::regtype::text FROM pg_type t WHERE t.oid = to_regtype($1)",
            "SELECT oid FROM pg_type WHERE typinput = 'array_in(cstring,oid,integer)'::regprocedure",
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum) AS comment FROM pg_attribute a LEFT JOIN pg_attrdef d ON a.attrelid = d.adrelid WHERE a.attrelid = '\"users\"'::regclass",
            "SELECT a.attname FROM (SELECT indrelid, generate_subscripts(indkey, 1) idx FROM pg_index WHERE indisprimary) i JOIN pg_attribute a ON a.attrelid = i.indrelid",
            r#"SELECT "a"."attname" FROM "pg_class", "pg_attribute" AS "a", "pg_catalog"."pg_index" WHERE "pg_class"."oid" = CAST(CAST($1 AS regclass) AS oid)"#,
            "SELECT c.relname FROM pg_class c, pg_namespace AS n WHERE c.relnamespace = n.oid",
            "WITH RECURSIVE types(oid, name, depth) AS (SELECT ti.oid, ti.name, 0 FROM (SELECT t.oid, CASE WHEN t.typtype = 'd' THEN (WITH RECURSIVE bases(oid) AS (SELECT t2.oid FROM pg_type t2, bases b) SELECT oid FROM bases) END AS name FROM pg_catalog.pg_type AS t) AS ti WHERE ti.oid = any($1::oid[]) UNION ALL SELECT tt.oid, tt.name, tt.depth + 1 FROM pg_range r, types tt) SELECT DISTINCT *, oid::regtype::text AS of FROM types ORDER BY depth DESC",
        ] {
            assert!(of(text), "{text}");
        }
        for text in [
            "SELECT place_order(1)",
            "WITH a AS (UPDATE t SET x = 1) SELECT 1",
            "WITH a AS (SELECT x FROM t) SELECT x FROM a",
            "SELECT a FROM t",
            "SELECT c.oid FROM pg_class c JOIN orders o ON true",
            "SELECT c.oid FROM pg_class AS c, orders",
            r#"SELECT "c"."oid" FROM "pg_class" AS "c", "orders""#,
            "SELECT 1 FROM pg_class JOIN orders ON true",
            r#"SELECT 1 FROM "pg_class" "the class" JOIN "public"."orders" ON true"#,
            "SELECT el->>$2 FROM json_array_elements($1) el JOIN orders o ON true",
            "SELECT keep_watch(c.oid) FROM pg_class c",
            "SELECT 1 FROM users WHERE id = 5",
            "SELECT pg_advisory_lock(1)",
            "CLOSE c",
            "LISTEN c",
            "SELECT nextval('s')",
            "INSERT INTO t VALUES (1)",
        ] {
            assert!(!of(text), "{text}");
        }
        let long = format!("SELECT {} FROM t", "a_column, ".repeat(5000) + "b");
        assert!(!of(&long));
    }
}
