//! What requests see in caches of Caffeine, which Spring, Quarkus, Micronaut and programs use: what
//! its classes call.
//!
//! ```text
//!   getIfPresent, putIfAbsent   seen        what the request saw, or nothing
//!   put, putIfAbsent            puts        an object gets its number
//!   computeIfAbsent             seenAgain   in a replay: what the request saw, or that it computes
//!                               source      while recording: what is computed gets its number
//!                               looked      and whether the request saw it or computed it is told
//! ```
//!
//! As in [`seen`](super::seen), an object has a number, and a request sees again what it saw. Where
//! it had an object computed it computes one again, whatever is in the cache by then. Values that
//! are to come (`AsyncCache`) are objects like others.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};

use hindcast_taplog::pins::Caller;

use super::asker::maker_by_library;
use super::class::code::{ALOAD_0, ALOAD_1, ALOAD_2, ARETURN, RETURN};
use super::class::{BOUNDED, Call, Called, PUTS_LOCAL, Patch, UNBOUNDED, of_natives};
use super::machine::{Kept, Native, Reference, Thread, tools};
use super::seen::{Again, Slot, again, found, put, replays, tell, who};
use crate::shown::NOTHING;
use crate::turns;

const MANUAL: &str = "com/github/benmanes/caffeine/cache/LocalManualCache";
const ASYNC: &str = "com/github/benmanes/caffeine/cache/LocalAsyncCache";
const LIBRARY: &[u8] = b"Lcom/github/benmanes/caffeine/";

/// A cache of Caffeine's is made, and something is looked for there.
pub const MADE_LOCAL: Called = ("madeLocal", "(Ljava/lang/Object;)V");
pub const SEEN_LOCAL: Called = (
    "seenLocal",
    "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;",
);
/// The same of what is to come.
pub const SEEN_TO_COME: Called = (
    "seenToCome",
    "(Ljava/util/concurrent/CompletableFuture;Ljava/lang/Object;Ljava/lang/Object;)\
     Ljava/util/concurrent/CompletableFuture;",
);

pub const PATCHES: [Patch; 8] = [
    made(
        BOUNDED,
        "(Lcom/github/benmanes/caffeine/cache/Caffeine;\
         Lcom/github/benmanes/caffeine/cache/AsyncCacheLoader;Z)V",
    ),
    made(
        UNBOUNDED,
        "(Lcom/github/benmanes/caffeine/cache/Caffeine;Z)V",
    ),
    put_if_absent(BOUNDED),
    put_if_absent(UNBOUNDED),
    if_present(MANUAL, SEEN_LOCAL),
    if_present(ASYNC, SEEN_TO_COME),
    puts_there(MANUAL, "(Ljava/lang/Object;Ljava/lang/Object;)V"),
    puts_there(
        ASYNC,
        "(Ljava/lang/Object;Ljava/util/concurrent/CompletableFuture;)V",
    ),
];

const fn sees(calls: Called) -> Call {
    Call {
        arguments: &[ALOAD_0, ALOAD_1],
        calls,
    }
}

const PUTS: Call = Call {
    arguments: &[ALOAD_0, ALOAD_1, ALOAD_2],
    calls: PUTS_LOCAL,
};

const fn made(class: &'static str, descriptor: &'static str) -> Patch {
    let made = Call {
        arguments: &[ALOAD_0],
        calls: MADE_LOCAL,
    };
    Patch {
        class,
        method: "<init>",
        descriptor,
        begins: None,
        ends: Some((RETURN, made)),
    }
}

const fn put_if_absent(class: &'static str) -> Patch {
    Patch {
        class,
        method: "putIfAbsent",
        descriptor: "(Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;",
        begins: Some(PUTS),
        ends: Some((ARETURN, sees(SEEN_LOCAL))),
    }
}

const fn if_present(class: &'static str, calls: Called) -> Patch {
    Patch {
        class,
        method: "getIfPresent",
        descriptor: "(Ljava/lang/Object;)",
        begins: None,
        ends: Some((ARETURN, sees(calls))),
    }
}

const fn puts_there(class: &'static str, descriptor: &'static str) -> Patch {
    Patch {
        class,
        method: "put",
        descriptor,
        begins: Some(PUTS),
        ends: None,
    }
}

/// A function that is behind a source: what it is given was computed. Its mark is the slot.
static COMPUTED: OnceLock<Kept> = OnceLock::new();

/// Makes the class of these functions.
pub fn define(thread: Thread) -> Option<()> {
    const APPLY: (&str, &str) = ("apply", "(Ljava/lang/Object;)Ljava/lang/Object;");
    let name = "java/security/HindcastComputed";
    let bytes = of_natives(name, Some("java/util/function/Function"), &[APPLY])?;
    let native = Native {
        name: c"apply".as_ptr(),
        descriptor: c"(Ljava/lang/Object;)Ljava/lang/Object;".as_ptr(),
        function: computed as *mut c_void,
    };
    let class = thread.define(c"java/security/HindcastComputed", &bytes, &[native])?;
    // There is one machine, and one class.
    let _ = COMPUTED.set(thread.keep(class)?);
    Some(())
}

/// A cache was made: it is known by who had it made, and by how many that had made before.
pub unsafe extern "C" fn made_local(_: *mut c_void, _: Reference, cache: Reference) {
    static MADE: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
    if cache.is_null() {
        return;
    }
    let maker = maker_by_library(tools(), LIBRARY);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let nth = made.entry(maker).or_default();
    *nth = nth.saturating_add(1);
    let name = Caller::of(maker.wrapping_add(*nth));
    drop(made);
    tools().set_mark(cache, i64::from(name.0));
}

/// The place of a key in a cache, or in what looks into one; `None`: it is not known.
fn slot(thread: Thread, cache: Reference, key: Reference) -> Option<Slot> {
    const CACHE: &std::ffi::CStr = c"()Lcom/github/benmanes/caffeine/cache/LocalCache;";
    if cache.is_null() || key.is_null() || turns::of_code() == 0 {
        return None;
    }
    let name = match tools().mark(cache) {
        0 => {
            let known = thread.scoped(|| {
                // SAFETY: what looks into a cache is an object, and gives that.
                let inner = unsafe { thread.ask(cache, c"cache", CACHE)? };
                Some(tools().mark(inner))
            })?;
            tools().set_mark(cache, known);
            known
        }
        known => known,
    };
    let name = u16::try_from(name).ok().filter(|&name| name > 0)?;
    Slot::of(thread, name, key)
}

/// A cache gives this. Returns what is given instead.
pub unsafe extern "C" fn seen(
    thread: *mut c_void,
    _: Reference,
    value: Reference,
    cache: Reference,
    key: Reference,
) -> Reference {
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    match slot(thread, cache, key) {
        Some(slot) => found(thread, slot, value, || who(value)),
        None => value,
    }
}

/// Something is about to be put there.
pub unsafe extern "C" fn puts(
    thread: *mut c_void,
    _: Reference,
    cache: Reference,
    key: Reference,
    value: Reference,
) {
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    if let Some(slot) = slot(thread, cache, key).filter(|_| !value.is_null()) {
        put(thread, slot.put(), value);
    }
}

/// What requests have had computed last, as many as are looking at a time: each by its number, and
/// 0 since it looked.
static OWN: Mutex<[(u64, i64); 1 << 10]> = Mutex::new([(0, 0); 1 << 10]);

/// Returns what the request had computed.
fn computes(value: i64) -> i64 {
    let request = turns::of_code();
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = request as usize % own.len();
    let before = std::mem::replace(&mut own[place], (request, value));
    if before.0 == request { before.1 } else { 0 }
}

/// A request looks for something that is computed if it is not there. In a replay: what it saw, or
/// the cache itself if it had it computed. Null: as ever.
pub unsafe extern "C" fn seen_again(
    thread: *mut c_void,
    _: Reference,
    cache: Reference,
    key: Reference,
) -> Reference {
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    let as_ever = std::ptr::null_mut();
    let Some(slot) = slot(thread, cache, key) else {
        return as_ever;
    };
    if !replays() {
        computes(NOTHING);
        return as_ever;
    }
    match again(thread, slot) {
        Again::AsItComes => as_ever,
        Again::Nothing => cache,
        Again::Object(object) => object,
    }
}

/// Returns what stands for the source that computes it.
pub unsafe extern "C" fn source(
    thread: *mut c_void,
    _: Reference,
    cache: Reference,
    key: Reference,
    source: Reference,
) -> Reference {
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    let told = || {
        let slot = slot(thread, cache, key).filter(|_| !replays() && !source.is_null())?;
        let computed = thread.allocate(COMPUTED.get()?)?;
        tools().set_mark(computed, slot.packed());
        let and_then = c"(Ljava/util/function/Function;)Ljava/util/function/Function;";
        // SAFETY: both are functions.
        unsafe { thread.tell(source, c"andThen", and_then, computed) }
    };
    told().unwrap_or(source)
}

/// While recording, before anyone can see it.
unsafe extern "C" fn computed(
    thread: *mut c_void,
    function: Reference,
    value: Reference,
) -> Reference {
    if !value.is_null() && turns::of_code() != 0 {
        // SAFETY: as the machine promises.
        let thread = unsafe { Thread::given(thread) };
        let slot = Slot::unpacked(tools().mark(function));
        computes(put(thread, slot.put(), value));
    }
    value
}

/// Something was there, or is by now.
pub unsafe extern "C" fn looked(
    thread: *mut c_void,
    _: Reference,
    value: Reference,
    cache: Reference,
    key: Reference,
) -> Reference {
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    if !replays()
        && let Some(slot) = slot(thread, cache, key)
    {
        let number = who(value);
        let is_own = computes(NOTHING) == number;
        tell(slot, if is_own { NOTHING } else { number });
    }
    value
}
