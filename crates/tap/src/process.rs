//! What there is once in a process: where rings go, and whether it is still the same process.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use hindcast_taplog::{Board, CAPACITY_VARIABLE, Hello, SOCKET_VARIABLE, TOKEN, ring};
use libc::{c_char, c_int};

use crate::errno::{errno, set_errno};
use crate::memory;
use crate::real::real;

/// Set when there is somebody to tell something to.
static ENABLED: AtomicBool = AtomicBool::new(false);
/// System calls of ours may be the death of the process.
static SEALED: AtomicBool = AtomicBool::new(false);
/// A number in memory that is zero in a child: the kernel wipes it.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// Counts the processes from the one that was started to this one, along the line of parents.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static BEGAN: AtomicU64 = AtomicU64::new(0);
static PID: AtomicU32 = AtomicU32::new(0);
static BOARD: AtomicPtr<Board> = AtomicPtr::new(std::ptr::null_mut());
static SETTINGS: Settings = Settings(UnsafeCell::new(None));

struct Settings(UnsafeCell<Option<Told>>);

// SAFETY: it is written once, before `ENABLED` says that it can be read.
unsafe impl Sync for Settings {}

struct Told {
    address: libc::sockaddr_un,
    address_length: libc::socklen_t,
    token: [u8; TOKEN],
    capacity: usize,
}

/// Reads what the environment says, and gets ready if it says anything and the rest of us is.
pub fn begin(rest: impl FnOnce() -> bool) {
    let Some(told) = read_environment() else {
        return;
    };
    if !mark() || !rest() {
        return;
    }
    // SAFETY: nobody reads it yet.
    unsafe { *SETTINGS.0.get() = Some(told) };
    name_process();
    GENERATION.store(1, Ordering::Relaxed);
    // SAFETY: as above; it was written just now.
    let told = unsafe { (*SETTINGS.0.get()).as_ref() };
    if let Some(base) = told.and_then(fetch_board) {
        BOARD.store(base, Ordering::Relaxed);
    }
    ENABLED.store(true, Ordering::Release);
}

/// What the recorder shares with all processes of the service; `None` if it gave nothing.
pub fn board() -> Option<&'static Board> {
    let base = BOARD.load(Ordering::Relaxed);
    // SAFETY: set once, to memory that stays and was looked at.
    (!base.is_null()).then(|| unsafe { &*base })
}

/// Whether the recorder is there, as far as can be told.
pub fn recorder_lives() -> bool {
    if is_sealed() {
        return true;
    }
    let before = errno();
    // SAFETY: a board was had, so the settings were read.
    let told = unsafe { (*SETTINGS.0.get()).as_ref() };
    let socket = told.and_then(connected);
    if let Some(socket) = socket {
        // SAFETY: it is ours.
        close(socket);
    }
    set_errno(before);
    socket.is_some()
}

pub fn is_enabled() -> bool {
    ENABLED.load(Ordering::Acquire)
}

/// No system call is made from here on that the program did not make.
pub fn seal() {
    SEALED.store(true, Ordering::Relaxed);
}

pub fn is_sealed() -> bool {
    SEALED.load(Ordering::Relaxed)
}

/// Which process this is. In a child, all that the parent had does not count any more.
pub fn generation() -> u32 {
    let mark = MARK.load(Ordering::Relaxed);
    // SAFETY: set once, to memory that stays.
    let same = unsafe { (*mark).load(Ordering::Relaxed) };
    if same == 0 {
        // A child has one thread at first. A signal handler that comes in between does the same.
        GENERATION.fetch_add(1, Ordering::Relaxed);
        name_process();
        // SAFETY: as above.
        unsafe { (*mark).store(1, Ordering::Relaxed) };
    }
    GENERATION.load(Ordering::Relaxed)
}

fn name_process() {
    BEGAN.store(now(), Ordering::Relaxed);
    // SAFETY: it always succeeds.
    let pid = unsafe { real!(fn getpid() -> c_int)() };
    PID.store(pid as u32, Ordering::Relaxed);
}

pub fn pid() -> u32 {
    PID.load(Ordering::Relaxed)
}

/// Whether this is a child in the memory of its parent, before it executes another program
/// (`vfork`): its descriptors are its own, and what is known of descriptors is its parent's.
pub fn is_borrowed() -> bool {
    // A child with memory of its own learns its number here.
    generation();
    // SAFETY: it always succeeds.
    !is_sealed() && unsafe { libc::getpid() } as u32 != pid()
}

/// Nanoseconds of the machine's monotonic clock, by the vDSO.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the memory is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// What the wall clock of the machine shows, in nanoseconds since 1970.
pub fn real_time() -> i64 {
    // SAFETY: zeros are a time, and the memory is ours.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        let clock = libc::CLOCK_REALTIME;
        real!(fn clock_gettime(libc::clockid_t, *mut libc::timespec) -> c_int)(clock, &mut time);
        time
    };
    time.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec)
}

/// Memory for a ring that the recorder has, too; `None` if that cannot be had now.
pub fn make_ring() -> Option<(*mut u8, usize)> {
    // SAFETY: `ENABLED` was seen, and it was written before.
    let told = unsafe { (*SETTINGS.0.get()).as_ref()? };
    let length = ring::file_size(told.capacity);
    // SAFETY: plain system calls on descriptors and memory of ours.
    unsafe {
        let memory = libc::memfd_create(
            c"hindcast".as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        );
        if memory < 0 {
            return None;
        }
        let before = identity(memory);
        let sized = libc::ftruncate(memory, length as libc::off_t) == 0;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = match sized {
            true => libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                memory,
                0,
            ),
            false => libc::MAP_FAILED,
        };
        let mapped = base != libc::MAP_FAILED;
        // A thread that closes all descriptors may have closed this one, and it may be another's.
        let same = before.is_some() && identity(memory) == before;
        let made = mapped && same && hand_over(told, memory);
        if same {
            close(memory);
        }
        if mapped && !made {
            libc::munmap(base, length);
        }
        made.then_some((base.cast(), told.capacity))
    }
}

fn identity(descriptor: i32) -> Option<(u64, u64)> {
    // SAFETY: zeros are a `stat`, and the memory is ours.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

/// Closes a descriptor of ours. `close` is one of ours too: it would tell of a stream that had the
/// descriptor's number before and went away unseen, while the thread is telling something already.
fn close(descriptor: i32) {
    // SAFETY: what it is for.
    unsafe { real!(fn close(c_int) -> c_int)(descriptor) };
}

/// A connection to the recorder; `None` if it could not be had at once.
fn connected(told: &Told) -> Option<i32> {
    // SAFETY: plain system calls; the address is as long as is said. `connect` is one of ours, so
    // not by that.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = libc::socket(libc::AF_UNIX, kind, 0);
        if socket < 0 {
            return None;
        }
        let address = &raw const told.address;
        let length = told.address_length;
        if libc::syscall(libc::SYS_connect, socket, address, length) != 0 {
            close(socket);
            return None;
        }
        Some(socket)
    }
}

fn hello(told: &Told) -> [u8; Hello::SIZE] {
    let hello = Hello {
        token: told.token,
        began: BEGAN.load(Ordering::Relaxed),
    };
    hello.to_bytes()
}

/// Space for one descriptor that comes with a message.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends the memory of a ring to the recorder, unless that would have to be waited for.
unsafe fn hand_over(told: &Told, memory: i32) -> bool {
    let mut bytes = hello(told);
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let Some(socket) = connected(told) else {
        return false;
    };
    // SAFETY: all that the message points to outlives it; the control's space is that of one
    // descriptor, which fits.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as usize;
        let head = libc::CMSG_FIRSTHDR(&message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
        libc::CMSG_DATA(head).cast::<i32>().write_unaligned(memory);
        let flags = libc::MSG_NOSIGNAL;
        let sent = libc::syscall(libc::SYS_sendmsg, socket, &raw const message, flags);
        close(socket);
        sent == Hello::SIZE as i64
    }
}

/// Asks the recorder for the board, and waits for it: the program has not begun yet.
fn fetch_board(told: &Told) -> Option<*mut Board> {
    const PATIENCE_MS: i32 = 1000;
    let bytes = hello(told);
    let socket = connected(told)?;
    // SAFETY: plain system calls on a socket and memory of ours.
    unsafe {
        let flags = libc::MSG_NOSIGNAL;
        let nowhere = std::ptr::null::<libc::sockaddr>();
        let (start, length) = (bytes.as_ptr(), bytes.len());
        let sent = libc::syscall(libc::SYS_sendto, socket, start, length, flags, nowhere, 0);
        let mut poll = libc::pollfd {
            fd: socket,
            events: libc::POLLIN,
            revents: 0,
        };
        let answered = sent == length as i64 && libc::poll(&mut poll, 1, PATIENCE_MS) == 1;
        let memory = if answered { received(socket) } else { None };
        close(socket);
        let memory = memory?;
        let base = libc::mmap(
            std::ptr::null_mut(),
            Board::SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            memory,
            0,
        );
        close(memory);
        (base != libc::MAP_FAILED && Board::of(base.cast()).is_some()).then_some(base.cast())
    }
}

/// The descriptor that came with a message.
unsafe fn received(socket: i32) -> Option<i32> {
    let mut byte = [0u8];
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: byte.len(),
    };
    // SAFETY: all that the message points to outlives it; libc fills it in.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Control>();
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        let length = libc::syscall(libc::SYS_recvmsg, socket, &raw mut message, flags);
        let head = libc::CMSG_FIRSTHDR(&message);
        let is_one = length == 1
            && !head.is_null()
            && (*head).cmsg_level == libc::SOL_SOCKET
            && (*head).cmsg_type == libc::SCM_RIGHTS;
        is_one.then(|| libc::CMSG_DATA(head).cast::<i32>().read_unaligned())
    }
}

/// A page that the kernel wipes in a child.
fn mark() -> bool {
    const PAGE: usize = 4096;
    let Some(page) = memory::fresh(PAGE) else {
        return false;
    };
    // SAFETY: the memory is ours, and there is room for a number.
    unsafe {
        if libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) != 0 {
            return false;
        }
        let mark = page.cast::<AtomicU32>();
        (*mark).store(1, Ordering::Relaxed);
        MARK.store(mark, Ordering::Relaxed);
    }
    true
}

fn read_environment() -> Option<Told> {
    let text = variable(SOCKET_VARIABLE)?;
    let colon = text.len().checked_sub(TOKEN + 1)?;
    let (name, token) = text.split_at_checked(colon)?;
    let token: [u8; TOKEN] = token.strip_prefix(b":")?.try_into().ok()?;
    // SAFETY: zeros are an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte of an abstract name is zero.
    let place = address.sun_path.get_mut(1..1 + name.len())?;
    for (to, &from) in place.iter_mut().zip(name) {
        *to = from as c_char;
    }
    let wanted = variable(CAPACITY_VARIABLE)
        .and_then(|text| std::str::from_utf8(text).ok())
        .and_then(|text| text.parse().ok());
    let length = size_of::<libc::sa_family_t>() + 1 + name.len();
    Some(Told {
        address,
        address_length: length as libc::socklen_t,
        token,
        capacity: ring::capacity_of(wanted.unwrap_or(ring::CAPACITY)),
    })
}

/// How many connections a replay says that the service needs at a time; 0: it does not say.
pub fn connections() -> c_int {
    let said = std::env::var("HINDCAST_POOL").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(0)
}

/// What the environment says, when the program begins.
pub fn variable(name: &str) -> Option<&'static [u8]> {
    let mut zeroed = [0; 32];
    zeroed
        .get_mut(..name.len())?
        .copy_from_slice(name.as_bytes());
    // SAFETY: the name ends with a zero; before the program begins nobody changes the environment.
    unsafe {
        let value = libc::getenv(zeroed.as_ptr().cast());
        (!value.is_null()).then(|| std::ffi::CStr::from_ptr(value).to_bytes())
    }
}
