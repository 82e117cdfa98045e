//! From the program into a library.

use crate::functions::Function;
use crate::mechanism::call::Call;
use crate::state::{recording, thread};

/// Whether a function of the interface is to be recorded or replayed: it comes from replay space,
/// and the interface was chosen.
#[inline]
pub fn is_in_replay_space(chosen: u32) -> bool {
    thread::is_in_replay_space() && recording::config().interfaces & chosen != 0
}

/// As [`Call::enter`], if the interface was chosen.
#[inline]
pub fn enter(chosen: u32, function: Function) -> Option<Call<'static>> {
    is_in_replay_space(chosen)
        .then(|| Call::enter(function))
        .flatten()
}
