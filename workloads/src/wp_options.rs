//! WordPress's option table (R³, sections 6.2 and 7.2).
//!
//! | request | transactions |
//! |---|---|
//! | `GET /options/{name}` | the option |
//! | `POST /options` `{"option_name", "option_value"}` | does it exist? · if not, insert |
//! | `PUT /options/{name}` `{"option_value"}` | what is its value? · update, or insert where there is none |
//!
//! WP-11437: two inserts of one option at once both find none, and the second violates the unique
//! key. The fix ([`Variant::Upsert`]) turns the insert into an upsert; what remains under snapshot
//! isolation are serialization failures, which [`Variant::UpsertRetry`] tries again.

use http::Method;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use crate::Scale;
use crate::Variant;
use crate::database::{Cx, Sql};
use crate::drive::{Generator, HttpCall, Operation};
use crate::load::{LoadError, Loader};
use crate::random::Random;
use crate::service::{Call, Failure, Handled, Reply, column};

pub(crate) const SCHEMA: &str = "
CREATE TABLE wp_options (
    option_id    bigserial PRIMARY KEY,
    option_name  varchar(191) NOT NULL DEFAULT '',
    option_value text NOT NULL,
    autoload     varchar(20) NOT NULL DEFAULT 'yes'
);
";

pub(crate) const TABLES: &[&str] = &["wp_options"];

pub(crate) const CHECKS: &[(&str, &str)] = &[(
    "an option has one value",
    "SELECT format('option %s has %s values', option_name, count(*))
       FROM wp_options GROUP BY option_name HAVING count(*) > 1 ORDER BY option_name",
)];

/// The paper's: a name of 10 bytes, a value of 100.
const VALUE_BYTES: usize = 100;

/// How often [`Variant::UpsertRetry`] tries a transaction again.
const RETRIES: u32 = 10;

static GET_OPTION: Sql = Sql::new(
    "SELECT option_id, option_value, autoload FROM wp_options WHERE option_name = $1 LIMIT 1",
    &[Type::VARCHAR],
);
static OPTION_EXISTS: Sql = Sql::new(
    "SELECT option_id FROM wp_options WHERE option_name = $1",
    &[Type::VARCHAR],
);
static INSERT_OPTION: Sql = Sql::new(
    "INSERT INTO wp_options (option_name, option_value, autoload) VALUES ($1, $2, $3) RETURNING option_id",
    &[Type::VARCHAR, Type::TEXT, Type::VARCHAR],
);
static UPSERT_OPTION: Sql = Sql::new(
    "INSERT INTO wp_options (option_name, option_value, autoload) VALUES ($1, $2, $3) \
     ON CONFLICT (option_name) DO UPDATE SET option_value = excluded.option_value, autoload = excluded.autoload \
     RETURNING option_id",
    &[Type::VARCHAR, Type::TEXT, Type::VARCHAR],
);
static UPDATE_OPTION: Sql = Sql::new(
    "UPDATE wp_options SET option_value = $2 WHERE option_name = $1 RETURNING option_id",
    &[Type::VARCHAR, Type::TEXT],
);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewOption {
    pub option_name: String,
    pub option_value: String,
    #[serde(default = "autoload")]
    pub autoload: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewValue {
    pub option_value: String,
}

fn autoload() -> String {
    "yes".to_owned()
}

#[derive(Debug, Serialize, Deserialize)]
pub struct OptionRow {
    pub option_id: i64,
    pub option_name: String,
    pub option_value: String,
    pub autoload: String,
}

/// The answer to an insert or an update.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stored {
    pub option_id: i64,
    pub option_name: String,
    /// False if there was nothing to do: an insert found the option, an update its value.
    pub changed: bool,
}

pub(crate) async fn handle(cx: Cx<'_>, variant: Variant, call: &Call<'_>) -> Handled {
    let cx = if variant == Variant::UpsertRetry {
        cx.with_retries(RETRIES)
    } else {
        cx
    };
    match (call.method, call.path) {
        (&Method::GET, ["options", name]) => Reply::ok(&get_option(cx, name).await?).map(Some),
        (&Method::POST, ["options"]) => {
            let stored = insert_option(cx, variant, call.body()?).await?;
            if stored.changed {
                Reply::created(&stored)
            } else {
                Reply::ok(&stored)
            }
            .map(Some)
        }
        (&Method::PUT, ["options", name]) => {
            Reply::ok(&update_option(cx, variant, name, call.body()?).await?).map(Some)
        }
        _ => Ok(None),
    }
}

async fn get_option(cx: Cx<'_>, name: &str) -> Result<OptionRow, Failure> {
    let rows = cx.read(&GET_OPTION, &[&name]).await?;
    let Some(row) = rows.first() else {
        return Err(no_option(name));
    };
    Ok(OptionRow {
        option_id: column(row, 0)?,
        option_name: name.to_owned(),
        option_value: column(row, 1)?,
        autoload: column(row, 2)?,
    })
}

/// `add_option`.
async fn insert_option(cx: Cx<'_>, variant: Variant, new: NewOption) -> Result<Stored, Failure> {
    let present = cx.read(&OPTION_EXISTS, &[&new.option_name]).await?;
    let (option_id, changed) = match present.first() {
        Some(row) => (column(row, 0)?, false),
        None => (cx.retrying(|| store(cx, variant, &new)).await?, true),
    };
    Ok(Stored {
        option_id,
        option_name: new.option_name,
        changed,
    })
}

/// `update_option`, which adds an option that is not there.
async fn update_option(
    cx: Cx<'_>,
    variant: Variant,
    name: &str,
    new: NewValue,
) -> Result<Stored, Failure> {
    let NewValue { option_value } = new;
    let present = cx.read(&GET_OPTION, &[&name]).await?;
    let (option_id, changed) = match present.first() {
        Some(row) if column::<&str>(row, 1)? == option_value => (column(row, 0)?, false),
        Some(_) => (cx.retrying(|| update(cx, name, &option_value)).await?, true),
        None => {
            let new = NewOption {
                option_name: name.to_owned(),
                option_value,
                autoload: autoload(),
            };
            (cx.retrying(|| store(cx, variant, &new)).await?, true)
        }
    };
    Ok(Stored {
        option_id,
        option_name: name.to_owned(),
        changed,
    })
}

async fn store(cx: Cx<'_>, variant: Variant, new: &NewOption) -> Result<i64, Failure> {
    let insert = match variant {
        Variant::Upsert | Variant::UpsertRetry => &UPSERT_OPTION,
        _ => &INSERT_OPTION,
    };
    let mut transaction = cx.begin().await?;
    let row = transaction
        .query_one(
            insert,
            &[&new.option_name, &new.option_value, &new.autoload],
        )
        .await?;
    transaction.commit().await?;
    column(&row, 0)
}

async fn update(cx: Cx<'_>, name: &str, value: &str) -> Result<i64, Failure> {
    let mut transaction = cx.begin().await?;
    let row = transaction
        .query_first(&UPDATE_OPTION, &[&name, &value])
        .await?;
    transaction.commit().await?;
    match row {
        Some(row) => column(&row, 0),
        None => Err(no_option(name)),
    }
}

fn no_option(name: &str) -> Failure {
    Failure::NotFound(format!("no option `{name}`"))
}

pub(crate) async fn load(
    loader: &Loader<'_>,
    scale: Scale,
    random: &mut Random,
) -> Result<(), LoadError> {
    let options = scale.wp_options();
    let mut rows = loader
        .copy("wp_options (option_id, option_name, option_value)")
        .await?;
    for id in 1..=options {
        rows.integer(id)
            .text(&name(id))
            .text(&random.prose(VALUE_BYTES));
        rows.end().await?;
    }
    rows.finish().await?;
    loader
        .run(
            "CREATE UNIQUE INDEX wp_options_option_name ON wp_options (option_name);
             CREATE INDEX wp_options_autoload ON wp_options (autoload)",
        )
        .await?;
    loader.sequence("wp_options", "option_id", options).await
}

fn name(id: u64) -> String {
    format!("opt_{id:06}")
}

/// Table 1: 99 % reads, the rest half inserts and half updates.
///
/// An option that a page finds missing is added by every visitor who loads that page before the
/// first one has added it, which is how WP-11437 came about: so every new name is asked for twice
/// in a row.
pub struct Requests {
    options: u64,
    inserts: u64,
}

impl Requests {
    pub fn new(scale: Scale) -> Self {
        Self {
            options: scale.wp_options(),
            inserts: 0,
        }
    }

    fn existing(&self, random: &mut Random) -> String {
        name(random.between(1, self.options as i64) as u64)
    }
}

impl Generator for Requests {
    fn operations(&self) -> &'static [Operation] {
        const {
            &[
                Operation::new("get-option", 99.0),
                Operation::new("insert-option", 0.5),
                Operation::new("update-option", 0.5),
            ]
        }
    }

    fn call(&mut self, operation: usize, random: &mut Random) -> HttpCall {
        match operation {
            0 => HttpCall::get(format!("/options/{}", self.existing(random))),
            1 => {
                let option_name = name(self.options + 1 + self.inserts / 2);
                self.inserts += 1;
                let option_value = random.prose(VALUE_BYTES);
                HttpCall::post(
                    "/options".to_owned(),
                    &NewOption {
                        option_name,
                        option_value,
                        autoload: autoload(),
                    },
                )
            }
            _ => {
                let option_name = self.existing(random);
                let option_value = random.prose(VALUE_BYTES);
                HttpCall::put(
                    format!("/options/{option_name}"),
                    &NewValue { option_value },
                )
            }
        }
    }
}
