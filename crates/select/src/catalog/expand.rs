//! Follows a statement through the catalog.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Action, Catalog, Event, Kind, Oid, Relation, Routine, Touched, Trigger, Uses, names};
use crate::statement::{ANY_COLUMN, Effects, Name, Statement, routine, trigger};

/// Bits of `pg_trigger.tgtype`.
const BEFORE: i16 = 2;
const ON_INSERT: i16 = 4;
const ON_DELETE: i16 = 8;
const ON_UPDATE: i16 = 16;
const ON_TRUNCATE: i16 = 32;
const INSTEAD: i16 = 64;

pub(super) fn expand(
    catalog: &Catalog,
    statement: &Statement,
    temporary: &BTreeSet<Name>,
) -> Touched {
    let mut expansion = Expansion {
        catalog,
        touched: Touched::default(),
        reads: HashSet::new(),
        writes: HashMap::new(),
        called: HashSet::new(),
    };
    let place = Place {
        path: &catalog.search_path,
        temporary: temporary.union(&statement.temporary).cloned().collect(),
        routine: None,
    };
    expansion.statement(statement, &place);
    expansion.touched
}

struct Expansion<'a> {
    catalog: &'a Catalog,
    touched: Touched,
    reads: HashSet<Oid>,
    /// What has been followed. It only grows, so following ends.
    writes: HashMap<Oid, Effects>,
    called: HashSet<Oid>,
}

/// Where a statement stands.
struct Place<'a> {
    path: &'a [String],
    /// Names that may be no tables of the catalog.
    temporary: BTreeSet<Name>,
    /// Whose body it is in.
    routine: Option<&'a str>,
}

impl Place<'_> {
    fn schemas<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a str> {
        let path = self.path.iter().map(String::as_str);
        let qualified = name.schema.as_deref();
        // Postgres looks into its own schema even where the path does not say so.
        let path = path.chain(["pg_catalog"]);
        qualified
            .into_iter()
            .chain(path.filter(move |_| qualified.is_none()))
    }
}

impl<'a> Expansion<'a> {
    fn statement(&mut self, statement: &Statement, place: &Place) {
        if let Some(reason) = &statement.undetermined {
            self.cannot_tell(reason.clone(), place);
        }
        if let Some(path) = &statement.search_path
            && !self.is_own_path(path)
        {
            let path = path.join(", ");
            self.cannot_tell(format!("it sets search_path to {path}"), place);
        }
        for name in &statement.reads {
            if let Some(oid) = self.relation(name, place) {
                self.read(oid);
            }
        }
        for (name, effects) in &statement.writes {
            if let Some(oid) = self.relation(name, place) {
                self.write(oid, effects.clone());
            }
        }
        for name in &statement.functions {
            self.call_named(name, place);
        }
    }

    fn cannot_tell(&mut self, reason: String, place: &Place) {
        let reason = match place.routine {
            Some(routine) => format!("in function {routine}: {reason}"),
            None => reason,
        };
        if !self.touched.undetermined.contains(&reason) {
            self.touched.undetermined.push(reason);
        }
    }

    /// Whether setting the search path so changes nothing. `DEFAULT` is no schemas at all.
    fn is_own_path(&self, path: &[String]) -> bool {
        let relevant = |schema: &&String| {
            *schema != "pg_catalog" && self.catalog.schemas.contains(schema.as_str())
        };
        path.is_empty()
            || path
                .iter()
                .filter(relevant)
                .eq(self.catalog.search_path.iter().filter(relevant))
    }

    fn relation(&mut self, name: &Name, place: &Place) -> Option<Oid> {
        let oid = place.schemas(name).find_map(|schema| {
            let name = Name::new(schema, &name.name);
            self.catalog.relation_by_name.get(&name).copied()
        });
        let is_temporary = |schema: &String| schema.starts_with("pg_temp");
        if oid.is_none()
            && !name.schema.as_ref().is_some_and(is_temporary)
            && !place.temporary.contains(name)
        {
            self.cannot_tell(format!("there is no table {name}"), place);
        }
        oid
    }

    fn read(&mut self, oid: Oid) {
        let Some(relation) = self.catalog.relations.get(&oid) else {
            return;
        };
        if relation.ignored || !self.reads.insert(oid) {
            return;
        }
        match relation.kind {
            Kind::Sequence => return,
            Kind::View => self.uses(&relation.definition),
            Kind::Foreign => self.foreign(relation),
            Kind::Table | Kind::MaterializedView => {
                self.touched.reads.insert(relation.name.clone());
            }
        }
        for child in &relation.children {
            self.read(*child);
        }
        self.uses(&relation.policies);
    }

    fn uses(&mut self, uses: &'a Uses) {
        for relation in &uses.relations {
            self.read(*relation);
        }
        for routine in &uses.routines {
            self.call(*routine);
        }
    }

    fn foreign(&mut self, relation: &Relation) {
        let reason = format!("{} is in another database", relation.name);
        if !self.touched.undetermined.contains(&reason) {
            self.touched.undetermined.push(reason);
        }
    }

    fn write(&mut self, oid: Oid, effects: Effects) {
        let Some(relation) = self.catalog.relations.get(&oid) else {
            return;
        };
        if relation.ignored {
            return;
        }
        let known = self.writes.entry(oid).or_default();
        let before = known.clone();
        known.absorb(effects);
        // All of what is known is followed again, since triggers and keys look at the columns
        // together.
        let effects = known.clone();
        if effects == before {
            return;
        }
        match relation.kind {
            Kind::Sequence => return,
            Kind::View => return self.write_view(oid, relation, &effects),
            Kind::Foreign => self.foreign(relation),
            Kind::Table | Kind::MaterializedView => {
                self.touched.writes.insert(relation.name.clone());
            }
        }
        if effects.refresh {
            self.uses(&relation.definition);
        }
        for child in &relation.children {
            self.write(*child, effects.clone());
        }
        if effects.changes_rows() {
            self.uses(&relation.policies);
            self.fire(relation, &effects);
            self.rules(relation, &effects);
            self.keys(relation, &effects);
        }
        if effects.insert || effects.update.is_some() {
            for routine in &relation.computed {
                self.call(*routine);
            }
        }
    }

    /// A view stores nothing: its triggers, rules or tables do.
    fn write_view(&mut self, oid: Oid, relation: &'a Relation, effects: &Effects) {
        // Which rows are meant, the view's definition says.
        self.read(oid);
        self.fire(relation, effects);
        self.rules(relation, effects);
        let replaced = |event, bit| {
            let triggers = &relation.triggers;
            triggers
                .iter()
                .any(|it| it.kind & INSTEAD != 0 && it.kind & bit != 0)
                || relation
                    .rules
                    .iter()
                    .any(|it| it.event == event && it.replaces)
        };
        let own = Effects {
            insert: effects.insert && !replaced(Event::Insert, ON_INSERT),
            update: (effects.update.is_some() && !replaced(Event::Update, ON_UPDATE))
                .then(|| BTreeSet::from([ANY_COLUMN.to_owned()])),
            delete: effects.delete && !replaced(Event::Delete, ON_DELETE),
            lock: effects.lock,
            ..Effects::default()
        };
        if own != Effects::default() {
            for table in &relation.definition.relations {
                self.write(*table, own.clone());
            }
        }
    }

    fn fire(&mut self, relation: &'a Relation, effects: &Effects) {
        for trigger in &relation.triggers {
            if !fires(trigger, effects, relation.generates) {
                continue;
            }
            for routine in &trigger.condition {
                self.call(*routine);
            }
            let transitions = trigger.transitions.iter().map(|name| Name::new("", name));
            self.call_with(trigger.routine, transitions.collect());
        }
    }

    /// What a rule does instead or besides is not looked at closely: everything to everything that
    /// it names.
    fn rules(&mut self, relation: &'a Relation, effects: &Effects) {
        for rule in &relation.rules {
            let applies = match rule.event {
                Event::Insert => effects.insert,
                Event::Update => effects.update.is_some(),
                Event::Delete => effects.delete,
            };
            if applies {
                self.uses(&rule.uses);
                for table in &rule.uses.relations {
                    let everything = Effects {
                        insert: true,
                        update: Some(BTreeSet::from([ANY_COLUMN.to_owned()])),
                        delete: true,
                        ..Effects::default()
                    };
                    self.write(*table, everything);
                }
            }
        }
    }

    fn keys(&mut self, relation: &'a Relation, effects: &Effects) {
        // A trigger may set other columns than the statement does, and generated ones follow.
        let rewritten = relation.generates
            || relation
                .triggers
                .iter()
                .any(|it| it.kind & BEFORE != 0 && it.kind & ON_UPDATE != 0);
        let updates = |columns: &BTreeSet<String>| {
            effects
                .update
                .as_ref()
                .is_some_and(|set| rewritten || overlap(set, columns))
        };
        for reference in &relation.refers {
            if effects.insert || updates(&reference.columns) {
                self.read(reference.other);
            }
        }
        for reference in &relation.referred {
            let set = || Effects {
                update: Some(reference.other_columns.clone()),
                ..Effects::default()
            };
            let mut on_child = Effects::default();
            if effects.delete {
                self.read(reference.other);
                match reference.on_delete {
                    Action::Nothing => {}
                    Action::Cascade => on_child.delete = true,
                    Action::Set => on_child.absorb(set()),
                }
            }
            if updates(&reference.columns) {
                self.read(reference.other);
                match reference.on_update {
                    Action::Nothing => {}
                    Action::Cascade | Action::Set => on_child.absorb(set()),
                }
            }
            if effects.truncate && effects.cascade {
                on_child.truncate = true;
                on_child.cascade = true;
            }
            if on_child != Effects::default() {
                self.write(reference.other, on_child);
            }
        }
    }

    fn call_named(&mut self, name: &Name, place: &Place) {
        let mut found = false;
        for schema in place.schemas(name) {
            let built_in = matches!(schema, "pg_catalog" | "information_schema");
            if built_in && self.catalog.built_in.contains(&name.name) {
                found = true;
                self.call_built_in(&name.name, place);
            }
            let qualified = Name::new(schema, &name.name);
            for routine in self
                .catalog
                .routines_by_name
                .get(&qualified)
                .into_iter()
                .flatten()
            {
                found = true;
                self.call(*routine);
            }
        }
        if !found {
            self.cannot_tell(format!("there is no function {name}"), place);
        }
    }

    fn call_built_in(&mut self, name: &str, place: &Place) {
        if names::runs_anything(name) {
            self.cannot_tell(
                format!("{name} reads what it is told to when it runs"),
                place,
            );
        }
        if names::is_advisory_lock(name) {
            let locks = names::ADVISORY_LOCKS.to_owned();
            self.touched.writes.insert(locks);
        }
        if names::is_large_object(name) {
            let table = names::LARGE_OBJECTS.to_owned();
            self.touched.reads.insert(table.clone());
            self.touched.writes.insert(table);
        }
    }

    fn call(&mut self, oid: Oid) {
        self.call_with(oid, BTreeSet::new());
    }

    fn call_with(&mut self, oid: Oid, transitions: BTreeSet<Name>) {
        // Functions of Postgres itself are not among the routines. A trigger's function may find
        // different transition tables each time.
        let Some(routine) = self.catalog.routines.get(&oid) else {
            return;
        };
        if !self.called.insert(oid) && transitions.is_empty() {
            return;
        }
        for part in &routine.parts {
            self.call(*part);
        }
        let statement = routine.statement.get_or_init(|| routine.read());
        let place = Place {
            path: routine
                .search_path
                .as_deref()
                .unwrap_or(&self.catalog.search_path),
            temporary: transitions.union(&statement.temporary).cloned().collect(),
            routine: Some(&routine.name),
        };
        self.statement(statement, &place);
    }
}

impl Routine {
    fn read(&self) -> Statement {
        match self.language.as_str() {
            _ if !self.parts.is_empty() => Statement::default(),
            "plpgsql" if self.returns_trigger => trigger(&self.body),
            "plpgsql" => routine(&self.parameters, self.returns, &self.body),
            "sql" => match &self.definition {
                Some(definition) => Statement::of_definition(definition),
                None => Statement::of(&self.body),
            },
            _ if self.immutable
                || self
                    .extension
                    .as_deref()
                    .is_some_and(names::touches_nothing) =>
            {
                Statement::default()
            }
            other => Statement {
                undetermined: Some(format!("it is written in {other}")),
                ..Statement::default()
            },
        }
    }
}

/// `generates`: other columns follow from those that are set.
fn fires(trigger: &Trigger, effects: &Effects, generates: bool) -> bool {
    let on = |bit| trigger.kind & bit != 0;
    let updated = effects.update.as_ref().is_some_and(|set| {
        trigger.columns.is_empty() || generates || overlap(set, &trigger.columns)
    });
    on(ON_INSERT) && effects.insert
        || on(ON_UPDATE) && updated
        || on(ON_DELETE) && effects.delete
        || on(ON_TRUNCATE) && effects.truncate
}

fn overlap(set: &BTreeSet<String>, columns: &BTreeSet<String>) -> bool {
    set.contains(ANY_COLUMN) || !set.is_disjoint(columns)
}
