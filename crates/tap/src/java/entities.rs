//! What requests see in Hibernate's second-level cache, whatever keeps it (Ehcache, Caffeine or
//! another by JCache): entities, collections, and results of queries.
//!
//! As in [`seen`](super::seen), an object has a number, and a request sees again what it saw. It is
//! looked for where Hibernate has decided whether the transaction may see what is there. What keeps
//! the cache may give copies.

use std::ffi::CStr;

use libc::c_void;

use super::asker::hash;
use super::class::code::{ALOAD_0, ALOAD_1, ALOAD_2, ALOAD_3, ARETURN};
use super::class::{Call, Called, ENTITIES, Patch, QUERIES, SEEN_ENTITY};
use super::machine::{Reference, Thread};
use super::seen::{Slot, found, named, put_copy, who_copied};
use crate::turns;

/// Something is about to be put there.
pub const PUTS_ENTITY: Called = (
    "putsEntity",
    "(Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)V",
);

/// Of entities that do not change, and of what is not locked.
const OTHERS: &str = "org/hibernate/cache/spi/support/AbstractCachedDomainDataAccess";
const LOADED: &str = "(Lorg/hibernate/engine/spi/SharedSessionContractImplementor;\
                      Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;)Z";

pub const PATCHES: [Patch; 7] = [
    puts(ENTITIES, "putFromLoad", LOADED),
    puts(OTHERS, "putFromLoad", LOADED),
    Patch {
        class: OTHERS,
        method: "get",
        descriptor: "(Lorg/hibernate/engine/spi/SharedSessionContractImplementor;\
                     Ljava/lang/Object;)Ljava/lang/Object;",
        begins: None,
        ends: Some((
            ARETURN,
            Call {
                arguments: &[ALOAD_0, ALOAD_2],
                calls: SEEN_ENTITY,
            },
        )),
    },
    puts(
        "org/hibernate/cache/spi/support/EntityReadWriteAccess",
        "afterInsert",
        LOADED,
    ),
    puts(
        "org/hibernate/cache/spi/support/EntityReadWriteAccess",
        "afterUpdate",
        "(Lorg/hibernate/engine/spi/SharedSessionContractImplementor;Ljava/lang/Object;\
         Ljava/lang/Object;Ljava/lang/Object;Ljava/lang/Object;\
         Lorg/hibernate/cache/spi/access/SoftLock;)Z",
    ),
    puts(
        "org/hibernate/cache/spi/support/EntityReadOnlyAccess",
        "afterInsert",
        LOADED,
    ),
    Patch {
        class: QUERIES,
        method: "put",
        descriptor: "(Lorg/hibernate/cache/spi/QueryKey;Ljava/util/List;\
                     Lorg/hibernate/engine/spi/SharedSessionContractImplementor;)Z",
        begins: Some(Call {
            arguments: &[ALOAD_0, ALOAD_1, ALOAD_2],
            calls: PUTS_ENTITY,
        }),
        ends: None,
    },
];

/// They take the session, the key and the value first.
const fn puts(class: &'static str, method: &'static str, descriptor: &'static str) -> Patch {
    Patch {
        class,
        method,
        descriptor,
        begins: Some(Call {
            arguments: &[ALOAD_0, ALOAD_2, ALOAD_3],
            calls: PUTS_ENTITY,
        }),
        ends: None,
    }
}

/// The place of a key in what looks into a region; `None`: it is not known.
fn slot(thread: Thread, access: Reference, key: Reference) -> Option<Slot> {
    const REGIONS: [&CStr; 2] = [
        c"()Lorg/hibernate/cache/spi/DomainDataRegion;",
        c"()Lorg/hibernate/cache/spi/QueryResultsRegion;",
    ];
    if access.is_null() || key.is_null() {
        return None;
    }
    let name = named(thread, access, || {
        // SAFETY: what looks into a region has one, and that has a name.
        unsafe {
            let region = |of| thread.ask(access, c"getRegion", of);
            let region = REGIONS.into_iter().find_map(region)?;
            let name = thread.ask(region, c"getName", c"()Ljava/lang/String;")?;
            thread.text(name, hash)
        }
    })?;
    Slot::of(thread, name, key)
}

/// Hibernate gives this. Returns what is given instead.
pub unsafe extern "C" fn seen(
    thread: *mut c_void,
    _: Reference,
    value: Reference,
    access: Reference,
    key: Reference,
) -> Reference {
    if turns::of_code() == 0 {
        return value;
    }
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    match slot(thread, access, key) {
        Some(slot) => found(thread, slot, value, || who_copied(slot, value)),
        None => value,
    }
}

/// Something is about to be put there.
pub unsafe extern "C" fn puts_there(
    thread: *mut c_void,
    _: Reference,
    access: Reference,
    key: Reference,
    value: Reference,
) {
    // SAFETY: as the machine promises.
    let thread = unsafe { Thread::given(thread) };
    if let Some(slot) = slot(thread, access, key).filter(|_| !value.is_null()) {
        put_copy(thread, slot, value);
    }
}
