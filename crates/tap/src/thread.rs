//! A thread's ring.
//!
//! Rings are kept for the next thread when theirs ends, so a program that makes a thread for each
//! request needs no more of them than it has threads at a time.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use hindcast_taplog::{Board, Producer, Told};

use crate::errno::{errno, set_errno};
use crate::process;

/// Threads at a time that can tell something.
const SLOTS: usize = 4096;

/// A ring, and whose it is.
struct Slot {
    /// Four times the generation of the process that it is of, and its state. What is of another
    /// generation is the parent's, and as good as empty.
    state: AtomicU32,
    producer: UnsafeCell<MaybeUninit<Producer>>,
}

// SAFETY: the producer is touched only by the thread that has turned the state to `TAKEN`.
unsafe impl Sync for Slot {}

/// There is no ring.
const EMPTY: u32 = 0;
const TAKEN: u32 = 1;
/// There is a ring that nobody uses.
const FREE: u32 = 2;

static RINGS: [Slot; SLOTS] = [const {
    Slot {
        state: AtomicU32::new(EMPTY),
        producer: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; SLOTS];

/// Its destructor runs when a thread ends.
static KEY: AtomicU32 = AtomicU32::new(0);

/// What a thread knows of itself.
struct Mine {
    slot: Cell<Option<&'static Slot>>,
    /// The process that the slot is of.
    generation: Cell<u32>,
    /// It is telling something.
    busy: Cell<bool>,
    /// How often it was found busy in a row.
    interrupted: Cell<u32>,
    /// What it could not tell while it had no ring or was busy.
    lost_records: Cell<u64>,
    lost_bytes: Cell<u64>,
    /// How many records to lose before a ring is asked for again.
    patience: Cell<u32>,
}

thread_local! {
    static MINE: Mine = const {
        Mine {
            slot: Cell::new(None),
            generation: Cell::new(0),
            busy: Cell::new(false),
            interrupted: Cell::new(0),
            lost_records: Cell::new(0),
            lost_bytes: Cell::new(0),
            patience: Cell::new(0),
        }
    };
}

/// A handler that came in between would not have made so many calls: it has jumped out of one of
/// ours, and will not come back.
const ABANDONED: u32 = 1000;
/// Where there was no memory for a ring, it is asked for again after so many records.
const PATIENCE: u32 = 1000;

pub fn begin() -> bool {
    extern "C" fn ended(slot: *mut libc::c_void) {
        give_back(slot.cast());
    }
    let mut key = 0;
    // SAFETY: the memory is ours.
    let made = unsafe { libc::pthread_key_create(&mut key, Some(ended)) } == 0;
    KEY.store(key, Ordering::Relaxed);
    made
}

/// Tells something by the thread's ring. `bytes`: how many of the service's it is about.
pub fn tell(bytes: u64, at: u64, what: impl FnOnce(&mut Producer)) {
    if process::board().is_some_and(Board::replays) {
        return;
    }
    MINE.with(|mine| {
        if mine.busy.get() {
            mine.interrupted
                .set(mine.interrupted.get().saturating_add(1));
            if mine.interrupted.get() < ABANDONED {
                mine.lose(bytes);
                return;
            }
        }
        mine.busy.set(true);
        mine.interrupted.set(0);
        match mine.ring(at) {
            Some(producer) => {
                mine.tell_lost(producer, at);
                what(producer);
            }
            None => mine.lose(bytes),
        }
        mine.busy.set(false);
    });
}

impl Mine {
    fn lose(&self, bytes: u64) {
        self.lost_records
            .set(self.lost_records.get().saturating_add(1));
        self.lost_bytes
            .set(self.lost_bytes.get().saturating_add(bytes));
    }

    fn tell_lost(&self, producer: &mut Producer, at: u64) {
        let records = self.lost_records.take();
        let bytes = self.lost_bytes.take();
        if records > 0 {
            let told = Told::Lost {
                stream: None,
                records,
                bytes,
            };
            producer.tell(&told, at);
        }
    }

    #[allow(clippy::mut_from_ref)]
    fn ring(&self, at: u64) -> Option<&mut Producer> {
        let generation = process::generation();
        let slot = match self.slot.get() {
            Some(slot) if self.generation.get() == generation => slot,
            _ => self.take_one(generation, at)?,
        };
        // SAFETY: the slot is this thread's, and `busy` keeps the thread from a second one.
        Some(unsafe { (*slot.producer.get()).assume_init_mut() })
    }

    fn take_one(&self, generation: u32, at: u64) -> Option<&'static Slot> {
        if process::is_sealed() {
            return None;
        }
        if let Some(less) = self.patience.get().checked_sub(1) {
            self.patience.set(less);
            return None;
        }
        let errno = errno();
        let slot = used_before(generation).or_else(|| made(generation));
        match slot {
            Some(slot) => {
                self.slot.set(Some(slot));
                self.generation.set(generation);
                // SAFETY: the slot is ours from now on.
                unsafe {
                    let producer = (*slot.producer.get()).assume_init_mut();
                    let tid = libc::syscall(libc::SYS_gettid) as u32;
                    producer.tell(&Told::Thread { tid }, at);
                    let key = KEY.load(Ordering::Relaxed);
                    libc::pthread_setspecific(key, (&raw const *slot).cast());
                }
            }
            None => self.patience.set(PATIENCE),
        }
        set_errno(errno);
        slot
    }
}

/// A ring that another thread has left.
fn used_before(generation: u32) -> Option<&'static Slot> {
    RINGS.iter().find(|slot| slot.take(FREE, generation))
}

fn made(generation: u32) -> Option<&'static Slot> {
    let slot = RINGS.iter().find(|slot| slot.take(EMPTY, generation))?;
    let Some((base, capacity)) = process::make_ring() else {
        slot.set(EMPTY, generation);
        return None;
    };
    // SAFETY: the memory was made for this ring, and the slot is ours.
    unsafe {
        (*slot.producer.get()).write(Producer::new(base, capacity));
    }
    Some(slot)
}

impl Slot {
    /// Whether it was in this state, and is the caller's now.
    fn take(&self, from: u32, generation: u32) -> bool {
        let now = self.state.load(Ordering::Relaxed);
        let state = match now >> 2 == generation {
            true => now & 3,
            false => EMPTY,
        };
        let taken = generation << 2 | TAKEN;
        let turn = || {
            self.state
                .compare_exchange(now, taken, Ordering::AcqRel, Ordering::Relaxed)
        };
        state == from && turn().is_ok()
    }

    fn set(&self, state: u32, generation: u32) {
        self.state.store(generation << 2 | state, Ordering::Release);
    }
}

/// The thread has ended, but for destructors that may still come.
fn give_back(slot: *const Slot) {
    MINE.with(|mine| {
        let Some(own) = mine.slot.take() else { return };
        let generation = process::generation();
        let same = std::ptr::eq(own, slot) && mine.generation.get() == generation;
        if same && !mine.busy.get() {
            own.set(FREE, generation);
        }
    });
}
