//! The primary of a backup that is being promoted: what it still has, and what is kept for us
//! there.

use std::time::{Duration, Instant};

use hindcast_pg::{Connection, DatabaseUrl, Error, Lsn, quote_literal};

use super::error::PromoteError;
use crate::initial::Side;
use crate::initial::state::Stored;
use crate::pgoutput::{Decoder, Message};
use crate::source::{end_of_log, session};

/// How many rows of the log are looked at: enough to tell nothing from something.
const LOOK_AT: u32 = 1000;

/// What is said of a slot that is not there.
pub(super) const GONE: &str = "is gone from the primary";

pub(super) struct Primary {
    pub connection: Connection,
}

/// What a primary has that the backup lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    pub transactions: u64,
    pub changes: u64,
    /// There are more than was looked at.
    pub more: bool,
}

impl Primary {
    /// The inner error: it cannot be reached, and why.
    pub fn connect(url: &DatabaseUrl) -> Result<Result<Self, String>, PromoteError> {
        let options = session("hindcast promote")
            .set("search_path", "")
            .set("row_security", "off")
            .set("statement_timeout", "0");
        match Connection::connect(url, &options) {
            Ok(mut connection) => {
                let rows = connection
                    .query("SELECT pg_catalog.pg_is_in_recovery()")
                    .map_err(PromoteError::query(Side::Primary, "see what it is"))?;
                match rows.first().is_some_and(|row| row.is_true(0)) {
                    true => Ok(Err("it is in recovery".to_owned())),
                    false => Ok(Ok(Self { connection })),
                }
            }
            Err(error) if error.is_transient() => Ok(Err(error.to_string())),
            Err(error) => Err(PromoteError::Connect {
                side: Side::Primary,
                source: Box::new(error),
            }),
        }
    }

    /// System identifier and database.
    pub fn identity(&mut self) -> Result<(String, String), PromoteError> {
        let rows = self
            .connection
            .query(
                "SELECT system_identifier, current_database() FROM pg_catalog.pg_control_system()",
            )
            .map_err(PromoteError::query(Side::Primary, "see what it is"))?;
        let row = rows.first();
        Ok(row.map_or_else(Default::default, |row| (row.string(0), row.string(1))))
    }

    /// See [`end_of_log`].
    pub fn end(&mut self) -> Result<Lsn, PromoteError> {
        end_of_log(&mut self.connection)
            .map_err(PromoteError::query(Side::Primary, "see where its log ends"))
    }

    /// Waits until nobody reads the slot, since the primary may notice late that a follower is
    /// gone. The inner error: why it cannot be read.
    pub fn wait_until_free(
        &mut self,
        slot: &str,
        patience: Duration,
    ) -> Result<Result<(), &'static str>, PromoteError> {
        let deadline = Instant::now() + patience;
        let sql = format!(
            "SELECT active, wal_status = 'lost' FROM pg_catalog.pg_replication_slots WHERE slot_name = {}",
            quote_literal(slot)
        );
        loop {
            let rows = self
                .connection
                .query(&sql)
                .map_err(PromoteError::query(Side::Primary, "look at the slot"))?;
            match rows.first() {
                None => return Ok(Err(GONE)),
                Some(row) if row.is_true(1) => {
                    return Ok(Err("has lost WAL that it needed (max_slot_wal_keep_size)"));
                }
                Some(row) if !row.is_true(0) => return Ok(Ok(())),
                Some(_) if Instant::now() >= deadline => {
                    return Ok(Err("is in use by somebody else"));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Looks what the slot's log holds after `applied`. Nobody may read the slot meanwhile.
    pub fn missing(&mut self, known: &Stored, applied: Lsn) -> Result<Missing, PromoteError> {
        self.end()?;
        let failed = PromoteError::query(Side::Primary, "look at what the slot still has");
        let slot = quote_literal(&known.slot);
        // What the backup has need not be looked at. The slot says so itself if it was
        // acknowledged. Not beyond the backup's own progress: should it not be promoted, it goes on
        // from there.
        if let Some(progress) = known.applied {
            self.connection
                .execute(&format!(
                    "SELECT pg_catalog.pg_replication_slot_advance(slot_name, '{progress}') FROM pg_catalog.pg_replication_slots \
                      WHERE slot_name = {slot} AND confirmed_flush_lsn < '{progress}'"
                ))
                .map_err(&failed)?;
        }
        // Names in the option are separated by commas, so the publication's is quoted as a name
        // first.
        let rows = self
            .connection
            .query(&format!(
                "SELECT pg_catalog.encode(data, 'hex') FROM pg_catalog.pg_logical_slot_peek_binary_changes({slot}, NULL, {LOOK_AT}, \
                    'proto_version', '1', 'publication_names', {})",
                quote_literal(&hindcast_pg::quote_identifier(&known.publication))
            ))
            .map_err(&failed)?;
        let mut missing = Missing {
            more: rows.len() >= LOOK_AT as usize,
            ..Missing::default()
        };
        let mut decoder = Decoder::default();
        let mut changes = 0;
        for row in rows.iter() {
            let bytes = unhex(row.text(0).unwrap_or_default());
            let decoded = decoder
                .decode(&bytes)
                .map_err(|error| failed(Error::Protocol(error.to_string())))?;
            match decoded.message {
                Message::Begin(_) => changes = 0,
                Message::Change { .. } | Message::Truncate { .. } => changes += 1,
                Message::Commit(commit) if commit.end_lsn > applied && changes > 0 => {
                    missing.transactions += 1;
                    missing.changes += changes;
                }
                _ => {}
            }
        }
        Ok(missing)
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}
