//! What redaction takes out of a request, or of the bytes of a transaction, sealed, so that a
//! replay can send it all the same.
//!
//! ```text
//! of a request      address[40] number:u64 (target headers body, encrypted) tag[16]
//! of a transaction  address[40] number:u64 (server_bytes client_bytes, encrypted) tag[16]
//! ```
//!
//! A recorder has one key for all that it seals, and numbers what it seals. The number of the
//! request or transaction goes in as well, so what is sealed of one cannot be put into another.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::keys::{KeyError, PublicKey, SecretKey};
use super::sealed::{ADDRESS_BYTES, Address, FileKey};
use crate::types::{Request, RequestId, Secrets, TransactionId};

/// What the key is of; files are called otherwise.
const NAME: &str = "secrets";

/// Seals what requests held, for who has the secret key.
pub struct Sealer {
    key: FileKey,
    address: Address,
    recipient: PublicKey,
    next: AtomicU64,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl Sealer {
    pub fn new(recipient: &PublicKey) -> Result<Self, KeyError> {
        let (key, address) = FileKey::new(recipient, NAME)?;
        Ok(Self {
            key,
            address,
            recipient: *recipient,
            next: AtomicU64::new(0),
        })
    }

    /// Who can open what it seals.
    pub fn recipient(&self) -> &PublicKey {
        &self.recipient
    }

    /// Target, headers and body of a request.
    pub fn seal(&self, request: &Request) -> Secrets {
        self.sealed(&of_request(request.id), |plain| {
            put(plain, request.target.as_bytes());
            for (name, value) in &request.headers {
                put(plain, name.as_bytes());
                put(plain, value);
            }
            // Headers have names.
            put(plain, b"");
            plain.extend_from_slice(&request.body);
        })
    }

    /// What the server answered a transaction, and what its client sent; empty where that is not
    /// kept.
    pub fn seal_bytes(&self, id: TransactionId, server: &[u8], client: &[u8]) -> Secrets {
        self.sealed(&of_transaction(id), |plain| {
            put(plain, server);
            plain.extend_from_slice(client);
        })
    }

    fn sealed(&self, of: &[u8], put_into: impl FnOnce(&mut Vec<u8>)) -> Secrets {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut sealed = self.address.to_bytes().to_vec();
        sealed.extend(number.to_le_bytes());
        let start = sealed.len();
        put_into(&mut sealed);
        self.key.seal(number, true, of, &mut sealed, start);
        Secrets::Sealed(sealed)
    }
}

impl Secrets {
    /// Of a transaction: what the server answered and what its client sent, as it came, if one of
    /// these keys is for it.
    pub fn open_bytes<'a>(
        &self,
        id: TransactionId,
        keys: impl IntoIterator<Item = &'a SecretKey>,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let sealed = self.sealed()?;
        let plain = (keys.into_iter()).find_map(|key| plain(&of_transaction(id), sealed, key))?;
        let mut rest = &plain[..];
        let server = take(&mut rest)?.to_vec();
        Some((server, rest.to_vec()))
    }
}

fn of_request(id: RequestId) -> Vec<u8> {
    id.0.to_le_bytes().to_vec()
}

/// Longer, so that it is none of a request with the same number.
fn of_transaction(id: TransactionId) -> Vec<u8> {
    [&id.0.to_le_bytes()[..], b"transaction"].concat()
}

impl Request {
    /// Puts back what was sealed, if this is the key for it.
    pub fn open_secrets(&mut self, key: &SecretKey) {
        let Secrets::Sealed(sealed) = &self.secrets else {
            return;
        };
        if let Some((target, headers, body)) = opened(self.id, sealed, key) {
            (self.target, self.headers, self.body) = (target, headers, body);
            self.secrets = Secrets::Opened;
        }
    }
}

type Opened = (String, Vec<(String, Vec<u8>)>, Vec<u8>);

fn opened(id: RequestId, sealed: &[u8], key: &SecretKey) -> Option<Opened> {
    let plain = plain(&of_request(id), sealed, key)?;
    let mut plain = &plain[..];
    let target = take_text(&mut plain)?;
    let mut headers = Vec::new();
    loop {
        let name = take_text(&mut plain)?;
        if name.is_empty() {
            return Some((target, headers, plain.to_vec()));
        }
        headers.push((name, take(&mut plain)?.to_vec()));
    }
}

fn plain(of: &[u8], sealed: &[u8], key: &SecretKey) -> Option<Vec<u8>> {
    let (address, rest) = sealed.split_first_chunk::<ADDRESS_BYTES>()?;
    let (number, rest) = rest.split_first_chunk()?;
    let address = Address::from_bytes(address);
    if address.recipient != key.public().id() {
        return None;
    }
    let file_key = FileKey::open(key, &address, NAME);
    let mut sealed = rest.to_vec();
    let number = u64::from_le_bytes(*number);
    let plain = file_key.unseal(number, true, of, &mut sealed)?;
    Some(plain.to_vec())
}

fn put(out: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).expect("a head is shorter than 4 GiB");
    out.extend(length.to_le_bytes());
    out.extend_from_slice(part);
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk()?;
    let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = behind;
    Some(part)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(take(rest)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Id, Response};

    fn request(id: u64) -> Request {
        Request {
            id: Id(id),
            arrived: 0,
            ended: 0,
            method: "POST".to_owned(),
            target: "/login?token=abc".to_owned(),
            headers: vec![("authorization".to_owned(), b"Basic \xff".to_vec())],
            body: b"password=hunter2".to_vec(),
            caller_traceparent: None,
            user_id: None,
            came_to: None,
            came_from: None,
            came_by: None,
            response: Response::Broken {
                reason: String::new(),
            },
            clock: Vec::new(),
            calls: Vec::new(),
            secrets: Secrets::None,
        }
    }

    fn redacted(id: u64, secrets: Secrets) -> Request {
        Request {
            target: "/login?token=-".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            secrets,
            ..request(id)
        }
    }

    #[test]
    fn who_has_the_key_gets_the_request_back_and_no_other_does() {
        let key = SecretKey::generate().unwrap();
        let sealer = Sealer::new(&key.public()).unwrap();
        for id in [7, 8] {
            let secrets = sealer.seal(&request(id));
            let Secrets::Sealed(bytes) = &secrets else {
                panic!("{secrets:?}");
            };
            let held = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
            assert!(!held(b"hunter2") && !held(b"token=abc"));
            let mut read = redacted(id, secrets.clone());
            read.open_secrets(&key);
            let opened = Request {
                secrets: Secrets::Opened,
                ..request(id)
            };
            assert_eq!(read, opened);

            // Another key, another request, other bytes.
            let mut wrong = redacted(id, secrets.clone());
            wrong.open_secrets(&SecretKey::generate().unwrap());
            assert_eq!(wrong, redacted(id, secrets.clone()));
            let mut moved = redacted(id + 1, secrets.clone());
            moved.open_secrets(&key);
            assert_eq!(moved, redacted(id + 1, secrets.clone()));
            for cut in [0, 39, 47, bytes.len() - 1] {
                let torn = redacted(id, Secrets::Sealed(bytes[..cut].to_vec()));
                let mut read = torn.clone();
                read.open_secrets(&key);
                assert_eq!(read, torn);
            }
        }
    }

    #[test]
    fn bytes_of_a_transaction_come_back_for_it_alone() {
        let key = SecretKey::generate().unwrap();
        let sealer = Sealer::new(&key.public()).unwrap();
        let secrets = sealer.seal_bytes(Id(7), b"answered", b"sent");
        let whole = Some((b"answered".to_vec(), b"sent".to_vec()));
        assert_eq!(secrets.open_bytes(Id(7), [&key]), whole);
        let other = SecretKey::generate().unwrap();
        assert_eq!(secrets.open_bytes(Id(7), [&other, &key]), whole);
        assert_eq!(secrets.open_bytes(Id(7), [&other]), None);
        assert_eq!(secrets.open_bytes(Id(8), [&key]), None);
        // Neither is a request taken for a transaction.
        assert_eq!(sealer.seal(&request(7)).open_bytes(Id(7), [&key]), None);
    }

    #[test]
    fn equal_requests_are_sealed_to_different_bytes() {
        let key = SecretKey::generate().unwrap();
        let sealer = Sealer::new(&key.public()).unwrap();
        assert_ne!(sealer.seal(&request(1)), sealer.seal(&request(1)));
    }
}
