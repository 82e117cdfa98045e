//! Who follows a service's connections to its database.

use hindcast_taplog::Direction;
use hindcast_taplog::pins::Reading;
use hindcast_trace::Micros;

/// Follows connections, each from its beginning. All calls come in the order in which things were
/// done, as closely as is known.
pub trait Sessions: Send {
    fn connected(&mut self, at: Micros) -> Box<dyn Session>;

    /// Everything has been told that was done before this moment.
    fn all_told(&mut self, until: Micros);

    /// A request read the wall clock behind its answer.
    fn read_late(&mut self, request: u64, reading: Reading);

    /// What somebody else wrote into the spool.
    fn noted(&mut self, note: &[u8]);
}

/// Follows one connection.
pub trait Session: Send {
    /// The service wrote to it, on this request's behalf if that is known.
    fn sent(&mut self, at: Micros, turn: Option<u64>, bytes: &[u8]);

    fn received(&mut self, at: Micros, bytes: &[u8]);

    /// The service encrypts it, and says from here on what it encrypts.
    fn encrypted(&mut self, at: Micros);

    /// One direction is at its end.
    fn ended(&mut self, at: Micros, direction: Direction);

    /// A part of what it carried is not known. Nothing more comes of it.
    fn lost(&mut self, at: Micros, reason: &str);

    /// Nobody has it open any more.
    fn closed(&mut self, at: Micros);
}
