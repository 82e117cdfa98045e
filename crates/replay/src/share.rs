//! A part of a recording to give away: a recording of its own, without secrets.
//!
//! ```text
//!   recording ──▶ requests of the period, redacted ──┐
//!   base ──▶ rewound ──▶ columns hashed ──▶ dump   ──┴──▶ folder: a trace with a base of its own
//! ```
//!
//! Requests, rows and answers are hashed under one key, which is in no file: what was equal stays
//! equal, so a service that looks up a token in a table finds it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hindcast_gateway::redact::{Redactor, Rules, hash_in_sql};
use hindcast_rewind::{Hidden, Options, RewindError, dump, rewind};
use hindcast_trace::{
    Base, BaseKind, CloseError, Digest, Gap, GapCause, Location, OpenError, PinsKey, ReadError,
    Record, Recorder, Request, RequestFilter, RequestId, Response, Secrets, ShapeId, Trace,
    Transaction, TransactionFilter, Writer, WriterOptions,
};

use crate::restore::Start;

/// Where the dump is in the new recording.
const BASE: &str = "base";
/// Records that may wait to be written.
const WAITING_MAX: u64 = 50_000;

/// What was given away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub requests: u64,
    pub transactions: u64,
    /// Columns of the base that were hashed or emptied, as `schema.table.column`.
    pub columns: Vec<String>,
    /// Requests whose answer is not compared, since its body was not kept and may hold a secret.
    pub not_compared: u64,
    /// Whether what the tables held at the end is in it.
    pub final_state: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    #[error("the recording cannot be read")]
    Read(#[from] ReadError),
    #[error("{} is not an empty folder", .0.display())]
    Taken(PathBuf),
    #[error("the base cannot be made")]
    Rewind(#[from] RewindError),
    #[error("the new recording cannot be begun")]
    Open(#[from] OpenError),
    #[error("the new recording cannot be completed")]
    Close(#[from] CloseError),
    #[error(
        "the new recording could not be written as quickly as it was read, and lacks something"
    )]
    Lost,
}

/// Writes what a plan replays into a folder, which must not exist or be empty.
///
/// `rules` are those of the new recording. `rewinding` says where the base is.
pub async fn share(
    trace: &Trace,
    start: &Start,
    rules: &Rules,
    rewinding: &Options,
    folder: &Path,
) -> Result<Share, ShareError> {
    if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(ShareError::Taken(folder.to_owned()));
    }
    let key = PinsKey::random().0;
    let (point, _) = start.point(trace)?;
    let rewound = rewind(&start.base, &point, rewinding).await?;
    let hidden = Hidden {
        columns: &|column| rules.leaves_out(column),
        text: &|text| hash_in_sql(&key, text),
    };
    let dumped = dump(rewound.url(), &hidden, &folder.join(BASE)).await;
    rewound.discard().await?;
    let base = Base {
        taken: start.plan.period.start,
        snapshot: point.first_snapshot.unwrap_or(start.base.snapshot.clone()),
        kind: BaseKind::Dump {
            folder: BASE.to_owned(),
        },
    };
    let mut sharing = Sharing {
        trace,
        start,
        rules,
        redactor: Redactor::with_key(rules.clone(), &key),
        out: Out::new(trace, folder)?,
        ids: BTreeSet::new(),
        shapes: BTreeSet::new(),
        done: Share {
            columns: dumped?,
            ..Share::default()
        },
    };
    sharing.requests()?;
    sharing.transactions()?;
    sharing.small(base);
    sharing.out.close()?;
    Ok(sharing.done)
}

/// One writer for each recorder, since ids are ordered within a recorder only.
struct Out {
    writers: BTreeMap<u16, Writer>,
}

impl Out {
    fn new(trace: &Trace, folder: &Path) -> Result<Self, OpenError> {
        let mut writers = BTreeMap::new();
        for recorder in trace.recorders() {
            let options = WriterOptions {
                buffer_records_max: 4 * WAITING_MAX as usize,
                buffer_bytes_max: 1 << 30,
                ..WriterOptions::default()
            };
            let (writer, _) = Writer::create(&Location::folder(folder), options)?;
            writers.insert(recorder.number, writer);
        }
        Ok(Self { writers })
    }

    /// To the writer of this recorder, or to the first.
    fn write(&self, recorder: u16, record: Record) {
        let first = || self.writers.values().next();
        let writer = self.writers.get(&recorder).or_else(first);
        let writer = writer.expect("who recorded requests is in the recording");
        while writer.status().buffered_records > WAITING_MAX {
            std::thread::sleep(Duration::from_millis(5));
        }
        writer.record(record);
    }

    fn close(&mut self) -> Result<(), ShareError> {
        for (_, writer) in std::mem::take(&mut self.writers) {
            if writer.status().lost_something() {
                return Err(ShareError::Lost);
            }
            writer.close()?;
        }
        Ok(())
    }
}

struct Sharing<'a> {
    trace: &'a Trace,
    start: &'a Start,
    rules: &'a Rules,
    redactor: Redactor,
    out: Out,
    ids: BTreeSet<RequestId>,
    shapes: BTreeSet<ShapeId>,
    done: Share,
}

impl Sharing<'_> {
    fn requests(&mut self) -> Result<(), ShareError> {
        let filter = RequestFilter {
            arrived: Some(self.start.plan.period.clone()),
            ..RequestFilter::default()
        };
        for request in self.trace.requests(filter) {
            // As it came: what is left of secrets is then hashed as it is in the base.
            let mut request = self.trace.with_secrets(request?);
            self.redactor.request(&mut request);
            for call in &mut request.calls {
                self.redactor.call(call);
            }
            self.answer(&mut request);
            self.ids.insert(request.id);
            self.done.requests += 1;
            self.out
                .write(request.id.recorder(), Record::Request(request));
        }
        Ok(())
    }

    fn answer(&mut self, request: &mut Request) {
        let Response::Answered {
            headers,
            body,
            body_digest,
            body_bytes,
            ..
        } = &mut request.response
        else {
            return;
        };
        let Some(kept) = body else {
            // Its digest is over what the recorder's rules left.
            if *body_bytes > 0 && !self.as_recorded() {
                self.done.not_compared += 1;
                request.response = Response::Broken {
                    reason: "its body was not kept, and may hold what was left out later"
                        .to_owned(),
                };
            }
            return;
        };
        if let Some(redacted) = self.redactor.response_body(headers, kept) {
            *body_digest = Digest::of(&redacted.compared);
            *body_bytes = redacted.compared.len() as u64;
            *body = redacted.kept;
        }
    }

    /// Whether all was recorded by the rules that hold now.
    fn as_recorded(&self) -> bool {
        let now: BTreeSet<&str> = self.rules.texts().collect();
        self.trace.recorders().iter().all(|recorder| {
            let then: BTreeSet<&str> = recorder.redacted.iter().map(String::as_str).collect();
            then == now
        })
    }

    fn transactions(&mut self) -> Result<(), ShareError> {
        let period = &self.start.plan.period;
        let filter = TransactionFilter {
            began: Some(period.start..i64::MAX),
            ..TransactionFilter::default()
        };
        for transaction in self.trace.transactions(filter) {
            let transaction = transaction?;
            let belongs = match transaction.request {
                Some((request, _)) => self.ids.contains(&request),
                None => transaction.began < period.end,
            };
            if belongs {
                self.transaction(transaction);
            }
        }
        Ok(())
    }

    fn transaction(&mut self, mut transaction: Transaction) {
        let recorder = transaction.id.recorder();
        transaction.secrets = Secrets::None;
        transaction.server_bytes = transaction
            .server_bytes
            .map(|bytes| self.redactor.server_bytes(&bytes));
        if let Some(sent) = transaction.client_bytes.take() {
            match self.redactor.client_bytes(&sent) {
                Ok(sent) => transaction.client_bytes = Some(sent),
                Err(reason) if transaction.request.is_none() => {
                    let gap = Gap {
                        from: transaction.began,
                        to: transaction.ended,
                        cause: GapCause::Unobserved {
                            session: transaction.session,
                            reason: reason.to_owned(),
                        },
                    };
                    return self.out.write(recorder, Record::Gap(gap));
                }
                // They are for people to look at.
                Err(_) => {}
            }
        }
        self.shapes.insert(transaction.shape);
        self.done.transactions += 1;
        self.out.write(recorder, Record::Transaction(transaction));
    }

    fn small(&mut self, base: Base) {
        self.out.write(0, Record::Base(base));
        for recorder in self.trace.recorders() {
            let given = Recorder {
                // With it, every session key that was drawn could be computed.
                pins_key: None,
                // Nor can values be guessed without this one.
                values_key: None,
                redacted: self.rules.texts().map(str::to_owned).collect(),
                ..recorder.clone()
            };
            self.out.write(recorder.number, Record::Recorder(given));
        }
        let shapes = self.trace.shapes().iter();
        for shape in shapes.filter(|shape| self.shapes.contains(&shape.id)) {
            self.out.write(0, Record::Shape(shape.clone()));
        }
        let pruned = |gap: &Gap| matches!(gap.cause, GapCause::Pruned { .. });
        for gap in self.start.plan.gaps.iter().filter(|gap| !pruned(gap)) {
            self.out.write(0, Record::Gap(gap.clone()));
        }
        // Digests are over rows without the columns of the recorder's rules.
        let plan = &self.start.plan;
        let last = plan.final_state.as_ref();
        if let Some(last) = last.filter(|_| plan.reaches_end && self.as_recorded()) {
            self.done.final_state = true;
            self.out.write(0, Record::FinalState(last.clone()));
        }
    }
}
