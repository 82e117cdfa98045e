//! A Java machine. Its generators of random numbers keep state from one request to the next, so
//! what they give to a request is replaced by what is drawn for it. Its pools of threads work for
//! who handed them the work: a server that reads requests in a loop hands each to another thread.
//!
//! ```text
//!   dlopen of the machine's ──▶ class      some methods of Java's own classes call ours
//!                           ──▶ machine    the classes are read again, with the calls
//!   SecureRandom, Random, … ──▶ shim       what the request draws, or what was to be given
//!   ThreadPoolExecutor, …   ──▶            for which request a thread works from here on
//!   VirtualThread           ──▶            likewise, with what it had read
//!   currentTimeMillis, …    ──▶            what the request read of the clock, as this code
//!   ActorCell, …            ──▶ actors     for which request an actor works off a message
//!   HikariConfig, …         ──▶            as many connections as a replay needs
//!   ConcurrentMapCache, …   ──▶ seen       what the request saw of what others put there
//!   BoundedLocalCache, …    ──▶ local      likewise, in Caffeine's
//!   EntityReadWriteAccess … ──▶ entities   likewise, in Hibernate's second-level cache
//!   Mono.cache              ──▶ copies     likewise, where a loop must not wait
//!   PooledOptimizer, …      ──▶ numbers    which of the ids that it keeps the request was given
//!   Snowflake, …            ──▶ ids        likewise, of those that are made of the time
//!   Enum, each class        ──▶ hashes     its number among all objects is that of its name
//! ```
//!
//! A Java machine loads libraries of its own when its program begins. That is the moment: the
//! thread may ask the machine for something, and no class of the program is there yet. So there is
//! no option that a user would see, and nothing that starts with another machine. Classes of the
//! program's libraries are patched when they are loaded.
//!
//! **The invariant to keep**: who works on no request gets what it would have got without.

mod actors;
mod asker;
mod class;
mod copies;
mod entities;
mod hashes;
mod ids;
mod local;
mod machine;
mod numbers;
mod seen;
mod shim;

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_char, c_int, c_void};

use class::code::{
    ALOAD_0, ALOAD_1, ALOAD_2, ALOAD_3, ARETURN, DRETURN, DUP, INVOKESPECIAL, IRETURN, LRETURN,
    LSTORE_1, RETURN,
};
use class::{Call, Called, Native, Patch};
use machine::{Machine, Reference, Thread, Tools};

use crate::process;
use crate::real::real;

/// Somebody is at it, or it is done.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// What requests draw from Java's generators is theirs.
static IS_PINNED: AtomicBool = AtomicBool::new(false);
/// What code reads of the clock is theirs, by the code that asks.
static READS_CLOCKS: AtomicBool = AtomicBool::new(false);

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
    if !ITS_OWN.iter().any(|own| name.ends_with(own)) {
        return;
    }
    if let Some(board) = process::board() {
        begin(board.replays() || board.pins().has_key());
    }
}

fn begin(is_pinned: bool) {
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
    machine::set_tools(tools);
    shim::NEEDED.store(process::connections(), Ordering::Relaxed);
    let done = thread.scoped(|| {
        shim::define(thread)?;
        let pinned = GENERATORS.iter().filter(|_| is_pinned);
        let all = pinned.chain(&POOL).chain(&PARTS).chain(&THREADS);
        let mut names: Vec<&str> = all.map(|patch| patch.class).collect();
        names.extend(CLOCKS.iter().filter(|_| is_pinned));
        names.sort_unstable();
        names.dedup();
        let find = |name| thread.find(library, &CString::new(name).ok()?);
        let classes: Vec<Reference> = names.into_iter().filter_map(find).collect();
        tools.call(reads, hashes::loads)?;
        if is_pinned {
            order_collections(thread, library);
        }
        if process::board().is_some_and(|board| board.replays()) {
            // As many as it makes where one of them is kept.
            thread.set_property(library, CARRIERS, c"256");
        }
        READS_CLOCKS.store(is_pinned, Ordering::Relaxed);
        tools.read_again(&classes)?;
        if is_pinned && let Some(object) = thread.string(c"") {
            hashes::begin(thread, tools, object);
        }
        Some(())
    });
    IS_PINNED.store(is_pinned && done.is_some(), Ordering::Relaxed);
}

/// How many of ours run the machine's own threads. In a replay a request that waits for what it saw
/// of another one keeps the one in which it runs, and that other one needs one, too.
const CARRIERS: &CStr = c"jdk.virtualThreadScheduler.parallelism";

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
    if name.is_null() || bytes.is_null() {
        return;
    }
    // What is loaded is a library's, what is read again is Java's own.
    let patches: &[&[Patch]] = match redefined.is_null() {
        true if READS_CLOCKS.load(Ordering::Relaxed) => &[
            &POOLS_OF_LIBRARIES,
            &POOLS_OF_PROGRAMS,
            &WAITERS,
            &actors::PATCHES,
            &CONNECTIONS,
            &NUMBERS,
            &CACHES,
            &local::PATCHES,
            &entities::PATCHES,
            &MONOS,
        ],
        true => &[
            &POOLS_OF_LIBRARIES,
            &POOLS_OF_PROGRAMS,
            &WAITERS,
            &actors::PATCHES,
            &CONNECTIONS,
        ],
        false if READS_CLOCKS.load(Ordering::Relaxed) => &[&GENERATORS, &POOL, &PARTS, &THREADS],
        false => &[&POOL, &PARTS, &THREADS],
    };
    // SAFETY: as JVMTI declares the function.
    unsafe {
        let Ok(name) = CStr::from_ptr(name).to_str() else {
            return;
        };
        let bytes = std::slice::from_raw_parts(bytes, usize::try_from(length).unwrap_or(0));
        let reads_clock = READS_CLOCKS.load(Ordering::Relaxed);
        let replaced = || {
            let computed = || class::computed(name, bytes);
            let passed = || class::passed(name, bytes);
            let given = || class::given(name, bytes);
            let numbered = class::numbered(name, bytes).or_else(|| class::sequenced(name, bytes));
            numbered.or_else(computed).or_else(passed).or_else(given)
        };
        let numbered = reads_clock.then(replaced).flatten();
        let so_far = numbered.as_deref().unwrap_or(bytes);
        let patched = class::patched(name, so_far, patches).or(numbered);
        let so_far = patched.as_deref().unwrap_or(bytes);
        let redirected = reads_clock.then(|| class::redirected(so_far, &NATIVES));
        let Some(patched) = redirected.flatten().or(patched) else {
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

/// What replaces what is drawn, numbers of objects included. Those of one class are together.
const GENERATORS: [Patch; 20] = [
    Patch {
        class: "java/lang/Enum",
        method: "<init>",
        descriptor: "(Ljava/lang/String;I)V",
        begins: None,
        ends: Some((RETURN, call(&[ALOAD_0, ALOAD_1], shim::MADE_CONSTANT))),
    },
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
        begins: Some(call(&[], shim::MAKES_CALENDAR)),
        ends: Some((RETURN, call(&[], shim::MADE_CALENDAR))),
    },
    seed("java/util/Random", "<init>", INVOKESPECIAL, shim::SEED),
    seed("java/util/SplittableRandom", "<init>", LSTORE_1, shim::SEED),
    Patch {
        descriptor: "()J",
        ..seed(
            "java/util/concurrent/ThreadLocalRandom",
            "nextSeed",
            LRETURN,
            shim::NEXT_SEED,
        )
    },
    next_bytes("sun/security/provider/NativePRNG"),
    seed_bytes("sun/security/provider/NativePRNG"),
    next_bytes("sun/security/provider/NativePRNG$Blocking"),
    seed_bytes("sun/security/provider/NativePRNG$Blocking"),
    next_bytes("sun/security/provider/NativePRNG$NonBlocking"),
    seed_bytes("sun/security/provider/NativePRNG$NonBlocking"),
    next_bytes("sun/security/provider/DRBG"),
    Patch {
        ends: Some((RETURN, call(&[ALOAD_0, ALOAD_1], shim::FILL_UNLESS_SEEDED))),
        ..next_bytes("sun/security/provider/SecureRandom")
    },
    Patch {
        method: "engineSetSeed",
        begins: None,
        ends: Some((RETURN, call(&[ALOAD_0], shim::WAS_SEEDED))),
        ..next_bytes("sun/security/provider/SecureRandom")
    },
];

/// The runtime's own classes that read the clock for the program.
const CLOCKS: [&str; 5] = [
    "java/time/Clock",
    "java/time/Clock$SystemClock",
    "java/util/Calendar",
    "java/util/Date",
    "java/util/GregorianCalendar",
];

/// What they and the program read it by.
const NATIVES: [Native; 2] = [
    Native {
        class: "java/lang/System",
        method: shim::MILLIS,
    },
    Native {
        class: "jdk/internal/misc/VM",
        method: shim::ADJUSTMENT,
    },
];

/// Java's own pool of threads: it is handed work, and a thread of it begins and ends some. What is
/// scheduled for later goes another way.
const POOL: [Patch; 5] = {
    let [handed, begins, ends] = pool("java/util/concurrent/ThreadPoolExecutor");
    [
        handed,
        begins,
        ends,
        scheduled("delayedExecute", shim::HANDED_WORK),
        scheduled("reExecutePeriodic", shim::IS_DONE_AGAIN),
    ]
};

const fn scheduled(method: &'static str, calls: Called) -> Patch {
    Patch {
        class: "java/util/concurrent/ScheduledThreadPoolExecutor",
        method,
        descriptor: "(Ljava/util/concurrent/RunnableScheduledFuture;)V",
        begins: Some(call(&[ALOAD_1], calls)),
        ends: None,
    }
}

/// Parts of a computation, which are handed to any pool, or to threads that are made for them.
const PARTS: [Patch; 7] = [
    part("java/util/concurrent/CompletableFuture$AsyncRun"),
    runs("java/util/concurrent/CompletableFuture$AsyncRun"),
    part("java/util/concurrent/CompletableFuture$AsyncSupply"),
    runs("java/util/concurrent/CompletableFuture$AsyncSupply"),
    // What comes next is made for the request for which the computation is.
    Patch {
        class: "java/util/concurrent/CompletableFuture$UniCompletion",
        method: "<init>",
        descriptor: "(Ljava/util/concurrent/Executor;Ljava/util/concurrent/CompletableFuture;\
                     Ljava/util/concurrent/CompletableFuture;)V",
        begins: None,
        ends: Some((RETURN, call(&[ALOAD_0], shim::HANDED_WORK))),
    },
    runs("java/util/concurrent/CompletableFuture$Completion"),
    Patch {
        method: "exec",
        descriptor: "()Z",
        ends: Some((IRETURN, call(&[ALOAD_0], shim::ENDED_PART))),
        ..runs("java/util/concurrent/CompletableFuture$Completion")
    },
];

/// Threads that the machine runs in a few threads of the system.
const THREADS: [Patch; 3] = [
    Patch {
        class: "java/lang/VirtualThread",
        method: "start",
        descriptor: "(Ljdk/internal/vm/ThreadContainer;)V",
        begins: Some(call(&[ALOAD_0], shim::STARTED)),
        ends: None,
    },
    Patch {
        class: "java/lang/VirtualThread",
        method: "runContinuation",
        descriptor: "()V",
        begins: Some(call(&[ALOAD_0], shim::GOES_ON)),
        ends: None,
    },
    // From here on another thread may go on with it.
    Patch {
        class: "java/lang/VirtualThread",
        method: "afterYield",
        descriptor: "()V",
        begins: Some(call(&[ALOAD_0], shim::WAITS)),
        ends: None,
    },
];

/// Those of libraries: of JBoss, which Quarkus, WildFly and Undertow have, of Tomcat, and the loops
/// of Netty.
const POOLS_OF_LIBRARIES: [Patch; 10] = [
    TOMCAT[0],
    TOMCAT[1],
    TOMCAT[2],
    Patch {
        class: "org/jboss/threads/EnhancedQueueExecutor$Task",
        method: "<init>",
        descriptor: "(Lorg/jboss/threads/EnhancedQueueExecutor;Ljava/lang/Runnable;Ljava/lang/Object;)V",
        begins: None,
        ends: Some((RETURN, call(&[ALOAD_0], shim::HANDED_WORK))),
    },
    Patch {
        class: "org/jboss/threads/EnhancedQueueExecutor$Task",
        method: "run",
        descriptor: "()V",
        begins: Some(call(&[ALOAD_0], shim::BEGINS)),
        ends: None,
    },
    handed("io/netty/util/concurrent/SingleThreadEventExecutor"),
    loops("()Z"),
    loops("(J)Z"),
    Patch {
        method: "schedule",
        descriptor: "(Lio/netty/util/concurrent/ScheduledFutureTask;)",
        ..handed("io/netty/util/concurrent/AbstractScheduledEventExecutor")
    },
    Patch {
        class: "io/netty/util/concurrent/AbstractEventExecutor",
        method: "runTask",
        descriptor: "(Ljava/lang/Runnable;)V",
        begins: Some(call(&[ALOAD_0], shim::BEGINS_WORK)),
        ends: Some((RETURN, call(&[], shim::ENDED_WORK))),
    },
];

/// What waits for something that another request may bring about, and goes on in its thread: who
/// waits for a connection of a pool of Reactor's, who listens to a future of Vert.x, in versions 5
/// and 4, its requests behind another one of their connection, and coroutines of Kotlin. Blocking
/// work of a loop of Vert.x waits in a queue of the loop's, which one thread of a pool works off.
const WAITERS: [Patch; 15] = [
    waits(
        WORKER_TASK,
        "(Lio/vertx/core/spi/metrics/PoolMetrics;Ljava/lang/Object;)V",
    ),
    Patch {
        class: WORKER_TASK,
        method: "run",
        descriptor: "()V",
        begins: Some(call(&[ALOAD_0], shim::BEGINS)),
        ends: None,
    },
    waits(
        BORROWER,
        "(Lreactor/core/CoreSubscriber;Lreactor/pool/AbstractPool;Ljava/time/Duration;)V",
    ),
    goes_on(
        BORROWER,
        "deliver",
        "(Lreactor/pool/AbstractPool$AbstractPooledRef;)V",
        &[ALOAD_0],
    ),
    goes_on(BORROWER, "fail", "(Ljava/lang/Throwable;)V", &[ALOAD_0]),
    listener("(Lio/vertx/core/Completable;)V"),
    listener("(Lio/vertx/core/impl/future/Listener;)V"),
    goes_on(
        "io/vertx/core/impl/future/FutureBase",
        "emitResult",
        "(Ljava/lang/Object;Ljava/lang/Throwable;Lio/vertx/core/Completable;)V",
        &[ALOAD_3],
    ),
    goes_on(
        "io/vertx/core/impl/future/FutureBase",
        "emitSuccess",
        "(Ljava/lang/Object;Lio/vertx/core/impl/future/Listener;)V",
        &[ALOAD_2],
    ),
    goes_on(
        "io/vertx/core/impl/future/FutureBase",
        "emitFailure",
        "(Ljava/lang/Throwable;Lio/vertx/core/impl/future/Listener;)V",
        &[ALOAD_2],
    ),
    Patch {
        class: "io/vertx/core/http/impl/Http1xServerRequest",
        method: "enqueue",
        descriptor: "(Lio/vertx/core/http/impl/Http1xServerRequest;)V",
        begins: Some(call(&[ALOAD_1], shim::HANDED_WORK)),
        ends: None,
    },
    goes_on(
        "io/vertx/core/http/impl/Http1xServerConnection",
        "handleNext",
        "(Lio/vertx/core/http/impl/Http1xServerRequest;)V",
        &[ALOAD_1],
    ),
    waits("kotlinx/coroutines/DispatchedTask", "(I)V"),
    goes_on(
        "kotlinx/coroutines/DispatchedTask",
        "run",
        "()V",
        &[ALOAD_0],
    ),
    goes_on(
        "kotlinx/coroutines/DispatchedTaskKt",
        "resume",
        "(Lkotlinx/coroutines/DispatchedTask;Lkotlin/coroutines/Continuation;Z)V",
        &[ALOAD_0],
    ),
];

const WORKER_TASK: &str = "io/vertx/core/impl/WorkerTask";
const BORROWER: &str = "reactor/pool/AbstractPool$Borrower";

/// Pools of connections: HikariCP, Tomcat's, Commons' and with it DBCP's, and Agroal, which Quarkus
/// has. In a replay more requests may hold one and wait than originally, and what they wait for
/// needs one. Where a pool asks how many it may have, it is told that many.
const CONNECTIONS: [Patch; 6] = [
    most("io/r2dbc/pool/ConnectionPoolConfiguration", "getMaxSize"),
    most("io/vertx/sqlclient/PoolOptions", "getMaxSize"),
    most("com/zaxxer/hikari/HikariConfig", "getMaximumPoolSize"),
    most("org/apache/tomcat/jdbc/pool/PoolProperties", "getMaxActive"),
    most(
        "org/apache/commons/pool2/impl/BaseGenericObjectPool",
        "getMaxTotal",
    ),
    most(
        "io/agroal/api/configuration/supplier/AgroalConnectionPoolConfigurationSupplier$1",
        "maxSize",
    ),
];

/// Generators of Hibernate's ids, which take many from the database at a time, and what asks it.
const NUMBERS: [Patch; 4] = [
    numbers("org/hibernate/id/enhanced/SequenceStyleGenerator"),
    numbers("org/hibernate/id/enhanced/TableGenerator"),
    // What asks has no name.
    Patch {
        class: "",
        method: "getNextValue",
        descriptor: "()Lorg/hibernate/id/IntegralDataTypeHolder;",
        begins: Some(call(&[ALOAD_0], shim::ASKED)),
        ends: None,
    },
    Patch {
        class: "org/eclipse/persistence/sequencing/StandardSequence",
        method: "getGeneratedVector",
        descriptor: "(Lorg/eclipse/persistence/internal/databaseaccess/Accessor;\
                     Lorg/eclipse/persistence/internal/sessions/AbstractSession;\
                     Ljava/lang/String;I)",
        begins: Some(call(&[ALOAD_2], shim::ASKED)),
        ends: None,
    },
];

/// Spring's caches of objects in the process.
const CACHES: [Patch; 4] = [
    Patch {
        class: "org/springframework/cache/support/AbstractValueAdaptingCache",
        method: "get",
        descriptor: "(Ljava/lang/Object;)Lorg/springframework/cache/Cache$ValueWrapper;",
        begins: None,
        ends: Some((ARETURN, call(&[ALOAD_0, ALOAD_1], shim::SEEN))),
    },
    cache(
        "org/springframework/cache/caffeine/CaffeineCache",
        shim::PUTS,
    ),
    cache(
        "org/springframework/cache/concurrent/ConcurrentMapCache",
        shim::PUTS,
    ),
    cache(
        "org/springframework/cache/jcache/JCacheCache",
        shim::PUTS_COPY,
    ),
];

/// Reactor's caches of what a source gives.
const MONOS: [Patch; 8] = [
    made_mono("(Lreactor/core/publisher/Mono;)V"),
    made_mono(
        "(Lreactor/core/publisher/Mono;Ljava/time/Duration;Lreactor/core/scheduler/Scheduler;)V",
    ),
    made_mono(
        "(Lreactor/core/publisher/Mono;Ljava/util/function/Function;\
         Lreactor/core/scheduler/Scheduler;)V",
    ),
    made_mono(
        "(Lreactor/core/publisher/Mono;Ljava/util/function/Function;\
         Ljava/util/function/Function;Ljava/util/function/Supplier;\
         Lreactor/core/scheduler/Scheduler;)V",
    ),
    Patch {
        class: MONO,
        method: "subscribeOrReturn",
        descriptor: "(Lreactor/core/CoreSubscriber;)",
        begins: Some(call(&[ALOAD_0], shim::CACHE_OF)),
        ends: None,
    },
    Patch {
        class: COORDINATOR,
        method: "<init>",
        descriptor: "(Lreactor/core/publisher/MonoCacheTime;)V",
        begins: None,
        ends: Some((RETURN, call(&[ALOAD_0], shim::ASKS))),
    },
    Patch {
        class: COORDINATOR,
        method: "add",
        descriptor: "(Lreactor/core/publisher/Operators$MonoSubscriber;)",
        begins: Some(call(&[ALOAD_0], shim::AWAITS)),
        ends: None,
    },
    Patch {
        class: COORDINATOR,
        method: "signalCached",
        descriptor: "(Lreactor/core/publisher/Signal;)V",
        begins: Some(call(&[ALOAD_0, ALOAD_1], shim::HAS_GIVEN)),
        ends: None,
    },
];

const MONO: &str = "reactor/core/publisher/MonoCacheTime";
const COORDINATOR: &str = "reactor/core/publisher/MonoCacheTime$CoordinatorSubscriber";

const fn made_mono(descriptor: &'static str) -> Patch {
    Patch {
        class: MONO,
        method: "<init>",
        descriptor,
        begins: None,
        ends: Some((RETURN, call(&[ALOAD_0], shim::MADE_CACHE))),
    }
}

const fn cache(class: &'static str, calls: Called) -> Patch {
    Patch {
        class,
        method: "put",
        descriptor: "(Ljava/lang/Object;Ljava/lang/Object;)V",
        begins: Some(call(&[ALOAD_0, ALOAD_1, ALOAD_2], calls)),
        ends: None,
    }
}

const fn numbers(class: &'static str) -> Patch {
    Patch {
        class,
        method: "generate",
        descriptor: "(Lorg/hibernate/engine/spi/SharedSessionContractImplementor;\
                     Ljava/lang/Object;)",
        begins: Some(call(&[ALOAD_0, ALOAD_2], shim::NUMBERS_FOR)),
        ends: None,
    }
}

const fn call(arguments: &'static [u8], calls: Called) -> Call {
    Call { arguments, calls }
}

/// Pools that are made after Java's, as those of Spring, need not call what they override.
const POOLS_OF_PROGRAMS: [Patch; 1] = [pool("")[1]];

const TOMCAT: [Patch; 3] = pool("org/apache/tomcat/util/threads/ThreadPoolExecutor");

/// A pool of threads, or one that was made after Java's: it is handed work, and a thread of it
/// begins and ends some.
const fn pool(class: &'static str) -> [Patch; 3] {
    [
        handed(class),
        Patch {
            class,
            method: "beforeExecute",
            descriptor: "(Ljava/lang/Thread;Ljava/lang/Runnable;)V",
            begins: Some(call(&[ALOAD_2], shim::BEGINS)),
            ends: None,
        },
        Patch {
            class,
            method: "afterExecute",
            descriptor: "(Ljava/lang/Runnable;Ljava/lang/Throwable;)V",
            begins: Some(call(&[], shim::ENDED)),
            ends: None,
        },
    ]
}

/// What is made to be run by others, later.
const fn part(class: &'static str) -> Patch {
    Patch {
        class,
        method: "<init>",
        descriptor: match class.as_bytes().last() {
            Some(b'n') => "(Ljava/util/concurrent/CompletableFuture;Ljava/lang/Runnable;)V",
            _ => "(Ljava/util/concurrent/CompletableFuture;Ljava/util/function/Supplier;)V",
        },
        begins: None,
        ends: Some((RETURN, call(&[ALOAD_0], shim::HANDED_WORK))),
    }
}

const fn runs(class: &'static str) -> Patch {
    Patch {
        class,
        method: "run",
        descriptor: "()V",
        begins: Some(call(&[ALOAD_0], shim::BEGINS_PART)),
        ends: Some((RETURN, call(&[ALOAD_0], shim::ENDED_PART))),
    }
}

/// What waits goes on, in the thread of who lets it.
const fn goes_on(
    class: &'static str,
    method: &'static str,
    descriptor: &'static str,
    what: &'static [u8],
) -> Patch {
    Patch {
        class,
        method,
        descriptor,
        begins: Some(call(what, shim::LETS_GO_ON)),
        ends: Some((RETURN, call(&[], shim::HAS_LET_GO_ON))),
    }
}

/// What is made to wait, and is known by what makes it.
const fn waits(class: &'static str, descriptor: &'static str) -> Patch {
    Patch {
        class,
        method: "<init>",
        descriptor,
        begins: None,
        ends: Some((RETURN, call(&[ALOAD_0], shim::HANDED_WORK))),
    }
}

const fn listener(descriptor: &'static str) -> Patch {
    Patch {
        class: "io/vertx/core/impl/future/FutureImpl",
        method: "addListener",
        descriptor,
        begins: Some(call(&[ALOAD_1], shim::HANDED_WORK)),
        ends: None,
    }
}

/// A loop of Netty is done with what it has read.
const fn loops(descriptor: &'static str) -> Patch {
    Patch {
        class: "io/netty/util/concurrent/SingleThreadEventExecutor",
        method: "runAllTasks",
        descriptor,
        begins: Some(call(&[], shim::LOOPS)),
        ends: None,
    }
}

const fn handed(class: &'static str) -> Patch {
    Patch {
        class,
        method: "execute",
        descriptor: "(Ljava/lang/Runnable;)V",
        begins: Some(call(&[ALOAD_1], shim::HANDED_WORK)),
        ends: None,
    }
}

const fn most(class: &'static str, method: &'static str) -> Patch {
    Patch {
        class,
        method,
        descriptor: "()I",
        begins: None,
        ends: Some((IRETURN, call(&[], shim::CONNECTIONS))),
    }
}

const fn number(class: &'static str) -> Patch {
    Patch {
        class,
        method: "random",
        descriptor: "()D",
        begins: None,
        ends: Some((DRETURN, call(&[], shim::NUMBER))),
    }
}

const fn seed(class: &'static str, method: &'static str, before: u8, calls: Called) -> Patch {
    Patch {
        class,
        method,
        descriptor: "()V",
        begins: None,
        ends: Some((before, call(&[], calls))),
    }
}

/// A class that reads the time or makes a generator when it is first used, for all requests.
const fn beginning(class: &'static str) -> Patch {
    Patch {
        class,
        method: "<clinit>",
        descriptor: "()V",
        begins: Some(call(&[], shim::STEP_ASIDE)),
        ends: Some((RETURN, call(&[], shim::STEP_BACK))),
    }
}

const fn next_bytes(class: &'static str) -> Patch {
    Patch {
        class,
        method: "engineNextBytes",
        descriptor: "([B)V",
        begins: Some(call(&[], shim::STEP_ASIDE)),
        ends: Some((RETURN, call(&[ALOAD_1], shim::FILL))),
    }
}

const fn seed_bytes(class: &'static str) -> Patch {
    Patch {
        class,
        method: "engineGenerateSeed",
        descriptor: "(I)[B",
        begins: Some(call(&[], shim::STEP_ASIDE)),
        ends: Some((ARETURN, call(&[DUP], shim::FILL))),
    }
}
