//! What is said when replay and recording differ, and when a recording is over.
//!
//! The first thread to find something writes it on the launcher's board; the launcher renders it.

use std::fmt::{self, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use hindcast_execlog::board::{ReportKind, State};
use hindcast_execlog::event::{FLAG_ECHO, Kind};
use hindcast_execlog::files::End;
use hindcast_execlog::{Event, Text};

use crate::functions::Function;
use crate::mechanism::tree;
use crate::state::log::Path;
use crate::state::thread::{self, Current, Thread};
use crate::state::{names, numbers, recording};
use crate::{raw, syscall};

/// The exit status of a process in replay that ended with a report. The launcher looks at the
/// board, not at this.
pub const REPORTED: i32 = 86;

/// What the program did where the log says something else.
pub enum Actual<'a> {
    Call {
        function: Function,
        inputs: &'a [u64],
    },
    /// The call was right and what it wrote has another size.
    Outputs {
        function: Function,
        wanted: usize,
        left: usize,
    },
    /// An acquisition of a lock or another ordered step.
    Step(&'a str),
    /// A file that replay was told to read again is not what it was.
    FileChanged {
        descriptor: i32,
        offset: u64,
        length: usize,
    },
    /// A system call that nothing covers.
    SystemCall { number: i64, arguments: [usize; 6] },
}

impl fmt::Display for Actual<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actual::Call { function, inputs } => {
                write!(formatter, "{}(", names::name(function.0))?;
                for (index, input) in inputs.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(formatter, "{comma}{}", Number(*input))?;
                }
                write!(formatter, ")")
            }
            Actual::Outputs {
                function,
                wanted: 0,
                left,
            } => write!(
                formatter,
                "{} wrote {left} bytes less",
                names::name(function.0)
            ),
            Actual::Outputs {
                function,
                wanted,
                left,
            } => {
                write!(
                    formatter,
                    "{} wrote {wanted} bytes where {left} were left",
                    names::name(function.0)
                )
            }
            Actual::FileChanged {
                descriptor,
                offset,
                length,
            } => {
                write!(
                    formatter,
                    "{length} other bytes at offset {offset} of the file behind descriptor {descriptor}, or no such file"
                )
            }
            Actual::Step(what) => write!(formatter, "{what}"),
            Actual::SystemCall { number, arguments } => {
                write!(
                    formatter,
                    "system call {number}({}, {}, {}, …)",
                    Number(arguments[0] as u64),
                    Number(arguments[1] as u64),
                    Number(arguments[2] as u64)
                )
            }
        }
    }
}

/// Small numbers as such, addresses in hexadecimal.
struct Number(u64);

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 as i64 {
            small @ -1_000_000..=100_000_000 => write!(formatter, "{small}"),
            _ => write!(formatter, "{:#x}", self.0),
        }
    }
}

/// The log has `expected` here and the program does something else.
#[cold]
pub fn diverged(thread: &Thread, expected: Option<Event<'static>>, actual: Actual<'_>) -> ! {
    thread.enter_system();
    if tree::is_dispensable() {
        tree::drop_out();
    }
    report(ReportKind::Divergence, Some(thread), |report| {
        if let Some(event) = expected {
            describe(&mut report.expected, &event);
        } else if let Actual::Outputs { function, .. } = &actual {
            let _ = write!(
                report.expected,
                "what {} wrote when it was recorded",
                names::name(function.0)
            );
        } else if let Actual::FileChanged { .. } = &actual {
            report
                .expected
                .set("the bytes that the file had when it was recorded with --optimize reproduce");
        }
        let _ = write!(report.actual, "{actual}");
        let same = matches!((&expected, &actual), (Some(event), Actual::Call { function, .. }) if event.kind == function.0);
        report.hint.set(if matches!(actual, Actual::FileChanged { .. }) {
            "Put the files back as they were, or record without reproduce so that their contents are in the log."
        } else if same {
            "The call is the recorded one with other inputs: something before it was not captured, or threads race for memory."
        } else {
            "Something before this was not captured, or threads race for memory without a lock."
        });
    });
    raw::exit_process(REPORTED)
}

fn describe(text: &mut Text<1024>, event: &Event<'_>) {
    let _ = write!(text, "{}", names::name(event.kind));
    if let Some((_, result, written)) = event.call().filter(|_| event.is_call()) {
        let _ = match result {
            Ok(value) => write!(text, " → {}", Number(value as u64)),
            Err(code) => write!(text, " → error {code}"),
        };
        // Output that is written again has its place among all output behind what the call wrote.
        let ticket = if event.flags & FLAG_ECHO != 0 {
            size_of::<u64>()
        } else {
            0
        };
        if written.len() > ticket {
            let _ = write!(text, ", {} bytes written", written.len() - ticket);
        }
    }
}

/// Everything that this thread did when it was recorded was done again. Waits until that holds for
/// the others, too.
#[cold]
pub fn recording_ends(thread: &mut Current, doing: u16) -> ! {
    thread.enter_system();
    thread.at_end.store(true, Ordering::Release);
    thread.show(State::Ended, doing);
    wait_for_the_others(thread);
    let cut_off = recording::ended_by_itself();
    if cut_off {
        // Another thread has come to the end of the process and is about to end it, this one with
        // it.
        raw::pause(Duration::from_secs(2));
    }
    report(ReportKind::RecordingEnds, Some(thread), |report| {
        let reason = recording::recorded_reason();
        if cut_off {
            report
                .expected
                .set("its logs are cut off: the process went on and ended by itself");
        } else if reason.is_empty() {
            report.expected.set("the process was killed");
        } else {
            report.expected.set(reason);
        }
        let _ = write!(report.actual, "{}", names::name(doing));
    });
    raw::exit_process(REPORTED)
}

/// Returns once every other thread has replayed all of its log, or none has moved for a while.
///
/// A thread that may run moves as soon as it has a processor, which on a machine that has too much
/// to do takes long, and it may have a lock that another one needs for the rest of its log. That is
/// not to be left out for it.
pub fn wait_for_the_others(me: &Thread) {
    const STEP: Duration = Duration::from_millis(2);
    const PATIENCE_WITH_RUNNING: u32 = 1000;
    const PATIENCE: u32 = 250;
    // Whoever waits for a lock of one that is at its end has nothing else to wait for.
    const PATIENCE_WITH_LOCKED: u32 = 10;
    let mut seen = u64::MAX;
    let (mut asleep, mut running) = (0, 0);
    let mut patience = PATIENCE;
    while asleep < patience && running < PATIENCE_WITH_RUNNING {
        let mut progress = 0u64;
        let mut all = true;
        let mut all_locked = true;
        let mut all_sleep = true;
        for other in thread::all().filter(|other| other.number != me.number) {
            progress = progress.wrapping_add(other.reader.events());
            let is_here =
                other.at_end.load(Ordering::Acquire) || other.ended.load(Ordering::Acquire);
            let is_done = is_here || other.reader.is_at_end();
            all &= is_done;
            all_locked &= is_done || waits_for_lock(other);
            all_sleep &= is_here || sleeps(other);
        }
        if all {
            return;
        }
        patience = if all_locked {
            PATIENCE_WITH_LOCKED
        } else {
            PATIENCE
        };
        (asleep, running) = match (progress == seen, all_sleep) {
            (true, true) => (asleep + 1, running),
            (true, false) => (0, running + 1),
            (false, _) => (0, 0),
        };
        seen = progress;
        raw::pause(STEP);
    }
}

/// Whether a thread is in a lock, which another has.
fn waits_for_lock(thread: &Thread) -> bool {
    thread.slot.is_some_and(|slot| {
        slot.state() == State::Blocked && slot.function.load(Ordering::Relaxed) == Kind::Edge as u32
    })
}

/// Whether the kernel has put a thread to sleep, so that it does not only lack a processor.
fn sleeps(thread: &Thread) -> bool {
    let id = thread.number_in_proc.load(Ordering::Relaxed);
    let path = Path::new("/proc/self/task", format_args!("{id}/stat"));
    let mut bytes = [0u8; 256];
    let read = numbers::alone(|| {
        let file = raw::open_at(libc::AT_FDCWD, path.as_c_str(), libc::O_RDONLY, 0)?;
        // SAFETY: room of that size.
        let read = unsafe { syscall!(libc::SYS_read, file, bytes.as_mut_ptr(), bytes.len()) };
        raw::close(file);
        Ok::<isize, i32>(read)
    });
    let Ok(read) = read else {
        return true;
    };
    let text = bytes.get(..read.max(0) as usize).unwrap_or_default();
    // `7 (name) S 1 …`, where the name may have anything in it.
    let end = text.iter().rposition(|byte| *byte == b')');
    let state = end.and_then(|end| text.get(end + 2));
    // Waiting for the disk, it is not asleep either.
    !matches!(state, Some(b'R' | b'D'))
}

/// The recording cannot be used at all.
#[cold]
pub fn unusable(what: fmt::Arguments<'_>, hint: &str) -> ! {
    report(
        ReportKind::Unusable,
        // SAFETY: the process ends here, and what is under way in the thread with it.
        unsafe { thread::current() }.as_deref(),
        |report| {
            let _ = report.actual.write_fmt(what);
            report.hint.set(hint);
        },
    );
    raw::exit_process(REPORTED)
}

/// The policy forbids a system call that nothing covers.
#[cold]
pub fn forbidden(thread: &Thread, actual: Actual<'_>, site: usize) -> ! {
    thread.enter_system();
    report(ReportKind::Policy, Some(thread), |report| {
        let _ = write!(report.actual, "{actual}");
        describe_address(&mut report.site, site);
        report
            .hint
            .set("Annotate the function that makes it, or record with --policy record.");
    });
    recording::ended(End::Exited, REPORTED as u32);
    raw::exit_process(REPORTED)
}

/// Fills in the board's report unless another thread was first.
fn report(
    kind: ReportKind,
    thread: Option<&Thread>,
    fill: impl FnOnce(&mut hindcast_execlog::board::Report),
) {
    let Some(board) = recording::board() else {
        return;
    };
    if !board.begin_report() {
        // The first reporter is about to end the process.
        raw::pause(Duration::from_millis(200));
        return;
    }
    let report = (&raw const board.report).cast_mut();
    // SAFETY: `begin_report` admits one writer, and the launcher does not read before
    // `complete_report`.
    let report = unsafe { &mut *report };
    report.kind.store(kind as u32, Ordering::Relaxed);
    report.process.set(recording::config().process.as_str());
    // SAFETY: no arguments.
    report.pid.store(
        unsafe { syscall!(libc::SYS_getpid) } as u32,
        Ordering::Relaxed,
    );
    if let Some(thread) = thread {
        report.thread.store(thread.number, Ordering::Relaxed);
        report.event.store(thread.event(), Ordering::Relaxed);
    }
    fill(report);
    if report.site.is_empty() {
        describe_stack(&mut report.site);
    }
    board.complete_report();
}

/// The addresses on the stack, a line each, as offsets into the files they come from.
fn describe_stack(text: &mut Text<1024>) {
    #[repr(C)]
    struct Frames<'a> {
        text: &'a mut Text<1024>,
        left: u32,
    }
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            each: extern "C" fn(*mut u8, *mut Frames<'_>) -> i32,
            argument: *mut Frames<'_>,
        ) -> i32;
        fn _Unwind_GetIP(context: *mut u8) -> usize;
    }
    extern "C" fn each(context: *mut u8, frames: *mut Frames<'_>) -> i32 {
        // SAFETY: called by the unwinder with its context and our argument.
        let (frames, address) = unsafe { (&mut *frames, _Unwind_GetIP(context)) };
        let (start, length) = raw::text_range();
        if !(start..start + length).contains(&address) {
            describe_address(frames.text, address);
            frames.left -= 1;
        }
        if frames.left == 0 { 5 } else { 0 }
    }
    let mut frames = Frames { text, left: 8 };
    // SAFETY: the callback and its argument fit each other.
    unsafe { _Unwind_Backtrace(each, &raw mut frames) };
}

/// `file+0xoffset`, as far as the loader knows the address.
pub fn describe_address(text: &mut Text<1024>, address: usize) {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: fills in the structure when it answers other than zero.
    let known = unsafe { libc::dladdr(address as *const _, found.as_mut_ptr()) } != 0;
    // SAFETY: zeroed or filled in.
    let found = unsafe { found.assume_init() };
    if known && !found.dli_fname.is_null() {
        // SAFETY: the loader's own string.
        let file = unsafe { std::ffi::CStr::from_ptr(found.dli_fname) };
        let _ = write!(
            text,
            "{}+{:#x}",
            file.to_str().unwrap_or("?"),
            address - found.dli_fbase as usize
        );
        if !found.dli_sname.is_null() {
            // SAFETY: as above.
            let symbol = unsafe { std::ffi::CStr::from_ptr(found.dli_sname) };
            let _ = write!(text, " ({})", symbol.to_str().unwrap_or("?"));
        }
        let _ = writeln!(text);
    } else {
        let _ = writeln!(text, "{address:#x}");
    }
}
