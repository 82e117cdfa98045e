//! Written by `hindcast-interpose` from the annotated headers in `crates/interpose/interfaces`.

pub mod functions;

pub unsafe fn by_number(_number: i64, _arguments: [usize; 6]) -> Option<isize> {
    None
}
