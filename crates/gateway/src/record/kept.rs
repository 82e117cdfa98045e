//! What a recorder leaves beside its spool, so that another process can go on if it is killed.
//!
//! ```text
//! wal/r0.spool/   the spool: what taps and the server told, sealed; its first entry is an `About`
//!                 numbers   requests to which no tap gave one: u64 after u64, in their order
//!                 settled   ids below were accounted for in the trace u64 │ by when i64
//! ```
//!
//! It all serves one end: who goes through the same account again makes the same records of it,
//! with the same numbers.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hindcast_spool::{Key, Reader, SpoolError, Writer};
use hindcast_trace::{
    Base, Micros, PublicKey, Recorder, SecretKey, Snapshot, ValuesKey, opened, sealed_for,
};
use serde::{Deserialize, Serialize};

use crate::http::Limits;
use crate::inside::Numbers;

/// Under which name the key of a spool is sealed.
const KEY: &str = "spool";
const NUMBERS: &str = "numbers";
const SETTLED: &str = "settled";

/// What a conversion has to know that is not in the account itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct About {
    pub recorder: Recorder,
    pub base: Option<Base>,
    /// The account has transactions, too: nothing was between the service and its database.
    pub has_transactions: bool,
    pub values_max: usize,
    pub limits: Limits,
    /// What is redacted is hashed under this.
    pub redaction_key: [u8; 32],
    /// What is redacted is kept, sealed for who reads the spool.
    pub keeps_secrets: bool,
    /// Where requests name their users.
    pub users: Vec<String>,
    /// Digests of values are under this.
    pub values_key: Option<ValuesKey>,
    /// What it sees was committed before the recording.
    pub beginning: Snapshot,
    pub flush_interval_us: u64,
}

impl About {
    /// `None`: another version wrote it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// A new spool that says this first, for who has the secret key.
    pub fn spool(
        &self,
        folder: &Path,
        limit: u64,
        recipient: &PublicKey,
    ) -> Result<(Writer, Reader), SpoolError> {
        let key = Key::random()?;
        let sealed = sealed_for(recipient, KEY, &key.0).map_err(|_| SpoolError::Key)?;
        let about = postcard::to_stdvec(self).expect("it can be written to memory");
        hindcast_spool::spool::lasting(folder, limit, &key, &sealed, &about)
    }
}

/// The key of a spool, for who has the secret key.
pub(super) fn key_of(sealed: &[u8], secret: &SecretKey) -> Option<Key> {
    let key = opened(secret, KEY, sealed)?;
    Some(Key(key.try_into().ok()?))
}

/// A recorder's folder of a spool that can be read by others.
#[derive(Clone, Debug)]
pub(super) struct Kept(Arc<PathBuf>);

impl Kept {
    pub fn new(folder: PathBuf) -> Self {
        Self(Arc::new(folder))
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// All of it is in the trace.
    pub fn remove(&self) {
        if let Err(error) = hindcast_spool::spool::remove(&self.0) {
            let folder = self.0.display();
            tracing::warn!(%error, "{folder} cannot be removed: it can be by hand, nothing needs it");
        }
    }

    /// Ids below this were accounted for, and what was found is in the trace.
    pub fn settled(&self, below: u64, at: Micros) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&below.to_le_bytes());
        bytes[8..].copy_from_slice(&at.to_le_bytes());
        let mut options = hindcast_private::options();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.0.join(SETTLED));
        // An older one only leaves more in doubt.
        let _ = file.and_then(|file| file.write_all_at(&bytes, 0));
    }

    pub fn was_settled(&self) -> Option<(u64, Micros)> {
        let bytes = std::fs::read(self.0.join(SETTLED)).ok()?;
        let (below, at) = bytes.split_first_chunk()?;
        let at = at.try_into().ok()?;
        Some((u64::from_le_bytes(*below), i64::from_le_bytes(at)))
    }

    /// Numbers that were given before, in their order, and then new ones, which are kept.
    pub fn numbers(&self, mut new: impl FnMut() -> u64 + Send + 'static) -> io::Result<Numbers> {
        let mut options = hindcast_private::options();
        let mut file = options
            .create(true)
            .read(true)
            .append(true)
            .open(self.0.join(NUMBERS))?;
        let mut given = self.given()?.into_iter();
        // A number that was cut off was never used.
        file.set_len(given.len() as u64 * 8)?;
        Ok(Box::new(move || {
            if let Some(number) = given.next() {
                return number;
            }
            let number = new();
            keep(&mut file, number);
            number
        }))
    }

    /// Numbers that were given.
    pub fn given(&self) -> io::Result<Vec<u64>> {
        let bytes = match std::fs::read(self.0.join(NUMBERS)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let numbers = bytes.as_chunks().0.iter();
        Ok(numbers.map(|number| u64::from_le_bytes(*number)).collect())
    }
}

/// Before the request is in the trace: it would be there twice, under another number.
fn keep(file: &mut File, number: u64) {
    let kept = file
        .write_all(&number.to_le_bytes())
        .and_then(|()| file.sync_data());
    if let Err(error) = kept {
        tracing::warn!(%error, "the number of a request cannot be kept for who goes on if this recorder is killed");
    }
}
