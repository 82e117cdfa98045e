//! Classes of Hibernate that give ids, of which they ask the database for many at a time.
//!
//! Their method `generate` gets another name, and this one takes its place:
//!
//! ```text
//!   Serializable generate(AccessCallback callback) {
//!       int of = Hindcast.numberOf();
//!       long given = Hindcast.given(of, callback);
//!       if (given >= 0) {
//!           while (Hindcast.asksMore(callback)) callback.getNextValue();
//!           return getIntegralDataTypeHolder(returnClass).initialize(given).makeValue();
//!       }
//!       Object made;
//!       do made = original(callback);
//!       while (Hindcast.isTaken(((Number) made).longValue(), of, callback));
//!       return made;
//!   }
//! ```

use super::replacement::{FIELD, INTERFACE_METHOD, Replacement};
use super::{Called, Constants, METHOD, SHIM, code};

/// What the method calls.
pub const NUMBER_OF: Called = ("numberOf", "()I");
pub const GIVEN: Called = ("given", "(ILjava/lang/Object;)J");
pub const ASKS_MORE: Called = ("asksMore", "(Ljava/lang/Object;)Z");
pub const IS_TAKEN: Called = ("isTaken", "(JILjava/lang/Object;)Z");

const NAME: &str = "generate";
const DESCRIPTOR: &str = "(Lorg/hibernate/id/enhanced/AccessCallback;)Ljava/io/Serializable;";
const ORIGINAL: &str = "hindcast$generate";

const ALL: [&str; 5] = [
    "org/hibernate/id/enhanced/PooledOptimizer",
    "org/hibernate/id/enhanced/PooledLoOptimizer",
    "org/hibernate/id/enhanced/PooledLoThreadLocalOptimizer",
    "org/hibernate/id/enhanced/HiLoOptimizer",
    "org/hibernate/id/enhanced/LegacyHiLoAlgorithmOptimizer",
];

/// The class with what it gives to requests given again in a replay; `None` if it is none of these.
pub fn numbered(class: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    if !ALL.contains(&class) {
        return None;
    }
    let mut constants = Constants::of(bytes)?;
    let instructions = instructions(class, &mut constants)?;
    let by = Replacement {
        name: NAME,
        descriptor: DESCRIPTOR,
        original: ORIGINAL,
        stack: 5,
        variables: 6,
        instructions,
        frames: frames(),
    };
    by.put_into(bytes, constants)
}

/// Where jumps lead: the loop that asks, what gives, and what the original makes.
const ASKS: u16 = 16;
const GIVES: u16 = 33;
const MAKES: u16 = 52;

/// What the variables are there: at the first, an `int` and a `long` more.
fn frames() -> Vec<u8> {
    const TWO_MORE: u8 = 253;
    const INT: u8 = 1;
    const LONG: u8 = 4;
    let behind = |place: u16, before: u16| (place - before - 1) as u8;
    let [high, low] = ASKS.to_be_bytes();
    let same = [behind(GIVES, ASKS), behind(MAKES, GIVES)];
    [&[0, 3, TWO_MORE, high, low, INT, LONG], &same[..]].concat()
}

fn instructions(class: &str, constants: &mut Constants) -> Option<Vec<u8>> {
    const HOLDER: &str = "org/hibernate/id/IntegralDataTypeHolder";
    const TO_HOLDER: &str = "()Lorg/hibernate/id/IntegralDataTypeHolder;";
    const INITIALIZE: &str = "(J)Lorg/hibernate/id/IntegralDataTypeHolder;";
    const OF_CLASS: &str = "(Ljava/lang/Class;)Lorg/hibernate/id/IntegralDataTypeHolder;";
    const CALLBACK: &str = "org/hibernate/id/enhanced/AccessCallback";
    const HELPER: &str = "org/hibernate/id/IdentifierGeneratorHelper";
    const NUMBER: &str = "java/lang/Number";
    const MADE: u8 = 5;
    let mut all = Vec::new();
    let mut member = |kind, class, (name, descriptor): (&str, &str)| {
        let index = constants.member(kind, class, name, descriptor)?;
        Some(index.to_be_bytes())
    };
    let [number_of, given, asks_more, is_taken] = [
        member(METHOD, SHIM, NUMBER_OF)?,
        member(METHOD, SHIM, GIVEN)?,
        member(METHOD, SHIM, ASKS_MORE)?,
        member(METHOD, SHIM, IS_TAKEN)?,
    ];
    let next = member(INTERFACE_METHOD, CALLBACK, ("getNextValue", TO_HOLDER))?;
    let kind = member(FIELD, class, ("returnClass", "Ljava/lang/Class;"))?;
    let holder = member(METHOD, HELPER, ("getIntegralDataTypeHolder", OF_CLASS))?;
    let begins = member(INTERFACE_METHOD, HOLDER, ("initialize", INITIALIZE))?;
    let value = member(
        INTERFACE_METHOD,
        HOLDER,
        ("makeValue", "()Ljava/lang/Number;"),
    )?;
    let original = member(METHOD, class, (ORIGINAL, DESCRIPTOR))?;
    let long = member(METHOD, NUMBER, ("longValue", "()J"))?;
    let number = constants.class(NUMBER)?.to_be_bytes();
    let mut put = |bytes: &[u8]| all.extend_from_slice(bytes);
    put(&code::call(number_of));
    put(&[code::ISTORE_2, code::ILOAD_2, code::ALOAD_1]);
    put(&code::call(given));
    put(&[code::LSTORE_3, code::LLOAD_3, code::LCONST_0, code::LCMP]);
    put(&code::jump(code::IFLT, 13, MAKES));
    put(&[code::ALOAD_1]);
    put(&code::call(asks_more));
    put(&code::jump(code::IFEQ, 20, GIVES));
    put(&[code::ALOAD_1]);
    put(&[code::INVOKEINTERFACE, next[0], next[1], 1, 0, code::POP]);
    put(&code::jump(code::GOTO, 30, ASKS));
    put(&[code::ALOAD_0, code::GETFIELD, kind[0], kind[1]]);
    put(&code::call(holder));
    put(&[code::LLOAD_3]);
    put(&[code::INVOKEINTERFACE, begins[0], begins[1], 3, 0]);
    put(&[code::INVOKEINTERFACE, value[0], value[1], 1, 0]);
    put(&[code::ARETURN, code::ALOAD_0, code::ALOAD_1]);
    put(&[code::INVOKESPECIAL, original[0], original[1]]);
    put(&[code::ASTORE, MADE, code::ALOAD, MADE]);
    put(&[code::CHECKCAST, number[0], number[1]]);
    put(&[code::INVOKEVIRTUAL, long[0], long[1]]);
    put(&[code::ILOAD_2, code::ALOAD_1]);
    put(&code::call(is_taken));
    put(&code::jump(code::IFNE, 72, MAKES));
    put(&[code::ALOAD, MADE, code::ARETURN]);
    Some(all)
}
