//! Encryption of what is stored: segments and write-ahead files.
//!
//! A recorder needs only the public key, so a machine that records cannot read what it recorded
//! yesterday. The key of its own write-ahead file it keeps in memory until the file has become a
//! segment. What a killed recorder leaves waits for somebody with the secret key.

mod keys;
mod sealed;
mod secrets;
mod values;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use keys::{Key, KeyError, KeyId, PublicKey, SecretKey};
pub(crate) use sealed::{
    ADDRESS_BYTES, Address, FileKey, HEADER_BYTES, Sealed, SealedError, SealingWriter, TAG_BYTES,
};
pub use sealed::{opened, sealed_for};
pub use secrets::Sealer;
pub use values::{ValuesDigest, ValuesKey};

/// The key of an encrypted trace, and those of the write-ahead files that this process writes.
pub(crate) struct Keyring {
    key: Key,
    own: Mutex<HashMap<PathBuf, Arc<FileKey>>>,
}

impl Keyring {
    pub fn new(key: Key) -> Self {
        Self {
            key,
            own: Mutex::default(),
        }
    }

    pub fn public(&self) -> PublicKey {
        self.key.public()
    }

    pub fn secret(&self) -> Option<&SecretKey> {
        self.key.secret()
    }

    /// A key for a write-ahead file that is about to be created.
    pub fn key_for_new(&self, path: &Path) -> Result<(Arc<FileKey>, Address), KeyError> {
        let (key, address) = FileKey::new(&self.public(), &name_of(path))?;
        let key = Arc::new(key);
        self.own().insert(path.to_owned(), Arc::clone(&key));
        Ok((key, address))
    }

    /// The key of a write-ahead file. `None`: it takes the secret key, which we do not have.
    pub fn key_of(&self, path: &Path, address: &Address) -> Option<Arc<FileKey>> {
        if let Some(key) = self.own().get(path) {
            return Some(Arc::clone(key));
        }
        let secret = self.secret()?;
        (address.recipient == self.public().id())
            .then(|| Arc::new(FileKey::open(secret, address, &name_of(path))))
    }

    /// The file is gone.
    pub fn forget(&self, path: &Path) {
        self.own().remove(path);
    }

    fn own(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Arc<FileKey>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without its folder, which may be moved, and without its ending: a torn file is renamed.
fn name_of(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default();
    format!("wal/{}", name.to_string_lossy())
}
