//! What is open: the trace, its index, and what was asked of it lately.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hindcast_trace::{OpenError, ReadError, Trace};
use hindcast_view::{Filter, Found, Index, Lanes, Levels, Progress, Wanted, load, search};

/// Where the recording comes from.
pub struct Source {
    /// As the user named it.
    pub shown: String,
    /// Opens it anew, with what was written since.
    pub open: Box<dyn Fn() -> Result<Trace, OpenError> + Send + Sync>,
    /// The report of a retroaction, as JSON.
    pub report: Option<serde_json::Value>,
}

/// A trace as it was at some moment.
pub struct Opened {
    pub trace: Trace,
    pub index: Index,
    /// Counts readings: an answer of another one may number lanes and types otherwise.
    pub generation: u64,
}

pub struct Desk {
    pub source: Source,
    opened: RwLock<Option<Arc<Opened>>>,
    progress: RwLock<Arc<Progress>>,
    /// Why it could not be read (again).
    failure: Mutex<Option<String>>,
    layers: Mutex<Vec<(LayerKey, Arc<Levels>)>>,
    searches: Mutex<Vec<(u64, Wanted, Arc<Search>)>>,
    /// Somebody wants the trace to be read again now.
    wanted_again: (Mutex<bool>, Condvar),
}

type LayerKey = (u64, Lanes, Filter, Wanted);

/// Layers and searches that are kept. A layer has at most six bytes a request in its first level,
/// and as many in all others.
const KEPT_MAX: usize = 6;
/// How long an answer waits for a search before it says how far that is.
const SEARCH_PATIENCE: Duration = Duration::from_millis(400);
/// How often a trace that is being written is read again, at most …
const LIVE_EVERY: Duration = Duration::from_secs(2);
/// … and how much longer than the reading takes it is left alone.
const LIVE_REST: u32 = 10;

/// A search, done or under way.
#[derive(Default)]
pub struct Search {
    progress: Progress,
    cancelled: AtomicBool,
    outcome: Mutex<Option<Result<Found, String>>>,
    over: Condvar,
}

/// What a filter comes to.
pub enum Layer {
    Ready(Arc<Levels>, hindcast_view::Found),
    /// Rows read, and of how many.
    Searching(u64, u64),
    Failed(String),
}

/// Whether there may be more of it by and by: one is looked at that was only just begun, too.
fn grows(trace: &Trace) -> bool {
    !trace.recording().is_empty() || trace.recorders().is_empty()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    /// Begins to read the trace, in a thread of its own, and goes on as long as that is written.
    pub fn start(trace: Trace, source: Source) -> Arc<Self> {
        let desk = Arc::new(Self {
            source,
            opened: RwLock::default(),
            progress: RwLock::default(),
            failure: Mutex::default(),
            layers: Mutex::default(),
            searches: Mutex::default(),
            wanted_again: Default::default(),
        });
        let reader = Arc::downgrade(&desk);
        let read_first = Arc::clone(&desk);
        std::thread::spawn(move || {
            let mut rest = read_first.read(trace);
            drop(read_first);
            while let Some(desk) = reader.upgrade() {
                desk.wait(rest);
                rest = desk.read_again();
            }
        });
        desk
    }

    pub fn opened(&self) -> Option<Arc<Opened>> {
        let opened = self.opened.read();
        opened.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn progress(&self) -> (u64, u64) {
        let progress = self.progress.read();
        progress.unwrap_or_else(PoisonError::into_inner).read()
    }

    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Reads the trace again as soon as may be.
    pub fn read_now(&self) {
        *lock(&self.wanted_again.0) = true;
        self.wanted_again.1.notify_all();
    }

    fn wait(&self, rest: Option<Duration>) {
        let wanted = lock(&self.wanted_again.0);
        let asked = |wanted: &mut bool| !*wanted;
        let mut wanted = match rest {
            Some(rest) => {
                let waited = self.wanted_again.1.wait_timeout_while(wanted, rest, asked);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.wanted_again.1.wait_while(wanted, asked);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        *wanted = false;
    }

    /// Returns how long to leave the trace alone. `None`: until somebody asks.
    fn read(&self, trace: Trace) -> Option<Duration> {
        let begun = Instant::now();
        let progress = Arc::new(Progress::default());
        let mut shown = self
            .progress
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *shown = Arc::clone(&progress);
        drop(shown);
        let live = grows(&trace);
        match load(&trace, &progress) {
            Ok(index) => {
                let generation = self.opened().map_or(1, |opened| opened.generation + 1);
                let opened = Arc::new(Opened {
                    trace,
                    index,
                    generation,
                });
                let mut place = self.opened.write().unwrap_or_else(PoisonError::into_inner);
                *place = Some(opened);
                drop(place);
                self.forget(generation);
                *lock(&self.failure) = None;
            }
            Err(error) => *lock(&self.failure) = Some(chain(&error)),
        }
        live.then(|| LIVE_EVERY.max(begun.elapsed() * LIVE_REST))
    }

    fn read_again(&self) -> Option<Duration> {
        let trace = match (self.source.open)() {
            Ok(trace) => trace,
            Err(error) => {
                *lock(&self.failure) = Some(chain(&error));
                return Some(LIVE_EVERY * LIVE_REST);
            }
        };
        let counts = |trace: &Trace| (trace.request_count(), trace.transaction_count());
        let same = self.opened().is_some_and(|opened| {
            counts(&opened.trace) == counts(&trace) && opened.trace.recording() == trace.recording()
        });
        match same {
            true => grows(&trace).then_some(LIVE_EVERY),
            false => self.read(trace),
        }
    }

    /// What belongs to earlier readings.
    fn forget(&self, generation: u64) {
        lock(&self.layers).retain(|(key, _)| key.0 == generation);
        lock(&self.searches).retain(|(of, _, search)| {
            search.cancelled.store(*of != generation, Ordering::Relaxed);
            *of == generation
        });
    }

    /// The counts of what a filter takes. Blocks for as long as they take, but not for a search.
    pub fn layer(
        self: &Arc<Self>,
        opened: &Arc<Opened>,
        lanes: Lanes,
        filter: &Filter,
        wanted: &Wanted,
    ) -> Layer {
        let found = if wanted.is_empty() {
            None
        } else {
            let search = self.search(opened, wanted);
            match search.outcome() {
                Some(Ok(found)) => Some(found),
                Some(Err(why)) => return Layer::Failed(why),
                None => {
                    let (done, total) = search.progress.read();
                    return Layer::Searching(done, total);
                }
            }
        };
        let key = (opened.generation, lanes, filter.clone(), wanted.clone());
        // The lock is held while counts are made: two questions about one filter are one piece of
        // work.
        let mut layers = lock(&self.layers);
        let known = layers.iter().position(|(known, _)| *known == key);
        let levels = match known {
            Some(at) => layers.remove(at).1,
            None => {
                let within = found.as_ref().map(|found| &found.requests);
                let only = filter.select(&opened.index, within);
                Arc::new(Levels::of(&opened.index, lanes, only))
            }
        };
        if layers.len() == KEPT_MAX {
            layers.remove(0);
        }
        layers.push((key, Arc::clone(&levels)));
        Layer::Ready(levels, found.unwrap_or_default())
    }

    fn search(self: &Arc<Self>, opened: &Arc<Opened>, wanted: &Wanted) -> Arc<Search> {
        let mut searches = lock(&self.searches);
        let known = searches
            .iter()
            .find(|(generation, known, _)| *generation == opened.generation && known == wanted);
        if let Some((_, _, search)) = known {
            return Arc::clone(search);
        }
        // Who asks for something else has given up what was asked before.
        for (_, _, search) in searches.iter() {
            search.cancelled.store(true, Ordering::Relaxed);
        }
        searches.retain(|(_, _, search)| lock(&search.outcome).is_some());
        if searches.len() == KEPT_MAX {
            searches.remove(0);
        }
        let begun = Arc::new(Search::default());
        searches.push((opened.generation, wanted.clone(), Arc::clone(&begun)));
        let (own, opened, wanted) = (Arc::clone(&begun), Arc::clone(opened), wanted.clone());
        std::thread::spawn(move || own.run(&opened, &wanted));
        begun
    }
}

impl Search {
    fn run(&self, opened: &Opened, wanted: &Wanted) {
        let Opened { trace, index, .. } = opened;
        let found = search(trace, index, wanted, &self.progress, &self.cancelled);
        let found = found.map_err(|error| chain(&error));
        *lock(&self.outcome) = Some(found);
        self.over.notify_all();
    }

    /// Waits a little for it.
    fn outcome(&self) -> Option<Result<Found, String>> {
        let outcome = lock(&self.outcome);
        let waited = self
            .over
            .wait_timeout_while(outcome, SEARCH_PATIENCE, |outcome| outcome.is_none());
        let outcome = waited.unwrap_or_else(PoisonError::into_inner).0;
        outcome.clone()
    }
}

/// An error and what is behind it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// What a person should do about a trace that cannot be read any more.
pub fn hint(error: &ReadError) -> Option<&'static str> {
    match error {
        ReadError::Pruned { .. } => Some("press R to read the recording again"),
        _ => None,
    }
}
