//! In a replay, where PHP has the files of its sessions.
//!
//! ```text
//!   /var/lib/php/sessions/sess_4k2…  ──▶  FOLDER/0f3e…-sess_4k2…
//!                                         FOLDER/0f3e…-gone_4k2…   it was removed
//! ```
//!
//! A replay draws the names that the recorded service drew. The files of those sessions are still
//! there, or those of an earlier replay, so PHP takes the name for one that another visitor has.

use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use crate::hash::fnv1a;

/// Of a folder's path.
const FOLDER: usize = 128;
/// A name is as long as names of files are.
const NAME: usize = 255;
/// What is put before a name: a hash of its folder, as hexadecimal digits, and a dash.
const HASH: usize = 17;
pub const PATH: usize = FOLDER + 1 + NAME + 1;

const SESSION: &[u8] = b"sess_";
const GONE: &[u8] = b"gone_";

/// Written before the service starts, and read by all of its processes.
#[repr(C)]
pub struct Sessions {
    /// With a zero behind it; empty while there is none.
    folder: [AtomicU8; FOLDER],
    /// Microseconds since 1970.
    until: AtomicI64,
}

/// A path, and the zeros behind it.
pub type Path = [u8; PATH];

impl Sessions {
    /// Files are in this folder, which any process of the service can write to. What was there
    /// before `until`, microseconds since 1970, is in it as well. False if the path is too long.
    pub fn keep_in(&self, folder: &[u8], until: i64) -> bool {
        if folder.len() >= FOLDER {
            return false;
        }
        self.until.store(until, Ordering::Relaxed);
        for (to, &from) in self.folder.iter().zip(folder) {
            to.store(from, Ordering::Release);
        }
        true
    }

    /// Of files that were there by then, a replay sees copies.
    pub fn until(&self) -> i64 {
        self.until.load(Ordering::Relaxed)
    }

    /// Where the file of a session is instead, and what is there once it was removed; `None` if
    /// the path is none of a session, or sessions are where they always are.
    pub fn instead(&self, path: &[u8]) -> Option<(Path, Path)> {
        let at = path.iter().rposition(|&byte| byte == b'/')?;
        let (before, name) = (&path[..at], &path[at + 1..]);
        let id = name.strip_prefix(SESSION)?;
        let is_id = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b',' | b'-');
        if id.is_empty() || HASH + name.len() > NAME || !id.iter().all(is_id) {
            return None;
        }
        let mut place = [0; PATH];
        let mut length = 0;
        let bytes = self.folder.iter().map(|byte| byte.load(Ordering::Acquire));
        for byte in bytes.take_while(|&byte| byte != 0).chain([b'/']) {
            place[length] = byte;
            length += 1;
        }
        if length == 1 {
            return None;
        }
        let folder = fnv1a(before);
        for digit in (0..16).rev() {
            let digit = (folder >> (digit * 4) & 15) as usize;
            place[length] = b"0123456789abcdef"[digit];
            length += 1;
        }
        place[length] = b'-';
        let mut gone = place;
        for (place, word) in [(&mut place, SESSION), (&mut gone, GONE)] {
            let rest = word.iter().chain(id);
            place[length + 1..]
                .iter_mut()
                .zip(rest)
                .for_each(|(to, &from)| *to = from);
        }
        Some((place, gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> Sessions {
        Sessions {
            folder: [const { AtomicU8::new(0) }; FOLDER],
            until: AtomicI64::new(0),
        }
    }

    fn text(path: &Path) -> &str {
        std::ffi::CStr::from_bytes_until_nul(path)
            .unwrap()
            .to_str()
            .unwrap()
    }

    #[test]
    fn the_file_of_a_session_is_elsewhere() {
        let sessions = sessions();
        assert_eq!(sessions.instead(b"/var/lib/php/sess_4k2"), None, "not told");
        assert!(sessions.keep_in(b"/tmp/kept", 7));
        let (place, gone) = sessions.instead(b"/var/lib/php/sess_4k2").unwrap();
        let (other, _) = sessions.instead(b"/srv/shop/sess_4k2").unwrap();
        assert!(text(&place).starts_with("/tmp/kept/"), "{}", text(&place));
        assert!(text(&place).ends_with("-sess_4k2"), "{}", text(&place));
        assert!(text(&gone).ends_with("-gone_4k2"), "{}", text(&gone));
        assert_ne!(text(&place), text(&other), "each folder has its own");
        assert_eq!(sessions.until(), 7);
    }

    #[test]
    fn another_file_is_where_it_is() {
        let sessions = sessions();
        assert!(sessions.keep_in(b"/tmp/kept", 7));
        let long = [b"/tmp/sess_".as_slice(), &[b'a'; NAME]].concat();
        for path in [
            b"/tmp/notes".as_slice(),
            b"/tmp/sess_",
            b"sess_4k2",
            b"/tmp/sess_a.txt",
            &long,
        ] {
            assert_eq!(sessions.instead(path), None);
        }
        assert!(!sessions.keep_in(&[b'a'; FOLDER], 7));
    }
}
