//! Methods of Hibernate whose result goes through ours: what a cache gives for a key.
//!
//! Such a method gets another name, and this one takes its place:
//!
//! ```text
//!   Object get(… key …) {
//!       return Hindcast.seenEntity(original(… key …), this, key);
//!   }
//! ```

use super::replacement::Replacement;
use super::{Called, Constants, METHOD, SHIM, code};

/// What the methods call.
pub const SEEN_ENTITY: Called = (
    "seenEntity",
    "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;",
);

/// Where Hibernate's second-level cache says what it has of objects that change, and of queries.
pub const ENTITIES: &str = "org/hibernate/cache/spi/support/AbstractReadWriteAccess";
pub const QUERIES: &str = "org/hibernate/cache/internal/QueryResultsCacheImpl";

/// A method `get`.
struct Passed {
    class: &'static str,
    descriptor: &'static str,
    /// Instructions that put what it takes on the stack, and the key.
    takes: &'static [u8],
    key: u8,
    gives: &'static str,
}

const ALL: [Passed; 3] = [
    Passed {
        class: ENTITIES,
        descriptor: "(Lorg/hibernate/engine/spi/SharedSessionContractImplementor;\
                     Ljava/lang/Object;)Ljava/lang/Object;",
        takes: &[code::ALOAD_1, code::ALOAD_2],
        key: code::ALOAD_2,
        gives: "java/lang/Object",
    },
    of_queries(
        "(Lorg/hibernate/cache/spi/QueryKey;Ljava/util/Set;\
         Lorg/hibernate/engine/spi/SharedSessionContractImplementor;)Ljava/util/List;",
    ),
    of_queries(
        "(Lorg/hibernate/cache/spi/QueryKey;[Ljava/lang/String;\
         Lorg/hibernate/engine/spi/SharedSessionContractImplementor;)Ljava/util/List;",
    ),
];

const fn of_queries(descriptor: &'static str) -> Passed {
    Passed {
        class: QUERIES,
        descriptor,
        takes: &[code::ALOAD_1, code::ALOAD_2, code::ALOAD_3],
        key: code::ALOAD_1,
        gives: "java/util/List",
    }
}

/// The class with what its methods give passed on; `None` if it is none of these.
pub fn passed(class: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut changed = None;
    for method in ALL.iter().filter(|method| method.class == class) {
        let so_far = changed.as_deref().unwrap_or(bytes);
        changed = method.put_into(so_far).or(changed);
    }
    changed
}

impl Passed {
    fn put_into(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        const ORIGINAL: &str = "hindcast$get";
        let mut constants = Constants::of(bytes)?;
        let original = constants
            .member(METHOD, self.class, ORIGINAL, self.descriptor)?
            .to_be_bytes();
        let (name, descriptor) = SEEN_ENTITY;
        let seen = constants
            .member(METHOD, SHIM, name, descriptor)?
            .to_be_bytes();
        let gives = constants.class(self.gives)?.to_be_bytes();
        let mut instructions = vec![code::ALOAD_0];
        instructions.extend(self.takes);
        instructions.extend([code::INVOKESPECIAL, original[0], original[1]]);
        instructions.extend([code::ALOAD_0, self.key]);
        instructions.extend(code::call(seen));
        instructions.extend([code::CHECKCAST, gives[0], gives[1], code::ARETURN]);
        let by = Replacement {
            name: "get",
            descriptor: self.descriptor,
            original: ORIGINAL,
            stack: 4,
            variables: 4,
            instructions,
            // There are no jumps.
            frames: vec![0, 0],
        };
        by.put_into(bytes, constants)
    }
}
