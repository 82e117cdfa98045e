//! What requests see of a cache of Reactor's (`Mono.cache`), which asks its source when a request
//! finds it empty, and lets others wait for what that gives: what its class calls.
//!
//! A loop must not wait, as [`seen`](super::seen) does. So in a replay there is a copy of the cache
//! for each time that its source was asked. Who asked then does so through the copy, and who saw
//! what that gave finds the copy, and is told when it is there.
//!
//! ```text
//!   recording   EMPTY ── R1 asks: 1 ──▶ R2 sees 1, R3 sees 1   (over)   R4 asks: 2 ──▶ R5 sees 2
//!   replay      copy 1: R1 asks; R2, R3 wait there             copy 2: R4 asks; R5 waits there
//! ```
//!
//! A copy is none of the program's: it does not expire. What is made in a request, or used by none,
//! is as ever.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use hindcast_taplog::pins::{Caller, Number, Place, Series};
use libc::c_void;

use super::asker::maker;
use super::machine::{Kept, Machine, Reference, Thread, tools};
use super::seen::{KEPT_MAX, WAIT};
use crate::shown::{UNKNOWN, next_number};
use crate::{pins, process, turns};

const SIGNAL: &CStr = c"Lreactor/core/publisher/Signal;";
const MONO: &CStr = c"Lreactor/core/publisher/Mono;";
const COORDINATOR: &CStr = c"reactor.core.publisher.MonoCacheTime$CoordinatorSubscriber";

/// A copy of a cache, for one time that its source is asked.
struct Copy {
    /// Of which it is one.
    origin: Kept,
    cache: Kept,
    /// Who came before who asks.
    waits: Option<Waits>,
}

struct Waits {
    /// What is given to the source when it is asked.
    coordinator: Kept,
    since: Instant,
    request: u64,
}

static COPIES: Mutex<BTreeMap<i64, Copy>> = Mutex::new(BTreeMap::new());

fn copies() -> MutexGuard<'static, BTreeMap<i64, Copy>> {
    COPIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request has found a cache empty, and is about to ask its source. Another one may be quicker:
/// then it waits for what that one gets.
#[derive(Clone, Copy)]
struct Look {
    series: Series,
    /// What it has made to ask the source with; 0: nothing yet.
    made: i64,
}

thread_local! {
    static LOOK: Cell<Option<Look>> = const { Cell::new(None) };
}

fn replays() -> bool {
    process::board().is_some_and(|board| board.replays())
}

/// A cache was made: it is known by what made it, and by how many that had made before.
pub unsafe extern "C" fn made_cache(_: *mut c_void, _: Reference, cache: Reference) {
    static MADE: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
    if cache.is_null() || turns::of_code() != 0 {
        return;
    }
    let maker = maker(tools());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let nth = made.entry(maker).or_default();
    *nth = nth.saturating_add(1);
    let name = Caller::of(maker.wrapping_add(*nth));
    drop(made);
    tools().set_mark(cache, i64::from(name.0));
}

/// A request looks into a cache. Returns the one into which it is to look.
pub unsafe extern "C" fn cache_of(
    thread: *mut c_void,
    _: Reference,
    cache: Reference,
) -> Reference {
    LOOK.set(None);
    if cache.is_null() || turns::of_code() == 0 {
        return cache;
    }
    let Ok(name @ 1..) = u16::try_from(tools().mark(cache)) else {
        return cache;
    };
    let series = Series {
        of: Caller(name),
        numbers: Place(0),
    };
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    if !replays() {
        tell(thread, series, cache);
        return cache;
    }
    match pins::number_again(series) {
        Some(number) if number.asks != Number::SEEN => copy_of(thread, cache, number.value, true),
        Some(Number { value, .. }) if pins::is_given_away(series, value) => {
            copy_of(thread, cache, value, false)
        }
        _ => None,
    }
    .unwrap_or(cache)
}

fn tell(thread: Thread, series: Series, cache: Reference) {
    let found = thread.scoped(|| {
        // SAFETY: the cache is an object.
        let state = unsafe { thread.value(cache, c"state", SIGNAL)? };
        Some(tools().mark(state))
    });
    match found {
        // Only what was never marked is empty.
        Some(0) => LOOK.set(Some(Look { series, made: 0 })),
        Some(value) => pins::tell_number(Number {
            series,
            value,
            asks: Number::SEEN,
        }),
        None => {}
    }
}

/// Something was made to ask a source with: what that gives goes through this.
pub unsafe extern "C" fn asks(_: *mut c_void, _: Reference, coordinator: Reference) {
    if coordinator.is_null() || replays() {
        return;
    }
    let look = LOOK.get().map(|look| Look {
        made: next_number(),
        ..look
    });
    LOOK.set(look);
    tools().set_mark(coordinator, look.map_or(UNKNOWN, |look| look.made));
}

/// Somebody waits for what goes through this: who has made it, or who came a little later.
pub unsafe extern "C" fn awaits(_: *mut c_void, _: Reference, coordinator: Reference) {
    if coordinator.is_null() || replays() {
        return;
    }
    let value = tools().mark(coordinator);
    if let Some(look) = LOOK.take().filter(|_| value != 0) {
        pins::tell_number(Number {
            series: look.series,
            value,
            asks: match value == look.made {
                true => 0,
                false => Number::SEEN,
            },
        });
    }
}

/// The source has given this.
pub unsafe extern "C" fn has_given(
    _: *mut c_void,
    _: Reference,
    coordinator: Reference,
    signal: Reference,
) {
    if !coordinator.is_null() && !signal.is_null() && !replays() {
        tools().set_mark(signal, tools().mark(coordinator));
    }
}

/// The copy with this number, for who asks the source, or waits for what it gives; `None`: there is
/// none, or it is one of another cache.
fn copy_of(thread: Thread, cache: Reference, number: i64, asks: bool) -> Option<Reference> {
    let mut copies = copies();
    if let Entry::Vacant(place) = copies.entry(number) {
        place.insert(make(thread, cache, asks)?);
    }
    let most = copies.len() > KEPT_MAX;
    let oldest = most.then(|| copies.pop_first()).flatten();
    let copy = copies.get_mut(&number);
    let own = copy.filter(|copy| thread.is_same(&copy.origin, cache));
    let found = own.and_then(|copy| {
        let waits = asks.then(|| copy.waits.take()).flatten();
        Some((thread.reference(&copy.cache)?, waits))
    });
    drop(copies);
    if let Some((_, gone)) = oldest {
        let waits = gone.waits.map(|waits| waits.coordinator);
        for one in [gone.origin, gone.cache].into_iter().chain(waits) {
            thread.let_go(one);
        }
    }
    let (copy, waits) = found?;
    if let Some(waits) = waits {
        ask(thread, copy, waits);
    }
    Some(copy)
}

fn make(thread: Thread, cache: Reference, asks: bool) -> Option<Copy> {
    let since = Instant::now();
    // SAFETY: they are objects, and the methods are such.
    let made = thread.scoped(|| unsafe {
        let class = thread.class_of(cache);
        let source = thread.value(cache, c"source", MONO)?;
        let copy = thread.make(class, c"(Lreactor/core/publisher/Mono;)V", source)?;
        let waits = match asks {
            true => None,
            false => {
                let loader = thread.ask(class, c"getClassLoader", c"()Ljava/lang/ClassLoader;")?;
                let name = thread.string(COORDINATOR)?;
                let load = c"(Ljava/lang/String;)Ljava/lang/Class;";
                let class = thread.tell(loader, c"loadClass", load, name)?;
                let of = c"(Lreactor/core/publisher/MonoCacheTime;)V";
                let coordinator = thread.make(class, of, copy)?;
                thread.set_value(copy, c"state", SIGNAL, coordinator)?;
                Some(Waits {
                    coordinator: thread.keep(coordinator)?,
                    since,
                    request: turns::of_code(),
                })
            }
        };
        Some(Copy {
            origin: thread.keep(cache)?,
            cache: thread.keep(copy)?,
            waits,
        })
    })?;
    if made.waits.is_some() {
        watch(thread.machine()?);
    }
    Some(made)
}

/// Asks the source of a copy for those that wait.
fn ask(thread: Thread, copy: Reference, waits: Waits) {
    thread.scoped(|| {
        let coordinator = thread.reference(&waits.coordinator)?;
        // SAFETY: they are objects, and a source is asked so.
        unsafe {
            let source = thread.value(copy, c"source", MONO)?;
            let by = c"(Lreactor/core/CoreSubscriber;)V";
            thread.run(source, c"subscribe", by, coordinator)
        }
    });
    thread.let_go(waits.coordinator);
}

/// Changed code need not ask any more. Then the source is asked for who has waited too long.
fn watch(machine: Machine) {
    const LOOKS_EVERY: Duration = Duration::from_millis(100);
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let look = move || {
            let Some(thread) = machine.join() else {
                return;
            };
            loop {
                std::thread::sleep(LOOKS_EVERY);
                ask_for_late(thread);
            }
        };
        drop(std::thread::Builder::new().spawn(look));
    });
}

fn ask_for_late(thread: Thread) {
    let is_late = |copy: &Copy| {
        let waits = copy.waits.as_ref();
        waits.is_some_and(|waits| waits.since.elapsed() > WAIT)
    };
    loop {
        let mut copies = copies();
        let late = copies.values_mut().find(|copy| is_late(copy));
        let taken =
            late.and_then(|copy| Some((thread.keep_again(&copy.cache)?, copy.waits.take()?)));
        drop(copies);
        let Some((cache, waits)) = taken else {
            return;
        };
        turns::takes(Some(waits.request));
        thread.scoped(|| {
            let copy = thread.reference(&cache)?;
            ask(thread, copy, waits);
            Some(())
        });
        turns::takes(Some(0));
        thread.let_go(cache);
    }
}
