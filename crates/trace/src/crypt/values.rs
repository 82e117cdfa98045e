//! Digests of the values that transactions began with. They tell equal statements of one request
//! apart, and say nothing to who does not have the key.

use ring::hmac;
use serde::{Deserialize, Serialize};

use super::keys::{KeyError, PublicKey, SecretKey};
use super::sealed::{opened, sealed_for};
use crate::types::{KeptValuesKey, RequestId, random_key};

/// Under which name the key is sealed.
const NAME: &str = "values";

/// What a recorder makes digests of values with.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValuesKey([u8; 32]);

impl std::fmt::Debug for ValuesKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ValuesKey(secret)")
    }
}

impl ValuesKey {
    /// One that nobody else has.
    pub fn random() -> Self {
        Self(random_key())
    }

    /// For many digests.
    pub fn prepared(&self) -> ValuesDigest {
        ValuesDigest(hmac::Key::new(hmac::HMAC_SHA256, &self.0))
    }

    /// As it is kept where values are in the recording anyway.
    pub fn plain(&self) -> KeptValuesKey {
        KeptValuesKey(self.0.to_vec())
    }

    /// As it is kept where they are not.
    pub fn sealed(&self, recipient: &PublicKey) -> Result<KeptValuesKey, KeyError> {
        sealed_for(recipient, NAME, &self.0).map(KeptValuesKey)
    }
}

/// Makes digests of values.
#[derive(Clone, Debug)]
pub struct ValuesDigest(hmac::Key);

impl ValuesDigest {
    /// Of the values that are this number, in a transaction of this request. Equal values of two
    /// requests have two digests, so that nothing can be counted.
    ///
    /// Of five reads, two have the same sixteen bits in one of 6,500 requests, which is too often.
    pub fn of(&self, request: RequestId, values: u64) -> u32 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&request.0.to_le_bytes());
        bytes[8..].copy_from_slice(&values.to_le_bytes());
        let tag = hmac::sign(&self.0, &bytes);
        let (first, _) = tag.as_ref().split_first_chunk().expect("it has 32 bytes");
        u32::from_le_bytes(*first)
    }
}

impl KeptValuesKey {
    /// With the secret key that it was sealed for, or without any if it was not.
    pub fn open<'a>(&self, keys: impl IntoIterator<Item = &'a SecretKey>) -> Option<ValuesKey> {
        let plain = |bytes: &[u8]| bytes.try_into().ok().map(ValuesKey);
        let mut keys = keys.into_iter();
        plain(&self.0).or_else(|| keys.find_map(|key| plain(&opened(key, NAME, &self.0)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Id;

    #[test]
    fn a_digest_is_of_a_request_and_its_values_under_a_key() {
        let key = ValuesKey::random();
        let (one, other) = (key.prepared(), ValuesKey::random().prepared());
        let all = |digest: &ValuesDigest, request: u64| -> Vec<u32> {
            (0..20)
                .map(|values| digest.of(Id(request), values))
                .collect()
        };
        assert_eq!(all(&one, 1), all(&key.prepared(), 1));
        assert_ne!(all(&one, 1), all(&one, 2));
        assert_ne!(all(&one, 1), all(&other, 1));
    }

    #[test]
    fn a_sealed_key_is_opened_by_who_has_the_secret_one_and_a_plain_one_by_all() {
        let key = ValuesKey::random();
        let [secret, wrong] = [(); 2].map(|()| SecretKey::generate().unwrap());
        let sealed = key.sealed(&secret.public()).unwrap();
        assert_eq!(sealed.open([&wrong, &secret]), Some(key));
        assert_eq!(sealed.open([&wrong]), None);
        assert_eq!(sealed.open([]), None);
        assert!(!sealed.0.windows(32).any(|part| part == key.0));
        assert_eq!(key.plain().open([]), Some(key));
    }
}
