//! What a follower on another machine says of the connections that it would go on with.
//!
//! Each of its processes writes a [`Connection`] for each to the launcher, and one for each socket
//! that listens; then the first writes one with the number -1. The launcher makes their sockets
//! what the leader's were, puts what else there is to know where the connection says, and answers
//! with [`GO`].

/// Everything is connected.
pub const GO: u8 = b'!';

/// One accepted connection: a socket that is not connected yet, and how far the leader was with it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    pub number: i32,
    /// Which ways the leader has shut down: 1 receiving, 2 sending, 3 both.
    pub shut: u32,
    /// Bytes that the leader has received and sent, as its log tells.
    pub received: u64,
    pub sent: u64,
    /// The address of the client, as `accept` gave it; its length is zero where the program did not
    /// ask for it.
    pub peer: [u8; 28],
    pub peer_length: u32,
    /// The port of the socket that accepted it.
    pub port: u16,
    /// It was the so many-th that its socket accepted.
    pub turn: u32,
    /// The last bytes that were sent, in the memory of the follower: a ring of `ring_bytes`, of
    /// which byte `n` of the stream is at `n % ring_bytes`. Zero where nothing was sent.
    pub ring: u64,
    pub ring_bytes: u64,
    /// How many bytes have passed through the ring: less than `sent` where some are not known.
    pub written: u64,
    /// Where the launcher puts, in the memory of the follower, how many bytes the client has beyond
    /// those that were sent, as the log tells: the leader was lost in the call that sent them.
    pub beyond: u64,
}

impl Connection {
    /// In [`shut`](Self::shut): this is no connection but a socket that listens. Its `turn` says
    /// how many it has accepted.
    pub const LISTENS: u32 = 4;

    pub const NONE: Connection = Connection {
        number: -1,
        shut: 0,
        received: 0,
        sent: 0,
        peer: [0; 28],
        peer_length: 0,
        port: 0,
        turn: 0,
        ring: 0,
        ring_bytes: 0,
        written: 0,
        beyond: 0,
    };

    pub fn listens(&self) -> bool {
        self.shut & Self::LISTENS != 0
    }

    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: a `repr(C)` struct of numbers; padding goes to our own launcher.
        unsafe { std::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) }
    }

    /// `None` for bytes that are not as many as one has.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: every bit pattern is one, and there are enough bytes.
        (bytes.len() == size_of::<Self>())
            .then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}
