//! Where Go's code comes in, with its arguments in Go's registers, and goes back.
//!
//! Go calls with `r14` the goroutine and `xmm15` zero, and keeps only those, `rsp` and `rbp`. A
//! goroutine's stack is small, so the thread's own is changed to, as the runtime does where it
//! calls C: that of the thread's first goroutine. Who runs on that already, or in a signal handler,
//! stays on the stack that it has.

use std::arch::naked_asm;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{calls, clock, goroutines, ids};
use crate::{pins, turns, works};

/// In what the runtime has of a thread, where the goroutine is that it runs.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// Where `time.Now` goes on when it has read the clock that measures.
static MEASURED: AtomicUsize = AtomicUsize::new(0);
/// Where `time.Since` and `time.Until` begin, and how long they are.
static COMPARING: [[AtomicUsize; 2]; 2] = [const { [const { AtomicUsize::new(0) }; 2] }; 2];
/// Where the function goes on that makes system calls.
pub static BEHIND_SYSCALL: AtomicUsize = AtomicUsize::new(0);
/// The functions that were changed, as they were.
pub static NEW_GOROUTINE: AtomicUsize = AtomicUsize::new(0);
pub static RANDOM: AtomicUsize = AtomicUsize::new(0);

pub fn set_running(distance: usize) {
    RUNNING.store(distance, Ordering::Relaxed);
}

pub fn set_measured(address: usize) {
    MEASURED.store(address, Ordering::Relaxed);
}

/// These compare a time with the clock that measures.
pub fn set_comparing(functions: [Range<usize>; 2]) {
    for (place, function) in COMPARING.iter().zip(functions) {
        place[0].store(function.start, Ordering::Relaxed);
        place[1].store(function.len(), Ordering::Relaxed);
    }
}

/// From a goroutine's stack, which is kept in `r12`, to the thread's own, by way of what the
/// runtime has of the thread. No argument of Go's is touched.
macro_rules! to_own_stack {
    () => {
        "mov r12, rsp
         mov r13, [r14 + 0x30]
         mov r10, [rip + {running}]
         cmp r14, [r13 + r10]
         jne 9f
         mov r10, [r13]
         mov rsp, [r10 + 0x38]
         9: and rsp, -16"
    };
}

/// A system call: its number in `rax`, its arguments in `rbx`, `rcx`, `rdi`, `rsi`, `r8` and `r9`.
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rax, {count}",
        "jae 2f",
        "lea r12, [rip + {wanted}]",
        "cmp byte ptr [r12 + rax], 0",
        "je 2f",
        to_own_stack!(),
        // Eight arguments of C, of which the last two are on the stack, and one more word.
        "sub rsp, 8",
        "push rbp",
        "push r14",
        "push r9",
        "mov r9, r8",
        "mov r8, rsi",
        "mov r10, rcx",
        "mov rcx, rdi",
        "mov rdx, r10",
        "mov rsi, rbx",
        "mov rdi, rax",
        "call {call}",
        "mov rsp, r12",
        "xorps xmm15, xmm15",
        "xor edx, edx",
        "jmp qword ptr [rip + {behind}]",
        // As the function has it.
        "2: mov r10, rsi",
        "mov rdx, rdi",
        "mov rsi, rcx",
        "mov rdi, rbx",
        "syscall",
        "jmp qword ptr [rip + {behind}]",
        count = const calls::COUNT,
        wanted = sym calls::WANTED,
        running = sym RUNNING,
        call = sym calls::call,
        behind = sym BEHIND_SYSCALL,
    )
}

/// `newproc1`: makes a goroutine that runs what is in `rax`, for the one in `rbx`, and gives it in
/// `rax`. It runs on the thread's own stack, and may store its arguments above the address that it
/// returns to.
#[unsafe(naked)]
pub unsafe extern "C" fn new_goroutine() {
    naked_asm!(
        "sub rsp, 0x58",
        "mov [rsp + 0x48], rbx",
        "mov [rsp + 0x38], rax",
        "call qword ptr [rip + {whole}]",
        "mov [rsp + 0x40], rax",
        "mov rdi, rax",
        "mov rsi, [rsp + 0x48]",
        "mov rdx, [rsp + 0x38]",
        "mov rbx, rsp",
        "and rsp, -16",
        "call {begins}",
        "mov rsp, rbx",
        "mov rax, [rsp + 0x40]",
        "xorps xmm15, xmm15",
        "add rsp, 0x58",
        "ret",
        whole = sym NEW_GOROUTINE,
        begins = sym goroutines::begins,
    )
}

/// `rand`: gives a random number in `rax`.
#[unsafe(naked)]
pub unsafe extern "C" fn random() {
    naked_asm!(
        to_own_stack!(),
        "mov rdi, r14",
        "mov rsi, rbp",
        "mov rdx, [r12]",
        "mov r10, [rip + {running}]",
        "xor ecx, ecx",
        "cmp r14, [r13 + r10]",
        "sete cl",
        "call {draw}",
        "mov rsp, r12",
        "xorps xmm15, xmm15",
        "test rdx, rdx",
        "je 2f",
        "ret",
        "2: jmp qword ptr [rip + {whole}]",
        running = sym RUNNING,
        draw = sym draw,
        whole = sym RANDOM,
    )
}

#[repr(C)]
struct Drawn {
    number: u64,
    is_drawn: u64,
}

/// `returns`: where to. `is_running`: it is the goroutine that the thread runs, and no part of the
/// runtime on a stack of its own.
extern "C" fn draw(goroutine: usize, frame: usize, returns: usize, is_running: u64) -> Drawn {
    let drawn = match works::is_at_work(goroutine) {
        true => goroutines::for_code(goroutine, frame, || drawn(returns)),
        false if is_running != 0 => drawn_for_none(goroutine, frame),
        false => None,
    };
    Drawn {
        number: drawn.unwrap_or(0),
        is_drawn: u64::from(drawn.is_some()),
    }
}

fn drawn_for_none(goroutine: usize, frame: usize) -> Option<u64> {
    pins::number(|bytes, length| {
        // SAFETY: there is room.
        unsafe { goroutines::draw_for_none(goroutine, frame, bytes, length) }
    })
}

fn drawn(returns: usize) -> Option<u64> {
    if !goroutines::draws(returns) {
        return pins::order(turns::caller()?);
    }
    // SAFETY: there is room.
    pins::number(|bytes, length| pins::is_of_request() && unsafe { pins::draw(bytes, length) })
}

/// The vDSO's `clock_gettime`, which Go calls as C. Whoever reads another clock than the first, the
/// wall clock, comes often: mostly the runtime itself.
#[unsafe(naked)]
pub unsafe extern "C" fn clock() {
    naked_asm!(
        "test edi, edi",
        "je 2f",
        "mov rax, [rip + {measured}]",
        "cmp rax, [rsp]",
        "je 3f",
        // Who called what calls the function that reads it: frames of Go hang together.
        "mov rax, [rbp]",
        "test rax, rax",
        "je 5f",
        "mov r8, [rax + 8]",
        "mov rax, r8",
        "sub rax, [rip + {comparing}]",
        "cmp rax, [rip + {comparing} + 8]",
        "jb 6f",
        "sub r8, [rip + {comparing} + 16]",
        "cmp r8, [rip + {comparing} + 24]",
        "jb 6f",
        "5: jmp qword ptr [rip + {real}]",
        "6: sub rsp, 8",
        "mov rdx, r14",
        "mov rcx, rbp",
        "call {compare}",
        "jmp 4f",
        "3: sub rsp, 8",
        "call {measure}",
        "jmp 4f",
        "2: sub rsp, 8",
        "mov rdx, r14",
        "mov rcx, rbp",
        "call {read}",
        "4: add rsp, 8",
        "xorps xmm15, xmm15",
        "ret",
        measured = sym MEASURED,
        comparing = sym COMPARING,
        compare = sym clock::compare,
        real = sym clock::REAL,
        measure = sym clock::measure,
        read = sym clock::read,
    )
}

/// A function that gives an id begins, and is to give what is in `r11`. Where there is one it is
/// given in its place, without an error, and the carry flag is clear. All arguments are kept.
#[unsafe(naked)]
pub unsafe extern "C" fn id_again() {
    naked_asm!(
        "push r10",
        to_own_stack!(),
        "push rax",
        "push rbx",
        "push rcx",
        "push rdi",
        "push rsi",
        "push r8",
        "push r9",
        "push rdx",
        "push r11",
        // Room for the id, and one more word.
        "sub rsp, 24",
        "mov rdi, r14",
        "mov rsi, rbp",
        "mov rdx, rsp",
        "call {again}",
        "test al, al",
        "je 2f",
        "mov rax, [rsp]",
        "mov rbx, [rsp + 8]",
        "mov r11, [rsp + 24]",
        "lea rsp, [r12 + 8]",
        "xorps xmm15, xmm15",
        "xor ecx, ecx",
        "xor edi, edi",
        "cmp r11, 12",
        "jb 3f",
        // Behind where this and the function return to.
        "mov [rsp + 16], rax",
        "je 4f",
        "mov [rsp + 24], rbx",
        "jmp 3f",
        "4: mov [rsp + 24], ebx",
        "3: clc",
        "ret",
        "2: add rsp, 32",
        "pop rdx",
        "pop r9",
        "pop r8",
        "pop rsi",
        "pop rdi",
        "pop rcx",
        "pop rbx",
        "pop rax",
        "mov rsp, r12",
        "pop r10",
        "xorps xmm15, xmm15",
        "stc",
        "ret",
        running = sym RUNNING,
        again = sym ids::again,
    )
}

/// A function that gives an id has given it, as is in `r11`, and its frame is gone.
#[unsafe(naked)]
pub unsafe extern "C" fn id_told() {
    naked_asm!(
        to_own_stack!(),
        "push rax",
        "push rbx",
        "push rcx",
        "push rdi",
        "push rsi",
        "push r8",
        "push r9",
        "push r11",
        "mov rdi, r14",
        "mov rsi, rbp",
        "mov rdx, rsp",
        "mov rcx, r12",
        "call {told}",
        "pop r11",
        "pop r9",
        "pop r8",
        "pop rsi",
        "pop rdi",
        "pop rcx",
        "pop rbx",
        "pop rax",
        "mov rsp, r12",
        "xorps xmm15, xmm15",
        "ret",
        running = sym RUNNING,
        told = sym ids::told,
    )
}
