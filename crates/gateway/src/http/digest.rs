//! The digest of a body that is never held whole.

use hindcast_trace::Digest;
use xxhash_rust::xxh3::Xxh3;

/// Comes to the same as [`Digest::of`] over all chunks, in whatever pieces they arrive.
pub struct BodyDigest {
    hasher: Box<Xxh3>,
    bytes: u64,
}

impl Default for BodyDigest {
    fn default() -> Self {
        Self {
            hasher: Box::new(Xxh3::new()),
            bytes: 0,
        }
    }
}

impl BodyDigest {
    pub fn update(&mut self, chunk: &[u8]) {
        self.hasher.update(chunk);
        self.bytes += chunk.len() as u64;
    }

    /// How long the body is so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn digest(&self) -> Digest {
        Digest(self.hasher.digest() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_digest_like_the_whole() {
        let body: Vec<u8> = (0..5000u32).map(|n| (n * 7) as u8).collect();
        for size in [1, 7, 239, 240, 241, 1024, 5000] {
            let mut digest = BodyDigest::default();
            body.chunks(size).for_each(|chunk| digest.update(chunk));
            assert_eq!(
                (digest.digest(), digest.bytes()),
                (Digest::of(&body), 5000),
                "pieces of {size}"
            );
        }
        assert_eq!(BodyDigest::default().digest(), Digest::of(b""));
    }
}
