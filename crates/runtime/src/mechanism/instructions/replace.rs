//! Traps in place of instructions.
//!
//! `hlt` is one byte long, so it fits over the first byte of any instruction and another thread
//! never sees half of it. No program may execute it: it raises the same fault as a `cpuid` that the
//! kernel lets fault. What stood there is kept here.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::decode::{Instruction, decode};
use crate::{probe, raw, syscall};

const HLT: u8 = 0xf4;
const PAGE: usize = 4096;

/// An address, eight bits higher, and the byte that was there. Hashed by address; only ever added
/// to.
static PLACES: [AtomicU64; PLACES_MAX] = [const { AtomicU64::new(0) }; PLACES_MAX];
const PLACES_MAX: usize = 4096;

/// Where the place of an address is kept, or can be.
fn slot(address: usize) -> Option<&'static AtomicU64> {
    let first = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    (0..PLACES_MAX)
        .map(|step| &PLACES[(first as usize + step) % PLACES_MAX])
        .find(|slot| [0, address as u64].contains(&(slot.load(Ordering::Acquire) >> 8)))
}

/// False: there is no room for more.
fn keep(address: usize, byte: u8) -> bool {
    let wanted = (address as u64) << 8 | u64::from(byte);
    while let Some(slot) = slot(address) {
        let old = slot.load(Ordering::Acquire);
        // Another thread may have taken it meanwhile.
        let free = [0, address as u64].contains(&(old >> 8));
        let order = (Ordering::AcqRel, Ordering::Acquire);
        if free && slot.compare_exchange(old, wanted, order.0, order.1).is_ok() {
            return true;
        }
    }
    false
}

/// What stood at an address where an instruction was replaced, some time.
pub fn first_byte(address: usize) -> Option<u8> {
    let kept = slot(address)?.load(Ordering::Acquire);
    (kept != 0).then_some(kept as u8)
}

/// The instruction at an address as the program has it, its length, and whether there is a trap in
/// its place.
///
/// # Safety
/// An instruction that was just executed is at the address.
pub unsafe fn instruction_at(address: usize) -> Option<(Instruction, usize, bool)> {
    // SAFETY: a byte is read only if those before it say that the instruction goes on.
    let byte = |index| unsafe { *(address as *const u8).add(index) };
    let replaced = first_byte(address).filter(|_| byte(0) == HLT);
    let (instruction, length) = decode(|index| match (index, replaced) {
        (0, Some(first)) => Some(first),
        _ => Some(byte(index)),
    })?;
    Some((instruction, length, replaced.is_some()))
}

/// Whether an instruction that is to be replaced, or was, begins at an address, which may be any.
pub fn is_there(address: usize) -> bool {
    let byte = |index| {
        let byte = (address as *const u8).wrapping_add(index);
        // SAFETY: it can be read.
        probe::readable(byte, 1).then(|| unsafe { *byte })
    };
    let replaced = first_byte(address).filter(|_| byte(0) == Some(HLT));
    decode(|index| match (index, replaced) {
        (0, Some(first)) => Some(first),
        _ => byte(index),
    })
    .is_some()
}

/// Changes one byte at each of these ascending addresses, in memory that has this protection.
/// False: the kernel does not let code be written to.
fn write(addresses: &[usize], protection: usize, byte: impl Fn(usize) -> Option<u8>) -> bool {
    let (Some(first), Some(last)) = (addresses.first(), addresses.last()) else {
        return true;
    };
    let pages = first & !(PAGE - 1);
    let length = (last + 1).next_multiple_of(PAGE) - pages;
    let writable = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let protect = |protection: usize| {
        // SAFETY: the pages stay executable for threads that are in them.
        raw::error_of(unsafe { syscall!(libc::SYS_mprotect, pages, length, protection) }).is_none()
    };
    if !protect(writable as usize) {
        return false;
    }
    for address in addresses {
        if let Some(byte) = byte(*address) {
            // SAFETY: writable now. One byte is changed at once for every thread.
            unsafe { AtomicU8::from_ptr(*address as *mut u8) }.store(byte, Ordering::Release);
        }
    }
    protect(protection)
}

/// Puts traps at these ascending addresses, which are in memory that has this protection.
#[must_use]
pub fn replace(addresses: &[usize], protection: usize) -> bool {
    write(addresses, protection, |address| {
        // SAFETY: the caller found an instruction there.
        let byte = unsafe { *(address as *const u8) };
        (byte != HLT && keep(address, byte)).then_some(HLT)
    })
}

/// Puts back what stood everywhere, since from now on the program may handle faults itself.
pub fn restore() {
    for place in &PLACES {
        let address = (place.load(Ordering::Acquire) >> 8) as usize;
        // Other memory may be there by now.
        if address != 0 && is_there(address) {
            let protection = (libc::PROT_READ | libc::PROT_EXEC) as usize;
            write(&[address], protection, first_byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_there_is_known_and_comes_back() {
        // SAFETY: a page of this test's own.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let code = [0x0f, 0xa2, 0x90, 0x48, 0x0f, 0xc7, 0xf3, 0xc3];
        let at = |index: usize| page as usize + index;
        // SAFETY: as above.
        unsafe { page.cast::<[u8; 8]>().write(code) };
        let protection = (libc::PROT_READ | libc::PROT_EXEC) as usize;
        assert!(replace(&[at(0), at(3)], protection));
        // Once more: it stays as it is.
        assert!(replace(&[at(0), at(3)], protection));
        // SAFETY: as above.
        unsafe {
            let now = page.cast::<[u8; 8]>().read();
            assert_eq!(now, [HLT, 0xa2, 0x90, HLT, 0x0f, 0xc7, 0xf3, 0xc3]);
            let cpuid = Some((Instruction::Cpuid, 2, true));
            assert_eq!(instruction_at(at(0)), cpuid);
            assert_eq!(first_byte(at(1)), None);
            let (random, length, replaced) = instruction_at(at(3)).expect("rdrand");
            assert!(matches!(random, Instruction::Random(_)) && length == 4 && replaced);
        }
        assert!(is_there(at(0)) && !is_there(at(2)));
        write(&[at(0), at(3)], protection, first_byte);
        // SAFETY: as above.
        assert_eq!(unsafe { page.cast::<[u8; 8]>().read() }, code);
    }
}
