//! What a run of the service against a rewound database needs from the command line, for `replay`
//! and `retro`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use hindcast_pg::DatabaseUrl;
use hindcast_replay::compare::Ignore;
use hindcast_replay::place::Place;
use hindcast_replay::run::{Hooks, ReplayError, Setting};
use hindcast_replay::sender::Sent;
use hindcast_replay::{Plan, RestoreError, StartError};
use hindcast_rewind::pins::Pinned;
use hindcast_rewind::{Options as RewindOptions, Rewound};
use hindcast_trace::{Gap, GapCause, Recorder, RequestId, Trace};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::io::AsyncBufReadExt;
use tokio::signal::unix::{SignalKind, signal};

use super::launch;
use crate::args::{RunArgs, ServiceArgs, TargetArgs, TraceArg};
use crate::error::CliError;

pub async fn open(args: &TraceArg) -> Result<Arc<Trace>, CliError> {
    let args = args.clone();
    let trace = tokio::task::spawn_blocking(move || super::open(&args))
        .await
        .expect("opening does not panic")?;
    Ok(Arc::new(trace))
}

/// Where the service and its database are to be. The database itself is filled in when there is
/// one.
pub fn setting(
    trace: &Trace,
    plan: &Plan,
    app: Option<&str>,
    args: &ServiceArgs,
) -> Result<Setting, CliError> {
    let is_inside = |recorder: &Recorder| !recorder.command.is_empty();
    let recorder = recorder(trace, plan, |it| is_inside(it) || !it.app.is_empty());
    let inside = recorder.filter(|recorder| is_inside(recorder));
    let database = |recorder: Option<&Recorder>| {
        let url_of = recorder.map_or("postgres://localhost/postgres", |r| r.postgres.as_str());
        url("the recorded database", url_of)
    };
    let (app_url, pg_listen) = match inside {
        // Both are found when there is a service.
        Some(_) => ("http://127.0.0.1".to_owned(), ":0".to_owned()),
        None => addresses(recorder, args)?,
    };
    if inside.is_none() && app.is_none() {
        return Err(
            CliError::usage("how is the service started? The recording does not say")
                .hint("give it with --app COMMAND"),
        );
    }
    Ok(Setting {
        service_command: app.map(str::to_owned),
        launch: inside.map(|inside| launch::of(inside, args)).transpose()?,
        service: app_url
            .parse()
            .map(Place::Tcp)
            .map_err(|error| CliError::usage(format!("--app-url: {error}")))?,
        service_log: args.app_log.clone().unwrap_or_else(default_log),
        pg_listen: pg_listen
            .parse()
            .map_err(|error| CliError::usage(format!("--pg-listen: {error}")))?,
        database: database(recorder)?,
        pinned: Pinned::default(),
        allow_outside_writes: args.allow_outside_writes,
        isolation: None,
        stall_timeout: args.stall_timeout,
        ready: args.ready.clone(),
        pace: args.pace.into(),
        debug_wait: None,
    })
}

/// The recorder of the first request that is replayed, or the first one that will do: of a trace
/// that was recorded into again, each recording may have had another command or database.
fn recorder<'t>(
    trace: &'t Trace,
    plan: &Plan,
    will_do: impl Fn(&Recorder) -> bool,
) -> Option<&'t Recorder> {
    let own = |it: &&Recorder| it.number == plan.first.recorder();
    let recorders = trace.recorders().iter();
    let first = recorders.clone().find(own);
    first.into_iter().chain(recorders).find(|it| will_do(it))
}

/// Where a service that was recorded from outside listens, and where it finds its database.
fn addresses(
    recorder: Option<&Recorder>,
    args: &ServiceArgs,
) -> Result<(String, String), CliError> {
    let recorded = |flag: &str, given: &Option<String>, value: Option<&String>| {
        given.as_ref().or(value).cloned().ok_or_else(|| {
            CliError::usage(format!(
                "the recording does not say what {flag} was; give it"
            ))
        })
    };
    let app = recorded("--app-url", &args.app_url, recorder.map(|r| &r.app))?;
    let listen = recorder.map(|r| &r.pg_listen);
    Ok((app, recorded("--pg-listen", &args.pg_listen, listen)?))
}

fn default_log() -> PathBuf {
    std::env::temp_dir().join(format!("hindcast-service-{}.log", std::process::id()))
}

pub fn ignore(args: &RunArgs) -> Result<Ignore, CliError> {
    let mut ignore = Ignore::default();
    for given in &args.ignore {
        ignore
            .add(given)
            .map_err(|error| CliError::usage(format!("--ignore {error}")))?;
    }
    Ok(ignore)
}

pub fn compare_with(args: &RunArgs) -> Result<Option<DatabaseUrl>, CliError> {
    let given = args.compare_with.as_deref();
    given.map(|text| url("--compare-with", text)).transpose()
}

pub fn url(what: &str, text: &str) -> Result<DatabaseUrl, CliError> {
    text.parse()
        .map_err(|error| CliError::usage(format!("{what}: {error}")))
}

pub fn rewind_options(
    trace: &Trace,
    plan: &Plan,
    target: &TargetArgs,
    across_gaps: bool,
) -> Result<RewindOptions, CliError> {
    let recorder = recorder(trace, plan, |it| !it.database.is_empty());
    let database = recorder
        .map(|recorder| recorder.database.clone())
        .unwrap_or_default();
    let mut options = RewindOptions::new(database);
    let recorded = recorder.map(|recorder| recorder.postgres.as_str());
    options.server = target
        .postgres
        .as_deref()
        .or(recorded)
        .map(|text| url("--postgres", text))
        .transpose()?;
    options.folder = target.work_folder.clone();
    options.allow_unaccounted = across_gaps;
    Ok(options)
}

/// The database cannot be brought to a state that it takes removed requests to reach.
pub fn refuse_pruned(trace: &Trace, plan: &Plan) -> Result<(), CliError> {
    let pruned = |gap: &Gap| matches!(gap.cause, GapCause::Pruned { .. });
    let Some(gap) = plan.gaps.iter().find(|gap| pruned(gap)) else {
        return Ok(());
    };
    eprintln!("{}", hindcast_view::gap_text(gap));
    let failed = CliError::failed("what this range is replayed from was pruned");
    Err(match hindcast_replay::first_after_pruning(trace) {
        Ok(Some(first)) => failed.hint(format!(
            "begin with request {first}, the first after a base that is left"
        )),
        _ => failed.hint("nothing that remains can be replayed: it has no base of its own"),
    })
}

pub fn refuse_gaps(trace: &Trace, plan: &Plan, across_gaps: bool) -> Result<(), CliError> {
    refuse_pruned(trace, plan)?;
    // A doubt is said in the verdict. Where every recording of a server has some, as where its WAL
    // cannot be read, refusing would only teach to pass the flag always.
    let missing = || plan.gaps.iter().filter(|gap| !gap.cause.is_doubt());
    if across_gaps || missing().next().is_none() {
        return Ok(());
    }
    for gap in missing().take(5) {
        eprintln!("{}", hindcast_view::gap_text(gap));
    }
    Err(CliError::failed("the recording has gaps in this range").hint("choose another range, or replay all the same with --across-gaps: what is missing may show as a divergence"))
}

pub fn cannot_start(error: StartError) -> CliError {
    let hint = match &error {
        StartError::NoBase => {
            "take one with `hindcast base`, or record with `--base template`, before the first request"
        }
        StartError::BaseTooLate { .. } => {
            "choose a later range, or adopt an older backup with `hindcast base --backup`"
        }
        StartError::Plan(_) => "`hindcast ls` lists the requests",
    };
    CliError::because("cannot replay this range", &error).hint(hint)
}

pub fn cannot_restore(error: RestoreError) -> CliError {
    let hint = match &error {
        RestoreError::Rewind(error) => error.hint(),
        _ => None,
    };
    let failed = CliError::because("the database cannot be rewound", &error);
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

pub fn cannot_run(what: &str, error: ReplayError) -> CliError {
    use hindcast_replay::service::ServiceError;
    let mut failed = CliError::because(what, &error);
    if let ReplayError::Service(
        ServiceError::Ended { last_lines, .. }
        | ServiceError::NotListening { last_lines, .. }
        | ServiceError::NotReady { last_lines, .. },
    ) = &error
    {
        failed = failed.detail("its last words", last_lines);
    }
    match &error {
        ReplayError::Service(ServiceError::AlreadyThere { .. }) => failed.hint("stop the recorded service first, or let the replayed one listen elsewhere and say so with --app-url"),
        ReplayError::Service(ServiceError::Ended { .. }) => failed.hint("try the --app command by hand; while it replays, the service's database is at --pg-listen"),
        ReplayError::Service(ServiceError::NotListening { .. }) => failed.hint("say where it listens with --app-url"),
        ReplayError::Bind(_) => failed.hint("stop the recorder first, or let the service use another address and say so with --pg-listen"),
        _ => failed,
    }
}

/// Keeps a database that was worked on and says where it is, or removes it.
pub async fn put_away(rewound: Rewound, keep: bool, json: bool) -> Result<(), CliError> {
    if !keep {
        return rewound.discard().await.map_err(|error| {
            CliError::because("the rewound database could not be removed", &error)
        });
    }
    let kept = rewound
        .keep()
        .await
        .map_err(|error| CliError::because("the rewound database could not be kept", &error))?;
    eprintln!(
        "The database is kept:\n  connect   psql '{}'\n  remove    {}",
        kept.url, kept.removal
    );
    // For scripts: a terminal shows both.
    if !json && !std::io::stdout().is_terminal() {
        println!("database {}", kept.url);
    }
    Ok(())
}

fn progress(hidden: bool, what: &'static str) -> ProgressBar {
    if hidden || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {wide_bar} {pos}/{len} {eta}")
    {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

/// What it comes to; `None`: it was interrupted, and dropped. That ends the service and removes the
/// databases that were made.
pub async fn unless_interrupted<T>(run: impl Future<Output = T>) -> Result<Option<T>, CliError> {
    let catch =
        |kind| signal(kind).map_err(|error| CliError::because("cannot listen for signals", &error));
    let mut interrupt = catch(SignalKind::interrupt())?;
    let mut terminate = catch(SignalKind::terminate())?;
    tokio::select! {
        outcome = run => Ok(Some(outcome)),
        _ = interrupt.recv() => Ok(None),
        _ = terminate.recv() => Ok(None),
    }
}

pub struct Watcher {
    bar: ProgressBar,
    doing: &'static str,
    sent: Option<Sent>,
}

impl Watcher {
    pub fn new(hidden: bool, doing: &'static str) -> Self {
        let bar = progress(hidden, "rewinding the database");
        let sent = None;
        Self { bar, doing, sent }
    }

    /// What is said of a run that was interrupted.
    pub fn interrupted(self) -> CliError {
        self.bar.finish_and_clear();
        let Some(Sent { done, of, .. }) = self.sent else {
            return CliError::failed("interrupted before a request was sent");
        };
        let message = format!("interrupted when {done} of {of} requests were over with");
        CliError::failed(message)
            .hint("a run that stands still ends by itself and says what waits for what: --stall-timeout says when")
    }

    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}

impl Hooks for Watcher {
    fn progress(&mut self, sent: Sent) {
        self.sent = Some(sent);
        self.bar.set_message(self.doing);
        self.bar.set_length(sent.of);
        self.bar.set_position(sent.done);
    }

    fn begins_again(&mut self) {
        self.bar
            .set_message("rewinding the database again, knowing more");
        self.bar.set_position(0);
    }

    async fn debug_wait(&mut self, request: RequestId, process_group: Option<u32>) {
        self.bar.suspend(|| {
            eprintln!("Stopped before request {request}. What is in flight ran concurrently with it and is held.");
            if let Some(group) = process_group {
                eprintln!("  the service's processes   pgrep -g {group} -a");
                eprintln!("  attach a debugger         gdb -p $(pgrep -g {group} -n)");
            }
            eprintln!("Press Enter to send it.");
        });
        let mut line = String::new();
        let _ = tokio::io::BufReader::new(tokio::io::stdin())
            .read_line(&mut line)
            .await;
    }
}
