//! What the backup knows of each connection, from the packets that the primary has seen.
//!
//! ```text
//!   SYN, SYN-ACK      both first sequence numbers, and what both sides can do
//!   client's data     the stream of bytes, for those that the program has not read yet
//!   client's ACK      how much of the answers has arrived
//! ```
//!
//! The stream is kept from where the program may still have to read: the primary says now and then
//! how much lies unread there, and what is before that is forgotten.
//!
//! The machine on which the program runs keeps the same book for as long as the log is kept there,
//! for a backup that comes later.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::packet::{self, ACK, FIN, Options, Packet, RST, SYN};

/// A client and the port of the service.
pub type Ends = (SocketAddrV4, u16);

/// How much two machines' clocks may differ in a connection's life.
pub const CLOCK_AHEAD_MS: u32 = 1000;

/// Clients in one [`Entry`].
const PIECE: usize = 1 << 16;

/// A part of a book.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    Connection(Box<(Ends, Connection)>),
    /// Who has connected to a port, behind those that were said before.
    Made(u16, Vec<SocketAddrV4>),
}

#[derive(Default)]
pub struct Book {
    connections: HashMap<Ends, Connection>,
    /// Those that were made, in that order, by port: `accept` gives them out so.
    made: HashMap<u16, Vec<SocketAddrV4>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The first sequence number of the client, of its data.
    client_first: u32,
    /// The same of the service; `None` before it has answered.
    service_first: Option<u32>,
    pub client: Options,
    pub service: Options,
    /// When the service's clock was what it said.
    #[serde(serialize_with = "age", deserialize_with = "of_age")]
    pub answered: Option<Instant>,
    stream: VecDeque<u8>,
    /// The number of the first byte of `stream`, and how many there were a report ago.
    from: u64,
    reported: u64,
    /// What came before its turn.
    early: BTreeMap<u64, Vec<u8>>,
    /// Bytes of the service's that the client has.
    pub acknowledged: u64,
    /// The client's window, not scaled.
    pub window: u16,
    /// The number of the byte behind the last one that the client sends.
    end: Option<u64>,
    /// The service has said that it sends no more.
    service_ended: bool,
    is_established: bool,
}

/// Another machine has another clock.
fn age<S: Serializer>(when: &Option<Instant>, serializer: S) -> Result<S::Ok, S::Error> {
    when.map(|when| when.elapsed()).serialize(serializer)
}

fn of_age<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Option<Instant>, D::Error> {
    let age = Option::<Duration>::deserialize(deserializer)?;
    Ok(age.and_then(|age| Instant::now().checked_sub(age)))
}

/// The number of a byte of a stream, of which a packet has the lowest 32 bits, near another number.
fn near(about: u64, first: u32, sequence: u32) -> u64 {
    let distance = sequence.wrapping_sub(first.wrapping_add(about as u32)) as i32;
    about.saturating_add_signed(distance.into())
}

impl Book {
    /// A packet that came from a client, before the kernel got it.
    pub fn came(&mut self, packet: &Packet) {
        let ends = (packet.from, packet.to.port());
        if packet.has(SYN) {
            if !packet.has(ACK) {
                self.begins(ends, packet);
            }
            return;
        }
        if packet.has(RST) {
            self.connections.remove(&ends);
            return;
        }
        let Some(connection) = self.connections.get_mut(&ends) else {
            return;
        };
        connection.takes(packet);
        if connection.is_established_by(packet) {
            self.made.entry(ends.1).or_default().push(ends.0);
        }
        if connection.is_over() {
            self.connections.remove(&ends);
        }
    }

    fn begins(&mut self, ends: Ends, packet: &Packet) {
        let first = packet.sequence.wrapping_add(1);
        // Sent again, it is the same one.
        let known = self.connections.get(&ends);
        if known.is_some_and(|connection| connection.client_first == first) {
            return;
        }
        self.connections.insert(
            ends,
            Connection {
                client_first: first,
                service_first: None,
                client: packet.options,
                service: Options::default(),
                answered: None,
                stream: VecDeque::new(),
                from: 0,
                reported: 0,
                early: BTreeMap::new(),
                acknowledged: 0,
                window: packet.window,
                end: None,
                service_ended: false,
                is_established: false,
            },
        );
    }

    /// A packet that the service's kernel is about to send.
    pub fn goes(&mut self, packet: &Packet) {
        let ends = (packet.to, packet.from.port());
        if packet.has(RST) {
            self.connections.remove(&ends);
            return;
        }
        let Some(connection) = self.connections.get_mut(&ends) else {
            return;
        };
        if packet.has(SYN) {
            connection.service_first = Some(packet.sequence.wrapping_add(1));
            connection.service = packet.options;
            connection.answered.get_or_insert_with(Instant::now);
        }
        if packet.has(FIN) {
            connection.service_ended = true;
            if connection.is_over() {
                self.connections.remove(&ends);
            }
        }
    }

    /// So much of this connection lies unread in the primary's kernel, or less.
    pub fn unread(&mut self, ends: Ends, bytes: u64) {
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.forgets(connection.reported.saturating_sub(bytes));
            connection.reported = connection.received();
        }
    }

    /// Everything, for a book that is to be the same.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let connections = self
            .connections
            .iter()
            .map(|(ends, connection)| Entry::Connection(Box::new((*ends, connection.clone()))));
        let made = self.made.iter().flat_map(|(port, clients)| {
            let pieces = clients.chunks(PIECE);
            pieces.map(|piece| Entry::Made(*port, piece.to_vec()))
        });
        connections.chain(made)
    }

    pub fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Connection(known) => drop(self.connections.insert(known.0, known.1)),
            Entry::Made(port, clients) => self.made.entry(port).or_default().extend(clients),
        }
    }

    /// Those that are open, but for these.
    pub fn all_but(&self, kept: &HashSet<Ends>) -> impl Iterator<Item = (&Ends, &Connection)> {
        let others = self.connections.iter();
        others.filter(|(ends, connection)| !kept.contains(ends) && !connection.has_ended())
    }

    /// The program goes on here with these connections, and no others. `accepted`: how many there
    /// have been at each port. Clocks are ahead of what they were.
    pub fn moved(&mut self, kept: &HashSet<Ends>, accepted: &HashMap<u16, usize>) {
        self.connections.retain(|ends, _| kept.contains(ends));
        for connection in self.connections.values_mut() {
            if let Some(clock) = &mut connection.service.timestamp {
                *clock = clock.wrapping_add(CLOCK_AHEAD_MS);
            }
        }
        for (port, clients) in &mut self.made {
            clients.truncate(accepted.get(port).copied().unwrap_or(0));
        }
    }

    pub fn len(&self) -> usize {
        let established = |connection: &&Connection| connection.is_established;
        self.connections.values().filter(established).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, ends: &Ends) -> Option<&Connection> {
        self.connections.get(ends)
    }

    /// Who was the so many-th to connect to this port.
    pub fn by_turn(&self, port: u16, turn: u32) -> Option<SocketAddrV4> {
        self.made.get(&port)?.get(turn as usize).copied()
    }
}

impl Connection {
    fn takes(&mut self, packet: &Packet) {
        if let (true, Some(first)) = (packet.has(ACK), self.service_first) {
            let acknowledged = near(self.acknowledged, first, packet.acknowledged);
            if acknowledged >= self.acknowledged {
                // The end of what the service sends counts as a byte.
                self.acknowledged = acknowledged;
                self.window = packet.window;
            }
        }
        let begin = near(self.received(), self.client_first, packet.sequence);
        let end = begin + packet.payload.len() as u64;
        if packet.has(FIN) {
            self.end = Some(end);
        }
        if end > self.received() {
            self.early.insert(begin, packet.payload.to_vec());
        }
        while let Some((begin, bytes)) = self.early.first_key_value() {
            let received = self.received();
            if *begin > received {
                break;
            }
            let known = (received - begin) as usize;
            let fresh: Vec<u8> = bytes.get(known..).unwrap_or_default().to_vec();
            self.stream.extend(fresh);
            self.early.pop_first();
        }
    }

    fn is_established_by(&mut self, packet: &Packet) -> bool {
        let is_new = !self.is_established && packet.has(ACK) && self.service_first.is_some();
        self.is_established |= is_new;
        is_new
    }

    fn is_over(&self) -> bool {
        self.service_ended && self.end.is_some_and(|end| end <= self.received())
    }

    fn forgets(&mut self, before: u64) {
        let gone = before
            .saturating_sub(self.from)
            .min(self.stream.len() as u64);
        self.stream.drain(..gone as usize);
        self.from += gone;
    }

    /// Bytes that the client has sent, without a hole.
    pub fn received(&self) -> u64 {
        self.from + self.stream.len() as u64
    }

    /// What the client has sent from this byte on; `None` if that was forgotten, or has not come.
    pub fn from(&self, read: u64) -> Option<Vec<u8>> {
        let skipped = read.checked_sub(self.from)?;
        (skipped <= self.stream.len() as u64)
            .then(|| self.stream.iter().skip(skipped as usize).copied().collect())
    }

    /// The client has sent all that it will.
    pub fn has_ended(&self) -> bool {
        self.end.is_some_and(|end| end <= self.received())
    }

    /// The service has said that it sends no more.
    pub fn has_said_end(&self) -> bool {
        self.service_ended
    }

    /// A packet to which the client answers how much it has: a byte that it has acknowledged.
    pub fn question(&self, ends: (SocketAddrV4, SocketAddrV4)) -> Option<Vec<u8>> {
        let (of_client, of_service) = self.sequences(self.received(), self.acknowledged)?;
        Some(packet::form(
            ends,
            (of_service.wrapping_sub(1), of_client),
            &[0],
        ))
    }

    /// The sequence number of a byte of the client's, and of one of the service's.
    pub fn sequences(&self, of_client: u64, of_service: u64) -> Option<(u32, u32)> {
        Some((
            self.client_first.wrapping_add(of_client as u32),
            self.service_first?.wrapping_add(of_service as u32),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::packet;

    #[test]
    fn a_client_is_asked_with_a_byte_that_it_has() {
        let mut wire = Wire::new();
        wire.data(0, b"abc");
        let question = wire
            .connection()
            .question((wire.service, wire.client))
            .unwrap();
        let asked = Packet::parse(&question).unwrap();
        // The first number of the service's data is `u32::MAX`, of which the client has none.
        assert_eq!((asked.sequence, asked.acknowledged), (u32::MAX - 1, 0));
        wire.came((u32::MAX - 2, 10), ACK, b"");
        let question = wire
            .connection()
            .question((wire.service, wire.client))
            .unwrap();
        assert_eq!(Packet::parse(&question).unwrap().sequence, 9);
    }

    struct Wire {
        book: Book,
        client: SocketAddrV4,
        service: SocketAddrV4,
    }

    impl Wire {
        /// Connected, with first numbers just before they wrap.
        fn new() -> Wire {
            let mut wire = Wire {
                book: Book::default(),
                client: "10.0.0.2:4000".parse().unwrap(),
                service: "10.0.0.10:80".parse().unwrap(),
            };
            wire.came((u32::MAX - 3, 0), SYN, b"");
            wire.goes((u32::MAX - 1, u32::MAX - 2), SYN | ACK);
            wire.came((u32::MAX - 2, u32::MAX), ACK, b"");
            wire
        }

        fn came(&mut self, numbers: (u32, u32), flags: u8, payload: &[u8]) {
            let bytes = packet(self.client, self.service, numbers, flags, &[], payload);
            self.book.came(&Packet::parse(&bytes).unwrap());
        }

        fn goes(&mut self, numbers: (u32, u32), flags: u8) {
            let bytes = packet(self.service, self.client, numbers, flags, &[], b"");
            self.book.goes(&Packet::parse(&bytes).unwrap());
        }

        /// The client's bytes from number `at` on.
        fn data(&mut self, at: u32, payload: &[u8]) {
            let first = u32::MAX - 2;
            self.came((first.wrapping_add(at), u32::MAX), ACK, payload);
        }

        fn connection(&self) -> &Connection {
            self.book.get(&(self.client, 80)).unwrap()
        }
    }

    #[test]
    fn the_stream_is_whole_however_its_packets_come() {
        let mut wire = Wire::new();
        wire.data(0, b"abc");
        wire.data(6, b"ghi");
        wire.data(3, b"def");
        wire.data(2, b"cdef");
        wire.data(8, b"ijk");
        assert_eq!(wire.connection().from(0).unwrap(), b"abcdefghijk");
        assert_eq!(wire.connection().from(9).unwrap(), b"jk");
        assert_eq!(wire.connection().from(11).unwrap(), b"");
        assert_eq!(wire.connection().from(12), None);
        assert_eq!(wire.connection().sequences(5, 7), Some((2, 6)));
    }

    #[test]
    fn what_was_read_is_forgotten_and_no_more() {
        let mut wire = Wire::new();
        let ends = (wire.client, 80);
        wire.data(0, b"abcdef");
        // Nothing was known to have come before this report.
        wire.book.unread(ends, 0);
        assert_eq!(wire.connection().from(0).unwrap(), b"abcdef");
        wire.data(6, b"gh");
        wire.book.unread(ends, 2);
        assert_eq!(wire.connection().from(3), None);
        assert_eq!(wire.connection().from(4).unwrap(), b"efgh");
    }

    #[test]
    fn acknowledgements_and_windows_move_forward() {
        let mut wire = Wire::new();
        wire.came((u32::MAX - 2, 40), ACK, b"");
        assert_eq!(wire.connection().acknowledged, 41);
        wire.came((u32::MAX - 2, 10), ACK, b"");
        assert_eq!(wire.connection().acknowledged, 41);
    }

    #[test]
    fn connections_are_known_from_their_first_packet_to_their_last() {
        let mut wire = Wire::new();
        assert_eq!(
            (wire.book.len(), wire.book.by_turn(80, 0)),
            (1, Some(wire.client))
        );
        wire.data(0, b"bye");
        let first = u32::MAX - 2;
        wire.came((first.wrapping_add(3), u32::MAX), ACK | FIN, b"");
        assert!(wire.connection().has_ended());
        wire.goes((u32::MAX, 1), ACK | FIN);
        assert!(wire.book.is_empty());
        let mut wire = Wire::new();
        wire.came((first, u32::MAX), RST, b"");
        assert!(wire.book.get(&(wire.client, 80)).is_none());
    }

    #[test]
    fn a_book_is_the_same_after_its_way() {
        let mut wire = Wire::new();
        wire.data(0, b"abc");
        wire.came((u32::MAX - 2, 10), ACK, b"");
        let mut copy = Book::default();
        for entry in wire.book.entries() {
            let bytes = postcard::to_stdvec(&entry).unwrap();
            copy.take(postcard::from_bytes(&bytes).unwrap());
        }
        assert_eq!(copy.by_turn(80, 0), Some(wire.client));
        let known = copy.get(&(wire.client, 80)).unwrap();
        assert_eq!(known.from(0).unwrap(), b"abc");
        assert_eq!(known.acknowledged, wire.connection().acknowledged);
        assert_eq!(known.sequences(3, 7), wire.connection().sequences(3, 7));
    }

    #[test]
    fn connections_that_were_not_kept_are_forgotten_and_have_had_no_turn() {
        let mut wire = Wire::new();
        let other = "10.0.0.2:4001".parse().unwrap();
        let made = wire.book.made.get_mut(&80).unwrap();
        made.push(other);
        let kept = HashSet::from([(wire.client, 80)]);
        wire.book.moved(&kept, &HashMap::from([(80, 1)]));
        assert_eq!(wire.book.len(), 1);
        assert_eq!(wire.book.by_turn(80, 1), None);
        wire.book.moved(&HashSet::new(), &HashMap::new());
        assert!(wire.book.is_empty());
    }
}
