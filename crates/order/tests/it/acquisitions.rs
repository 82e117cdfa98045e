//! What the orders of acquisitions are to each other, and that what recorders write down is what
//! they say it is.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect;
use hindcast_order::acquisitions::{
    Acquisition, Entry, Event, Execution, Order, Owner, Position, Recorder, Recording, Relation,
    Replayer, Resource, Thread, Turn,
};
use proptest::prelude::*;
use proptest::sample::Index;

fn execution(acquisitions: &[(u16, u32)]) -> Execution {
    let mut execution = Execution::new();
    for &(thread, resource) in acquisitions {
        execution.acquired(Thread(thread), Resource(resource));
    }
    execution
}

/// Threads have locks of their own and some in common, as programs do.
fn any_acquisition() -> impl Strategy<Value = (u16, u32)> {
    (0..4u16, 0..10u32).prop_map(|(thread, choice)| match choice {
        0..3 => (thread, choice),
        _ => (thread, 3 + thread as u32 * 7 + choice),
    })
}

fn any_execution() -> impl Strategy<Value = Execution> {
    prop::collection::vec(any_acquisition(), 0..70).prop_map(|events| execution(&events))
}

fn any_choices() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 1..40)
}

/// A record of the execution where each resource has the owner that `owner_of` says, which may be
/// another one's as well.
fn record_with(
    execution: &Execution,
    order: Order,
    owner_of: impl Fn(Resource) -> u32,
) -> Recording {
    let mut recorder = Recorder::new(order, thread_count(execution));
    let mut owners: BTreeMap<u32, Owner> = BTreeMap::new();
    for (_, Acquisition { thread, resource }) in execution.events() {
        recorder.acquired(thread, owners.entry(owner_of(resource)).or_default());
    }
    recorder.finish()
}

fn record(execution: &Execution, order: Order) -> Recording {
    record_with(execution, order, |resource| resource.0)
}

fn thread_count(execution: &Execution) -> usize {
    let threads = execution
        .events()
        .map(|(_, acquisition)| acquisition.thread.index() + 1);
    threads.max().unwrap_or(0)
}

/// By thread and number.
fn positions(execution: &Execution, recording: &Recording) -> BTreeMap<Position, Event> {
    let mut counts = recording.before.clone();
    let events = execution.events();
    events
        .map(|(event, Acquisition { thread, .. })| {
            counts[thread.index()] += 1;
            let sequence = counts[thread.index()];
            (Position { thread, sequence }, event)
        })
        .collect()
}

/// What a recording makes replay obey.
fn enforced(execution: &Execution, recording: &Recording) -> Relation {
    let events = positions(execution, recording);
    let edges = recording
        .edges()
        .into_iter()
        .map(|(first, second)| (events[&first], events[&second]));
    execution.closure(execution.program_order().into_iter().chain(edges))
}

/// A replay by a scheduler that lets any thread go on whose turn it is.
fn replay(execution: &Execution, recording: &Recording, choices: &[Index]) -> Option<Vec<Event>> {
    let events = positions(execution, recording);
    let mut replayer = Replayer::new(recording);
    let mut schedule = Vec::new();
    for choice in choices.iter().cycle() {
        let threads = (0..recording.logs.len() as u16).map(Thread);
        let ready: Vec<_> = threads
            .filter(|&thread| replayer.turn(thread) == Turn::Now)
            .collect();
        if ready.is_empty() {
            break;
        }
        let thread = *choice.get(&ready);
        replayer.acquired(thread);
        schedule.push(
            events[&Position {
                thread,
                sequence: replayer.sequence(thread),
            }],
        );
    }
    replayer.is_finished().then_some(schedule)
}

/// Happens-before as race detectors compute it: a vector clock per thread and per lock, joined when
/// the lock is taken.
fn happens_before(execution: &Execution) -> BTreeSet<(Event, Event)> {
    let mut threads: BTreeMap<Thread, BTreeSet<Event>> = BTreeMap::new();
    let mut locks: BTreeMap<Resource, BTreeSet<Event>> = BTreeMap::new();
    let mut pairs = BTreeSet::new();
    for (event, Acquisition { thread, resource }) in execution.events() {
        let known = threads.entry(thread).or_default();
        let lock = locks.entry(resource).or_default();
        known.append(lock);
        pairs.extend(known.iter().map(|&before| (before, event)));
        known.insert(event);
        *lock = known.clone();
    }
    pairs
}

fn show(recording: &Recording) -> String {
    let logs = recording.logs.iter().enumerate();
    let lines = logs.map(|(thread, log)| {
        let entries: Vec<_> = log.iter().map(Entry::to_string).collect();
        format!("  T{thread}: {}\n", entries.join(", "))
    });
    lines.collect()
}

/// The paper's Figure 1, which its Table 1 runs Algorithm 1 on: e1…e6 are its e0, e2, e4, e6, e8
/// and e9.
fn figure_1() -> Execution {
    execution(&[(0, 1), (1, 2), (1, 2), (0, 1), (0, 3), (1, 3)])
}

#[test]
fn algorithm_1_does_what_table_1_shows() {
    let (nonrelaxed, relaxed) = figure_1().relax();
    let show = |pairs: &[(Event, Event)]| {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(first, second)| format!("({first}, {second})"))
            .collect();
        pairs.join(" ")
    };
    expect!["(⊥, e1) (e1, e2) (e4, e5) (e5, e6)"].assert_eq(&show(&nonrelaxed));
    expect!["(e2, e3) (e1, e4)"].assert_eq(&show(&relaxed));
}

#[test]
fn each_order_has_its_own_log() {
    let mut lines = String::new();
    for order in Order::ALL {
        let recording = record(&figure_1(), order);
        lines += &format!(
            "{order:?}, {} words\n{}",
            recording.words(),
            show(&recording)
        );
    }
    expect![[r#"
        Total, 6 words
          T0: ticket 0, ticket 3, ticket 4
          T1: ticket 1, ticket 2, ticket 5
        Vector, 11 words
          T0: clock, clock T1#2, clock T1#2
          T1: clock T0#1, clock T0#1, clock T0#3
        Relaxed, 9 words
          T0: clock, relaxed×1, clock T1#2
          T1: clock T0#1, relaxed×1, clock T0#3
        Edge, 3 words
          T0: relaxed×3
          T1: relaxed×2, after T0#3
    "#]]
    .assert_eq(&lines);
}

/// Figure 3: T2's e3 has to come after e0, which gave it the lock. The clock makes it wait for the
/// unrelated e2 as well; the edge does not.
#[test]
fn a_clock_orders_more_than_what_it_was_written_for() {
    let mut lines = String::new();
    let figure_3 = execution(&[(1, 0), (1, 1), (1, 1), (0, 0)]);
    for order in [Order::Relaxed, Order::Edge] {
        let recording = record(&figure_3, order);
        let last: Vec<_> = enforced(&figure_3, &recording)
            .pairs()
            .filter(|pair| pair.1 == Event(4))
            .collect();
        lines += &format!(
            "{order:?}: e4 after {} others\n{}",
            last.len(),
            show(&recording)
        );
    }
    expect![[r#"
        Relaxed: e4 after 3 others
          T0: clock T1#3
          T1: clock, clock, relaxed×1
        Edge: e4 after 1 others
          T0: after T1#1
          T1: relaxed×3
    "#]]
    .assert_eq(&lines);
}

/// Whoever looks at something that was initialised comes after that, and is nobody's owner. Once is
/// enough.
#[test]
fn what_is_looked_at_keeps_its_owner() {
    let mut recorder = Recorder::new(Order::Edge, 3);
    let mut owner = Owner::NOBODY;
    recorder.acquired(Thread(0), &mut owner);
    for thread in [1, 1, 0, 2] {
        recorder.observed(Thread(thread), owner);
    }
    expect![[r#"
        logs:
          T0: relaxed×2
          T1: after T0#1, relaxed×1
          T2: after T0#1
    "#]]
    .assert_eq(&format!("logs:\n{}", show(&recorder.finish())));
}

#[test]
fn an_owner_is_a_thread_and_its_acquisition_in_one_word() {
    let position = Position {
        thread: Thread(3),
        sequence: 5,
    };
    assert_eq!(Owner::new(position).0, 0x0003_0000_0000_0005);
    assert_eq!(Owner::new(position).position(), Some(position));
    assert_eq!(Owner::NOBODY.position(), None);
    let first = Position {
        thread: Thread(0),
        sequence: 1,
    };
    assert_eq!(Owner::new(first).position(), Some(first));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Theorems 12, 13 and 16: PO ⊆ RTO ⊆ TO, and happens-before is in all of them.
    #[test]
    fn partial_is_within_relaxed_is_within_total(execution in any_execution()) {
        let [po, rto, to] = [execution.partial_order(), execution.relaxed_order(), execution.total_order()];
        prop_assert!(po.is_within(&rto) && rto.is_within(&to));
        prop_assert!(po.is_strict() && rto.is_strict() && to.is_strict());
        prop_assert_eq!(to.len(), execution.len() * (execution.len() + 1) / 2);
        prop_assert_eq!(po.pairs().collect::<BTreeSet<_>>(), happens_before(&execution));
        // All of the resources' orders, not only where the thread changes.
        let both = execution.program_order().into_iter().chain(execution.resource_order());
        prop_assert_eq!(po, execution.closure(both));
    }

    /// Algorithm 1 line by line: every event but the first of the program is the second of one
    /// pair.
    #[test]
    fn algorithm_1_relaxes_what_keeps_its_owner(execution in any_execution()) {
        let (nonrelaxed, relaxed) = execution.relax();
        let mut seen = BTreeSet::new();
        for (event, at) in execution.events() {
            let earlier = execution.events().take(event.0 as usize - 1);
            let previous = earlier.filter(|other| other.1.resource == at.resource).last();
            let pair = (previous.map_or(Event(event.0 - 1), |previous| previous.0), event);
            let same = previous.is_some_and(|previous| previous.1.thread == at.thread);
            let pairs = if same { &relaxed } else { &nonrelaxed };
            prop_assert!(pairs.contains(&pair));
            seen.insert(pair);
        }
        prop_assert_eq!(seen.len(), nonrelaxed.len() + relaxed.len());
    }

    /// An edge log says the partial order, no less and no more.
    #[test]
    fn edges_are_the_partial_order(execution in any_execution()) {
        let po = execution.partial_order();
        prop_assert_eq!(enforced(&execution, &record(&execution, Order::Edge)), po);
    }

    /// Figure 5 keeps all that Algorithm 1 keeps, and nothing that was not so.
    #[test]
    fn practical_relaxed_order_is_between_relaxed_and_total(execution in any_execution()) {
        let practical = enforced(&execution, &record(&execution, Order::Relaxed));
        let start: Vec<_> = (1..=execution.len() as u32).map(|event| (Event::START, Event(event))).collect();
        let practical = execution.closure(practical.pairs().chain(start));
        prop_assert!(execution.relaxed_order().is_within(&practical));
        prop_assert!(practical.is_within(&execution.total_order()));
    }

    /// A clock that was looked at before it was replaced, while others went on, is enough for
    /// happens-before.
    #[test]
    fn clocks_that_were_read_earlier_still_hold_happens_before(execution in any_execution(), delays in any_choices(), choices in any_choices()) {
        for order in [Order::Relaxed, Order::Vector] {
            let mut recorder = Recorder::new(order, thread_count(&execution));
            let mut owners: BTreeMap<Resource, Owner> = BTreeMap::new();
            let mut looked = vec![recorder.look()];
            for ((event, Acquisition { thread, resource }), delay) in execution.events().zip(delays.iter().cycle()) {
                // Since it got the lock: after whoever had it before, and after its own last
                // acquisition.
                let earlier = execution.events().take(event.0 as usize - 1);
                let own = earlier.filter(|(_, other)| other.thread == thread || other.resource == resource);
                let since = own.last().map_or(0, |(event, _)| event.0 as usize);
                let seen = delay.get(&looked[since..]).clone();
                recorder.acquired_having_seen(thread, owners.entry(resource).or_default(), &seen);
                looked.push(recorder.look());
            }
            let recording = recorder.finish();
            let enforced = enforced(&execution, &recording);
            prop_assert!(execution.partial_order().is_within(&enforced));
            prop_assert!(enforced.is_within(&execution.total_order()));
            prop_assert!(replay(&execution, &recording, &choices).is_some());
        }
    }

    /// What waits for nothing new is not written down. What is written down is always news.
    #[test]
    fn edges_tell_news(execution in any_execution()) {
        let recording = record(&execution, Order::Edge);
        for log in &recording.logs {
            let mut known: BTreeMap<Thread, u64> = BTreeMap::new();
            for entry in log {
                if let Entry::Edge(previous) = entry {
                    let before = known.insert(previous.thread, previous.sequence);
                    prop_assert!(before < Some(previous.sequence));
                }
            }
        }
    }

    #[test]
    fn tickets_and_clocks_are_the_total_order(execution in any_execution()) {
        for order in [Order::Total, Order::Vector] {
            let enforced = enforced(&execution, &record(&execution, order));
            prop_assert_eq!(enforced.len(), execution.len() * execution.len().saturating_sub(1) / 2);
            prop_assert!(enforced.is_within(&execution.total_order()));
        }
    }

    /// A relaxed run is an entry as well, so this is not only a matter of counting owner changes.
    #[test]
    fn logs_shrink_as_orders_weaken(execution in any_execution()) {
        let [total, vector, relaxed, edge] = Order::ALL.map(|order| record(&execution, order));
        prop_assert!(edge.words() <= relaxed.words() && relaxed.words() <= vector.words());
        prop_assert!(edge.words() <= total.words() && total.words() <= vector.words());
        let entries = |recording: &Recording| recording.logs.iter().map(Vec::len).sum::<usize>();
        prop_assert!(entries(&edge) <= entries(&relaxed));
        prop_assert!(entries(&relaxed) <= entries(&total) && entries(&total) == entries(&vector));
        prop_assert_eq!(entries(&total), execution.len());
    }

    /// A replayer lets a thread go on exactly when all is done that the relation puts before its
    /// next acquisition.
    #[test]
    fn replayers_obey_their_order_and_no_more(execution in any_execution(), choices in any_choices()) {
        for order in Order::ALL {
            let recording = record(&execution, order);
            let events = positions(&execution, &recording);
            let relation = enforced(&execution, &recording);
            let mut replayer = Replayer::new(&recording);
            let mut done = BTreeSet::from([Event::START]);
            for choice in choices.iter().cycle() {
                let mut ready = Vec::new();
                for thread in (0..recording.logs.len() as u16).map(Thread) {
                    let next = events.get(&Position { thread, sequence: replayer.sequence(thread) + 1 });
                    let may = next.map(|&next| relation.pairs().all(|(before, after)| after != next || done.contains(&before)));
                    match replayer.turn(thread) {
                        Turn::Now => prop_assert_eq!(may, Some(true)),
                        Turn::Wait(_) => prop_assert_eq!(may, Some(false)),
                        Turn::Ended => prop_assert_eq!(may, None),
                        Turn::Busy(_) => unreachable!(),
                    }
                    ready.extend(next.filter(|_| may == Some(true)).map(|&next| (thread, next)));
                }
                if ready.is_empty() {
                    break;
                }
                let &(thread, event) = choice.get(&ready);
                replayer.acquired(thread);
                done.insert(event);
            }
            prop_assert_eq!(done.len(), execution.len() + 1);
            prop_assert!(replayer.is_finished());
        }
    }

    /// Each lock goes from hand to hand as recorded, whoever the scheduler prefers; so does what
    /// happens before what.
    #[test]
    fn every_schedule_gives_each_lock_the_same_sequence(execution in any_execution(), choices in any_choices()) {
        for order in Order::ALL {
            let Some(schedule) = replay(&execution, &record(&execution, order), &choices) else {
                return Err(TestCaseError::fail(format!("{order:?} got stuck")));
            };
            let by_lock = |events: &mut dyn Iterator<Item = Event>| {
                let mut sequences: BTreeMap<Resource, Vec<Event>> = BTreeMap::new();
                for event in events {
                    sequences.entry(execution.acquisition(event).resource).or_default().push(event);
                }
                sequences
            };
            let recorded = by_lock(&mut execution.events().map(|(event, _)| event));
            prop_assert_eq!(by_lock(&mut schedule.iter().copied()), recorded);

            let mut replayed = Execution::new();
            for &event in &schedule {
                let Acquisition { thread, resource } = execution.acquisition(event);
                replayed.acquired(thread, resource);
            }
            // The bijection of Definition 14: the same position of the same thread.
            let renamed: BTreeMap<_, _> = schedule.iter().zip(1..).map(|(&event, at)| (Event(at), event)).collect();
            let happened = happens_before(&replayed).into_iter().map(|(a, b)| (renamed[&a], renamed[&b]));
            prop_assert_eq!(happened.collect::<BTreeSet<_>>(), happens_before(&execution));
        }
    }

    /// Every schedule that an order allows can come out of its replayer; what a stronger order
    /// allows, a weaker one allows.
    #[test]
    fn stronger_orders_allow_less(execution in any_execution(), choices in any_choices()) {
        let recordings = Order::ALL.map(|order| record(&execution, order));
        let relations = recordings.each_ref().map(|recording| enforced(&execution, recording));
        for (stronger, recording) in recordings.iter().enumerate() {
            let schedule = replay(&execution, recording, &choices).unwrap();
            for weaker in &relations[stronger..] {
                prop_assert!(weaker.allows(schedule.iter().copied()));
            }
        }
    }

    /// Locks that share an owner, or find the one that another lock left behind in their place,
    /// wait for more, and only for what has been.
    #[test]
    fn shared_and_stale_owners_only_add_what_points_back(execution in any_execution(), choices in any_choices(), places in 1..8u32) {
        for order in Order::ALL {
            let recording = record_with(&execution, order, |resource| resource.0 % places);
            let shared = enforced(&execution, &recording);
            prop_assert!(execution.partial_order().is_within(&shared));
            prop_assert!(shared.is_within(&execution.total_order()));
            prop_assert!(replay(&execution, &recording, &choices).is_some());
        }
    }

    /// The owner of a lock is what the parent's threads left there. They are not in the child, so
    /// nobody waits for them.
    #[test]
    fn a_forked_child_does_not_wait_for_its_parents_threads(
        before in prop::collection::vec(any_acquisition(), 1..30),
        after in prop::collection::vec(any_acquisition(), 1..30),
        lag in any_choices(),
        choices in any_choices(),
    ) {
        let parent = execution(&before);
        let (_, Acquisition { thread: forking, .. }) = parent.events().last().unwrap();
        // The child's threads are the one that forked and new ones.
        let number = |thread: u16| if Thread(thread) == forking { thread } else { thread + 4 };
        for order in Order::ALL {
            let mut owners: BTreeMap<u32, Owner> = BTreeMap::new();
            let mut recorder = Recorder::new(order, 8);
            for &(thread, resource) in &before {
                recorder.acquired(Thread(thread), owners.entry(resource).or_default());
            }
            let mut child = recorder.fork();
            for &(thread, resource) in &after {
                child.acquired(Thread(number(thread)), owners.entry(resource).or_default());
            }
            let (parent_recording, child_recording) = (recorder.finish(), child.finish());

            // In replay, the parent's other threads need not have come to where they were when it
            // forked.
            let mut replayer = Replayer::new(&parent_recording);
            let last = before.iter().filter(|event| Thread(event.0) == forking).count() as u64;
            for choice in lag.iter().cycle() {
                if replayer.sequence(forking) == last {
                    break;
                }
                let threads = (0..8).map(Thread);
                let ready: Vec<_> = threads.filter(|&thread| replayer.turn(thread) == Turn::Now).collect();
                replayer.acquired(*choice.get(&ready));
            }
            let mut replayer = replayer.fork(forking, &child_recording);
            for choice in choices.iter().cycle() {
                let threads = (0..8).map(Thread);
                let ready: Vec<_> = threads.filter(|&thread| replayer.turn(thread) == Turn::Now).collect();
                if ready.is_empty() {
                    break;
                }
                replayer.acquired(*choice.get(&ready));
            }
            prop_assert!(replayer.is_finished(), "{:?} got stuck", order);

            // Among themselves they are ordered as ever, and that includes the one that forked.
            let after: Vec<_> = after.iter().map(|&(thread, resource)| (number(thread), resource)).collect();
            let child = execution(&after);
            let enforced = enforced(&child, &child_recording);
            prop_assert!(child.partial_order().is_within(&enforced));
            prop_assert!(enforced.is_within(&child.total_order()));
        }
    }
}
