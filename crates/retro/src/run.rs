//! Puts the parts together: from a recording, changed code and wishes to a report.
//!
//! ```text
//!   rewind, migrate, pin ──▶ select ──▶ run ──┬─▶ compare with the original final state ──▶ report
//!        ▲                                    │
//!        └── again, knowing more ◀────────────┘  a table outside the closure was touched;
//!                                                a transaction was taken for another
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hindcast_order::retroaction::Retroaction;
use hindcast_order::{Levels, Request, Tx};
use hindcast_pg::ConnectError;
use hindcast_replay::changes::{Changes, Learned};
use hindcast_replay::compare::Ignore;
use hindcast_replay::coordinator::Coordinator;
use hindcast_replay::hold::Code;
use hindcast_replay::recording::{Fate, LoadError, RecordedTransaction, Scope};
use hindcast_replay::redacted::Redacted;
use hindcast_replay::run::{End, Ran, Run};
use hindcast_replay::shapes::Shapes;
use hindcast_replay::verdict;
use hindcast_replay::{Hooks, Recording, ReplayError, ReplayOptions, Setting, Start};
use hindcast_rewind::{Options as RewindOptions, Rewound};
use hindcast_state::StateError;
use hindcast_trace::{self as trace, Gap, Micros, ReadError, RequestId, Trace};

use crate::baseline::{self, BaselineError, Choice, Original};
use crate::causes::{self, Provenance};
use crate::checks;
use crate::comparison::{Comparison, now};
use crate::correction::{self, CorrectionError};
use crate::database::{self, Migration, PrepareError, Prepared};
use crate::dependents::Readers;
use crate::drawn::Drawn;
use crate::noise::Window;
use crate::outcome;
use crate::report::*;
use crate::responses::{self, Collector};
use crate::rows;
use crate::selection::{self, SelectError, Selector, Wishes};

/// What to do.
pub struct Options {
    pub setting: Setting,
    pub rewinding: RewindOptions,
    pub migrations: Vec<Migration>,
    /// Requests that are left out.
    pub skip: BTreeSet<RequestId>,
    pub selection: Wishes,
    pub checks: Vec<String>,
    pub baseline: Choice,
    pub ignore: Ignore,
    /// Where to write the row changes that would bring today's database to the corrected past.
    pub correction: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum RetroError {
    #[error("the recording cannot be read")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Select(#[from] SelectError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Baseline(#[from] BaselineError),
    #[error("the final states cannot be compared")]
    State(#[from] StateError),
    #[error("the rewound database cannot be asked")]
    Connect(#[from] ConnectError),
    #[error("the rewound database cannot be asked")]
    Ask(#[source] hindcast_pg::Error),
    #[error("the correction script {} cannot be written", path.display())]
    Script {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Correction(#[from] CorrectionError),
}

/// Runs changed code on what `start` plans, and compares.
///
/// Returns the database that it left behind, too. The future may be dropped at any time: everything
/// that was started or made goes with it.
pub async fn retroact(
    trace: Arc<Trace>,
    start: Start,
    options: Options,
    hooks: &mut impl Hooks,
) -> Result<(Report, Rewound), RetroError> {
    let started = Instant::now();
    let mut learned = Learned::default();
    let mut wishes = options.selection.clone();
    let (mut restarts, mut runs) = (0, 0);
    loop {
        let preparing = Instant::now();
        if runs > 0 {
            hooks.begins_again();
        }
        runs += 1;
        learned.is_final = runs >= RUNS_MAX;
        let prepared =
            database::prepare(&trace, &start, &options.rewinding, &options.migrations).await?;
        let selector = select(&trace, &start, &options, &wishes, &prepared).await?;
        let attempt = Attempt {
            trace: &trace,
            start: &start,
            options: &options,
            selector: &selector,
            learned: learned.clone(),
        };
        let done = attempt.run(&prepared, hooks).await?;
        if let Some(more) = done.changes.outdated() {
            // A transaction was taken for another one. Now that this is known, it will not be.
            learned = more.clone();
            continue;
        }
        if selector.is_probe() && matches!(done.end, End::Done) {
            let modified = selection::modified(&selector, &done.recording, &done.changes);
            wishes.learned.modified = Some(modified);
            continue;
        }
        let client = database::connect(prepared.rewound.url()).await?;
        database::end_sessions(&client)
            .await
            .map_err(RetroError::Ask)?;
        let touched = selector.touched(&client).await?;
        if matches!(done.end, End::Done)
            && let Some(outside) = selector.outside(&touched)
        {
            wishes.learned.touches.extend(outside);
            restarts += 1;
            continue;
        }
        let spent = Spent {
            prepare: preparing.elapsed().saturating_sub(done.ran.took),
            before: preparing.duration_since(started),
            runs: runs - 1,
        };
        let selection = selector.report(restarts, &touched);
        let report = attempt
            .report(done, &prepared, &client, selection, spent)
            .await?;
        drop(client);
        tracing::debug!(
            seconds = started.elapsed().as_secs_f64(),
            restarts,
            "retroaction is over"
        );
        return Ok((report, prepared.rewound));
    }
}

/// So often a retroaction begins again at most because a transaction was taken for another one.
const RUNS_MAX: u32 = 8;

/// The time until the run that counts.
struct Spent {
    prepare: Duration,
    /// On runs that were given up, with their preparation.
    before: Duration,
    runs: u32,
}

/// Decides what is executed, before anything has touched the rewound database.
async fn select(
    trace: &Trace,
    start: &Start,
    options: &Options,
    wishes: &Wishes,
    prepared: &Prepared,
) -> Result<Selector, RetroError> {
    let client = database::connect(prepared.rewound.url()).await?;
    let with_tables = options.correction.is_some();
    let migrated = &prepared.migrated;
    let selector =
        Selector::new(trace, &start.plan, wishes, migrated, with_tables, &client).await?;
    database::watch_deletions(&client, prepared.pinned.active)
        .await
        .map_err(RetroError::Ask)?;
    Ok(selector)
}

/// One run from the beginning.
struct Attempt<'a> {
    trace: &'a Arc<Trace>,
    start: &'a Start,
    options: &'a Options,
    selector: &'a Selector,
    learned: Learned,
}

/// What a run leaves.
struct Done {
    end: End,
    ran: Ran,
    recording: Arc<Recording>,
    levels: Levels,
    changes: Changes,
    collector: Arc<Collector>,
    window: Window,
    in_flight: Vec<Request>,
    answered: u64,
    waits: Vec<String>,
    last_lines: Vec<String>,
    refused: BTreeMap<String, u64>,
    read_committed: u64,
    /// Reads that moved, and their statements.
    moved: Option<(u64, Vec<String>)>,
    /// Statements that draw or read what is not recorded.
    unpinned: Vec<String>,
}

impl Done {
    fn moved_reads(&self) -> Option<Remark> {
        let (reads, statements) = self.moved.clone()?;
        Some(Remark::MovedReads { reads, statements })
    }
}

impl Attempt<'_> {
    fn load(&self) -> Result<(Coordinator, Levels), LoadError> {
        let plan = Arc::new(self.start.plan.clone());
        let shapes = Arc::new(Shapes::of(self.trace));
        let skip = &self.options.skip;
        let scope = Scope {
            changed: true,
            request: &|id| !skip.contains(&id) && self.selector.executes(id),
            ghost: &|shape| self.selector.executes_ghost(shape),
            look: None,
        };
        // This takes a while for long recordings. No other task waits for this thread.
        let (recording, levels, locks) = Recording::load(self.trace, &plan, &shapes, &scope)?;
        let retroaction = Retroaction::new(levels.clone(), recording.past(), locks);
        let changes = Changes::new(self.learned.clone());
        let coordinator =
            Coordinator::changed(Arc::new(recording), plan, retroaction, changes, shapes);
        Ok((coordinator, levels))
    }

    async fn run(&self, prepared: &Prepared, hooks: &mut impl Hooks) -> Result<Done, RetroError> {
        let (coordinator, levels) = self.load()?;
        let recording = Arc::clone(coordinator.recording());
        let mut setting = self.options.setting.clone();
        setting.use_database(prepared.rewound.url().clone(), &prepared.pinned);
        let code = Code::Changed {
            outside_writes: setting.allow_outside_writes,
        };
        let trace = Arc::clone(self.trace);
        let mut running = Run::start(trace, coordinator, code, setting, hooks).await?;
        let began = now();
        let collector = Arc::new(Collector::new(
            self.options.ignore.clone(),
            responses::Limits::default(),
        ));
        let original = span(&recording);
        let compare = Arc::new(Comparison {
            collector: Arc::clone(&collector),
            kinds: self.selector.kinds(),
            original,
            began,
            redacted: Redacted::of(self.trace),
        });
        let (end, ran) = running.run(compare, hooks).await?;
        let window = Window {
            original,
            run: (began, now()),
            replayed: None,
        };
        let shared = Arc::clone(&running.shared);
        let monitor = &shared.monitor;
        let in_flight: Vec<Request> = monitor.with(|coordinator| coordinator.in_flight().collect());
        let answered = monitor.with(|coordinator| coordinator.answered());
        let waits = match end {
            End::Stuck { .. } => hindcast_replay::faithful::waits(monitor, &recording),
            _ => Vec::new(),
        };
        let last_lines = match (&end, &running.service) {
            (End::Exited { .. }, Some(service)) => service.last_lines(),
            _ => Vec::new(),
        };
        running.shut_down().await;
        let read_committed = monitor.with(|coordinator| coordinator.counts().read_committed);
        let changes = monitor.with(|coordinator| coordinator.take_changes());
        let moved = monitor.with(|coordinator| coordinator.moved_reads());
        let unpinned = monitor.with(|coordinator| coordinator.unpinned_statements());
        let refused = shared
            .refused
            .lock()
            .map(|refused| refused.clone())
            .unwrap_or_default();
        Ok(Done {
            end,
            ran,
            recording,
            levels,
            changes: changes.expect("the code is changed"),
            collector,
            window,
            in_flight,
            answered,
            waits,
            last_lines,
            refused,
            read_committed,
            moved,
            unpinned,
        })
    }

    async fn report(
        &self,
        mut done: Done,
        prepared: &Prepared,
        after: &hindcast_pg::tokio::Client,
        selection: Option<Selection>,
        spent: Spent,
    ) -> Result<Report, RetroError> {
        let comparing = Instant::now();
        let (state, checks) = self.compare_states(&mut done, prepared, after).await?;
        let kinds = self.selector.kinds();
        let (transactions, mut remarks) =
            outcome::transactions(self.trace, &done.recording, &done.changes, &*kinds);
        remarks.extend(self.remarks(&done, prepared));
        let requests = self.requests(&done.recording)?;
        let counts = counts(&done, &requests);
        let same = counts.responses_changed == 0
            && done.changes.differing.is_empty()
            && state.tables.iter().all(only_noise)
            && state.incomparable.is_empty()
            && counts.requests_skipped == 0
            && self.options.migrations.is_empty();
        if !same {
            let drawn = std::mem::take(&mut done.unpinned).into_iter();
            remarks.extend(drawn.map(|what| Remark::NotPinned { what }));
        }
        let collector = Arc::into_inner(done.collector).expect("nothing is compared any more");
        let responses = collector.finish();
        let types = self.types(&done.recording, &done.changes, &responses);
        let in_flight = ids(&done.recording, &done.in_flight);
        let outcome = match done.end {
            End::Exited { status } => Outcome::Stopped {
                why: Stopped::ServiceExited {
                    status,
                    last_lines: done.last_lines,
                    in_flight,
                },
            },
            End::Stuck { after } => Outcome::Stopped {
                why: Stopped::Hung {
                    after_s: after.as_secs_f64(),
                    in_flight,
                    waits: done.waits,
                },
            },
            End::Done if same => Outcome::Faithful,
            End::Done => Outcome::Different,
        };
        let plan = &self.start.plan;
        Ok(Report {
            from: *plan.range.start(),
            to: *plan.range.end(),
            outcome,
            types,
            counts,
            selection,
            responses,
            transactions,
            state,
            checks,
            timing: Timing {
                prepare_us: micros(spent.prepare),
                run_us: micros(done.ran.took),
                compare_us: micros(comparing.elapsed()),
                original_us: requests.last.saturating_sub(requests.first).max(0),
                runs_given_up: spent.runs,
                given_up_us: micros(spent.before),
            },
            remarks,
            change: self.change(),
        })
    }

    /// Compares what the run left with the original final state, and writes the correction.
    async fn compare_states(
        &self,
        done: &mut Done,
        prepared: &Prepared,
        after: &hindcast_pg::tokio::Client,
    ) -> Result<(State, Vec<Check>), RetroError> {
        let deletions = database::deletions(after).await.map_err(RetroError::Ask)?;
        let asked = now();
        let Original {
            client: before,
            against,
            rewound: baseline,
        } = self.original().await?;
        let window = Window {
            replayed: matches!(against, Baseline::Replayed { .. }).then(|| (asked, now())),
            ..done.window
        };
        let provenance = Provenance {
            original: causes::Original::of(self.trace, self.start.plan.period.clone())?,
            original_ids: against == Baseline::RecordedDatabase,
            writers: std::mem::take(&mut done.changes.writers),
            deletions,
            preparation: prepared.preparation.clone(),
            recording: Arc::clone(&done.recording),
            kinds: self.selector.kinds(),
        };
        let recorded = self
            .trace
            .shapes()
            .iter()
            .flat_map(|shape| &shape.statements);
        let drawn = Drawn::of(recorded.chain(done.changes.shapes.values().flatten()));
        let only = self.selector.tables();
        let compared = match &before {
            Some(before) => {
                let limits = rows::Limits::default();
                let only = only.as_ref();
                let noise = rows::Reasons {
                    window: &window,
                    drawn: &drawn,
                    ids: &done.ran.ids,
                };
                rows::compare_states(before, after, only, &provenance, noise, &limits).await?
            }
            None => rows::Compared::default(),
        };
        let mut checks = Vec::new();
        for sql in &self.options.checks {
            let limits = checks::Limits::default();
            checks.push(checks::check(before.as_ref(), after, sql, &limits).await);
        }
        if let (Some(path), Some(before)) = (&self.options.correction, &before) {
            let failed = |source| RetroError::Script {
                path: path.clone(),
                source,
            };
            let file = hindcast_private::create(path).map_err(failed)?;
            let mut script = std::io::BufWriter::new(file);
            let readers = Readers::new(&done.changes, &done.recording, &done.levels, self.selector);
            let options = correction::Options {
                about: self.about(),
                only: only.as_ref(),
                without_noise: Some(window),
                ids: &done.ran.ids,
            };
            correction::write(before, after, &provenance, &readers, &options, &mut script).await?;
            std::io::Write::flush(&mut script).map_err(failed)?;
        }
        drop(before);
        if let Some(baseline) = baseline {
            // A database that cannot be removed now is removed with the next one that is made.
            let _ = baseline.discard().await;
        }
        Ok((compared.into_state(against), checks))
    }

    async fn original(&self) -> Result<Original, BaselineError> {
        let replaying = || ReplayOptions {
            setting: self.options.setting.clone(),
            sequential: false,
            keep_going: true,
            ignore: self.options.ignore.clone(),
            compare_with: None,
            recorded_database: None,
            values: true,
        };
        let (choice, rewinding) = (&self.options.baseline, &self.options.rewinding);
        baseline::find(self.trace, self.start, choice, rewinding, replaying).await
    }

    fn change(&self) -> Change {
        let options = self.options;
        let recorded = options.setting.launch.as_ref();
        let command = options
            .setting
            .service_command
            .as_ref()
            .or(recorded.map(|launch| &launch.command))
            .map_or("", String::as_str);
        let isolation = options.setting.isolation.map(trace::Isolation::name);
        let named = options.skip.iter().map(ToString::to_string);
        Change {
            app: hindcast_pg::secret::masked(command),
            migrations: options
                .migrations
                .iter()
                .map(|one| one.name.clone())
                .collect(),
            isolation: isolation.map(str::to_owned),
            skipped: named
                .chain(options.selection.skip.iter().cloned())
                .collect(),
        }
    }

    /// Lines for the head of the correction script.
    fn about(&self) -> Vec<String> {
        let change = self.change();
        let range = &self.start.plan.range;
        let mut about = vec![format!(
            "requests {} to {} with: {}",
            range.start(),
            range.end(),
            change.app
        )];
        about.extend(
            change
                .migrations
                .iter()
                .map(|name| format!("migration: {name}")),
        );
        about
    }

    fn remarks(&self, done: &Done, prepared: &Prepared) -> Vec<Remark> {
        let mut remarks = Vec::new();
        if done.read_committed > 0 {
            remarks.push(Remark::ReadCommitted {
                transactions: done.read_committed,
            });
        }
        if done.changes.counts.isolation > 0 {
            remarks.push(Remark::OtherIsolation {
                transactions: done.changes.counts.isolation,
            });
        }
        remarks.extend(done.moved_reads());
        if done.changes.counts.mistaken > 0 {
            remarks.push(Remark::TakenForOthers {
                transactions: done.changes.counts.mistaken,
            });
        }
        if done.changes.counts.let_go > 0 {
            remarks.push(Remark::LetGo {
                transactions: done.changes.counts.let_go,
                hint: format!(
                    "with {} database connections the recorded service would not have stood in its own way",
                    hindcast_replay::sender::connections_needed(&done.recording)
                ),
            });
        }
        let unattributed = done.recording.unattributed();
        if unattributed > 0 {
            remarks.push(Remark::UnattributedTransactions {
                transactions: unattributed,
            });
        }
        let plan = &self.start.plan;
        let crossed = |gap: &Gap| Remark::CrossedGap { gap: gap.clone() };
        remarks.extend(plan.gaps.iter().map(crossed));
        remarks.extend(plan.left_out().map(|until| Remark::LeftOut { until }));
        let pauses = plan.pauses.iter();
        remarks.extend(pauses.map(|&pause| Remark::CrossedPause { pause }));
        remarks.extend(done.refused.iter().map(|(statement, &times)| {
            Remark::OutsideWriteRefused {
                statement: statement.clone(),
                times,
            }
        }));
        let not_pinned = done.recording.not_pinned(&prepared.pinned).into_iter();
        remarks.extend(not_pinned.map(|what| Remark::NotPinned { what }));
        remarks.extend(done.ran.remarks.iter().filter_map(of_replay));
        if let Some(found) = self.selector.modified_found() {
            remarks.push(Remark::ModifiedFound {
                types: found.clone(),
            });
        }
        remarks
    }

    /// How many requests the plan has, and what became of them.
    fn requests(&self, recording: &Recording) -> Result<Requests, ReadError> {
        let mut requests = Requests {
            first: Micros::MAX,
            last: Micros::MIN,
            ..Requests::default()
        };
        for request in self.start.plan.requests(self.trace) {
            let request = request?;
            if !self.start.plan.compares(request.id, request.arrived) {
                continue;
            }
            requests.all += 1;
            requests.first = requests.first.min(request.arrived);
            requests.last = requests.last.max(request.ended);
            if recording.find(request.id).is_some() {
                continue;
            }
            if self.options.skip.contains(&request.id) || self.selector.skips(request.id) {
                requests.skipped += 1;
            } else {
                requests.not_selected += 1;
            }
        }
        Ok(requests)
    }

    /// By kind of request, those with differences first.
    fn types(
        &self,
        recording: &Recording,
        changes: &Changes,
        responses: &Responses,
    ) -> Vec<TypeSummary> {
        let mut types: BTreeMap<String, TypeSummary> = BTreeMap::new();
        for (name, requests) in self.selector.types() {
            types.insert(
                name.clone(),
                TypeSummary {
                    name,
                    requests,
                    executed: 0,
                    responses_changed: 0,
                    transactions_changed: 0,
                },
            );
        }
        let kinds = self.selector.kinds();
        for request in &recording.requests {
            if let Some(summary) = types.get_mut(kinds.of(request.id)) {
                summary.executed += 1;
            }
        }
        for difference in &changes.differing {
            if let Some(request) = difference.request
                && let Some(summary) = types.get_mut(kinds.of(recording.request(request).id))
            {
                summary.transactions_changed += 1;
            }
        }
        for group in &responses.groups {
            // A group is of one kind of request, whose name it begins with.
            let of = group.what.rsplit_once(": ").map(|_| &group.what);
            let longest = types
                .keys()
                .filter(|name| of.is_some_and(|what| what.starts_with(&format!("{name}:"))))
                .max_by_key(|name| name.len())
                .cloned();
            if let Some(summary) = longest.and_then(|name| types.get_mut(&name)) {
                summary.responses_changed += group.count;
            }
        }
        let mut types: Vec<_> = types.into_values().collect();
        types.sort_by_key(|of| {
            std::cmp::Reverse((of.responses_changed + of.transactions_changed, of.executed))
        });
        types
    }
}

#[derive(Default)]
struct Requests {
    first: Micros,
    last: Micros,
    all: u64,
    skipped: u64,
    not_selected: u64,
}

fn counts(done: &Done, requests: &Requests) -> Counts {
    let counted = done.changes.counts;
    let recording = &done.recording;
    let of_requests = |one: &&RecordedTransaction| one.request.is_some();
    let transactions = recording.transactions.iter().filter(of_requests);
    let ran = |tx: &Tx| recording.transaction(*tx).fate != Fate::Aborted;
    let transactions = transactions.count() as u64;
    let all = recording.requests.len() as u64;
    let (executed, unanswered, not_over) = match done.end {
        End::Done => (all, 0, 0),
        // Their transactions are counted when they are over.
        End::Stuck { .. } | End::Exited { .. } => {
            let over = counted.over();
            let unanswered = done.in_flight.len() as u64;
            (done.answered, unanswered, transactions.saturating_sub(over))
        }
    };
    Counts {
        requests: requests.all,
        requests_executed: executed,
        requests_unanswered: unanswered,
        requests_not_sent: all.saturating_sub(executed + unanswered),
        not_over,
        requests_skipped: requests.skipped,
        requests_not_selected: requests.not_selected,
        responses_changed: done.collector.changed(),
        transactions,
        same: counted.same,
        same_failure: counted.same_failure,
        changed: counted.statements + counted.results + counted.fails_otherwise,
        deleted: counted.deleted,
        added: counted.added,
        retries: counted.retries,
        newly_failing: counted.newly_failing,
        newly_succeeding: counted.newly_succeeding,
        yielded: counted.yielded,
        let_go: counted.let_go,
        unnoticed: counted.unnoticed,
        ghosts: recording.ghosts().filter(ran).count() as u64,
    }
}

fn only_noise(table: &TableChange) -> bool {
    table.added + table.removed + table.changed == table.noise && table.columns_changed.is_empty()
}

fn ids(recording: &Recording, requests: &[Request]) -> Vec<RequestId> {
    requests
        .iter()
        .map(|&request| recording.request(request).id)
        .collect()
}

/// From the first arrival to the last response.
fn span(recording: &Recording) -> (Micros, Micros) {
    let first = recording
        .requests
        .iter()
        .map(|request| request.arrived)
        .min();
    let last = recording.requests.iter().map(|request| request.ended).max();
    (first.unwrap_or(0), last.unwrap_or(0))
}

fn micros(duration: Duration) -> Micros {
    duration.as_micros() as Micros
}

/// What a replay would say, too.
fn of_replay(remark: &verdict::Remark) -> Option<Remark> {
    match remark {
        verdict::Remark::NotSentAgain { request, reason } => Some(Remark::NotSentAgain {
            request: *request,
            reason: reason.clone(),
        }),
        verdict::Remark::Learned { learning } => Some(Remark::Learned {
            learning: *learning,
        }),
        verdict::Remark::DrawnResults {
            transactions,
            statements,
        } => Some(Remark::DrawnResults {
            transactions: *transactions,
            statements: statements.clone(),
        }),
        verdict::Remark::CallNotRecorded { what, times } => Some(Remark::CallNotRecorded {
            what: what.clone(),
            times: *times,
        }),
        verdict::Remark::CallDiffered { what, times } => Some(Remark::CallDiffered {
            what: what.clone(),
            times: *times,
        }),
        verdict::Remark::OutsideWriteUndone { statement, times } => {
            Some(Remark::OutsideWriteUndone {
                statement: statement.clone(),
                times: *times,
            })
        }
        _ => None,
    }
}
