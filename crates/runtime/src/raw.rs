//! System calls made by the runtime itself.
//!
//! The dispatch of system calls excepts the runtime's own text, so what is called here never traps,
//! whatever the selector says. Nothing else in the runtime may enter the kernel.

use std::arch::{asm, global_asm};
use std::ffi::CStr;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

/// One system call. Returns what the kernel does: the result, or `-errno`.
///
/// # Safety
/// As the system call.
#[inline(always)]
pub unsafe fn syscall6(
    number: i64,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let result: isize;
    // SAFETY: the kernel keeps all registers but rax, rcx and r11; memory is the caller's matter.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// The stack pointer of the function that this is inlined into.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// How far below a stub the runtime uses the stack, but for what happens now and then.
const DEPTH: usize = 5120;

/// Runs `body` in a frame of its own, and clears the stack that it has used, and the registers that
/// a function may leave as it likes: what saves all registers puts them on the stack.
///
/// The runtime does one thing in a recording and another in its replay, and what it leaves on the
/// stack the program finds in variables that it does not initialise. A collector that takes what is
/// there for addresses keeps other objects then. So this is around what both runs enter, and around
/// nothing else.
#[inline(always)]
pub fn in_own_frame<R>(body: impl FnOnce() -> R) -> R {
    #[inline(never)]
    fn run<R>(body: impl FnOnce() -> R) -> R {
        body()
    }
    let result = run(body);
    // SAFETY: the runtime was there a moment ago, and a function that has called another uses
    // nothing below its stack pointer. The direction flag is clear by convention.
    unsafe {
        asm!(
            "lea rdi, [rsp - {below}]",
            "xor eax, eax",
            "mov ecx, {words}",
            "rep stosq",
            "xor edx, edx",
            "xor esi, esi",
            "xor edi, edi",
            "xor r8d, r8d",
            "xor r9d, r9d",
            "xor r10d, r10d",
            "xor r11d, r11d",
            below = const DEPTH,
            words = const DEPTH / 8,
            out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            options(nostack),
        );
        asm!(
            "pxor xmm0, xmm0", "pxor xmm1, xmm1", "pxor xmm2, xmm2", "pxor xmm3, xmm3",
            "pxor xmm4, xmm4", "pxor xmm5, xmm5", "pxor xmm6, xmm6", "pxor xmm7, xmm7",
            "pxor xmm8, xmm8", "pxor xmm9, xmm9", "pxor xmm10, xmm10", "pxor xmm11, xmm11",
            "pxor xmm12, xmm12", "pxor xmm13, xmm13", "pxor xmm14, xmm14", "pxor xmm15, xmm15",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nomem, nostack, preserves_flags),
        );
    }
    result
}

/// `syscall!(SYS_close, fd)`: a system call with as many arguments as given.
#[macro_export]
macro_rules! syscall {
    ($number:expr) => { $crate::raw::syscall6($number, 0, 0, 0, 0, 0, 0) };
    ($number:expr, $a:expr) => { $crate::raw::syscall6($number, $a as usize, 0, 0, 0, 0, 0) };
    ($number:expr, $a:expr, $b:expr) => { $crate::raw::syscall6($number, $a as usize, $b as usize, 0, 0, 0, 0) };
    ($number:expr, $a:expr, $b:expr, $c:expr) => { $crate::raw::syscall6($number, $a as usize, $b as usize, $c as usize, 0, 0, 0) };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {
        $crate::raw::syscall6($number, $a as usize, $b as usize, $c as usize, $d as usize, 0, 0)
    };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        $crate::raw::syscall6($number, $a as usize, $b as usize, $c as usize, $d as usize, $e as usize, 0)
    };
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::raw::syscall6($number, $a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize)
    };
}

// A signal that is queued between the last look at the queue and the entry into the kernel would be
// noticed only after the call returned, which for a read from a quiet socket is never. So the look
// and the entry are one window, with labels at both ends: the signal handler moves an instruction
// pointer inside it to `interrupted`.
global_asm!(
    ".text",
    ".globl hindcast_blocking_syscall",
    ".hidden hindcast_blocking_syscall",
    ".type hindcast_blocking_syscall, @function",
    // (rdi: number, rsi: arguments, rdx: the byte that says that a signal is queued)
    "hindcast_blocking_syscall:",
    // A cancelled thread is unwound from here.
    ".cfi_startproc",
    "mov rax, rdi",
    "mov r11, rdx",
    "mov rdi, [rsi]",
    "mov rdx, [rsi + 16]",
    "mov r10, [rsi + 24]",
    "mov r8, [rsi + 32]",
    "mov r9, [rsi + 40]",
    "mov rsi, [rsi + 8]",
    ".globl hindcast_window_begin",
    ".hidden hindcast_window_begin",
    "hindcast_window_begin:",
    "cmp byte ptr [r11], 0",
    "jne hindcast_window_interrupted",
    ".globl hindcast_window_end",
    ".hidden hindcast_window_end",
    "hindcast_window_end:",
    "syscall",
    "ret",
    ".globl hindcast_window_interrupted",
    ".hidden hindcast_window_interrupted",
    "hindcast_window_interrupted:",
    "mov rax, -4",
    "ret",
    ".cfi_endproc",
    ".size hindcast_blocking_syscall, . - hindcast_blocking_syscall",
);

unsafe extern "C" {
    fn hindcast_blocking_syscall(
        number: i64,
        arguments: *const [usize; 6],
        queued: *const u8,
    ) -> isize;
    fn hindcast_window_begin();
    fn hindcast_window_end();
    fn hindcast_window_interrupted();
}

/// A system call that may block. Returns `-EINTR` as well when `queued` says, just before it would
/// have entered the kernel, that a signal is queued.
///
/// # Safety
/// As the system call.
#[inline(always)]
pub unsafe fn blocking6(number: i64, arguments: [usize; 6], queued: &AtomicU8) -> isize {
    // SAFETY: the assembly reads the six arguments and the byte, both alive for the call.
    unsafe { hindcast_blocking_syscall(number, &arguments, queued.as_ptr()) }
}

/// Where a signal handler must resume a thread that it interrupted at `instruction`: `Some` inside
/// the window of [`blocking6`], whose system call was not entered yet (or is about to be restarted)
/// and must not be.
pub fn interrupted_window(instruction: usize) -> Option<usize> {
    let inside =
        hindcast_window_begin as *const () as usize..=hindcast_window_end as *const () as usize;
    inside
        .contains(&instruction)
        .then_some(hindcast_window_interrupted as *const () as usize)
}

/// The library's text: base address and length. System calls from inside never trap.
pub fn text_range() -> (usize, usize) {
    let base: usize;
    // SAFETY: the linker defines the symbol at the first byte of this library.
    unsafe {
        asm!(".hidden __ehdr_start", "lea {}, [rip + __ehdr_start]", out(reg) base, options(nomem, nostack))
    };
    // SAFETY: a loaded library begins with its ELF header, and its program headers are mapped.
    let segments = unsafe {
        let header = &*(base as *const libc::Elf64_Ehdr);
        std::slice::from_raw_parts(
            (base + header.e_phoff as usize) as *const libc::Elf64_Phdr,
            header.e_phnum as usize,
        )
    };
    let text = segments
        .iter()
        .find(|segment| segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0);
    let text = text.expect("a library has text");
    (base + text.p_vaddr as usize, text.p_memsz as usize)
}

/// Whether a result of the kernel is an error, and which.
#[inline(always)]
pub fn error_of(result: isize) -> Option<i32> {
    (-4095..0).contains(&result).then(|| -result as i32)
}

/// Opens below a folder with `O_CLOEXEC`.
pub fn open_at(folder: i32, path: &CStr, flags: i32, permissions: u32) -> Result<i32, i32> {
    // SAFETY: the path is a C string.
    let result = unsafe {
        syscall!(
            libc::SYS_openat,
            folder,
            path.as_ptr(),
            flags | libc::O_CLOEXEC,
            permissions
        )
    };
    error_of(result).map_or(Ok(result as i32), Err)
}

pub fn close(descriptor: i32) {
    // SAFETY: a descriptor of ours.
    unsafe { syscall!(libc::SYS_close, descriptor) };
}

/// Maps at a fixed address inside the runtime's range.
///
/// # Safety
/// Nothing in use may lie there.
pub unsafe fn map_at(
    address: usize,
    length: usize,
    protection: i32,
    flags: i32,
    descriptor: i32,
    offset: usize,
) -> Result<*mut u8, i32> {
    // SAFETY: the caller's promise.
    let result = unsafe {
        syscall!(
            libc::SYS_mmap,
            address,
            length,
            protection,
            flags | libc::MAP_FIXED,
            descriptor as isize,
            offset
        )
    };
    error_of(result).map_or(Ok(result as *mut u8), Err)
}

/// As [`map_at`] for fresh memory. `flags` say whether children share it, and the like.
///
/// # Safety
/// As there.
pub unsafe fn map_memory(address: usize, length: usize, flags: i32) -> Result<*mut u8, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller's promise.
    unsafe {
        map_at(
            address,
            length,
            protection,
            flags | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    }
}

/// As [`map_at`] for a part of a file, to be read and written.
///
/// # Safety
/// As there.
pub unsafe fn map_file(
    address: usize,
    length: usize,
    flags: i32,
    file: i32,
    offset: usize,
) -> Result<*mut u8, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller's promise.
    unsafe { map_at(address, length, protection, flags, file, offset) }
}

/// Writes all of it, as far as the descriptor takes it.
pub fn write_all(descriptor: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the slice is readable.
        let written = unsafe { syscall!(libc::SYS_write, descriptor, bytes.as_ptr(), bytes.len()) };
        match error_of(written) {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => {
                let mut poll = libc::pollfd {
                    fd: descriptor,
                    events: libc::POLLOUT,
                    revents: 0,
                };
                // SAFETY: one poll entry.
                unsafe { syscall!(libc::SYS_poll, &raw mut poll, 1, 1000) };
            }
            Some(_) => return,
            None => bytes = &bytes[written as usize..],
        }
    }
}

pub fn pause(time: Duration) {
    let time = libc::timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: reads one timespec.
    unsafe { syscall!(libc::SYS_nanosleep, &raw const time, 0) };
}

/// What a clock of the kernel's says; zero if there is no such clock.
pub fn time(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { syscall!(libc::SYS_clock_gettime, clock, &raw mut now) };
    now
}

/// Ends the process at once, without anything of libc's or the program's running.
pub fn exit_process(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { syscall!(libc::SYS_exit_group, status) };
    }
}

#[inline(always)]
pub fn errno() -> i32 {
    // SAFETY: libc's errno of this thread.
    unsafe { *libc::__errno_location() }
}

#[inline(always)]
pub fn set_errno(code: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = code };
}

/// A result of the kernel in libc's convention: -1 and `errno`.
#[inline(always)]
pub fn libc_result(result: isize) -> isize {
    match error_of(result) {
        Some(code) => {
            set_errno(code);
            -1
        }
        None => result,
    }
}
