//! Reads the catalog: all of it at the start, later only what may have changed.

use std::collections::{HashMap, HashSet};

use hindcast_pg::Error;
use hindcast_pg::tokio::Client;
use hindcast_wire::sql::Relations;
use hindcast_wire::{SequenceColumns, Source};

use super::known::Wanted;

/// What is kept current.
pub(in crate::record) struct Catalog {
    pub sequences: SequenceColumns,
    pub routines: Routines,
}

/// What a database's functions and procedures may do.
pub(in crate::record) struct Routines {
    /// They open subtransactions, as a block that catches exceptions does. Their ids show nowhere
    /// on the wire.
    pub catch: bool,
    /// None deallocates or lists prepared statements, and none runs a text that it is given and
    /// that might. No view lists them either.
    pub leave_statements: bool,
}

impl Catalog {
    pub async fn read(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            sequences: all_sequences(client).await?,
            routines: routines(client).await?,
        })
    }
}

/// Whether the relation `c` may go by its name alone: it is visible under the role's own search
/// path, or no other one has its name, whatever the path of a session is. One that was dropped
/// meanwhile is not visible.
const GOES_BY_NAME: &str = "coalesce(pg_catalog.pg_table_is_visible(c.oid), false) \
      OR NOT EXISTS (SELECT FROM pg_catalog.pg_class o WHERE o.relname = c.relname AND o.oid <> c.oid)";

/// The columns of tables `a` whose default draws a UUID, as it is or as a text.
const FILLED_WITH_UUIDS: &str = "SELECT a.adrelid, a.adnum FROM pg_catalog.pg_attrdef a \
      JOIN pg_catalog.pg_attribute c ON c.attrelid = a.adrelid AND c.attnum = a.adnum \
       AND c.atttypid IN ('uuid'::regtype, 'text'::regtype, 'varchar'::regtype) AND c.attgenerated = '' \
     WHERE pg_catalog.pg_get_expr(a.adbin, a.adrelid) \
           ~ '^\\(?([^()]+\\.)?(gen_random_uuid|uuid_generate_v1|uuid_generate_v1mc|uuid_generate_v4|uuidv4|uuidv7)\\(\\)\\)?(::[a-z ]+)?$'";

/// Which columns the server fills, and by what names sequences go in `nextval('…')`.
pub(super) async fn all_sequences(client: &Client) -> Result<SequenceColumns, Error> {
    let mut sequences = SequenceColumns::default();
    let tables = client
        .query(
            "SELECT oid FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f')",
            &[],
        )
        .await?;
    for row in &tables {
        sequences.add_table(row.get(0));
    }
    let columns = client
        .query(
            // Identity columns own their sequence ('i'); defaults refer to theirs.
            "SELECT d.refobjid, d.refobjsubid::int2, d.objid \
               FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class s ON s.oid = d.objid AND s.relkind = 'S' \
              WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass \
                AND d.deptype = 'i' AND d.refobjsubid > 0 \
             UNION \
             SELECT a.adrelid, a.adnum, d.refobjid \
               FROM pg_catalog.pg_attrdef a \
               JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = a.oid \
                AND d.refclassid = 'pg_catalog.pg_class'::regclass \
               JOIN pg_catalog.pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'",
            &[],
        )
        .await?;
    let mut drawing = HashSet::new();
    for row in &columns {
        sequences.add_column(row.get(0), row.get(1), row.get::<u32>(2));
        drawing.insert(row.get(0));
    }
    for (name, table) in table_names(client, drawing).await? {
        sequences.add_table_name(&name, table);
    }
    for row in &client.query(FILLED_WITH_UUIDS, &[]).await? {
        sequences.add_column(row.get(0), row.get(1), Source::Uuids);
    }
    let names = client.query(&named("true"), &[]).await?;
    names
        .iter()
        .for_each(|row| add_names(&mut sequences, &SequenceName::of(row)));
    Ok(sequences)
}

/// What these tables go by in statements, without quotes.
async fn table_names(
    client: &Client,
    tables: impl IntoIterator<Item = u32>,
) -> Result<Vec<(String, u32)>, Error> {
    let tables: Vec<u32> = tables.into_iter().collect();
    let rows = client
        .query(
            &format!(
                "SELECT c.oid, c.relname::text, n.nspname::text, {GOES_BY_NAME} \
                   FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                  WHERE c.oid = ANY($1::oid[])"
            ),
            &[&tables],
        )
        .await?;
    let mut names = Vec::new();
    for row in &rows {
        let (table, name, schema): (u32, String, String) = (row.get(0), row.get(1), row.get(2));
        names.push((format!("{schema}.{name}"), table));
        names.extend(row.get::<bool>(3).then_some((name, table)));
    }
    Ok(names)
}

/// The names of the sequences `c` for which this holds.
fn named(condition: &str) -> String {
    format!(
        "SELECT c.oid, c.relname::text, pg_catalog.quote_ident(c.relname), \
                {GOES_BY_NAME}, n.nspname::text, pg_catalog.quote_ident(n.nspname) \
           FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
          WHERE c.relkind = 'S' AND ({condition})"
    )
}

/// A sequence with its schema, each plain and quoted.
#[derive(Clone, Debug)]
struct SequenceName {
    oid: u32,
    visible: bool,
    names: [(String, String); 2],
}

impl SequenceName {
    fn of(row: &hindcast_pg::Row) -> Self {
        Self {
            oid: row.get(0),
            visible: row.get(3),
            names: [(row.get(1), row.get(4)), (row.get(2), row.get(5))],
        }
    }
}

fn add_names(sequences: &mut SequenceColumns, of: &SequenceName) {
    for (name, schema) in &of.names {
        sequences.add_name(&format!("{schema}.{name}"), of.oid);
        if of.visible {
            sequences.add_name(name, of.oid);
        }
    }
}

/// What `initdb` makes has lower numbers.
const FIRST_OWN_OID: u32 = 16384;
/// A function's text that deallocates or lists prepared statements.
const REACHES: &str = "\\m(deallocate|discard|pg_prepared_statements?)\\M";
/// PL/pgSQL that runs something else than a command which stands there, as in `EXECUTE command`.
/// `EXECUTE 'DROP …'` and `EXECUTE format('DROP …` do not.
const RUNS_TEXTS: &str = "\\mexecute\\M(?!\\s+(function|procedure|on)\\M)(?!\\s*\\(?\\s*(format\\s*\\(\\s*)?(e?''|\\$\\w*\\$)\\s*[a-z])";

/// Looks at all functions and procedures. Of an extension's it is believed that they run their own
/// texts only.
pub(super) async fn routines(client: &Client) -> Result<Routines, Error> {
    let query = format!(
        "SELECT coalesce(bool_or(l.lanname <> 'sql' AND (l.lanname <> 'plpgsql' OR p.prosrc ~* '\\mexception\\s+when\\M')), false), \
                coalesce(bool_or(p.prosrc ~* '{REACHES}' OR (NOT extension AND CASE l.lanname \
                  WHEN 'sql' THEN false WHEN 'plpgsql' THEN p.prosrc ~* '{RUNS_TEXTS}' ELSE true END)), false) \
                OR EXISTS (SELECT FROM pg_catalog.pg_depend d \
                  WHERE d.refclassid = 'pg_catalog.pg_class'::regclass \
                    AND d.refobjid = 'pg_catalog.pg_prepared_statements'::regclass AND d.objid >= {FIRST_OWN_OID}) \
           FROM pg_catalog.pg_proc p \
           JOIN pg_catalog.pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('internal', 'c') \
           JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname <> 'pg_catalog' \
          CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pg_catalog.pg_depend d \
                  WHERE d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e') AS extension) e"
    );
    let row = client.query_one(&query, &[]).await?;
    Ok(Routines {
        catch: row.get(0),
        leave_statements: !row.get::<bool>(1),
    })
}

/// What a look at some tables and sequences found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Those of the tables that exist, with their columns that the server fills.
    pub tables: HashMap<u32, Vec<(i16, Source)>>,
    table_names: Vec<(String, u32)>,
    /// Sequences that were known by a name that was looked for, and may be gone.
    looked_for: HashSet<u32>,
    sequences: Vec<SequenceName>,
}

/// The tables and sequences of these names or numbers, in any schema. All by index: what this costs
/// depends on how much is asked for, and not on how large the catalog is.
const TABLES: &str = "WITH RECURSIVE named AS MATERIALIZED ( \
       SELECT c.oid FROM pg_catalog.pg_class c \
        WHERE c.relname = ANY($1::text[]::name[]) AND c.relkind IN ('r', 'p', 'v', 'm', 'f') \
        UNION SELECT c.oid FROM pg_catalog.pg_class c \
        WHERE c.oid = ANY($2::oid[]) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')), \
     reached(oid) AS ( \
       SELECT oid FROM named \
        UNION SELECT i.inhrelid FROM reached r JOIN pg_catalog.pg_inherits i ON i.inhparent = r.oid WHERE $3::bool) \
     SELECT t.oid, f.attribute, f.sequence FROM reached t \
       LEFT JOIN LATERAL ( \
         SELECT d.refobjsubid::int2 AS attribute, d.objid AS sequence \
           FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class s ON s.oid = d.objid AND s.relkind = 'S' \
          WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = t.oid AND d.refobjsubid > 0 \
            AND d.classid = 'pg_catalog.pg_class'::regclass AND d.deptype = 'i' \
          UNION \
         SELECT a.adnum, d.refobjid FROM pg_catalog.pg_attrdef a \
           JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = a.oid \
            AND d.refclassid = 'pg_catalog.pg_class'::regclass \
           JOIN pg_catalog.pg_class s ON s.oid = d.refobjid AND s.relkind = 'S' \
          WHERE a.adrelid = t.oid \
         OFFSET 0) f ON true";

/// Looks up what a change of the schema may have changed, short of everything.
pub(super) async fn look_up(
    client: &Client,
    wanted: &Wanted,
    known: &SequenceColumns,
) -> Result<Found, Error> {
    let (names, descendants) = match &wanted.change.relations {
        Relations::Named { names, descendants } => (names.iter().collect(), *descendants),
        Relations::None | Relations::All => (Vec::new(), false),
    };
    let descendants = if descendants { "t" } else { "f" };
    let tables: Vec<u32> = wanted.tables.iter().copied().collect();
    let mut found = Found::default();
    let rows = client
        .query(TABLES, &[&names, &tables, &descendants])
        .await?;
    for row in &rows {
        let columns = found.tables.entry(row.get(0)).or_default();
        if let (Some(attribute), Some(sequence)) = (row.get(1), row.get(2)) {
            columns.push((attribute, Source::Sequence(sequence)));
        }
    }
    let existing: Vec<u32> = found.tables.keys().copied().collect();
    let of_these = format!("{FILLED_WITH_UUIDS} AND a.adrelid = ANY($1::oid[])");
    for row in &client.query(&of_these, &[&existing]).await? {
        let columns = found.tables.entry(row.get(0)).or_default();
        columns.push((row.get(1), Source::Uuids));
    }
    // A sequence that had such a name may have another now.
    let by_name = names.iter().filter_map(|name| known.by_name(name));
    found.looked_for = by_name
        .chain(found.tables.keys().flat_map(|table| known.of_table(*table)))
        .collect();
    let filling = found.tables.values().flatten();
    let sequences: HashSet<u32> = filling
        .filter_map(|(_, source)| match source {
            Source::Sequence(sequence) => Some(*sequence),
            Source::Uuids => None,
        })
        .chain(found.looked_for.iter().copied())
        .collect();
    let sequences: Vec<u32> = sequences.into_iter().collect();
    let condition = "c.relname = ANY($1::text[]::name[]) OR c.oid = ANY($2::oid[])";
    let rows = client
        .query(&named(condition), &[&names, &sequences])
        .await?;
    found.sequences = rows.iter().map(SequenceName::of).collect();
    found.table_names = table_names(client, existing).await?;
    Ok(found)
}

impl Found {
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.looked_for.is_empty() && self.sequences.is_empty()
    }

    /// Puts it to what is known.
    pub fn tell(&self, known: &mut SequenceColumns) {
        for (table, columns) in &self.tables {
            known.set_table(*table, columns);
        }
        for (name, table) in &self.table_names {
            known.add_table_name(name, *table);
        }
        // First all old names: one may belong to another sequence now.
        let found = self.sequences.iter().map(|sequence| sequence.oid);
        for sequence in self.looked_for.iter().copied().chain(found) {
            known.forget_sequence(sequence);
        }
        // A name that several have is the one's that is visible.
        let mut sequences: Vec<_> = self.sequences.iter().collect();
        sequences.sort_by_key(|sequence| sequence.visible);
        for sequence in sequences {
            add_names(known, sequence);
        }
    }
}

/// Those of these tables that exist.
pub(super) async fn existing(client: &Client, tables: &[u32]) -> Result<HashSet<u32>, Error> {
    let rows = client
        .query(
            "SELECT oid FROM pg_catalog.pg_class WHERE oid = ANY($1::oid[])",
            &[&tables],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
