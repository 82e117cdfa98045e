//! Becoming the process of a checkpoint.

use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use hindcast_execlog::Config;
use hindcast_execlog::checkpoint::{Image, PAGE, Plan, Region, Run, Settings, Source};
use hindcast_execlog::config::addresses::{
    HANDLER_STACKS, RESTORING, RESTORING_PLAN_BYTES, RESTORING_STACK_BYTES,
};
use hindcast_execlog::config::descriptors;

use super::halt::{self, ARCH_GET_FS, Halted};
use crate::mechanism::signals::actions;
use crate::mechanism::sync::turn;
use crate::mechanism::{divergence, entry, folder};
use crate::state::recording;
use crate::state::signals::SIGNALS;
use crate::state::thread::{self, Current, Thread};
use crate::{raw, syscall};

const ARCH_SET_GS: i32 = 0x1001;
const ARCH_SET_FS: i32 = 0x1002;
/// Where programs may map at all.
const LOWEST: usize = 1 << 16;
const HIGHEST: usize = (1 << 47) - 4096;
/// What the launcher returns, too, where nothing was executed.
const NOT_EXECUTED: i32 = 125;
const WRITABLE: i32 = libc::PROT_READ | libc::PROT_WRITE;

global_asm!(
    ".text",
    // (rdi: the end of a stack, rsi: a function that does not return, rdx: its argument)
    ".globl hindcast_on_stack",
    ".hidden hindcast_on_stack",
    ".type hindcast_on_stack, @function",
    "hindcast_on_stack:",
    "mov rsp, rdi",
    "xor ebp, ebp",
    "mov rdi, rdx",
    "call rsi",
    "ud2",
    ".size hindcast_on_stack, . - hindcast_on_stack",
    // (rdi: flags, rsi: the end of a stack, rdx: where its number is cleared, rcx: fs,
    //  r8: a function that does not return, r9: its argument)
    ".globl hindcast_clone_thread",
    ".hidden hindcast_clone_thread",
    ".type hindcast_clone_thread, @function",
    "hindcast_clone_thread:",
    "mov r10, rdx",
    "mov r11, r8",
    "mov r8, rcx",
    "xor edx, edx",
    "push r12",
    "mov r12, r11",
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "pop r12",
    "ret",
    "2:",
    "xor ebp, ebp",
    "mov rdi, r9",
    "call r12",
    "ud2",
    ".size hindcast_clone_thread, . - hindcast_clone_thread",
);

unsafe extern "C" {
    fn hindcast_on_stack(
        end: usize,
        function: extern "C" fn(*const Config) -> !,
        argument: *const Config,
    ) -> !;
    fn hindcast_clone_thread(
        flags: i32,
        end: usize,
        ended_at: usize,
        fs: usize,
        function: extern "C" fn(&'static Halted) -> !,
        argument: &'static Halted,
    ) -> isize;
}

/// Becomes the process of the checkpoint that the launcher has handed over.
pub fn restore(config: &Config) -> ! {
    let end = stack_end(0).unwrap_or_else(|code| unusable(format_args!("no memory ({code})")));
    // SAFETY: a stack made just now, and the configuration lies where nothing else does until the
    // very end, when the other's lies there.
    unsafe { hindcast_on_stack(end, become_it, config) }
}

fn unusable(why: std::fmt::Arguments<'_>) -> ! {
    divergence::unusable(
        format_args!("the checkpoint: {why}"),
        "Remove the folder checkpoints of the recording: replays begin at the beginning then.",
    )
}

/// The end of a fresh stack.
fn stack_end(place: usize) -> Result<usize, i32> {
    let stack = RESTORING + RESTORING_PLAN_BYTES + place * RESTORING_STACK_BYTES;
    // SAFETY: room that is kept for this.
    unsafe { raw::map_memory(stack, RESTORING_STACK_BYTES, libc::MAP_PRIVATE) }?;
    Ok(stack + RESTORING_STACK_BYTES)
}

/// The area in which the kernel says to libc on which processor a thread is. It writes there
/// whenever it likes, so it is told before the area goes, and where the other's is.
struct Rseq {
    fs: usize,
    /// From there; zero: libc uses none.
    offset: isize,
}

static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);

impl Rseq {
    const UNREGISTER: i32 = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    const BYTES: usize = 32;

    fn of_this_thread() -> Rseq {
        let mut fs = 0usize;
        // SAFETY: writes one word; looks a name up, which is that of a word if it is there.
        unsafe {
            syscall!(libc::SYS_arch_prctl, ARCH_GET_FS, &raw mut fs);
            let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
            let offset = offset.as_ref().copied().unwrap_or(0);
            Rseq { fs, offset }
        }
    }

    fn ask(&self, flags: i32) {
        if self.offset != 0 {
            let area = self.fs.wrapping_add_signed(self.offset);
            // SAFETY: libc's own area of this thread.
            unsafe { syscall!(libc::SYS_rseq, area, Self::BYTES, flags, Self::SIGNATURE) };
        }
    }
}

extern "C" fn become_it(config: *const Config) -> ! {
    // SAFETY: the caller's configuration, which is read while it is there.
    let stop = unsafe { ((*config).break_thread, (*config).break_event) };
    let plan = plan();
    let rseq = Rseq::of_this_thread();
    rseq.ask(Rseq::UNREGISTER);
    if map_all(&plan).is_err() {
        // What was there is gone, and with it where reports are written.
        let said =
            b"hindcast: the memory of the checkpoint cannot be mapped: is there room for it?\n";
        raw::write_all(descriptors::STDERR, said);
        raw::exit_process(NOT_EXECUTED);
    }
    raw::close(descriptors::CHECKPOINT);
    // The state is the other process's from here on.
    settle(stop);
    let settings = plan.image.settings;
    if settings.are_own != 0 {
        set(&settings, plan.numbers());
    }
    RSEQ_OFFSET.store(rseq.offset, Ordering::Relaxed);
    let mut first = None;
    for (place, halted) in halt::take().iter().enumerate() {
        match halted.is_first.load(Ordering::Relaxed) {
            0 => begin_thread(place + 1, halted),
            _ => first = Some(halted),
        }
    }
    hindcast_restored();
    // SAFETY: the plan's room, which is not used any more.
    unsafe { syscall!(libc::SYS_munmap, RESTORING, RESTORING_PLAN_BYTES) };
    match first {
        Some(first) => {
            let fs = first.fs.load(Ordering::Relaxed);
            // SAFETY: numbers, and what the other process had set.
            unsafe {
                syscall!(libc::SYS_arch_prctl, ARCH_SET_FS, fs);
                syscall!(
                    libc::SYS_set_tid_address,
                    first.ended_at.load(Ordering::Relaxed)
                );
            }
            go_on(first)
        }
        // The first thread of the other process had ended before its others.
        None => loop {
            // SAFETY: ends this thread.
            unsafe { syscall!(libc::SYS_exit, 0) };
        },
    }
}

fn plan() -> Plan<'static> {
    let map = |bytes: usize| {
        let flags = libc::MAP_PRIVATE;
        // SAFETY: room that is kept for this.
        unsafe {
            raw::map_at(
                RESTORING,
                bytes,
                libc::PROT_READ,
                flags,
                descriptors::CHECKPOINT,
                0,
            )
        }
    };
    let read = map(size_of::<Image>()).and_then(|image| {
        // SAFETY: mapped just now; numbers.
        let bytes = unsafe { (*image.cast::<Image>()).plan_bytes() };
        if bytes > RESTORING_PLAN_BYTES {
            return Err(libc::E2BIG);
        }
        let plan = map(bytes)?;
        // SAFETY: mapped just now, and until the end of all this.
        Ok(unsafe { std::slice::from_raw_parts(plan, bytes) })
    });
    let plan = match read {
        Ok(bytes) => Plan::of(bytes),
        Err(code) => unusable(format_args!("its file cannot be read (error {code})")),
    };
    let Some(plan) = plan else {
        unusable(format_args!("its file is damaged, or of another version"))
    };
    // SAFETY: reads the auxiliary vector.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    let (text, _) = raw::text_range();
    let page = (text & !(PAGE - 1)) as u64;
    if plan.image.vdso != vdso || plan.image.runtime != page {
        unusable(format_args!("it was taken where libraries lie elsewhere"))
    }
    let end = plan.runs.last().map_or(0, |run| run.offset + run.length);
    // SAFETY: numbers.
    let length = unsafe { syscall!(libc::SYS_lseek, descriptors::CHECKPOINT, 0, libc::SEEK_END) };
    if (length as u64) < end {
        unusable(format_args!("its file is cut off"))
    }
    for region in plan.regions {
        if !matches!(region.source(), Source::File | Source::Shared) {
            continue;
        }
        let file = open(&plan, region);
        match file {
            Ok(file) => raw::close(file),
            Err(code) => {
                let name = plan.name(region).unwrap_or_default().to_string_lossy();
                unusable(format_args!("{name} cannot be opened (error {code})"))
            }
        }
    }
    plan
}

fn open(plan: &Plan<'_>, region: &Region) -> Result<i32, i32> {
    let name = plan.name(region).ok_or(libc::EINVAL)?;
    raw::open_at(descriptors::FOLDER, name, libc::O_RDONLY, 0)
}

/// Puts the other process's memory in place of this one's. Nothing of this one's is used afterwards
/// but what both have at the same place.
fn map_all(plan: &Plan<'_>) -> Result<(), i32> {
    if plan.image.heap_end != 0 {
        // SAFETY: makes room, which is mapped anew below.
        unsafe { syscall!(libc::SYS_brk, plan.image.heap_end) };
    }
    let mut free_from = LOWEST;
    for region in plan.regions {
        unmap(free_from, region.start as usize);
        free_from = region.end() as usize;
    }
    unmap(free_from, HIGHEST);
    for region in plan.regions {
        map(plan, region)?;
    }
    for run in plan.runs {
        read(run)?;
    }
    for region in plan.regions {
        if region.source() != Source::Untouched {
            protect(region, region.protection as i32)?;
        }
    }
    Ok(())
}

/// What lies between two regions, but for the room that all this runs in.
fn unmap(from: usize, to: usize) {
    let ours = RESTORING..HANDLER_STACKS;
    for (from, to) in [(from, to.min(ours.start)), (from.max(ours.end), to)] {
        if from < to {
            // SAFETY: nothing of it is used any more.
            unsafe { syscall!(libc::SYS_munmap, from, to - from) };
        }
    }
}

fn map(plan: &Plan<'_>, region: &Region) -> Result<(), i32> {
    let (start, length) = (region.start as usize, region.length as usize);
    let protection = region.protection as i32 | WRITABLE;
    let private = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    let fresh = private | libc::MAP_ANONYMOUS;
    // SAFETY: in place of what is not used any more, or of the very same.
    unsafe {
        match region.source() {
            Source::Untouched => return Ok(()),
            Source::There => return protect(region, protection),
            Source::Memory => raw::map_at(start, length, protection, fresh, -1, 0)?,
            Source::Stack => {
                let flags = fresh | libc::MAP_GROWSDOWN | libc::MAP_STACK;
                raw::map_at(start, length, protection, flags, -1, 0)?
            }
            Source::File | Source::Shared => {
                let file = open(plan, region)?;
                let offset = region.offset as usize;
                let (protection, flags) = match region.source() {
                    Source::Shared => (region.protection as i32, libc::MAP_SHARED),
                    _ => (protection, private),
                };
                let mapped = raw::map_at(start, length, protection, flags, file, offset);
                raw::close(file);
                mapped?
            }
        };
    }
    Ok(())
}

fn protect(region: &Region, protection: i32) -> Result<(), i32> {
    // SAFETY: a region of ours; what runs stays executable.
    let result = unsafe { syscall!(libc::SYS_mprotect, region.start, region.length, protection) };
    raw::error_of(result).map_or(Ok(()), Err)
}

fn read(run: &Run) -> Result<(), i32> {
    let mut done = 0;
    while done < run.length {
        // SAFETY: a part of a region that was mapped writable just now.
        let read = unsafe {
            syscall!(
                libc::SYS_pread64,
                descriptors::CHECKPOINT,
                run.address + done,
                run.length - done,
                run.offset + done
            )
        };
        match raw::error_of(read) {
            Some(libc::EINTR) => {}
            Some(code) => return Err(code),
            None if read == 0 => return Err(libc::EIO),
            None => done += read as u64,
        }
    }
    Ok(())
}

/// What the whole process has in the kernel; and where this replay is to stop, which the other one
/// was not to.
fn settle((thread, event): (u64, u64)) {
    super::listen();
    turn::forget_registration();
    for signal in 1..SIGNALS as i32 {
        actions::install(signal);
    }
    recording::stop_at(thread, event);
    for other in thread::all() {
        let stops = u64::from(other.number) == thread;
        // SAFETY: a state of the other process's, which has no thread yet.
        let mut state = unsafe { Current::of((&raw const *other).cast_mut()) };
        state
            .reader
            .stop_before(if stops { event } else { u64::MAX });
    }
}

/// What a follower whose leader is elsewhere has beside: its folder in the recording, which it
/// looks into again, and what the program has set. Its descriptors are there already.
fn set(settings: &Settings, (further, closing): (&[u32], &[u32])) {
    if folder::keep_open(recording::config().process.as_str()).is_err() {
        unusable(format_args!("its folder in the recording cannot be opened"))
    }
    let Settings { users, groups, .. } = settings;
    // SAFETY: numbers, and an array with its length. The user comes last, who may not do the rest.
    let failed = unsafe {
        for descriptor in closing {
            syscall!(
                libc::SYS_fcntl,
                *descriptor,
                libc::F_SETFD,
                libc::FD_CLOEXEC
            );
        }
        syscall!(libc::SYS_umask, settings.umask);
        [
            syscall!(libc::SYS_setgroups, further.len(), further.as_ptr()),
            syscall!(libc::SYS_setresgid, groups[0], groups[1], groups[2]),
            syscall!(libc::SYS_setresuid, users[0], users[1], users[2]),
        ]
    };
    if let Some(code) = failed.into_iter().find_map(raw::error_of) {
        unusable(format_args!("its user cannot be set (error {code})"))
    }
}

/// A debugger stops here and goes on: what it has put into the program's text to stop at was in the
/// text that lay there before.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[inline(never)]
pub extern "C" fn hindcast_restored() {
    std::hint::black_box(());
}

/// Begins a thread of the other process.
fn begin_thread(place: usize, halted: &'static Halted) {
    const FLAGS: i32 = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_CHILD_CLEARTID;
    let ended_at = halted.ended_at.load(Ordering::Relaxed);
    let fs = halted.fs.load(Ordering::Relaxed);
    let made = stack_end(place).map(|end| {
        // SAFETY: a stack made just now, and what the other process's thread had.
        unsafe { hindcast_clone_thread(FLAGS, end, ended_at, fs, go_on, halted) }
    });
    let code = made.map_or_else(Some, raw::error_of);
    if let Some(code) = code {
        unusable(format_args!("a thread cannot be made (error {code})"))
    }
}

/// Goes on where the thread waited. Its thread-local variables are the other's.
extern "C" fn go_on(halted: &'static Halted) -> ! {
    let word = |word: &AtomicUsize| word.load(Ordering::Relaxed);
    // SAFETY: what the kernel said of the other process's thread.
    unsafe {
        let [list, length] = &halted.robust_list;
        syscall!(libc::SYS_set_robust_list, word(list), word(length));
        if word(&halted.gs) != 0 {
            syscall!(libc::SYS_arch_prctl, ARCH_SET_GS, word(&halted.gs));
        }
    }
    let rseq = Rseq {
        fs: word(&halted.fs),
        offset: RSEQ_OFFSET.load(Ordering::Relaxed),
    };
    rseq.ask(0);
    let thread = word(&halted.thread) as *mut Thread;
    if !thread.is_null() {
        // SAFETY: the state of this thread, which nobody else uses.
        entry::rearm(&mut unsafe { Current::of(thread) });
    }
    // SAFETY: the frame of the handler that this thread was in, on its stack. The kernel takes all
    // registers from there.
    unsafe {
        asm!(
            "mov rsp, {}",
            "mov eax, 15",
            "syscall",
            "ud2",
            in(reg) word(&halted.frame),
            options(noreturn)
        )
    }
}
