//! Java's generators of random numbers: they keep state from one request to the next, so what they
//! give to a request is replaced by what is drawn for it.
//!
//! ```text
//!   dlopen of the machine's ──▶ class      some methods of Java's own classes call ours
//!                           ──▶ machine    the classes are read again, with the calls
//!   SecureRandom, Random, … ──▶ shim       what the request draws, or what was to be given
//! ```
//!
//! A Java machine loads libraries of its own when its program begins. That is the moment: the
//! thread may ask the machine for something, and no class of the program is there yet. So there is
//! no option that a user would see, and nothing that starts with another machine.
//!
//! **The invariant to keep**: who works on no request gets what it would have got without.

mod asker;
mod class;
mod machine;
mod shim;

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_char, c_int, c_void};

use class::Patch;
use class::code::{
    ALOAD_0, ALOAD_1, ARETURN, DRETURN, DUP, INVOKESPECIAL, LRETURN, LSTORE_1, RETURN,
};
use machine::{Machine, Reference, Thread, Tools};

use crate::process;
use crate::real::real;

/// Somebody is at it, or it is done.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// What requests draw from Java's generators is theirs.
static IS_PINNED: AtomicBool = AtomicBool::new(false);

/// Whether Java's generators are seen to. What they read from a device is theirs then, and no
/// draw of a request: when they read depends on what others have drawn.
pub fn is_pinned() -> bool {
    IS_PINNED.load(Ordering::Relaxed)
}

/// A library is about to be loaded.
pub fn loads(name: *const c_char) {
    /// Libraries that a thread of Java loads. Others, the machine loads also for itself: then it
    /// must not be asked for anything.
    const ITS_OWN: [&[u8]; 3] = [b"/libjimage.so", b"/libnio.so", b"/libnet.so"];
    if name.is_null() || BEGUN.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: who calls `dlopen` gives a name, or null.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let is_asked =
        || process::board().is_some_and(|board| board.replays() || board.pins().has_key());
    if ITS_OWN.iter().any(|own| name.ends_with(own)) && is_asked() {
        begin();
    }
}

fn begin() {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: the name is a C string, and nothing is loaded.
    let library = unsafe {
        real!(fn dlopen(*const c_char, c_int) -> *mut c_void)(c"libjvm.so".as_ptr(), flags)
    };
    if library.is_null() {
        return;
    }
    let Some(machine) = Machine::of_process(library) else {
        return;
    };
    let (Some(thread), Some(tools)) = (machine.thread(), machine.tools()) else {
        return;
    };
    if !tools.is_live() || BEGUN.swap(true, Ordering::Relaxed) {
        return tools.end();
    }
    shim::TOOLS.store(tools.address(), Ordering::Relaxed);
    let done = thread.scoped(|| {
        shim::define(thread)?;
        let mut names: Vec<&str> = PATCHES.iter().map(|patch| patch.class).collect();
        names.dedup();
        let find = |name| thread.find(library, &CString::new(name).ok()?);
        let classes: Vec<Reference> = names.into_iter().filter_map(find).collect();
        order_collections(thread, library);
        tools.read_again(&classes, reads)
    });
    IS_PINNED.store(done.is_some(), Ordering::Relaxed);
}

/// Sets and maps that cannot be changed (`Map.of`) are gone through in an order that each start of
/// a machine chooses. Here each has the same, so that what a service says of them is the same.
fn order_collections(thread: Thread, library: *mut c_void) -> Option<()> {
    /// Where a table is begun with, as a part of 2^32.
    const BEGINS: i64 = 0x9e37_79b9;
    let class = thread.find(library, c"java/util/ImmutableCollections")?;
    thread.set_long(class, c"SALT32L", BEGINS)?;
    thread.set_boolean(class, c"REVERSE", false)
}

unsafe extern "C" fn reads(
    tools: *mut c_void,
    _: *mut c_void,
    redefined: Reference,
    _: Reference,
    name: *const c_char,
    _: Reference,
    length: c_int,
    bytes: *const u8,
    new_length: *mut c_int,
    new_bytes: *mut *mut u8,
) {
    if redefined.is_null() || name.is_null() || bytes.is_null() {
        return;
    }
    // SAFETY: as JVMTI declares the function.
    unsafe {
        let Ok(name) = CStr::from_ptr(name).to_str() else {
            return;
        };
        let bytes = std::slice::from_raw_parts(bytes, usize::try_from(length).unwrap_or(0));
        let Some(patched) = class::patched(name, bytes, &PATCHES) else {
            return;
        };
        if let (Ok(length), Some(copy)) = (
            c_int::try_from(patched.len()),
            Tools::given(tools).copy(&patched),
        ) {
            *new_length = length;
            *new_bytes = copy;
        }
    }
}

/// Those of one class are together.
const PATCHES: [Patch; 19] = [
    number("java/lang/Math"),
    number("java/lang/StrictMath"),
    beginning("java/time/Clock"),
    beginning("java/time/Clock$SystemClock"),
    beginning("java/lang/Math$RandomNumberGeneratorHolder"),
    beginning("java/lang/StrictMath$RandomNumberGeneratorHolder"),
    Patch {
        class: "java/util/GregorianCalendar",
        method: "<init>",
        descriptor: "(Ljava/util/TimeZone;Ljava/util/Locale;)V",
        begins: Some(shim::MAKES_CALENDAR),
        before: RETURN,
        arguments: &[],
        calls: shim::MADE_CALENDAR,
    },
    Patch {
        class: "java/util/Random",
        method: "<init>",
        descriptor: "()V",
        begins: None,
        before: INVOKESPECIAL,
        arguments: &[],
        calls: shim::SEED,
    },
    Patch {
        class: "java/util/SplittableRandom",
        method: "<init>",
        descriptor: "()V",
        begins: None,
        before: LSTORE_1,
        arguments: &[],
        calls: shim::SEED,
    },
    Patch {
        class: "java/util/concurrent/ThreadLocalRandom",
        method: "nextSeed",
        descriptor: "()J",
        begins: None,
        before: LRETURN,
        arguments: &[],
        calls: shim::NEXT_SEED,
    },
    next_bytes("sun/security/provider/NativePRNG"),
    seed_bytes("sun/security/provider/NativePRNG"),
    next_bytes("sun/security/provider/NativePRNG$Blocking"),
    seed_bytes("sun/security/provider/NativePRNG$Blocking"),
    next_bytes("sun/security/provider/NativePRNG$NonBlocking"),
    seed_bytes("sun/security/provider/NativePRNG$NonBlocking"),
    next_bytes("sun/security/provider/DRBG"),
    Patch {
        arguments: &[ALOAD_0, ALOAD_1],
        calls: shim::FILL_UNLESS_SEEDED,
        ..next_bytes("sun/security/provider/SecureRandom")
    },
    Patch {
        method: "engineSetSeed",
        begins: None,
        arguments: &[ALOAD_0],
        calls: shim::WAS_SEEDED,
        ..next_bytes("sun/security/provider/SecureRandom")
    },
];

const fn number(class: &'static str) -> Patch {
    Patch {
        class,
        method: "random",
        descriptor: "()D",
        begins: None,
        before: DRETURN,
        arguments: &[],
        calls: shim::NUMBER,
    }
}

/// A class that reads the time or makes a generator when it is first used, for all requests.
const fn beginning(class: &'static str) -> Patch {
    Patch {
        class,
        method: "<clinit>",
        descriptor: "()V",
        begins: Some(shim::STEP_ASIDE),
        before: RETURN,
        arguments: &[],
        calls: shim::STEP_BACK,
    }
}

const fn next_bytes(class: &'static str) -> Patch {
    Patch {
        class,
        method: "engineNextBytes",
        descriptor: "([B)V",
        begins: Some(shim::STEP_ASIDE),
        before: RETURN,
        arguments: &[ALOAD_1],
        calls: shim::FILL,
    }
}

const fn seed_bytes(class: &'static str) -> Patch {
    Patch {
        class,
        method: "engineGenerateSeed",
        descriptor: "(I)[B",
        begins: Some(shim::STEP_ASIDE),
        before: ARETURN,
        arguments: &[DUP],
        calls: shim::FILL,
    }
}
