//! Parts of a log that are given back to the file system.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd as _;

/// Nobody reads these bytes any more. Where the file system cannot take them back, they stay.
pub fn punch(file: &File, bytes: Range<u64>) {
    // SAFETY: a descriptor and numbers.
    unsafe {
        libc::fallocate(
            file.as_raw_fd(),
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            bytes.start as i64,
            (bytes.end - bytes.start) as i64,
        )
    };
}
