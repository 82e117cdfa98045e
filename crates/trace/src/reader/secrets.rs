//! What was taken out of a recording and sealed, for who has the key.

use std::collections::BTreeMap;

use super::Trace;
use crate::crypt::Keyring;
use crate::*;

impl Trace {
    /// What was taken out of requests can be read with this key; without, with the one that reads
    /// the trace, if that is encrypted.
    pub fn read_secrets_with(&mut self, key: SecretKey) {
        self.secrets_key = Some(key);
    }

    /// A request of this trace as it came, if what was taken out of it was kept and the key is
    /// here.
    pub fn with_secrets(&self, mut request: Request) -> Request {
        for key in self.secrets_keys() {
            request.open_secrets(key);
        }
        request
    }

    /// The keys that what was taken out may be sealed for, as far as they are here.
    pub fn secrets_keys(&self) -> impl Iterator<Item = &SecretKey> {
        let own = self.store.keyring().and_then(Keyring::secret);
        own.into_iter().chain(&self.secrets_key)
    }

    /// What makes [`Transaction::values`], by the recorder's number, where the key is here.
    pub fn values_digests(&self) -> BTreeMap<u16, ValuesDigest> {
        let digest = |recorder: &Recorder| {
            let key = recorder.values_key.as_ref()?.open(self.secrets_keys())?;
            Some((recorder.number, key.prepared()))
        };
        self.recorders().iter().filter_map(digest).collect()
    }
}
