//! What each of a runtime's own threads works on: goroutines, and tasks of tokio.
//!
//! One runs now in this thread and now in that one, so what [`turns`] knows of a thread is taken up
//! where it goes on and put down where it stops. It is known by the address of what the runtime has
//! of it. That memory may be another's later, who is told when it begins.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use hindcast_taplog::pins::mixed;

use crate::descriptors::Entry;
use crate::{memory, turns};

/// How many at a time something is known of; a power of two.
const PLACES: usize = 1 << 18;
/// So far is looked for one's place.
const STEPS: usize = 64;
/// In the place of one that has ended, which another may have.
const ENDED: usize = 1;

struct Place {
    /// Whose it is; 0: nobody's.
    of: AtomicUsize,
    /// As [`turns::packed`] has it.
    work: AtomicU64,
    /// Which one it is of those that work for a request at a time; 0: the one that has read it.
    line: AtomicU64,
    /// It has read a request itself: others hand it nothing.
    reads: AtomicBool,
    /// It has answered a request itself.
    answers: AtomicBool,
    /// Who reads the requests that it serves; 0: nobody else.
    reader: AtomicUsize,
    /// It asks a database for a session.
    connects: AtomicBool,
    /// The client whose connection it drives; 0: none.
    client: AtomicUsize,
    /// The connection of our own to which it has written last; null: to none.
    connection: AtomicPtr<Entry>,
    /// What it has started for its request: a hash of each function, and how often.
    started: [AtomicU64; FUNCTIONS],
}

/// Functions of which one knows how often it has started them.
const FUNCTIONS: usize = 4;

static PLACE: AtomicPtr<Place> = AtomicPtr::new(std::ptr::null_mut());

/// Once there is a table it stays.
pub fn begin() -> Option<()> {
    let length = PLACES.saturating_mul(size_of::<Place>());
    let places = memory::fresh(length)?;
    let (first, turn) = (std::ptr::null_mut(), (Ordering::AcqRel, Ordering::Relaxed));
    let made = PLACE.compare_exchange(first, places.cast(), turn.0, turn.1);
    if made.is_err() {
        // SAFETY: nobody has it.
        unsafe { libc::munmap(places, length) };
    }
    Some(())
}

fn places() -> &'static [Place] {
    let first = PLACE.load(Ordering::Acquire);
    match first.is_null() {
        true => &[],
        // SAFETY: there is room for so many, and zeros are one.
        false => unsafe { std::slice::from_raw_parts(first, PLACES) },
    }
}

/// `None` if there are too many, or there is none and none is made.
fn place_of(one: usize, makes: bool) -> Option<&'static Place> {
    let places = places();
    let first = mixed(0, one as u64) as usize;
    let steps =
        || (0..STEPS).filter_map(|step| places.get(first.wrapping_add(step) & (PLACES - 1)));
    for place in steps() {
        match place.of.load(Ordering::Relaxed) {
            known if known == one => return Some(place),
            0 => break,
            _ => {}
        }
    }
    // Whoever runs or starts one is alone with it, so nobody else makes the same.
    steps().filter(|_| makes).find(|place| {
        let is_free = |before: usize| {
            let turn = (Ordering::Relaxed, Ordering::Relaxed);
            place
                .of
                .compare_exchange(before, one, turn.0, turn.1)
                .is_ok()
        };
        is_free(ENDED) || is_free(0)
    })
}

/// From here on the thread does what this one does. Returns what that is.
pub fn take_up(one: usize) -> u64 {
    let work = place_of(one, false).map_or(0, |place| place.work.load(Ordering::Relaxed));
    turns::unpack(work);
    work
}

/// And from here on something else.
pub fn put_down(one: usize) {
    let work = turns::packed();
    // One that works on nothing, and has not been told of, needs no place.
    if let Some(place) = place_of(one, turns::is_packed(work)) {
        place.work.store(work, Ordering::Relaxed);
    }
    turns::ends();
}

/// What the thread works on has changed, which this one does there. It was taken up with `before`.
/// Returns what it is now: what the one was told meanwhile ([`tell`]) counts.
///
/// One that another thread may go on with as soon as it stops is not put down behind that: it would
/// be too late.
pub fn save(one: usize, before: u64) -> u64 {
    let work = turns::packed();
    let Some(place) = place_of(one, turns::is_packed(work)) else {
        return before;
    };
    let turn = (Ordering::Relaxed, Ordering::Relaxed);
    let saved = place.work.compare_exchange(before, work, turn.0, turn.1);
    saved.map_or(before, |_| work)
}

/// It has read a request, and is alone with it.
pub fn reads(one: usize) {
    if let Some(place) = place_of(one, true) {
        place.reads.store(true, Ordering::Relaxed);
    }
}

/// Whether it has ever read a request.
pub fn has_read(one: usize) -> bool {
    place_of(one, false).is_some_and(|place| place.reads.load(Ordering::Relaxed))
}

/// It answers a request.
pub fn answers(one: usize) {
    if let Some(place) = place_of(one, false) {
        place.answers.store(true, Ordering::Relaxed);
    }
}

/// It reads requests, and others serve and answer them.
fn only_reads(one: usize) -> bool {
    place_of(one, false).is_some_and(|place| {
        place.reads.load(Ordering::Relaxed)
            && !place.answers.load(Ordering::Relaxed)
            && place.connection.load(Ordering::Relaxed).is_null()
    })
}

/// It was told of a request by who has read it, and does nothing but read.
pub fn serves(one: usize, reader: usize) {
    if only_reads(reader)
        && let Some(place) = place_of(one, true)
    {
        place.reader.store(reader, Ordering::Relaxed);
    }
}

/// Whether this one reads the requests that it serves.
pub fn is_served_by(one: usize, reader: usize) -> bool {
    let own = place_of(one, false).map_or(0, |place| place.reader.load(Ordering::Relaxed));
    own != 0 && own == reader && only_reads(reader)
}

/// It drives the connection of this client.
pub fn drives(one: usize, client: usize) {
    if let Some(place) = place_of(one, true) {
        place.client.store(client, Ordering::Relaxed);
    }
}

/// The client whose connection it drives; 0: none.
pub fn client(one: usize) -> usize {
    place_of(one, false).map_or(0, |place| place.client.load(Ordering::Relaxed))
}

/// Something was handed to it for this request: from here on it works on that.
pub fn tell(one: usize, request: u64) {
    if let Some(place) = place_of(one, true) {
        let work = turns::packed_work(request);
        place.work.store(work, Ordering::Relaxed);
    }
}

/// What it was told while it runs, which was taken up with `before`.
pub fn told(one: usize, before: u64) -> Option<u64> {
    let work = place_of(one, false)?.work.load(Ordering::Relaxed);
    (work != before).then_some(work)
}

/// One begins that another has started to do this, for this request.
pub fn begins(one: usize, by: usize, request: u64, function: usize) {
    let (work, line) = match request {
        0 => (0, 0),
        _ => {
            let starter = place_of(by, true);
            let line = starter.map_or(0, |starter| starter.next_line(request, function));
            (turns::packed_work(request), line)
        }
    };
    if let Some(place) = place_of(one, work != 0) {
        place.begin(work, line);
    }
}

/// It writes to this connection of our own.
pub fn writes_to(one: usize, entry: &'static Entry) {
    if let Some(place) = place_of(one, true) {
        let entry = std::ptr::from_ref(entry).cast_mut();
        place.connection.store(entry, Ordering::Relaxed);
    }
}

/// The connection of our own to which it has written last.
pub fn connection(one: usize) -> Option<&'static Entry> {
    let connection = place_of(one, false)?.connection.load(Ordering::Relaxed);
    // SAFETY: null, or an entry, which stays.
    unsafe { connection.as_ref() }
}

/// It is over, and its memory is given back.
pub fn has_ended(one: usize) {
    if let Some(place) = place_of(one, false) {
        place.begin(0, 0);
        place.of.store(ENDED, Ordering::Relaxed);
    }
}

/// Whether it asks a database for a session.
pub fn connects(one: usize) -> bool {
    place_of(one, false).is_some_and(|place| place.connects.load(Ordering::Relaxed))
}

/// From here on it does, or does not.
pub fn set_connects(one: usize, connects: bool) {
    if let Some(place) = place_of(one, connects) {
        place.connects.store(connects, Ordering::Relaxed);
    }
}

/// Whether it works on a request, as far as can be seen at a glance.
pub fn is_at_work(one: usize) -> bool {
    place_of(one, false).is_some_and(|place| turns::is_packed(place.work.load(Ordering::Relaxed)))
}

/// Which one it is of those that work for a request at a time.
pub fn line(one: usize) -> u64 {
    place_of(one, false).map_or(0, |place| place.line.load(Ordering::Relaxed))
}

impl Place {
    /// Whoever had it before is over.
    fn begin(&self, work: u64, line: u64) {
        self.work.store(work, Ordering::Relaxed);
        self.line.store(line, Ordering::Relaxed);
        self.reads.store(false, Ordering::Relaxed);
        self.answers.store(false, Ordering::Relaxed);
        self.reader.store(0, Ordering::Relaxed);
        self.connects.store(false, Ordering::Relaxed);
        self.client.store(0, Ordering::Relaxed);
        let none = std::ptr::null_mut();
        self.connection.store(none, Ordering::Relaxed);
    }

    /// How often it has started this before. The one it started last stands first.
    fn count(&self, function: u32) -> u32 {
        let own = u64::from(function) << 32;
        let mut before = own;
        for place in &self.started {
            let known = place.swap(before, Ordering::Relaxed);
            before = known;
            if (known >> 32) as u32 == function {
                break;
            }
        }
        let is_known = (before >> 32) as u32 == function;
        let count = if is_known { before as u32 } else { 0 };
        let next = own | u64::from(count.wrapping_add(1));
        self.started[0].store(next, Ordering::Relaxed);
        count
    }

    /// What one is known by that this one starts.
    ///
    /// Several that do the same draw in whichever order they run, but they are started in one. How
    /// often others are started in between, as a pool's that opens a connection, does not count.
    fn next_line(&self, request: u64, function: usize) -> u64 {
        let nth = self.count(mixed(request, function as u64) as u32);
        let line = self.line.load(Ordering::Relaxed);
        mixed(mixed(1, line), u64::from(nth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            of: AtomicUsize::new(2),
            work: AtomicU64::new(0),
            line: AtomicU64::new(0),
            reads: AtomicBool::new(false),
            answers: AtomicBool::new(false),
            reader: AtomicUsize::new(0),
            connects: AtomicBool::new(false),
            client: AtomicUsize::new(0),
            connection: AtomicPtr::new(std::ptr::null_mut()),
            started: [const { AtomicU64::new(0) }; FUNCTIONS],
        }
    }

    #[test]
    fn what_one_starts_is_known_by_its_turn_among_its_like() {
        let (one, other) = (place(), place());
        let lines = [one.next_line(7, 0x1000), one.next_line(7, 0x1000)];
        assert_ne!(lines[0], lines[1]);
        // Another function in between, and a request before.
        other.next_line(6, 0x1000);
        let first = other.next_line(7, 0x1000);
        other.next_line(7, 0x2000);
        assert_eq!([first, other.next_line(7, 0x1000)], lines);
        // What these start themselves is something else again.
        one.line.store(lines[0], Ordering::Relaxed);
        assert!(!lines.contains(&one.next_line(8, 0x1000)));
    }

    #[test]
    fn memory_of_one_that_has_ended_is_anothers() {
        begin().unwrap();
        begins(0x1000, 0x2000, 7, 1);
        assert!(is_at_work(0x1000));
        let before = take_up(0x1000);
        assert_eq!(turns::current(), 7);
        // It ends while it is at work, and the next one there has begun.
        has_ended(0x1000);
        begins(0x1000, 0x2000, 8, 1);
        assert_eq!(save(0x1000, before), before);
        take_up(0x1000);
        assert_eq!(turns::current(), 8);
        put_down(0x1000);
        // What is known of one that has ended is not the next one's.
        reads(0x1000);
        drives(0x1000, 0x3000);
        has_ended(0x1000);
        begins(0x1000, 0x2000, 8, 1);
        assert!(!has_read(0x1000));
        assert_eq!(client(0x1000), 0);
        // The places of those that have ended are used again.
        for one in (1 << 40..).take(4 * PLACES) {
            begins(one, 0x2000, 9, 1);
            assert!(is_at_work(one));
            has_ended(one);
        }
    }

    #[test]
    fn one_serves_what_another_reads_as_long_as_that_does_nothing_else() {
        begin().unwrap();
        let (reader, server) = (0x7000, 0x8000);
        serves(server, reader);
        assert!(!is_served_by(server, reader), "it has read nothing");
        reads(reader);
        serves(server, reader);
        assert!(is_served_by(server, reader) && !is_served_by(server, server));
        answers(reader);
        assert!(!is_served_by(server, reader));
        has_ended(reader);
        reads(reader);
        has_ended(server);
        assert!(!is_served_by(server, reader));
    }

    #[test]
    fn what_one_is_told_while_it_runs_counts() {
        begin().unwrap();
        let before = take_up(0x6000);
        turns::takes(Some(7));
        let saved = save(0x6000, before);
        assert_eq!(told(0x6000, saved), None);
        tell(0x6000, 8);
        assert_eq!(told(0x6000, saved), Some(turns::packed_work(8)));
        turns::takes(Some(9));
        save(0x6000, saved);
        turns::ends();
        take_up(0x6000);
        assert_eq!(turns::current(), 8);
        turns::ends();
    }
}
