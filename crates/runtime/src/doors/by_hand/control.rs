//! One function, many meanings: `fcntl`, `ioctl`, `prctl`, and the controls of System V.
//!
//! For each meaning the tables say what lies behind the last argument: nothing, a number, or so
//! many bytes that go in or out. What is unknown is recorded by its result, as a system call that
//! nothing describes, and named.

use super::system_call::SystemCall;
use crate::functions::{self, Function};
use crate::mechanism::call::Call;
use crate::mechanism::detach::Reason;
use crate::mechanism::files;
use crate::state::recording;
use crate::{probe, raw};

const EBADF: isize = -(libc::EBADF as isize);

/// What the last argument of a control call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument {
    /// Nothing is passed: whatever lay in the register.
    Unused,
    /// The number itself.
    Number,
    /// The address of so many bytes that are read and compared.
    In(usize),
    /// The address of bytes that are read and not compared: they have padding, or lead on to more.
    InOpaque,
    /// The address of so many bytes that are written.
    Out(usize),
    /// A descriptor is the result.
    NewDescriptor,
    Unknown,
}

/// Runs the call with its last argument at `place`.
unsafe fn run(
    running: &mut Call,
    call: SystemCall,
    place: usize,
    argument: Argument,
    blocks: bool,
) -> isize {
    let value = call.arguments[place];
    match argument {
        Argument::Number => running.input(value as u64),
        // SAFETY: what the kernel reads is readable, or null.
        Argument::In(bytes) => unsafe { running.input_bytes(value as *const u8, bytes) },
        _ => {}
    }
    // SAFETY: the program's own call.
    let result = running.run_kernel(|thread| unsafe {
        if blocks {
            call.run_blocking(thread)
        } else {
            call.run()
        }
    });
    if result >= 0 {
        match argument {
            // SAFETY: the kernel has written this much.
            Argument::Out(bytes) => unsafe { running.out(value as *mut u8, bytes) },
            Argument::NewDescriptor => running.opened(result as i32, files::Kind::Other),
            _ => {}
        }
    }
    result
}

// ---- fcntl ----

mod commands {
    pub const F_OFD_GETLK: i32 = 36;
    pub const F_OFD_SETLKW: i32 = 38;
    pub const F_SETOWN_EX: i32 = 15;
    pub const F_GETOWN_EX: i32 = 16;
    pub const F_GETOWNER_UIDS: i32 = 17;
    pub const F_GET_RW_HINT: i32 = 1035;
    pub const F_SET_RW_HINT: i32 = 1036;
    pub const F_GET_FILE_RW_HINT: i32 = 1037;
    pub const F_SET_FILE_RW_HINT: i32 = 1038;
}

/// `struct flock`: type and whence, four bytes of padding, start and length, who holds it.
const FLOCK_BYTES: usize = 32;

fn fcntl_argument(command: i32) -> Argument {
    match command {
        libc::F_GETFD
        | libc::F_GETFL
        | libc::F_GETOWN
        | 11
        | libc::F_GETLEASE
        | libc::F_GETPIPE_SZ
        | libc::F_GET_SEALS => Argument::Unused,
        libc::F_GETLK | commands::F_OFD_GETLK => Argument::Out(FLOCK_BYTES),
        libc::F_SETLK | libc::F_SETLKW | 37 | commands::F_OFD_SETLKW => Argument::InOpaque,
        commands::F_SETOWN_EX | commands::F_SET_RW_HINT | commands::F_SET_FILE_RW_HINT => {
            Argument::In(8)
        }
        commands::F_GETOWN_EX
        | commands::F_GETOWNER_UIDS
        | commands::F_GET_RW_HINT
        | commands::F_GET_FILE_RW_HINT => Argument::Out(8),
        _ => Argument::Number,
    }
}

/// Whether a command gives nothing but its result, and no new descriptor: that result can be
/// cached.
fn is_status(command: i32) -> bool {
    !matches!(fcntl_argument(command), Argument::Out(_))
        && !matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC)
}

/// A function is cached always or never, so the commands of this one count as two.
pub fn fcntl_function(command: i32) -> Function {
    if is_status(command) {
        functions::FCNTL
    } else {
        functions::FCNTL64
    }
}

pub unsafe fn fcntl(running: &mut Call, call: SystemCall) -> isize {
    let [fd, command, argument, ..] = call.arguments;
    let (fd, command) = (fd as i32, command as i32);
    running.input(fd as u64);
    running.input(command as u64);
    if is_status(command) {
        running.cache();
    }
    if files::is_protected(fd) {
        return running.run_kernel(|_| EBADF);
    }
    let meaning = fcntl_argument(command);
    if matches!(
        command,
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW | 36..=38
    ) && argument != 0
    {
        // SAFETY: a `struct flock` of the program; its padding and its owner are left out.
        unsafe {
            running.input_bytes(argument as *const u8, 4);
            running.input_bytes((argument + 8) as *const u8, 16);
        }
    }
    let blocks = matches!(command, libc::F_SETLKW | commands::F_OFD_SETLKW);
    // SAFETY: the program's own call.
    let result = unsafe { run(running, call, 2, meaning, blocks) };
    if result >= 0 && matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        running.duplicated(fd, result as i32);
    }
    result
}

// ---- ioctl ----

const SIOCGIFCONF: u32 = 0x8912;
const SIOCETHTOOL: u32 = 0x8946;
const TUNSETIFF: u32 = 0x4004_54ca;
const FS_IOC_FIEMAP: u32 = 0xc020_660b;
/// `struct ifreq`
const IFREQ_BYTES: usize = 40;
/// `struct arpreq`
const ARPREQ_BYTES: usize = 68;

fn ioctl_argument(request: u32) -> Argument {
    match request {
        // Terminals: struct termios as the kernel has it, struct winsize, groups and counts.
        0x5401 => Argument::Out(36),
        0x5402..=0x5404 | 0x5406..=0x5408 | 0x541f => Argument::InOpaque,
        0x5405 => Argument::Out(18),
        0x5409..=0x540b | 0x540e | 0x5425 => Argument::Number,
        0x540c | 0x540d | 0x5420 | 0x5422 | 0x5427 | 0x5428 | 0x5437 => Argument::Unused,
        0x540f | 0x5411 | 0x5415 | 0x5419 | 0x541b | 0x5424 | 0x5429 => Argument::Out(4),
        0x5410 | 0x5416..=0x5418 | 0x541a | 0x5421 | 0x5423 | 0x5452 => Argument::In(4),
        0x5412 => Argument::In(1),
        0x5413 => Argument::Out(8),
        0x5414 => Argument::In(8),
        0x541e => Argument::Out(72),
        0x5441 => Argument::NewDescriptor,
        // FIONCLEX, FIOCLEX, FIOQSIZE
        0x5450 | 0x5451 => Argument::Unused,
        0x5460 => Argument::Out(8),
        // Sockets and interfaces.
        0x8901 | 0x8902 => Argument::In(4),
        0x8903..=0x8905 => Argument::Out(4),
        0x8906 | 0x8907 => Argument::Out(16),
        SIOCGIFCONF | SIOCETHTOOL => Argument::Unknown,
        0x890b | 0x890c => Argument::InOpaque,
        // SIOCGSKNS, SIOCOUTQNSD; then what takes a `struct arpreq`.
        0x894c => Argument::NewDescriptor,
        0x894b => Argument::Out(4),
        0x8953..=0x8955 | 0x8960..=0x8962 => Argument::Out(ARPREQ_BYTES),
        // SIOCGIFBR, SIOCSIFBR, SIOCWANDEV: what they take leads on to more.
        0x8940 | 0x8941 | 0x894a => Argument::Unknown,
        0x8910..=0x8939 | 0x8942..=0x8949 | 0x8970 | 0x8971 | TUNSETIFF => {
            Argument::Out(IFREQ_BYTES)
        }
        0x8b00..=0x8bff => Argument::Unknown,
        // Block devices.
        0x125d | 0x1262 | 0x1266 => Argument::Number,
        0x1261 => Argument::Unused,
        0x125e | 0x1268 | 0x1278 | 0x1279 | 0x127a | 0x127b | 0x127c => Argument::Out(4),
        0x1260 | 0x1263 | 0x1265 => Argument::Out(8),
        0x1267 | 0x127e => Argument::Out(2),
        // FS_IOC_GETFLAGS and FS_IOC_GETVERSION say `long` and mean `int`.
        0x8008_6601 | 0x8008_7601 => Argument::Out(4),
        0x4008_6602 | 0x4008_7602 => Argument::In(4),
        FS_IOC_FIEMAP => Argument::Unknown,
        // Namespaces answer with descriptors.
        0xb701 | 0xb702 => Argument::NewDescriptor,
        0xb703 => Argument::Unused,
        0xb704 => Argument::Out(4),
        // The rest says itself how much it moves: direction, size, family, number.
        _ => {
            let (direction, bytes, family) = (
                request >> 30,
                (request >> 16 & 0x3fff) as usize,
                (request >> 8) as u8,
            );
            match direction {
                // KVM, graphics and the like hand out descriptors and memory.
                _ if matches!(family, 0xae | b'd' | b'F' | b'E' | 0x92) && direction != 2 => {
                    Argument::Unknown
                }
                0 => Argument::Unknown,
                1 => Argument::InOpaque,
                _ => Argument::Out(bytes),
            }
        }
    }
}

pub unsafe fn ioctl(running: &mut Call, call: SystemCall) -> isize {
    let [fd, request, argument, ..] = call.arguments;
    let request = request as u32;
    running.input(fd as u64);
    running.input(request.into());
    if files::is_protected(fd as i32) {
        return running.run_kernel(|_| EBADF);
    }
    match request {
        // SAFETY: the program's own call.
        SIOCGIFCONF => unsafe { interfaces(running, call) },
        FS_IOC_FIEMAP => {
            // SAFETY: `struct fiemap`: 32 bytes, then as many extents of 56 bytes as it says it
            // mapped, if it had room for any.
            unsafe {
                let result = running.run_kernel(|_| call.run());
                if result == 0 {
                    running.out(argument as *mut u8, 32);
                    let (mapped, room) = (
                        *((argument + 20) as *const u32),
                        *((argument + 24) as *const u32),
                    );
                    running.out((argument + 32) as *mut u8, mapped.min(room) as usize * 56);
                }
                result
            }
        }
        _ => {
            let meaning = ioctl_argument(request);
            if meaning == Argument::Unknown {
                unknown(running, "ioctl", request.into());
            }
            // SAFETY: the program's own call.
            unsafe { run(running, call, 2, meaning, true) }
        }
    }
}

/// `struct ifconf`: a length, and the address of as many bytes. Without an address the kernel tells
/// the length alone.
unsafe fn interfaces(running: &mut Call, call: SystemCall) -> isize {
    let argument = call.arguments[2];
    // SAFETY: the program's own call.
    unsafe {
        let room = if probe::readable(argument as *const u8, 16) {
            *(argument as *const i32)
        } else {
            0
        };
        let result = running.run_kernel(|_| call.run());
        if result == 0 {
            running.out(argument as *mut u8, 4);
            let memory = *((argument + 8) as *const *mut u8);
            running.out(
                memory,
                (*(argument as *const i32)).clamp(0, room.max(0)) as usize,
            );
        }
        result
    }
}

#[cold]
fn unknown(running: &Call, function: &str, meaning: u64) {
    if running.is_recording() {
        recording::warn(format_args!(
            "{function} {meaning:#x} is not known: what it wrote into memory is not recorded"
        ));
    }
}

// ---- prctl ----

const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;

fn prctl_argument(option: usize) -> Argument {
    match option as i32 {
        libc::PR_GET_PDEATHSIG
        | libc::PR_GET_UNALIGN
        | 9
        | 11
        | 19
        | libc::PR_GET_CHILD_SUBREAPER => Argument::Out(4),
        libc::PR_GET_NAME => Argument::Out(16),
        // PR_GET_TID_ADDRESS
        40 => Argument::Out(8),
        libc::PR_GET_DUMPABLE
        | libc::PR_GET_KEEPCAPS
        | 13
        | libc::PR_GET_SECUREBITS
        | libc::PR_GET_TIMERSLACK
        | libc::PR_GET_NO_NEW_PRIVS
        | libc::PR_GET_THP_DISABLE
        | libc::PR_GET_SECCOMP => Argument::Unused,
        libc::PR_SET_NAME => Argument::Unused,
        _ => Argument::Number,
    }
}

pub unsafe fn prctl(running: &mut Call, call: SystemCall) -> isize {
    let [option, value, ..] = call.arguments;
    running.input(option as u64);
    match option as i32 {
        // Both runs trap `rdtsc`, whatever the program says: it is answered as if nobody did.
        libc::PR_SET_TSC => {
            running.input(value as u64);
            running.run_kernel(|_| 0)
        }
        libc::PR_GET_TSC => {
            let result = running.run_kernel(|_| 0);
            // SAFETY: the program's own place for an `int`.
            unsafe { *(value as *mut i32) = libc::PR_TSC_ENABLE };
            result
        }
        // A thread's name helps whoever looks at the replay.
        libc::PR_SET_NAME => {
            // SAFETY: a C string; replay names its thread as well.
            unsafe {
                running.input_str(value as *const _);
                if !running.is_recording() {
                    call.run();
                }
                running.run_kernel(|_| call.run())
            }
        }
        // SAFETY: the program's own call.
        _ => unsafe { run(running, call, 1, prctl_argument(option), false) },
    }
}

/// Whether this `prctl` must end recording, and why.
pub fn prctl_refusal(option: usize) -> Option<Reason> {
    match option {
        PR_SET_SYSCALL_USER_DISPATCH => Some(Reason::Other(
            "the program uses Syscall User Dispatch itself",
        )),
        _ if option as i32 == libc::PR_SET_SECCOMP => Some(Reason::Seccomp),
        _ => None,
    }
}

// ---- seccomp ----

const SECCOMP_GET_ACTION_AVAIL: usize = 2;
const SECCOMP_GET_NOTIF_SIZES: usize = 3;

pub fn seccomp_refusal(operation: usize) -> Option<Reason> {
    (!matches!(
        operation,
        SECCOMP_GET_ACTION_AVAIL | SECCOMP_GET_NOTIF_SIZES
    ))
    .then_some(Reason::Seccomp)
}

/// The two operations that only ask.
pub unsafe fn seccomp(running: &mut Call, call: SystemCall) -> isize {
    running.input(call.arguments[0] as u64);
    running.input(call.arguments[1] as u64);
    let argument = if call.arguments[0] == SECCOMP_GET_ACTION_AVAIL {
        Argument::In(4)
    } else {
        Argument::Out(6)
    };
    // SAFETY: the program's own call.
    unsafe { run(running, call, 2, argument, false) }
}

// ---- System V ----

const IPC_64: i32 = 0x100;
const IPC_STAT: i32 = 2;
const IPC_INFO: i32 = 3;
const GETALL: i32 = 13;
const SETALL: i32 = 17;

pub unsafe fn semctl(running: &mut Call, call: SystemCall) -> isize {
    let [id, number, command, argument, ..] = call.arguments;
    let command = command as i32 & !IPC_64;
    for value in [id as i32, number as i32, command] {
        running.input(value as u64);
    }
    match command {
        GETALL => {
            // How many semaphores the set has, and so how many values were written, only the kernel
            // knows.
            let mut count = 0u32;
            // SAFETY: the program's own call, and a question about the same set.
            unsafe {
                let result = running.run_kernel(|_| {
                    let mut status = std::mem::MaybeUninit::<libc::semid_ds>::zeroed();
                    let asked =
                        crate::syscall!(libc::SYS_semctl, id, 0, IPC_STAT, status.as_mut_ptr());
                    if raw::error_of(asked).is_none() {
                        count = status.assume_init().sem_nsems as u32;
                    }
                    call.run()
                });
                if result >= 0 {
                    running.out_value(&raw mut count);
                    running.out(argument as *mut u8, count as usize * 2);
                }
                result
            }
        }
        _ => {
            let meaning = match command {
                IPC_STAT | 18 | 20 => Argument::Out(104),
                IPC_INFO | 19 => Argument::Out(40),
                16 => Argument::Number,
                1 | SETALL => Argument::InOpaque,
                _ => Argument::Unused,
            };
            // SAFETY: the program's own call.
            unsafe { run(running, call, 3, meaning, false) }
        }
    }
}

pub unsafe fn msgctl(running: &mut Call, call: SystemCall) -> isize {
    let command = call.arguments[1] as i32 & !IPC_64;
    running.input(call.arguments[0] as u64);
    running.input(command as u64);
    let meaning = match command {
        IPC_STAT | 11 | 13 => Argument::Out(120),
        IPC_INFO | 12 => Argument::Out(32),
        1 => Argument::InOpaque,
        _ => Argument::Unused,
    };
    // SAFETY: the program's own call.
    unsafe { run(running, call, 2, meaning, false) }
}

pub unsafe fn shmctl(running: &mut Call, call: SystemCall) -> isize {
    let command = call.arguments[1] as i32 & !IPC_64;
    running.input(call.arguments[0] as u64);
    running.input(command as u64);
    let meaning = match command {
        IPC_STAT | 13 | 15 => Argument::Out(112),
        IPC_INFO => Argument::Out(72),
        14 => Argument::Out(48),
        1 => Argument::InOpaque,
        _ => Argument::Unused,
    };
    // SAFETY: the program's own call.
    unsafe { run(running, call, 2, meaning, false) }
}

// ---- Capabilities ----

const FIRST_VERSION: u32 = 0x1998_0330;

/// The header's version decides how much is written; a version the kernel does not know is replaced
/// by its own.
pub unsafe fn capget(running: &mut Call, call: SystemCall) -> isize {
    let [header, data, ..] = call.arguments;
    // SAFETY: the program's own call.
    unsafe {
        running.input_bytes(header as *const u8, 8);
        let version = if probe::readable(header as *const u8, 8) {
            *(header as *const u32)
        } else {
            0
        };
        let result = running.run_kernel(|_| call.run());
        if result == 0 || (raw::error_of(result) == Some(libc::EINVAL) && version != 0) {
            running.out(header as *mut u8, 4);
        }
        if result == 0 {
            running.out(
                data as *mut u8,
                if version == FIRST_VERSION { 12 } else { 24 },
            );
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_headers() {
        assert_eq!(size_of::<libc::flock>(), FLOCK_BYTES);
        assert_eq!(size_of::<libc::ifreq>(), IFREQ_BYTES);
        assert_eq!(size_of::<libc::semid_ds>(), 104);
        assert_eq!(size_of::<libc::msqid_ds>(), 120);
        assert_eq!(size_of::<libc::shmid_ds>(), 112);
    }

    #[test]
    fn requests_that_say_their_size_are_believed() {
        // TIOCGPTN: _IOR('T', 0x30, unsigned)
        assert_eq!(ioctl_argument(0x8004_5430), Argument::Out(4));
        // TIOCSPTLCK: _IOW('T', 0x31, int)
        assert_eq!(ioctl_argument(0x4004_5431), Argument::InOpaque);
        // TCGETS2: _IOR('T', 0x2a, struct termios2)
        assert_eq!(ioctl_argument(0x802c_542a), Argument::Out(44));
    }
}
