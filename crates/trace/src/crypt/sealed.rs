//! Files and records that only the holder of a secret key can read.
//!
//! ```text
//! file    header chunk* last-chunk
//! header  magic[8] version:u32 key-id[8] ephemeral-public-key[32]
//! chunk   65536 bytes, encrypted, and a tag of 16; the last one has as many as are left
//! ```
//!
//! Every file has a key of its own: HKDF-SHA256 over X25519 of a key pair made for this file, whose
//! secret half is forgotten, and the recipient's public key. The file's name goes in as well, so a
//! file in the place of another one cannot be read. Chunks are sealed with ChaCha20-Poly1305; the
//! nonce is the number of the chunk and whether it is the last (the STREAM construction), so none
//! can be left out, moved or added.

use std::io::{self, Write};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

use super::keys::{KeyError, KeyId, PublicKey, SecretKey, random};

const MAGIC: &[u8; 8] = b"HNDCSENC";
const VERSION: u32 = 1;
/// Plain bytes of a chunk.
pub const CHUNK_BYTES: usize = 64 << 10;
pub const TAG_BYTES: usize = 16;
pub const HEADER_BYTES: usize = 8 + 4 + ADDRESS_BYTES;
/// Bytes of an [`Address`].
pub const ADDRESS_BYTES: usize = 8 + 32;

/// For whom something is sealed, and with which key pair of its own: what the recipient needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub recipient: KeyId,
    ephemeral: [u8; 32],
}

/// The key of one file.
pub struct FileKey(LessSafeKey);

impl Address {
    pub fn to_bytes(self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[..8].copy_from_slice(&self.recipient.0);
        bytes[8..].copy_from_slice(&self.ephemeral);
        bytes
    }

    pub fn from_bytes(bytes: &[u8; ADDRESS_BYTES]) -> Self {
        let (recipient, ephemeral) = bytes.split_at(8);
        Self {
            recipient: KeyId(recipient.try_into().expect("it was split there")),
            ephemeral: ephemeral.try_into().expect("it was split there"),
        }
    }
}

impl FileKey {
    /// A new key for the file of this name.
    pub fn new(recipient: &PublicKey, name: &str) -> Result<(Self, Address), KeyError> {
        let secret = random::<32>()?;
        let ephemeral = x25519(secret, X25519_BASEPOINT_BYTES);
        let shared = x25519(secret, recipient.0);
        let address = Address {
            recipient: recipient.id(),
            ephemeral,
        };
        Ok((Self::derive(shared, &address, recipient, name), address))
    }

    /// The key of a file that was sealed for this secret key.
    pub fn open(secret: &SecretKey, address: &Address, name: &str) -> Self {
        let shared = x25519(secret.0, address.ephemeral);
        Self::derive(shared, address, &secret.public(), name)
    }

    fn derive(shared: [u8; 32], address: &Address, recipient: &PublicKey, name: &str) -> Self {
        let salt = Salt::new(
            HKDF_SHA256,
            &[&address.ephemeral[..], &recipient.0].concat(),
        );
        let extracted = salt.extract(&shared);
        let info = [b"hindcast file\0", name.as_bytes()];
        let key = extracted.expand(&info, &CHACHA20_POLY1305);
        let key = key.expect("a key is shorter than HKDF yields at most");
        Self(LessSafeKey::new(UnboundKey::from(key)))
    }

    /// Encrypts `buffer` from `start` on in its place and appends the tag. The number must not have
    /// been used with this key before.
    pub fn seal(&self, number: u64, last: bool, aad: &[u8], buffer: &mut Vec<u8>, start: usize) {
        let nonce = nonce(number, last);
        let sealed = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(aad), &mut buffer[start..]);
        let tag = sealed.expect("a chunk is shorter than the cipher takes at most");
        buffer.extend_from_slice(tag.as_ref());
    }

    /// Decrypts in place. `None`: these are not the bytes that were sealed.
    pub fn unseal<'a>(
        &self,
        number: u64,
        last: bool,
        aad: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let opened = self
            .0
            .open_in_place(nonce(number, last), Aad::from(aad), sealed);
        opened.ok().map(|bytes| &*bytes)
    }
}

/// Something short, for who has the secret key: an [`Address`], and what is sealed.
pub fn sealed_for(recipient: &PublicKey, name: &str, plain: &[u8]) -> Result<Vec<u8>, KeyError> {
    let (key, address) = FileKey::new(recipient, name)?;
    let mut sealed = address.to_bytes().to_vec();
    sealed.extend_from_slice(plain);
    key.seal(0, true, &[], &mut sealed, ADDRESS_BYTES);
    Ok(sealed)
}

/// What [`sealed_for`] sealed under the same name. `None`: it is for another key, or was changed.
pub fn opened(secret: &SecretKey, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let (address, sealed) = sealed.split_first_chunk()?;
    let key = FileKey::open(secret, &Address::from_bytes(address), name);
    let mut sealed = sealed.to_vec();
    key.unseal(0, true, &[], &mut sealed).map(<[u8]>::to_vec)
}

fn nonce(number: u64, last: bool) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[3..11].copy_from_slice(&number.to_be_bytes());
    bytes[11] = u8::from(last);
    Nonce::assume_unique_for_key(bytes)
}

fn header(address: &Address) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..].copy_from_slice(&address.to_bytes());
    bytes
}

/// Encrypts what is written through it. Without [`finish`](Self::finish) the file has no end.
pub struct SealingWriter<W: Write> {
    inner: W,
    key: FileKey,
    buffer: Vec<u8>,
    chunk: u64,
}

impl<W: Write> SealingWriter<W> {
    pub fn new(mut inner: W, recipient: &PublicKey, name: &str) -> io::Result<Self> {
        let (key, address) = FileKey::new(recipient, name).map_err(io::Error::other)?;
        inner.write_all(&header(&address))?;
        Ok(Self {
            inner,
            key,
            buffer: Vec::with_capacity(CHUNK_BYTES + TAG_BYTES),
            chunk: 0,
        })
    }

    fn put(&mut self, last: bool) -> io::Result<()> {
        self.key.seal(self.chunk, last, &[], &mut self.buffer, 0);
        self.chunk += 1;
        self.inner.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.put(true)?;
        Ok(self.inner)
    }
}

impl<W: Write> Write for SealingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full chunk is kept until something follows it: it may be the last.
        if self.buffer.len() == CHUNK_BYTES {
            self.put(false)?;
        }
        let taken = bytes.len().min(CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    /// What is not a whole chunk yet stays here.
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Why a file cannot be decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealedError {
    #[error("it is not encrypted, as the rest of the recording is")]
    NotSealed,
    #[error("its encryption has version {0}; this version of hindcast reads version {VERSION}")]
    Newer(u32),
    #[error("it is encrypted for key {0}")]
    OtherKey(KeyId),
    #[error("it is cut off")]
    CutOff,
    #[error("bytes {from} to {to} are not what was written")]
    Changed { from: u64, to: u64 },
}

/// Where the plain bytes of a sealed file are.
pub struct Sealed {
    key: FileKey,
    length: u64,
    chunks: u64,
}

impl Sealed {
    /// Reads the header. `length`: of the whole file.
    pub fn open(
        secret: &SecretKey,
        name: &str,
        header: &[u8],
        length: u64,
    ) -> Result<Self, SealedError> {
        let header: &[u8; HEADER_BYTES] = header.try_into().map_err(|_| SealedError::NotSealed)?;
        if &header[..8] != MAGIC {
            return Err(SealedError::NotSealed);
        }
        let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(SealedError::Newer(version));
        }
        let address = header[12..].try_into().expect("the rest is an address");
        let address = Address::from_bytes(address);
        if address.recipient != secret.public().id() {
            return Err(SealedError::OtherKey(address.recipient));
        }
        let sealed = length.saturating_sub(HEADER_BYTES as u64);
        let whole = (CHUNK_BYTES + TAG_BYTES) as u64;
        let chunks = sealed.div_ceil(whole);
        let tags = chunks * TAG_BYTES as u64;
        let last = sealed - chunks.saturating_sub(1) * whole;
        if chunks == 0 || last < TAG_BYTES as u64 {
            return Err(SealedError::CutOff);
        }
        Ok(Self {
            key: FileKey::open(secret, &address, name),
            length: sealed - tags,
            chunks,
        })
    }

    /// Of the plain bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The chunk with this plain byte, and which plain byte is its first.
    pub fn chunk_at(&self, position: u64) -> (u64, u64) {
        let chunk = position / CHUNK_BYTES as u64;
        (chunk, chunk * CHUNK_BYTES as u64)
    }

    /// Where a chunk is in the file.
    pub fn place(&self, chunk: u64) -> std::ops::Range<u64> {
        let whole = (CHUNK_BYTES + TAG_BYTES) as u64;
        let end = HEADER_BYTES as u64 + self.length + self.chunks * TAG_BYTES as u64;
        let start = HEADER_BYTES as u64 + chunk * whole;
        start..(start + whole).min(end)
    }

    pub fn unseal<'a>(&self, chunk: u64, bytes: &'a mut [u8]) -> Result<&'a [u8], SealedError> {
        let place = self.place(chunk);
        let last = chunk + 1 == self.chunks;
        let opened = self.key.unseal(chunk, last, &[], bytes);
        opened.ok_or(SealedError::Changed {
            from: place.start,
            to: place.end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(plain: &[u8], public: &PublicKey) -> Vec<u8> {
        let mut writer = SealingWriter::new(Vec::new(), public, "name").unwrap();
        for piece in plain.chunks(7919) {
            writer.write_all(piece).unwrap();
        }
        writer.finish().unwrap()
    }

    fn unsealed(file: &[u8], secret: &SecretKey, name: &str) -> Result<Vec<u8>, SealedError> {
        let header = &file[..HEADER_BYTES.min(file.len())];
        let sealed = Sealed::open(secret, name, header, file.len() as u64)?;
        let mut plain = Vec::new();
        for chunk in 0..sealed.chunks {
            let place = sealed.place(chunk);
            let mut bytes = file[place.start as usize..place.end as usize].to_vec();
            plain.extend_from_slice(sealed.unseal(chunk, &mut bytes)?);
        }
        assert_eq!(plain.len() as u64, sealed.length());
        Ok(plain)
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 31 % 251) as u8).collect()
    }

    const LENGTHS: [usize; 7] = [
        0,
        1,
        1000,
        CHUNK_BYTES - 1,
        CHUNK_BYTES,
        CHUNK_BYTES + 1,
        3 * CHUNK_BYTES,
    ];

    #[test]
    fn what_is_sealed_comes_back() {
        let secret = SecretKey::generate().unwrap();
        for length in LENGTHS {
            let plain = bytes(length);
            let file = sealed(&plain, &secret.public());
            assert_eq!(unsealed(&file, &secret, "name"), Ok(plain), "{length}");
            if length > 100 {
                assert!(!file.windows(50).any(|window| window == &bytes(50)[..]));
            }
        }
    }

    #[test]
    fn a_file_cut_off_anywhere_is_noticed() {
        let secret = SecretKey::generate().unwrap();
        let file = sealed(&bytes(2 * CHUNK_BYTES), &secret.public());
        let whole = CHUNK_BYTES + TAG_BYTES;
        let borders = [
            0,
            HEADER_BYTES,
            HEADER_BYTES + whole,
            HEADER_BYTES + 2 * whole - 1,
        ];
        for border in borders {
            for cut in [border.saturating_sub(1), border, border + 1, border + 20] {
                if cut < file.len() {
                    assert!(unsealed(&file[..cut], &secret, "name").is_err(), "{cut}");
                }
            }
        }
        // Something behind the end.
        let longer = [&file[..], &[0; 20]].concat();
        assert!(unsealed(&longer, &secret, "name").is_err());
    }

    #[test]
    fn a_flipped_bit_is_noticed_and_chunks_cannot_change_places() {
        let secret = SecretKey::generate().unwrap();
        let file = sealed(&bytes(2 * CHUNK_BYTES + 5), &secret.public());
        for position in (0..file.len()).step_by(file.len() / 97) {
            let mut changed = file.clone();
            changed[position] ^= 4;
            assert!(unsealed(&changed, &secret, "name").is_err(), "{position}");
        }
        let whole = CHUNK_BYTES + TAG_BYTES;
        let (header, chunks) = file.split_at(HEADER_BYTES);
        let swapped = [
            header,
            &chunks[whole..2 * whole],
            &chunks[..whole],
            &chunks[2 * whole..],
        ];
        assert!(unsealed(&swapped.concat(), &secret, "name").is_err());
        let left_out = [header, &chunks[..whole], &chunks[2 * whole..]];
        assert!(unsealed(&left_out.concat(), &secret, "name").is_err());
    }

    #[test]
    fn another_key_and_another_name_read_nothing() {
        let secret = SecretKey::generate().unwrap();
        let file = sealed(b"secret", &secret.public());
        assert!(unsealed(&file, &secret, "other").is_err());
        let other = SecretKey::generate().unwrap();
        assert_eq!(
            unsealed(&file, &other, "name"),
            Err(SealedError::OtherKey(secret.public().id()))
        );
        assert_eq!(
            unsealed(&bytes(500), &secret, "name"),
            Err(SealedError::NotSealed)
        );
        // Equal contents do not look alike.
        assert_ne!(file, sealed(b"secret", &secret.public()));
    }
}
