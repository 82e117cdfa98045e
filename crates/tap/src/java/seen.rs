//! What requests see in a cache that the process keeps: what the classes of Spring's caches call.
//!
//! What is in a cache depends on who has filled it, and on whether it has expired. In a replay a
//! request sees what it saw: nothing, or what this other request put there, even if a third one has
//! put something there since. It waits for what is not there yet.
//!
//! Each object that a request puts into a cache has a number. While recording it is the object's
//! mark, and is told with the request that puts it and with each that sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hindcast_taplog::pins::{Caller, Number, Place, Series};
use libc::c_void;

use super::asker::hash;
use super::machine::{Kept, Reference, Thread, tools};
use crate::{pins, process, turns};

/// There was nothing; there was something of which it is not known who put it there.
pub const NOTHING: i64 = 0;
pub const UNKNOWN: i64 = 1;

/// So many objects of caches are kept in a replay, and the latest that were put.
pub const KEPT_MAX: usize = 1 << 16;
/// So long it is waited for one. Changed code need not put it there.
pub const WAIT: Duration = Duration::from_secs(5);
const LOOKS_EVERY: Duration = Duration::from_millis(1);

const WRAPS: &CStr = c"(Ljava/lang/Object;)Lorg/springframework/cache/Cache$ValueWrapper;";

struct Objects {
    kept: BTreeMap<i64, Kept>,
    /// Waited for in vain.
    missed: BTreeSet<i64>,
}

static OBJECTS: Mutex<Objects> = Mutex::new(Objects {
    kept: BTreeMap::new(),
    missed: BTreeSet::new(),
});

fn objects() -> MutexGuard<'static, Objects> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in a cache: the hashes of the cache's name and of the key.
#[derive(Clone, Copy)]
pub struct Slot {
    cache: u16,
    key: u16,
}

impl Slot {
    /// As one number, and the other way about.
    pub fn packed(self) -> i64 {
        i64::from(self.cache) << 16 | i64::from(self.key)
    }

    pub fn unpacked(packed: i64) -> Self {
        Self {
            cache: (packed >> 16) as u16,
            key: packed as u16,
        }
    }

    /// `None`: the key does not say its hash.
    pub fn of(thread: Thread, cache: u16, key: Reference) -> Option<Self> {
        // SAFETY: the key is an object, if there is one.
        let of_key = match key.is_null() {
            true => 0,
            false => unsafe { thread.hash_of(key)? },
        };
        let key = (of_key ^ of_key >> 16) as u16;
        Some(Self { cache, key })
    }

    /// What is put there.
    pub fn put(self) -> Series {
        self.series(false)
    }

    /// What is seen there, which is told apart from it.
    pub fn seen(self) -> Series {
        self.series(true)
    }

    fn series(self, is_seen: bool) -> Series {
        Series {
            of: Caller::of(u64::from(self.cache) << 1 | u64::from(is_seen)),
            numbers: Place(self.key),
        }
    }
}

fn slot(thread: Thread, cache: Reference, key: Reference) -> Option<Slot> {
    let tools = tools();
    let of_cache = match u16::try_from(tools.mark(cache)) {
        Ok(known @ 1..) => known,
        _ => {
            let name = thread.scoped(|| {
                // SAFETY: the cache is an object, and its name a text.
                unsafe {
                    let name = thread.ask(cache, c"getName", c"()Ljava/lang/String;")?;
                    thread.text(name, hash)
                }
            })?;
            let known = Caller::of(name).0;
            tools.set_mark(cache, i64::from(known));
            known
        }
    };
    Slot::of(thread, of_cache, key)
}

/// A number for an object: no other of this recording has it.
pub fn next_number() -> i64 {
    static LAST: AtomicI64 = AtomicI64::new(UNKNOWN);
    let now = process::now() as i64;
    let next = |last: i64| Some(now.max(last.saturating_add(1)));
    let before = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    now.max(before.unwrap_or(UNKNOWN).saturating_add(1))
}

/// Something is about to be put into a cache.
pub unsafe extern "C" fn puts(
    thread: *mut c_void,
    _: Reference,
    cache: Reference,
    key: Reference,
    value: Reference,
) {
    if cache.is_null() || value.is_null() || turns::of_code() == 0 {
        return;
    }
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    let Some(series) = slot(thread, cache, key).map(Slot::put) else {
        return;
    };
    put(thread, series, value);
}

/// A request puts an object there. Returns the number that the object gets.
pub fn put(thread: Thread, series: Series, value: Reference) -> i64 {
    if !process::board().is_some_and(|board| board.replays()) {
        let number = Number {
            series,
            value: next_number(),
            asks: 0,
        };
        tools().set_mark(value, number.value);
        pins::tell_number(number);
        return number.value;
    }
    if let Some(number) = pins::number_again(series)
        && let Some(object) = thread.keep(value)
    {
        keep(thread, number.value, object);
    }
    UNKNOWN
}

fn keep(thread: Thread, number: i64, object: Kept) {
    let mut objects = objects();
    objects.missed.remove(&number);
    let before = objects.kept.insert(number, object);
    let most = objects.kept.len() > KEPT_MAX;
    let oldest = most.then(|| objects.kept.pop_first()).flatten();
    drop(objects);
    for gone in before.into_iter().chain(oldest.map(|(_, gone)| gone)) {
        thread.let_go(gone);
    }
}

/// A cache gives this, in a wrapper that may be none. Returns what is given instead.
pub unsafe extern "C" fn seen(
    thread: *mut c_void,
    _: Reference,
    wrapper: Reference,
    cache: Reference,
    key: Reference,
) -> Reference {
    if cache.is_null() || turns::of_code() == 0 {
        return wrapper;
    }
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    let Some(slot) = slot(thread, cache, key) else {
        return wrapper;
    };
    if !process::board().is_some_and(|board| board.replays()) {
        tell(thread, slot.seen(), wrapper);
        return wrapper;
    }
    match pins::number_again(slot.seen()).map(|number| number.value) {
        None | Some(UNKNOWN) => wrapper,
        Some(NOTHING) => std::ptr::null_mut(),
        Some(number) => {
            let own = await_object(thread, slot.put(), number).and_then(|object| {
                // SAFETY: they are objects, and that is a cache's.
                unsafe { thread.tell(cache, c"toValueWrapper", WRAPS, object) }
            });
            own.unwrap_or(wrapper)
        }
    }
}

fn tell(thread: Thread, series: Series, wrapper: Reference) {
    let value = match wrapper.is_null() {
        true => NOTHING,
        false => thread
            .scoped(|| {
                // SAFETY: it is a wrapper.
                let value = unsafe { thread.ask(wrapper, c"get", c"()Ljava/lang/Object;")? };
                Some(tools().mark(value))
            })
            .filter(|&mark| mark > UNKNOWN)
            .unwrap_or(UNKNOWN),
    };
    pins::tell_number(Number {
        series,
        value,
        asks: Number::SEEN,
    });
}

/// What some request of the range puts there, when it has. A loop does not wait for it.
pub fn await_object(thread: Thread, series: Series, number: i64) -> Option<Reference> {
    let began = Instant::now();
    loop {
        let mut objects = objects();
        if let Some(object) = objects.kept.get(&number) {
            return thread.reference(object);
        }
        if objects.missed.contains(&number) || !pins::is_given_away(series, number) {
            return None;
        }
        if turns::is_loop() {
            return None;
        }
        if began.elapsed() > WAIT {
            objects.missed.insert(number);
            return None;
        }
        drop(objects);
        std::thread::sleep(LOOKS_EVERY);
    }
}
