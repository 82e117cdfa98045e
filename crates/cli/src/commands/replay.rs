//! `hindcast replay`

use std::io::IsTerminal;
use std::sync::Arc;

use hindcast_gateway::pg::DatabaseUrl;
use hindcast_replay::compare::Ignore;
use hindcast_replay::run::{Hooks, ReplayError, ReplayOptions};
use hindcast_replay::sender::Sent;
use hindcast_replay::{Plan, RestoreError, Start, StartError, Verdict, restore};
use hindcast_rewind::Options as RewindOptions;
use hindcast_trace::{RequestId, Trace};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::io::AsyncBufReadExt;
use tokio::signal::unix::{SignalKind, signal};

use super::ls::gap_line;
use crate::args::{ReplayArgs, TargetArgs};
use crate::error::{CliError, Exit};
use crate::render::verdict::page;

pub async fn run(args: ReplayArgs) -> Result<Exit, CliError> {
    let location = args.range.trace.trace.clone();
    let trace = tokio::task::spawn_blocking(move || super::open(&location))
        .await
        .expect("opening does not panic")?;
    let trace = Arc::new(trace);
    let start = Start::choose(&trace, args.range.from, args.range.to).map_err(cannot_start)?;
    refuse_gaps(&start.plan, args.range.across_gaps)?;
    let mut options = prepare(&trace, &args)?;
    let log = options.service_log.clone();

    let spinner = progress(&args, "rewinding the database");
    let rewinding = rewind_options(&trace, &args.range.target, args.range.across_gaps)?;
    let (rewound, pinned) = restore(&trace, &start, &rewinding)
        .await
        .map_err(cannot_restore)?;
    options.database = url("the rewound database", rewound.url())?;
    options.unpinned = pinned
        .active
        .then(|| pinned.unpinned.iter().map(ToString::to_string).collect());

    let mut watcher = Watcher { bar: spinner };
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| CliError::because("cannot listen for signals", &error))?;
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| CliError::because("cannot listen for signals", &error))?;
    let outcome = tokio::select! {
        outcome = hindcast_replay::run(Arc::clone(&trace), start.plan, options, &mut watcher) => outcome,
        // Dropping the replay ends the service; the rewound database goes with `rewound`.
        _ = interrupt.recv() => return Err(CliError::failed("interrupted")),
        _ = terminate.recv() => return Err(CliError::failed("interrupted")),
    };
    watcher.bar.finish_and_clear();
    let verdict = outcome.map_err(cannot_replay)?;
    show(&args, &verdict, &log)?;
    if args.run.keep {
        let kept = rewound.keep().await.map_err(|error| {
            CliError::because("the replayed database could not be kept", &error)
        })?;
        eprintln!(
            "The replayed database is kept:\n  connect   psql '{}'\n  remove    {}",
            kept.url, kept.removal
        );
        if !args.json {
            println!("database {}", kept.url);
        }
    } else {
        rewound.discard().await.map_err(|error| {
            CliError::because("the replayed database could not be removed", &error)
        })?;
    }
    Ok(if verdict.faithful {
        Exit::Success
    } else {
        Exit::Diverged
    })
}

fn prepare(trace: &Trace, args: &ReplayArgs) -> Result<ReplayOptions, CliError> {
    let recorder = trace
        .recorders()
        .iter()
        .find(|recorder| !recorder.app.is_empty());
    let recorded = |flag: &str, value: Option<&str>| {
        value.map(str::to_owned).ok_or_else(|| {
            CliError::usage(format!(
                "the recording does not say what {flag} was; give it"
            ))
        })
    };
    let app_url = recorded(
        "--app-url",
        args.run
            .app_url
            .as_deref()
            .or(recorder.map(|r| r.app.as_str())),
    )?;
    let pg_listen = recorded(
        "--pg-listen",
        args.run
            .pg_listen
            .as_deref()
            .or(recorder.map(|r| r.pg_listen.as_str())),
    )?;
    let mut ignore = Ignore::default();
    for given in &args.run.ignore {
        ignore
            .add(given)
            .map_err(|error| CliError::usage(format!("--ignore {error}")))?;
    }
    let log = args.run.app_log.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("hindcast-service-{}.log", std::process::id()))
    });
    Ok(ReplayOptions {
        service_command: Some(args.app.clone()),
        service_url: app_url
            .parse()
            .map_err(|error| CliError::usage(format!("--app-url: {error}")))?,
        service_log: log,
        pg_listen: pg_listen
            .parse()
            .map_err(|error| CliError::usage(format!("--pg-listen: {error}")))?,
        // Set once there is one.
        database: url(
            "the recorded database",
            recorder.map_or("postgres://localhost/postgres", |r| r.postgres.as_str()),
        )?,
        unpinned: None,
        sequential: args.sequential,
        keep_going: args.keep_going,
        allow_outside_writes: args.run.allow_outside_writes,
        ignore,
        debug_wait: args.debug_wait,
        stall_timeout: args.run.stall_timeout,
        compare_with: args
            .run
            .compare_with
            .as_deref()
            .map(|text| url("--compare-with", text))
            .transpose()?,
    })
}

fn url(what: &str, text: &str) -> Result<DatabaseUrl, CliError> {
    text.parse()
        .map_err(|error| CliError::usage(format!("{what}: {error}")))
}

pub fn rewind_options(
    trace: &Trace,
    target: &TargetArgs,
    across_gaps: bool,
) -> Result<RewindOptions, CliError> {
    let recorder = trace
        .recorders()
        .iter()
        .find(|recorder| !recorder.database.is_empty());
    let database = recorder
        .map(|recorder| recorder.database.clone())
        .unwrap_or_default();
    let mut options = RewindOptions::new(database);
    options.server = target
        .postgres
        .clone()
        .or(recorder.map(|recorder| recorder.postgres.clone()));
    options.folder = target.work_folder.clone();
    options.allow_unaccounted = across_gaps;
    Ok(options)
}

fn refuse_gaps(plan: &Plan, across_gaps: bool) -> Result<(), CliError> {
    if across_gaps || plan.gaps.is_empty() {
        return Ok(());
    }
    for gap in plan.gaps.iter().take(5) {
        eprintln!("{}", gap_line(gap));
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

fn cannot_replay(error: ReplayError) -> CliError {
    use hindcast_replay::service::ServiceError;
    let mut failed = CliError::because("cannot replay", &error);
    if let ReplayError::Service(
        ServiceError::Ended { last_lines, .. } | ServiceError::NotListening { last_lines, .. },
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

fn show(args: &ReplayArgs, verdict: &Verdict, log: &std::path::Path) -> Result<(), CliError> {
    if args.json {
        let text = serde_json::to_string_pretty(verdict)
            .map_err(|error| CliError::because("the verdict cannot be written", &error))?;
        println!("{text}");
    } else {
        print!("{}", page(verdict));
        if !verdict.faithful {
            println!("The service's output is in {}", log.display());
        }
    }
    if verdict.faithful && args.run.app_log.is_none() {
        let _ = std::fs::remove_file(log);
    }
    Ok(())
}

fn progress(args: &ReplayArgs, what: &'static str) -> ProgressBar {
    if args.json || !std::io::stderr().is_terminal() {
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

struct Watcher {
    bar: ProgressBar,
}

impl Hooks for Watcher {
    fn progress(&mut self, sent: Sent) {
        self.bar.set_message("replaying requests");
        self.bar.set_length(sent.of);
        self.bar.set_position(sent.done);
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
