//! Whatever is told, nothing panics, and what has arrived ends.

use hindcast_spool::Clock;
use hindcast_taplog::{Direction, How, Told};
use proptest::prelude::*;

use super::Stage;

const SEEDS: [&[u8]; 8] = [
    b"POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"\x01\x01\x00\x01\x00\x08\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00\x01\x04\x00\x01\x00\x12\x06\x00\x0e\x02REQUEST_METHODGE\x00\x00\x00\x00\x00\x00\x01\x04\x00\x01\x00\x00\x00\x00",
    b"\x01\x06\x00\x01\x00\x08\x00\x00A: b\r\n\r\n\x01\x03\x00\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\x00\x17\x00\x00\x0e\x00REQUEST_METHOD\x03\x00GETHTTP",
];

/// Bytes that are nearly something.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let near = (
        0..SEEDS.len(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 0..4),
        any::<(prop::sample::Index, prop::sample::Index)>(),
        any::<bool>(),
    );
    let near = near.prop_map(|(seed, changes, (from, to), whole)| {
        let mut bytes = SEEDS[seed].to_vec();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => bytes[at] ^= 1 << (byte % 8),
            }
        }
        let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
        match whole {
            true => bytes,
            false => bytes[from.min(to)..from.max(to)].to_vec(),
        }
    });
    prop_oneof![
        6 => near,
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..20u64, any::<u64>(), Just(u64::MAX)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_panics_and_what_arrives_ends(
        acts in prop::collection::vec((0..12u8, 0..4u64, 0..9u32, any::<bool>(), bytes(), number(), 0..50u64), 1..60),
    ) {
        let mut stage = Stage::new();
        let mut now = 1000;
        for (what, stream, ring, out, bytes, number, pause) in &acts {
            let (stream, ring, bytes) = (*stream, *ring, &bytes[..]);
            let direction = if *out { Direction::Out } else { Direction::In };
            let told = match what {
                0 => Told::Opened { stream, how: How::Found, local: b"", peer: b"" },
                1 => Told::Opened { stream, how: How::Connected, local: b"", peer: b"" },
                2 | 3 => Told::Opened { stream, how: How::Accepted, local: b"", peer: b"" },
                4 => Told::Turn { stream, request: *number },
                5 => Told::Unseen { stream, direction, length: *number },
                6 if *pause < 10 => Told::Ended { stream, direction },
                6 => Told::Closed { stream },
                7 => Told::Lost { stream: (stream > 1).then_some(stream), records: 1, bytes: 1 },
                _ => Told::Bytes { stream, direction, bytes },
            };
            // Moments may be anything, too.
            let at = match pause {
                0 => *number,
                1 => 0,
                _ => now,
            };
            stage.streams.told(ring, std::iter::once((at, told)));
            now += pause * 10_000_000;
            match pause {
                2 => stage.streams.garbled(ring),
                3 => stage.streams.ended(ring),
                4.. => stage.streams.until(now, Clock::default()),
                _ => {}
            }
        }
        stage.now = now;
        stage.finish();
    }
}
