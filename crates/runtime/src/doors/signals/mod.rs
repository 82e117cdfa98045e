//! Signals that arrive, and the program's own calls about signals.

mod arrival;
mod calls;

use std::sync::atomic::Ordering;

use hindcast_execlog::event::Kind;

use crate::mechanism::signals::actions::{self, HANDLERS};
use crate::mechanism::signals::kernel;
use crate::mechanism::{divergence, log};
use crate::state::mode::{Mode, mode};
use crate::state::signals::{
    self, Default, KernelAction, SIGNALS, bit, default_of, is_fault, is_libcs_own,
};
use crate::state::thread::Current;
use crate::syscall;

pub use arrival::synchronous_fault;
pub use calls::by_number;

/// At init, on the first thread, whose log is open: says what the kernel must call, and takes over
/// what the process inherited.
pub fn start(thread: &mut Current) {
    let address = |handler: Handler| handler as *const () as usize;
    HANDLERS
        .arrived
        .store(address(arrival::arrived), Ordering::Relaxed);
    HANDLERS
        .libcs_own
        .store(address(arrival::libcs_own), Ordering::Relaxed);
    inherit(thread);
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t);

/// Reads what the process inherited (ignored signals, the mask), which is part of the recording,
/// and takes over the rest.
fn inherit(thread: &mut Current) {
    let (mut ignored, mut blocked) = (0u64, 0u64);
    match mode() {
        Mode::Record => {
            for signal in 1..SIGNALS as i32 {
                let mut action = KernelAction::default();
                // SAFETY: room for one action; the mask has 8 bytes.
                let result =
                    unsafe { syscall!(libc::SYS_rt_sigaction, signal, 0, &raw mut action, 8) };
                if result == 0 && action.handler == libc::SIG_IGN {
                    ignored |= bit(signal);
                }
            }
            blocked = kernel::mask();
            thread.writer.append(
                Kind::Start,
                &[&ignored.to_ne_bytes(), &blocked.to_ne_bytes()],
            );
        }
        Mode::Replay => {
            let event = log::expect_first(thread, Kind::Start as u16);
            let Some((first, rest)) = event
                .payload
                .split_first_chunk::<8>()
                .filter(|_| event.kind == Kind::Start as u16)
            else {
                divergence::unusable(
                    format_args!("the log lacks the signals that the process inherited"),
                    "Record again.",
                )
            };
            ignored = u64::from_ne_bytes(*first);
            blocked = rest
                .first_chunk::<8>()
                .map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            thread.reader.advance(&event);
        }
        Mode::Off => {}
    }
    thread.signals.blocked = blocked;
    kernel::apply_mask(blocked);
    for signal in 1..SIGNALS as i32 {
        if ignored & bit(signal) != 0 {
            signals::set(
                signal,
                &KernelAction {
                    handler: libc::SIG_IGN,
                    ..KernelAction::default()
                },
            );
        }
        if !is_libcs_own(signal) && (is_fault(signal) || default_of(signal) == Default::Ends) {
            actions::install(signal);
        }
    }
}
