//! The primary's log as it comes out of its slot.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use hindcast_pg::{
    Connection, CopyBoth, DatabaseUrl, Error, Interrupter, Lsn, quote_identifier, quote_literal,
};

use crate::follow::{Acknowledgement, Event, Log};
use crate::mark;
use crate::pgoutput::{Begin, Decoder, Malformed, Message, POSTGRES_EPOCH, Relation};
use crate::source::end::EndOfWal;
use crate::source::error::SourceError;
use crate::source::pace::Pace;
use crate::source::session::session;
use crate::source::spill::{Playback, Spill, SpillError};
use crate::status::{Retention, now_micros};

/// What a stream is asked for.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// The primary is told how far we are at least this often, changes or not. It ends sessions
    /// that are silent for `wal_sender_timeout` (60 s by default).
    pub status_interval: Duration,
    /// Receive large transactions while they run. They wait in files of this folder.
    pub stream_into: Option<PathBuf>,
    /// A primary that says nothing for so long, not even when it is asked to, is lost. Long,
    /// because old versions say nothing either while they decode a large transaction that is
    /// nothing for us.
    pub silence_max: Duration,
}

/// How often the primary is asked where its log ends.
const END_EVERY: Duration = Duration::from_millis(500);

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            status_interval: Duration::from_secs(1),
            stream_into: None,
            silence_max: Duration::from_secs(300),
        }
    }
}

/// A replication session: events in commit order, keepalives answered by the way.
pub struct Stream {
    session: CopyBoth,
    decoder: Decoder,
    spill: Spill,
    /// A streamed transaction that has committed and is handed over now.
    playing: Option<Playing>,
    log: Position,
    options: StreamOptions,
    end: EndOfWal,
    primary_end: Lsn,
    clock: Clock,
    /// Since when there has been nothing to read.
    silent_since: Option<Instant>,
    position: Acknowledgement,
    told: Acknowledgement,
    told_at: Instant,
    pace: Pace,
    /// The primary wants an answer now.
    asked: bool,
}

struct Playing {
    playback: Playback,
    decoder: Decoder,
}

impl Stream {
    /// Everything that was committed after `from`.
    pub fn start(
        url: &DatabaseUrl,
        slot: &str,
        publication: &str,
        from: Lsn,
        options: StreamOptions,
    ) -> Result<Self, SourceError> {
        let mut connect = session(&format!("hindcast standby {slot}"));
        connect.replication = true;
        let connection = Connection::connect(url, &connect).map_err(SourceError::Connect)?;
        let publication = quote_literal(&quote_identifier(publication));
        let protocol = match options.stream_into {
            Some(_) => "proto_version '2', streaming 'on', messages 'on'",
            None => "proto_version '1', messages 'on'",
        };
        let sql = format!(
            "START_REPLICATION SLOT {} LOGICAL {from} ({protocol}, publication_names {publication})",
            quote_identifier(slot),
        );
        let session = connection
            .start_replication(&sql)
            .map_err(|error| SourceError::Start {
                slot: slot.to_owned(),
                source: error,
            })?;
        let pace = Pace::of(&session).map_err(SourceError::Lost)?;
        let position = Acknowledgement {
            received: from,
            visible: from,
            durable: from,
        };
        Ok(Self {
            session,
            decoder: Decoder::default(),
            spill: Spill::new(options.stream_into.as_deref().unwrap_or(Path::new("/"))),
            playing: None,
            log: Position {
                relations: HashMap::new(),
                read_to: from,
                from,
                skipping: false,
            },
            options,
            end: EndOfWal::watch(url, slot, END_EVERY),
            primary_end: from,
            clock: Clock::default(),
            silent_since: None,
            position,
            told: Acknowledgement::default(),
            told_at: Instant::now(),
            pace,
            asked: false,
        })
    }

    /// Ends the session, so that the slot is free when this returns. What was not acknowledged
    /// comes again next time.
    pub fn finish(mut self) {
        /// A primary in the middle of a large transaction sends all of it first. Its session ends
        /// as well when we just go, only a little later.
        const PATIENCE: Duration = Duration::from_secs(5);
        // A primary that is gone has no session of ours either.
        let _ = self.tell();
        let interrupter = self.session.interrupter();
        let (ended, end) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                    interrupter.interrupt();
                }
            });
            let _ = self.session.finish();
            drop(ended);
        });
    }

    pub fn interrupter(&self) -> Interrupter {
        self.session.interrupter()
    }

    /// The next event of a transaction that waited until it committed.
    fn play(&mut self) -> Result<Event<'_>, SourceError> {
        let folder = &self.options.stream_into;
        let more = match &mut self.playing {
            None => return Ok(Event::Nothing),
            Some(playing) => playing.playback.advance().map_err(|source| SpillError {
                folder: folder.clone().unwrap_or_default(),
                source,
            })?,
        };
        match (&mut self.playing, more) {
            (Some(playing), true) => {
                let decoded = playing.decoder.decode(playing.playback.message())?;
                self.log.event(decoded.message)
            }
            (playing, _) => match playing.take() {
                Some(done) => self.log.event(Message::Commit(done.playback.commit)),
                None => Ok(Event::Nothing),
            },
        }
    }

    fn tell_if_due(&mut self) -> Result<(), SourceError> {
        let moved = self.position != self.told;
        let since = self.told_at.elapsed();
        // A synchronous primary waits for these; a busy one should not be flooded.
        let due = self.asked
            || moved && since >= Duration::from_millis(10)
            || since >= self.options.status_interval;
        match due {
            true => self.tell(),
            false => Ok(()),
        }
    }

    fn tell(&mut self) -> Result<(), SourceError> {
        let mut message = [0; 34];
        message[0] = b'r';
        let word = |message: &mut [u8; 34], at: usize, value: u64| {
            message[at..at + 8].copy_from_slice(&value.to_be_bytes());
        };
        word(&mut message, 1, self.position.received.0);
        word(&mut message, 9, self.position.durable.0);
        word(&mut message, 17, self.position.visible.0);
        let now = now_micros() - POSTGRES_EPOCH;
        word(&mut message, 25, now.cast_unsigned());
        // Whether an answer is wanted.
        let silence = self
            .silent_since
            .map_or(Duration::ZERO, |since| since.elapsed());
        message[33] = u8::from(silence > self.options.silence_max / 4);
        self.session.write(&message).map_err(SourceError::Lost)?;
        self.told = self.position;
        self.told_at = Instant::now();
        self.asked = false;
        Ok(())
    }
}

impl Log for Stream {
    type Error = SourceError;

    fn next(&mut self, deadline: Instant) -> Result<Option<Event<'_>>, SourceError> {
        if self.playing.is_some() {
            return self.play().map(Some);
        }
        if !self.session.buffered() {
            self.pace.before_a_read(self.session.received());
        }
        let Some(body) = self.session.read(deadline).map_err(SourceError::Lost)? else {
            let since = self.silent_since.get_or_insert_with(Instant::now);
            return match since.elapsed() {
                silence if silence > self.options.silence_max => {
                    Err(SourceError::Lost(Error::Timeout(silence.as_secs())))
                }
                _ => Ok(None),
            };
        };
        self.silent_since = None;
        let word = |at: usize| -> Result<u64, Malformed> {
            let bytes = body.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_be_bytes).ok_or_else(|| Malformed {
                what: "a replication message that is cut off".to_owned(),
            })
        };
        match body.first() {
            // XLogData: where it begins, the end of WAL, when it was sent.
            Some(b'w') => {
                self.primary_end = self.primary_end.max(Lsn(word(9)?));
                let bytes = body.get(25..).unwrap_or_default();
                let decoded = self.decoder.decode(bytes)?;
                if let Some(subxid) = decoded.streamed {
                    self.spill.keep(subxid, bytes)?;
                    return Ok(Some(Event::Nothing));
                }
                match decoded.message {
                    Message::Begin(_) | Message::Commit(_) => self.clock.sent(word(17)?),
                    Message::StreamStart { xid, .. } => self.spill.start(xid),
                    Message::StreamStop => {
                        self.spill.stop();
                        self.spill.settle()?;
                    }
                    Message::StreamAbort { xid, subxid } => self.spill.abort(xid, subxid)?,
                    Message::StreamCommit { xid, commit } => {
                        self.playing = Some(Playing {
                            playback: self.spill.commit(xid, commit)?,
                            decoder: Decoder::inside_a_stream(),
                        });
                        let begin = Begin {
                            final_lsn: commit.lsn,
                            time: commit.time,
                            xid,
                        };
                        return self.log.event(Message::Begin(begin)).map(Some);
                    }
                    _ => {}
                }
                self.log.event(decoded.message).map(Some)
            }
            // Keepalive: the end of WAL, when it was sent, whether an answer is wanted.
            Some(b'k') => {
                let end = Lsn(word(1)?);
                self.clock.sent(word(9)?);
                self.primary_end = self.primary_end.max(end);
                // Everything committed before it was sent to us before it.
                self.log.read_to = self.log.read_to.max(end);
                self.asked |= body.get(17) == Some(&1);
                Ok(Some(Event::Nothing))
            }
            _ => Err(SourceError::Malformed(Malformed {
                what: "a replication message of unknown kind".to_owned(),
            })),
        }
    }

    fn acknowledge(&mut self, position: Acknowledgement) -> Result<(), SourceError> {
        self.position = Acknowledgement {
            received: self.position.received.max(position.received),
            visible: self.position.visible.max(position.visible),
            durable: self.position.durable.max(position.durable),
        };
        self.tell_if_due()
    }

    fn primary_end(&self) -> Lsn {
        self.primary_end.max(self.end.last())
    }

    fn read_to(&self) -> Lsn {
        self.log.read_to
    }

    fn clock_offset(&self) -> i64 {
        self.clock.offset()
    }

    fn retention(&self) -> Retention {
        self.end.retention()
    }
}

/// Compares the primary's clock with ours.
///
/// A message takes its time to us, on the way and in buffers, and looks as if the primary's clock
/// were behind by that much. So the fastest message of the last seconds counts.
#[derive(Debug, Default)]
struct Clock {
    /// The greatest difference since `since`, and the one of the window before.
    best: Option<i64>,
    before: Option<i64>,
    /// In µs since 1970.
    since: i64,
}

impl Clock {
    const WINDOW: i64 = 10_000_000;

    fn sent(&mut self, sent: u64) {
        self.compare(sent.cast_signed() + POSTGRES_EPOCH, now_micros());
    }

    fn compare(&mut self, theirs: i64, ours: i64) {
        if !(0..Self::WINDOW).contains(&(ours - self.since)) {
            self.before = self.best.take();
            self.since = ours;
        }
        let difference = theirs - ours;
        self.best = Some(self.best.map_or(difference, |best| best.max(difference)));
    }

    /// The primary's clock minus ours, in µs.
    fn offset(&self) -> i64 {
        self.best.max(self.before).unwrap_or(0)
    }
}

/// What has been understood of the log.
struct Position {
    relations: HashMap<u32, Arc<Relation>>,
    read_to: Lsn,
    /// Transactions that commit before this are ours already.
    from: Lsn,
    /// In the middle of a transaction that is skipped.
    skipping: bool,
}

impl Position {
    fn event<'a>(&'a mut self, message: Message<'a>) -> Result<Event<'a>, SourceError> {
        Ok(match message {
            Message::Begin(begin) => {
                // The primary does not send what is before the start; if one ever did, it would be
                // applied twice.
                self.skipping = begin.final_lsn < self.from;
                match self.skipping {
                    true => Event::Nothing,
                    false => Event::Begin(begin),
                }
            }
            Message::Commit(commit) => {
                self.read_to = self.read_to.max(commit.end_lsn);
                match std::mem::take(&mut self.skipping) {
                    true => Event::Nothing,
                    false => Event::Commit(commit),
                }
            }
            Message::Relation(relation) => {
                let id = relation.id;
                let known = self.relations.get(&id);
                match known.is_some_and(|known| **known == relation) {
                    // Sent again because something about the table was changed that we do not see,
                    // or for no reason.
                    true => Event::Nothing,
                    false => {
                        self.relations.insert(id, Arc::new(relation));
                        Event::Relation(&self.relations[&id])
                    }
                }
            }
            Message::Change { .. } | Message::Truncate { .. } if self.skipping => Event::Nothing,
            Message::Change { relation, change } => Event::Change {
                relation: self.relation(relation)?,
                change,
            },
            Message::Truncate { relations, how } => Event::Truncate {
                relations: relations
                    .into_iter()
                    .map(|id| self.relation(id).cloned())
                    .collect::<Result<_, _>>()?,
                how,
            },
            // Of a transaction it would not be at its place: that comes when it commits.
            Message::Custom {
                transactional: false,
                at,
                prefix,
                content,
            } if prefix == mark::PREFIX.as_bytes() && at >= self.from => {
                Event::Mark { at, content }
            }
            Message::Origin
            | Message::Type
            | Message::Custom { .. }
            | Message::StreamStart { .. }
            | Message::StreamStop
            | Message::StreamCommit { .. }
            | Message::StreamAbort { .. } => Event::Nothing,
        })
    }

    fn relation(&self, id: u32) -> Result<&Arc<Relation>, SourceError> {
        self.relations.get(&id).ok_or_else(|| {
            SourceError::Malformed(Malformed {
                what: format!("a change of the table with oid {id}, which was never described"),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_message_says_how_the_clocks_differ() {
        const SECOND: i64 = 1_000_000;
        let mut clock = Clock::default();
        assert_eq!(clock.offset(), 0);
        // Theirs is ahead by 5 s, and messages take between 0.01 and 2 s.
        let message = |clock: &mut Clock, ours: i64, delay: i64| {
            clock.compare(ours + 5 * SECOND - delay, ours);
        };
        let start = 1_000 * SECOND;
        message(&mut clock, start, 2 * SECOND);
        assert_eq!(clock.offset(), 3 * SECOND);
        message(&mut clock, start + SECOND, 10_000);
        for second in 2..18 {
            message(&mut clock, start + second * SECOND, SECOND);
            assert_eq!(clock.offset(), 5 * SECOND - 10_000, "{second}");
        }
        // It was long ago, and clocks drift.
        message(&mut clock, start + 30 * SECOND, SECOND);
        message(&mut clock, start + 45 * SECOND, SECOND);
        assert_eq!(clock.offset(), 4 * SECOND);
        // Ours was put back.
        message(&mut clock, start - 100 * SECOND, SECOND);
        message(&mut clock, start - 80 * SECOND, SECOND);
        assert_eq!(clock.offset(), 4 * SECOND);
    }
}
