//! Which of the program's code asks a generator or a clock, as a number that is the same whenever
//! the program runs.
//!
//! How often a request asks depends on others: the first that logs in has a salt made for all, a
//! server has a generator made where all it has are in use, a cache looks whether what it has is
//! too old. That must not shift what the key of a session is made of, or the time of a row. So each
//! asker has an order of its own.
//!
//! It is the innermost method that is not the runtime's, and the innermost one of another file that
//! this works for. A file is a class with all that is within: what is behind `$` in a name is often
//! counted when the class is made (of lambdas, proxies, and classes without a name).
//!
//! A class of the runtime begins when it is first used, for all requests: its beginning counts as a
//! method of the program's. And some read the clock for themselves, as those that look for a
//! generator of random numbers do once: such a reading is known by what reads, too.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hindcast_taplog::pins::Caller;

use super::machine::Tools;

/// How deep it is looked for, and how deep first: each frame costs time.
const DEPTH: usize = 16;
const NEAR: usize = 6;

/// Methods that were looked at before.
const KNOWN: usize = 1 << 12;

struct Known {
    method: AtomicUsize,
    number: AtomicU64,
}

static ALL_KNOWN: [Known; KNOWN] = [const {
    Known {
        method: AtomicUsize::new(0),
        number: AtomicU64::new(0),
    }
}; KNOWN];

/// A proxy, or what reads a clock or is called where the program does.
const NOT_COUNTED: u64 = 0;
/// What counts is odd. The others are the runtime's own.
const COUNTED: u64 = 1;
/// In a method's number, what stands for its file; the others stand for the method.
const FILE: u64 = !0 << 32;

/// Who asks.
pub fn asker(tools: Tools) -> u64 {
    match asker_within::<NEAR>(tools) {
        Asker::Found(asker) => asker,
        Asker::Deeper(_) => match asker_within::<DEPTH>(tools) {
            Asker::Found(asker) | Asker::Deeper(asker) => asker,
        },
    }
}

/// What is found so deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Found(u64),
    /// What it is if there is nothing more.
    Deeper(u64),
}

fn asker_within<const N: usize>(tools: Tools) -> Asker {
    let (methods, count) = tools.methods::<N>();
    let numbers = methods
        .iter()
        .take(count)
        .map(|&method| number(tools, method));
    match of_numbers(numbers) {
        Asker::Deeper(all) if count < N => Asker::Found(all),
        asker => asker,
    }
}

/// Who reads a clock. The runtime may do so for itself.
pub fn reader(tools: Tools) -> Caller {
    let (methods, count) = tools.methods::<NEAR>();
    let methods = methods.iter().take(count);
    let own = methods
        .map(|&method| number(tools, method))
        .find(|&number| number != NOT_COUNTED);
    let own = own.filter(|own| own & COUNTED == 0).unwrap_or(0);
    Caller::of(mixed(asker(tools) ^ own))
}

/// Who asks for so much of something: each is known by both.
pub fn caller(tools: Tools, of: u64) -> Caller {
    Caller::of(mixed(asker(tools) ^ of))
}

/// Whether the runtime asks for a connection that is encrypted. Its keys are not to be had from a
/// recording.
pub fn is_for_tls(tools: Tools) -> bool {
    let (methods, count) = tools.methods::<DEPTH>();
    let is_tls = |class: &[u8], _: &[u8]| class.starts_with(b"Lsun/security/ssl/");
    let mut methods = methods.iter().take(count);
    // SAFETY: the thread is in these methods.
    methods.any(|&method| unsafe { tools.names(method, is_tls) }.unwrap_or(false))
}

/// Who makes something that is kept: the innermost methods of three files.
pub fn maker(tools: Tools) -> u64 {
    maker_by(tools, |method| number(tools, method))
}

/// Who has a library make something that is kept. Its classes' names begin so.
pub fn maker_by_library(tools: Tools, library: &[u8]) -> u64 {
    maker_by(tools, |method| {
        let of_others = |class: &[u8], method: &[u8]| match class.starts_with(library) {
            true => NOT_COUNTED,
            false => of_names(class, method),
        };
        // SAFETY: the thread is in this method.
        unsafe { tools.names(method, of_others) }.unwrap_or(NOT_COUNTED)
    })
}

fn maker_by(tools: Tools, number: impl Fn(usize) -> u64) -> u64 {
    const FILES: usize = 3;
    let (methods, count) = tools.methods::<DEPTH>();
    let numbers = methods.iter().take(count);
    let counted = numbers.map(|&method| number(method));
    let mut all: Vec<u64> = counted.filter(|&number| number & COUNTED != 0).collect();
    all.dedup_by_key(|number| *number & FILE);
    let innermost = all.iter().take(FILES);
    innermost.fold(1, |hash, &number| mixed(hash ^ number))
}

fn of_numbers(numbers: impl Iterator<Item = u64>) -> Asker {
    let mut counted = numbers.filter(|&number| number & COUNTED != 0);
    let Some(innermost) = counted.next() else {
        return Asker::Deeper(0);
    };
    match counted.find(|&number| (number ^ innermost) & FILE != 0) {
        Some(other) => Asker::Found(mixed(innermost) ^ other),
        None => Asker::Deeper(mixed(innermost)),
    }
}

fn number(tools: Tools, method: usize) -> u64 {
    let place = ALL_KNOWN.get((method >> 3) % KNOWN);
    let Some(known) = place else {
        return NOT_COUNTED;
    };
    if known.method.load(Ordering::Acquire) == method {
        return known.number.load(Ordering::Relaxed);
    }
    // SAFETY: the thread is in this method.
    let number = unsafe { tools.names(method, of_names) }.unwrap_or(NOT_COUNTED);
    // Where two methods have one place, the first keeps it.
    let mine = known
        .method
        .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    if mine.is_ok() {
        known.number.store(number, Ordering::Relaxed);
        known.method.store(method, Ordering::Release);
    }
    number
}

fn of_names(class: &[u8], method: &[u8]) -> u64 {
    const RUNTIME: [&[u8]; 5] = [b"Ljava/", b"Ljavax/", b"Ljdk/", b"Lsun/", b"Lcom/sun/"];
    /// By these the program reads it.
    const CLOCKS: [&[u8]; 5] = [
        b"Ljava/security/Hindcast;",
        b"Ljava/time/",
        b"Ljava/util/Date;",
        b"Ljava/util/Calendar;",
        b"Ljava/util/GregorianCalendar;",
    ];
    /// In between is what has something computed, other methods of it in a replay: see `local`.
    const BETWEEN: [&[u8]; 3] = [
        b"Lcom/github/benmanes/caffeine/cache/BoundedLocalCache",
        b"Lcom/github/benmanes/caffeine/cache/LocalCache",
        b"Lcom/github/benmanes/caffeine/cache/UnboundedLocalCache",
    ];
    const BEGINS: &[u8] = b"<clinit>";
    const INNER: u8 = b'$';
    let is_runtime = RUNTIME.iter().any(|runtime| class.starts_with(runtime));
    let file = class.split(|&byte| byte == INNER).next().unwrap_or(class);
    let is_counted = !is_runtime || method == BEGINS;
    let is_clock = CLOCKS.iter().any(|clock| class.starts_with(clock));
    if file.last() == Some(&b'/')
        || file == b"L"
        || is_clock && !is_counted
        || BETWEEN.contains(&file.strip_suffix(b";").unwrap_or(file))
    {
        return NOT_COUNTED;
    }
    // `lambda$name$0`.
    let inner = method.strip_prefix(b"lambda$").unwrap_or(method);
    let method = inner.split(|&byte| byte == INNER).next().unwrap_or(inner);
    hash(file) & FILE | hash(method) >> 32 & !COUNTED | u64::from(is_counted)
}

pub fn hash(bytes: &[u8]) -> u64 {
    // What ends a class' name.
    let bytes = bytes.strip_suffix(b";").unwrap_or(bytes);
    bytes
        .iter()
        .fold(1, |hash, &byte| mixed(hash ^ u64::from(byte)))
}

fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_known_by_its_file_and_its_name() {
        let list = of_names(b"Lnotes/Pages;", b"list");
        assert_eq!(of_names(b"Lnotes/Pages$1;", b"lambda$list$3"), list);
        assert_eq!(of_names(b"Lnotes/Pages$$SpringCGLIB$$0;", b"list"), list);
        assert_ne!(of_names(b"Lnotes/Pages;", b"add"), list);
        assert_ne!(of_names(b"Lnotes/People;", b"list"), list);
        for not_counted in [
            &b"Ljava/time/Instant;"[..],
            b"Lcom/github/benmanes/caffeine/cache/BoundedLocalCache;",
            b"Lcom/github/benmanes/caffeine/cache/BoundedLocalCache$1;",
            b"Lnotes/$Proxy12;",
            b"L$Proxy3;",
        ] {
            assert_eq!(of_names(not_counted, b"list"), NOT_COUNTED);
        }
        let begins = of_names(b"Lsun/util/calendar/ZoneInfoFile;", b"<clinit>");
        assert_eq!(begins & COUNTED, COUNTED);
        let own = of_names(b"Ljava/util/logging/LogRecord;", b"<init>");
        assert!(own != NOT_COUNTED && own & COUNTED == 0);
    }

    #[test]
    fn who_asks_is_the_innermost_and_another_file() {
        let [list, add] = [b"list", &b"add"[..]].map(|name| of_names(b"Lnotes/Pages;", name));
        let [cache, filter] =
            [b"Lnotes/Cache;", &b"Lnotes/Filter;"[..]].map(|class| of_names(class, b"get"));
        let of = |numbers: &[u64]| of_numbers(numbers.iter().copied());
        assert_eq!(of(&[0, cache, 0, list, filter]), of(&[cache, cache, list]));
        assert_ne!(of(&[cache, list]), of(&[cache, add]));
        assert_ne!(of(&[cache, list]), of(&[list, cache]));
        assert_eq!(of(&[list, add, filter]), of(&[list, filter]));
        assert_eq!(of(&[0, 0]), Asker::Deeper(0));
    }
}
