//! Functions that draw UUIDs, and column defaults that call them.
//!
//! The default of a column has a queue of its own, since a transaction may also draw for rows that
//! no result showed (an audit table's, say). Calls in statements share one. What the server told of
//! its own functions comes before both.

use hindcast_pg::tokio::Client;
use hindcast_pg::{quote_identifier, quote_literal};
use hindcast_trace::{DrawnAt, DrawnUuid, uuid_text};

use super::{PinError, Pinned, Unpinned, failed};

/// Functions without arguments that return a random UUID or one of the time: Postgres' own, and
/// those of the extensions `uuid-ossp` and `pgcrypto`.
const DRAWING: &str = "SELECT p.oid, pg_catalog.format('%I.%I()', n.nspname, p.proname), p.proname::text, l.lanname::text, p.prosrc, p.probin \
     FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang \
     JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
     WHERE p.proname IN ('gen_random_uuid', 'uuid_generate_v1', 'uuid_generate_v1mc', 'uuid_generate_v4', 'uuidv4', 'uuidv7') \
     AND p.pronargs = 0 AND p.prorettype = 'uuid'::pg_catalog.regtype AND l.lanname IN ('internal', 'c') ORDER BY 1";

/// Columns whose default is such a call, as it is or as a text: table, column, their numbers, the
/// function, and the type to which it is cast.
const FILLED: &str = "SELECT d.adrelid::regclass::text, a.attname::text, d.adrelid, d.adnum, f.part[1], coalesce(f.part[2], '') \
     FROM pg_catalog.pg_attrdef d \
     JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND NOT a.attisdropped AND a.attgenerated = '' \
     JOIN pg_catalog.pg_class c ON c.oid = d.adrelid AND c.relkind IN ('r', 'p', 'f') \
     CROSS JOIN LATERAL (SELECT pg_catalog.regexp_match(pg_catalog.pg_get_expr(d.adbin, d.adrelid), $1) AS part) f \
     WHERE f.part IS NOT NULL ORDER BY 1, 2";

/// What the server told, whatever drew it.
const TOLD: &str = "told";

/// A function that draws.
struct Drawing {
    name: String,
    original: String,
    /// It is the server's own, so that it tells what it drew.
    tells: bool,
}

impl Drawing {
    /// What draws in its place, in a queue.
    fn from(&self, queue: &str) -> String {
        let next = |queue| format!("pg_catalog.hindcast_uuid({})", quote_literal(queue));
        let told = match self.tells {
            true => next(TOLD) + ", ",
            false => String::new(),
        };
        format!("coalesce({told}{}, {}())", next(queue), self.original)
    }
}

/// Pins what both draw. `told`: the server told what it drew.
pub(super) async fn pin(client: &Client, told: bool, pinned: &mut Pinned) -> Result<(), PinError> {
    let rows = client.query(DRAWING, &[]).await;
    let rows = rows.map_err(failed("read functions"))?;
    let mut functions = Vec::new();
    for row in &rows {
        let (oid, function): (u32, String) = (row.get(0), row.get(1));
        let doing = || failed(format!("replace {function}"));
        let original = format!("pg_catalog.hindcast_original_uuid_{oid}");
        let (language, symbol): (String, String) = (row.get(3), row.get(4));
        let body = match row.get::<Option<String>>(5) {
            Some(library) => format!("{}, {}", quote_literal(&library), quote_literal(&symbol)),
            None => quote_literal(&symbol),
        };
        let drawing = Drawing {
            name: row.get(2),
            original,
            tells: symbol == "gen_random_uuid" && language == "internal",
        };
        let select = format!("SELECT {}", drawing.from(&queue_name(DrawnAt::Call)));
        client
            .batch_execute(&format!(
                "CREATE FUNCTION {}() RETURNS uuid LANGUAGE {language} VOLATILE PARALLEL SAFE AS {body}; \
                 CREATE OR REPLACE FUNCTION {function} RETURNS uuid LANGUAGE sql VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE AS {}",
                drawing.original,
                quote_literal(&select)
            ))
            .await
            .map_err(doing())?;
        functions.push(drawing);
    }
    if functions.is_empty() {
        return Ok(());
    }
    let mut columns = fill(client, &functions).await?;
    columns.retain(|(_, tells)| !(told && *tells));
    let columns: Vec<String> = columns.into_iter().map(|(name, _)| name).collect();
    if !columns.is_empty() {
        pinned.unpinned.push(Unpinned {
            what: format!("UUIDs of {}", some_of(&columns)),
            why: "where no result showed them, others are drawn".to_owned(),
        });
    }
    Ok(())
}

/// The first few of them.
fn some_of(columns: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = &columns[..columns.len().min(SHOWN)];
    match columns.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Gives columns that such a function fills a queue of their own. Returns their names, and whether
/// the server tells what is drawn for them.
async fn fill(client: &Client, functions: &[Drawing]) -> Result<Vec<(String, bool)>, PinError> {
    let names: Vec<&str> = functions.iter().map(|one| one.name.as_str()).collect();
    let call = format!(
        r"^\(?(?:[^()]+\.)?({})\(\)\)?(::(?:text|character varying))?$",
        names.join("|")
    );
    let mut columns = Vec::new();
    let rows = client.query(FILLED, &[&call]).await;
    for row in &rows.map_err(failed("read column defaults"))? {
        let [table, column, function, cast]: [String; 4] =
            [row.get(0), row.get(1), row.get(4), row.get(5)];
        let (table_oid, number): (u32, i16) = (row.get(2), row.get(3));
        let known = functions.iter().find(|one| one.name == function);
        let drawing = known.expect("the pattern is made of their names");
        let queue = queue_name(DrawnAt::Default {
            table: table_oid,
            column: number,
        });
        client
            .batch_execute(&format!(
                "ALTER TABLE ONLY {table} ALTER COLUMN {} SET DEFAULT ({}){cast}",
                quote_identifier(&column),
                drawing.from(&queue)
            ))
            .await
            .map_err(failed("pin column defaults"))?;
        columns.push((format!("{table}.{column}"), drawing.tells));
    }
    Ok(columns)
}

fn queue_name(place: DrawnAt) -> String {
    match place {
        DrawnAt::Default { table, column } => format!("{table}.{column}"),
        DrawnAt::Call => "call".to_owned(),
    }
}

/// `;told:UUID …;TABLE.COLUMN:UUID UUID …;call:UUID …;`, and nothing if there are none.
pub(super) fn queues(told: &[u128], seen: &[DrawnUuid]) -> String {
    let told: Vec<String> = told.iter().map(|&uuid| uuid_text(uuid)).collect();
    let mut queues = vec![(TOLD.to_owned(), told)];
    let mut places: Vec<DrawnAt> = seen.iter().map(|one| one.place).collect();
    places.sort();
    places.dedup();
    queues.extend(places.into_iter().map(|place| {
        let own = seen.iter().filter(|one| one.place == place);
        (queue_name(place), own.map(DrawnUuid::text).collect())
    }));
    queues.retain(|(_, values)| !values.is_empty());
    let texts = queues.into_iter();
    let texts: String = texts
        .map(|(name, values)| format!("{name}:{};", values.join(" ")))
        .collect();
    match texts.is_empty() {
        true => texts,
        false => format!(";{texts}"),
    }
}
