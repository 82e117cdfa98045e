//! Keys as files: one to record with, one to read with.
//!
//! ```text
//! hindcast-secret-HEX   reads and records: 32 bytes and a checksum of 4, in hexadecimal
//! hindcast-public-HEX   records
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

const SECRET: &str = "hindcast-secret-";
const PUBLIC: &str = "hindcast-public-";
const CHECK_BYTES: usize = 4;

/// What a recording is encrypted for. It records, and cannot read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub(super) [u8; 32]);

/// What reads a recording.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(pub(super) [u8; 32]);

/// The content of a key file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Secret(SecretKey),
    Public(PublicKey),
}

/// Names a pair of keys, in headers and messages: the beginning of a hash of the public one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(pub(super) [u8; 8]);

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the key file {} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{what} holds no key: a line with {SECRET}… or {PUBLIC}… was expected")]
    NoKey { what: String },
    #[error("the key in {what} is not complete, or has a wrong character")]
    Mistyped { what: String },
    #[error("the system gives no random bytes")]
    NoRandom,
}

impl SecretKey {
    pub fn generate() -> Result<Self, KeyError> {
        random().map(Self)
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(x25519(self.0, X25519_BASEPOINT_BYTES))
    }

    /// The line of a key file. Not `Display`: it is not for messages.
    pub fn to_line(&self) -> String {
        line(SECRET, &self.0)
    }
}

impl Key {
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = std::fs::read_to_string(path).map_err(|source| KeyError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// The first line that is no comment. `what` names where the text is from.
    pub fn parse(what: &str, text: &str) -> Result<Self, KeyError> {
        let lines = text.lines().map(str::trim);
        let mut keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let what = || what.to_owned();
        let key = keys
            .next()
            .ok_or_else(|| KeyError::NoKey { what: what() })?;
        let (bytes, secret) = match (key.strip_prefix(SECRET), key.strip_prefix(PUBLIC)) {
            (Some(hex), _) => (checked(SECRET, hex), true),
            (_, Some(hex)) => (checked(PUBLIC, hex), false),
            _ => return Err(KeyError::NoKey { what: what() }),
        };
        let bytes = bytes.ok_or_else(|| KeyError::Mistyped { what: what() })?;
        Ok(match secret {
            true => Self::Secret(SecretKey(bytes)),
            false => Self::Public(PublicKey(bytes)),
        })
    }

    pub fn public(&self) -> PublicKey {
        match self {
            Self::Secret(secret) => secret.public(),
            Self::Public(public) => *public,
        }
    }

    pub fn secret(&self) -> Option<&SecretKey> {
        match self {
            Self::Secret(secret) => Some(secret),
            Self::Public(_) => None,
        }
    }

    pub fn id(&self) -> KeyId {
        self.public().id()
    }
}

impl PublicKey {
    pub fn id(&self) -> KeyId {
        let hash = digest(&SHA256, &[b"hindcast key", &self.0[..]].concat());
        KeyId(hash.as_ref()[..8].try_into().expect("a hash is longer"))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&line(PUBLIC, &self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.public().id())
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| KeyError::NoRandom)
}

fn line(kind: &str, bytes: &[u8; 32]) -> String {
    format!("{kind}{}{}", hex(bytes), hex(&checksum(kind, bytes)))
}

/// A public key with a typing error would encrypt to a key that does not exist.
fn checksum(kind: &str, bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let hash = digest(&SHA256, &[kind.as_bytes(), bytes].concat());
    hash.as_ref()[..CHECK_BYTES]
        .try_into()
        .expect("a hash is longer")
}

fn checked(kind: &str, text: &str) -> Option<[u8; 32]> {
    let bytes = unhex(text)?;
    let (key, check) = bytes.split_at_checked(32)?;
    (check == checksum(kind, key)).then(|| key.try_into().expect("it was split there"))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = str::from_utf8(pair).ok()?;
        (pair.len() == 2).then_some(())?;
        u8::from_str_radix(pair, 16).ok()
    };
    digits.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_as_it_was_written() {
        let secret = SecretKey::generate().unwrap();
        let text = format!("# a comment\n\n  {}\n", secret.to_line());
        let read = Key::parse("k", &text).unwrap();
        assert_eq!(read, Key::Secret(secret.clone()));
        let public = Key::parse("k", &secret.public().to_string()).unwrap();
        assert_eq!(public, Key::Public(secret.public()));
        assert_eq!(public.id(), read.id());
        assert_eq!(read.id().to_string().len(), 16);
        assert_ne!(SecretKey::generate().unwrap(), secret);
        assert!(!format!("{read:?}").contains(&hex(&secret.0)));
    }

    #[test]
    fn a_key_that_was_copied_wrongly_is_refused() {
        let public = SecretKey::generate().unwrap().public().to_string();
        for position in PUBLIC.len()..public.len() {
            let mut wrong = public.clone().into_bytes();
            wrong[position] = if wrong[position] == b'0' { b'1' } else { b'0' };
            let wrong = String::from_utf8(wrong).unwrap();
            assert!(Key::parse("k", &wrong).is_err(), "{wrong}");
            let short = &public[..position];
            assert!(Key::parse("k", short).is_err(), "{short}");
        }
        // One kind under the name of the other.
        let renamed = public.replace(PUBLIC, SECRET);
        assert!(Key::parse("k", &renamed).is_err());
        for text in [
            "",
            "# only a comment",
            "AGE-SECRET-KEY-1",
            "hindcast-public-é",
        ] {
            assert!(Key::parse("k", text).is_err(), "{text}");
        }
    }
}
