//! The class of EclipseLink that gives ids, of which it asks the database for many at a time.
//!
//! Its method `getNextValue` gets another name, and this one takes its place:
//!
//! ```text
//!   Object getNextValue(AbstractSession session, Class of) {
//!       Sequence sequence = getSequence(of);
//!       if (!sequence.shouldUsePreallocation()) return original(session, of);
//!       int series = Hindcast.seriesOf(sequence.getName(), of);
//!       long given = Hindcast.given(series, session);
//!       if (given >= 0) {
//!           while (Hindcast.asksMore(session)) {
//!               if (sequence.shouldUseTransaction()) {
//!                   session.beginTransaction();
//!                   sequence.getGeneratedVector(null, session);
//!                   session.commitTransaction();
//!               } else {
//!                   sequence.getGeneratedVector(null, session);
//!               }
//!           }
//!           return Long.valueOf(given);
//!       }
//!       Object made;
//!       do made = original(session, of);
//!       while (Hindcast.isTaken(((Number) made).longValue(), series, session));
//!       return made;
//!   }
//! ```
//!
//! The original asks the database likewise, but with a lock that others wait for. In a replay the
//! database may wait for one of these.

use super::numbers::{ASKS_MORE, GIVEN, IS_TAKEN};
use super::replacement::Replacement;
use super::{Called, Constants, METHOD, SHIM, code};

/// What the method calls beside what [`super::numbers`] has.
pub const SERIES_OF: Called = ("seriesOf", "(Ljava/lang/Object;Ljava/lang/Object;)I");

const CLASS: &str = "org/eclipse/persistence/internal/sequencing/SequencingManager";
const NAME: &str = "getNextValue";
const DESCRIPTOR: &str = "(Lorg/eclipse/persistence/internal/sessions/AbstractSession;\
                          Ljava/lang/Class;)Ljava/lang/Object;";
const ORIGINAL: &str = "hindcast$getNextValue";
const SEQUENCE: &str = "org/eclipse/persistence/sequencing/Sequence";
const SESSION: &str = "org/eclipse/persistence/internal/sessions/AbstractSession";

/// The class with what it gives to requests given again in a replay; `None` if it is another one.
pub fn sequenced(class: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    if class != CLASS {
        return None;
    }
    let mut constants = Constants::of(bytes)?;
    let instructions = instructions(&mut constants)?;
    let frames = frames(constants.class(SEQUENCE)?);
    let by = Replacement {
        name: NAME,
        descriptor: DESCRIPTOR,
        original: ORIGINAL,
        stack: 5,
        variables: 8,
        instructions,
        frames,
    };
    by.put_into(bytes, constants)
}

/// Where jumps lead: what numbers, the loop that asks, what asks outside of a transaction, what
/// gives, and what the original makes.
const NUMBERS: u16 = 20;
const ASKS: u16 = 45;
const PLAINLY: u16 = 77;
const GIVES: u16 = 87;
const MAKES: u16 = 93;

/// What the variables are there: the sequence more, and then an `int` and a `long`.
fn frames(sequence: u16) -> Vec<u8> {
    const ONE_MORE: u8 = 252;
    const TWO_MORE: u8 = 253;
    const INT: u8 = 1;
    const LONG: u8 = 4;
    const OBJECT: u8 = 7;
    let behind = |place: u16, before: u16| (place - before - 1).to_be_bytes();
    let [first, second] = [NUMBERS.to_be_bytes(), behind(ASKS, NUMBERS)];
    let sequence = sequence.to_be_bytes();
    let places = [(PLAINLY, ASKS), (GIVES, PLAINLY), (MAKES, GIVES)];
    let same = places.map(|(place, before)| behind(place, before)[1]);
    [
        &[0, 5, ONE_MORE],
        &first[..],
        &[OBJECT, sequence[0], sequence[1], TWO_MORE],
        &second,
        &[INT, LONG],
        &same,
    ]
    .concat()
}

const NUMBER: &str = "java/lang/Number";
const LONG: &str = "java/lang/Long";
/// Variables behind the sequence.
const SERIES: u8 = 4;
const VALUE: u8 = 5;
const MADE: u8 = 7;

fn instructions(constants: &mut Constants) -> Option<Vec<u8>> {
    let original = member(constants, CLASS, (ORIGINAL, DESCRIPTOR))?;
    let original = [
        &[code::ALOAD_0, code::ALOAD_1, code::ALOAD_2][..],
        &[code::INVOKESPECIAL, original[0], original[1]],
    ]
    .concat();
    let parts = [
        numbers(constants, &original)?,
        gives(constants)?,
        makes(constants, &original)?,
    ];
    Some(parts.concat())
}

fn member(
    constants: &mut Constants,
    class: &str,
    (name, descriptor): (&str, &str),
) -> Option<[u8; 2]> {
    let index = constants.member(METHOD, class, name, descriptor)?;
    Some(index.to_be_bytes())
}

fn of([high, low]: [u8; 2]) -> [u8; 3] {
    [code::INVOKEVIRTUAL, high, low]
}

/// Up to where it is known whether something is given again.
fn numbers(constants: &mut Constants, original: &[u8]) -> Option<Vec<u8>> {
    const OF_CLASS: &str = "(Ljava/lang/Class;)Lorg/eclipse/persistence/sequencing/Sequence;";
    let sequence = member(constants, CLASS, ("getSequence", OF_CLASS))?;
    let keeps = member(constants, SEQUENCE, ("shouldUsePreallocation", "()Z"))?;
    let name = member(constants, SEQUENCE, ("getName", "()Ljava/lang/String;"))?;
    let series = member(constants, SHIM, SERIES_OF)?;
    let given = member(constants, SHIM, GIVEN)?;
    let mut all = Vec::new();
    let mut put = |bytes: &[u8]| all.extend_from_slice(bytes);
    put(&[code::ALOAD_0, code::ALOAD_2]);
    put(&of(sequence));
    put(&[code::ASTORE_3, code::ALOAD_3]);
    put(&of(keeps));
    put(&code::jump(code::IFNE, 10, NUMBERS));
    put(original);
    put(&[code::ARETURN, code::ALOAD_3]);
    put(&of(name));
    put(&[code::ALOAD_2]);
    put(&code::call(series));
    put(&[code::ISTORE, SERIES, code::ILOAD, SERIES, code::ALOAD_1]);
    put(&code::call(given));
    put(&[code::LSTORE, VALUE, code::LLOAD, VALUE]);
    put(&[code::LCONST_0, code::LCMP]);
    put(&code::jump(code::IFLT, 42, MAKES));
    Some(all)
}

/// The database is asked, and what was given is given.
fn gives(constants: &mut Constants) -> Option<Vec<u8>> {
    const VECTOR: &str = "(Lorg/eclipse/persistence/internal/databaseaccess/Accessor;\
                          Lorg/eclipse/persistence/internal/sessions/AbstractSession;)\
                          Ljava/util/Vector;";
    let asks_more = member(constants, SHIM, ASKS_MORE)?;
    let transacts = member(constants, SEQUENCE, ("shouldUseTransaction", "()Z"))?;
    let vector = member(constants, SEQUENCE, ("getGeneratedVector", VECTOR))?;
    let begin = member(constants, SESSION, ("beginTransaction", "()V"))?;
    let commit = member(constants, SESSION, ("commitTransaction", "()V"))?;
    let boxed = member(constants, LONG, ("valueOf", "(J)Ljava/lang/Long;"))?;
    let ask = [
        &[code::ALOAD_3, code::ACONST_NULL, code::ALOAD_1][..],
        &of(vector),
        &[code::POP],
    ]
    .concat();
    let mut all = Vec::new();
    let mut put = |bytes: &[u8]| all.extend_from_slice(bytes);
    put(&[code::ALOAD_1]);
    put(&code::call(asks_more));
    put(&code::jump(code::IFEQ, 49, GIVES));
    put(&[code::ALOAD_3]);
    put(&of(transacts));
    put(&code::jump(code::IFEQ, 56, PLAINLY));
    put(&[code::ALOAD_1]);
    put(&of(begin));
    put(&ask);
    put(&[code::ALOAD_1]);
    put(&of(commit));
    put(&code::jump(code::GOTO, 74, ASKS));
    put(&ask);
    put(&code::jump(code::GOTO, 84, ASKS));
    put(&[code::LLOAD, VALUE]);
    put(&code::call(boxed));
    put(&[code::ARETURN]);
    Some(all)
}

/// One that no request was given.
fn makes(constants: &mut Constants, original: &[u8]) -> Option<Vec<u8>> {
    let is_taken = member(constants, SHIM, IS_TAKEN)?;
    let long = member(constants, NUMBER, ("longValue", "()J"))?;
    let number = constants.class(NUMBER)?.to_be_bytes();
    let mut all = Vec::new();
    let mut put = |bytes: &[u8]| all.extend_from_slice(bytes);
    put(original);
    put(&[code::ASTORE, MADE, code::ALOAD, MADE]);
    put(&[code::CHECKCAST, number[0], number[1]]);
    put(&of(long));
    put(&[code::ILOAD, SERIES, code::ALOAD_1]);
    put(&code::call(is_taken));
    put(&code::jump(code::IFNE, 115, MAKES));
    put(&[code::ALOAD, MADE, code::ARETURN]);
    Some(all)
}
