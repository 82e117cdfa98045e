//! The key that both machines have.

use std::path::Path;

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::error::{ProtectError, system};

const BYTES: usize = 32;
const PREFIX: &str = "hindcast-protect-";

#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; BYTES]);

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key(…)")
    }
}

pub(crate) fn random() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the kernel gives random bytes");
    bytes
}

impl Key {
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Key {
        Key(random())
    }

    /// As it is kept in a file.
    pub fn text(&self) -> String {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{PREFIX}{digits}\n")
    }

    pub fn parse(text: &str) -> Option<Key> {
        let digits = text.trim().strip_prefix(PREFIX)?;
        let mut bytes = [0; BYTES];
        if digits.len() != 2 * BYTES || !digits.is_ascii() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(Key(bytes))
    }

    pub fn read(path: &Path) -> Result<Key, ProtectError> {
        let text = std::fs::read_to_string(path).map_err(system("reading the key"))?;
        Key::parse(&text).ok_or_else(|| ProtectError::NoKey(path.to_owned()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_as_it_was_written() {
        let key = Key::new();
        assert!(Key::parse(&key.text()).as_ref() == Some(&key));
        assert!(Key::new() != key);
        let text = key.text();
        for wrong in [
            "",
            "hindcast-protect-",
            &text[1..],
            &text[..40],
            &text.replace('-', "_"),
        ] {
            assert!(Key::parse(wrong).is_none(), "{wrong}");
        }
    }
}
