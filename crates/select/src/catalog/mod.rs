//! From what a statement says to what the database does.
//!
//! A view reads its tables, an insert runs triggers and looks into the tables that foreign keys
//! point to, a delete may delete elsewhere, a function does what its body says. All of that is in
//! the database's catalog, which is read once ([`Catalog::load`]); [`Catalog::expand`] then follows
//! a statement through it.
//!
//! Where the catalog itself knows who depends on whom (views, rules, defaults, checks, policies),
//! that is used. Bodies of functions in SQL and PL/pgSQL are read like statements. Overloaded
//! functions count together, because telling them apart needs types.
//!
//! Three things are taken on trust. Functions of Postgres itself touch no tables (but for those in
//! [`names`]), and neither do functions in other languages that are declared `IMMUTABLE`, which
//! promises just that. Operators, casts, types' own functions and the checks of domains are not
//! followed. And the search path is the one of the session that loaded the catalog: `SET
//! search_path` is noticed, `set_config` is not, because its literals are not in recorded texts. If
//! trust was misplaced, a run sees it in the tables that executed types touch; of types that are
//! left out, it is only known what this module says.
//!
//! Sequences are no tables: their values are handed out in any order, and a replay hands out the
//! recorded ones.

use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;

use hindcast_pg::tokio::Client;

use crate::statement::{Name, Parameter, Returns, Statement};

mod expand;
mod load;
mod names;

/// What one database's catalog says.
#[derive(Debug)]
pub struct Catalog {
    /// Schemas in the order in which unqualified names are looked up.
    search_path: Vec<String>,
    /// All schemas that exist.
    schemas: BTreeSet<String>,
    relations: HashMap<Oid, Relation>,
    relation_by_name: HashMap<Name, Oid>,
    routines: HashMap<Oid, Routine>,
    /// Overloaded ones together.
    routines_by_name: HashMap<Name, Vec<Oid>>,
    /// Names of functions that come with Postgres.
    built_in: BTreeSet<String>,
}

/// What a statement touches in this database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Tables, as `format('%I.%I')` writes them.
    pub reads: BTreeSet<String>,
    pub writes: BTreeSet<String>,
    /// Why there may be more: at least one reason if anything could not be followed.
    pub undetermined: Vec<String>,
}

/// The catalog could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the database's catalog could not be read ({what})")]
pub struct CatalogError {
    what: &'static str,
    source: hindcast_pg::Error,
}

type Oid = u32;

#[derive(Debug, Default)]
struct Relation {
    /// Quoted where needed.
    name: String,
    kind: Kind,
    /// The database's own, or ours.
    ignored: bool,
    /// Partitions, and tables that inherit.
    children: Vec<Oid>,
    /// What a view is made of.
    definition: Uses,
    rules: Vec<Rule>,
    triggers: Vec<Trigger>,
    /// Of this table as the one that refers.
    refers: Vec<Reference>,
    /// Of this table as the one that is referred to.
    referred: Vec<Reference>,
    /// Functions of defaults, generated columns and checks.
    computed: Vec<Oid>,
    /// It has generated columns.
    generates: bool,
    /// Row-level security, where it is enabled.
    policies: Uses,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Table,
    View,
    MaterializedView,
    Foreign,
    Sequence,
}

/// What an expression in the catalog depends on.
#[derive(Clone, Debug, Default)]
struct Uses {
    relations: Vec<Oid>,
    routines: Vec<Oid>,
}

/// A rule other than a view's definition.
#[derive(Debug)]
struct Rule {
    event: Event,
    /// Nothing else happens.
    replaces: bool,
    uses: Uses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Insert,
    Update,
    Delete,
}

#[derive(Debug)]
struct Trigger {
    routine: Oid,
    /// As `pg_trigger.tgtype`.
    kind: i16,
    /// `UPDATE OF`; empty: any.
    columns: BTreeSet<String>,
    /// Names of its transition tables.
    transitions: Vec<String>,
    /// Of its `WHEN`.
    condition: Vec<Oid>,
}

/// A foreign key.
#[derive(Clone, Debug)]
struct Reference {
    /// The table at the other end.
    other: Oid,
    columns: BTreeSet<String>,
    other_columns: BTreeSet<String>,
    on_delete: Action,
    on_update: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Refuse.
    Nothing,
    Cascade,
    /// `SET NULL` and `SET DEFAULT`.
    Set,
}

#[derive(Debug)]
struct Routine {
    /// Quoted where needed.
    name: String,
    language: String,
    immutable: bool,
    extension: Option<String>,
    returns_trigger: bool,
    returns: Returns,
    parameters: Vec<Parameter>,
    body: String,
    /// The whole definition, if the body is part of the catalog (`BEGIN ATOMIC`).
    definition: Option<String>,
    search_path: Option<Vec<String>>,
    /// What an aggregate is made of.
    parts: Vec<Oid>,
    /// What the body says, read when first needed.
    statement: OnceLock<Statement>,
}

impl Catalog {
    /// Reads the catalog. The session's search path should be the service's.
    pub async fn load(client: &Client) -> Result<Self, CatalogError> {
        load::load(client).await
    }

    /// Follows a statement to the tables that it touches.
    pub fn expand(&self, statement: &Statement) -> Touched {
        self.expand_among(statement, &BTreeSet::new())
    }

    /// The same, where these temporary tables may exist.
    pub fn expand_among(&self, statement: &Statement, temporary: &BTreeSet<Name>) -> Touched {
        expand::expand(self, statement, temporary)
    }
}
