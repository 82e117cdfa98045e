//! What of SQLite's interface is by hand: its memory functions and those with a variable number of
//! arguments.
//!
//! Memory that a program gets from SQLite to fill itself is the program's: it comes from the replay
//! heap. What SQLite allocated and hands out is a copy there ([`shadow`](super::shadow)), and to
//! free it means to free both.

// SAFETY, of each `unsafe` here that has no reason of its own: a function has the contract of
// SQLite's function of the same name, the caller keeps it, and `next!` is that function.

use std::collections::BTreeMap;

use hindcast_execlog::config::interfaces::SQLITE3;

use super::guarded::Guarded;
use super::{enter, is_in_replay_space, next, take_real};
use crate::doors::generated::sqlite3 as stubs;
use crate::functions;
use crate::mechanism::call::Failure;
use crate::mechanism::heap;
use crate::state::mode::{Mode, mode};
use crate::state::{recording, thread};

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sqlite3_malloc(bytes: i32) -> *mut u8 {
    if !is_in_replay_space(SQLITE3) {
        return unsafe { next!(sqlite3_malloc: unsafe extern "C" fn(i32) -> *mut u8)(bytes) };
    }
    if bytes <= 0 {
        std::ptr::null_mut()
    } else {
        unsafe { libc::malloc(bytes as usize).cast() }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sqlite3_malloc64(bytes: u64) -> *mut u8 {
    if !is_in_replay_space(SQLITE3) {
        return unsafe { next!(sqlite3_malloc64: unsafe extern "C" fn(u64) -> *mut u8)(bytes) };
    }
    if bytes == 0 {
        std::ptr::null_mut()
    } else {
        unsafe { libc::malloc(bytes as usize).cast() }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sqlite3_realloc(block: *mut u8, bytes: i32) -> *mut u8 {
    if !is_in_replay_space(SQLITE3) && !is_the_programs(block) {
        return unsafe {
            next!(sqlite3_realloc: unsafe extern "C" fn(*mut u8, i32) -> *mut u8)(block, bytes)
        };
    }
    unsafe { sqlite3_realloc64(block, bytes.max(0) as u64) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sqlite3_realloc64(block: *mut u8, bytes: u64) -> *mut u8 {
    if !is_in_replay_space(SQLITE3) && !is_the_programs(block) {
        return unsafe {
            next!(sqlite3_realloc64: unsafe extern "C" fn(*mut u8, u64) -> *mut u8)(block, bytes)
        };
    }
    if bytes == 0 {
        unsafe { sqlite3_free(block) };
        return std::ptr::null_mut();
    }
    free_real(block);
    unsafe { libc::realloc(block.cast(), bytes as usize).cast() }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sqlite3_free(block: *mut u8) {
    if is_in_replay_space(SQLITE3) {
        free_real(block);
        unsafe { libc::free(block.cast()) };
    } else if is_the_programs(block) {
        if let Some(real) = take_real(block) {
            unsafe { next!(sqlite3_free: unsafe extern "C" fn(*mut u8))(real) };
        }
        unsafe { libc::free(block.cast()) };
    } else {
        unsafe { next!(sqlite3_free: unsafe extern "C" fn(*mut u8))(block) };
    }
}

/// Outside of replay space: a block that the program got while it was in it. SQLite frees such a
/// block when it was handed over, and the program itself does once recording has ended.
fn is_the_programs(block: *const u8) -> bool {
    heap::is_of_replay(block) && recording::config().interfaces & SQLITE3 != 0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sqlite3_msize(block: *mut u8) -> u64 {
    if !is_in_replay_space(SQLITE3) && !is_the_programs(block) {
        return unsafe { next!(sqlite3_msize: unsafe extern "C" fn(*mut u8) -> u64)(block) };
    }
    unsafe { libc::malloc_usable_size(block.cast()) as u64 }
}

/// Recording: gives SQLite back its own block behind a copy. There is none in replay, and none
/// behind the program's own blocks.
fn free_real(copy: *mut u8) {
    if mode() == Mode::Record && is_in_replay_space(SQLITE3) {
        thread::in_system_space(|| {
            if let Some(real) = take_real(copy) {
                // SAFETY: SQLite's own block, which nobody else knows.
                unsafe { next!(sqlite3_free: unsafe extern "C" fn(*mut u8))(real) };
            }
        });
    }
}

/// Blocks of aggregates, by thread and the address that SQLite gave its own, which it may give to
/// several threads in turn.
pub(super) static AGGREGATES: Guarded<BTreeMap<(u32, u64), usize>> = Guarded::new(BTreeMap::new());

/// What an aggregate keeps from row to row. The program writes it itself, so it is the program's
/// memory: zeroed when SQLite has none yet for this group.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sqlite3_aggregate_context(context: *mut u8, bytes: i32) -> *mut u8 {
    type Real = unsafe extern "C" fn(*mut u8, i32) -> *mut u8;
    let Some(mut call) = enter(SQLITE3, functions::SQLITE3_AGGREGATE_CONTEXT) else {
        return unsafe { next!(sqlite3_aggregate_context: Real)(context, bytes) };
    };
    call.input(context as u64);
    call.input(bytes as u64);
    let mut is_new = 0u8;
    let real = call.run_libc(Failure::Never, || unsafe {
        let real = next!(sqlite3_aggregate_context: Real);
        is_new = real(context, 0).is_null().into();
        real(context, bytes) as i64
    });
    // SAFETY: a local value.
    unsafe { call.out_value(&raw mut is_new) };
    let mut block = std::ptr::null_mut();
    let key = (call.thread.number, real as u64);
    if real != 0 {
        if is_new != 0 {
            // SQLite has freed the old one at this address, if there was one.
            if let Some(old) = AGGREGATES.with(|aggregates| aggregates.remove(&key)) {
                // SAFETY: ours, of a group that is over.
                unsafe { super::free(&mut call, old as *mut u8) };
            }
            let room = bytes.max(1) as usize;
            block = heap::allocate_for_replay(&mut call.thread, room);
            if !block.is_null() {
                // SAFETY: a block of that size.
                unsafe { std::ptr::write_bytes(block, 0, room) };
                AGGREGATES.with(|aggregates| aggregates.insert(key, block as usize));
            }
        } else {
            block = AGGREGATES
                .with(|aggregates| aggregates.get(&key).copied())
                .unwrap_or(0) as *mut u8;
        }
    }
    call.leave();
    block
}

// Functions with `...` collect their arguments as the calling convention has it and go on to the
// sibling that takes a `va_list`.
macro_rules! variadic {
    ($name:ident, $target:path, $fixed:literal, $register:literal) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 208",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "movaps [rsp + 48], xmm0",
                "movaps [rsp + 64], xmm1",
                "movaps [rsp + 80], xmm2",
                "movaps [rsp + 96], xmm3",
                "movaps [rsp + 112], xmm4",
                "movaps [rsp + 128], xmm5",
                "movaps [rsp + 144], xmm6",
                "movaps [rsp + 160], xmm7",
                concat!("mov dword ptr [rsp + 176], 8 * ", $fixed),
                "mov dword ptr [rsp + 180], 48",
                "lea rax, [rbp + 16]",
                "mov [rsp + 184], rax",
                "mov [rsp + 192], rsp",
                concat!("lea ", $register, ", [rsp + 176]"),
                "call {target}",
                "leave",
                "ret",
                target = sym $target,
            )
        }
    };
}

variadic!(sqlite3_mprintf, stubs::sqlite3_vmprintf, "1", "rsi");
variadic!(sqlite3_snprintf, stubs::sqlite3_vsnprintf, "3", "rcx");
variadic!(sqlite3_str_appendf, stubs::sqlite3_str_vappendf, "2", "rdx");
