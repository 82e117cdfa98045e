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
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hindcast_taplog::pins::{Caller, Number, Place, Series};
use libc::{c_int, c_void};

use super::asker::hash;
use super::machine::{Kept, Reference, Thread, tools};
use crate::shown::{NOTHING, UNKNOWN, next_number};
use crate::{pins, process, turns};

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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    cache: u16,
    key: c_int,
}

impl Slot {
    /// As one number, and the other way about.
    pub fn packed(self) -> i64 {
        i64::from(self.cache) << 32 | i64::from(self.key as u32)
    }

    pub fn unpacked(packed: i64) -> Self {
        Self {
            cache: (packed >> 32) as u16,
            key: packed as c_int,
        }
    }

    /// `None`: the key does not say its hash.
    pub fn of(thread: Thread, cache: u16, key: Reference) -> Option<Self> {
        // SAFETY: the key is an object, if there is one.
        let key = match key.is_null() {
            true => 0,
            false => unsafe { thread.hash_of(key)? },
        };
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
            numbers: Place((self.key ^ self.key >> 16) as u16),
        }
    }
}

fn slot(thread: Thread, cache: Reference, key: Reference) -> Option<Slot> {
    let cache = named(thread, cache, || {
        // SAFETY: the cache is an object, and its name a text.
        unsafe {
            let name = thread.ask(cache, c"getName", c"()Ljava/lang/String;")?;
            thread.text(name, hash)
        }
    })?;
    Slot::of(thread, cache, key)
}

/// What a cache is known by, which is its mark: of its name, which it is asked for once.
pub fn named(thread: Thread, cache: Reference, name: impl FnOnce() -> Option<u64>) -> Option<u16> {
    match u16::try_from(tools().mark(cache)) {
        Ok(known @ 1..) => Some(known),
        _ => {
            let known = Caller::of(thread.scoped(name)?).0;
            tools().set_mark(cache, i64::from(known));
            Some(known)
        }
    }
}

pub fn replays() -> bool {
    process::board().is_some_and(|board| board.replays())
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

/// The same of a cache that may keep copies.
pub unsafe extern "C" fn puts_copy(
    thread: *mut c_void,
    _: Reference,
    cache: Reference,
    key: Reference,
    value: Reference,
) {
    if cache.is_null() || value.is_null() {
        return;
    }
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    if let Some(slot) = slot(thread, cache, key) {
        put_copy(thread, slot, value);
    }
}

/// Of caches that may keep copies, which have no mark: the number of what was put last.
static COPIED: Mutex<BTreeMap<Slot, i64>> = Mutex::new(BTreeMap::new());

fn copied() -> MutexGuard<'static, BTreeMap<Slot, i64>> {
    COPIED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is put there may be given as a copy.
pub fn put_copy(thread: Thread, slot: Slot, value: Reference) {
    let number = match turns::of_code() {
        0 => UNKNOWN,
        _ => put(thread, slot.put(), value),
    };
    if replays() {
        return;
    }
    let mut copied = copied();
    copied.insert(slot, number);
    if copied.len() > KEPT_MAX {
        copied.pop_first();
    }
}

/// A request puts an object there. Returns the number that the object gets.
pub fn put(thread: Thread, series: Series, value: Reference) -> i64 {
    if !replays() {
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
    if !replays() {
        tell(slot, of_wrapper(thread, slot, wrapper));
        return wrapper;
    }
    match again(thread, slot) {
        Again::AsItComes => wrapper,
        Again::Nothing => std::ptr::null_mut(),
        Again::Object(object) => {
            // SAFETY: they are objects, and that is a cache's.
            let own = unsafe { thread.tell(cache, c"toValueWrapper", WRAPS, object) };
            own.unwrap_or(wrapper)
        }
    }
}

/// What a request finds in a replay.
pub enum Again {
    /// What the cache has: it is not known what it was, or it is not to be had.
    AsItComes,
    Nothing,
    Object(Reference),
}

pub fn again(thread: Thread, slot: Slot) -> Again {
    match pins::number_again(slot.seen()).map(|number| number.value) {
        None | Some(UNKNOWN) => Again::AsItComes,
        Some(NOTHING) => Again::Nothing,
        Some(number) => {
            await_object(thread, slot.put(), number).map_or(Again::AsItComes, Again::Object)
        }
    }
}

/// A cache gives this to a request, and it is known who put it there. Returns what is given
/// instead.
pub fn found(thread: Thread, slot: Slot, value: Reference, who: impl FnOnce() -> i64) -> Reference {
    if !replays() {
        tell(slot, who());
        return value;
    }
    match again(thread, slot) {
        Again::AsItComes => value,
        Again::Nothing => std::ptr::null_mut(),
        Again::Object(object) => object,
    }
}

/// Who put there what is found, by its mark.
pub fn who(value: Reference) -> i64 {
    match value.is_null() {
        true => NOTHING,
        false => tools().mark(value).max(UNKNOWN),
    }
}

/// The same in a cache that may have given a copy.
pub fn who_copied(slot: Slot, value: Reference) -> i64 {
    match who(value) {
        UNKNOWN => copied().get(&slot).copied().unwrap_or(UNKNOWN),
        known => known,
    }
}

fn of_wrapper(thread: Thread, slot: Slot, wrapper: Reference) -> i64 {
    if wrapper.is_null() {
        return NOTHING;
    }
    let within = thread.scoped(|| {
        // SAFETY: it is a wrapper.
        let value = unsafe { thread.ask(wrapper, c"get", c"()Ljava/lang/Object;")? };
        Some(who_copied(slot, value))
    });
    // The cache may have an entry that says: nothing.
    within.filter(|&who| who != NOTHING).unwrap_or(UNKNOWN)
}

pub fn tell(slot: Slot, value: i64) {
    pins::tell_number(Number {
        series: slot.seen(),
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
