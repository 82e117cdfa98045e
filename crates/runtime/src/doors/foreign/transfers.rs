//! R2's asynchronous transfers: a buffer that one call hands over and another one finds filled.

use std::collections::BTreeMap;

use super::guarded::Guarded;
use crate::mechanism::call::Call;

/// Buffers that were handed over, by request key. The same in both runs, because both make the same
/// calls.
pub(super) static PREPARED: Guarded<BTreeMap<u64, (usize, usize)>> = Guarded::new(BTreeMap::new());

/// A transfer of up to `size` bytes into `buffer` has begun. 0: the commit says how many.
pub fn prepare(key: u64, buffer: *mut u8, size: usize) {
    PREPARED.with(|prepared| prepared.insert(key, (buffer as usize, size)));
}

/// The transfer under this key is over, and may have filled all of its buffer. `again`: there is
/// another one into the same buffer.
///
/// # Safety
/// The buffer that was prepared is still there.
pub unsafe fn arrived(call: &mut Call, key: u64, again: bool) {
    let prepared = PREPARED.with(|prepared| match again {
        true => prepared.get(&key).copied(),
        false => prepared.remove(&key),
    });
    if let Some((buffer, size)) = prepared {
        // SAFETY: the caller's promise.
        unsafe { call.out(buffer as *mut u8, size) };
    }
}

/// What was prepared under this key is not waited for any more.
pub fn forget(key: u64) {
    PREPARED.with(|prepared| prepared.remove(&key));
}

/// The transfer under this key has brought `size` bytes. A key that nobody prepared is none of
/// ours.
///
/// # Safety
/// The buffer that was prepared is still there and holds as many bytes.
pub unsafe fn commit(call: &mut Call, key: u64, size: usize) {
    let Some((buffer, room)) = PREPARED.with(|prepared| prepared.remove(&key)) else {
        return;
    };
    let size = if room == 0 { size } else { size.min(room) };
    // SAFETY: the caller's promise.
    unsafe { call.out(buffer as *mut u8, size) };
}
