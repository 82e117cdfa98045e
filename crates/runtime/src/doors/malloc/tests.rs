//! Laws of the replay heap, on real threads, and of the names that programs call, on the system
//! heap.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use proptest::prelude::*;

use crate::doors::malloc as exports;
use crate::heap::arena::{self, Arena, Block};
use crate::heap::replay::{self, Object, Turns};
use crate::heap::sizes::{SMALL_MAX, UNIT, class_of, units_of};
use crate::heap::space;

/// The heaps are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The order in which objects were acquired, recorded or enforced.
#[derive(Default)]
struct Order {
    /// In the order of their steps.
    done: Vec<(Object, usize)>,
    /// What must come next, by object. `None`: whatever comes.
    expected: Option<HashMap<Object, VecDeque<usize>>>,
    held: Vec<Object>,
}

#[derive(Clone)]
struct Player {
    thread: usize,
    order: Arc<(Mutex<Order>, Condvar)>,
}

impl Turns for Player {
    fn acquire<R>(&mut self, object: Object, step: impl FnOnce(&mut Self) -> R) -> R {
        let (order, changed) = &*self.order.clone();
        {
            let thread = self.thread;
            let mut order = changed
                .wait_while(order.lock().expect("no panics"), |order| {
                    let early = order.expected.as_ref().is_some_and(|all| {
                        all.get(&object).and_then(VecDeque::front) != Some(&thread)
                    });
                    early || order.held.contains(&object)
                })
                .expect("no panics");
            if let Some(expected) = &mut order.expected {
                expected.get_mut(&object).expect("just seen").pop_front();
            }
            order.done.push((object, thread));
            order.held.push(object);
        }
        let result = step(self);
        order
            .lock()
            .expect("no panics")
            .held
            .retain(|held| *held != object);
        changed.notify_all();
        result
    }
}

#[derive(Clone, Debug)]
enum Action {
    /// So many blocks of this size.
    Allocate { count: usize, bytes: usize },
    /// Some of what the thread has, oldest or newest first.
    Free { count: usize, newest: bool },
    /// Passes some of it to another thread, which frees or keeps it.
    Pass { count: usize, to: usize, keep: bool },
    /// Ends, and begins again as another thread.
    Restart,
}

#[derive(Clone, Debug)]
enum Step {
    Do(Action),
    Receive { from: usize, keep: bool },
}

/// A block, and the byte that it is full of.
#[derive(Clone, Copy)]
struct Mine {
    address: usize,
    bytes: usize,
    mark: u8,
}

impl Mine {
    fn fill(self) {
        // SAFETY: a block of that size.
        unsafe { (self.address as *mut u8).write_bytes(self.mark, self.bytes) };
    }

    fn check(self) {
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) };
        assert!(
            bytes.iter().all(|byte| *byte == self.mark),
            "a block of {} bytes at {:#x} was written to",
            self.bytes,
            self.address
        );
    }
}

fn take(arena: &mut Arena, turns: &mut Player, bytes: usize) -> usize {
    // SAFETY: the arena is this thread's.
    unsafe {
        if bytes <= SMALL_MAX {
            replay::allocate_small(arena, turns, class_of(bytes)) as usize
        } else {
            replay::take_run(arena, turns, units_of(bytes), 1).map_or(0, |run| run.address)
        }
    }
}

fn give(arena: &mut Arena, turns: &mut Player, block: Mine) {
    block.check();
    // SAFETY: as above, and the block is used no more.
    unsafe {
        let class = space::class_at(block.address - space::BASE);
        if class != 0 {
            replay::free_small(arena, turns, class, block.address as *mut Block);
        } else {
            replay::free_run(arena, turns, block.address, arena::used_run(block.address));
        }
    }
}

type Queues = Arc<(Mutex<HashMap<(usize, usize), VecDeque<Vec<Mine>>>>, Condvar)>;

/// Runs a thread's steps and returns the addresses that it got.
fn run_thread(steps: &[Step], mut turns: Player, queues: &Queues, mut restless: u64) -> Vec<usize> {
    let (queues, arrived) = &**queues;
    // SAFETY: the arena is this thread's until it is given up.
    let attach = |turns: &mut Player| unsafe { &mut *replay::attach(turns).expect("memory") };
    let mut arena = attach(&mut turns);
    let mut mine: VecDeque<Mine> = VecDeque::new();
    let mut got = Vec::new();
    let mut mark = turns.thread as u8;
    for step in steps {
        restless ^= restless << 13;
        restless ^= restless >> 7;
        restless ^= restless << 17;
        for _ in 0..restless % 4 {
            std::thread::yield_now();
        }
        match step.clone() {
            Step::Do(Action::Allocate { count, bytes }) => {
                for _ in 0..count {
                    let address = take(arena, &mut turns, bytes);
                    assert!(address != 0 && address.is_multiple_of(16));
                    got.push(address);
                    mark = mark.wrapping_add(7);
                    let block = Mine {
                        address,
                        bytes,
                        mark,
                    };
                    block.fill();
                    mine.push_back(block);
                }
            }
            Step::Do(Action::Free { count, newest }) => {
                for _ in 0..count {
                    let block = if newest {
                        mine.pop_back()
                    } else {
                        mine.pop_front()
                    };
                    let Some(block) = block else { break };
                    give(arena, &mut turns, block);
                }
            }
            Step::Do(Action::Pass { count, to, .. }) => {
                let from = mine.len() - count.min(mine.len());
                let passed = mine.split_off(from).into();
                queues
                    .lock()
                    .expect("no panics")
                    .entry((turns.thread, to))
                    .or_default()
                    .push_back(passed);
                arrived.notify_all();
            }
            Step::Do(Action::Restart) => {
                replay::detach(&mut turns, arena);
                // What an ended thread still frees.
                if let Some(block) = mine.pop_back() {
                    replay::in_commons(&mut turns, |commons, turns| {
                        give(commons.expect("memory"), turns, block)
                    });
                }
                arena = attach(&mut turns);
            }
            Step::Receive { from, keep } => {
                let key = (from, turns.thread);
                let mut queues = arrived
                    .wait_while(queues.lock().expect("no panics"), |queues| {
                        queues.get(&key).is_none_or(VecDeque::is_empty)
                    })
                    .expect("no panics");
                let passed = queues
                    .get_mut(&key)
                    .and_then(VecDeque::pop_front)
                    .expect("just seen");
                drop(queues);
                if keep {
                    mine.extend(passed);
                } else {
                    for block in passed {
                        give(arena, &mut turns, block);
                    }
                }
            }
        }
    }
    for block in mine {
        give(arena, &mut turns, block);
    }
    got
}

/// What a run gave: addresses by thread, and the order of acquisitions.
fn run(
    threads: &[Vec<Step>],
    expected: Option<&[(Object, usize)]>,
    seed: u64,
) -> (Vec<Vec<usize>>, Vec<(Object, usize)>) {
    replay::forget_everything();
    space::forget_everything();
    replay::set_several(true);
    let mut order = Order::default();
    if let Some(expected) = expected {
        let mut all: HashMap<Object, VecDeque<usize>> = HashMap::new();
        for (object, thread) in expected {
            all.entry(*object).or_default().push_back(*thread);
        }
        order.expected = Some(all);
    }
    let order = Arc::new((Mutex::new(order), Condvar::new()));
    let queues = Queues::default();
    let addresses = std::thread::scope(|scope| {
        let running: Vec<_> = threads
            .iter()
            .enumerate()
            .map(|(thread, steps)| {
                let (player, queues) = (
                    Player {
                        thread,
                        order: order.clone(),
                    },
                    &queues,
                );
                scope.spawn(move || {
                    run_thread(
                        steps,
                        player,
                        queues,
                        seed ^ ((thread as u64 + 1) * 0x9e37_79b9),
                    )
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("no panics"))
            .collect()
    });
    let done = std::mem::take(&mut order.0.lock().expect("no panics").done);
    (addresses, done)
}

/// Each thread's steps. What is passed on is received after it was sent in one order of all
/// actions, so no two threads wait for each other.
fn programs(threads: usize, actions: &[(usize, Action)]) -> Vec<Vec<Step>> {
    let mut programs = vec![Vec::new(); threads];
    for (thread, action) in actions {
        let thread = thread % threads;
        let mut action = action.clone();
        if let Action::Pass { to, keep, .. } = &mut action {
            *to = (thread + 1 + *to % (threads - 1)) % threads;
            let receive = Step::Receive {
                from: thread,
                keep: *keep,
            };
            programs[*to].push(receive);
        }
        programs[thread].push(Step::Do(action));
    }
    programs
}

fn action() -> impl Strategy<Value = Action> {
    let bytes = prop_oneof![5 => 0usize..300, 3 => 300usize..1100, 3 => 1100usize..9000, 1 => 9000usize..300_000];
    prop_oneof![
        6 => (1usize..400, bytes).prop_map(|(count, bytes)| Action::Allocate { count: if bytes > 9000 { count % 8 + 1 } else { count }, bytes }),
        3 => (1usize..500, any::<bool>()).prop_map(|(count, newest)| Action::Free { count, newest }),
        4 => (1usize..700, any::<usize>(), any::<bool>()).prop_map(|(count, to, keep)| Action::Pass { count, to: to % 64, keep }),
        1 => Just(Action::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The one law: with the same order of acquisitions, every thread gets the same addresses, whatever the threads' speed.
    #[test]
    fn addresses_follow_from_each_threads_calls_and_the_order_of_acquisitions(
        threads in 2usize..5,
        actions in prop::collection::vec((0usize..16, action()), 1..120),
        seeds in any::<[u64; 2]>(),
    ) {
        let _alone = alone();
        let programs = programs(threads, &actions);
        let (recorded, order) = run(&programs, None, seeds[0] | 1);
        let (replayed, order_again) = run(&programs, Some(&order), seeds[1] | 1);
        prop_assert_eq!(recorded, replayed);
        let by_object = |order: &[(Object, usize)]| {
            let mut all: HashMap<Object, Vec<usize>> = HashMap::new();
            for (object, thread) in order {
                all.entry(*object).or_default().push(*thread);
            }
            all
        };
        prop_assert_eq!(by_object(&order), by_object(&order_again));
    }

    /// Runs do not overlap, keep what is in them, and are all one again when everything was freed.
    #[test]
    fn free_runs_join(lengths in prop::collection::vec((1usize..200, 0u32..5), 1..300), order in any::<u64>()) {
        let _alone = alone();
        replay::forget_everything();
        space::forget_everything();
        let arena = arena(0);
        let mut used: Vec<(usize, usize)> = Vec::new();
        let mut random = order | 1;
        // SAFETY: the arena is the test's.
        unsafe {
            for (units, power) in lengths {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let aligned = 1 << power;
                let run = match arena.runs.take_free(units, aligned) {
                    Some(run) => run,
                    None => {
                        prop_assert!(arena.runs.reach_fresh(units, aligned));
                        arena.runs.take_fresh(units, aligned).expect("memory")
                    }
                };
                prop_assert!(run.address.is_multiple_of(aligned * UNIT));
                for (other, length) in &used {
                    prop_assert!(run.address + units * UNIT <= *other || other + length * UNIT <= run.address);
                }
                (run.address as *mut u8).write_bytes(0xa5, units * UNIT);
                used.push((run.address, units));
                if random % 3 == 0 {
                    let (address, units) = used.swap_remove(random as usize / 7 % used.len());
                    arena.runs.give(address, units);
                } else if random % 5 == 0 {
                    let at = random as usize / 7 % used.len();
                    let (address, units) = used[at];
                    let wanted = (random as usize / 11) % 300 + 1;
                    if wanted < units {
                        arena.runs.shorten(address, units, wanted);
                        used[at].1 = wanted;
                    } else if wanted > units && arena.runs.lengthen(address, units, wanted) {
                        used[at].1 = wanted;
                    }
                }
            }
            for (address, units) in used {
                arena.runs.give(address, units);
            }
        }
        let (_, runs) = arena.runs.free_units();
        prop_assert_eq!(runs, 1);
    }

    /// What C promises, for blocks of all sizes that are made, resized and freed in any order.
    #[test]
    fn blocks_are_aligned_and_keep_what_is_in_them(
        actions in prop::collection::vec((0u8..8, 0usize..64, 0usize..40_000, 0u32..13), 1..400),
    ) {
        let mut blocks: Vec<Mine> = Vec::new();
        let mut mark = 0u8;
        // SAFETY: blocks are used within their size and freed once.
        unsafe {
            for (kind, at, bytes, power) in actions {
                mark = mark.wrapping_add(13);
                let bytes = if at % 2 == 0 { bytes % 1500 } else { bytes };
                match kind {
                    0..=2 => {
                        let address = exports::malloc(bytes) as usize;
                        prop_assert!(address != 0 && address.is_multiple_of(16));
                        prop_assert!(exports::malloc_usable_size(address as *const _) >= bytes);
                        prop_assert_eq!(exports::malloc_usable_size(address as *const _), exports::usable_size_for(bytes));
                        blocks.push(Mine { address, bytes, mark });
                    }
                    3 => {
                        let address = exports::calloc(3, bytes / 3) as usize;
                        let block = Mine { address, bytes: bytes / 3 * 3, mark: 0 };
                        block.check();
                        blocks.push(Mine { mark, ..block });
                    }
                    4 => {
                        let alignment = 1usize << power;
                        let address = exports::memalign(alignment, bytes) as usize;
                        prop_assert!(address != 0 && address.is_multiple_of(alignment));
                        blocks.push(Mine { address, bytes, mark });
                    }
                    5 | 6 if !blocks.is_empty() => {
                        let at = at % blocks.len();
                        let block = blocks.swap_remove(at);
                        block.check();
                        let address = exports::realloc(block.address as *mut _, bytes.max(1)) as usize;
                        prop_assert!(address != 0);
                        Mine { address, bytes: block.bytes.min(bytes.max(1)), mark: block.mark }.check();
                        blocks.push(Mine { address, bytes: bytes.max(1), mark });
                    }
                    _ if !blocks.is_empty() => {
                        let at = at % blocks.len();
                        let block = blocks.swap_remove(at);
                        block.check();
                        exports::free(block.address as *mut _);
                        continue;
                    }
                    _ => continue,
                }
                if let Some(block) = blocks.last() {
                    block.fill();
                }
            }
            for block in blocks {
                block.check();
                exports::free(block.address as *mut _);
            }
        }
    }
}

fn arena(number: usize) -> &'static mut Arena {
    // SAFETY: fresh, and the test's alone.
    unsafe { &mut *Arena::create(number).expect("memory") }
}

struct Nobody;

impl Turns for Nobody {
    fn acquire<R>(&mut self, object: Object, _step: impl FnOnce(&mut Self) -> R) -> R {
        panic!("a process with one thread acquires {object:?}")
    }
}

#[test]
fn with_one_thread_nothing_is_acquired_and_memory_is_used_again() {
    let _alone = alone();
    replay::forget_everything();
    space::forget_everything();
    let turns = &mut Nobody;
    // SAFETY: the arena is the test's.
    unsafe {
        let arena = &mut *replay::attach(turns).expect("memory");
        let mut top = 0;
        for round in 0..20 {
            let blocks: Vec<usize> = (0..20_000)
                .map(|i| replay::allocate_small(arena, turns, class_of(i % 1000)) as usize)
                .collect();
            let runs: Vec<usize> = (0..200)
                .map(|i| {
                    replay::take_run(arena, turns, 5 + i % 300, 1)
                        .expect("memory")
                        .address
                })
                .collect();
            for block in blocks {
                replay::free_small(
                    arena,
                    turns,
                    space::class_at(block - space::BASE),
                    block as *mut Block,
                );
            }
            for run in runs {
                replay::free_run(arena, turns, run, arena::used_run(run));
            }
            assert!(round == 0 || arena.runs.used_to() == top, "round {round}");
            top = arena.runs.used_to();
        }
    }
}

/// One thread allocates, the other frees: after a while no more memory is used.
#[test]
fn what_another_thread_frees_comes_back() {
    let _alone = alone();
    for bytes in [48, 700, 3000, 70_000] {
        let round = 8_000_000 / bytes;
        let rounds = |count: usize| {
            let mut actions = Vec::new();
            for _ in 0..count {
                actions.push((
                    0,
                    Action::Allocate {
                        count: round,
                        bytes,
                    },
                ));
                actions.push((
                    0,
                    Action::Pass {
                        count: round,
                        to: 0,
                        keep: false,
                    },
                ));
                // So that the first thread waits until all of it was freed.
                actions.push((
                    1,
                    Action::Allocate {
                        count: 1,
                        bytes: 16,
                    },
                ));
                actions.push((
                    1,
                    Action::Pass {
                        count: 1,
                        to: 0,
                        keep: false,
                    },
                ));
            }
            let (addresses, order) = run(&programs(2, &actions), None, 1);
            let reached = addresses[0]
                .iter()
                .map(|address| (address - space::BASE) % space::RANGE_BYTES)
                .max();
            (reached.unwrap_or(0), order.len(), count * round * bytes)
        };
        let (few, ..) = rounds(4);
        let (many, acquisitions, passed) = rounds(20);
        assert!(
            many <= few + few / 4,
            "{bytes} bytes: {few:#x} after 4 rounds, {many:#x} after 20"
        );
        assert!(
            acquisitions <= 8 + passed / (16 << 10),
            "{bytes} bytes: {acquisitions} acquisitions for {passed} bytes"
        );
    }
}

/// A block that is freed twice ends the program, which is why a child tries it.
#[test]
fn what_is_freed_twice_is_noticed() {
    for bytes in [40, 4000] {
        // SAFETY: the child allocates from a heap that no other test's thread holds for long, and
        // ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::close(2);
                libc::alarm(20);
                let (block, other) = (exports::malloc(bytes), exports::malloc(bytes));
                exports::free(block);
                exports::free(other);
                exports::free(block);
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert!(
                libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT,
                "{bytes} bytes: {status:#x}"
            );
        }
    }
}

/// In a child, since the block ends in the system heap of this process.
#[test]
fn a_block_freed_in_the_other_space_is_not_given_out_again_by_its_own() {
    let _alone = alone();
    // SAFETY: the child is alone with its copy of both heaps, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            replay::forget_everything();
            space::forget_everything();
            let turns = &mut Nobody;
            let arena = &mut *replay::attach(turns).expect("memory");
            let small = replay::allocate_small(arena, turns, class_of(777)) as usize;
            let large = replay::take_run(arena, turns, 40, 1)
                .expect("memory")
                .address;
            exports::free(small as *mut _);
            exports::free(large as *mut _);
            let by_system = (0..100).any(|_| exports::malloc(777) as usize == small);
            let by_replay = (0..1000).any(|_| {
                replay::allocate_small(arena, turns, class_of(777)) as usize == small
                    || replay::take_run(arena, turns, 40, 1).is_none_or(|run| run.address == large)
            });
            libc::_exit(i32::from(!by_system) + 2 * i32::from(by_replay));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
}

#[test]
fn a_block_may_be_larger_than_a_range() {
    let _alone = alone();
    replay::forget_everything();
    space::forget_everything();
    let turns = &mut Nobody;
    // SAFETY: the arena is the test's.
    unsafe {
        let arena = &mut *replay::attach(turns).expect("memory");
        let units = (space::RANGE_BYTES + space::RANGE_BYTES / 2) / UNIT;
        let large = replay::take_run(arena, turns, units, 1)
            .expect("address space")
            .address;
        for place in [0, space::RANGE_BYTES, units * UNIT - 1] {
            *((large + place) as *mut u8) = 1;
        }
        let small = replay::allocate_small(arena, turns, 3);
        small.write(1);
        assert!(arena.owns(large - space::BASE) && arena.owns(small as usize - space::BASE));
        replay::free_run(arena, turns, large, units);
        assert_eq!(
            replay::take_run(arena, turns, units, 1)
                .expect("it was freed")
                .address,
            large
        );
    }
}

#[test]
fn large_zeroed_blocks_are_zero_when_used_again() {
    // SAFETY: blocks are used within their size and freed once.
    unsafe {
        for bytes in [5000usize, 1 << 20, (8 << 20) + 100, (8 << 20) + 4096] {
            for _ in 0..4 {
                let address = exports::calloc(1, bytes) as usize;
                Mine {
                    address,
                    bytes,
                    mark: 0,
                }
                .check();
                Mine {
                    address,
                    bytes,
                    mark: 9,
                }
                .fill();
                exports::free(address as *mut _);
            }
        }
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    // SAFETY: nothing is allocated but in the last lines.
    unsafe {
        for bytes in [usize::MAX, isize::MAX as usize, 1 << 47] {
            *libc::__errno_location() = 0;
            assert!(exports::malloc(bytes).is_null());
            assert_eq!(*libc::__errno_location(), libc::ENOMEM);
            assert!(exports::calloc(2, bytes).is_null());
            assert!(exports::memalign(64, bytes).is_null());
            assert!(exports::pvalloc(bytes).is_null());
            assert!(exports::realloc(std::ptr::null_mut(), bytes).is_null());
        }
        assert!(exports::calloc(1 << 33, 1 << 33).is_null());
        assert!(exports::reallocarray(std::ptr::null_mut(), 1 << 33, 1 << 33).is_null());
        let mut block = std::ptr::null_mut();
        assert_eq!(exports::posix_memalign(&mut block, 24, 10), libc::EINVAL);
        assert_eq!(exports::posix_memalign(&mut block, 4, 10), libc::EINVAL);
        assert_eq!(exports::posix_memalign(&mut block, 1 << 20, 10), 0);
        assert!((block as usize).is_multiple_of(1 << 20));
        exports::free(block);
        let (one, two) = (exports::malloc(0), exports::malloc(0));
        assert!(!one.is_null() && one != two);
        exports::free(one);
        exports::free(two);
        exports::free(std::ptr::null_mut());
        assert!(exports::realloc(exports::malloc(10), 0).is_null());
    }
}

#[test]
fn a_block_that_grows_by_little_moves_rarely() {
    // SAFETY: blocks are used within their size.
    unsafe {
        let (mut block, mut moves) = (exports::malloc(100), 0);
        let mut others = Vec::new();
        for bytes in (100..20_000_000).step_by(4096) {
            let new = exports::realloc(block, bytes);
            moves += usize::from(new != block);
            block = new;
            // In its way.
            others.push(exports::malloc(2000));
        }
        assert!(moves < 200, "{moves} moves");
        exports::free(block);
        for other in others {
            exports::free(other);
        }
    }
}

#[test]
fn threads_of_the_system_heap_do_not_disturb_each_other() {
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel::<Vec<Mine>>();
        for thread in 0..4u8 {
            let sender = sender.clone();
            scope.spawn(move || {
                for round in 0..200usize {
                    let blocks: Vec<Mine> = (0..50)
                        .map(|i| {
                            let bytes = (round * 37 + i * 191) % 5000;
                            // SAFETY: the block is used within its size.
                            let block = Mine {
                                address: unsafe { exports::malloc(bytes) } as usize,
                                bytes,
                                mark: thread,
                            };
                            block.fill();
                            block
                        })
                        .collect();
                    sender.send(blocks).expect("the receiver waits for all");
                }
            });
        }
        drop(sender);
        scope.spawn(move || {
            for block in receiver.into_iter().flatten() {
                block.check();
                // SAFETY: freed once.
                unsafe { exports::free(block.address as *mut _) };
            }
        });
    });
}
