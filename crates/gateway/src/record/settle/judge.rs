//! What an id that no record explains stands for. Pure: from what it wrote, and what went on
//! meanwhile.
//!
//! | it wrote | it is |
//! |---|---|
//! | nothing, or only elsewhere, or only statistics | harmless |
//! | nothing that is in WAL, while there are unlogged tables | not to be told |
//! | rows of a table of this database | written past the recorder |
//! | only catalogs, or files | a change of the schema past the recorder |
//! | one of these, while a statement of our own ran that may have | that statement's, if alone |
//!
//! What no counter may do here is excuse an id: each is judged by its own WAL.

use std::collections::BTreeSet;

use crate::record::ledger::ON_COMMIT;

/// A relation as the catalog knows it now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Relation {
    /// What ANALYZE writes, autovacuum's included.
    Statistics,
    /// `pg_class`, where ANALYZE notes that a table has no children any more.
    Class,
    Catalog,
    /// A table, a sequence, or the table that an index or a TOAST table belongs to.
    Table(String),
    /// No relation has these files any more.
    Gone,
}

/// What a transaction wrote in this database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wrote {
    /// Where rows changed.
    pub rows: Vec<Relation>,
    /// What was created, rewritten or indexed.
    pub built: Vec<Relation>,
    /// Relations were dropped, truncated or rewritten.
    pub dropped: bool,
    /// In other databases, or in what all databases share.
    pub elsewhere: bool,
    /// It locked tables against readers.
    pub locked: bool,
    /// It did what VACUUM and ANALYZE do.
    pub maintained: bool,
    /// Its WAL was read from its beginning.
    pub complete: bool,
}

impl Wrote {
    /// WAL has nothing of it but its end, and perhaps locks.
    pub fn left_no_trace(&self) -> bool {
        self.rows.is_empty()
            && self.built.is_empty()
            && !self.dropped
            && !self.elsewhere
            && !self.maintained
    }
}

/// What else is known of the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Around {
    /// Statements of our own sessions in whose time it committed, and whose ids are not known.
    pub statements: BTreeSet<&'static str>,
    /// One of our own may be still running.
    pub running: bool,
    /// Sessions that are connected to this database past the recorder, and may have committed then.
    pub strangers: usize,
    /// Tables whose rows are not in WAL.
    pub unlogged: bool,
    /// There is no later.
    pub last: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It changed nothing that a replay would miss.
    Harmless,
    /// Of a statement of our own.
    Ours(&'static str),
    /// What it changed.
    PastUs(BTreeSet<String>),
    /// Something that is going on will tell.
    Later,
    /// Why.
    CannotTell(String),
}

pub(super) const SCHEMA: &str = "the schema";
const GONE: &str = "a table that is gone";
pub(super) const UNLOGGED: &str =
    "they may have written to an unlogged table, whose rows are not in WAL";

/// What a statement whose id cannot be asked for may have changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// Nothing: it takes locks, and an id for these.
    Locks,
    /// Nothing but rows of `pg_class`, or nothing that is in WAL.
    Class,
    /// Catalogs, and the files of relations.
    Catalogs,
    Rows,
}

/// By the first words of the statement. What is not among these (`CALL`, `DO`) may commit inside,
/// after having changed anything.
const REACHES: [(&str, Reach); 13] = [
    (ON_COMMIT, Reach::Locks),
    ("CHECKPOINT", Reach::Locks),
    ("LOCK", Reach::Locks),
    ("ANALYZE", Reach::Class),
    // It makes a table, and drops it again.
    ("VACUUM FULL", Reach::Catalogs),
    ("VACUUM", Reach::Class),
    ("CLUSTER", Reach::Catalogs),
    ("REINDEX", Reach::Catalogs),
    ("CREATE", Reach::Catalogs),
    ("DROP", Reach::Catalogs),
    ("ALTER", Reach::Catalogs),
    ("DISCARD", Reach::Catalogs),
    ("end of session", Reach::Catalogs),
];

fn reach(statement: &str) -> Reach {
    let known = REACHES
        .iter()
        .find(|(words, _)| statement.starts_with(words));
    known.map_or(Reach::Rows, |(_, reach)| *reach)
}

pub(super) fn judge(wrote: &Wrote, around: &Around) -> Judgement {
    let rows = tables(&wrote.rows);
    let catalogs =
        wrote.rows.contains(&Relation::Catalog) || !wrote.built.is_empty() || wrote.dropped;
    let needed = match () {
        _ if !rows.is_empty() => Reach::Rows,
        _ if catalogs => Reach::Catalogs,
        _ if wrote.rows.contains(&Relation::Class) => Reach::Class,
        _ => return nothing_here(wrote, around),
    };
    let mut changed = rows.clone();
    if rows.is_empty() {
        changed.insert(SCHEMA.to_owned());
        changed.extend(tables(&wrote.built));
    }
    let what = || format!("{} changed", list(&changed));
    let known = whose(needed, around, what);
    known.unwrap_or(Judgement::PastUs(changed))
}

/// Whether a statement of our own explains what happened.
fn whose(needed: Reach, around: &Around, what: impl FnOnce() -> String) -> Option<Judgement> {
    let of = |statement: &&&'static str| reach(statement) >= needed;
    let statement = around.statements.iter().find(of).copied();
    match (statement, around.strangers) {
        (Some(statement), 0) => Some(Judgement::Ours(statement)),
        (Some(statement), strangers) => Some(Judgement::CannotTell(format!(
            "{} while {statement} ran here, and {strangers} session{} past the recorder",
            what(),
            if strangers == 1 {
                " was connected"
            } else {
                "s were connected"
            }
        ))),
        (None, _) if around.running && !around.last => Some(Judgement::Later),
        (None, _) => None,
    }
}

fn nothing_here(wrote: &Wrote, around: &Around) -> Judgement {
    if !wrote.complete {
        let reason = "they began before the WAL that could be read";
        return Judgement::CannotTell(reason.to_owned());
    }
    if !(wrote.left_no_trace() && around.unlogged) {
        return Judgement::Harmless;
    }
    let needed = match wrote.locked {
        true => Reach::Locks,
        false => Reach::Class,
    };
    let what = || "an unlogged table may have changed".to_owned();
    let known = whose(needed, around, what);
    known.unwrap_or_else(|| Judgement::CannotTell(UNLOGGED.to_owned()))
}

fn tables(relations: &[Relation]) -> BTreeSet<String> {
    let name = |relation: &Relation| match relation {
        Relation::Table(name) => Some(name.clone()),
        Relation::Gone => Some(GONE.to_owned()),
        Relation::Statistics | Relation::Class | Relation::Catalog => None,
    };
    relations.iter().filter_map(name).collect()
}

/// The first few of many.
pub(super) fn list(names: &BTreeSet<String>) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    let mut text = shown.join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> Relation {
        Relation::Table(name.to_owned())
    }

    fn rows(relations: &[Relation]) -> Wrote {
        Wrote {
            rows: relations.to_vec(),
            complete: true,
            ..Wrote::default()
        }
    }

    fn past_us(names: &[&str]) -> Judgement {
        Judgement::PastUs(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn during(statement: &'static str) -> Around {
        Around {
            statements: BTreeSet::from([statement]),
            ..Around::default()
        }
    }

    fn doubtful(judgement: &Judgement) -> bool {
        matches!(judgement, Judgement::CannotTell(_))
    }

    #[test]
    fn what_touches_nothing_here_is_harmless() {
        use Relation::Statistics;
        let alone = Around::default();
        let elsewhere = Wrote {
            elsewhere: true,
            ..rows(&[])
        };
        for harmless in [rows(&[]), elsewhere, rows(&[Statistics])] {
            assert_eq!(
                judge(&harmless, &alone),
                Judgement::Harmless,
                "{harmless:?}"
            );
        }
        // Not if its beginning is missing.
        let beginning_missing = Wrote {
            complete: false,
            ..rows(&[Statistics])
        };
        assert!(doubtful(&judge(&beginning_missing, &alone)));
    }

    #[test]
    fn what_left_no_trace_beside_unlogged_tables_is_ours_only_by_a_statement_of_ours() {
        let beside = |around: Around| Around {
            unlogged: true,
            ..around
        };
        let alone = beside(Around::default());
        let locked = Wrote {
            locked: true,
            ..rows(&[])
        };
        assert!(doubtful(&judge(&rows(&[]), &alone)));
        assert!(doubtful(&judge(&locked, &alone)));
        // Maintenance shows that it was nothing else.
        let maintained = Wrote {
            maintained: true,
            ..locked.clone()
        };
        for harmless in [rows(&[Relation::Statistics]), maintained] {
            assert_eq!(judge(&harmless, &alone), Judgement::Harmless);
        }
        for statement in ["VACUUM", "ANALYZE", "CLUSTER", "CALL"] {
            let around = beside(during(statement));
            for wrote in [&locked, &rows(&[])] {
                assert_eq!(judge(wrote, &around), Judgement::Ours(statement));
            }
            let crowded = Around {
                strangers: 1,
                ..around
            };
            assert!(doubtful(&judge(&locked, &crowded)));
        }
        // To empty a temporary table it is locked.
        let around = beside(during(ON_COMMIT));
        assert_eq!(judge(&locked, &around), Judgement::Ours(ON_COMMIT));
        assert!(doubtful(&judge(&rows(&[]), &around)));
        let running = Around {
            running: true,
            ..alone
        };
        assert_eq!(judge(&locked, &running), Judgement::Later);
    }

    #[test]
    fn rows_of_a_table_were_written_past_us_whatever_else_was() {
        use Relation::{Catalog, Gone, Statistics};
        let alone = Around::default();
        let both = rows(&[table("public.b"), Statistics, Catalog, table("public.a")]);
        assert_eq!(judge(&both, &alone), past_us(&["public.a", "public.b"]));
        assert_eq!(judge(&rows(&[Gone]), &alone), past_us(&[GONE]));
        // Maintenance of our own does not excuse them, nor does it when others are there.
        for statement in ["VACUUM", "CREATE", "ANALYZE", "REINDEX", "DISCARD"] {
            let during = during(statement);
            assert_eq!(judge(&rows(&[table("t")]), &during), past_us(&["t"]));
        }
        let incomplete = Wrote {
            complete: false,
            ..rows(&[table("t")])
        };
        assert_eq!(judge(&incomplete, &alone), past_us(&["t"]));
    }

    #[test]
    fn catalogs_are_the_schema_and_a_statement_of_ours_explains_them() {
        let created = Wrote {
            built: vec![table("public.new")],
            ..rows(&[Relation::Catalog])
        };
        let dropped = Wrote {
            dropped: true,
            ..rows(&[])
        };
        let alone = Around::default();
        assert_eq!(judge(&created, &alone), past_us(&["public.new", SCHEMA]));
        let with_class = rows(&[Relation::Class, Relation::Catalog]);
        assert_eq!(judge(&with_class, &during("ANALYZE")), past_us(&[SCHEMA]));
        assert_eq!(judge(&dropped, &alone), past_us(&[SCHEMA]));
        // A VACUUM that rewrites no table touches no catalog but one.
        let catalogs = rows(&[Relation::Catalog]);
        let class = rows(&[Relation::Class, Relation::Statistics]);
        assert_eq!(judge(&class, &alone), past_us(&[SCHEMA]));
        for statement in ["VACUUM", "ANALYZE"] {
            assert_eq!(judge(&catalogs, &during(statement)), past_us(&[SCHEMA]));
            assert_eq!(
                judge(&created, &during(statement)),
                past_us(&["public.new", SCHEMA])
            );
            let ours = Judgement::Ours(statement);
            assert_eq!(judge(&class, &during(statement)), ours);
        }
        assert_eq!(
            judge(&catalogs, &during("DISCARD")),
            Judgement::Ours("DISCARD")
        );
        for statement in ["VACUUM FULL", "CREATE", "CALL", "end of session"] {
            let ours = Judgement::Ours(statement);
            assert_eq!(judge(&created, &during(statement)), ours);
            let crowded = Around {
                strangers: 1,
                ..during(statement)
            };
            assert!(doubtful(&judge(&created, &crowded)));
        }
    }

    #[test]
    fn a_procedure_that_commits_explains_rows() {
        let wrote = rows(&[table("t")]);
        assert_eq!(judge(&wrote, &during("CALL")), Judgement::Ours("CALL"));
        let crowded = Around {
            strangers: 2,
            ..during("CALL")
        };
        assert!(doubtful(&judge(&wrote, &crowded)));
    }

    #[test]
    fn what_still_runs_is_waited_for_until_the_end() {
        let running = Around {
            running: true,
            ..Around::default()
        };
        let last = Around {
            last: true,
            ..running.clone()
        };
        for wrote in [rows(&[table("t")]), rows(&[Relation::Catalog])] {
            assert_eq!(judge(&wrote, &running), Judgement::Later);
            assert!(matches!(judge(&wrote, &last), Judgement::PastUs(_)));
        }
        assert_eq!(judge(&rows(&[]), &running), Judgement::Harmless);
    }

    #[test]
    fn many_names_are_cut_short() {
        let names = (1..=7).map(|n| format!("t{n}")).collect();
        assert_eq!(list(&names), "t1, t2, t3, t4, t5 and 2 more");
    }
}
