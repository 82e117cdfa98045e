//! Functions that make, copy and close descriptors.

use hindcast_taplog::board::{Address, Board};
use hindcast_taplog::{Direction, How, Told};
use libc::{FILE, c_char, c_int, c_uint, c_void, sockaddr, socklen_t};

use crate::errno::{errno, set_errno};
use crate::real::real;
use crate::{descriptors, listeners, peers, process, thread, tokio, turns};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(
    listener: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let room = length.as_ref().copied().unwrap_or(0);
        if peers::is_for_another(listener) {
            set_errno(libc::EAGAIN);
            return -1;
        }
        let real = real!(fn accept(c_int, *mut sockaddr, *mut socklen_t) -> c_int);
        let made = real(listener, address, length);
        accepted(made, address, length, room);
        made
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    listener: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        let room = length.as_ref().copied().unwrap_or(0);
        if peers::is_for_another(listener) {
            set_errno(libc::EAGAIN);
            return -1;
        }
        let real = real!(fn accept4(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int);
        let made = real(listener, address, length, flags);
        accepted(made, address, length, room);
        made
    }
}

/// # Safety
/// `address` and `length` are null or what the kernel has written, with this much room.
unsafe fn accepted(made: c_int, address: *mut sockaddr, length: *const socklen_t, room: socklen_t) {
    if made < 0 {
        return;
    }
    descriptors::opened(made, How::Accepted);
    descriptors::entry(made).map(turns::opened);
    peers::accepted(made);
    // SAFETY: as the caller promises. The address may be longer than there is room for.
    unsafe {
        let length = length.as_ref().copied().unwrap_or(0);
        peers::show(made, address, room.min(length));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(
    socket: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    // SAFETY: what the caller gave.
    let place = unsafe { place(address, length) };
    if let Some(Place::Gate(gate)) = place {
        let result = connect_by(socket, &gate);
        connects(socket);
        return result;
    }
    if place.is_none()
        // SAFETY: what the caller gave.
        && let Some(result) = unsafe { replayed(socket, address, length) }
    {
        return result;
    }
    // SAFETY: what the caller gave.
    let result = unsafe {
        real!(fn connect(c_int, *const sockaddr, socklen_t) -> c_int)(socket, address, length)
    };
    if result == 0 || errno() == libc::EINPROGRESS {
        let how = match place {
            Some(_) => How::Database,
            None => How::Connected,
        };
        let to = match address.is_null() {
            true => &[][..],
            // SAFETY: what the caller gave.
            false => unsafe { std::slice::from_raw_parts(address.cast(), length as usize) },
        };
        descriptors::opened_to(socket, how, to);
        connects(socket);
    }
    result
}

/// A connection of our own is being made.
fn connects(socket: c_int) {
    if let Some(entry) = descriptors::entry(socket) {
        turns::opened(entry);
        entry.open_by(tokio::running());
    }
}

/// A loop that has begun to connect asks whether it is connected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) && descriptors::known(socket).is_some() {
        descriptors::entry(socket).map(turns::goes_on_with);
    }
    // SAFETY: what the caller gave.
    unsafe {
        real!(fn getsockopt(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int)(
            socket, level, name, value, length,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: what the caller gave.
    if let Some(result) = unsafe { listeners::bind(socket, address, length) } {
        return result;
    }
    // SAFETY: what the caller gave.
    unsafe { real!(fn bind(c_int, *const sockaddr, socklen_t) -> c_int)(socket, address, length) }
}

/// In a replay a connection is to be accepted before anything is sent on it: it is seen there which
/// process has it. So a listener does not wait for data, whatever the service asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let defers = level == libc::IPPROTO_TCP && name == libc::TCP_DEFER_ACCEPT;
    if defers && process::board().is_some_and(Board::replays) {
        return 0;
    }
    // SAFETY: what the caller gave.
    unsafe {
        let real = real!(fn setsockopt(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int);
        real(socket, level, name, value, length)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    socket: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let real = crate::real::getsockname;
    // SAFETY: what the caller gave.
    unsafe {
        named(real, socket, address, length, |to, room| {
            listeners::name_as_asked(to, room)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    socket: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let real = crate::real::getpeername;
    // SAFETY: what the caller gave.
    unsafe {
        named(real, socket, address, length, |to, room| {
            peers::show(socket, to, room)
        })
    }
}

/// Has the kernel say an address, and this done to as much of it as was written.
///
/// # Safety
/// What a program gives who asks for an address.
unsafe fn named(
    real: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    socket: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    show: impl FnOnce(*mut sockaddr, socklen_t),
) -> c_int {
    // SAFETY: as the caller promises. The kernel says how long the address is, which may be longer
    // than there is room for.
    unsafe {
        let room = length.as_ref().copied().unwrap_or(0);
        let result = real(socket, address, length);
        if result == 0 {
            show(address, room.min(*length));
        }
        result
    }
}

/// A service's database, for who connects to it.
enum Place {
    /// The recorder wants to be connected instead.
    Gate(Address),
    Itself,
}

/// `None` if it is not the database, or the recorder is gone.
unsafe fn place(address: *const sockaddr, length: socklen_t) -> Option<Place> {
    let board = process::board().filter(|_| !address.is_null())?;
    // SAFETY: what the caller of libc gave.
    let to = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length as usize) };
    let place = match board.redirected(to) {
        Some(gate) => Place::Gate(gate),
        None if board.is_database(to) => return Some(Place::Itself),
        None => return None,
    };
    process::recorder_lives().then_some(place)
}

/// In a replay: connects to what the service itself listens on, and to nobody whom the recording
/// does not know. `None`: it is not up to us.
unsafe fn replayed(socket: c_int, address: *const sockaddr, length: socklen_t) -> Option<c_int> {
    let board = process::board().filter(|board| board.replays())?;
    // SAFETY: what the caller gave.
    if let Some(path) = unsafe { listeners::path_of(address, length) } {
        return replayed_by_path(board, socket, path);
    }
    // SAFETY: what the caller gave.
    let asked = unsafe { listeners::port_of(address, length) }?;
    let port = asked.port;
    if !listeners::is_stream(socket) {
        return None;
    }
    if let Some(result) = listeners::connect_here(socket, board, &asked) {
        return Some(result);
    }
    if board.may_leave() || board.is_own(port) {
        return None;
    }
    board.refuse(port);
    set_errno(libc::ECONNREFUSED);
    Some(-1)
}

/// What the service listens on at a path is moved, so what is there is somebody else's.
fn replayed_by_path(board: &Board, socket: c_int, path: &[u8]) -> Option<c_int> {
    if !listeners::is_stream(socket) {
        return None;
    }
    if let Some(name) = board.moved(path) {
        return Some(listeners::connect_by_name(socket, &name));
    }
    if board.may_leave() {
        return None;
    }
    board.refuse_path(path);
    set_errno(libc::ECONNREFUSED);
    Some(-1)
}

/// Connects to the recorder, which knows the connection by the address of this end: a Unix socket
/// asks the kernel for a name.
fn connect_by(socket: c_int, gate: &Address) -> c_int {
    let to = gate.bytes();
    let unix = libc::AF_UNIX as libc::sa_family_t;
    // SAFETY: addresses are as long as is said. Where the socket has a name already, it keeps it.
    let result = unsafe {
        if gate.family() == unix {
            let errno = errno();
            let anonymous = (&raw const unix).cast::<sockaddr>();
            let size = size_of_val(&unix) as socklen_t;
            libc::syscall(libc::SYS_bind, socket, anonymous, size);
            set_errno(errno);
        }
        real!(fn connect(c_int, *const sockaddr, socklen_t) -> c_int)(
            socket,
            to.as_ptr().cast(),
            to.len() as socklen_t,
        )
    };
    if result == 0 || errno() == libc::EINPROGRESS {
        descriptors::gated(socket);
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: what the caller gave.
    let made = unsafe { real!(fn socket(c_int, c_int, c_int) -> c_int)(domain, kind, protocol) };
    // Its number may have been something else's, closed by a way that is not seen.
    descriptors::forget(made);
    made
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    // SAFETY: what the caller gave; where it succeeded there are two numbers.
    unsafe {
        let result = real!(fn socketpair(c_int, c_int, c_int, *mut c_int) -> c_int)(
            domain, kind, protocol, pair,
        );
        if result == 0 {
            descriptors::forget(*pair);
            descriptors::forget(*pair.add(1));
        }
        result
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(socket: c_int, how: c_int) -> c_int {
    if how != libc::SHUT_RD
        && let Some(stream) = descriptors::known(socket)
    {
        let (at, direction) = (process::now(), Direction::Out);
        thread::tell(0, at, |ring| {
            ring.tell(&Told::Ended { stream, direction }, at);
        });
    }
    // SAFETY: what the caller gave.
    unsafe { real!(fn shutdown(c_int, c_int) -> c_int)(socket, how) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    descriptors::closing(descriptor);
    // SAFETY: what the caller gave.
    unsafe { real!(fn close(c_int) -> c_int)(descriptor) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(file: *mut FILE) -> c_int {
    // SAFETY: what the caller gave.
    unsafe {
        // A file without a descriptor has none, and says so with -1.
        let errno = errno();
        descriptors::closing(libc::fileno(file));
        set_errno(errno);
        real!(fn fclose(*mut FILE) -> c_int)(file)
    }
}

/// What goes by stdio does not come by here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    if let Some(stream) = descriptors::stream(descriptor) {
        let at = process::now();
        thread::tell(0, at, |ring| {
            for direction in [Direction::In, Direction::Out] {
                let length = u64::MAX;
                let told = Told::Unseen {
                    stream,
                    direction,
                    length,
                };
                ring.tell(&told, at);
            }
        });
        descriptors::leave_alone(descriptor);
    }
    // SAFETY: what the caller gave.
    unsafe { real!(fn fdopen(c_int, *const c_char) -> *mut FILE)(descriptor, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
        descriptors::closing_range(first, last);
    }
    // SAFETY: what the caller gave.
    unsafe { real!(fn close_range(c_uint, c_uint, c_int) -> c_int)(first, last, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    descriptors::closing_range(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: what the caller gave.
    unsafe { real!(fn closefrom(c_int) -> ())(first) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(descriptor: c_int) -> c_int {
    // SAFETY: what the caller gave.
    let made = unsafe { real!(fn dup(c_int) -> c_int)(descriptor) };
    descriptors::duplicated(descriptor, made);
    made
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(descriptor: c_int, to: c_int) -> c_int {
    // SAFETY: what the caller gave.
    let made = unsafe { real!(fn dup2(c_int, c_int) -> c_int)(descriptor, to) };
    descriptors::duplicated(descriptor, made);
    made
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(descriptor: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: what the caller gave.
    let made = unsafe { real!(fn dup3(c_int, c_int, c_int) -> c_int)(descriptor, to, flags) };
    descriptors::duplicated(descriptor, made);
    made
}

/// Its third argument is a number or a pointer, or is not there; all are passed alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(descriptor: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: what the caller gave.
    let result =
        unsafe { real!(fn fcntl(c_int, c_int, usize) -> c_int)(descriptor, command, argument) };
    copied(descriptor, command, result);
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(descriptor: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: what the caller gave.
    let result =
        unsafe { real!(fn fcntl64(c_int, c_int, usize) -> c_int)(descriptor, command, argument) };
    copied(descriptor, command, result);
    result
}

fn copied(descriptor: c_int, command: c_int, result: c_int) {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        descriptors::duplicated(descriptor, result);
    }
}
