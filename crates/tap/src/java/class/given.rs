//! Classes that make ids of the time and of what they keep: which one a request gets depends on
//! who came before.
//!
//! Their method gets another name, and this one takes its place:
//!
//! ```text
//!   UUID generate() {
//!       if (Hindcast.idAgain()) return new UUID(Hindcast.idHigh(), Hindcast.idLow());
//!       UUID made = original();
//!       Hindcast.idGiven(made.getMostSignificantBits(), made.getLeastSignificantBits());
//!       return made;
//!   }
//! ```

use super::replacement::Replacement;
use super::{Called, Constants, METHOD, SHIM, code};

/// What the methods call.
pub const ID_AGAIN: Called = ("idAgain", "()Z");
pub const ID_HIGH: Called = ("idHigh", "()J");
pub const ID_LOW: Called = ("idLow", "()J");
pub const ID_GIVEN: Called = ("idGiven", "(JJ)V");

struct Given {
    class: &'static str,
    method: &'static str,
    descriptor: &'static str,
    /// Instructions that put what it takes on the stack.
    takes: &'static [u8],
    gives: Gives,
}

#[derive(Clone, Copy)]
enum Gives {
    Long,
    Uuid,
    /// A class that is made of a number, and says it by `toLong`.
    OfLong(&'static str),
}

const ALL: [Given; 10] = [
    of_time("com/fasterxml/uuid/impl/TimeBasedGenerator"),
    of_time("com/fasterxml/uuid/impl/TimeBasedReorderedGenerator"),
    of_time("com/fasterxml/uuid/impl/TimeBasedEpochGenerator"),
    of_hibernate("org/hibernate/id/uuid/CustomVersionOneStrategy"),
    of_hibernate("org/hibernate/id/uuid/UuidVersion6Strategy"),
    of_hibernate("org/hibernate/id/uuid/UuidVersion7Strategy"),
    next_id("cn/hutool/core/lang/Snowflake"),
    next_id("com/baomidou/mybatisplus/core/toolkit/Sequence"),
    Given {
        class: "io/hypersistence/tsid/TSID$Factory",
        method: "generate",
        descriptor: "()Lio/hypersistence/tsid/TSID;",
        takes: &[],
        gives: Gives::OfLong("io/hypersistence/tsid/TSID"),
    },
    Given {
        class: "com/github/f4b6a3/tsid/TsidFactory",
        method: "create",
        descriptor: "()Lcom/github/f4b6a3/tsid/Tsid;",
        takes: &[],
        gives: Gives::OfLong("com/github/f4b6a3/tsid/Tsid"),
    },
];

const fn of_time(class: &'static str) -> Given {
    Given {
        class,
        method: "generate",
        descriptor: "()Ljava/util/UUID;",
        takes: &[],
        gives: Gives::Uuid,
    }
}

const fn of_hibernate(class: &'static str) -> Given {
    Given {
        class,
        method: "generateUuid",
        descriptor: "(Lorg/hibernate/engine/spi/SharedSessionContractImplementor;)Ljava/util/UUID;",
        takes: &[code::ALOAD_1],
        gives: Gives::Uuid,
    }
}

const fn next_id(class: &'static str) -> Given {
    Given {
        class,
        method: "nextId",
        descriptor: "()J",
        takes: &[],
        gives: Gives::Long,
    }
}

const ORIGINAL: &str = "hindcast$given";
const UUID: &str = "java/util/UUID";
/// Where what is made anew is kept.
const MADE: u8 = 4;

/// The class with the ids that a request was given given again in a replay; `None` if it is none of
/// these.
pub fn given(class: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let own = ALL.iter().find(|own| own.class == class)?;
    let mut constants = Constants::of(bytes)?;
    let again = own.gives.again(&mut constants)?;
    let mut instructions = code::call(called(&mut constants, ID_AGAIN)?).to_vec();
    // Behind the jump itself and what it passes over.
    let anew = u16::try_from(instructions.len() + 3 + again.len()).ok()?;
    instructions.extend(code::jump(code::IFEQ, 3, anew));
    instructions.extend(again);
    instructions.extend([code::ALOAD_0]);
    instructions.extend(own.takes);
    let original = constants.member(METHOD, class, ORIGINAL, own.descriptor)?;
    let [high, low] = original.to_be_bytes();
    instructions.extend([code::INVOKESPECIAL, high, low]);
    instructions.extend(own.gives.anew(&mut constants)?);
    let by = Replacement {
        name: own.method,
        descriptor: own.descriptor,
        original: ORIGINAL,
        stack: 6,
        variables: 6,
        instructions,
        // One frame, with the same variables.
        frames: vec![0, 1, u8::try_from(anew).ok()?],
    };
    by.put_into(bytes, constants)
}

fn called(constants: &mut Constants, (name, descriptor): Called) -> Option<[u8; 2]> {
    let index = constants.member(METHOD, SHIM, name, descriptor)?;
    Some(index.to_be_bytes())
}

impl Gives {
    /// Returns what was given.
    fn again(self, constants: &mut Constants) -> Option<Vec<u8>> {
        let high = code::call(called(constants, ID_HIGH)?);
        let low = code::call(called(constants, ID_LOW)?);
        let (class, made_of, descriptor) = match self {
            Self::Long => return Some([&low[..], &[code::LRETURN]].concat()),
            Self::Uuid => (UUID, [&high[..], &low].concat(), "(JJ)V"),
            Self::OfLong(class) => (class, low.to_vec(), "(J)V"),
        };
        let [high, low] = constants.class(class)?.to_be_bytes();
        let mut all = vec![code::NEW, high, low, code::DUP];
        all.extend(made_of);
        let made = constants.member(METHOD, class, "<init>", descriptor)?;
        let [high, low] = made.to_be_bytes();
        all.extend([code::INVOKESPECIAL, high, low, code::ARETURN]);
        Some(all)
    }

    /// Tells what was made, and returns it.
    fn anew(self, constants: &mut Constants) -> Option<Vec<u8>> {
        let mut of_made = |class, name| {
            let method = constants.member(METHOD, class, name, "()J")?;
            let [high, low] = method.to_be_bytes();
            Some([code::ALOAD, MADE, code::INVOKEVIRTUAL, high, low])
        };
        let (keeps, halves, returns) = match self {
            Self::Long => (
                code::LSTORE,
                vec![code::LCONST_0, code::LLOAD, MADE],
                [code::LLOAD, MADE, code::LRETURN],
            ),
            Self::Uuid => (
                code::ASTORE,
                [
                    of_made(UUID, "getMostSignificantBits")?,
                    of_made(UUID, "getLeastSignificantBits")?,
                ]
                .concat(),
                [code::ALOAD, MADE, code::ARETURN],
            ),
            Self::OfLong(class) => (
                code::ASTORE,
                [&[code::LCONST_0], &of_made(class, "toLong")?[..]].concat(),
                [code::ALOAD, MADE, code::ARETURN],
            ),
        };
        let told = code::call(called(constants, ID_GIVEN)?);
        Some([&[keeps, MADE], &halves[..], &told, &returns].concat())
    }
}
