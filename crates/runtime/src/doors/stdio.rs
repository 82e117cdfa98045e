//! Streams of libc in processes with several threads.
//!
//! Libc's stdio runs in replay space: its buffers are part of the program, and the system calls
//! beneath it are recorded. It locks each stream while a function works on it, inside, where nobody
//! sees it; yet which thread came first decides what is in the buffer, and which thread writes it
//! out. So each function here takes the stream's lock itself, from outside, as an acquisition of
//! the stream, and calls the real function, whose own locking of the stream is then a second one by
//! the same thread.
//!
//! As long as a process has had one thread, each of these functions is a comparison and a jump.
//!
//! Functions that print a variable number of arguments are a few lines of assembly, which put the
//! arguments where the real function's sister with a `va_list` finds them.
//!
//! **What is not ordered**: `fflush(NULL)` and the end of the process write out streams that other
//! threads may be filling; the step is ordered, the streams within it are not.

// Libc has names such as `_IO_putc`.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_long, c_void};

use crate::mechanism::sync::{self, Step, real};
use crate::mechanism::{alone, signals};
use crate::state::mode::{Mode, mode};
use crate::state::thread::{self, Current};

/// A stream. What is in it is libc's.
#[repr(C)]
pub struct Stream {
    private: [u8; 216],
}

/// A wide character.
type Wide = i32;
type Offset = i64;

unsafe extern "C" {
    static stdin: *mut Stream;
    static stdout: *mut Stream;
    static stderr: *mut Stream;
}

/// The list of all streams, as something that is acquired. Not an address.
const ALL_STREAMS: u64 = 1 << 63 | 1;

fn lock_stream(thread: &mut Current, stream: *mut Stream) {
    let lock = real!(flockfile: fn(*mut Stream));
    alone::away(thread);
    if mode() == Mode::Record {
        // SAFETY: the program's stream.
        unsafe { lock(stream) };
        sync::record_exclusive(thread, stream as u64);
        return;
    }
    let step = Step::new("a function of stdio", stream);
    // SAFETY: as above.
    sync::pass(thread, step, |_| unsafe { lock(stream) });
}

/// Runs a function of libc on a stream, in replay space, when it is this thread's turn.
#[inline(always)]
fn on_stream<R>(stream: *mut Stream, inner: impl FnOnce() -> R) -> R {
    if thread::are_several() {
        in_order(stream, inner)
    } else {
        inner()
    }
}

#[inline(never)]
fn in_order<R>(stream: *mut Stream, inner: impl FnOnce() -> R) -> R {
    let Some(thread) = &mut thread::enter_if(!stream.is_null()) else {
        return inner();
    };
    lock_stream(thread, stream);
    signals::leave(thread);
    let result = inner();
    // SAFETY: locked above. Waking somebody is a system call, which both runs make for real.
    unsafe { real!(funlockfile: fn(*mut Stream))(stream) };
    result
}

/// Orders what a function is about to do without locking anything for it.
fn order_only(key: u64) {
    if let Some(thread) = &mut thread::enter_if(thread::are_several()) {
        sync::object(thread, key);
        signals::leave(thread);
    }
}

/// Functions on a stream, under their own names, with their own real functions.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?, $stream:expr;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            let real = real!($name: fn($($type),*) $(-> $result)?);
            // SAFETY: the program's arguments.
            #[allow(unused_unsafe)]
            let stream = unsafe { $stream };
            on_stream(stream, || unsafe { real($($argument),*) })
        }
    )*};
}

functions! {
    fputs(text: *const c_char, stream: *mut Stream) -> c_int, stream;
    puts(text: *const c_char) -> c_int, stdout;
    fputc(character: c_int, stream: *mut Stream) -> c_int, stream;
    putc(character: c_int, stream: *mut Stream) -> c_int, stream;
    _IO_putc(character: c_int, stream: *mut Stream) -> c_int, stream;
    putchar(character: c_int) -> c_int, stdout;
    putw(word: c_int, stream: *mut Stream) -> c_int, stream;
    fwrite(from: *const c_void, size: usize, count: usize, stream: *mut Stream) -> usize, stream;
    perror(text: *const c_char), stderr;

    fgetc(stream: *mut Stream) -> c_int, stream;
    getc(stream: *mut Stream) -> c_int, stream;
    _IO_getc(stream: *mut Stream) -> c_int, stream;
    getchar() -> c_int, stdin;
    getw(stream: *mut Stream) -> c_int, stream;
    ungetc(character: c_int, stream: *mut Stream) -> c_int, stream;
    fgets(line: *mut c_char, size: c_int, stream: *mut Stream) -> *mut c_char, stream;
    __fgets_chk(line: *mut c_char, room: usize, size: c_int, stream: *mut Stream) -> *mut c_char, stream;
    getline(line: *mut *mut c_char, size: *mut usize, stream: *mut Stream) -> isize, stream;
    getdelim(line: *mut *mut c_char, size: *mut usize, end: c_int, stream: *mut Stream) -> isize, stream;
    __getdelim(line: *mut *mut c_char, size: *mut usize, end: c_int, stream: *mut Stream) -> isize, stream;
    fread(to: *mut c_void, size: usize, count: usize, stream: *mut Stream) -> usize, stream;
    __fread_chk(to: *mut c_void, room: usize, size: usize, count: usize, stream: *mut Stream) -> usize, stream;

    fseek(stream: *mut Stream, offset: c_long, from: c_int) -> c_int, stream;
    fseeko(stream: *mut Stream, offset: Offset, from: c_int) -> c_int, stream;
    fseeko64(stream: *mut Stream, offset: Offset, from: c_int) -> c_int, stream;
    ftell(stream: *mut Stream) -> c_long, stream;
    ftello(stream: *mut Stream) -> Offset, stream;
    ftello64(stream: *mut Stream) -> Offset, stream;
    rewind(stream: *mut Stream), stream;
    fgetpos(stream: *mut Stream, position: *mut c_void) -> c_int, stream;
    fgetpos64(stream: *mut Stream, position: *mut c_void) -> c_int, stream;
    fsetpos(stream: *mut Stream, position: *const c_void) -> c_int, stream;
    fsetpos64(stream: *mut Stream, position: *const c_void) -> c_int, stream;
    setvbuf(stream: *mut Stream, buffer: *mut c_char, how: c_int, size: usize) -> c_int, stream;
    setbuf(stream: *mut Stream, buffer: *mut c_char), stream;
    setbuffer(stream: *mut Stream, buffer: *mut c_char, size: usize), stream;
    setlinebuf(stream: *mut Stream), stream;
    feof(stream: *mut Stream) -> c_int, stream;
    ferror(stream: *mut Stream) -> c_int, stream;
    clearerr(stream: *mut Stream), stream;
    freopen(path: *const c_char, how: *const c_char, stream: *mut Stream) -> *mut Stream, stream;
    freopen64(path: *const c_char, how: *const c_char, stream: *mut Stream) -> *mut Stream, stream;

    vprintf(format: *const c_char, list: *mut c_void) -> c_int, stdout;
    vfprintf(stream: *mut Stream, format: *const c_char, list: *mut c_void) -> c_int, stream;
    __vprintf_chk(flag: c_int, format: *const c_char, list: *mut c_void) -> c_int, stdout;
    __vfprintf_chk(stream: *mut Stream, flag: c_int, format: *const c_char, list: *mut c_void) -> c_int, stream;
    vscanf(format: *const c_char, list: *mut c_void) -> c_int, stdin;
    vfscanf(stream: *mut Stream, format: *const c_char, list: *mut c_void) -> c_int, stream;
    __isoc99_vscanf(format: *const c_char, list: *mut c_void) -> c_int, stdin;
    __isoc99_vfscanf(stream: *mut Stream, format: *const c_char, list: *mut c_void) -> c_int, stream;

    fputwc(character: Wide, stream: *mut Stream) -> u32, stream;
    putwc(character: Wide, stream: *mut Stream) -> u32, stream;
    putwchar(character: Wide) -> u32, stdout;
    fputws(text: *const Wide, stream: *mut Stream) -> c_int, stream;
    fgetwc(stream: *mut Stream) -> u32, stream;
    getwc(stream: *mut Stream) -> u32, stream;
    getwchar() -> u32, stdin;
    fgetws(line: *mut Wide, size: c_int, stream: *mut Stream) -> *mut Wide, stream;
    ungetwc(character: u32, stream: *mut Stream) -> u32, stream;
    vwprintf(format: *const Wide, list: *mut c_void) -> c_int, stdout;
    vfwprintf(stream: *mut Stream, format: *const Wide, list: *mut c_void) -> c_int, stream;
    __vwprintf_chk(flag: c_int, format: *const Wide, list: *mut c_void) -> c_int, stdout;
    __vfwprintf_chk(stream: *mut Stream, flag: c_int, format: *const Wide, list: *mut c_void) -> c_int, stream;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn flockfile(stream: *mut Stream) {
    match &mut thread::enter_if(thread::are_several()) {
        Some(thread) => {
            lock_stream(thread, stream);
            signals::leave(thread);
        }
        // SAFETY: the program's stream.
        _ => unsafe { real!(flockfile: fn(*mut Stream))(stream) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ftrylockfile(stream: *mut Stream) -> c_int {
    let real = real!(ftrylockfile: fn(*mut Stream) -> c_int);
    let Some(thread) = &mut thread::enter_if(thread::are_several()) else {
        // SAFETY: the program's stream.
        return unsafe { real(stream) };
    };
    let result = sync::attempt(
        thread,
        Step::new("ftrylockfile", stream),
        // SAFETY: as above.
        |_| unsafe { real(stream) },
        |thread| sync::record_exclusive(thread, stream as u64),
        |_| {
            // SAFETY: as above.
            unsafe { real!(flockfile: fn(*mut Stream))(stream) };
            0
        },
    );
    signals::leave(thread);
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fflush(stream: *mut Stream) -> c_int {
    let real = real!(fflush: fn(*mut Stream) -> c_int);
    if stream.is_null() {
        order_only(ALL_STREAMS);
    }
    // SAFETY: the program's stream.
    on_stream(stream, || unsafe { real(stream) })
}

/// The stream is gone afterwards, and its lock with it: whoever is still in a function on it holds
/// its lock, for which the real function waits.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fclose(stream: *mut Stream) -> c_int {
    let real = real!(fclose @ c"GLIBC_2.2.5": fn(*mut Stream) -> c_int);
    order_only(ALL_STREAMS);
    order_only(stream as u64);
    // SAFETY: the program's stream.
    unsafe { real(stream) }
}

/// Functions that make a stream, which goes to the head of the list of all.
macro_rules! openers {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> *mut Stream {
            let real = real!($name: fn($($type),*) -> *mut Stream);
            order_only(ALL_STREAMS);
            // SAFETY: the program's arguments.
            unsafe { real($($argument),*) }
        }
    )*};
}

openers! {
    fopen(path: *const c_char, how: *const c_char);
    fopen64(path: *const c_char, how: *const c_char);
    fdopen(descriptor: c_int, how: *const c_char);
    fmemopen(memory: *mut c_void, size: usize, how: *const c_char);
    open_memstream(memory: *mut *mut c_char, size: *mut usize);
    tmpfile();
    tmpfile64();
}

/// Functions with a variable number of arguments: `name(named arguments) = sister with a list`.
///
/// With one thread so far, a jump to the real function with everything as it is. Else the registers
/// that may hold arguments are saved in the order of a `va_list`, which is made on the stack as the
/// ABI describes it, and the sister is called.
macro_rules! variadic {
    ($($name:ident($named:literal, $list:literal) = $sister:path;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "cmp byte ptr [rip + {several}], 0",
                "jne 2f",
                "mov r11, [rip + {real}]",
                "test r11, r11",
                "je 3f",
                "jmp r11",
                // Not looked up yet.
                "3:",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "sub rsp, 64",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov [rsp + 48], rax",
                "sub rsp, 128",
                "movups [rsp], xmm0",
                "movups [rsp + 16], xmm1",
                "movups [rsp + 32], xmm2",
                "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4",
                "movups [rsp + 80], xmm5",
                "movups [rsp + 96], xmm6",
                "movups [rsp + 112], xmm7",
                "lea rdi, [rip + {name}]",
                "call {look_up}",
                "mov [rip + {real}], rax",
                "mov r11, rax",
                "movups xmm0, [rsp]",
                "movups xmm1, [rsp + 16]",
                "movups xmm2, [rsp + 32]",
                "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]",
                "movups xmm5, [rsp + 80]",
                "movups xmm6, [rsp + 96]",
                "movups xmm7, [rsp + 112]",
                "add rsp, 128",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                "mov rax, [rsp + 48]",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "jmp r11",
                // The list: 24 bytes behind 176 bytes of registers. The return address lies above both and 8 bytes of padding,
                // the arguments on the stack above that.
                "2:",
                "sub rsp, 216",
                ".cfi_adjust_cfa_offset 216",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "test al, al",
                "je 4f",
                "movups [rsp + 48], xmm0",
                "movups [rsp + 64], xmm1",
                "movups [rsp + 80], xmm2",
                "movups [rsp + 96], xmm3",
                "movups [rsp + 112], xmm4",
                "movups [rsp + 128], xmm5",
                "movups [rsp + 144], xmm6",
                "movups [rsp + 160], xmm7",
                "4:",
                "mov dword ptr [rsp + 176], 8 * {named}",
                "mov dword ptr [rsp + 180], 48",
                "lea r10, [rsp + 224]",
                "mov [rsp + 184], r10",
                "mov [rsp + 192], rsp",
                concat!("lea ", $list, ", [rsp + 176]"),
                "call {sister}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                several = sym thread::SEVERAL,
                real = sym variadic_slots::$name,
                name = sym variadic_names::$name,
                look_up = sym look_up,
                named = const $named,
                sister = sym $sister,
            );
        }
    )*
    /// Where the real functions are, once they were looked for.
    #[allow(non_upper_case_globals)]
    mod variadic_slots {
        $(pub static $name: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);)*
    }
    #[allow(non_upper_case_globals)]
    mod variadic_names {
        $(pub static $name: [u8; stringify!($name).len() + 1] = *match concat!(stringify!($name), "\0").as_bytes().first_chunk() {
            Some(name) => name,
            None => unreachable!(),
        };)*
    }
    };
}

variadic! {
    printf(1, "rsi") = vprintf;
    fprintf(2, "rdx") = vfprintf;
    __printf_chk(2, "rdx") = __vprintf_chk;
    __fprintf_chk(3, "rcx") = __vfprintf_chk;
    scanf(1, "rsi") = vscanf;
    fscanf(2, "rdx") = vfscanf;
    __isoc99_scanf(1, "rsi") = __isoc99_vscanf;
    __isoc99_fscanf(2, "rdx") = __isoc99_vfscanf;
    wprintf(1, "rsi") = vwprintf;
    fwprintf(2, "rdx") = vfwprintf;
    __wprintf_chk(2, "rdx") = __vwprintf_chk;
    __fwprintf_chk(3, "rcx") = __vfwprintf_chk;
}

/// The next definition of a function.
extern "C" fn look_up(name: *const c_char) -> *mut c_void {
    let look = || {
        // SAFETY: a C string.
        unsafe { libc::dlsym(libc::RTLD_NEXT, name) }
    };
    thread::in_system_space(look)
}
