//! What stands in the place of a secret.

use std::cell::RefCell;
use std::fmt::Write;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::card;

/// What a keyed hash begins with.
pub const MARK: &str = "redacted-";
const MASK: &str = "redacted";
/// Hexadecimal digits behind it.
const HASH_DIGITS: usize = 16;

/// Whether a text holds a hash that stands in the place of a secret. Digits and cards that do are
/// like any others.
pub fn holds_hash(text: &str) -> bool {
    text.match_indices(MARK).any(|(at, _)| {
        let hash = &text.as_bytes()[at + MARK.len()..];
        hash.len() >= HASH_DIGITS && hash[..HASH_DIGITS].iter().all(u8::is_ascii_hexdigit)
    })
}

/// The key of a recorder. It is in no file: it dies with the recorder, and with it the last way to
/// find out by trying what a hash stands for.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// # Panics
    /// If the operating system has no randomness.
    pub fn random() -> Self {
        let mut bytes = [0; 32];
        SystemRandom::new()
            .fill(&mut bytes)
            .expect("the operating system has randomness");
        Self::of(&bytes)
    }

    pub fn of(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }
}

/// An expression of Postgres for what [`With::text`] puts in the place of a text, by the same key:
/// HMAC (RFC 2104) out of the one hash function that it has. `text` is an expression, too.
pub fn hash_in_sql(key: &[u8; 32], text: &str) -> String {
    let block = |with: u8| {
        let mut block = String::from("'\\x");
        for at in 0..64 {
            let _ = write!(block, "{:02x}", key.get(at).unwrap_or(&0) ^ with);
        }
        block + "'::bytea"
    };
    let inner = format!(
        "pg_catalog.sha256({} || pg_catalog.convert_to({text}, 'UTF8'))",
        block(0x36)
    );
    let outer = format!("pg_catalog.sha256({} || {inner})", block(0x5c));
    format!(
        "CASE WHEN {text} = '' THEN '' ELSE '{MARK}' || pg_catalog.left(pg_catalog.encode({outer}, 'hex'), {HASH_DIGITS}) END"
    )
}

/// How secrets are replaced.
#[derive(Clone, Copy, Debug)]
pub enum With<'a> {
    /// By a keyed hash: what is recorded. Equal values stay equal.
    Hash(&'a Key),
    /// By the same for all: what is compared, since a replay has other values in these places.
    Mask,
    /// Likewise, and the secrets are put here: nothing of them is to be shown.
    Collect(&'a RefCell<Vec<Vec<u8>>>),
}

impl With<'_> {
    /// In the place of text. Nothing stays nothing.
    pub fn text(&self, secret: &[u8]) -> String {
        if secret.is_empty() {
            return String::new();
        }
        match self {
            With::Mask => MASK.to_owned(),
            With::Collect(_) => self.collect(secret, MASK),
            With::Hash(key) => {
                let tag = hmac::sign(&key.0, secret);
                let mut text = MARK.to_owned();
                for byte in &tag.as_ref()[..HASH_DIGITS / 2] {
                    let _ = write!(text, "{byte:02x}");
                }
                text
            }
        }
    }

    /// In the place of a number: as many digits, the first of them 1, so that it fits where the
    /// number did.
    pub fn number(&self, secret: &[u8]) -> String {
        match self {
            With::Mask => "0".to_owned(),
            With::Collect(_) => self.collect(secret, "0"),
            With::Hash(key) => {
                let digits = secret.iter().filter(|byte| byte.is_ascii_digit()).count();
                let mut number = self.digits(key, secret, digits.max(1));
                if number.len() > 1 {
                    number.replace_range(..1, "1");
                }
                number
            }
        }
    }

    /// In the place of a card's number: what its issuer is known by stays, and it is valid, for
    /// services check that.
    pub fn card(&self, secret: &str) -> String {
        match self {
            With::Mask => MASK.to_owned(),
            With::Collect(_) => self.collect(secret.as_bytes(), MASK),
            With::Hash(key) => {
                let plain: String = secret.chars().filter(char::is_ascii_digit).collect();
                let digits = self.digits(key, plain.as_bytes(), plain.len());
                card::disguise(secret, &plain, &digits)
            }
        }
    }

    fn collect(&self, secret: &[u8], instead: &str) -> String {
        if let With::Collect(secrets) = self {
            secrets.borrow_mut().push(secret.to_vec());
        }
        instead.to_owned()
    }

    fn digits(&self, key: &Key, secret: &[u8], count: usize) -> String {
        let mut digits = String::with_capacity(count);
        let mut round = 0u32;
        while digits.len() < count {
            let tag = hmac::sign(
                &key.0,
                &[secret, b"\0digits", &round.to_be_bytes()].concat(),
            );
            let more = tag.as_ref().iter().map(|byte| char::from(b'0' + byte % 10));
            digits.extend(more.take(count - digits.len()));
            round += 1;
        }
        digits
    }
}
