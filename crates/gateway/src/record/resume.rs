//! Makes a recording of what a killed recorder had spooled.
//!
//! ```text
//!   the spool, from its beginning ──▶ the same conversion ──▶ Sink ──▶ what the trace lacks
//! ```
//!
//! A conversion remembers much of each session and request that is open, so it cannot begin in the
//! middle. But it has no other source than its spool, so the same records come of it, with the same
//! numbers, and those that are in the trace are left out. Who is killed doing this can be followed
//! by the next.
//!
//! What only the server could tell is not asked any more: ids that nobody had accounted for become
//! a doubt.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hindcast_spool::spool::{HowFar, how_far, left, sealed_key};
use hindcast_spool::{Clock, Entry, Reader, SpoolError};
use hindcast_taplog::Told;
use hindcast_trace::{
    CloseError, Gap, GapCause, Id, Key, KeyError, Location, Micros, OpenError, Outcome, ReadError,
    Resume, Resumed, Sealer, SecretKey, Spooled, Trace, Transaction, ValuesKey, Writer,
    WriterOptions, Xid,
};
use hindcast_wire::sql::ScriptCache;

use super::extension::OVER;
use super::kept::{About, Kept, key_of};
use super::past::PastSessions;
use super::present::Present;
use super::server_side::ServerSide;
use super::session::RecordingHost;
use super::sink::Sink;
use crate::http::Witness;
use crate::inside::{Converter, InsideOptions, Numbers};
use crate::redact::{Redactor, Rules};

/// While the trace has no room.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// Ids that are named one by one.
const DOUBTS_MAX: usize = 100_000;

/// How going on with a spool ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Converted {
    /// Its recorder is there, or somebody else goes on with it.
    InUse,
    /// All that could be read of it is in the trace, which had some of it before.
    Whole { requests: u64, transactions: u64 },
    /// It could not be read from its beginning, so it was removed: the recording ends where its
    /// recorder had got to.
    Lost(String),
}

#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error(
        "what recorder {recorder} left can be read with the key of its secrets, and no such key is here"
    )]
    NoKey { recorder: u16 },
    #[error("what recorder {recorder} left was sealed for another key than this")]
    OtherKey { recorder: u16 },
    #[error("{path} was written by another version of hindcast", path = path.display())]
    Version { path: PathBuf },
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("what is redacted cannot be sealed")]
    Seal(#[source] KeyError),
    #[error("the trace cannot be written: {0}")]
    Trace(#[from] OpenError),
    #[error("the trace cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Close(#[from] CloseError),
    #[error("{path} cannot be written", path = path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl ResumeError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoKey { .. } | Self::OtherKey { .. } => {
                "name the key file that the recorder used with --secrets-key (with --key, if the recording is encrypted)"
                    .into()
            }
            Self::Version { .. } | Self::Spool(SpoolError::Version { .. }) => {
                "run `hindcast recover` of the version that recorded".into()
            }
            Self::Spool(_) | Self::Write { .. } | Self::Close(_) => {
                "nothing is lost: mend it, and run `hindcast recover` again".into()
            }
            Self::Seal(_) | Self::Read(_) => String::new(),
            Self::Trace(error) => error.hint().to_owned(),
        }
    }
}

/// How much of a spool is in the trace. `None`: there is none.
pub fn progress(spooled: &Spooled) -> Option<HowFar> {
    how_far(&spooled.folder)
}

/// Goes on with what a recorder left that is gone. `secret` opens the key of its spool.
pub fn resume(
    location: &Location,
    key: Option<&Key>,
    secret: Option<&SecretKey>,
    spooled: &Spooled,
) -> Result<Converted, ResumeError> {
    let recorder = spooled.recorder;
    let kept = Kept::new(spooled.folder.clone());
    if spooled.in_use {
        return Ok(Converted::InUse);
    }
    let Some(sealed) = sealed_key(&spooled.folder)? else {
        let why = "it had become too large to be kept from its beginning (--spool-max)";
        return give_up(location, key, &kept, recorder, why.to_owned());
    };
    let secret = secret.ok_or(ResumeError::NoKey { recorder })?;
    let spool_key = key_of(&sealed, secret).ok_or(ResumeError::OtherKey { recorder })?;
    let about = left(&spooled.folder, &spool_key).and_then(|mut reader| about(&mut reader));
    let about = match about {
        Ok(Some(about)) => about,
        Ok(None) => {
            let path = spooled.folder.clone();
            return Err(ResumeError::Version { path });
        }
        Err(error @ (SpoolError::Damaged { .. } | SpoolError::NoBeginning { .. })) => {
            return give_up(location, key, &kept, recorder, error.to_string());
        }
        Err(error) => return Err(error.into()),
    };
    let options = WriterOptions {
        key: key.cloned(),
        flush_interval: Duration::from_micros(about.flush_interval_us),
        ..WriterOptions::default()
    };
    let resumed = match Writer::resume(location, options, recorder)? {
        Resume::InUse => return Ok(Converted::InUse),
        Resume::Closed => {
            kept.remove();
            return Ok(Converted::Whole {
                requests: 0,
                transactions: 0,
            });
        }
        Resume::Open(resumed) => resumed,
    };
    let last = last_number(left(&spooled.folder, &spool_key)?)?;
    let conversion = Conversion::new(location, key, secret, about, resumed, &kept, last)?;
    let converted = conversion.run(left(&spooled.folder, &spool_key)?)?;
    kept.remove();
    Ok(converted)
}

/// What its recorder has recorded is all that there will be.
fn give_up(
    location: &Location,
    key: Option<&Key>,
    kept: &Kept,
    recorder: u16,
    why: String,
) -> Result<Converted, ResumeError> {
    tracing::debug!(recorder, why, "a spool is given up");
    kept.remove();
    Trace::recover_with(location, key)?;
    Ok(Converted::Lost(why))
}

fn about(reader: &mut Reader) -> Result<Option<About>, SpoolError> {
    Ok(match reader.read()? {
        Some(Entry::About(about)) => About::decode(about),
        _ => None,
    })
}

/// The highest number that a tap gave.
fn last_number(mut reader: Reader) -> Result<u64, SpoolError> {
    let mut last = 0;
    while let Some(entry) = whole(reader.read())? {
        if let Entry::Told { told, .. } = entry {
            for (_, told) in told {
                if let Told::Turn { request, .. } = told {
                    last = last.max(request);
                }
            }
        }
    }
    Ok(last)
}

/// What cannot be read ends it: a power failure may have cut it off anywhere.
fn whole(read: Result<Option<Entry<'_>>, SpoolError>) -> Result<Option<Entry<'_>>, SpoolError> {
    match read {
        Err(SpoolError::Damaged { .. }) => Ok(None),
        read => read,
    }
}

struct Conversion {
    about: About,
    resumed: Resumed,
    kept: Kept,
    sink: Arc<Sink>,
    converter: Converter,
    /// When the recorder looked at the rings last.
    looked: Option<Micros>,
}

impl Conversion {
    fn new(
        location: &Location,
        key: Option<&Key>,
        secret: &SecretKey,
        about: About,
        resumed: Resumed,
        kept: &Kept,
        last: u64,
    ) -> Result<Self, ResumeError> {
        let recorder = &about.recorder;
        let trace = Trace::open_with(location, key)?;
        let taken = about.base.as_ref().map(|base| base.taken);
        let present = Present::read(&trace, recorder.number)?.with_bases(&trace, taken);
        let sink = Sink::resumed(resumed.writer.clone(), recorder, present);
        let sink = Arc::new(sink);
        let rules = Rules::read(&recorder.redacted).expect("what was a rule is one");
        let sealer = about.keeps_secrets.then(|| Sealer::new(&secret.public()));
        let sealer = sealer.transpose().map_err(ResumeError::Seal)?;
        let users = Rules::read(&about.users).expect("what was a rule is one");
        let redactor = Redactor::with_key(rules, &about.redaction_key);
        let redactor = Arc::new(redactor.knowing_users_by(users).keeping(sealer));
        let host = RecordingHost {
            board: None,
            told: None,
            sink: Arc::clone(&sink),
            scripts: Arc::new(ScriptCache::default()),
            redactor: Arc::clone(&redactor),
            database: recorder.database.clone(),
            raise_isolation: recorder.raised_isolation.is_some(),
            values_max: about.values_max,
            values: about.values_key.as_ref().map(ValuesKey::prepared),
        };
        let sessions = about.has_transactions.then(|| {
            let server = ServerSide::new(Arc::clone(&sink));
            PastSessions::boxed(&host, Arc::new(server))
        });
        let converter = Converter::new(
            Arc::clone(&sink) as Arc<dyn Witness>,
            InsideOptions {
                limits: about.limits,
                redactor,
                numbers: numbers(kept, recorder.number, last)?,
                sessions,
            },
        );
        super::introduce(&sink, recorder, about.base.as_ref());
        Ok(Self {
            about,
            resumed,
            kept: kept.clone(),
            sink,
            converter,
            looked: None,
        })
    }

    fn run(mut self, mut spool: Reader) -> Result<Converted, ResumeError> {
        while let Some(entry) = whole(spool.read())? {
            if let Entry::Looked { moment, clock } = &entry {
                self.looked(*moment, *clock);
            }
            self.converter.take(entry);
        }
        // The server tells nothing more, either.
        self.converter.take(Entry::Noted(&OVER));
        self.converter.finish();
        self.conclude();
        let status = self.sink.status();
        self.resumed.writer.close()?;
        Ok(Converted::Whole {
            requests: status.requests,
            transactions: status.transactions,
        })
    }

    fn looked(&mut self, moment: u64, clock: Clock) {
        let at = clock.micros(moment);
        self.sink.is_at(at);
        self.looked = Some(at);
        while !self.sink.has_room() {
            std::thread::sleep(FULL_PAUSE);
        }
    }

    /// What the recorder did not come to.
    fn conclude(&self) {
        let (recorded, killed) = self.resumed.killed;
        let told = self.sink.ledger().take();
        for transaction in told.uncertain {
            self.sink.transaction(Transaction {
                outcome: Outcome::Unknown,
                ..transaction
            });
        }
        let from = match (self.about.has_transactions, self.looked) {
            (true, Some(looked)) => looked,
            // What the gateway saw since is not in the spool.
            _ => recorded,
        };
        let to = killed.max(from);
        let recorder = self.about.recorder.number;
        let cause = GapCause::Crashed { recorder };
        self.sink.gap(Gap { from, to, cause });
        if self.about.has_transactions {
            self.doubt(told.accounted, told.seen, to);
        }
    }

    /// Ids that some transaction could see, and that nobody has accounted for.
    fn doubt(&self, accounted: Vec<u64>, seen: u64, to: Micros) {
        let beginning = &self.about.beginning;
        let settled = self.kept.was_settled();
        let (below, from) = settled.unwrap_or((0, self.about.recorder.started));
        let accounted: HashSet<u64> = accounted.into_iter().collect();
        let running = beginning.in_progress.iter().map(|xid| xid.0);
        let open = running.chain(beginning.xmax.0..seen);
        let open = open.filter(|xid| *xid >= below && !accounted.contains(xid));
        let xids: Vec<Xid> = open.take(DOUBTS_MAX).map(Xid).collect();
        if !xids.is_empty() {
            let reason =
                "the recorder was killed before it had asked the server what they are".to_owned();
            let cause = GapCause::Unexplained { xids, reason };
            self.sink.gap(Gap { from, to, cause });
        }
    }
}

/// For requests to which no tap gave one: those that they had, and new ones behind all.
fn numbers(kept: &Kept, recorder: u16, last: u64) -> Result<Numbers, ResumeError> {
    let failed = |source| ResumeError::Write {
        path: kept.folder().to_owned(),
        source,
    };
    let given = kept.given().map_err(failed)?;
    let last = given.into_iter().max().unwrap_or(0).max(last);
    let mut next = last.max(Id::new(recorder, 0).0);
    let new = move || {
        next += 1;
        next
    };
    kept.numbers(new).map_err(failed)
}
