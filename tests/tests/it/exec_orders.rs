//! What `runtime::sync` writes down about acquisitions, judged by the definitions in
//! `hindcast_order::acquisitions`.
//!
//! `sync_history` tells which lock each of its threads had as its how-manieth holder. From that the
//! execution is built as the paper defines it, and what was recorded must order it so: the edges
//! are happens-before and no more, entry by entry what the specified recorder writes; the other
//! orders hold at least that, tickets and clocks a total one. Of the other programs only the logs
//! are known: whatever is waited for happened, and every schedule that the log admits comes to the
//! end.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hindcast_execlog::Kind;
use hindcast_order::acquisitions::{
    Acquisition, Entry, Event, Execution, Order, Owner, Position, Recorder, Recording, Relation,
    Replayer, Resource, Thread, Turn,
};
use hindcast_tests::exec::{Program, Recorded, Scene, programs};

const PROGRAMS: [&str; 8] = [
    "sync_condition",
    "sync_cpp",
    "sync_everything",
    "sync_handlers",
    "sync_mutex",
    "sync_rounds",
    "sync_rwlock",
    "sync_stdio",
];
const ORDERS: [(&str, Order); 4] = [
    ("edge", Order::Edge),
    ("relaxed", Order::Relaxed),
    ("total", Order::Total),
    ("vector", Order::Vector),
];

/// What a program wrote, and what the threads of its first process wrote down about acquisitions.
fn recorded(program: &str, name: &str, order: Order) -> (String, Recording) {
    let scene = Scene::new(&format!("{program}-{name}-judged"));
    let command = Program::new(programs::compiled(program)).options(["--order", name]);
    let outcome = scene.record(&command);
    outcome.assert_code(0);
    let recording = recording(order, &Recorded::in_folder(scene.recording()).logs());
    (outcome.text(), recording)
}

/// What the threads of the first process wrote down about their acquisitions.
fn recording(order: Order, logs: &BTreeMap<String, PathBuf>) -> Recording {
    let mut threads: Vec<Vec<Entry>> = Vec::new();
    for (name, log) in logs {
        if let Some(number) = name.strip_prefix("p0/t") {
            let number: usize = number.parse().expect("a thread's number");
            threads.resize(threads.len().max(number + 1), Vec::new());
            threads[number] = Recorded::each(log, |event| entry(&event))
                .into_iter()
                .flatten()
                .collect();
        }
    }
    Recording {
        order,
        before: vec![0; threads.len()],
        logs: threads,
    }
}

fn entry(event: &hindcast_execlog::Event) -> Option<Entry> {
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let word = |bytes: &[u8]| u32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"));
    Some(match Kind::from_number(event.kind)? {
        Kind::Relaxed => Entry::Relaxed(word(event.payload)),
        Kind::Edge => Entry::Edge(Owner(number(event.payload)).position().expect("an owner")),
        Kind::Ticket => Entry::Ticket(number(event.payload)),
        Kind::Clock => {
            let owners = event.payload[4..]
                .chunks_exact(8)
                .map(|bytes| Owner(number(bytes)));
            // Threads that had made no acquisition yet.
            let seen = owners.filter_map(Owner::position);
            Entry::Clock(seen.filter(|position| position.sequence > 0).collect())
        }
        Kind::Busy => Entry::Busy(word(event.payload) as i32),
        _ => return None,
    })
}

/// How many acquisitions each thread made.
fn counts(recording: &Recording) -> Vec<u64> {
    let acquisitions = |entry: &Entry| match entry {
        Entry::Relaxed(run) => u64::from(*run),
        Entry::Busy(_) => 0,
        _ => 1,
    };
    let logs = recording.logs.iter();
    logs.map(|log| log.iter().map(acquisitions).sum()).collect()
}

/// A replay by a scheduler that lets any thread go on whose turn it is.
fn replayed(recording: &Recording, seed: u64) -> Vec<Position> {
    let mut luck = seed;
    let mut replayer = Replayer::new(recording);
    let mut schedule = Vec::new();
    while !replayer.is_finished() {
        let threads = (0..recording.logs.len() as u16).map(Thread);
        let ready: Vec<_> = threads
            .filter(|&thread| matches!(replayer.turn(thread), Turn::Now | Turn::Busy(_)))
            .collect();
        assert!(!ready.is_empty(), "everybody waits, with luck {seed}");
        luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let thread = ready[(luck >> 33) as usize % ready.len()];
        if let Turn::Busy(_) = replayer.turn(thread) {
            replayer.failed(thread);
        } else {
            replayer.acquired(thread);
            let sequence = replayer.sequence(thread);
            schedule.push(Position { thread, sequence });
        }
    }
    schedule
}

#[test]
fn what_is_waited_for_happened_and_every_admissible_schedule_comes_to_the_end() {
    for program in PROGRAMS {
        for (name, order) in ORDERS {
            let (_, recording) = recorded(program, name, order);
            let counts = counts(&recording);
            assert!(counts.iter().sum::<u64>() > 50, "{program}: {counts:?}");
            for (first, second) in recording.edges() {
                let made = counts[first.thread.index()];
                assert!(
                    first.sequence <= made,
                    "{program}, {name}: {second} comes after {first} of {made}"
                );
            }
            for seed in 0..2 {
                replayed(&recording, seed);
            }
        }
    }
}

/// The locks of `sync_history`.
const LOCKS: u32 = 6;
/// A thread of it acquires something of the runtime's own when it starts and when it ends.
const AROUND: usize = 1;

/// What `sync_history` tells, as an execution. Its first thread, which only starts and prints, is
/// left out; each other one has something of its own in place of what it acquires when it starts
/// and when it ends.
fn history(text: &str) -> Execution {
    let mut steps: Vec<Vec<(u32, u32)>> = Vec::new();
    for line in text.lines() {
        let numbers: Vec<u32> = line
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let [thread, lock, holder] = numbers[..] else {
            panic!("{line}")
        };
        steps.resize_with(steps.len().max(thread as usize + 1), Vec::new);
        steps[thread as usize].push((lock, holder));
    }
    let mut execution = Execution::new();
    let threads = || (1..).map(Thread).zip(&steps);
    let own = |thread: Thread| Resource(LOCKS + u32::from(thread.0));
    for (thread, _) in threads() {
        execution.acquired(thread, own(thread));
    }
    // Some order that gives each lock its holders one after the other.
    let (mut places, mut holders) = (vec![0; steps.len()], [0; LOCKS as usize]);
    while execution.len() < steps.len() + steps.iter().map(Vec::len).sum::<usize>() {
        let before = execution.len();
        for ((thread, steps), place) in threads().zip(&mut places) {
            while let Some(&(lock, holder)) = steps.get(*place)
                && holders[lock as usize] == holder
            {
                execution.acquired(thread, Resource(lock));
                holders[lock as usize] += 1;
                *place += 1;
            }
        }
        assert_ne!(
            execution.len(),
            before,
            "the program's history goes in a circle"
        );
    }
    for (thread, _) in threads() {
        execution.acquired(thread, own(thread));
    }
    execution
}

/// What [`Recorder`] would have written about an execution, by thread and acquisition.
fn specified(execution: &Execution, order: Order, threads: usize) -> Vec<Vec<Entry>> {
    let mut recorder = Recorder::new(order, threads);
    let mut owners: BTreeMap<Resource, Owner> = BTreeMap::new();
    for (_, Acquisition { thread, resource }) in execution.events() {
        recorder.acquired(thread, owners.entry(resource).or_default());
    }
    one_by_one(&recorder.finish())
}

/// Entries by thread and acquisition. What the runtime itself acquires around a thread is left out.
fn one_by_one(recording: &Recording) -> Vec<Vec<Entry>> {
    let single = |entry: &Entry| match entry {
        Entry::Relaxed(run) => vec![Entry::Relaxed(1); *run as usize],
        other => vec![other.clone()],
    };
    let logs = recording.logs[1..].iter();
    logs.map(|log| {
        let all: Vec<_> = log.iter().flat_map(single).collect();
        all[AROUND..all.len() - AROUND].to_vec()
    })
    .collect()
}

/// What a recording makes a replay obey among these events, the first thread aside.
fn enforced(
    recording: &Recording,
    execution: &Execution,
    events: &BTreeMap<Position, Event>,
) -> Relation {
    let mut others = recording.clone();
    others.logs[0].clear();
    let edges = others.edges().into_iter();
    let edges =
        edges.filter_map(|(first, second)| Some((*events.get(&first)?, *events.get(&second)?)));
    execution.closure(execution.program_order().into_iter().chain(edges))
}

#[test]
fn the_runtime_records_what_the_definitions_say() {
    for (name, order) in ORDERS {
        let (text, recording) = recorded("sync_history", name, order);
        let execution = history(&text);
        let mut made = vec![0; recording.logs.len()];
        let events: BTreeMap<Position, Event> = execution
            .events()
            .map(|(event, Acquisition { thread, .. })| {
                made[thread.index()] += 1;
                let sequence = made[thread.index()];
                (Position { thread, sequence }, event)
            })
            .collect();
        assert_eq!(made[1..], counts(&recording)[1..], "{name}");

        let is_lock = |event: Event| execution.acquisition(event).resource.0 < LOCKS;
        // What a thread acquires when it starts and ends is shared. Edges between these put a late
        // thread behind all that an early one did.
        let mut judged = events.clone();
        judged.retain(|_, event| order != Order::Edge || is_lock(*event));
        let enforced = enforced(&recording, &execution, &judged);
        let partial = execution.partial_order();
        assert!(enforced.is_strict(), "{name}: goes in a circle");
        assert!(partial.is_within(&enforced), "{name}: loses happens-before");
        let locks = |relation: &Relation| -> Vec<_> {
            let pairs = relation.pairs();
            pairs
                .filter(|&(first, second)| is_lock(first) && is_lock(second))
                .collect()
        };
        match order {
            Order::Edge => {
                assert_eq!(
                    locks(&enforced),
                    locks(&partial),
                    "no more than happens-before"
                );
                assert_eq!(
                    one_by_one(&recording),
                    specified(&execution, order, recording.logs.len())
                );
                let mut forgetful = recording.clone();
                for entry in &mut forgetful.logs[1] {
                    if let Entry::Edge(_) = entry {
                        *entry = Entry::Relaxed(1);
                    }
                }
                let obeyed = self::enforced(&forgetful, &execution, &judged);
                assert!(!partial.is_within(&obeyed), "lost edges go unnoticed");
            }
            Order::Total | Order::Vector => {
                let all = execution.len();
                assert_eq!(
                    enforced.len(),
                    all * (all - 1) / 2,
                    "{name} is no total order"
                );
            }
            Order::Relaxed => assert!(enforced.len() < execution.total_order().len()),
        }
        for seed in 0..20 {
            let schedule = replayed(&recording, seed);
            let schedule = schedule.iter().filter_map(|position| events.get(position));
            assert!(
                partial.allows(schedule.copied()),
                "{name}, with luck {seed}"
            );
        }
    }
}

#[test]
fn a_recorded_total_order_has_the_weaker_ones_within() {
    let (text, recording) = recorded("sync_history", "total", Order::Total);
    let told = history(&text);
    // The same events in the order of their tickets.
    let mut events = Vec::new();
    for (thread, log) in (0..).map(Thread).zip(&recording.logs).skip(1) {
        let own = told.events().filter(|(_, event)| event.thread == thread);
        for (entry, (_, event)) in log.iter().zip(own) {
            let Entry::Ticket(ticket) = entry else {
                panic!("{entry}")
            };
            events.push((*ticket, event));
        }
    }
    events.sort_by_key(|(ticket, _)| *ticket);
    let mut execution = Execution::new();
    for (_, Acquisition { thread, resource }) in &events {
        execution.acquired(*thread, *resource);
    }
    let (partial, relaxed) = (execution.partial_order(), execution.relaxed_order());
    assert!(partial.is_within(&relaxed));
    assert!(relaxed.is_within(&execution.total_order()));
    // Renumbered, happens-before is what the program told: who held each lock after whom.
    let sequences = |execution: &Execution| {
        let mut threads: BTreeMap<Resource, Vec<Thread>> = BTreeMap::new();
        for (_, Acquisition { thread, resource }) in execution.events() {
            threads.entry(resource).or_default().push(thread);
        }
        threads
    };
    assert_eq!(sequences(&execution), sequences(&told));
}

/// Data races, atomics, spinning and futexes of their own have one outcome where one thread runs at
/// a time.
#[test]
fn races_replay_where_one_thread_runs_at_a_time() {
    for name in ["racy", "race"] {
        let scene = Scene::new(name);
        let program = Program::new(programs::compiled(name)).options(["--one-at-a-time"]);
        let recorded = scene.record(&program);
        recorded.assert_code(0);
        scene.assert_replays(&recorded);
    }
}

/// The same programs as without, and signals and children among them.
#[test]
fn programs_run_as_ever_where_one_thread_runs_at_a_time() {
    for name in [
        "sync_everything",
        "signal_threads",
        "process_threads",
        "threads",
        "cpp_threads",
        "pipes",
    ] {
        let scene = Scene::new(name);
        let program = Program::new(programs::compiled(name)).options(["--one-at-a-time"]);
        scene.assert_records_and_replays(&program).assert_code(0);
    }
}
