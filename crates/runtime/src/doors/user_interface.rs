//! The C side: what stubs of a user's own interface call. Declared in
//! `crates/interpose/interfaces/hindcast_runtime.h`, used by the C code that `hindcast-interpose`
//! writes from an annotated header.
//!
//! Thin wrappers over [`Call`] and [`foreign`]. Where a Rust stub hands over a closure that runs
//! the real function, a C stub asks whether to run it and says what came out:
//!
//! ```text
//!   if (hindcast_runs(&call)) value = (long long) next(a, b);
//!   value = hindcast_ran(&call, HINDCAST_NEVER, value);          replay: from the log, callbacks first
//! ```

use std::ffi::{CStr, c_char};

use crate::doors::foreign::{self, Owner, Upcall};
use crate::functions::Function;
use crate::mechanism::call::{Call, Failure};
use crate::mechanism::detach::{Reason, detach};
use crate::mechanism::files;
use crate::state::{names, recording, thread};

/// Where a C stub keeps its call: `struct hindcast_call`.
const CALL_BYTES: usize = 512;
const _: () = assert!(size_of::<Call>() <= CALL_BYTES && align_of::<Call>() <= 16);

/// Gives the functions of an interface their numbers, in the order of its header; returns the
/// first. Interfaces are loaded in the order in which they were chosen, so numbers are the same in
/// both runs. 0: there are too many.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_interface(names: *const *const c_char, count: u32) -> u32 {
    // SAFETY: the caller passes that many C strings that stay.
    let first = unsafe { names::register(names, count) };
    if first == 0 {
        recording::warn(format_args!(
            "the interfaces have more than {} functions: {count} are not recorded",
            names::USERS_MAX
        ));
    }
    first.into()
}

/// The real function of a name; never null.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_next(name: *const c_char, own: *const ()) -> *mut u8 {
    // SAFETY: a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let look = || foreign::find_but(name, own as usize);
    let found = thread::in_system_space(look);
    assert!(
        !found.is_null(),
        "no loaded library has {}",
        name.to_str().unwrap_or("it")
    );
    found.cast()
}

/// 0: pass through.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_enter(call: *mut Call, function: u32) -> i32 {
    if function == 0 {
        return 0;
    }
    match Call::enter(Function(function as u16)) {
        Some(entered) => {
            // SAFETY: the caller's room for a call.
            unsafe { call.write(entered) };
            1
        }
        None => 0,
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_leave(call: *mut Call) {
    // SAFETY: entered, and left once.
    unsafe { call.read() }.leave();
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_input(call: &mut Call, value: u64) {
    call.input(value);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_input_bytes(call: &mut Call, bytes: *const u8, length: i64) {
    // SAFETY: the header says so.
    unsafe { call.input_bytes(bytes, length.max(0) as usize) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_input_string(call: &mut Call, text: *const c_char) {
    // SAFETY: the header says so.
    unsafe { call.input_str(text) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_input_iovec(
    call: &mut Call,
    buffers: *const libc::iovec,
    count: i64,
) {
    // SAFETY: the header says so.
    unsafe { call.input_iovec(buffers, count.max(0) as usize) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_sync_before(call: &mut Call, key: u64) {
    if key != 0 {
        call.sync_before(key);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_sync_after(call: &mut Call, key: u64) {
    if key != 0 {
        call.sync_after(key);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_sync_key(descriptor: i32) -> u64 {
    files::sync_key(descriptor).unwrap_or(0)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_cache(call: &mut Call) {
    call.cache();
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_blocks(call: &mut Call) {
    call.blocks();
}

/// Whether the real function is to be called: only while recording.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_runs(call: &mut Call) -> i32 {
    call.about_to_run();
    call.is_recording().into()
}

/// What the real function returned, if it ran; gives what the program gets.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_ran(call: &mut Call, failure: i32, value: i64) -> i64 {
    let failure = match failure {
        0 => Failure::Minus1,
        1 => Failure::Null,
        2 => Failure::NonZero,
        _ => Failure::Never,
    };
    call.run_calling_back(failure, || value, foreign::call_back)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_out(call: &mut Call, memory: *mut u8, length: i64) {
    // SAFETY: the header says so.
    unsafe { call.out(memory, length.max(0) as usize) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_out_iovec(
    call: &mut Call,
    buffers: *const libc::iovec,
    count: i64,
    total: i64,
) {
    // SAFETY: the header says so.
    unsafe { call.out_iovec(buffers, count.max(0) as usize, total.max(0) as usize) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_out_msghdr(
    call: &mut Call,
    message: *mut libc::msghdr,
    result: i64,
) {
    // SAFETY: the header says so.
    unsafe { call.out_msghdr(message, result as isize) };
}

/// `size` < 0: a string. It is asked for by the caller while recording only.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_shadow(
    call: &mut Call,
    real: *mut u8,
    size: i64,
    owner: i32,
    key: u64,
    place: u64,
) -> *mut u8 {
    let owner = match owner {
        0 => Owner::None,
        1 => Owner::Thread,
        2 => Owner::Process,
        3 => Owner::Callback,
        _ => Owner::Until(key),
    };
    let asked = || size.max(0) as usize;
    let size: Option<&dyn Fn() -> usize> = if size < 0 { None } else { Some(&asked) };
    // SAFETY: the header says so.
    unsafe { foreign::shadow(call, real, size, owner, place) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_is_recording(call: &Call) -> i32 {
    call.is_recording().into()
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_release(call: &mut Call, key: u64) {
    foreign::release(call, key);
}

/// Recording: the library's own block behind a copy that the program gives back, or the pointer
/// itself.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_real(call: &Call, copy: *mut u8) -> *mut u8 {
    if call.is_recording() {
        foreign::take_real(copy).unwrap_or(copy)
    } else {
        copy
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_free(call: &mut Call, copy: *mut u8) {
    // SAFETY: a copy that the program gave back.
    unsafe { foreign::free(call, copy) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_prepare(_call: &mut Call, key: u64, buffer: *mut u8, size: i64) {
    foreign::prepare(key, buffer, size.max(0) as usize);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_commit(call: &mut Call, key: u64, size: i64) {
    // SAFETY: the header says so.
    unsafe { foreign::commit(call, key, size.max(0) as usize) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_arrived(call: &mut Call, key: u64, again: i32) {
    // SAFETY: the header says so.
    unsafe { foreign::arrived(call, key, again != 0) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_forget(key: u64) {
    foreign::forget(key);
}

/// Ends recording, if it is recorded: the words complete "recording ended because …".
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_ends(because: *const c_char) {
    // SAFETY: a C string that stays.
    let because = unsafe { CStr::from_ptr(because) };
    detach(Reason::Other(
        because.to_str().unwrap_or("it cannot be recorded"),
    ));
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_echo(
    call: &mut Call,
    descriptor: i32,
    bytes: *const u8,
    length: i64,
) {
    // SAFETY: the header says so.
    unsafe { call.echo(descriptor, bytes, length.max(0) as usize) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_opened(descriptor: i32, kind: i32) {
    match kind {
        0 => files::opened(descriptor, files::Kind::File),
        1 => files::opened_internal(descriptor, descriptor),
        2 => files::opened(descriptor, files::Kind::Socket),
        3 => files::opened(descriptor, files::Kind::Poll),
        _ => files::opened(descriptor, files::Kind::Other),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_closed(descriptor: i32) {
    files::closed(descriptor);
}

/// What a library gets instead of a function of the program.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_stand_in(
    call: &Call,
    stub: *const (),
    program: *mut u8,
) -> *mut u8 {
    if call.is_recording() {
        foreign::stand_in(stub, program)
    } else {
        program
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_upcall(
    function: u32,
    parameter: u32,
    number: f64,
    result_bytes: u32,
) -> *mut Upcall {
    Box::into_raw(Box::new(Upcall::new(
        Function(function as u16),
        parameter,
        number,
        result_bytes as u8,
    )))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_upcall_value(upcall: &mut Upcall, value: u64) {
    upcall.value(value);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_upcall_bytes(upcall: &mut Upcall, bytes: *const u8, length: i64) {
    // SAFETY: the header says so.
    unsafe { upcall.bytes(bytes, length.max(0) as usize) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_upcall_string(upcall: &mut Upcall, text: *const u8) {
    // SAFETY: the header says so.
    unsafe { upcall.string(text) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_upcall_strings(
    upcall: &mut Upcall,
    texts: *const *const u8,
    count: i64,
) {
    // SAFETY: the header says so.
    unsafe { upcall.strings(texts, count.max(0) as usize) };
}

/// Calls the program; the upcall is over then.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_upcall_run(upcall: *mut Upcall) -> u64 {
    // SAFETY: made by `hindcast_upcall`, and run once.
    unsafe { Box::from_raw(upcall).run() }
}

/// For `reproduce`: into system space without a trace in the log. Null: pass through.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_step_down() -> *mut thread::Thread {
    thread::enter().map_or(std::ptr::null_mut(), |thread| thread.as_ptr())
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn hindcast_step_up(thread: *mut thread::Thread) {
    // SAFETY: null, or what `hindcast_step_down` gave this thread.
    if let Some(thread) = unsafe { thread.as_mut() } {
        thread.enter_replay();
    }
}
