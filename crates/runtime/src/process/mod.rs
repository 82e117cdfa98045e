//! Children, other images, and the end of the process.

pub fn by_number(_number: i64, _arguments: [usize; 6], _context: *mut libc::ucontext_t) -> Option<isize> {
    None
}
