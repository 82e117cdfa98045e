//! Reads the catalog, one query per kind of thing.

use std::collections::{BTreeSet, HashMap};

use hindcast_pg::Row;
use hindcast_pg::tokio::Client;

use super::{
    Action, Catalog, CatalogError, Event, Kind, Oid, Reference, Relation, Returns, Routine, Rule,
    Trigger, Uses, names,
};
use crate::statement::{Name, Parameter};

/// Oids of what an object depends on, as two arrays: relations and functions.
macro_rules! uses {
    ($class:literal, $object:literal, $but:literal) => {
        concat!(
            "ARRAY(SELECT DISTINCT d.refobjid FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.",
            $class,
            "'::regclass AND d.objid = ",
            $object,
            " AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid <> ",
            $but,
            ") AS relations, ARRAY(SELECT DISTINCT d.refobjid FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.",
            $class,
            "'::regclass AND d.objid = ",
            $object,
            " AND d.refclassid = 'pg_catalog.pg_proc'::regclass) AS routines"
        )
    };
}

/// Column names by number.
macro_rules! columns {
    ($relation:literal, $numbers:literal) => {
        concat!(
            "ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = ",
            $relation,
            " AND a.attnum = ANY (",
            $numbers,
            "))"
        )
    };
}

const SCHEMAS: &str = "SELECT nspname::text AS schema, array_position(pg_catalog.current_schemas(true), nspname) AS position \
    FROM pg_catalog.pg_namespace";

const RELATIONS: &str = "SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, pg_catalog.format('%I.%I', n.nspname, c.relname) AS quoted, \
    c.relkind::text AS kind FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.relpersistence <> 't'";

const CHILDREN: &str =
    "SELECT i.inhparent AS parent, i.inhrelid AS child FROM pg_catalog.pg_inherits i";

const RULES: &str = concat!(
    "SELECT r.ev_class AS relation, r.ev_type::text AS event, r.is_instead AND r.ev_qual::text = '<>' AS replaces, ",
    uses!("pg_rewrite", "r.oid", "r.ev_class"),
    " FROM pg_catalog.pg_rewrite r WHERE r.ev_enabled <> 'D'"
);

const TRIGGERS: &str = concat!(
    "SELECT t.tgrelid AS relation, t.tgfoid AS routine, t.tgtype AS kind, pg_catalog.array_remove(ARRAY[t.tgoldtable::text, t.tgnewtable::text], NULL) AS transitions, ",
    columns!("t.tgrelid", "t.tgattr::int2[]"),
    " AS columns, ",
    uses!("pg_trigger", "t.oid", "t.tgrelid"),
    " FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
     WHERE t.tgenabled <> 'D' AND n.nspname <> 'pg_catalog'"
);

const REFERENCES: &str = concat!(
    "SELECT c.conrelid AS child, c.confrelid AS parent, c.confdeltype::text AS on_delete, c.confupdtype::text AS on_update, ",
    columns!("c.conrelid", "c.conkey"),
    " AS columns, ",
    columns!("c.confrelid", "c.confkey"),
    " AS parent_columns FROM pg_catalog.pg_constraint c WHERE c.contype = 'f'"
);

const COMPUTED: &str = "SELECT o.relation, d.refobjid AS routine FROM pg_catalog.pg_depend d JOIN ( \
    SELECT 'pg_catalog.pg_attrdef'::regclass AS class, oid, adrelid AS relation FROM pg_catalog.pg_attrdef \
    UNION ALL SELECT 'pg_catalog.pg_constraint'::regclass, oid, conrelid FROM pg_catalog.pg_constraint WHERE contype = 'c' AND conrelid <> 0 \
    ) o ON d.classid = o.class AND d.objid = o.oid WHERE d.refclassid = 'pg_catalog.pg_proc'::regclass";

const GENERATED: &str = "SELECT DISTINCT a.attrelid AS relation FROM pg_catalog.pg_attribute a WHERE a.attgenerated <> '' AND NOT a.attisdropped";

const POLICIES: &str = concat!(
    "SELECT p.polrelid AS relation, ",
    uses!("pg_policy", "p.oid", "p.polrelid"),
    " FROM pg_catalog.pg_policy p JOIN pg_catalog.pg_class c ON c.oid = p.polrelid WHERE c.relrowsecurity"
);

const ROUTINES: &str = "SELECT p.oid, n.nspname::text AS schema, p.proname::text AS name, pg_catalog.format('%I.%I', n.nspname, p.proname) AS quoted, \
    l.lanname::text AS language, p.provolatile = 'i' AS immutable, \
    (SELECT e.extname::text FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid \
     WHERE d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.deptype = 'e' LIMIT 1) AS extension, \
    p.prorettype::regtype::text AS returns, p.proretset AS set, p.prosrc AS body, \
    CASE WHEN l.lanname = 'sql' AND p.prokind <> 'a' AND p.prosrc = '' THEN pg_catalog.pg_get_functiondef(p.oid) END AS definition, \
    (SELECT pg_catalog.substr(c, 13) FROM pg_catalog.unnest(p.proconfig) c WHERE c LIKE 'search_path=%') AS path, \
    coalesce(p.proargnames, '{}') AS names, coalesce(p.proargmodes::text[], '{}') AS modes, \
    ARRAY(SELECT t.typtype = 'c' FROM pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) WITH ORDINALITY a(type, at) \
     JOIN pg_catalog.pg_type t ON t.oid = a.type ORDER BY a.at) AS composite, \
    coalesce((SELECT ARRAY[g.aggtransfn, g.aggfinalfn, g.aggcombinefn, g.aggmtransfn, g.aggminvtransfn, g.aggmfinalfn]::oid[] \
     FROM pg_catalog.pg_aggregate g WHERE g.aggfnoid = p.oid), '{}') AS parts \
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace JOIN pg_catalog.pg_language l ON l.oid = p.prolang \
    WHERE n.nspname NOT IN ('pg_catalog', 'information_schema')";

const BUILT_IN: &str = "SELECT DISTINCT p.proname::text AS name FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
    WHERE n.nspname IN ('pg_catalog', 'information_schema')";

pub(super) async fn load(client: &Client) -> Result<Catalog, CatalogError> {
    let ask = async |what: &'static str, sql: &str| {
        client
            .query(sql, &[])
            .await
            .map_err(|source| CatalogError { what, source })
    };
    let mut schemas = BTreeSet::new();
    let mut path: Vec<(i32, String)> = Vec::new();
    for row in ask("schemas", SCHEMAS).await? {
        let schema: String = row.get("schema");
        if let Some(position) = row.get::<Option<i32>>("position") {
            path.push((position, schema.clone()));
        }
        schemas.insert(schema);
    }
    path.sort_unstable();

    let mut relations: HashMap<Oid, Relation> = HashMap::new();
    let mut relation_by_name = HashMap::new();
    for row in ask("tables", RELATIONS).await? {
        let schema: String = row.get("schema");
        let relation = Relation {
            name: row.get("quoted"),
            kind: kind(row.get("kind")),
            ignored: names::is_ignored_schema(&schema),
            ..Relation::default()
        };
        let oid: Oid = row.get("oid");
        relation_by_name.insert(Name::new(&schema, row.get("name")), oid);
        relations.insert(oid, relation);
    }
    let mut with = |relation: Oid, change: &mut dyn FnMut(&mut Relation)| {
        // Of what is in the catalog but no table, such as indexes, which are inherited too, nothing
        // needs to be known.
        if let Some(relation) = relations.get_mut(&relation) {
            change(relation);
        }
    };
    for row in ask("inheritance", CHILDREN).await? {
        with(row.get("parent"), &mut |it| {
            it.children.push(row.get("child"));
        });
    }
    for row in ask("rules", RULES).await? {
        let event = match row.get("event") {
            "2" => Some(Event::Update),
            "3" => Some(Event::Insert),
            "4" => Some(Event::Delete),
            _ => None,
        };
        with(row.get("relation"), &mut |it| match event {
            Some(event) => it.rules.push(Rule {
                event,
                replaces: row.get("replaces"),
                uses: uses(&row),
            }),
            None => it.definition.extend(uses(&row)),
        });
    }
    for row in ask("triggers", TRIGGERS).await? {
        let routine: Oid = row.get("routine");
        let mut condition: Vec<Oid> = row.get("routines");
        condition.retain(|used| *used != routine);
        with(row.get("relation"), &mut |it| {
            it.triggers.push(Trigger {
                routine,
                kind: row.get("kind"),
                columns: set(&row, "columns"),
                transitions: row.get("transitions"),
                condition: condition.clone(),
            });
        });
    }
    for row in ask("foreign keys", REFERENCES).await? {
        let (child, parent): (Oid, Oid) = (row.get("child"), row.get("parent"));
        let from_child = Reference {
            other: parent,
            columns: set(&row, "columns"),
            other_columns: set(&row, "parent_columns"),
            on_delete: action(row.get("on_delete")),
            on_update: action(row.get("on_update")),
        };
        let from_parent = Reference {
            other: child,
            columns: from_child.other_columns.clone(),
            other_columns: from_child.columns.clone(),
            ..from_child.clone()
        };
        with(child, &mut |it| it.refers.push(from_child.clone()));
        with(parent, &mut |it| it.referred.push(from_parent.clone()));
    }
    for row in ask("defaults and checks", COMPUTED).await? {
        with(row.get("relation"), &mut |it| {
            it.computed.push(row.get("routine"));
        });
    }
    for row in ask("generated columns", GENERATED).await? {
        with(row.get("relation"), &mut |it| it.generates = true);
    }
    for row in ask("policies", POLICIES).await? {
        with(row.get("relation"), &mut |it| {
            it.policies.extend(uses(&row))
        });
    }

    let mut routines = HashMap::new();
    let mut routines_by_name: HashMap<Name, Vec<Oid>> = HashMap::new();
    for row in ask("functions", ROUTINES).await? {
        let (oid, schema, name): (Oid, &str, &str) =
            (row.get("oid"), row.get("schema"), row.get("name"));
        let named = routines_by_name.entry(Name::new(schema, name));
        named.or_default().push(oid);
        routines.insert(oid, routine(&row));
    }
    let built_in = ask("built-in functions", BUILT_IN).await?;
    Ok(Catalog {
        search_path: path.into_iter().map(|(_, schema)| schema).collect(),
        schemas,
        relations,
        relation_by_name,
        routines,
        routines_by_name,
        built_in: built_in.iter().map(|row| row.get("name")).collect(),
    })
}

fn routine(row: &Row) -> Routine {
    let returns: String = row.get("returns");
    let names: Vec<String> = row.get("names");
    let modes: Vec<String> = row.get("modes");
    let composite: Vec<bool> = row.get("composite");
    // Without names there is nothing to declare: the body uses $1, $2 ….
    let parameters = names.into_iter().enumerate().map(|(at, name)| Parameter {
        mode: match modes.get(at).map(String::as_str) {
            Some("o" | "t") => "OUT",
            Some("b") => "INOUT",
            _ => "IN",
        },
        name,
        composite: composite.get(at).copied().unwrap_or(false),
    });
    Routine {
        name: row.get("quoted"),
        language: row.get("language"),
        immutable: row.get("immutable"),
        extension: row.get("extension"),
        returns_trigger: returns == "trigger",
        returns: match (row.get("set"), returns.as_str()) {
            (true, _) => Returns::Set,
            (false, "void" | "-") => Returns::Nothing,
            (false, _) => Returns::One,
        },
        parameters: parameters.filter(|it| !it.name.is_empty()).collect(),
        body: row.get("body"),
        definition: row.get("definition"),
        search_path: row.get::<Option<String>>("path").map(|path| {
            let schemas = path.split(',').map(|it| it.trim().trim_matches('"'));
            schemas.map(str::to_owned).collect()
        }),
        parts: row.get("parts"),
        statement: std::sync::OnceLock::new(),
    }
}

impl Uses {
    fn extend(&mut self, other: Self) {
        self.relations.extend(other.relations);
        self.routines.extend(other.routines);
    }
}

fn uses(row: &Row) -> Uses {
    Uses {
        relations: row.get("relations"),
        routines: row.get("routines"),
    }
}

fn set(row: &Row, column: &str) -> BTreeSet<String> {
    row.get::<Vec<String>>(column).into_iter().collect()
}

fn kind(text: &str) -> Kind {
    match text {
        "v" => Kind::View,
        "m" => Kind::MaterializedView,
        "f" => Kind::Foreign,
        "S" => Kind::Sequence,
        _ => Kind::Table,
    }
}

fn action(text: &str) -> Action {
    match text {
        "c" => Action::Cascade,
        "n" | "d" => Action::Set,
        _ => Action::Nothing,
    }
}
