//! The program's `errno`, which our own calls must not change.

pub fn errno() -> i32 {
    // SAFETY: libc gives a thread's own.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(errno: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
