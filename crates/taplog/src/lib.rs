//! What the tap in a service tells, and the ring in shared memory by which it does.
//!
//! ```text
//!   the service                          │ the recorder
//!                                        │
//!   thread ──▶ Producer ──▶ ring ────────┼─▶ Consumer ──▶ spool
//!   thread ──▶ Producer ──▶ ring ────────┼─▶ Consumer ──▶
//! ```
//!
//! One thread writes a ring and one process reads it, so a record costs two copies and two atomic
//! numbers, and nobody waits for anybody. Who writes into a full ring loses the record, and says so
//! with the next one that fits: a service is never held up by its recorder.
//!
//! **Where to start reading**: [`Told`] for what is said, [`ring`] for how.
//!
//! **What this crate does not do**: it opens no file and makes no system call; the tap and the
//! spool map the memory. It allocates nothing where a producer runs.
//!
//! **The invariant to keep**: a consumer trusts nothing that it reads. The memory belongs to a
//! process that may be killed while it writes, or may overwrite it.

pub mod board;
mod hash;
pub mod heads;
pub mod pins;
mod record;
pub mod ring;
pub mod sessions;
pub mod starts;

pub use board::Board;
pub use record::{Direction, How, Told};
pub use ring::{Consumer, Corrupt, Producer};

/// Where the rings go: `NAME:TOKEN`, an abstract Unix socket (its name without the first byte) and
/// what proves that a ring comes from the service, [`TOKEN`] characters. Without it, a tap does
/// nothing.
pub const SOCKET_VARIABLE: &str = "HINDCAST_TAP";
/// How many bytes a ring holds, if it is not [`ring::CAPACITY`].
pub const CAPACITY_VARIABLE: &str = "HINDCAST_TAP_RING";

pub const TOKEN: usize = 32;

/// What a tap sends: along with the memory of a ring, a connection for each; or alone, to be sent
/// the memory of the [`Board`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub token: [u8; TOKEN],
    /// When the program began that the process runs, by the machine's monotonic clock. A process
    /// that executes another program has the same number and another beginning.
    pub began: u64,
}

impl Hello {
    pub const SIZE: usize = TOKEN + 8;

    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..TOKEN].copy_from_slice(&self.token);
        bytes[TOKEN..].copy_from_slice(&self.began.to_ne_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (token, began) = bytes.split_first_chunk()?;
        let began = u64::from_ne_bytes(began.try_into().ok()?);
        Some(Self {
            token: *token,
            began,
        })
    }
}
