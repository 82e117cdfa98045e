//! Sequences and clocks of a rewound database that answer as they did when they were recorded.
//!
//! ```text
//!   DEFAULT nextval('s') ─▶ pg_catalog.nextval ─inlined─▶ hindcast_nextval ─┬─ next of hindcast_pins.sequences, a transaction's setting
//!                                                                           └─ the real one, stepping over reserved values
//!   now(), CURRENT_TIMESTAMP ─▶ pg_catalog.now ─inlined─▶ hindcast_pins.now, or the real one
//!   clock_timestamp() ─inlined─▶ next of hindcast_pins.clocks, or now() and the time since then
//!   random() ─inlined─▶ next of hindcast_pins.randoms, or a real one
//!   gen_salt('bf') ─▶ the extension: next of hindcast_pins.bytes, or real ones
//!   lo_creat(-1) ─▶ the extension: next of hindcast_pins.objects, or a real one
//!   current_database() ─inlined─▶ hindcast_pins.database, a session's setting, or the real one
//!   DEFAULT gen_random_uuid() ─▶ next of hindcast_pins.uuids: told, or the column's; or a real one
//! ```
//!
//! [`prepare`] replaces the functions in the catalog of one database. Postgres calls its built-in
//! functions by number without looking at the catalog, so a replacement takes effect only where the
//! planner inlines it: it must be an SQL function of one expression that the planner's rules for
//! inlining admit (no `SET`, no `SECURITY DEFINER`; strict only if its body is). That
//! is why `nextval` merely calls another function. Everything that reaches a function through an
//! expression is planned: statements, column defaults (of `COPY`, too), views, triggers, functions
//! in SQL and PL/pgSQL. Only the protocol's own function call is not; those of large objects the
//! extension sees.
//!
//! Keywords (`CURRENT_TIMESTAMP`, `CURRENT_CATALOG` …) are grammar. They become calls of functions
//! of the same names: in column defaults, views and function bodies here, in statements by the
//! holding gateway. The executor itself draws the values of identity columns, so these become
//! columns with a default.
//!
//! A sequence's recorded values are *reserved*: an unpinned `nextval` (an `INSERT` whose result
//! nobody saw) steps over them, or it would take a value that a recorded transaction is about to
//! insert.
//!
//! A sequence that is made later has another number than in the recording. An event trigger notes
//! by its name which one it is, and what is made with an identity column gets a default as well.
//!
//! Without the settings everything answers as it always did. Not covered: `setval` followed by
//! `currval` in a pinned transaction; `OVERRIDING USER VALUE` on what was an identity column;
//! functions with an SQL-standard body; and within one transaction an unseen `nextval` before a
//! seen one of the same sequence takes the seen one's value.

mod keywords;
mod reserved;
mod uuids;
mod values;

use hindcast_pg::quote_literal;
use hindcast_pg::tokio::Client;

pub use keywords::{draws_anew, rewrite_keywords, unpinned_calls};
pub use reserved::Reserved;
pub use values::{SETTINGS, Settings, Values};

/// The setting of a session by which the database has this name, as far as its functions tell.
pub const DATABASE: &str = "hindcast_pins.database";

/// What was pinned, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// `nextval`, `currval` and `lastval` honour the settings of [`settings`]; so does `now()`.
    /// `false`: we are not superuser, and nothing was changed.
    pub active: bool,
    /// The server has the extension's library, which gives a statement another snapshot than its
    /// own where `hindcast_next_snapshot()` says so.
    pub imposes: bool,
    /// Identity columns that draw from `nextval` now.
    pub identity_columns: Vec<String>,
    /// Column and domain defaults, views and functions whose keywords were rewritten.
    pub rewritten: Vec<String>,
    /// For the verdict: where a difference may come from.
    pub unpinned: Vec<Unpinned>,
}

/// Something that may answer otherwise than it did when it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpinned {
    /// `the default of public.t.id`, `the function public.f()`
    pub what: String,
    /// `random() is not pinned`
    pub why: String,
}

impl std::fmt::Display for Unpinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// The database could not be prepared; it is as it was.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} to pin sequences and clocks")]
pub struct PinError {
    doing: String,
    source: hindcast_pg::Error,
}

fn failed(doing: impl Into<String>) -> impl FnOnce(hindcast_pg::Error) -> PinError {
    let doing = doing.into();
    move |source| PinError { doing, source }
}

/// Prepares a rewound database, before anybody else connects to it.
///
/// All or nothing, in one transaction. The session must be idle and should be a superuser's;
/// otherwise nothing is pinned, and the result says so.
pub async fn prepare(client: &Client, reserved: Reserved) -> Result<Pinned, PinError> {
    let row = client
        .query_one(
            "SELECT pg_catalog.current_setting('is_superuser') = 'on', \
                 pg_catalog.current_setting('hindcast.next_snapshot', true) IS NOT NULL",
            &[],
        )
        .await
        .map_err(failed("ask for privileges and the extension"))?;
    if !row.get::<bool>(0) {
        return Ok(Pinned {
            unpinned: vec![Unpinned {
                what: "sequences, identity columns, now() and CURRENT_TIMESTAMP".to_owned(),
                why: "only a superuser may replace them in the rewound database".to_owned(),
            }],
            ..Pinned::default()
        });
    }
    // Names come out qualified under an empty search_path, and the catalog is open for changes
    // until the end of the transaction.
    let begin = "BEGIN; SET LOCAL search_path = ''; SET LOCAL allow_system_table_mods = on; SET LOCAL check_function_bodies = off; \
                 SET LOCAL transaction_read_only = off; SET LOCAL client_min_messages = warning; SET LOCAL statement_timeout = 0";
    client.batch_execute(begin).await.map_err(failed("begin"))?;
    match prepare_within(client, reserved).await {
        Ok(pinned) => {
            client
                .batch_execute("COMMIT")
                .await
                .map_err(failed("commit"))?;
            let imposes = row.get(1);
            Ok(Pinned { imposes, ..pinned })
        }
        Err(error) => {
            let _ = client.batch_execute("ROLLBACK").await;
            Err(error)
        }
    }
}

async fn prepare_within(client: &Client, reserved: Reserved) -> Result<Pinned, PinError> {
    let told = reserved.told;
    client
        .batch_execute(include_str!("functions.sql"))
        .await
        .map_err(failed("replace functions"))?;
    for table in ["hindcast_reserved", "hindcast_named", "hindcast_made"] {
        forget_types(client, &format!("pg_catalog.{table}"))
            .await
            .map_err(failed("hide a type"))?;
    }
    let mut pinned = Pinned {
        active: true,
        ..Pinned::default()
    };
    reserved.insert(client).await?;
    convert_identity_columns(client, &mut pinned).await?;
    uuids::pin(client, told, &mut pinned).await?;
    rewrite_defaults(client, told, &mut pinned).await?;
    rewrite_views(client, told, &mut pinned).await?;
    rewrite_functions(client, told, &mut pinned).await?;
    if told {
        name_bytes(client, &mut pinned).await?;
    }
    Ok(pinned)
}

/// Takes from a table of ours the types of its rows and of arrays of them: drivers list the types
/// that there are, and no service is to see more of them than it did. A table needs none: those
/// that hold what is too long for a row have none either. In a transaction with
/// `allow_system_table_mods`.
pub async fn forget_types(client: &Client, table: &str) -> Result<(), hindcast_pg::Error> {
    let forget = format!(
        "WITH own AS ( \
             SELECT c.oid, c.reltype FROM pg_catalog.pg_class c WHERE c.oid = {}::pg_catalog.regclass AND c.reltype <> 0 \
         ), without AS ( \
             UPDATE pg_catalog.pg_class c SET reltype = 0 FROM own WHERE c.oid = own.oid \
         ), forgotten AS ( \
             DELETE FROM pg_catalog.pg_type t USING own WHERE own.reltype IN (t.oid, t.typelem) RETURNING t.oid \
         ) \
         DELETE FROM pg_catalog.pg_depend d USING forgotten \
         WHERE d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.objid = forgotten.oid",
        quote_literal(table)
    );
    client.batch_execute(&forget).await
}

/// The sequence of an identity column stays the same object, for recorded values name it by its
/// number.
async fn convert_identity_columns(client: &Client, pinned: &mut Pinned) -> Result<(), PinError> {
    let rows = client
        .query("SELECT pg_catalog.hindcast_defaults(NULL)", &[])
        .await
        .map_err(failed("turn identity columns into defaults"))?;
    pinned
        .identity_columns
        .extend(rows.iter().map(|row| row.get::<String>(0)));
    Ok(())
}

async fn rewrite_defaults(
    client: &Client,
    told: bool,
    pinned: &mut Pinned,
) -> Result<(), PinError> {
    let rows = client
        .query(
            "SELECT 'the default of ' || d.adrelid::regclass || '.' || pg_catalog.quote_ident(a.attname), \
             pg_catalog.format('ALTER TABLE ONLY %s ALTER COLUMN %I SET DEFAULT ', d.adrelid::regclass, a.attname), \
             pg_catalog.hindcast_original_pg_get_expr(d.adbin, d.adrelid) \
             FROM pg_catalog.pg_attrdef d JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum \
             JOIN pg_catalog.pg_class c ON c.oid = d.adrelid AND c.relkind IN ('r', 'p', 'f') \
             WHERE a.attgenerated = '' AND NOT a.attisdropped \
             UNION ALL SELECT 'the default of the domain ' || pg_catalog.format_type(t.oid, NULL), \
             pg_catalog.format('ALTER DOMAIN %s SET DEFAULT ', pg_catalog.format_type(t.oid, NULL)), \
             pg_catalog.hindcast_original_pg_get_expr(t.typdefaultbin, 0) \
             FROM pg_catalog.pg_type t WHERE t.typtype = 'd' AND t.typdefaultbin IS NOT NULL \
             AND t.typnamespace <> 'information_schema'::regnamespace ORDER BY 1",
            &[],
        )
        .await
        .map_err(failed("read column defaults"))?;
    for row in rows {
        let (what, statement, expression): (String, String, String) =
            (row.get(0), row.get(1), row.get(2));
        note_calls(&what, &expression, told, pinned);
        if let Some(rewritten) = rewrite_keywords(&expression) {
            change(client, what, &format!("{statement}{rewritten}"), pinned).await?;
        }
    }
    Ok(())
}

async fn rewrite_views(client: &Client, told: bool, pinned: &mut Pinned) -> Result<(), PinError> {
    let rows = client
        .query(
            "SELECT c.oid::regclass::text, pg_catalog.pg_get_viewdef(c.oid), \
             coalesce(' WITH (' || pg_catalog.array_to_string(c.reloptions, ', ') || ')', '') \
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relkind = 'v' AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1",
            &[],
        )
        .await
        .map_err(failed("read views"))?;
    for row in rows {
        let (view, definition, options): (String, String, String) =
            (row.get(0), row.get(1), row.get(2));
        let what = format!("the view {view}");
        note_calls(&what, &definition, told, pinned);
        if let Some(rewritten) = rewrite_keywords(&definition) {
            let statement = format!("CREATE OR REPLACE VIEW {view}{options} AS {rewritten}");
            change(client, what, &statement, pinned).await?;
        }
    }
    Ok(())
}

async fn rewrite_functions(
    client: &Client,
    told: bool,
    pinned: &mut Pinned,
) -> Result<(), PinError> {
    let row = client
        .query_one(
            "SELECT pg_catalog.current_setting('server_version_num')::int >= 140000",
            &[],
        )
        .await
        .map_err(failed("ask for the version of the server"))?;
    // Older servers know no bodies but texts.
    let sql_body = if row.get(0) {
        "pg_catalog.pg_get_function_sqlbody(p.oid)"
    } else {
        "NULL::text"
    };
    let rows = client
        .query(
            &format!(
                "SELECT p.oid, 'the function ' || p.oid::regprocedure, coalesce({sql_body}, p.prosrc), {sql_body} IS NULL \
                 FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang \
                 JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
                 WHERE l.lanname IN ('sql', 'plpgsql') AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 2"
            ),
            &[],
        )
        .await
        .map_err(failed("read functions"))?;
    for row in rows {
        let (oid, what, body, is_text): (u32, String, String, bool) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        note_calls(&what, &body, told, pinned);
        let Some(rewritten) = rewrite_keywords(&body) else {
            continue;
        };
        if is_text {
            let statement = format!(
                "UPDATE pg_catalog.pg_proc SET prosrc = {} WHERE oid = {oid}",
                quote_literal(&rewritten)
            );
            change(client, what, &statement, pinned).await?;
        } else {
            let why = "keywords in an SQL-standard body are not pinned".to_owned();
            pinned.unpinned.push(Unpinned { what, why });
        }
    }
    Ok(())
}

/// Makes one change, or notes why it could not be made and goes on.
async fn change(
    client: &Client,
    what: String,
    statement: &str,
    pinned: &mut Pinned,
) -> Result<(), PinError> {
    client
        .batch_execute("SAVEPOINT hindcast")
        .await
        .map_err(failed(format!("change {what}")))?;
    match client.batch_execute(statement).await {
        Ok(()) => {
            pinned.rewritten.push(what);
            client
                .batch_execute("RELEASE hindcast")
                .await
                .map_err(failed("go on"))
        }
        Err(error) => {
            let Some(reason) = error.server() else {
                return Err(failed(format!("change {what}"))(error));
            };
            let why = format!("its keywords could not be rewritten: {}", reason.message);
            pinned.unpinned.push(Unpinned { what, why });
            client
                .batch_execute("ROLLBACK TO hindcast; RELEASE hindcast")
                .await
                .map_err(failed("go on"))
        }
    }
}

/// Bytes that functions of pgcrypto draw are drawn again by the extension alone.
async fn name_bytes(client: &Client, pinned: &mut Pinned) -> Result<(), PinError> {
    let row = client
        .query_one(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'pgcrypto') \
             AND pg_catalog.current_setting('hindcast.enabled', true) IS NULL",
            &[],
        )
        .await
        .map_err(failed("look for the extension"))?;
    if row.get::<bool>(0) {
        pinned.unpinned.push(Unpinned {
            what: "what functions of pgcrypto draw".to_owned(),
            why: "the server has no hindcast in shared_preload_libraries, which draws it again"
                .to_owned(),
        });
    }
    Ok(())
}

fn note_calls(what: &str, sql: &str, told: bool, pinned: &mut Pinned) {
    for why in unpinned_calls(sql, told) {
        let what = what.to_owned();
        pinned.unpinned.push(Unpinned { what, why });
    }
}
