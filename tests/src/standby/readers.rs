//! Readers of a backup that check what they see.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::session::{Failure, Session};
use crate::standby::checker::{self, State, TABLES};

/// How a reader gets a state that should be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// One statement over all tables, in a session of its own settings.
    Statement,
    /// A statement per table in a REPEATABLE READ transaction.
    RepeatableRead,
    /// The same in the snapshot that the follower exports.
    Exported,
    /// A statement per table between BEGIN and COMMIT, as the memory server takes them.
    Memory,
    /// A statement per table and nothing around them: **wrong**, there to see that the checker
    /// notices.
    Torn,
}

/// What readers saw together.
pub struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    url: String,
    is_over: AtomicBool,
    /// Whether a server that does not answer is part of the test.
    may_be_gone: bool,
    states: AtomicU64,
    /// Different states seen: each reader counts where it saw another one than before.
    advances: AtomicU64,
    /// The greatest number that any reader has seen to its end.
    greatest: AtomicI64,
    broken: Mutex<Vec<Broken>>,
}

/// A state that no reader may see.
#[derive(Clone, Debug)]
pub struct Broken {
    pub reader: String,
    pub rules: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "reader {}:", self.reader)?;
        for rule in &self.rules {
            writeln!(f, "  {rule}")?;
        }
        Ok(())
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Seen {
    pub states: u64,
    pub advances: u64,
    pub broken: Vec<Broken>,
}

impl Seen {
    /// # Panics
    /// If a reader saw what it may not; says what.
    #[track_caller]
    pub fn assert_sound(&self) {
        let words: String = self.broken.iter().map(Broken::to_string).collect();
        assert!(
            self.broken.is_empty(),
            "readers saw states that never existed on the primary, or went back:\n{words}"
        );
        assert!(self.states > 0, "nobody read anything");
    }
}

impl Readers {
    /// Starts a reader for each view. With `may_be_gone` a server that is not there is tried again.
    pub fn start(url: &str, views: &[View], may_be_gone: bool) -> Self {
        let shared = Arc::new(Shared {
            url: url.to_owned(),
            is_over: AtomicBool::new(false),
            may_be_gone,
            states: AtomicU64::new(0),
            advances: AtomicU64::new(0),
            greatest: AtomicI64::new(i64::MIN),
            broken: Mutex::default(),
        });
        let start = |(number, &view): (usize, &View)| {
            let shared = Arc::clone(&shared);
            let name = format!("{number} ({view:?})");
            thread::Builder::new()
                .name(name.clone())
                .spawn(move || shared.read(&name, view))
                .expect("a thread can be started")
        };
        Self {
            threads: views.iter().enumerate().map(start).collect(),
            shared,
        }
    }

    /// States that were read and checked so far.
    pub fn states(&self) -> u64 {
        self.shared.states.load(Ordering::Relaxed)
    }

    /// The greatest number of a transaction that was seen.
    pub fn number(&self) -> i64 {
        self.shared.greatest.load(Ordering::Relaxed)
    }

    pub fn is_broken(&self) -> bool {
        !self
            .shared
            .broken
            .lock()
            .expect("nobody panics here")
            .is_empty()
    }

    /// Ends the readers.
    ///
    /// # Panics
    /// If one of them met an error that it does not expect.
    pub fn stop(mut self) -> Seen {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        Seen {
            states: self.states(),
            advances: self.shared.advances.load(Ordering::Relaxed),
            broken: self
                .shared
                .broken
                .lock()
                .expect("nobody panics here")
                .clone(),
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn read(&self, name: &str, view: View) {
        let mut session = None;
        let mut last = i64::MIN;
        let mut turn = 0u64;
        while !self.is_over.load(Ordering::Relaxed) {
            let Some(connected) = &session else {
                match Session::connect(&self.url) {
                    Ok(connected) => session = Some(connected),
                    Err(failure) if self.may_be_gone => {
                        drop(failure);
                        thread::sleep(Duration::from_millis(10));
                    }
                    Err(failure) => panic!("reader {name} cannot connect: {failure}"),
                }
                continue;
            };
            // Whoever begins to read now must not see less than somebody has seen before.
            let before = self.greatest.load(Ordering::SeqCst);
            turn += 1;
            let state = match state(connected, view, turn) {
                Ok(Some(state)) => state,
                // The follower that exports snapshots is not there.
                Ok(None) => {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                }
                Err(failure) if self.may_be_gone && failure.is_connection() => {
                    session = None;
                    continue;
                }
                Err(failure) => panic!("reader {name}: {failure}"),
            };
            let mut rules = checker::violations(&state);
            let number = state.number().unwrap_or(i64::MIN);
            let least = if view == View::Torn {
                i64::MIN
            } else {
                before.max(last)
            };
            if number < least {
                rules.push(format!(
                    "sees the state after transaction {number}, where {least} was seen before: it went back"
                ));
            }
            self.states.fetch_add(1, Ordering::Relaxed);
            if number > last {
                self.advances.fetch_add(1, Ordering::Relaxed);
            }
            last = last.max(number);
            if rules.is_empty() {
                self.greatest.fetch_max(number, Ordering::SeqCst);
                continue;
            }
            let mut broken = self.broken.lock().expect("nobody panics here");
            if broken.len() < 5 {
                broken.push(Broken {
                    reader: name.to_owned(),
                    rules,
                });
            }
        }
    }
}

/// One state; `None` if there is none at the moment.
fn state(session: &Session, view: View, turn: u64) -> Result<Option<State>, Failure> {
    match view {
        View::Statement => whole(session).map(Some),
        View::Torn => by_table(session, turn).map(Some),
        View::Memory => within(session, "BEGIN", turn).map(Some),
        View::RepeatableRead => {
            within(session, "BEGIN ISOLATION LEVEL REPEATABLE READ", turn).map(Some)
        }
        View::Exported => {
            let snapshot = match session.value("SELECT hindcast.standby_snapshot()") {
                Ok(snapshot) if !snapshot.is_empty() => snapshot,
                Ok(_) => return Ok(None),
                Err(failure) if failure.is_connection() => return Err(failure),
                // It says that nobody follows.
                Err(_) => return Ok(None),
            };
            let begin = format!(
                "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'"
            );
            match within(session, &begin, turn) {
                Ok(state) => Ok(Some(state)),
                // Between asking for its name and importing it the snapshot ended with the
                // follower, or with the next epoch.
                Err(failure)
                    if matches!(failure.code.as_deref(), Some("22023" | "55000" | "42704")) =>
                {
                    session.run("ROLLBACK")?;
                    Ok(None)
                }
                Err(failure) => Err(failure),
            }
        }
    }
}

/// All tables within one transaction, its snapshot held a moment longer every now and then.
fn within(session: &Session, begin: &str, turn: u64) -> Result<State, Failure> {
    session.run(begin)?;
    let state = by_table(session, turn)?;
    session.run("COMMIT")?;
    Ok(state)
}

fn by_table(session: &Session, turn: u64) -> Result<State, Failure> {
    let mut state = State::default();
    for at in 0..TABLES.len() {
        // Another table first each time: what is torn, is torn everywhere.
        let table = TABLES[(at + turn as usize) % TABLES.len()];
        let (names, rows) = session.table(&format!("SELECT * FROM {table}"))?;
        state.insert(table, &names, rows);
        if at == 3 && turn.is_multiple_of(16) {
            thread::sleep(Duration::from_millis(30));
        }
    }
    Ok(state)
}

/// All tables with one statement, which has one snapshot whatever the session's isolation level.
fn whole(session: &Session) -> Result<State, Failure> {
    let tables: Vec<String> = TABLES
        .iter()
        .map(|table| format!("SELECT '{table}', to_jsonb(r)::text FROM {table} r"))
        .collect();
    let rows = session.query(&tables.join(" UNION ALL "))?;
    let mut state = State::default();
    for row in rows {
        let [Some(table), Some(json)] = row.as_slice() else {
            continue;
        };
        let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json)
            .unwrap_or_else(|error| panic!("no JSON from to_jsonb ({error}): {json}"));
        let fields = fields.into_iter().map(|(name, value)| {
            let text = match value {
                serde_json::Value::Null => None,
                serde_json::Value::String(text) => Some(text),
                other => Some(other.to_string()),
            };
            (name, text)
        });
        state
            .tables
            .entry(table.clone())
            .or_default()
            .push(fields.collect());
    }
    Ok(state)
}
