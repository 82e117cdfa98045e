//! What of the environment has the tap, and the shims, in the programs that this one executes.
//!
//! Who starts a service often gives it an environment of its own: `env -i`, as Debian's apachectl
//! does, `su -`, `sudo`, Mailman's master. Without the variables that loaded us here nothing would
//! be seen of it. So they are kept when the program begins, and given to programs whose
//! environment does not say where the recorder is.
//!
//! A child in the memory of its parent may be executing (`vfork`), and so may a signal handler: all
//! of it is on the stack.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

use hindcast_taplog::{CAPACITY_VARIABLE, SOCKET_VARIABLE};

use crate::{memory, process};

/// The variables, and what of their values is ours: so many words, until this byte.
const KEPT: [(&str, usize, u8); 13] = [
    (SOCKET_VARIABLE, 1, ALL),
    (CAPACITY_VARIABLE, 1, ALL),
    ("HINDCAST_POOL", 1, ALL),
    ("HINDCAST_FILES", 1, ALL),
    // Seeds that a replay has, too.
    ("PYTHONHASHSEED", 1, ALL),
    ("PERL_HASH_SEED", 1, ALL),
    ("PERL_PERTURB_KEYS", 1, ALL),
    ("LD_PRELOAD", 1, b':'),
    ("PYTHONPATH", 1, b':'),
    ("NODE_OPTIONS", 1, b' '),
    ("BUN_OPTIONS", 1, b' '),
    ("RUBYOPT", 1, b' '),
    // `-I` and `-M`.
    ("PERL5OPT", 2, b' '),
];

/// No value has it in it: all of them is ours.
const ALL: u8 = 0;

/// What is ours in a variable that a user may have has this in it.
const FOLDER: &[u8] = b"/hindcast-tap-";

/// For all that is kept, a zero behind each, and another one behind all.
const ROOM: usize = 16 << 10;
/// A larger environment is given as it is.
const ENTRIES: usize = 1024;

static TEXTS: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

type Entries = *const *const c_char;

/// The program begins: nobody has changed its environment yet.
pub fn begin() {
    let Some(room) = memory::fresh(ROOM) else {
        return;
    };
    // SAFETY: new memory of that size, all zeros.
    let mut left = unsafe { std::slice::from_raw_parts_mut(room.cast::<u8>(), ROOM) };
    for (name, words, end) in KEPT {
        let value = process::variable(name).map(|value| ours(value, words, end));
        let is_ours =
            |value: &&[u8]| end == ALL || value.windows(FOLDER.len()).any(|part| part == FOLDER);
        let Some(value) = value.filter(is_ours) else {
            continue;
        };
        // Two zeros are behind the last one.
        let length = name.len() + 1 + value.len();
        if length + 2 > left.len() {
            return;
        }
        let (text, rest) = left.split_at_mut(length + 1);
        text[..name.len()].copy_from_slice(name.as_bytes());
        text[name.len()] = b'=';
        text[name.len() + 1..length].copy_from_slice(value);
        left = rest;
    }
    TEXTS.store(room.cast(), Ordering::Release);
}

/// A user's own words are behind ours.
fn ours(value: &[u8], words: usize, end: u8) -> &[u8] {
    let mut ends = (0..value.len()).filter(|&at| value[at] == end);
    ends.nth(words - 1).map_or(value, |at| &value[..at])
}

/// Calls with this environment, or with one that also has what was kept.
///
/// # Safety
/// It is one: entries, and a null behind them; or it is null, which has none.
pub unsafe fn with_ours<T>(given: Entries, call: impl FnOnce(Entries) -> T) -> T {
    let mut all = [std::ptr::null(); ENTRIES];
    // SAFETY: as the caller promises.
    match unsafe { join(given, &mut all) } {
        Some(()) => call(all.as_ptr()),
        None => call(given),
    }
}

/// `None`: nothing is to be added.
///
/// # Safety
/// As for [`with_ours`].
unsafe fn join(given: Entries, all: &mut [*const c_char; ENTRIES]) -> Option<()> {
    let mut text = TEXTS.load(Ordering::Acquire).cast_const();
    if text.is_null() || !process::is_enabled() {
        return None;
    }
    let mut count = 0;
    // SAFETY: a null ends the entries, each of which ends with a zero.
    unsafe {
        while !given.is_null() && !(*given.add(count)).is_null() {
            let entry = *given.add(count);
            if is_of(entry, SOCKET_VARIABLE.as_bytes()) || count == ENTRIES - 1 - KEPT.len() {
                return None;
            }
            all[count] = entry;
            count += 1;
        }
    }
    let theirs = count;
    // SAFETY: texts of ours, each of which ends with a zero; an empty one ends them.
    unsafe {
        while *text != 0 {
            let bytes = CStr::from_ptr(text).to_bytes();
            let name = bytes.split(|&byte| byte == b'=').next().unwrap_or(bytes);
            if !all[..theirs].iter().any(|&entry| is_of(entry, name)) {
                all[count] = text;
                count += 1;
            }
            text = text.add(bytes.len() + 1);
        }
    }
    Some(())
}

/// Whether an entry is of the variable of this name.
///
/// # Safety
/// It ends with a zero.
unsafe fn is_of(entry: *const c_char, name: &[u8]) -> bool {
    // SAFETY: as the caller promises.
    let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
    entry
        .strip_prefix(name)
        .is_some_and(|rest| rest.first() == Some(&b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_words_are_not_ours() {
        assert_eq!(ours(b"/t/tap.so:/x/other.so", 1, b':'), b"/t/tap.so");
        assert_eq!(ours(b"/t/tap.so", 1, b':'), b"/t/tap.so");
        assert_eq!(ours(b"-I/t -MOurs -MTheirs", 2, b' '), b"-I/t -MOurs");
        assert_eq!(ours(b"-I/t -MOurs", 2, b' '), b"-I/t -MOurs");
        assert_eq!(ours(b"name:token", 1, ALL), b"name:token");
    }
}
