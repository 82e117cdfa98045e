//! A follower that goes on is recorded, where that is possible: into the recording that it has
//! replayed, which others may follow.
//!
//! While every thread waits in [`going_on`](super::going_on), each in the call or the step that its
//! log says nothing of:
//!
//! ```text
//!   the file `process`    is this process's, writable, with its number
//!   the configuration     says that this is a recording, which leads; to later images, too
//!   each thread           its writer goes on where its reader ended; its next acquisition comes
//!                         after all that there were, for replay keeps no owners of objects
//!   signals               come to the runtime, as in a recording
//!   the mode              is to record
//!   the table             another process holds it ([`table`](super::table))
//! ```
//!
//! **Where it is not possible** the process goes on without being recorded, as it would if nobody
//! had asked for it: a thread still computes, or is in a step that cannot be recorded from its
//! middle ([`can_be_recorded`]), or its log has a rest, or the log cannot grow.
//!
//! **The invariant to keep**: what a thread does between its last event and the next one is the
//! same in a replay, which does not stop here.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hindcast_execlog::config::Order;
use hindcast_execlog::event::{FUNCTIONS, Kind};

use super::{detach, folder, table};
use crate::functions;
use crate::mechanism::signals::actions;
use crate::raw;
use crate::state::mode::{Mode, elsewhere, one_at_a_time, set_follow, set_mode, succeeds};
use crate::state::signals::SIGNALS;
use crate::state::thread::{self, Current};
use crate::state::{recording, sync as acquisitions};
use hindcast_execlog::config::follow;

/// How long the last threads may take to come to the end of their logs.
const PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_micros(200);

/// A thread has come that is in a step which cannot be recorded.
static IN_THE_MIDDLE: AtomicBool = AtomicBool::new(false);

/// The threads that wait are to open their logs.
static OPENS: AtomicBool = AtomicBool::new(false);
/// How many have done so, or tried.
static TOOK_PART: AtomicUsize = AtomicUsize::new(0);
/// A log could not be opened.
static FAILED: AtomicBool = AtomicBool::new(false);

/// A thread has come to the end of its log in this function, or in a step of this kind.
pub fn comes(doing: u16) {
    if !can_be_recorded(doing) {
        IN_THE_MIDDLE.store(true, Ordering::Release);
    }
}

/// Whether a thread that the log leaves in this goes on as in a recording. Functions that execute
/// another image, and those that call the program back, have begun as in a replay.
fn can_be_recorded(doing: u16) -> bool {
    let executes = [
        functions::KERNEL_EXECVE.0,
        functions::KERNEL_EXECVE_FAILED.0,
    ];
    let plain = FUNCTIONS..functions::SQLITE3_INITIALIZE.0;
    match Kind::from_number(doing) {
        Some(Kind::Relaxed | Kind::Mapping | Kind::Tsc | Kind::Cpuid | Kind::Random) => true,
        _ => plain.contains(&doing) && !executes.contains(&doing),
    }
}

/// Whether this process can be recorded from here on. Waits for threads that are not here yet.
pub fn is_possible(me: &Current) -> bool {
    if !succeeds()
        || recording::is_given_back()
        || one_at_a_time()
        || recording::config().order() != Order::Edge
        || !(recording::is_first_process() || elsewhere())
        || thread::count() as usize > acquisitions::CLOCK_MAX - 2
    {
        return false;
    }
    let mut waited = Duration::ZERO;
    while !others(me).all(|other| other.at_end.load(Ordering::Acquire)) {
        if waited >= PATIENCE {
            return false;
        }
        raw::pause(STEP);
        waited += STEP;
    }
    !IN_THE_MIDDLE.load(Ordering::Acquire)
}

fn others(me: &Current) -> impl Iterator<Item = &'static thread::Thread> {
    let me = me.number;
    thread::all().filter(move |other| other.number != me && !other.ended.load(Ordering::Acquire))
}

/// Begins to record, in the thread that has taken over. False: nothing is recorded, and the log is
/// as the leader left it.
pub fn succeed(me: &mut Current) -> bool {
    if folder::succeed().is_err() {
        return false;
    }
    recording::succeed();
    OPENS.store(true, Ordering::Release);
    take_part(me);
    let all = 1 + others(me).count();
    while TOOK_PART.load(Ordering::Acquire) < all {
        raw::pause(STEP);
    }
    if FAILED.load(Ordering::Acquire) {
        return false;
    }
    set_follow(follow::LEADS);
    set_mode(Mode::Record);
    (1..SIGNALS as i32)
        .filter(|signal| !crate::state::signals::is_libcs_own(*signal))
        .for_each(actions::install);
    table::hold();
    true
}

/// What a thread does, once, that waits for another to take over. Whether it was asked to.
pub fn take_part(thread: &mut Current) -> bool {
    if !OPENS.load(Ordering::Acquire) {
        return false;
    }
    if open_log(thread).is_err() {
        FAILED.store(true, Ordering::Release);
    }
    TOOK_PART.fetch_add(1, Ordering::AcqRel);
    true
}

/// The thread's log goes on where it was read to.
fn open_log(thread: &mut Current) -> Result<(), i32> {
    if thread.reader.refresh() {
        // How the leader ended, for instance.
        return Err(libc::EBUSY);
    }
    let number = thread.number;
    match thread.reader.end() {
        Some(end) => thread.writer.resume(number, end, detach::log_is_full)?,
        None => thread.writer.create(number, detach::log_is_full)?,
    }
    recording::with_header(|header| header.threads.fetch_max(number + 1, Ordering::AcqRel));
    thread.writer.enters();
    acquisitions::succeed(&mut thread.sync);
    thread.show(hindcast_execlog::board::State::Running, 0);
    Ok(())
}
