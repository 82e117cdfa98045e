//! Makes small and unreadable what is on disk, and notices what was changed there.

use std::fmt;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use zstd::bulk::{Compressor, Decompressor};

use crate::taker::SpoolError;

/// The fastest of zstd's levels that finds most of what repeats in requests and answers: who drains
/// rings must not take long.
const LEVEL: i32 = -3;

pub(super) const CHUNK_HEAD: usize = 16;

/// What a spool is sealed with.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// One that nobody knows.
    pub fn random() -> Result<Self, SpoolError> {
        let mut key = [0; 32];
        let filled = SystemRandom::new().fill(&mut key);
        filled.map_err(|_| SpoolError::Key)?;
        Ok(Self(key))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// What stands before a chunk.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// Of what follows it.
    pub length: u32,
    /// Of the blocks.
    blocks: u32,
    number: u64,
}

impl Head {
    pub fn decode(bytes: [u8; CHUNK_HEAD]) -> Self {
        let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        Self {
            length: u32_at(0),
            blocks: u32_at(4),
            number: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
        }
    }

    fn encode(&self) -> [u8; CHUNK_HEAD] {
        let mut bytes = [0; CHUNK_HEAD];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }
}

pub(super) struct Seal {
    key: Arc<LessSafeKey>,
    next: u64,
    compressor: Compressor<'static>,
    decompressor: Decompressor<'static>,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    pub fn new(key: &Key) -> Result<Self, SpoolError> {
        let key = UnboundKey::new(&AES_256_GCM, &key.0).map_err(|_| SpoolError::Key)?;
        Ok(Self {
            key: Arc::new(LessSafeKey::new(key)),
            next: 0,
            compressor: Compressor::new(LEVEL).map_err(SpoolError::Memory)?,
            decompressor: Decompressor::new().map_err(SpoolError::Memory)?,
        })
    }

    /// Makes a chunk of blocks. What does not get smaller, or is in a hurry, stays as it is.
    pub fn close(&mut self, blocks: &[u8], in_a_hurry: bool, chunk: &mut Vec<u8>) {
        let number = self.next;
        // Never the same again, even if this chunk is not written.
        self.next += 1;
        chunk.clear();
        chunk.resize(CHUNK_HEAD, 0);
        if in_a_hurry || !self.compress(blocks, chunk) {
            chunk.truncate(CHUNK_HEAD);
            chunk.extend_from_slice(blocks);
        }
        let head = Head {
            length: (chunk.len() - CHUNK_HEAD + AES_256_GCM.tag_len()) as u32,
            blocks: blocks.len() as u32,
            number,
        };
        let head = head.encode();
        chunk[..CHUNK_HEAD].copy_from_slice(&head);
        let contents = &mut chunk[CHUNK_HEAD..];
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(number), Aad::from(head), contents);
        let tag = tag.expect("a chunk is much shorter than what can be sealed");
        chunk.extend_from_slice(tag.as_ref());
    }

    /// Puts blocks behind the head of a chunk. False if they did not get smaller.
    fn compress(&mut self, blocks: &[u8], chunk: &mut Vec<u8>) -> bool {
        let most = zstd::zstd_safe::compress_bound(blocks.len());
        chunk.resize(CHUNK_HEAD + most, 0);
        let into = &mut chunk[CHUNK_HEAD..];
        let compressed = self.compressor.compress_to_buffer(blocks, into);
        let compressed = compressed.expect("there is room for whatever blocks become");
        chunk.truncate(CHUNK_HEAD + compressed);
        compressed < blocks.len()
    }

    /// Gives the blocks; `None`: this is not what was written.
    pub fn open(&mut self, head: &Head, sealed: &mut [u8], blocks: &mut Vec<u8>) -> Option<()> {
        let aad = Aad::from(head.encode());
        let opened = self.key.open_in_place(nonce(head.number), aad, sealed);
        let opened = opened.ok()?;
        if opened.len() == head.blocks as usize {
            blocks.clear();
            blocks.extend_from_slice(opened);
            return Some(());
        }
        // Nobody else wrote this number: no more memory is taken than was once.
        blocks.resize(head.blocks as usize, 0);
        let length = self
            .decompressor
            .decompress_to_buffer(opened, &mut blocks[..]);
        (length.ok()? == blocks.len()).then_some(())
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}
