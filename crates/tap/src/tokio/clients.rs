//! Clients of tokio-postgres, which hand what they ask to the task that drives their connection.
//!
//! ```text
//!   a client    send ──▶ is told here for whom ──▶ into the queue ──▶ the driver is woken
//! ```
//!
//! A driver that runs in another thread finds what is in the queue before it is woken. So it is
//! told for whom that is before it is put there. Which driver is a client's is seen where the
//! client first wakes it.
//!
//! The function is found by its symbol, and begins with a jump to ours from then on ([`changes`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use hindcast_taplog::pins::mixed;

use super::changes::{self, Moves};
use super::frames::Program;
use crate::works;

/// Clients of which it is known who drives their connection; a power of two. One more takes the
/// place of another.
const CLIENTS: usize = 1 << 12;

struct Client {
    address: AtomicUsize,
    driver: AtomicUsize,
}

static ALL: [Client; CLIENTS] = [const {
    Client {
        address: AtomicUsize::new(0),
        driver: AtomicUsize::new(0),
    }
}; CLIENTS];

thread_local! {
    /// The client that sends in this thread, and has woken nobody yet; 0: none.
    static SENDS: Cell<usize> = const { Cell::new(0) };
}

/// Where the function goes on.
static WHOLE: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// The program has not begun.
pub unsafe fn begin(program: &Program) {
    const SEND: &[u8] = b"14tokio_postgres6client11InnerClient4send17h";
    let ours = |whole| {
        WHOLE.store(whole, Ordering::Relaxed);
        changes::jump(send as *const () as usize).to_vec()
    };
    if let Some(at) = program.function(&[SEND]) {
        // SAFETY: as the caller promises; the program's function is there, and ours goes on to it.
        let _ = unsafe { changes::lead(at, Moves::Plain, ours) };
    }
}

fn place(client: usize) -> Option<&'static Client> {
    ALL.get(mixed(0, client as u64) as usize & (CLIENTS - 1))
}

/// A client is about to send something.
extern "C" fn sends(client: usize) {
    SENDS.set(client);
    let known = place(client).filter(|of| of.address.load(Ordering::Relaxed) == client);
    let driver = known.map_or(0, |of| of.driver.load(Ordering::Relaxed));
    // Either may have been another one's memory before.
    if driver != 0
        && works::client(driver) == client
        && let Some(request) = super::in_hand()
    {
        works::tell(driver, request);
    }
}

/// The task that runs in this thread has woken that one.
pub fn wakes(driver: usize) {
    let client = SENDS.replace(0);
    if client != 0
        && works::client(driver) != client
        && let Some(place) = place(client)
    {
        place.driver.store(driver, Ordering::Relaxed);
        place.address.store(client, Ordering::Relaxed);
        works::drives(driver, client);
    }
}

/// The task has stopped: what it wakes in this thread from now on is woken by somebody else.
pub fn stops() {
    SENDS.set(0);
}

/// In front of the function, which is called with where its result goes, and the client.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn send() {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "mov rdi, rsi",
        "call {sends}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp qword ptr [rip + {whole}]",
        sends = sym sends,
        whole = sym WHOLE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns;

    #[test]
    fn a_driver_is_told_before_it_is_woken_from_the_second_time_on() {
        works::begin().unwrap();
        turns::takes(Some(7));
        sends(0x5000);
        wakes(0x9000);
        assert!(!works::is_at_work(0x9000), "who wakes it tells it");
        sends(0x5000);
        assert!(works::is_at_work(0x9000));
        // Another one has its memory, and is no driver.
        works::has_ended(0x9000);
        sends(0x5000);
        assert!(!works::is_at_work(0x9000));
        stops();
        wakes(0x9000);
        assert_eq!(works::client(0x9000), 0);
        turns::ends();
    }
}
