//! R2's upcalls: functions of the program that a library calls from system space.
//!
//! The library gets a *stand-in* for each function of the program. When it calls that, the
//! arguments are logged, the thread steps up into replay space, and the program's function runs as
//! it will in replay, where the library is not there and the log calls it:
//!
//! ```text
//!   program ──▶ sqlite3_exec ──▶ stand-in ──▶ program's callback ──▶ …
//!   replay      system           replay       (calls out of it are recorded as any others)
//! ```
//!
//! Memory that the library passes is copied into the replay heap for the time of the callback.

use std::arch::global_asm;
use std::sync::atomic::{AtomicUsize, Ordering};

use hindcast_execlog::Event;
use hindcast_execlog::event::Kind;

use super::guarded::Guarded;
use super::shadows;
use crate::functions::Function;
use crate::mechanism::call::Call;
use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::{heap, log, signals};
use crate::state::mode::{Mode, mode};
use crate::state::recording;
use crate::state::thread::{self, Current, REPLAY};

/// How many functions of the program libraries can know at a time.
const STAND_INS: usize = 512;
/// Arguments of a callback.
const ARGUMENTS: usize = 8;

/// One stand-in. The assembly below relies on 16 bytes with the generated stub first.
#[repr(C)]
struct StandIn {
    stub: AtomicUsize,
    program: AtomicUsize,
}

static HINDCAST_STAND_INS: [StandIn; STAND_INS] = [const {
    StandIn {
        stub: AtomicUsize::new(0),
        program: AtomicUsize::new(0),
    }
}; STAND_INS];

pub(super) static USED: Guarded<usize> = Guarded::new(0);

// Entry n jumps to the stub of stand-in n with n in xmm0: callbacks have no floating-point
// arguments, so it is the first one.
global_asm!(
    ".text",
    ".balign 16",
    "hindcast_stand_in_entries:",
    ".set hindcast_stand_in_number, 0",
    ".rept 512",
    "mov r11d, hindcast_stand_in_number",
    "jmp hindcast_stand_in_common",
    ".balign 16",
    ".set hindcast_stand_in_number, hindcast_stand_in_number + 1",
    ".endr",
    "hindcast_stand_in_common:",
    "movq xmm0, r11",
    "shl r11, 4",
    "lea rax, [rip + {table}]",
    "jmp [rax + r11]",
    table = sym HINDCAST_STAND_INS,
);

unsafe extern "C" {
    fn hindcast_stand_in_entries();
}

/// What the library is given instead of a function of the program: `stub` will be called, with the
/// number of the stand-in behind its arguments. Small numbers and -1 are no functions but say
/// something else (`SQLITE_STATIC`, `SIG_IGN`).
pub fn stand_in(stub: *const (), program: *mut u8) -> *mut u8 {
    let (stub, address) = (stub as usize, program as usize);
    if !(4096..usize::MAX - 4096).contains(&address) {
        return program;
    }
    let number = USED.with(|used| {
        let known = HINDCAST_STAND_INS[..*used].iter().position(|stand_in| {
            stand_in.stub.load(Ordering::Relaxed) == stub
                && stand_in.program.load(Ordering::Relaxed) == address
        });
        known.or_else(|| {
            let free = HINDCAST_STAND_INS.get(*used)?;
            free.program.store(address, Ordering::Relaxed);
            free.stub.store(stub, Ordering::Release);
            *used += 1;
            Some(*used - 1)
        })
    });
    match number {
        Some(number) => (hindcast_stand_in_entries as *const () as usize + number * 16) as *mut u8,
        None => {
            recording::warn(format_args!(
                "a library knows more than {STAND_INS} functions of the program: further ones are not recorded"
            ));
            program
        }
    }
}

const VALUE: u8 = 0;
const BYTES: u8 = 1;
const STRINGS: u8 = 2;

/// A call of a function of the program that a library is about to make.
pub struct Upcall {
    function: Function,
    parameter: u32,
    program: usize,
    plain: [u64; ARGUMENTS],
    arguments: usize,
    /// The size of the result, then the arguments with the memory behind them, as they are logged.
    described: Vec<u8>,
}

impl Upcall {
    /// `number` is what the stand-in's entry put behind the arguments. The program's function
    /// returns so many bytes: what else is in the register means nothing.
    pub fn new(function: Function, parameter: u32, number: f64, result_bytes: u8) -> Upcall {
        let program = HINDCAST_STAND_INS[number.to_bits() as usize]
            .program
            .load(Ordering::Relaxed);
        Upcall {
            function,
            parameter,
            program,
            plain: [0; ARGUMENTS],
            arguments: 0,
            described: vec![result_bytes],
        }
    }

    fn argument(&mut self, kind: u8, value: u64) {
        self.plain[self.arguments] = value;
        self.arguments += 1;
        self.described.push(kind);
        self.described.extend(value.to_ne_bytes());
    }

    pub fn value(&mut self, value: u64) {
        self.argument(VALUE, value);
    }

    /// # Safety
    /// `length` readable bytes, or null.
    pub unsafe fn bytes(&mut self, bytes: *const u8, length: usize) {
        if bytes.is_null() {
            return self.value(0);
        }
        self.argument(BYTES, bytes as u64);
        self.described.extend((length as u32).to_ne_bytes());
        // SAFETY: the caller's promise.
        self.described
            .extend(unsafe { std::slice::from_raw_parts(bytes, length) });
    }

    /// # Safety
    /// A C string, or null.
    pub unsafe fn string(&mut self, text: *const u8) {
        // SAFETY: the caller's promise.
        unsafe {
            self.bytes(
                text,
                if text.is_null() {
                    0
                } else {
                    libc::strlen(text.cast()) + 1
                },
            )
        };
    }

    /// # Safety
    /// So many C strings, each of them or the array may be null.
    pub unsafe fn strings(&mut self, texts: *const *const u8, count: usize) {
        if texts.is_null() {
            return self.value(0);
        }
        self.argument(STRINGS, texts as u64);
        self.described.extend((count as u32).to_ne_bytes());
        for index in 0..count {
            // SAFETY: the caller's promise.
            unsafe {
                let text = *texts.add(index);
                let length = if text.is_null() {
                    0
                } else {
                    libc::strlen(text.cast()) + 1
                };
                self.described.extend((length as u32).to_ne_bytes());
                if length > 0 {
                    self.described
                        .extend(std::slice::from_raw_parts(text, length));
                }
            }
        }
    }

    /// Calls the program. A thread that is not in system space of a recording calls it as if
    /// nothing were between.
    ///
    /// # Safety
    /// The arguments are those of the program's function.
    pub unsafe fn run(self) -> u64 {
        // SAFETY: a library that is beneath a call of the program's calls back. The call rests, and
        // borrows nothing meanwhile.
        let thread = &mut unsafe { thread::current() }.filter(|thread| {
            mode() == Mode::Record && thread.selector.load(Ordering::Relaxed) != REPLAY
        });
        let Some(thread) = thread else {
            // SAFETY: the caller's promise.
            return unsafe { invoke(self.program, &self.plain) };
        };
        let function = u32::from(self.function.0).to_ne_bytes();
        let parameter = self.parameter.to_ne_bytes();
        thread.writer.append(
            Kind::Callback,
            &[
                &function,
                &parameter,
                &(self.program as u64).to_ne_bytes(),
                &self.described,
            ],
        );
        // SAFETY: the arguments were just described.
        let result = unsafe { perform(thread, self.program, &self.described) };
        thread
            .writer
            .append(Kind::CallbackReturn, &[&result.to_ne_bytes()]);
        result
    }
}

/// Replay: the library called the program here.
pub fn call_back(call: &mut Call, event: Event<'static>) {
    let payload = event.payload;
    let field = |at: usize| {
        payload
            .get(at..at + 8)
            .map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
    };
    let (Some(program), Some(described)) = (field(8), payload.get(16..)) else {
        divergence::diverged(
            &call.thread,
            Some(event),
            Actual::Step("a callback that the log does not describe"),
        );
    };
    call.thread.reader.advance(&event);
    // SAFETY: recorded with these arguments, and functions have the same addresses in both runs.
    let result = unsafe { perform(&mut call.thread, program as usize, described) };
    let returned = log::expect_first(&mut call.thread, Kind::CallbackReturn as u16);
    if returned.kind != Kind::CallbackReturn as u16 || returned.payload != result.to_ne_bytes() {
        divergence::diverged(
            &call.thread,
            Some(returned),
            Actual::Step("the callback returned something else"),
        );
    }
    call.thread.reader.advance(&returned);
}

/// The same in both runs: copies what was passed into the replay heap, and runs the program's
/// function in replay space.
unsafe fn perform(thread: &mut Current, program: usize, described: &[u8]) -> u64 {
    let mut arguments = [0; ARGUMENTS];
    let mut copies = Vec::new();
    let mut rest = Cursor(described);
    let result_bytes = rest.take(1).map_or(0, |bytes| bytes[0]);
    for argument in &mut arguments {
        let Some([kind]) = rest.take(1) else { break };
        let value = rest.word8();
        *argument = match *kind {
            BYTES => {
                let length = rest.word4();
                copy(thread, rest.take(length).unwrap_or_default(), &mut copies)
            }
            STRINGS => {
                let count = rest.word4();
                let texts: Vec<u8> = (0..count)
                    .flat_map(|_| {
                        let length = rest.word4();
                        let text = rest.take(length).unwrap_or_default();
                        if text.is_empty() {
                            0
                        } else {
                            copy(thread, text, &mut copies)
                        }
                        .to_ne_bytes()
                    })
                    .collect();
                copy(thread, &texts, &mut copies)
            }
            _ => value,
        };
    }
    shadows::enter_callback(thread.number);
    signals::leave(thread);
    // SAFETY: the program's own function, with what the library passed or copies of it.
    let result = unsafe { invoke(program, &arguments) };
    for copy in shadows::leave_callback(thread.number) {
        // SAFETY: handed out for the time of the callback. Still in replay space.
        unsafe { libc::free(copy as *mut _) };
    }
    for copy in copies {
        // SAFETY: ours, and what is passed to a callback is good for its time only. Still in replay
        // space.
        unsafe { libc::free(copy as *mut _) };
    }
    thread.enter_system();
    match result_bytes {
        0 => 0,
        1..8 => result & ((1 << (8 * result_bytes)) - 1),
        _ => result,
    }
}

fn copy(thread: &mut Current, bytes: &[u8], copies: &mut Vec<u64>) -> u64 {
    let copy = heap::allocate_for_replay(thread, bytes.len().max(1));
    if !copy.is_null() {
        // SAFETY: a block of that size.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len()) };
        copies.push(copy as u64);
    }
    copy as u64
}

/// Arguments that a function does not have do no harm in this calling convention.
unsafe fn invoke(program: usize, a: &[u64; ARGUMENTS]) -> u64 {
    type Program = unsafe extern "C-unwind" fn(u64, u64, u64, u64, u64, u64, u64, u64) -> u64;
    // SAFETY: a function of the program whose arguments are numbers and pointers.
    unsafe {
        let program = std::mem::transmute::<usize, Program>(program);
        program(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7])
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn word4(&mut self) -> usize {
        self.take(4)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u32::from_ne_bytes) as usize
    }

    fn word8(&mut self) -> u64 {
        self.take(8)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_ne_bytes)
    }
}
