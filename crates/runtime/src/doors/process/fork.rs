//! Children with a copy of the memory.

use std::fmt::Write;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use hindcast_execlog::Text;
use hindcast_execlog::event::Kind;

use super::wait;
use crate::doors::{foreign, locks, threads};
use crate::mechanism::call::Call;
use crate::mechanism::detach::{self, Reason};
use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::signals::delivery;
use crate::mechanism::{self, alone, entry, folder, heap, log, references, signals, tree};
use crate::state::log::take_room;
use crate::state::mode::{Mode, elsewhere, mode};
use crate::state::recording;
use crate::state::thread::Current;
use crate::{functions, raw, syscall};

const CLONE_VM: u64 = libc::CLONE_VM as u64;
const CLONE_VFORK: u64 = libc::CLONE_VFORK as u64;
const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;
/// Parts of the parent that the child would share. Without any of these it is a child as `fork`
/// makes it.
const SHARED: u64 = (libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PIDFD) as u64;

/// What the program asked for, whichever call it used.
struct Wanted {
    flags: u64,
    /// Zero: the parent's.
    stack: usize,
    parent_id: *mut i32,
    child_id: *mut i32,
}

/// # Safety
/// The program's own call, with the context that it trapped in.
pub unsafe fn by_number(
    thread: &mut Current,
    number: i64,
    arguments: [usize; 6],
    context: *mut libc::ucontext_t,
) -> isize {
    let wanted = match number {
        libc::SYS_fork => Wanted::plain(libc::SIGCHLD as u64),
        libc::SYS_vfork => Wanted::plain(CLONE_VM | CLONE_VFORK | libc::SIGCHLD as u64),
        libc::SYS_clone => Wanted {
            flags: arguments[0] as u64,
            stack: arguments[1],
            parent_id: arguments[2] as *mut i32,
            child_id: arguments[3] as *mut i32,
        },
        // SAFETY: the first field of `clone_args`, if there is one.
        _ if arguments[0] != 0 && unsafe { *(arguments[0] as *const u64) } & CLONE_THREAD == 0 => {
            // Everybody who knows this call knows what to do without it. It says more than can be
            // copied.
            return -(libc::ENOSYS as isize);
        }
        _ => Wanted::plain(CLONE_VM | CLONE_THREAD),
    };
    let vfork = wanted.flags & (CLONE_VM | CLONE_VFORK) == CLONE_VM | CLONE_VFORK;
    if wanted.flags & CLONE_THREAD != 0
        || (wanted.flags & CLONE_VM != 0 && !vfork)
        || wanted.flags & SHARED != 0
    {
        if mode() == Mode::Replay {
            divergence::recording_ends(thread, Kind::Fork as u16);
        }
        detach::detach(if wanted.flags & CLONE_VM != 0 {
            Reason::Other("the program made a thread of its own with clone")
        } else {
            Reason::Other("the program made a child that shares its files or other parts of it")
        });
        // SAFETY: the caller's promise.
        return unsafe { made_again(number, context) };
    }
    // SAFETY: the caller's promise.
    unsafe {
        match mode() {
            Mode::Replay => replay(thread, &wanted, vfork, context)
                .unwrap_or_else(|| made_again(number, context)),
            _ => record(thread, &wanted, vfork, context),
        }
    }
}

/// Has the program make the call itself, now that nothing traps: a child on another stack must not
/// return from here.
///
/// # Safety
/// The context of the trap, whose instruction pointer lies behind `syscall`.
unsafe fn made_again(number: i64, context: *mut libc::ucontext_t) -> isize {
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] -= 2 };
    number as isize
}

impl Wanted {
    fn plain(flags: u64) -> Self {
        Wanted {
            flags,
            stack: 0,
            parent_id: std::ptr::null_mut(),
            child_id: std::ptr::null_mut(),
        }
    }

    /// Makes the child. Its flags beside those that are the same in both runs.
    unsafe fn make(&self, extra: u64) -> isize {
        let flags = self.flags & !(CLONE_VM | CLONE_VFORK) | extra;
        // SAFETY: a copy of this process, on a copy of this stack.
        unsafe { syscall!(libc::SYS_clone, flags, 0, self.parent_id, self.child_id) }
    }

    /// Makes the child that the leader made, with its number if that is free: what is known of it
    /// is true of this one when it goes on.
    unsafe fn make_as(&self, number: i32) -> isize {
        if !elsewhere() {
            // SAFETY: the caller's promise.
            return unsafe { self.make(0) };
        }
        let Some(member) = tree::prepare() else {
            return -(libc::EAGAIN as isize);
        };
        mechanism::elsewhere::before_fork();
        const EXIT_SIGNAL: u64 = 0xff;
        // SAFETY: numbers.
        let none: libc::clone_args = unsafe { core::mem::zeroed() };
        let arguments = libc::clone_args {
            flags: self.flags & !(CLONE_VM | CLONE_VFORK | EXIT_SIGNAL),
            child_tid: self.child_id as u64,
            parent_tid: self.parent_id as u64,
            exit_signal: self.flags & EXIT_SIGNAL,
            set_tid: &raw const number as u64,
            set_tid_size: 1,
            ..none
        };
        // SAFETY: a copy of this process, on a copy of this stack.
        let mut result = unsafe {
            syscall!(
                libc::SYS_clone3,
                &raw const arguments,
                size_of::<libc::clone_args>()
            )
        };
        if raw::error_of(result).is_some() {
            // SAFETY: as above.
            result = unsafe { self.make(0) };
        }
        match result {
            0 => {
                tree::begins(member);
                mechanism::elsewhere::after_fork_in_child();
            }
            made => tree::comes(member, u32::try_from(made).unwrap_or(0)),
        }
        result
    }
}

unsafe fn record(
    thread: &mut Current,
    wanted: &Wanted,
    vfork: bool,
    context: *mut libc::ucontext_t,
) -> isize {
    alone::away(thread);
    alone::waits(thread);
    heap::before_fork(Some(thread));
    foreign::lock_for_fork();
    references::forget_all();
    let number =
        recording::with_header(|header| header.children.fetch_add(1, Ordering::AcqRel) + 1)
            .unwrap_or(0);
    let folder = child_folder(number);
    // SAFETY: the caller's promise.
    let memory = if vfork {
        unsafe { Shared::new(context) }
    } else {
        None
    };
    let before = signals::block_all();
    // SAFETY: as above.
    let result = unsafe { wanted.make(if vfork { CLONE_VFORK } else { 0 }) };
    if result == 0 {
        // SAFETY: in the child.
        unsafe { enter_child(thread, folder.as_str(), wanted, memory, context) };
        signals::unblock(before);
        return 0;
    }
    thread.writer.append(
        Kind::Fork,
        &[
            &(result as i32).to_ne_bytes(),
            if result > 0 {
                folder.as_str().as_bytes()
            } else {
                b""
            },
        ],
    );
    if let Some(memory) = memory {
        // SAFETY: the child is gone or has another image.
        unsafe { memory.take_back(thread) };
    }
    heap::after_fork_in_parent();
    foreign::unlock_after_fork();
    signals::unblock(before);
    result
}

/// `None`: the log says nothing of it, and the process goes on by itself.
unsafe fn replay(
    thread: &mut Current,
    wanted: &Wanted,
    vfork: bool,
    context: *mut libc::ucontext_t,
) -> Option<isize> {
    alone::away(thread);
    heap::before_fork(Some(thread));
    foreign::lock_for_fork();
    let Some(event) = log::expect_event(thread, Kind::Fork as u16) else {
        heap::after_fork_in_parent();
        foreign::unlock_after_fork();
        return None;
    };
    let (Some((pid, folder)), true) = (
        event.payload.split_first_chunk::<4>(),
        event.kind == Kind::Fork as u16,
    ) else {
        divergence::diverged(thread, Some(event), Actual::Step("fork"))
    };
    thread.reader.advance(&event);
    let pid = i32::from_ne_bytes(*pid);
    let folder = Text::<256>::from_text(std::str::from_utf8(folder).unwrap_or_default());
    let is_recorded = pid > 0 && folder::is_recorded_soon(folder.as_str());
    if is_recorded || pid > 0 && elsewhere() {
        // SAFETY: the caller's promise.
        let result = unsafe { wanted.make_as(pid) };
        if result == 0 {
            if !is_recorded {
                // The program believes in a child, and nothing is known of what that did.
                delivery::die(libc::SIGKILL);
            }
            // SAFETY: in the child.
            unsafe { enter_child(thread, folder.as_str(), wanted, None, context) };
            return Some(0);
        }
        if let Some(code) = raw::error_of(result) {
            divergence::unusable(
                format_args!(
                    "no process for {} can be made (error {code})",
                    folder.as_str()
                ),
                "",
            );
        }
        wait::made(pid, result as i32);
    }
    if pid > 0
        && wanted.flags & libc::CLONE_PARENT_SETTID as u64 != 0
        && !wanted.parent_id.is_null()
    {
        // SAFETY: the program's own memory.
        unsafe { *wanted.parent_id = pid };
    }
    if vfork {
        // SAFETY: the words that the child left.
        unsafe { replay_memory(thread) };
    }
    heap::after_fork_in_parent();
    foreign::unlock_after_fork();
    Some(pid as isize)
}

fn child_folder(number: u32) -> Text<256> {
    let mut folder = Text::new();
    let _ = write!(folder, "{}.{number}", recording::config().process.as_str());
    folder
}

/// The first thing that a child does. Returns to where the program forked, on the stack that it
/// gave the child.
unsafe fn enter_child(
    thread: &mut Current,
    folder: &str,
    wanted: &Wanted,
    memory: Option<Shared>,
    context: *mut libc::ucontext_t,
) {
    match memory {
        Some(memory) => memory.keep(),
        None => VFORK.store(std::ptr::null_mut(), Ordering::Relaxed),
    }
    wait::forget();
    entry::after_fork(thread, folder);
    heap::after_fork_in_child(Some(thread));
    foreign::unlock_after_fork();
    locks::after_fork_in_child(thread);
    threads::after_fork_in_child();
    signals::after_fork_in_child(thread);
    if wanted.stack != 0 {
        // SAFETY: the context of the trap.
        unsafe { (*context).uc_mcontext.gregs[libc::REG_RSP as usize] = wanted.stack as i64 };
    }
}

// ---- The stack that parent and child of a vfork share ----

/// So much of the caller's stack is given back to the parent: what `posix_spawn` has there, and
/// what callers of `vfork` look at.
const SHARED_BYTES: usize = 1024;
const WORDS: usize = SHARED_BYTES / 8;

/// In a page that parent and child share.
#[repr(C)]
struct Page {
    /// 1 once the child has left something.
    left: AtomicU32,
    bytes: [u64; WORDS],
}

/// In the child of a vfork: where its parent looks for what it leaves.
static VFORK: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());
static VFORK_STACK: AtomicUsize = AtomicUsize::new(0);

struct Shared {
    page: *mut Page,
    /// What is shared begins here.
    stack: usize,
}

impl Shared {
    unsafe fn new(context: *const libc::ucontext_t) -> Option<Shared> {
        let address = take_room(size_of::<Page>())?;
        // SAFETY: room taken just now, and the context of the trap.
        unsafe {
            let page = raw::map_memory(address, size_of::<Page>(), libc::MAP_SHARED)
                .ok()?
                .cast();
            Some(Shared {
                page,
                stack: (*context).uc_mcontext.gregs[libc::REG_RSP as usize] as usize,
            })
        }
    }

    /// In the child.
    fn keep(self) {
        VFORK_STACK.store(self.stack, Ordering::Relaxed);
        VFORK.store(self.page, Ordering::Relaxed);
    }

    /// In the parent: what the child changed is changed here, too, and logged.
    unsafe fn take_back(self, thread: &mut Current) {
        let mut changed = [[0usize; 2]; WORDS];
        let mut count = 0;
        // SAFETY: the page is mapped; the words are on the caller's stack, which is waiting.
        unsafe {
            if (*self.page).left.load(Ordering::Acquire) != 0 {
                for (index, word) in (*self.page).bytes.iter().enumerate() {
                    let place = (self.stack + index * 8) as *const u64;
                    if *place != *word {
                        changed[count] = [place as usize, *word as usize];
                        count += 1;
                    }
                }
            }
            syscall!(libc::SYS_munmap, self.page, size_of::<Page>());
            exchange_memory(thread, &mut changed, count);
        }
    }
}

unsafe fn replay_memory(thread: &mut Current) {
    // SAFETY: the log says which words.
    unsafe { exchange_memory(thread, &mut [[0; 2]; WORDS], 0) };
}

unsafe fn exchange_memory(thread: &mut Current, changed: &mut [[usize; 2]; WORDS], count: usize) {
    let mut call = Call::within(thread.lend(), functions::KERNEL_VFORK_MEMORY);
    let count = (call.run_kernel(|_| count as isize) as usize).min(WORDS);
    // SAFETY: room for all of them; the addresses are words of the waiting caller's stack.
    unsafe {
        call.out(changed.as_mut_ptr().cast(), count * 16);
        for [address, word] in &changed[..count] {
            *(*address as *mut usize) = *word;
        }
    }
    call.finish();
}

/// In the child of a vfork that is about to leave its parent's memory for good, or to try: its
/// parent gets what it has left there.
pub fn leave_memory() {
    let page = VFORK.load(Ordering::Relaxed);
    if page.is_null() {
        return;
    }
    let stack = VFORK_STACK.load(Ordering::Relaxed) as *const u64;
    // SAFETY: the page is shared with the parent, which waits; the words were on the stack when the
    // process was forked.
    unsafe {
        std::ptr::copy_nonoverlapping(stack, (&raw mut (*page).bytes).cast(), WORDS);
        (*page).left.store(1, Ordering::Release);
    }
}
