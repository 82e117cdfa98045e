//! What has come of a request and was not read yet.

use hindcast_taplog::heads;

use crate::descriptors::Entry;
use crate::errno::{errno, set_errno};
use crate::real::recv;

/// So much of a request's head is looked at beyond what was read.
const AHEAD: usize = 8 << 10;

/// The number that stands in what of the request has not been read yet. A server that reads the
/// first bytes by themselves would answer these, although somebody else has the request.
pub fn said(descriptor: i32, entry: &Entry, bytes: &[u8]) -> Option<u64> {
    let is_head = bytes.first().is_some_and(u8::is_ascii_uppercase) && !heads::is_whole(bytes);
    if !is_head || entry.encrypted_by() != 0 {
        return None;
    }
    let mut ahead = [0_u8; AHEAD];
    let errno = errno();
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let length = recv(descriptor, &mut ahead, flags);
    set_errno(errno);
    heads::said(&ahead[..usize::try_from(length).ok()?])
}
