//! Threads that serve connections together, and a drain that looks at their rings in turn.

use hindcast_spool::Clock;
use hindcast_taplog::{Direction, How, Told};
use hindcast_trace::Request;
use proptest::prelude::*;

use super::{BEGAN, MICRO, Stage};
use Direction::{In, Out};

/// Something that was done, and by whom it is told and when.
#[derive(Clone, Debug)]
struct Act {
    stream: u64,
    what: What,
    done: u64,
    ring: u32,
    told: u64,
}

#[derive(Clone, Debug)]
enum What {
    Accepted,
    /// With the turn of what begins there.
    Bytes(Option<u64>, Direction, Vec<u8>),
    Closed,
}

/// A connection's requests and answers, each in some pieces.
fn connection(stream: u64, requests: usize, pieces: usize) -> Vec<What> {
    let mut all = vec![What::Accepted];
    for number in 0..requests {
        let body = "body ".repeat(number * 3);
        let request = format!(
            "POST /{stream}/{number} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        // The last one ends with its connection.
        let answer = match number + 1 == requests {
            true => format!("HTTP/1.1 200 OK\r\n\r\n{stream} and {number}"),
            false => format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}x\r\n0\r\n\r\n",
                body.len() + 1
            ),
        };
        for (direction, bytes) in [(In, request), (Out, answer)] {
            let size = bytes.len().div_ceil(pieces);
            for (at, piece) in bytes.as_bytes().chunks(size).enumerate() {
                let turn = (at == 0 && direction == In).then_some(stream * 100 + number as u64);
                all.push(What::Bytes(turn, direction, piece.to_vec()));
            }
        }
    }
    all.push(What::Closed);
    all
}

/// Puts connections beside each other, and has threads do it: what a thread reads it tells within a
/// microsecond, before anybody can do anything because of it; a write may take so long that the
/// client's next bytes are read, and told, before it is told itself.
fn acts(connections: Vec<Vec<What>>, choices: &[(u8, u8, u16)]) -> Vec<Act> {
    let mut left: Vec<_> = connections
        .into_iter()
        .map(std::collections::VecDeque::from)
        .collect();
    let mut choices = choices.iter().cycle();
    let (mut now, mut free) = (BEGAN, [0u64; 4]);
    // When what was done last to each stream, in each direction, was told.
    let mut before = vec![[0u64; 2]; left.len()];
    let mut acts = Vec::new();
    while left.iter().any(|one| !one.is_empty()) {
        let &(which, ring, delay) = choices.next().unwrap();
        let there: Vec<_> = (0..left.len()).filter(|&at| !left[at].is_empty()).collect();
        let at = there[usize::from(which) % there.len()];
        let what = left[at].pop_front().unwrap();
        // What it follows from has been told.
        let after = match &what {
            What::Bytes(_, In, _) | What::Accepted => before[at][0],
            What::Bytes(_, Out, _) | What::Closed => before[at][0].max(before[at][1]),
        };
        now = (now + MICRO).max(after + 1);
        // One that is free, if need be a little later.
        let first = usize::from(ring) % free.len();
        let ring = (0..free.len()).map(|more| (first + more) % free.len());
        let ring = ring.clone().find(|&ring| free[ring] < now);
        let ring = ring.unwrap_or(first);
        now = now.max(free[ring] + 1);
        let takes = match &what {
            What::Bytes(_, Out, _) => u64::from(delay) * 10,
            _ => u64::from(delay) % MICRO,
        };
        let told = now + takes;
        free[ring] = told;
        match &what {
            What::Bytes(_, Out, _) => before[at][1] = told,
            _ => before[at][0] = told,
        }
        acts.push(Act {
            stream: at as u64 + 1,
            what,
            done: now,
            ring: ring as u32,
            told,
        });
    }
    acts
}

fn say(stage: &mut Stage, act: &Act) {
    let stream = act.stream;
    let mut told = |told: Told<'_>| {
        stage
            .streams
            .told(act.ring, std::iter::once((act.done, told)))
    };
    match &act.what {
        What::Accepted => told(Told::Opened {
            stream,
            how: How::Accepted,
            local: b"",
            peer: b"",
        }),
        What::Closed => told(Told::Closed { stream }),
        What::Bytes(turn, direction, bytes) => {
            if let Some(request) = *turn {
                told(Told::Turn { stream, request });
            }
            told(Told::Bytes {
                stream,
                direction: *direction,
                bytes,
            });
        }
    }
}

fn recorded(stage: &mut Stage) -> Vec<Request> {
    stage.finish();
    let mut requests = stage.requests();
    requests.sort_by_key(|request| request.id);
    requests
}

/// Looks at the rings every now and then: first at the clock, then at one ring after the other.
fn drained(acts: &[Act], pauses: &[(u16, u8)]) -> Stage {
    let mut stage = Stage::new();
    let mut left: Vec<std::collections::VecDeque<Act>> = vec![Default::default(); 4];
    for act in acts {
        left[act.ring as usize].push_back(act.clone());
    }
    let mut pauses = pauses.iter().cycle();
    let mut now = BEGAN;
    while left.iter().any(|ring| !ring.is_empty()) {
        let &(pause, order) = pauses.next().unwrap();
        now += u64::from(pause) + 1;
        let moment = now;
        for ring in 0..4 {
            // It takes a while.
            now += u64::from(order) * 20;
            let ring = (ring + usize::from(order)) % 4;
            while left[ring].front().is_some_and(|act| act.told <= now) {
                let act = left[ring].pop_front().unwrap();
                say(&mut stage, &act);
            }
        }
        stage.streams.until(moment, Clock::default());
        stage.now = now;
    }
    stage
}

proptest! {
    #[test]
    fn rings_in_any_order_come_to_what_was_done(
        shapes in prop::collection::vec((1..4usize, 1..5usize), 1..4),
        choices in prop::collection::vec(any::<(u8, u8, u16)>(), 1..60),
        pauses in prop::collection::vec(any::<(u16, u8)>(), 1..20),
    ) {
        let connections = shapes.iter().enumerate();
        let connections = connections.map(|(at, &(requests, pieces))| connection(at as u64 + 1, requests, pieces));
        let connections: Vec<_> = connections.collect();
        let acts = acts(connections, &choices);
        // As they were done.
        let mut direct = Stage::new();
        for act in &acts {
            say(&mut direct, act);
            direct.streams.until(act.done + 1, Clock::default());
            direct.now = act.done;
        }
        let expected = recorded(&mut direct);
        prop_assert_eq!(expected.len(), shapes.iter().map(|shape| shape.0).sum::<usize>());
        for request in &expected {
            let answered = matches!(request.response, hindcast_trace::Response::Answered { status: 200, .. });
            prop_assert!(answered, "{:?}", request);
        }
        let mut drained = drained(&acts, &pauses);
        prop_assert_eq!(recorded(&mut drained), expected);
        prop_assert_eq!(drained.seen().malformed, 0);
    }
}

/// That the test above would notice if order did not matter.
#[test]
fn what_was_told_after_the_drain_began_to_look_waits() {
    let mut stage = Stage::new();
    let act = |ring, done, what| Act {
        stream: 1,
        what,
        done,
        ring,
        told: done,
    };
    say(&mut stage, &act(0, 10, What::Accepted));
    // The first ring was looked at before this, the second one after that.
    let first = act(0, 30, What::Bytes(None, In, b"GET / HTTP/1.1\r\n".to_vec()));
    say(
        &mut stage,
        &act(1, 40, What::Bytes(None, In, b"\r\n".to_vec())),
    );
    stage.streams.until(20, Clock::default());
    say(&mut stage, &first);
    stage.streams.until(50, Clock::default());
    let answer = b"HTTP/1.1 204 No\r\n\r\n".to_vec();
    say(&mut stage, &act(1, 60, What::Bytes(None, Out, answer)));
    stage.streams.until(70, Clock::default());
    assert_eq!(stage.requests().len(), 1);
    assert_eq!(stage.seen().malformed, 0);
    stage.finish();
}
