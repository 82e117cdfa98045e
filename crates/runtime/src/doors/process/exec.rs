//! Another image in the same process.
//!
//! The new image finds our descriptors, and in the configuration that one of them holds its own
//! folder. In replay, it is executed from the same path, with the same arguments and environment,
//! and replays that folder.

use std::ffi::CStr;
use std::fmt::Write;

use hindcast_execlog::Text;
use hindcast_execlog::config::descriptors;
use hindcast_execlog::event::Kind;
use hindcast_execlog::files::End;

use super::image::Image;
use super::{fork, image};
use crate::mechanism::call::Call;
use crate::mechanism::divergence::{self, Actual};
use crate::mechanism::signals::delivery;
use crate::mechanism::{checkpoint, files, folder, follow, instructions, log};
use crate::state::mode::{Mode, elsewhere, follows, mode};
use crate::state::recording;
use crate::state::thread::{Current, Thread};
use crate::{functions, raw, syscall};

/// What to execute, as the program named it.
pub struct Target {
    number: i64,
    folder: usize,
    path: usize,
    flags: usize,
}

impl Target {
    pub fn from_path(path: usize) -> Self {
        Target {
            number: libc::SYS_execve,
            folder: libc::AT_FDCWD as usize,
            path,
            flags: 0,
        }
    }

    unsafe fn execute(&self, thread: &Thread, arguments: usize, environment: usize) -> isize {
        // The next image would inherit that the time stamp counter faults, and its loader reads it.
        instructions::disarm();
        // SAFETY: the program's own call.
        let result = unsafe {
            match self.number {
                libc::SYS_execve => syscall!(libc::SYS_execve, self.path, arguments, environment),
                _ => syscall!(
                    libc::SYS_execveat,
                    self.folder,
                    self.path,
                    arguments,
                    environment,
                    self.flags
                ),
            }
        };
        if mode() != Mode::Off {
            instructions::rearm(thread);
        }
        result
    }

    /// A path that leads to the same file, as long as our working folder is this one.
    unsafe fn resolve(&self, into: &mut Place) {
        // SAFETY: the program's own string.
        let path = unsafe { CStr::from_ptr(self.path as *const _) };
        let by_descriptor =
            self.folder as i32 != libc::AT_FDCWD && path.to_bytes().first() != Some(&b'/');
        if by_descriptor {
            let mut link = Text::<64>::new();
            let _ = write!(link, "/proc/self/fd/{}\0", self.folder as i32);
            // SAFETY: NUL-terminated, and room for what it leads to.
            let length = unsafe {
                syscall!(
                    libc::SYS_readlink,
                    link.as_str().as_ptr(),
                    into.path.as_mut_ptr(),
                    PATH_MAX - 1
                )
            };
            into.path_length = length.max(0) as usize;
            if !path.is_empty() {
                into.append_path(b"/");
            }
        }
        into.append_path(path.to_bytes());
        if into.path[0] != b'/' {
            // SAFETY: room for it.
            let length = unsafe { syscall!(libc::SYS_getcwd, into.folder.as_mut_ptr(), PATH_MAX) };
            into.folder_length = (length - 1).max(0) as usize;
        }
    }
}

const PATH_MAX: usize = libc::PATH_MAX as usize;

/// Where an image lies: what replay needs to know that the program's own path may not say there.
struct Place {
    folder_length: usize,
    path_length: usize,
    /// What stands before the second argument, each with its NUL, when the program named a script.
    words_length: usize,
    folder: [u8; PATH_MAX],
    path: [u8; PATH_MAX],
    words: [u8; PATH_MAX],
}

impl Place {
    fn new() -> Self {
        let empty = [0; PATH_MAX];
        Place {
            folder_length: 0,
            path_length: 0,
            words_length: 0,
            folder: empty,
            path: empty,
            words: empty,
        }
    }

    /// The interpreter in place of the script. Words that do not fit leave it to the kernel.
    fn execute_script(&mut self, words: &[Vec<u8>]) {
        let all = words.concat();
        let Some(first) = words.first().filter(|_| all.len() <= PATH_MAX) else {
            return;
        };
        self.words[..all.len()].copy_from_slice(&all);
        self.words_length = all.len();
        self.path = [0; PATH_MAX];
        self.path_length = 0;
        self.append_path(&first[..first.len() - 1]);
        if first[0] == b'/' {
            self.folder_length = 0;
        }
    }

    /// The program's arguments, behind those that its script stands for.
    fn arguments(&self, own: usize) -> Vec<usize> {
        let mut all = Vec::new();
        let mut at = own as *const usize;
        let mut rest = &self.words[..self.words_length];
        // SAFETY: an array of pointers that ends with a null pointer, or no array at all.
        unsafe {
            if !rest.is_empty() && !at.is_null() && *at != 0 {
                at = at.add(1);
            }
            while let Some(end) = rest.iter().position(|&byte| byte == 0) {
                all.push(rest.as_ptr() as usize);
                rest = &rest[end + 1..];
            }
            while !at.is_null() && *at != 0 {
                all.push(*at);
                at = at.add(1);
            }
        }
        all.push(0);
        all
    }

    fn append_path(&mut self, text: &[u8]) {
        let room = &mut self.path[self.path_length..PATH_MAX - 1];
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text[..length]);
        self.path_length += length;
    }

    fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.path).unwrap_or_default()
    }

    /// With the event of the call: record writes, replay reads.
    unsafe fn exchange(&mut self, call: &mut Call) {
        // SAFETY: values of our own, and arrays that have room for what the lengths say.
        unsafe {
            call.out_value(&raw mut self.folder_length);
            call.out_value(&raw mut self.path_length);
            call.out_value(&raw mut self.words_length);
            self.folder_length = self.folder_length.min(PATH_MAX - 1);
            self.path_length = self.path_length.min(PATH_MAX - 1);
            call.out(self.folder.as_mut_ptr(), self.folder_length);
            call.out(self.path.as_mut_ptr(), self.path_length);
            self.words_length = self.words_length.min(PATH_MAX);
            call.out(self.words.as_mut_ptr(), self.words_length);
        }
    }
}

/// # Safety
/// The program's own call.
pub unsafe fn execveat(thread: &mut Current, arguments: [usize; 6]) -> isize {
    let [folder, path, texts, environment, flags, _] = arguments;
    // SAFETY: the caller's promise.
    unsafe {
        execve(
            thread,
            Target {
                number: libc::SYS_execveat,
                folder,
                path,
                flags,
            },
            texts,
            environment,
        )
    }
}

/// # Safety
/// The program's own call.
pub unsafe fn execve(
    thread: &mut Current,
    target: Target,
    arguments: usize,
    environment: usize,
) -> isize {
    fork::leave_memory();
    if target.path == 0 {
        return -(libc::EFAULT as isize);
    }
    // SAFETY: the caller's promise.
    unsafe {
        match mode() {
            Mode::Replay => replay(thread, &target, arguments, environment),
            _ => record(thread, &target, arguments, environment),
        }
    }
}

fn begin<'a>(thread: &'a mut Current, target: &Target) -> Call<'a> {
    let mut call = Call::within(thread.lend(), functions::KERNEL_EXECVE);
    // SAFETY: the program's own string.
    unsafe { call.input_str(target.path as *const _) };
    call
}

unsafe fn record(
    thread: &mut Current,
    target: &Target,
    arguments: usize,
    environment: usize,
) -> isize {
    let mut place = Place::new();
    // SAFETY: the program's own call, here and below.
    unsafe { target.resolve(&mut place) };
    // A script is executed as the kernel would do it, so that replay can do the same without the
    // script.
    let mut words = Vec::new();
    let own_path = unsafe { CStr::from_ptr(target.path as *const _) };
    let image = image::examine(
        place.path(),
        if own_path.is_empty() {
            place.path()
        } else {
            own_path
        },
        &mut words,
    );
    let mut call = begin(thread, target);
    if image == Image::None {
        // It fails, as it does when `execvp` tries one folder after the other.
        // SAFETY: as above.
        let execute = |thread: &Thread| unsafe { target.execute(thread, arguments, environment) };
        let result = call.run_kernel(execute);
        call.finish();
        return result;
    }
    call.run_kernel(|_| 0);
    place.execute_script(&words);
    // SAFETY: within a call, and what the lengths say is there.
    unsafe { place.exchange(&mut call) };
    call.finish();
    // SAFETY: as above.
    let result = unsafe {
        match image {
            Image::Unrecordable(why) => {
                execute_past(thread, target, &place, why, arguments, environment)
            }
            _ => execute_recorded(thread, target, &place, arguments, environment),
        }
    };
    // It failed after all.
    keep_descriptors(true);
    recording::with_header(|header| header.reason.set(""));
    recording::ended(End::Running, 0);
    let mut call = Call::within(thread.lend(), functions::KERNEL_EXECVE_FAILED);
    call.run_kernel(|_| result);
    call.finish();
    result
}

/// Executes an image that cannot be recorded: recording ends here.
unsafe fn execute_past(
    thread: &mut Current,
    target: &Target,
    place: &Place,
    why: &str,
    arguments: usize,
    environment: usize,
) -> isize {
    thread.writer.append(Kind::Exec, &[]);
    let mut reason = Text::<400>::new();
    let _ = write!(
        reason,
        "it executed {}, which {why}",
        place.path().to_string_lossy()
    );
    recording::with_header(|header| header.reason.set(reason.as_str()));
    recording::ended(End::Detached, 0);
    let plain = Environment::new(environment, without_ours);
    keep_descriptors(false);
    // SAFETY: the program's own call.
    unsafe { target.execute(thread, arguments, plain.address()) }
}

/// Executes an image that goes on with a folder of its own; the interpreter in place of a script.
unsafe fn execute_recorded(
    thread: &mut Current,
    target: &Target,
    place: &Place,
    arguments: usize,
    environment: usize,
) -> isize {
    let next = next_folder();
    thread
        .writer
        .append(Kind::Exec, &[next.as_str().as_bytes()]);
    recording::ended(End::Executed, 0);
    hand_over(next.as_str());
    let ours = Environment::new(environment, with_ours);
    // SAFETY: the program's own call, or its script's interpreter with the program's arguments.
    unsafe {
        if place.words_length == 0 {
            return target.execute(thread, arguments, ours.address());
        }
        let arguments = place.arguments(arguments);
        let interpreter = Target::from_path(place.path.as_ptr() as usize);
        interpreter.execute(thread, arguments.as_ptr() as usize, ours.address())
    }
}

unsafe fn replay(
    thread: &mut Current,
    target: &Target,
    arguments: usize,
    environment: usize,
) -> isize {
    let mut call = begin(thread, target);
    let result = call.run_kernel(|_| 0);
    if result < 0 {
        call.finish();
        return result;
    }
    if mode() == Mode::Off {
        let plain = Environment::new(environment, without_ours);
        // SAFETY: the program's own call, in a process that goes on by itself.
        return unsafe { target.execute(&call.finish(), arguments, plain.address()) };
    }
    let mut place = Place::new();
    // SAFETY: values of our own.
    unsafe { place.exchange(&mut call) };
    call.finish();
    let event = log::expect_first(thread, Kind::Exec as u16);
    if event.kind != Kind::Exec as u16 {
        divergence::diverged(thread, Some(event), Actual::Step("exec"));
    }
    thread.reader.advance(&event);
    let folder = Text::<256>::from_text(std::str::from_utf8(event.payload).unwrap_or_default());
    await_next_image(thread, folder.as_str());
    if thread
        .reader
        .peek()
        .is_some_and(|next| next.kind == functions::KERNEL_EXECVE_FAILED.0)
    {
        let mut call = Call::within(thread.lend(), functions::KERNEL_EXECVE_FAILED);
        let result = call.run_kernel(|_| 0);
        call.finish();
        return result;
    }
    if folder.is_empty() || !folder::is_recorded(folder.as_str()) {
        not_recorded(thread);
    }
    thread
        .at_end
        .store(true, std::sync::atomic::Ordering::Release);
    divergence::wait_for_the_others(thread);
    hand_over(folder.as_str());
    let ours = Environment::new(environment, with_ours);
    instructions::disarm();
    checkpoint::postpone();
    // SAFETY: strings with NULs behind them, and the program's own arguments.
    let result = unsafe {
        if place.folder_length > 0 {
            syscall!(libc::SYS_chdir, place.folder.as_ptr());
        }
        let arguments = place.arguments(arguments);
        syscall!(
            libc::SYS_execve,
            place.path.as_ptr(),
            arguments.as_ptr(),
            ours.address()
        )
    };
    divergence::unusable(
        format_args!(
            "{} cannot be executed (error {})",
            place.path().to_string_lossy(),
            -result
        ),
        "Replay needs the programs that were recorded, at the same paths.",
    )
}

/// A leader's next image makes its folder, or the log says that there is none, a moment later.
fn await_next_image(thread: &mut Current, folder: &str) {
    while follows()
        && follow::leader_runs()
        && !thread.reader.refresh()
        && !folder::is_recorded(folder)
    {
        raw::pause(std::time::Duration::from_millis(1));
    }
}

/// The next image was not recorded. A child ends here without a word: its parent knows from its log
/// how it ended, or takes it for killed. The first process says that the recording is over.
fn not_recorded(thread: &mut Current) -> ! {
    if recording::config().parent.is_empty() {
        divergence::recording_ends(thread, Kind::Exec as u16);
    }
    thread
        .at_end
        .store(true, std::sync::atomic::Ordering::Release);
    divergence::wait_for_the_others(thread);
    if elsewhere() {
        delivery::die(libc::SIGKILL);
    }
    raw::exit_process(0)
}

fn next_folder() -> Text<256> {
    let mut folder = recording::config().process;
    let _ = write!(folder, "+");
    folder
}

/// Puts the next image's configuration where it looks for it. A file of its own: forked children
/// share this process's.
fn hand_over(folder: &str) {
    let mut next = *recording::config();
    next.parent = next.process;
    next.process.set(folder);
    let bytes = next.as_bytes();
    // SAFETY: plain system calls on values of this function.
    unsafe {
        let file = syscall!(libc::SYS_memfd_create, c"hindcast-config".as_ptr(), 0) as i32;
        if file < 0 {
            return;
        }
        raw::write_all(file, bytes);
        files::allowing_ours(|| files::put_at(file, descriptors::CONFIG, 0));
        raw::close(file);
    }
}

/// Whether the next image finds our descriptors.
fn keep_descriptors(keep: bool) {
    for descriptor in descriptors::LIBRARY..descriptors::END {
        // SAFETY: a flag of a descriptor of ours, or of none.
        unsafe {
            syscall!(
                libc::SYS_fcntl,
                descriptor,
                libc::F_SETFD,
                if keep { 0 } else { libc::FD_CLOEXEC }
            )
        };
    }
}

const NAME: &[u8] = b"LD_PRELOAD=";

/// The environment for the next image.
struct Environment {
    texts: Vec<usize>,
    /// The one text that is ours.
    _preload: Vec<u8>,
}

impl Environment {
    /// `change` says what becomes of the value of `LD_PRELOAD`; empty means that there is none.
    fn new(environment: usize, change: fn(&[u8]) -> Vec<u8>) -> Self {
        let mut texts = Vec::new();
        let mut place = None;
        let mut at = environment as *const usize;
        // SAFETY: an array of C strings that ends with a null pointer, or no array at all.
        unsafe {
            while !at.is_null() && *at != 0 {
                if place.is_none() && CStr::from_ptr(*at as *const _).to_bytes().starts_with(NAME) {
                    place = Some(texts.len());
                }
                texts.push(*at);
                at = at.add(1);
            }
        }
        // SAFETY: as above.
        let old = place.map_or(&b""[..], |place| unsafe {
            &CStr::from_ptr(texts[place] as *const _).to_bytes()[NAME.len()..]
        });
        let value = change(old);
        let preload = [NAME, &value, b"\0"].concat();
        match place {
            _ if value == old => {}
            Some(place) if value.is_empty() => drop(texts.remove(place)),
            Some(place) => texts[place] = preload.as_ptr() as usize,
            None => texts.push(preload.as_ptr() as usize),
        }
        texts.push(0);
        Environment {
            texts,
            _preload: preload,
        }
    }

    fn address(&self) -> usize {
        self.texts.as_ptr() as usize
    }
}

/// Our libraries before the program's own.
fn with_ours(value: &[u8]) -> Vec<u8> {
    let theirs = without_ours(value);
    let ours = recording::config().preload.as_str().as_bytes();
    if theirs.is_empty() {
        ours.to_vec()
    } else {
        [ours, b":", &theirs].concat()
    }
}

fn without_ours(value: &[u8]) -> Vec<u8> {
    let ours = recording::config().preload.as_str().as_bytes();
    match value.strip_prefix(ours) {
        Some(rest) => rest.strip_prefix(b":").unwrap_or(rest).to_vec(),
        None => value.to_vec(),
    }
}
