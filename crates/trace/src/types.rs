//! What a recording says: requests, transactions, gaps.
//!
//! These types know nothing about who observed them (a gateway process, later a library inside the
//! application or an extension inside the database) nor about how they are stored.
//! Times are microseconds since the Unix epoch.

use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;

use serde::{Deserialize, Serialize};

// What a record is made of is part of what a recording says: a reader of traces finds it here.
pub use hindcast_model::{
    Attribution, Drawn, DrawnAt, DrawnBytes, DrawnUuid, DrawnValue, Id, IdError, Isolation, Lock,
    Micros, Outcome, RequestId, SequenceValue, SessionId, Snapshot, TransactionId, Xid, uuid_text,
};

/// One HTTP request as it reached the ingress, with its response. Written when it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: RequestId,
    pub arrived: Micros,
    pub ended: Micros,
    pub method: String,
    /// Path and query as sent.
    pub target: String,
    /// In order, as sent, without the hop-by-hop ones and without the `traceparent` we added. A
    /// variable of FastCGI or uwsgi that is no header is `:fastcgi:NAME` or `:uwsgi:NAME`. If the
    /// service itself decrypted the request, [`Request::ENCRYPTED`] is among them.
    pub headers: Vec<(String, Vec<u8>)>,
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
    /// The `traceparent` that the caller sent, if any. Behind an ingress the service got ours.
    pub caller_traceparent: Option<String>,
    pub response: Response,
    /// What the service read from the wall clock while it worked on it, as
    /// `hindcast_taplog::pins::encode_readings` has it; the first from its arrival.
    #[serde(with = "serde_bytes")]
    pub clock: Vec<u8>,
    pub secrets: Secrets,
    /// What the service asked of others than its database while it worked on it; before these, what
    /// it asked since the request that ended before, on behalf of none.
    #[serde(deserialize_with = "or_empty")]
    pub calls: Vec<Call>,
    /// Who sent it, by what the recorder was told to know users by; a hash if that is redacted.
    #[serde(deserialize_with = "or_empty")]
    pub user_id: Option<String>,
    /// Where the service had accepted the connection by which it came: `127.0.0.1:8000`,
    /// `unix:/run/app.sock`. `None`: it came to an ingress, or that was not seen.
    #[serde(deserialize_with = "or_empty")]
    pub came_to: Option<String>,
    /// The other end of that connection: `10.0.0.7:40312`, `[::ffff:10.0.0.7]:40312`. `None`: it
    /// has no address, or that was not seen.
    #[serde(deserialize_with = "or_empty")]
    pub came_from: Option<String>,
    /// The number of the process that had accepted that connection. `None`: that was not seen.
    #[serde(deserialize_with = "or_empty")]
    pub came_by: Option<u32>,
}

/// What was taken out of a request, or of the bytes of a transaction, as it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Secrets {
    /// Nothing, or nothing that was kept.
    #[default]
    None,
    /// As it came, for who has the key; see [`Sealer`](crate::Sealer).
    Sealed(#[serde(with = "serde_bytes")] Vec<u8>),
    /// It is as it came. Never in a recording.
    Opened,
}

impl Secrets {
    /// What a recording keeps.
    pub(crate) fn sealed(&self) -> Option<&[u8]> {
        match self {
            Self::Sealed(sealed) => Some(sealed),
            Self::None | Self::Opened => None,
        }
    }
}

/// What a service asked of somebody who is not its database, and what it was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// `127.0.0.1:6379`, `[::1]:80`, `unix:/run/redis.sock`.
    pub peer: String,
    /// On the request's behalf.
    pub within: bool,
    /// The service itself encrypted it.
    pub encrypted: bool,
    pub began: Micros,
    pub ended: Micros,
    /// As it was sent, and received. Empty: the other side spoke first.
    #[serde(with = "serde_bytes")]
    pub sent: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub received: Vec<u8>,
    /// The other side said nothing more on that connection.
    pub closed: bool,
}

impl Request {
    /// What stands among the headers of a request that came encrypted: no header is called so.
    pub const ENCRYPTED: (&str, &str) = (":scheme", "https");

    /// Whether the service itself decrypted it.
    pub fn is_encrypted(&self) -> bool {
        let (name, _) = Self::ENCRYPTED;
        self.headers.iter().any(|(header, _)| header == name)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    Answered {
        status: u16,
        headers: Vec<(String, Vec<u8>)>,
        /// Of the whole body.
        body_digest: Digest,
        body_bytes: u64,
        /// The body if it was no longer than the recorder's limit for keeping bodies.
        #[serde(with = "serde_bytes")]
        body: Option<Vec<u8>>,
    },
    /// The client or the service went away before the response was complete, or not all of it was
    /// seen: replay sends the request and compares nothing.
    Broken { reason: String },
    /// Passed through without being recorded (a protocol upgrade, a body over the limit): replay
    /// cannot re-send it.
    Unrecorded { reason: String },
}

/// The low 32 bits of an XXH3 hash: enough to notice a difference, small enough to keep always.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Digest(pub u32);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(bytes) as u32)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// One database transaction. Written when it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transaction {
    pub id: TransactionId,
    pub session: SessionId,
    /// `None`: a ghost. It belongs to no request and is replayed from `client_bytes`.
    pub request: Option<(RequestId, Attribution)>,
    pub began: Micros,
    pub ended: Micros,
    pub isolation: Isolation,
    /// `None` if it never needed one, if it failed before it had one, or if the statement did not
    /// allow company.
    pub snapshot: Option<Snapshot>,
    /// `None` if it wrote nothing.
    pub xid: Option<Xid>,
    /// Ids of its subtransactions, where known.
    pub subxids: Vec<Xid>,
    pub outcome: Outcome,
    /// The transaction's `now()`, where a snapshot was taken.
    pub now: Option<Micros>,
    /// What it was made of: key into [`Shape`].
    pub shape: ShapeId,
    /// Of everything the server answered; rows of a statement without ORDER BY count in any order.
    pub result_digest: Digest,
    pub result_rows: u64,
    /// Statements that lock other than by writing rows, in the order in which they ran.
    pub locks: Vec<Lock>,
    /// Sequence values that appeared in results, in order of appearance.
    pub sequence_values: Vec<SequenceValue>,
    /// Everything the server answered, if the transaction aborted: replay serves these bytes.
    #[serde(with = "serde_bytes")]
    pub server_bytes: Option<Vec<u8>>,
    /// Everything the client sent, if the transaction is a ghost: replay sends these bytes.
    /// `Parse` messages of statements that were prepared earlier are put in front.
    #[serde(with = "serde_bytes")]
    pub client_bytes: Option<Vec<u8>>,
    /// Under READ COMMITTED: what its statements saw, each that saw something else than the one
    /// before, the first one first. Empty where that is not known or there is one statement.
    #[serde(deserialize_with = "or_empty")]
    pub statement_snapshots: Vec<StatementSnapshot>,
    /// Likewise: statements, by their indices, that waited for another transaction, or found a row
    /// changed after their snapshot and went on with it as it had become.
    #[serde(deserialize_with = "or_empty")]
    pub rechecked: Vec<u32>,
    /// Where the server's log goes on behind the commit, if the server told of the transaction and
    /// it wrote.
    #[serde(deserialize_with = "or_empty")]
    pub commit_lsn: Option<u64>,
    /// UUIDs that the server drew and results showed, in order of appearance.
    #[serde(deserialize_with = "or_empty")]
    pub drawn_uuids: Vec<DrawnUuid>,
    /// What its statements drew and read that no snapshot determines, in order, where the server
    /// told: also what no result showed.
    #[serde(deserialize_with = "or_empty")]
    pub drawn: Vec<Drawn>,
    /// What its request read from the wall clock between its answer, or its transaction before this
    /// one, and the end of this one, as [`Request::clock`]; the first from when this one began.
    #[serde(deserialize_with = "or_empty")]
    pub clock: Vec<u8>,
    /// What was taken out of the bytes that a replay needs.
    #[serde(deserialize_with = "or_empty")]
    pub secrets: Secrets,
    /// Of a request's: digest of the values with which the statement ran that took the snapshot,
    /// under [`Recorder::values_key`]. `None`: it had none, or they were not seen.
    #[serde(deserialize_with = "or_empty")]
    pub values: Option<u32>,
    /// Of its statements that were answered several rows: in which order these came, as places
    /// among them by their hashes.
    #[serde(deserialize_with = "or_empty")]
    pub row_order: Vec<u8>,
}

/// What a statement saw, and those behind it that are not told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatementSnapshot {
    /// Its index within its transaction.
    pub statement: u32,
    pub snapshot: Snapshot,
}

/// Low 32 bits of an XXH3 hash over the fingerprints of a transaction's statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShapeId(pub u32);

/// The normalised statements of a kind of transaction; written once per recorder and shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub id: ShapeId,
    /// Literals replaced by `$n`, white space folded, comments removed.
    pub statements: Vec<String>,
}

/// Something that should be in the recording and is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    pub from: Micros,
    pub to: Micros,
    pub cause: GapCause,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GapCause {
    /// The writer's buffer was full or the trace could not be written.
    Dropped {
        requests: u64,
        transactions: u64,
        reason: String,
    },
    /// The recorder stopped without closing the trace; up to the flush interval before `to` may be
    /// missing.
    Crashed { recorder: u16 },
    /// Transactions that were committed past all recorders.
    Unaccounted {
        xids: Vec<Xid>,
        /// What they wrote to, as far as that is known: names of tables, or the schema. Empty in
        /// recordings of before this was asked.
        #[serde(deserialize_with = "or_empty")]
        wrote: String,
    },
    /// A session whose protocol the observer could not follow; it was passed through from there on.
    Unobserved { session: SessionId, reason: String },
    /// Recorded, and removed since.
    Pruned {
        recorder: u16,
        requests: u64,
        transactions: u64,
    },
    /// Transactions of which it cannot be told whether they wrote to the recorded database. This
    /// is a doubt, not a loss: see [`GapCause::is_doubt`].
    Unexplained { xids: Vec<Xid>, reason: String },
}

impl GapCause {
    /// Whether it is not known that anything is missing.
    pub fn is_doubt(&self) -> bool {
        matches!(self, Self::Unexplained { .. })
    }
}

/// One of the last fields of a record, which earlier versions did not write.
fn or_empty<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(T::deserialize(input).unwrap_or_default())
}

/// Written when a recorder starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorder {
    pub number: u16,
    pub started: Micros,
    /// The high half of every trace-id that this recorder gives out; the low half is the request
    /// id.
    pub trace_id_prefix: u64,
    /// As given on the command line, without secrets: where the gateway listened and what it
    /// fronted.
    pub listen: String,
    pub app: String,
    pub pg_listen: String,
    /// Without password.
    pub postgres: String,
    pub database: String,
    pub server_version: String,
    /// `pg_control_system().system_identifier`
    pub system_identifier: u64,
    pub raised_isolation: Option<Isolation>,
    pub hindcast_version: String,
    /// The rules of what was redacted, as they were written. Digests of responses are over what
    /// they leave.
    pub redacted: Vec<String>,
    /// How the service was started, if the recorder did that: program and arguments.
    pub command: Vec<String>,
    pub directory: String,
    /// `NAME=value`, or `NAME` alone where the value looks like a secret.
    pub environment: Vec<String>,
    /// Of the generator that requests drew from, if they did.
    pub pins_key: Option<PinsKey>,
    /// Whether the server offered TLS to its clients.
    pub postgres_tls: Option<bool>,
    /// Of [`Transaction::values`], if those are kept.
    #[serde(deserialize_with = "or_empty")]
    pub values_key: Option<KeptValuesKey>,
}

/// The secret of a recording: with it, what requests drew can be computed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinsKey(pub [u8; 32]);

/// What digests of values are made with, as a recording has it: 32 bytes, or sealed, which is more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptValuesKey(pub Vec<u8>);

impl PinsKey {
    /// One that nobody else has.
    pub fn random() -> Self {
        Self(random_key())
    }

    /// Twelve hexadecimal digits for what has to have the same name in a replay. They tell nothing
    /// of the key.
    pub fn name(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, &[b"name", &self.0[..]].concat());
        let digits = |byte: &u8| format!("{byte:02x}");
        digest.as_ref()[..6].iter().map(digits).collect()
    }
}

pub(crate) fn random_key() -> [u8; 32] {
    let mut key = [0; 32];
    SystemRandom::new()
        .fill(&mut key)
        .expect("the operating system gives random bytes");
    key
}

impl std::fmt::Debug for PinsKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PinsKey(secret)")
    }
}

/// A state of the database from which a replay can start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Base {
    pub taken: Micros,
    pub snapshot: Snapshot,
    pub kind: BaseKind,
}

impl Base {
    /// Whether the database can be had as of any moment after it.
    pub fn has_archive(&self) -> bool {
        matches!(
            &self.kind,
            BaseKind::Backup {
                wal_archive: Some(_),
                ..
            }
        )
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BaseKind {
    /// A database in the same cluster, made with `CREATE DATABASE … TEMPLATE`.
    Template { database: String },
    /// A `pg_basebackup` folder, and the folder or restore_command of archived WAL if there is one.
    Backup {
        folder: String,
        wal_archive: Option<String>,
    },
    /// One database, as `pg_dump` wrote it, in a folder of the trace itself. It is in a recording
    /// that was made from another one, to be given away.
    Dump { folder: String },
}

/// What the tables held when recording stopped with nothing in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinalState {
    pub taken: Micros,
    pub tables: Vec<TableDigest>,
    /// Those that there were, by what they are called: transactions name them by number.
    pub sequences: Vec<SequenceName>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceName {
    /// Schema-qualified, quoted where needed.
    pub sequence: String,
    pub oid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDigest {
    /// Schema-qualified, quoted where needed.
    pub table: String,
    pub rows: u64,
    /// Sum over the rows of a 64-bit hash of each row's text: independent of their order.
    pub digest: u64,
}

/// Anything that a recorder hands to the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    Recorder(Recorder),
    Base(Base),
    Request(Request),
    Transaction(Transaction),
    Shape(Shape),
    Gap(Gap),
    FinalState(FinalState),
    /// The recorder stopped on purpose, everything written.
    Closed {
        at: Micros,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As write-ahead files had it before `wrote`.
    #[derive(Serialize, Deserialize)]
    enum Earlier {
        _Dropped,
        _Crashed,
        Unaccounted { xids: Vec<Xid> },
    }

    #[test]
    fn what_an_earlier_version_wrote_is_read_and_the_other_way_round() {
        let xids = vec![Xid(7), Xid(1 << 40)];
        let earlier = Earlier::Unaccounted { xids: xids.clone() };
        let bytes = postcard::to_allocvec(&(1i64, 2i64, &earlier)).unwrap();
        let gap: Gap = postcard::from_bytes(&bytes).unwrap();
        let cause = |wrote: &str| GapCause::Unaccounted {
            xids: xids.clone(),
            wrote: wrote.to_owned(),
        };
        assert_eq!((gap.from, gap.to, gap.cause), (1, 2, cause("")));

        let bytes = postcard::to_allocvec(&cause("public.note")).unwrap();
        assert_eq!(postcard::from_bytes(&bytes), Ok(cause("public.note")));
        let earlier: Earlier = postcard::from_bytes(&bytes).unwrap();
        assert!(matches!(earlier, Earlier::Unaccounted { xids: read } if read == xids));
    }
}
