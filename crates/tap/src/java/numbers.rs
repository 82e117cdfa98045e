//! Ids that Hibernate and EclipseLink give to requests, of those that they have asked the database
//! for: what the classes call that [`numbered`](super::class::numbered) and
//! [`sequenced`](super::class::sequenced) change.
//!
//! ```text
//!   a generator's `generate`      numbersFor    what is numbered, and from what
//!     an optimizer's `generate`   numberOf      the same as a number
//!                                 given         what the request was given in the recording
//!       a callback                asked         the database is asked
//!                                 isTaken       what was made: it is told, or may have been given
//! ```
//!
//! A callback's mark is how often the database was asked by it; where a number is given again, how
//! often it still has to be, below zero.
//!
//! EclipseLink has one method for all of that, which says what is numbered and from what, and a
//! session in the place of a callback.

use std::cell::Cell;

use hindcast_taplog::pins::{Caller, Number, Place, Series};
use libc::{c_int, c_void};

use super::asker::hash;
use super::machine::{Reference, Thread, tools};
use crate::{pins, turns};

thread_local! {
    /// What the thread numbers.
    static SERIES: Cell<i32> = const { Cell::new(0) };
}

const AS_EVER: i64 = -1;
const ASKED: i64 = 1;

/// A generator is asked for an id of an object. Between this and the optimizer nothing waits, so
/// the machine's own threads stay in the same one of ours.
pub unsafe extern "C" fn numbers_for(
    thread: *mut c_void,
    _: Reference,
    generator: Reference,
    object: Reference,
) {
    if turns::of_code() == 0 || generator.is_null() {
        return SERIES.set(0);
    }
    // SAFETY: as the machine promises.
    let (of, numbers) = unsafe {
        let thread = Thread::given(thread);
        (of_generator(thread, generator), of_class(thread, object))
    };
    SERIES.set((u32::from(of) << 16 | u32::from(numbers)) as i32);
}

/// Of what it takes ids, which is looked for once.
///
/// # Safety
/// It is an object.
unsafe fn of_generator(thread: Thread, generator: Reference) -> u16 {
    let tools = tools();
    if let Ok(known @ 1..) = u16::try_from(tools.mark(generator)) {
        return known;
    }
    let found = thread.scoped(|| {
        // SAFETY: the methods give objects, and the last ones texts.
        unsafe {
            let ask = |of, name, descriptor| thread.ask(of, name, descriptor);
            let text = |string| thread.text(string, hash);
            let of_sequence = || {
                let structure = ask(
                    generator,
                    c"getDatabaseStructure",
                    c"()Lorg/hibernate/id/enhanced/DatabaseStructure;",
                )?;
                let name = ask(
                    structure,
                    c"getPhysicalName",
                    c"()Lorg/hibernate/boot/model/relational/QualifiedName;",
                )?;
                text(ask(name, c"toString", c"()Ljava/lang/String;")?)
            };
            let of_table = || {
                let name = |method| text(ask(generator, method, c"()Ljava/lang/String;")?);
                Some(name(c"getTableName")? ^ name(c"getSegmentValue")?.rotate_left(1))
            };
            of_sequence().or_else(of_table)
        }
    });
    let known = Caller::of(found.unwrap_or(1)).0;
    tools.set_mark(generator, i64::from(known));
    known
}

/// # Safety
/// It is an object, or null.
unsafe fn of_class(thread: Thread, object: Reference) -> u16 {
    if object.is_null() {
        return 0;
    }
    let tools = tools();
    let known = thread.scoped(|| {
        // SAFETY: as promised.
        unsafe {
            let class = thread.class_of(object);
            if let Ok(known @ 1..) = u16::try_from(tools.mark(class)) {
                return Some(known);
            }
            let known = tools.name_of(class, |name| Caller::of(hash(name)).0)?;
            tools.set_mark(class, i64::from(known));
            Some(known)
        }
    });
    known.unwrap_or(0)
}

pub extern "C" fn number_of(_: *mut c_void, _: Reference) -> c_int {
    SERIES.take()
}

fn series(of: c_int) -> Option<Series> {
    let of = of as u32;
    (of != 0).then_some(Series {
        of: Caller((of >> 16) as u16),
        numbers: Place(of as u16),
    })
}

pub extern "C" fn given(_: *mut c_void, _: Reference, of: c_int, callback: Reference) -> i64 {
    let given = series(of).and_then(pins::number_again);
    if !callback.is_null() {
        let asks = given.map_or(0, |number| i64::from(number.asks));
        tools().set_mark(callback, -asks);
    }
    given.map_or(AS_EVER, |number| number.value)
}

pub extern "C" fn asks_more(_: *mut c_void, _: Reference, callback: Reference) -> u8 {
    let left = match callback.is_null() {
        true => 0,
        false => tools().mark(callback),
    };
    if left < 0 {
        tools().set_mark(callback, left + ASKED);
    }
    u8::from(left < 0)
}

pub extern "C" fn asked(_: *mut c_void, _: Reference, callback: Reference) {
    let so_far = tools().mark(callback);
    if so_far >= 0 && turns::of_code() != 0 {
        tools().set_mark(callback, so_far.saturating_add(ASKED));
    }
}

/// What was made anew. While recording it is told; in a replay, 1 if a request of the recording was
/// given the same.
pub extern "C" fn is_taken(
    _: *mut c_void,
    _: Reference,
    value: i64,
    of: c_int,
    callback: Reference,
) -> u8 {
    let Some(series) = series(of) else {
        return 0;
    };
    if pins::is_given_away(series, value) {
        return 1;
    }
    let asks = match callback.is_null() {
        true => 0,
        false => tools().mark(callback).max(0),
    };
    pins::tell_number(Number {
        series,
        value,
        asks: u8::try_from(asks)
            .ok()
            .filter(|&asks| asks < Number::SEEN)
            .unwrap_or(u8::MAX),
    });
    0
}

/// What is numbered by a sequence of this name, for a request; 0: there is none.
pub unsafe extern "C" fn series_of(
    thread: *mut c_void,
    _: Reference,
    sequence: Reference,
    class: Reference,
) -> c_int {
    if turns::of_code() == 0 || sequence.is_null() || class.is_null() {
        return 0;
    }
    // SAFETY: as the machine promises; the first one is a text.
    let known = unsafe {
        let thread = Thread::given(thread);
        let of = thread.text(sequence, hash);
        of.zip(tools().name_of(class, hash))
    };
    known.map_or(0, |(of, numbers)| {
        let [of, numbers] = [of, numbers].map(|hash| u32::from(Caller::of(hash).0));
        (of << 16 | numbers) as i32
    })
}
