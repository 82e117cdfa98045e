use proptest::prelude::*;

use super::*;
use crate::How;

/// Memory as a mapped file would be.
struct Memory {
    pages: Box<[Page]>,
}

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

impl Memory {
    fn new(capacity: usize) -> Self {
        let count = file_size(capacity) / 4096;
        Self {
            pages: vec![Page([0; 4096]); count].into(),
        }
    }

    fn base(&mut self) -> *mut u8 {
        self.pages.as_mut_ptr().cast()
    }

    fn ends(&mut self, capacity: usize) -> (Producer, Consumer) {
        let (base, length) = (self.base(), file_size(capacity));
        // SAFETY: the memory is zero, aligned, and outlives both in each test.
        unsafe {
            let producer = Producer::new(base, capacity);
            (producer, Consumer::new(base, length).unwrap().unwrap())
        }
    }
}

/// What was told, with its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Bytes(u64, Direction, Vec<u8>),
    Lost(Option<u64>, u64, u64),
    Other(String),
}

fn said(told: Told<'_>) -> Said {
    match told {
        Told::Bytes {
            stream,
            direction,
            bytes,
        } => Said::Bytes(stream, direction, bytes.to_vec()),
        Told::Lost {
            stream,
            records,
            bytes,
        } => Said::Lost(stream, records, bytes),
        other => Said::Other(format!("{other:?}")),
    }
}

fn take(consumer: &mut Consumer) -> Vec<(u64, Said)> {
    let mut all = Vec::new();
    consumer
        .take(|at, told| all.push((at, said(told))))
        .unwrap();
    all
}

fn bytes(stream: u64, bytes: &[u8]) -> Told<'_> {
    Told::Bytes {
        stream,
        direction: Direction::Out,
        bytes,
    }
}

#[test]
fn what_is_told_is_taken_once_and_in_order() {
    let mut memory = Memory::new(CAPACITY_MIN);
    let (mut producer, mut consumer) = memory.ends(CAPACITY_MIN);
    let all = [
        Told::Thread { tid: 12 },
        Told::Opened {
            stream: 1,
            how: How::Accepted,
            local: b"127.0.0.1:80",
            peer: b"127.0.0.1:4711",
        },
        Told::Turn {
            stream: 1,
            request: 1 << 50,
        },
        bytes(1, b"hello"),
        bytes(1, b""),
        Told::Unseen {
            stream: 1,
            direction: Direction::Out,
            length: 1 << 40,
        },
        Told::Ended {
            stream: 1,
            direction: Direction::In,
        },
        Told::Closed { stream: u64::MAX },
    ];
    for (told, at) in all.iter().zip(1..) {
        producer.tell(told, at);
    }
    let expected: Vec<_> = (1..).zip(all.map(said)).collect();
    assert_eq!(take(&mut consumer), expected);
    assert_eq!(take(&mut consumer), []);
}

#[test]
fn a_full_ring_loses_and_says_so_as_soon_as_it_can() {
    let mut memory = Memory::new(CAPACITY_MIN);
    let (mut producer, mut consumer) = memory.ends(CAPACITY_MIN);
    // Four fill it but for their heads.
    let large = vec![b'x'; CAPACITY_MIN / 4 - 32];
    for at in 0..4 {
        producer.tell(&bytes(5, &large), at);
    }
    producer.tell(&bytes(5, b"one"), 4);
    producer.tell(&bytes(5, b"three"), 5);
    assert_eq!(take(&mut consumer).len(), 4);
    producer.tell(&bytes(5, b"and on"), 6);
    assert_eq!(
        take(&mut consumer),
        [
            (6, Said::Lost(Some(5), 2, 8)),
            (6, Said::Bytes(5, Direction::Out, b"and on".to_vec())),
        ]
    );
}

#[test]
fn several_streams_that_lose_are_not_told_apart() {
    let mut memory = Memory::new(CAPACITY_MIN);
    let (mut producer, mut consumer) = memory.ends(CAPACITY_MIN);
    let large = vec![b'x'; CAPACITY_MIN - 32];
    producer.tell(&bytes(1, &large), 0);
    producer.tell(&bytes(2, b"a"), 1);
    producer.tell(&Told::Closed { stream: 3 }, 2);
    take(&mut consumer);
    assert_eq!(consumer.lost_untold(), (2, 1));
    producer.tell(&Told::Thread { tid: 1 }, 3);
    assert_eq!(take(&mut consumer)[0], (3, Said::Lost(None, 2, 1)));
    assert_eq!(consumer.lost_untold(), (0, 0));
}

#[test]
fn what_is_longer_than_the_ring_is_lost_in_pieces() {
    let mut memory = Memory::new(CAPACITY_MIN);
    let (mut producer, mut consumer) = memory.ends(CAPACITY_MIN);
    let large = vec![b'y'; 3 * CAPACITY_MIN];
    producer.tell_bytes(
        1,
        Direction::In,
        std::iter::once(&large[..]),
        large.len(),
        1,
    );
    let mut there = take(&mut consumer);
    producer.tell_bytes(1, Direction::In, std::iter::once(&large[..PIECE]), PIECE, 2);
    there.extend(take(&mut consumer));
    let (mut told, mut lost) = (0, 0);
    for (_, said) in there {
        match said {
            Said::Bytes(1, Direction::In, bytes) => told += bytes.len() as u64,
            Said::Lost(Some(1), _, bytes) => lost += bytes,
            other => panic!("{other:?}"),
        }
    }
    assert!(told > 0 && told % PIECE as u64 == 0 && lost > 0);
    assert_eq!(told + lost, (large.len() + PIECE) as u64);
    assert_eq!(consumer.lost_untold(), (0, 0));
}

#[test]
fn only_what_was_written_of_several_places_is_told() {
    let mut memory = Memory::new(CAPACITY_MIN);
    let (mut producer, mut consumer) = memory.ends(CAPACITY_MIN);
    let places: [&[u8]; 3] = [b"abc", b"", b"defg"];
    producer.tell_bytes(1, Direction::Out, places.into_iter(), 5, 1);
    producer.tell_bytes(1, Direction::Out, places.into_iter(), 0, 2);
    let told = |at, text: &[u8]| (at, Said::Bytes(1, Direction::Out, text.to_vec()));
    assert_eq!(take(&mut consumer), [told(1, b"abc"), told(1, b"de")]);
}

#[test]
fn no_ring_and_what_is_not_one() {
    let mut memory = Memory::new(CAPACITY_MIN);
    let (base, length) = (memory.base(), file_size(CAPACITY_MIN));
    // SAFETY: the memory is aligned and outlives what is made of it.
    let consumer = |length| unsafe { Consumer::new(base, length) };
    assert!(consumer(length).unwrap().is_none());
    assert!(consumer(12).unwrap().is_none());
    memory.pages[0].0[..8].copy_from_slice(b"nonsense");
    assert_eq!(consumer(length).err(), Some(Corrupt));
    memory.pages[0].0[..8].copy_from_slice(&MAGIC.to_le_bytes());
    // No capacity.
    assert_eq!(consumer(length).err(), Some(Corrupt));
    memory.pages[0].0[8..16].copy_from_slice(&(2 * CAPACITY_MIN as u64).to_le_bytes());
    // More than there is.
    assert_eq!(consumer(length).err(), Some(Corrupt));
}

#[test]
fn capacities_are_powers_of_two_within_bounds() {
    assert_eq!(capacity_of(0), CAPACITY_MIN);
    assert_eq!(capacity_of(CAPACITY_MIN + 1), 2 * CAPACITY_MIN);
    assert_eq!(capacity_of(usize::MAX), CAPACITY_MAX);
}

#[test]
fn two_threads() {
    let mut memory = Memory::new(CAPACITY_MIN);
    let (mut producer, mut consumer) = memory.ends(CAPACITY_MIN);
    const ROUNDS: u64 = 200_000;
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for at in 0..ROUNDS {
                let text = at.to_le_bytes().repeat(1 + (at % 40) as usize);
                producer.tell(&bytes(1 + at % 3, &text), at);
            }
        });
        let (mut seen, mut next) = (0, 0);
        let mut look = |consumer: &mut Consumer| {
            consumer
                .take(|at, told| match told {
                    Told::Bytes { stream, bytes, .. } => {
                        assert!(at >= next && stream == 1 + at % 3);
                        assert_eq!(bytes, at.to_le_bytes().repeat(1 + (at % 40) as usize));
                        (seen, next) = (seen + 1, at + 1);
                    }
                    Told::Lost { records, .. } => seen += records,
                    other => panic!("{other:?}"),
                })
                .unwrap();
        };
        loop {
            let closed = writer.is_finished();
            look(&mut consumer);
            if closed {
                break;
            }
        }
        seen += consumer.lost_untold().0;
        assert_eq!(seen, ROUNDS, "neither told nor counted as lost");
    });
}

proptest! {
    /// Whatever lengths and pauses: what is taken is what was told, but for what is said to be
    /// lost, and all that fits is told.
    #[test]
    fn nothing_is_lost_in_silence(steps in prop::collection::vec((0usize..40_000, any::<bool>()), 1..60)) {
        let mut memory = Memory::new(CAPACITY_MIN);
        let (mut producer, mut consumer) = memory.ends(CAPACITY_MIN);
        let (mut told, mut taken, mut lost) = (0, 0, 0);
        let mut count = |all: Vec<(u64, Said)>| for (at, said) in all {
            match said {
                Said::Bytes(1, Direction::Out, bytes) => {
                    assert!(bytes.iter().all(|&byte| byte == at as u8));
                    taken += bytes.len();
                }
                Said::Lost(Some(1), _, bytes) => lost += bytes as usize,
                other => panic!("{other:?}"),
            }
        };
        for (&(length, looks), at) in steps.iter().zip(0..) {
            let text = vec![at as u8; length];
            producer.tell_bytes(1, Direction::Out, std::iter::once(&text[..]), length, at);
            told += length;
            if looks {
                count(take(&mut consumer));
            }
        }
        count(take(&mut consumer));
        prop_assert_eq!(taken + lost + consumer.lost_untold().1 as usize, told);
    }

    /// The memory is somebody else's: whatever is in it, reading it is safe.
    #[test]
    fn garbage_is_refused_or_read_but_never_worse(
        garbage in prop::collection::vec(any::<u8>(), 1..400), at in 0usize..4096 + 300, written in any::<u64>(),
    ) {
        let mut memory = Memory::new(CAPACITY_MIN);
        let (mut producer, mut consumer) = memory.ends(CAPACITY_MIN);
        producer.tell(&bytes(1, &[0; 300]), 1);
        // SAFETY: within the memory.
        unsafe {
            let base = memory.base();
            let end = (at + garbage.len()).min(file_size(CAPACITY_MIN));
            std::ptr::copy_nonoverlapping(garbage.as_ptr(), base.add(at), end - at);
            if written % 3 == 0 {
                (*base.cast::<Header>()).written.value.store(written, Ordering::Relaxed);
            }
        }
        let _ = consumer.take(|_, _| ());
        let _ = consumer.take(|_, _| ());
    }
}
