//! Reads a stretch of the server's WAL, when something is to be found there.
//!
//! A physical replication session sends WAL as it is, from any position that the server still has.
//! It needs no slot, and only the attribute REPLICATION. It is opened for one stretch and closed
//! again: a server that is not asked spends nothing.

use std::time::{Duration, Instant};

use hindcast_pg::{
    ConnectError, ConnectOptions, Connection, CopyBoth, DatabaseUrl, Error, Lsn, quote_identifier,
};

use hindcast_wal::{Decoder, Facts, Format, Malformed};

/// How much is read at once, that is, per tick.
pub(super) const STRETCH_BYTES: u64 = 64 << 20;
/// What is further behind than this is given up.
pub(super) const BACKLOG_BYTES: u64 = 256 << 20;
/// How long WAL that was written may take to be on the server's disk, from where it is sent.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);
/// For a stretch as a whole, connecting included.
const STRETCH_PATIENCE: Duration = Duration::from_secs(30);

/// WAL that has been read from `from` on, without a hole.
pub(super) struct Follower {
    pub from: Lsn,
    decoder: Decoder,
    pub facts: Facts,
}

/// Why WAL cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("the role {role} may not read the server's WAL")]
    NotPermitted { role: String },
    #[error("pg_hba.conf does not let the role {role} replicate")]
    NotAdmitted { role: String },
    #[error("wal_level is minimal")]
    Minimal,
    #[error("the server has no WAL sender to spare")]
    Senders(i64),
    #[error("the WAL in question has been removed from the server")]
    Removed,
    #[error("more WAL is written than is read here")]
    TooMuch,
    #[error("the WAL of this server (version {0}) is not known here")]
    Version(i64),
    #[error("the server's WAL cannot be followed: {0}")]
    Malformed(#[from] Malformed),
    #[error("the server's WAL cannot be read: {0}")]
    Failed(String),
}

impl Unreadable {
    /// What would let it be read.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotPermitted { role } => {
                format!("ALTER ROLE {} REPLICATION", quote_identifier(role))
            }
            Self::NotAdmitted { role } => {
                format!("let {role} connect for replication in pg_hba.conf")
            }
            Self::Minimal => "set wal_level to replica and restart the server".to_owned(),
            Self::Senders(_) => "raise max_wal_senders".to_owned(),
            Self::Removed => "raise wal_keep_size".to_owned(),
            Self::TooMuch | Self::Version(_) | Self::Malformed(_) | Self::Failed(_) => return None,
        })
    }

    /// In one line, with what would help.
    pub fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}: {hint}"),
            None => self.to_string(),
        }
    }

    /// Trying again in a moment may be enough.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Senders(1..))
    }

    /// It stays so until somebody changes the server.
    pub fn lasts(&self) -> bool {
        matches!(
            self,
            Self::NotPermitted { .. }
                | Self::NotAdmitted { .. }
                | Self::Minimal
                | Self::Version(_)
                | Self::Senders(0)
        )
    }
}

impl Follower {
    pub fn new(format: Format, database: u32, near: u64, from: Lsn) -> Self {
        Self {
            from,
            decoder: Decoder::new(format, from),
            facts: Facts::new(format, database, near),
        }
    }

    pub fn position(&self) -> Lsn {
        self.decoder.position()
    }

    /// Reads until the ends of all `wanted` are known, or `until`, or for as long as is permitted.
    /// Blocks.
    pub fn read(
        &mut self,
        url: &DatabaseUrl,
        role: &str,
        wanted: &[u64],
        until: Lsn,
    ) -> Result<(), Unreadable> {
        let refused = |error: &Error| refusal(error, role);
        let mut options = ConnectOptions::named("hindcast: accounting (WAL)");
        options.replication = true;
        let connection = Connection::connect(url, &options)
            .map_err(|error| refused(&Error::Connect(Box::<ConnectError>::new(error))))?;
        let start = self.position();
        let sql = format!("START_REPLICATION PHYSICAL {start}");
        let mut stream = connection
            .start_replication(&sql)
            .map_err(|error| refused(&error))?;
        let begun = Instant::now();
        let mut progress = begun;
        let mut open: Vec<u64> = wanted.to_vec();
        while self.position() < until && self.position().0 - start.0 < STRETCH_BYTES {
            open.retain(|xid| self.facts.commit(*xid).is_none());
            if open.is_empty() || begun.elapsed() > STRETCH_PATIENCE {
                break;
            }
            if self.take(&mut stream, progress + FLUSH_PATIENCE, role)? {
                progress = Instant::now();
            } else if progress.elapsed() >= FLUSH_PATIENCE {
                break;
            }
        }
        // In good order, or the server's log has a complaint each time.
        let _ = stream.finish();
        Ok(())
    }

    /// Takes one message; whether it was WAL.
    fn take(
        &mut self,
        stream: &mut CopyBoth,
        deadline: Instant,
        role: &str,
    ) -> Result<bool, Unreadable> {
        let message = stream
            .read(deadline)
            .map_err(|error| refusal(&error, role))?;
        match message {
            // Where it begins, where the server's WAL ends, and the time.
            Some([b'w', rest @ ..]) if rest.len() >= 24 => {
                let (header, bytes) = rest.split_at(24);
                let begins = header.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                if begins != Some(self.position().0) {
                    let (what, at) = (
                        "a stretch that does not follow the one before",
                        self.position(),
                    );
                    return Err(Malformed { what, at }.into());
                }
                let Self { decoder, facts, .. } = self;
                decoder.feed(bytes, &mut |record| facts.note(record))?;
                Ok(true)
            }
            Some([b'k', rest @ ..]) => {
                if rest.last() == Some(&1) {
                    // We hold nothing: all positions are 0, so that no commit waits for us.
                    let mut status = [0; 34];
                    status[0] = b'r';
                    stream
                        .write(&status)
                        .map_err(|error| refusal(&error, role))?;
                }
                Ok(false)
            }
            _ => Ok(false),
        }
    }
}

fn refusal(error: &Error, role: &str) -> Unreadable {
    let role = role.to_owned();
    match error.code() {
        Some("42501") => Unreadable::NotPermitted { role },
        Some("28000" | "28P01") => Unreadable::NotAdmitted { role },
        Some("58P01") => Unreadable::Removed,
        Some("53300") => Unreadable::Senders(1),
        _ => Unreadable::Failed(crate::http::with_causes(error)),
    }
}
