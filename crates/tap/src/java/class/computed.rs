//! Classes of Caffeine that have a value computed which they do not have.
//!
//! Their method `computeIfAbsent` gets another name, and this one takes its place:
//!
//! ```text
//!   Object computeIfAbsent(Object key, Function source, boolean a, boolean b) {
//!       Object seen = Hindcast.seenAgain(this, key);
//!       if (seen == null) {
//!           Object value = original(key, Hindcast.source(this, key, source), a, b);
//!           return Hindcast.looked(value, this, key);
//!       }
//!       if (seen != this) return seen;
//!       Object made = source.apply(key);
//!       if (made != null) { Hindcast.putsLocal(this, key, made); put(key, made); }
//!       return made;
//!   }
//! ```

use super::replacement::{INTERFACE_METHOD, Replacement};
use super::{Called, Constants, METHOD, SHIM, code};

/// What the method calls.
pub const SEEN_AGAIN: Called = (
    "seenAgain",
    "(Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;",
);
pub const SOURCE: Called = (
    "source",
    "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;",
);
pub const LOOKED: Called = (
    "looked",
    "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;",
);
pub const PUTS_LOCAL: Called = (
    "putsLocal",
    "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)V",
);

/// Where Caffeine's maps are, with and without bounds.
pub const BOUNDED: &str = "com/github/benmanes/caffeine/cache/BoundedLocalCache";
pub const UNBOUNDED: &str = "com/github/benmanes/caffeine/cache/UnboundedLocalCache";

const NAME: &str = "computeIfAbsent";
const DESCRIPTOR: &str = "(Ljava/lang/Object;Ljava/util/function/Function;ZZ)Ljava/lang/Object;";
const ORIGINAL: &str = "hindcast$computeIfAbsent";

/// The class with what a request saw or had computed seen and computed again in a replay; `None` if
/// it is none of these.
pub fn computed(class: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    if ![BOUNDED, UNBOUNDED].contains(&class) {
        return None;
    }
    let mut constants = Constants::of(bytes)?;
    let instructions = instructions(class, &mut constants)?;
    let by = Replacement {
        name: NAME,
        descriptor: DESCRIPTOR,
        original: ORIGINAL,
        stack: 6,
        variables: 6,
        instructions,
        frames: frames(&mut constants)?,
    };
    by.put_into(bytes, constants)
}

/// Where jumps lead: the source is asked, it gave nothing, and what is as ever.
const ASKS: u16 = 21;
const GAVE_NONE: u16 = 50;
const AS_EVER: u16 = 53;

/// What the variables are there: at the first, an object more.
fn frames(constants: &mut Constants) -> Option<Vec<u8>> {
    const ONE_MORE: u8 = 252;
    const OBJECT: u8 = 7;
    let behind = |place: u16, before: u16| (place - before - 1) as u8;
    let [high, low] = ASKS.to_be_bytes();
    let [class, of] = constants.class("java/lang/Object")?.to_be_bytes();
    let same = [behind(GAVE_NONE, ASKS), behind(AS_EVER, GAVE_NONE)];
    Some([&[0, 3, ONE_MORE, high, low, OBJECT, class, of], &same[..]].concat())
}

fn instructions(class: &str, constants: &mut Constants) -> Option<Vec<u8>> {
    use code::{ALOAD, ALOAD_0, ALOAD_1, ALOAD_2, ARETURN, ASTORE, ILOAD, ILOAD_3};
    const FUNCTION: &str = "java/util/function/Function";
    const FOUND: u8 = 5;
    let mut all = Vec::new();
    let mut member = |kind, class, (name, descriptor): (&str, &str)| {
        let index = constants.member(kind, class, name, descriptor)?;
        Some(index.to_be_bytes())
    };
    let [seen_again, source, looked, puts] = [
        member(METHOD, SHIM, SEEN_AGAIN)?,
        member(METHOD, SHIM, SOURCE)?,
        member(METHOD, SHIM, LOOKED)?,
        member(METHOD, SHIM, PUTS_LOCAL)?,
    ];
    let apply = ("apply", "(Ljava/lang/Object;)Ljava/lang/Object;");
    let apply = member(INTERFACE_METHOD, FUNCTION, apply)?;
    let put_there = (
        "put",
        "(Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;",
    );
    let put_there = member(METHOD, class, put_there)?;
    let original = member(METHOD, class, (ORIGINAL, DESCRIPTOR))?;
    let function = constants.class(FUNCTION)?.to_be_bytes();
    let mut put = |bytes: &[u8]| all.extend_from_slice(bytes);
    put(&[ALOAD_0, ALOAD_1]);
    put(&code::call(seen_again));
    put(&[ASTORE, FOUND, ALOAD, FOUND]);
    put(&code::jump(code::IFNULL, 9, AS_EVER));
    put(&[ALOAD, FOUND, ALOAD_0]);
    put(&code::jump(code::IF_SAME, 15, ASKS));
    put(&[ALOAD, FOUND, ARETURN]);
    put(&[ALOAD_2, ALOAD_1]);
    put(&[code::INVOKEINTERFACE, apply[0], apply[1], 2, 0]);
    put(&[ASTORE, FOUND, ALOAD, FOUND]);
    put(&code::jump(code::IFNULL, 32, GAVE_NONE));
    put(&[ALOAD_0, ALOAD_1, ALOAD, FOUND]);
    put(&code::call(puts));
    put(&[ALOAD_0, ALOAD_1, ALOAD, FOUND]);
    put(&[code::INVOKEVIRTUAL, put_there[0], put_there[1], code::POP]);
    put(&[ALOAD, FOUND, ARETURN]);
    put(&[ALOAD_0, ALOAD_1, ALOAD_0, ALOAD_1, ALOAD_2]);
    put(&code::call(source));
    put(&[code::CHECKCAST, function[0], function[1], ILOAD_3, ILOAD, 4]);
    put(&[code::INVOKESPECIAL, original[0], original[1]]);
    put(&[ALOAD_0, ALOAD_1]);
    put(&code::call(looked));
    put(&[ARETURN]);
    Some(all)
}
