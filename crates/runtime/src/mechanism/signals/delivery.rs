//! Calling the program's handlers, in both runs.

use std::arch::{asm, global_asm};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use hindcast_execlog::Event;
use hindcast_execlog::event::Kind;
use hindcast_execlog::files::{End, INEXACT};

use super::{actions, kernel, timer};
use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::{alone, tree};
use crate::raw::{self, errno, set_errno};
use crate::state::mode::{Mode, mode};
use crate::state::recording;
use crate::state::signals::{
    self, ASYNCHRONOUS, Default, Info, KernelAction, Queued, UNBLOCKABLE, bit, blocked_by,
    default_of, read_mask, realized, write_mask,
};
use crate::state::thread::{Current, REPLAY, Thread};
use crate::syscall;

/// Where a signal was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Place {
    /// At the end of a call.
    Boundary = 0,
    /// Before the event of the call that the thread was in.
    Inside = 1,
    /// While the thread computed, at an instruction that cannot be found again. Replay delivers it
    /// at the boundary before, and is not exact from there on.
    Computing = 2,
}

/// The payload of [`Kind::Signal`].
#[repr(C)]
#[derive(Clone, Copy)]
struct Delivered {
    /// `siginfo_t`, as far as the kernel fills it in. First, as its kind says.
    info: Info,
    handler: u64,
    mask: u64,
    flags: u64,
    place: u32,
    /// How many boundaries the thread had passed.
    boundary: u32,
    /// How many handlers it was in.
    depth: u64,
}

impl Delivered {
    fn from_event(event: &Event<'_>) -> Option<Delivered> {
        if event.kind != Kind::Signal as u16 || event.payload.len() != size_of::<Delivered>() {
            return None;
        }
        // SAFETY: plain data of that size.
        Some(unsafe { event.payload.as_ptr().cast::<Delivered>().read_unaligned() })
    }

    fn is_at(&self, place: Place) -> bool {
        self.place == place as u32
    }

    /// Replay is where it was delivered, or as near as it comes.
    fn belongs_here(&self, thread: &Thread) -> bool {
        let its = &thread.signals;
        if self.boundary != its.boundaries {
            return self.is_at(Place::Computing) && self.boundary < its.boundaries;
        }
        self.is_at(Place::Boundary) || (self.is_at(Place::Computing) && self.depth == its.depth)
    }

    fn action(&self) -> KernelAction {
        KernelAction {
            handler: self.handler as usize,
            flags: self.flags,
            restorer: 0,
            mask: self.mask,
        }
    }
}

/// The payload of [`Kind::Fatal`].
#[repr(C)]
#[derive(Clone, Copy)]
struct Fatal {
    signal: u32,
    boundary: u32,
    /// 1 when an instruction of the program raised it, which it does in replay by itself.
    fault: u32,
}

impl Fatal {
    fn from_event(event: &Event<'_>) -> Option<Fatal> {
        if event.kind != Kind::Fatal as u16 || event.payload.len() != size_of::<Fatal>() {
            return None;
        }
        // SAFETY: plain data of that size.
        Some(unsafe { event.payload.as_ptr().cast::<Fatal>().read_unaligned() })
    }
}

fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: used with the structures above, which have no padding.
    unsafe { std::slice::from_raw_parts((value as *const T).cast(), size_of::<T>()) }
}

// ---- Recording ----

/// Delivers what is queued. On return the thread is in replay space and nothing was due.
#[cold]
pub fn deliver(thread: &mut Current) {
    loop {
        thread.enter_system();
        deliver_queued(thread, Place::Boundary, null_mut());
        timer::unwatch(thread);
        kernel::apply_mask(thread.signals.blocked);
        thread.enter_replay();
        if mode() != Mode::Record || thread.signals.due.load(Ordering::Relaxed) == 0 {
            return;
        }
    }
}

/// After `EINTR`: delivers what is queued in the middle of a call, and says whether the call is to
/// be made again.
#[cold]
pub fn deliver_and_restart(thread: &mut Current) -> bool {
    let call = thread.signals.blocking.swap(-1, Ordering::Relaxed);
    let restart = deliver_queued(thread, Place::Inside, null_mut());
    kernel::apply_mask(thread.signals.suspended.unwrap_or(thread.signals.blocked));
    restart && can_restart(call)
}

/// Whether the kernel makes a system call again after a handler with `SA_RESTART`. Those that wait
/// with a time limit and those that wait for signals it never does.
fn can_restart(call: i64) -> bool {
    !matches!(
        call,
        -1 | libc::SYS_poll
            | libc::SYS_ppoll
            | libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | libc::SYS_pause
            | libc::SYS_rt_sigsuspend
            | libc::SYS_rt_sigtimedwait
            | libc::SYS_msgrcv
            | libc::SYS_msgsnd
            | libc::SYS_semop
            | libc::SYS_semtimedop
            | libc::SYS_io_getevents
            | libc::SYS_restart_syscall
    )
}

/// Lets signals be delivered at once, and delivers those that arrived before. False when they could
/// be already.
pub fn open(thread: &mut Current) -> bool {
    if thread.signals.open.swap(true, Ordering::Relaxed) {
        return false;
    }
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    if thread.signals.due.load(Ordering::Relaxed) != 0 {
        deliver_queued(thread, Place::Inside, null_mut());
        kernel::apply_mask(thread.signals.blocked);
    }
    true
}

/// Delivers one signal where the thread is: it waits in a function of libc. From our handler, with
/// signals blocked.
pub fn in_place(thread: &mut Current, queued: &Queued) {
    deliver_one(thread, queued, Place::Inside, null_mut());
}

/// Delivers everything in the queue that may be. Says whether the first handler that ran wants the
/// call restarted. Leaves asynchronous signals blocked.
fn deliver_queued(thread: &mut Current, place: Place, context: *mut libc::ucontext_t) -> bool {
    let (mut first, mut any) = (None, false);
    kernel::set_mask(realized(thread.signals.blocked | ASYNCHRONOUS));
    while mode() == Mode::Record {
        let blocked = thread.signals.suspended.unwrap_or(thread.signals.blocked);
        let Some(queued) = thread.signals.queue.take(blocked) else {
            break;
        };
        any = true;
        if let Some(flags) = deliver_one(thread, &queued, place, context) {
            first.get_or_insert(flags & libc::SA_RESTART as u64 != 0);
        }
    }
    thread.signals.look();
    // A signal that is ignored interrupts nothing.
    any && first.unwrap_or(true)
}

/// Logs a delivery and calls the handler. The flags of its action; `None` when the signal is
/// ignored.
fn deliver_one(
    thread: &mut Current,
    queued: &Queued,
    place: Place,
    context: *mut libc::ucontext_t,
) -> Option<u64> {
    let action = signals::action(queued.signal);
    match (action.handler, default_of(queued.signal)) {
        (libc::SIG_IGN, _) | (libc::SIG_DFL, Default::Ignored | Default::Stops) => return None,
        (libc::SIG_DFL, Default::Ends) => fatal(thread, queued.signal),
        _ => {}
    }
    let delivered = Delivered {
        info: queued.info,
        handler: action.handler as u64,
        mask: action.mask,
        flags: action.flags,
        place: place as u32,
        boundary: thread.signals.boundaries,
        depth: thread.signals.depth,
    };
    thread.writer.append(Kind::Signal, &[bytes_of(&delivered)]);
    call_handler(thread, &queued.info, &action, context);
    Some(action.flags)
}

/// Delivers what is queued where the program computes: no call came at which it could have been.
/// The handler finds the registers of the program, and may change them.
pub fn while_computing(thread: &mut Current, context: *mut libc::ucontext_t) {
    // Below the stack pointer a function may keep 128 bytes without saying so.
    const RED_ZONE: usize = 128;
    // SAFETY: the kernel's context.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    let stack = thread.signals.stack;
    thread.enter_system();
    warn_of_place(thread);
    thread
        .signals
        .enters_with_stack(registers[libc::REG_RSP as usize] as usize - RED_ZONE);
    deliver_queued(thread, Place::Computing, context);
    thread.signals.stack = stack;
    write_mask(context, realized(thread.signals.blocked));
    if mode() == Mode::Record {
        thread.enter_replay();
    }
}

/// Says once where the first such signal came.
#[cold]
fn warn_of_place(thread: &Thread) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        recording::warn(format_args!(
            "a signal came while the program computed: {INEXACT} event {} of thread {} on",
            thread.writer.events(),
            thread.number,
        ));
    }
}

/// The process is about to die of this signal.
pub fn log_fatal(thread: &mut Current, signal: i32, fault: bool) {
    let fatal = Fatal {
        signal: signal as u32,
        boundary: thread.signals.boundaries,
        fault: fault.into(),
    };
    thread.writer.append(Kind::Fatal, &[bytes_of(&fatal)]);
    recording::ended(End::Signalled, signal as u32);
}

/// Logs that the process dies of this signal, and dies.
pub fn fatal(thread: &mut Current, signal: i32) -> ! {
    log_fatal(thread, signal, false);
    die(signal)
}

/// Ends the process as the signal does by default.
pub fn die(signal: i32) -> ! {
    tree::ends();
    kernel::set_action(signal, &KernelAction::default());
    kernel::set_mask(kernel::mask() & !bit(signal));
    // SAFETY: to ourselves.
    unsafe {
        syscall!(
            libc::SYS_tgkill,
            syscall!(libc::SYS_getpid),
            syscall!(libc::SYS_gettid),
            signal
        )
    };
    // The first process of a container does not die by default.
    raw::exit_process(128 + signal)
}

// ---- Replay ----

/// What the log has next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Upcoming {
    /// A delivery, perhaps here.
    Delivery,
    Other,
    Nothing,
}

#[inline(always)]
pub fn comes_next(thread: &Thread) -> Upcoming {
    match thread.reader.peek() {
        None => Upcoming::Nothing,
        Some(event) if event.kind == Kind::Signal as u16 || event.kind == Kind::Fatal as u16 => {
            Upcoming::Delivery
        }
        Some(_) => Upcoming::Other,
    }
}

/// Delivers what was delivered at this boundary.
#[cold]
pub fn replay_at_boundary(thread: &mut Current) {
    while let Some(event) = thread.reader.peek() {
        if event.kind == Kind::Fatal as u16 {
            return replay_fatal(thread, &event);
        }
        let Some(delivered) =
            Delivered::from_event(&event).filter(|delivered| delivered.belongs_here(thread))
        else {
            return;
        };
        thread.reader.advance(&event);
        call_handler(thread, &delivered.info, &delivered.action(), null_mut());
    }
}

/// A fatal signal comes next in the log: dies of it, once the other threads have caught up. What
/// the thread computed after its last call is not done again, for nobody saw it. Returns when the
/// signal came later, or when the program raises it itself.
#[cold]
pub fn replay_fatal(thread: &mut Current, event: &Event<'static>) {
    let Some(fatal) = Fatal::from_event(event) else {
        return;
    };
    if fatal.fault != 0 || fatal.boundary != thread.signals.boundaries {
        return;
    }
    thread.enter_system();
    thread.reader.advance(event);
    divergence::wait_for_the_others(thread);
    die(fatal.signal as i32)
}

pub fn is_fatal_fault(event: &Event<'_>, signal: i32) -> bool {
    Fatal::from_event(event).is_some_and(|fatal| fatal.fault != 0 && fatal.signal == signal as u32)
}

/// Delivers what was delivered inside the call that the thread is in.
pub fn replay_inside(thread: &mut Current, event: Event<'static>) {
    let boundary = thread.signals.boundaries;
    let Some(delivered) = Delivered::from_event(&event).filter(|it| {
        it.is_at(Place::Computing) || it.is_at(Place::Inside) && it.boundary == boundary
    }) else {
        divergence::diverged(thread, Some(event), Actual::Step("a call"))
    };
    thread.reader.advance(&event);
    call_handler(thread, &delivered.info, &delivered.action(), null_mut());
}

// ---- Both ----

// (rdi: function, rsi: its argument, rdx: top of the stack)
global_asm!(
    ".text",
    ".globl hindcast_call_on_stack",
    ".hidden hindcast_call_on_stack",
    ".type hindcast_call_on_stack, @function",
    "hindcast_call_on_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdx",
    "and rsp, -16",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size hindcast_call_on_stack, . - hindcast_call_on_stack",
);

// The assembly passes the pointer on and does not look behind it.
#[allow(improper_ctypes)]
unsafe extern "C" {
    fn hindcast_call_on_stack(
        function: unsafe extern "C" fn(*mut Request),
        request: *mut Request,
        stack: usize,
    );
}

struct Request {
    thread: *mut Thread,
    signal: i32,
    info: Info,
    handler: usize,
    /// The program's stack pointer at the call.
    stack: usize,
    /// The mask after the handler. The handler may change it.
    blocked: u64,
    /// What was interrupted; null: a call.
    interrupted: *mut libc::ucontext_t,
    frame: *mut Frame,
}

/// What lies above the handler on its stack.
#[repr(C, align(64))]
struct Frame {
    info: [u64; size_of::<libc::siginfo_t>() / 8],
    context: libc::ucontext_t,
}

/// Runs on the handler's stack, below the frame: only there may the next signal arrive.
unsafe extern "C" fn run_handler(request: *mut Request) {
    // SAFETY: the request is the caller's own, the frame has room above this function's stack. The
    // handler is the program's.
    unsafe {
        let Request {
            thread,
            signal,
            info,
            handler,
            stack,
            blocked,
            interrupted,
            frame,
        } = &mut *request;
        let (thread, frame) = (&mut Current::of(*thread), *frame);
        frame.write_bytes(0, 1);
        (&mut (*frame).info)[..info.len()].copy_from_slice(info);
        let context = &raw mut (*frame).context;
        if interrupted.is_null() {
            (*context).uc_mcontext.gregs[libc::REG_RIP as usize] = *handler as i64;
            (*context).uc_mcontext.gregs[libc::REG_RSP as usize] = *stack as i64;
        } else {
            (*context).uc_mcontext = (**interrupted).uc_mcontext;
        }
        write_mask(context, *blocked);
        kernel::apply_mask(thread.signals.blocked);
        let was_away = alone::back(thread);
        thread.enter_replay();
        if mode() == Mode::Replay && comes_next(thread) == Upcoming::Delivery {
            replay_at_boundary(thread);
        }
        let handler: extern "C" fn(i32, *mut u8, *mut libc::ucontext_t) =
            std::mem::transmute(*handler);
        handler(*signal, (&raw mut (*frame).info).cast(), context);
        thread.enter_system();
        if was_away {
            alone::away(thread);
        }
        if mode() == Mode::Record {
            kernel::set_mask(realized(thread.signals.blocked | ASYNCHRONOUS));
        }
        *blocked = read_mask(context) & !UNBLOCKABLE;
        if !interrupted.is_null() {
            (**interrupted).uc_mcontext.gregs = (*context).uc_mcontext.gregs;
        }
    }
}

/// Calls a handler of the program's in replay space, with the mask that it wants. Afterwards
/// everything is as it was, unless it changed the mask in its context. It may leave by `siglongjmp`
/// and never come back. Asynchronous signals are blocked before and after.
fn call_handler(
    thread: &mut Current,
    info: &Info,
    action: &KernelAction,
    interrupted: *mut libc::ucontext_t,
) {
    let signal = info[0] as i32;
    let saved_errno = errno();
    if action.flags & libc::SA_RESETHAND as u64 != 0 {
        actions::reset(signal);
    }
    let in_replay_space = thread.selector.load(Ordering::Relaxed) == REPLAY;
    thread.enter_system();
    let its = &mut thread.signals;
    let was_open = its.open.swap(false, Ordering::Relaxed);
    let (blocked, suspended, stack) = (its.blocked, its.suspended.take(), its.stack);
    its.blocked = suspended.unwrap_or(blocked) | blocked_by(signal, action);
    thread.signals.look();

    let frame = ((stack_for_handler(stack, action.flags) - size_of::<Frame>()) & !63) as *mut Frame;
    let mut request = Request {
        thread: thread.as_ptr(),
        signal,
        info: *info,
        handler: action.handler,
        stack,
        blocked,
        interrupted,
        frame,
    };
    thread.signals.depth += 1;
    // SAFETY: the frame has room, and nothing is borrowed from the guard while the handler runs.
    unsafe { hindcast_call_on_stack(run_handler, &raw mut request, frame as usize) };

    let its = &mut thread.signals;
    its.depth -= 1;
    its.blocked = request.blocked;
    its.suspended = suspended;
    its.stack = stack;
    its.open.store(was_open, Ordering::Relaxed);
    thread.signals.look();
    if mode() == Mode::Off {
        // Recording ended in the handler: nobody else restores the mask.
        kernel::apply_mask(thread.signals.blocked);
    } else if in_replay_space {
        thread.enter_replay();
    }
    set_errno(saved_errno);
}

/// How far below the program's stack pointer at the call a handler's frame lies: enough for what
/// the runtime has on the stack by then in either run, so that the address is the same in both.
const STACK_USED: usize = 12 << 10;

fn stack_for_handler(at_call: usize, flags: u64) -> usize {
    let here: usize;
    // SAFETY: reads the stack pointer.
    unsafe { asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
    if flags & libc::SA_ONSTACK as u64 != 0 {
        let mut alternate = libc::stack_t {
            ss_sp: std::ptr::null_mut(),
            ss_flags: 0,
            ss_size: 0,
        };
        // SAFETY: room for one.
        unsafe { syscall!(libc::SYS_sigaltstack, 0, &raw mut alternate) };
        if alternate.ss_flags & (libc::SS_DISABLE | libc::SS_ONSTACK) == 0 && alternate.ss_size != 0
        {
            return alternate.ss_sp as usize + alternate.ss_size;
        }
    }
    let below = here - 1024;
    let wanted = at_call.wrapping_sub(STACK_USED);
    // Whoever waits in a deep function of libc, or on another stack than the last call's, gets the
    // place that there is.
    if wanted <= below && below - wanted < STACK_USED {
        wanted
    } else {
        below
    }
}
