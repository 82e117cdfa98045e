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
//! The function is found by its symbol, and begins with a jump to ours from then on. What is moved
//! for that are instructions that do the same anywhere: those that make room on the stack, and keep
//! registers there.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use hindcast_taplog::pins::mixed;

use super::frames::Program;
use crate::memory::{self, protect};
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
    if let Some(at) = program.function(&[SEND]) {
        // SAFETY: as the caller promises; the program's function is there.
        unsafe { change(at) };
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

/// `mov rax, address`, `jmp rax`.
const JUMP: usize = 12;

fn jump(to: usize) -> [u8; JUMP] {
    let mut code = [0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0];
    code[2..10].copy_from_slice(&to.to_le_bytes());
    code
}

/// # Safety
/// A function is there, which nobody runs.
#[cfg(target_arch = "x86_64")]
unsafe fn change(at: usize) -> Option<()> {
    const PAGE: usize = 4096;
    /// More than is moved.
    const LOOKED_AT: usize = 32;
    // SAFETY: the function is longer.
    let code = unsafe { std::slice::from_raw_parts(at as *const u8, LOOKED_AT) };
    let moved = movable(code)?;
    let page = memory::fresh(PAGE)?;
    // SAFETY: the memory is ours, with room for so much; then the program's code, as the caller
    // promises.
    unsafe {
        let start = page.cast::<u8>();
        start.copy_from_nonoverlapping(code.as_ptr(), moved);
        // The function has not begun: `rax` is nobody's.
        let behind = jump(at + moved);
        start
            .add(moved)
            .copy_from_nonoverlapping(behind.as_ptr(), JUMP);
        if !protect(
            &(page as usize..page as usize + PAGE),
            libc::PROT_READ | libc::PROT_EXEC,
        ) {
            return None;
        }
        WHOLE.store(page as usize, Ordering::Relaxed);
        let pages = at & !(PAGE - 1)..(at + JUMP).next_multiple_of(PAGE);
        if !protect(&pages, libc::PROT_READ | libc::PROT_WRITE) {
            return None;
        }
        let ours = jump(send as *const () as usize);
        (at as *mut u8).copy_from_nonoverlapping(ours.as_ptr(), JUMP);
        protect(&pages, libc::PROT_READ | libc::PROT_EXEC).then_some(())
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn change(_: usize) -> Option<()> {
    None
}

/// How long the first instructions are that take up the place of a jump; `None`: there is one among
/// them that may not be moved.
fn movable(code: &[u8]) -> Option<usize> {
    let mut length = 0;
    while length < JUMP {
        length += match *code.get(length..)? {
            // push
            [0x50..=0x57, ..] => 1,
            [0x41, 0x50..=0x57, ..] => 2,
            // sub rsp, …
            [0x48, 0x83, 0xec, ..] => 4,
            [0x48, 0x81, 0xec, ..] => 7,
            // mov between registers
            [0x48 | 0x49 | 0x4c | 0x4d, 0x89, 0xc0..=0xff, ..] => 3,
            // mov [rsp + …], a register
            [0x48 | 0x4c, 0x89, how, 0x24, ..] if how & 0xc7 == 0x44 => 5,
            [0x48 | 0x4c, 0x89, how, 0x24, ..] if how & 0xc7 == 0x84 => 8,
            _ => return None,
        };
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns;

    #[test]
    fn what_begins_a_function_is_moved_as_whole_instructions() {
        let optimized = [
            0x41, 0x57, 0x41, 0x56, 0x41, 0x54, 0x53, 0x48, 0x81, 0xec, 0x18, 0x01, 0, 0, 0x49,
        ];
        assert_eq!(movable(&optimized), Some(14));
        let plain = [
            0x48, 0x81, 0xec, 0xf8, 0x01, 0, 0, 0x48, 0x89, 0x54, 0x24, 0x10, 0x48,
        ];
        assert_eq!(movable(&plain), Some(12));
        // What counts from where it is: lea rdi, [rip + …], and a call.
        let near = [
            0x53, 0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0x53, 0x53, 0x53, 0x53, 0x53,
        ];
        assert_eq!(movable(&near), None);
        assert_eq!(movable(&[0xe8; 32]), None);
        assert_eq!(movable(&[0x53; 5]), None);
    }

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
