//! Ids that libraries make of the time and of what they keep (a counter, the latest time): what the
//! classes call that [`given`](super::class::given) changes.
//!
//! ```text
//!   idAgain           whether the request was given one here: in a replay, by the recording
//!   idHigh, idLow     its halves
//!   idGiven           one was made
//! ```

use std::cell::Cell;

use hindcast_taplog::pins::Caller;
use libc::c_void;

use super::asker::asker;
use super::machine::{Reference, tools};
use super::seen::replays;
use crate::{ids, turns};

thread_local! {
    /// Between this and the halves nothing waits, so the machine's own threads stay in the same one
    /// of ours.
    static AGAIN: Cell<u128> = const { Cell::new(0) };
}

pub extern "C" fn id_again(_: *mut c_void, _: Reference) -> u8 {
    // While recording, who asks is looked for once, behind.
    if turns::of_code() == 0 || !replays() {
        return 0;
    }
    let again = ids::again(Caller::of(asker(tools())));
    AGAIN.set(again.unwrap_or(0));
    u8::from(again.is_some())
}

pub extern "C" fn id_high(_: *mut c_void, _: Reference) -> i64 {
    (AGAIN.get() >> u64::BITS) as i64
}

pub extern "C" fn id_low(_: *mut c_void, _: Reference) -> i64 {
    AGAIN.get() as i64
}

pub extern "C" fn id_given(_: *mut c_void, _: Reference, high: i64, low: i64) {
    if turns::of_code() == 0 || replays() {
        return;
    }
    let id = u128::from(high as u64) << u64::BITS | u128::from(low as u64);
    ids::given(Caller::of(asker(tools())), id);
}
