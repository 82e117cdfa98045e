//! `hindcast see`

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use hindcast_replay::see::{Moment, SeeError, SeeOptions, View, ViewError, see};
use hindcast_replay::{Start, restore};
use hindcast_rewind::Rewound;
use hindcast_trace::{Isolation, Trace, Transaction};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::ls::unreadable;
use super::setting::{self, Watcher};
use super::show;
use crate::args::SeeArgs;
use crate::error::{CliError, Exit};
use crate::render::{see as page, verdict};

pub async fn run(args: SeeArgs) -> Result<Exit, CliError> {
    let mut signals = Signals::catch()?;
    let (shown, rewound) = tokio::select! {
        made = make(&args) => made?,
        // Dropping it ends the service, and what was rewound goes.
        () = signals.any() => return Err(CliError::failed("interrupted")),
    };
    let exit = match args.url || args.json {
        true => offer(&args, &shown, &rewound, &mut signals).await,
        false => psql(&args, &shown, &rewound, &mut signals).await?,
    };
    setting::put_away(rewound, args.keep, args.json).await?;
    Ok(exit)
}

/// A transaction at a moment.
struct Shown {
    transaction: Transaction,
    moment: Moment,
    statements: Vec<String>,
}

/// Rewinds, and replays up to what the transaction saw.
async fn make(args: &SeeArgs) -> Result<(Shown, Rewound), CliError> {
    let id = match args.asked() {
        Some(Ok(id)) => id,
        Some(Err(request)) => {
            return Err(CliError::usage(format!(
                "{request} is a request, and a transaction is needed"
            ))
            .hint(format!(
                "`hindcast show {request}` lists its transactions: t…"
            )));
        }
        None => {
            return Err(CliError::usage(format!("{:?} is no transaction", args.transaction))
                .hint("`hindcast see t42` shows what transaction 42 saw; `hindcast show` of a request lists its transactions"));
        }
    };
    let trace = setting::open(&args.trace).await?;
    let transaction = show::transaction(&trace, id)?;
    let moment = args.statement.unwrap_or(Moment::Snapshot);
    let view = View::of(&trace, &transaction, moment).map_err(cannot_tell)?;
    let range = view.range(&trace).map_err(unreadable)?;
    let (from, to) = range.map_or((None, None), |range| {
        (Some(*range.start()), Some(*range.end()))
    });
    let mut start = Start::choose(&trace, from, to).map_err(setting::cannot_start)?;
    let covered = view.narrow(&mut start.plan);
    setting::refuse_gaps(&trace, &start.plan, args.across_gaps)?;
    if !covered {
        return Err(cannot_see(args, SeeError::NotCovered(id)));
    }
    let mut options = SeeOptions {
        setting: setting::setting(&trace, &start.plan, args.app.as_deref(), &args.service)?,
        keep_going: args.keep_going,
    };
    let log = options.setting.service_log.clone();
    let mut watcher = Watcher::new(args.json, "replaying requests");
    let rewinding = setting::rewind_options(&trace, &start.plan, &args.target, args.across_gaps)?;
    let (rewound, pinned) = restore(&trace, &start, &rewinding)
        .await
        .map_err(setting::cannot_restore)?;
    options.setting.use_database(rewound.url().clone(), &pinned);
    let seen = see(Arc::clone(&trace), start.plan, &view, options, &mut watcher).await;
    watcher.finish();
    let divergences = seen.map_err(|error| cannot_see(args, error))?;
    if args.service.app_log.is_none() {
        let _ = std::fs::remove_file(&log);
    }
    if let Some(first) = divergences.first() {
        eprintln!("{}", verdict::divergence(first));
        eprintln!(
            "Warning: the replay went otherwise than recorded, so this may not be what was seen."
        );
    }
    let shown = Shown {
        statements: statements(&trace, &transaction),
        transaction,
        moment,
    };
    warn(&shown);
    Ok((shown, rewound))
}

fn statements(trace: &Trace, transaction: &Transaction) -> Vec<String> {
    let shape = trace.shape(transaction.shape);
    shape
        .map(|shape| shape.statements.clone())
        .unwrap_or_default()
}

/// What the recording does not tell.
fn warn(shown: &Shown) {
    let later = shown.moment != Moment::Snapshot;
    let unknown = shown.transaction.statement_snapshots.is_empty() && shown.statements.len() > 1;
    if later && unknown && shown.transaction.isolation == Isolation::ReadCommitted {
        eprintln!(
            "Warning: under READ COMMITTED each statement has a snapshot of its own. This recording has that of the first only: \
             what others committed in between was seen, and is not here. With the extension it has all of them."
        );
    }
}

fn cannot_tell(error: ViewError) -> CliError {
    let hint = match &error {
        ViewError::NoSnapshot(_) => "it read nothing, or the recording has a gap there: `hindcast ls` lists gaps".to_owned(),
        ViewError::NoStatements(_) => "without --statement, it can be shown what its snapshot saw".to_owned(),
        ViewError::NoSuchStatement { transaction, .. } => {
            format!("`hindcast show t{transaction}` lists and counts its statements")
        }
        ViewError::Aborted(_) => {
            "without --statement, it can be shown what its snapshot saw, which is all but its own writes".to_owned()
        }
    };
    CliError::because("it cannot be told what was seen there", &error).hint(hint)
}

fn cannot_see(args: &SeeArgs, error: SeeError) -> CliError {
    let what = format!("cannot show what {} saw", args.transaction);
    if let SeeError::Replay(error) = error {
        return setting::cannot_run(&what, error);
    }
    let mut failed = CliError::because(&what, &error);
    let hint = match &error {
        SeeError::Diverged(first) => {
            eprintln!("{}", verdict::divergence(first));
            failed.exit = Exit::Diverged;
            "with --keep-going it is shown all the same, and may not be what was seen"
        }
        SeeError::Stuck { .. } => {
            failed.exit = Exit::Diverged;
            "`hindcast replay` of the same requests says more; a slow service may need --stall-timeout"
        }
        SeeError::Exited { last_lines, .. } => {
            failed = failed.detail("its last words", last_lines);
            failed.exit = Exit::Diverged;
            "try the command that starts the service by hand"
        }
        SeeError::NotReached | SeeError::OtherStatements => {
            failed.exit = Exit::Diverged;
            "`hindcast replay` of the same requests says where the service does something else"
        }
        SeeError::OwnWrites { .. } => "choose another statement: `end` is after its last one",
        SeeError::InOneText => "choose the first statement of that text, or the next one behind it",
        SeeError::NotCovered(_) => {
            "nothing before the first request is replayed from a backup with archived WAL"
        }
        SeeError::Control(_) | SeeError::Ask(_) | SeeError::Remaining | SeeError::Replay(_) => {
            return failed;
        }
    };
    failed.hint(hint)
}

/// Says how to connect, and stays until it is told to end.
async fn offer(args: &SeeArgs, shown: &Shown, rewound: &Rewound, signals: &mut Signals) -> Exit {
    let url = rewound.url();
    match args.json {
        true => println!("{}", page::json(&shown.transaction, shown.moment, url)),
        false => {
            print!(
                "{}",
                page::heading(&shown.transaction, shown.moment, &shown.statements)
            );
            println!("  connect   psql '{url}'");
            println!("{} Ctrl-C ends this.", fate(args));
        }
    }
    signals.any().await;
    Exit::Success
}

fn fate(args: &SeeArgs) -> &'static str {
    match args.keep {
        true => "It is a copy, and stays.",
        false => "It is a copy, and is removed at the end.",
    }
}

/// Starts psql, and waits for its end.
async fn psql(
    args: &SeeArgs,
    shown: &Shown,
    rewound: &Rewound,
    signals: &mut Signals,
) -> Result<Exit, CliError> {
    let mut command = Command::new(program(rewound));
    rewound.url().hand_to(command.as_std_mut());
    let prompt = format!("t{} %R%x%# ", shown.transaction.id);
    for name in ["PROMPT1", "PROMPT2"] {
        command.arg("-v").arg(format!("{name}={prompt}"));
    }
    command.args(&args.psql).kill_on_drop(true);
    // SAFETY: it only makes a system call. We are the main thread, and the process ends with it.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    if args.psql.is_empty() {
        eprint!(
            "{}",
            page::heading(&shown.transaction, shown.moment, &shown.statements)
        );
        eprintln!("  connect   psql '{}'\n{}", rewound.url(), fate(args));
    }
    match command.spawn() {
        Ok(child) => until_ended(child, signals).await,
        Err(error) if error.kind() == ErrorKind::NotFound && args.psql.is_empty() => {
            eprintln!("There is no psql here. Use another client; Ctrl-C ends this.");
            signals.any().await;
            Ok(Exit::Success)
        }
        Err(error) => Err(CliError::because("cannot start psql", &error)
            .hint("with --url, any other client can be used")),
    }
}

/// The server's own if it is a private one, which is of its version.
fn program(rewound: &Rewound) -> PathBuf {
    let own = rewound
        .cluster()
        .map(|cluster| cluster.binaries().program("psql"));
    own.filter(|path| path.is_file())
        .unwrap_or_else(|| "psql".into())
}

async fn until_ended(mut child: Child, signals: &mut Signals) -> Result<Exit, CliError> {
    let ended = |ended: std::io::Result<ExitStatus>| {
        let status =
            ended.map_err(|error| CliError::because("psql cannot be waited for", &error))?;
        Ok(status
            .code()
            .map_or(Exit::Failed, |code| Exit::Program(code as u8)))
    };
    // Ctrl-C is for psql, which hears it as well: it cancels a query.
    tokio::select! {
        status = child.wait() => ended(status),
        () = signals.terminated() => {
            let _ = child.kill().await;
            Err(CliError::failed("interrupted"))
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> Result<Self, CliError> {
        let catch = |kind| {
            signal(kind).map_err(|error| CliError::because("cannot listen for signals", &error))
        };
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: catch(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }

    async fn terminated(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
