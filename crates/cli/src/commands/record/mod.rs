//! `hindcast record`

mod backups;
mod bases;
mod left;
mod service;
mod signals;
mod started;
mod transactions;
mod unseen;

use std::convert::Infallible;
use std::fmt::Display;
use std::process::ExitStatus;
use std::time::Duration;

use hindcast_gateway::inside::InsideEnd;
use hindcast_gateway::record::{
    self, FinalStateMode, Front, RecordOptions, Recording, Started, Status, StatusReader, Summary,
    Transactions,
};
use hindcast_gateway::redact::{RuleError, Rules};
use hindcast_pg::Certificate;
use hindcast_trace::{Base, BaseKind, PublicKey, Sealer, WriterOptions};
use serde_json::json;
use tokio::signal::unix::SignalKind;
use tokio::sync::oneshot;

use self::bases::Bases;
use self::service::Service;
use self::signals::{Signals, asks_for_the_end};
use super::{base, key, recover};
use crate::allocator::Allocator;
use crate::args::{BaseMethod, FinalStateWhen, RecordArgs};
use crate::error::{CliError, Exit};
use crate::render::format::{bytes, count};
use crate::render::ghosts;

/// How often the status line is written.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// How often it is said how much is left, after the service has ended.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// What of the service's doings may always wait for a moment, in bytes.
const SPOOLED_SAID: u64 = 1 << 20;
/// How often to look whether something should be said at once.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long what a transaction sent may be to be kept with its values.
const VALUES_MAX: usize = 16 << 10;

pub async fn run(args: RecordArgs) -> Result<Exit, CliError> {
    let mut signals = Signals::catch()?;
    let inside = !args.command.is_empty();
    if inside {
        service::check(&args.command, || outside(&args))?;
    }
    let seeds = (!args.no_pins).then(service::seeds).unwrap_or_default();
    let mut options = options(&args)?;
    let bases = Bases::wanted(&args, &mut options).await?;
    options.launch = service::launch(&args.command, &seeds);
    let preload = inside.then(|| service::preload(options.pins_key.as_ref()));
    let preload = preload.transpose()?;
    let mut means = Means::default();
    if let Some(preload) = &preload {
        means.shims = preload.runtimes();
        let (chosen, said) = transactions::choose(&args, &options.postgres).await?;
        if chosen == Transactions::Gateway && transactions::may_encrypt(&options.postgres).await? {
            options.pg_identity = Some(Certificate::Generated);
        }
        options.front = Front::Inside(chosen);
        means.transactions = said;
    }
    if args.base == BaseMethod::Template {
        let place = base::place(&args.trace.trace);
        options.base = Some(
            hindcast_rewind::take_template_for(&options.postgres, place)
                .await
                .map_err(base::cannot_take)?,
        );
    }
    let taken = options.base.clone();
    let recording = record::start(options).await.map_err(|error| {
        let failed = CliError::because("cannot record", &error);
        match error.hint() {
            hint if hint.is_empty() => failed,
            hint => failed.hint(hint),
        }
    })?;
    announce(
        &args,
        recording.started(),
        taken.as_ref().map(base::describe),
        &means,
    );
    let tap = recording.started().tap.as_ref();
    let mut service = match tap
        .zip(preload)
        .map(|(tap, preload)| Service::start(&args.command, tap, &seeds, preload))
        .transpose()
    {
        Ok(service) => service,
        Err(error) => {
            recording.stop().await;
            return Err(error);
        }
    };
    let end = until_the_end(&args, &recording, &mut signals, service.as_mut());
    let end = while_taking(bases, &args, &recording, end).await;
    let exit = end.said();
    let progress = say_how_far(recording.watch());
    let summary = tokio::select! {
        summary = recording.stop() => summary,
        () = signals.once_more() => return Err(stopped_at_once()),
        never = progress => match never {},
    };
    let unseen = service.as_ref().map(Service::remarks).unwrap_or_default();
    conclude(&args, summary, taken.as_ref(), unseen)?;
    Ok(exit)
}

/// While what the service did is turned into a recording, after it has ended.
async fn say_how_far(watch: StatusReader) -> Infallible {
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let left = watch.read().spooled;
        if left > 0 {
            eprintln!(
                "{} of what the service did are still to be put into the recording. Ctrl-C gives them up.",
                bytes(left)
            );
        }
    }
}

/// Why a recording ends.
enum End {
    /// `asked`: by a signal of ours that was to end it.
    Service { status: ExitStatus, asked: bool },
    /// Nobody knows what became of the service.
    Lost(CliError),
    /// The service is not ours.
    Asked,
}

impl End {
    /// Says so; the exit code that is due.
    fn said(self) -> Exit {
        match self {
            Self::Service { status, asked } => {
                eprintln!("The service ended {}.", service::describe(status));
                match asked {
                    true => Exit::Success,
                    false => service::exit(status),
                }
            }
            Self::Lost(error) => {
                eprintln!("{error}");
                Exit::Failed
            }
            Self::Asked => {
                eprintln!("Stopping: waiting for what is in flight. Once more to stop at once.");
                Exit::Success
            }
        }
    }
}

/// Bases are taken meanwhile, if they are wanted. One that is being written at the end is waited
/// for.
async fn while_taking(
    bases: Option<Bases>,
    args: &RecordArgs,
    recording: &Recording,
    end: impl Future<Output = End>,
) -> End {
    let Some(bases) = bases else {
        return end.await;
    };
    let (over, told) = oneshot::channel::<()>();
    let recorded = async {
        let end = end.await;
        drop(over);
        end
    };
    let told = async { drop(told.await) };
    tokio::join!(recorded, bases.take(args, recording, told)).0
}

/// Until the service has ended; where it is not ours, until we are to end.
async fn until_the_end(
    args: &RecordArgs,
    recording: &Recording,
    signals: &mut Signals,
    mut service: Option<&mut Service>,
) -> End {
    recover::in_background(&args.trace);
    let mut allocator = Allocator::new();
    let mut ticks = tokio::time::interval(STATUS_INTERVAL);
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    ticks.tick().await;
    let mut last = Status::default();
    let postgres = database(args).unwrap_or_default();
    let (mut warned, mut asked) = (None, false);
    loop {
        tokio::select! {
            kind = signals.next() => match &service {
                Some(service) => {
                    asked |= asks_for_the_end(kind);
                    service.signal(kind);
                }
                None if kind == SignalKind::window_change() => {}
                None => return End::Asked,
            },
            Some(ended) = async { Some(service.as_mut()?.ended().await) } => {
                return match ended {
                    Ok(status) => End::Service { status, asked },
                    Err(error) => End::Lost(error),
                };
            }
            _ = ticks.tick() => {
                last = report(args, recording, last);
                allocator.give_back();
            }
            _ = looks.tick() => {
                warned = warn_of_ghosts(args, recording, warned);
                if let Some(service) = &mut service {
                    service.look(&args.trace.trace.to_string(), &postgres);
                }
            }
        }
    }
}

fn stopped_at_once() -> CliError {
    CliError::failed("stopped without closing the recording").hint(
        "the recording can be read all the same; its last moments may be missing, and it says so",
    )
}

fn options(args: &RecordArgs) -> Result<RecordOptions, CliError> {
    let wrong = |flag: &str, error: &dyn Display| CliError::usage(format!("{flag}: {error}"));
    let postgres = database(args)?
        .parse()
        .map_err(|error| wrong("--postgres", &error))?;
    let front = proxies(args)?.unwrap_or(Front::Inside(Transactions::Gateway));
    let mut options = RecordOptions::new(front, postgres, args.trace.trace.clone());
    options.writer = WriterOptions {
        flush_interval: args.flush_interval,
        durable: args.durable,
        roll_every: args.roll_interval,
        wal_folder: args.wal_folder.clone(),
        key: key::given(&args.trace)?,
        ..WriterOptions::default()
    };
    options.limits.response_body_max = args.response_body_max;
    options.raise_isolation = args.isolation.is_some();
    let identity = args.pg_tls_cert.clone().zip(args.pg_tls_key.clone());
    options.pg_identity =
        identity.map(|(certificate, key)| Certificate::Files { certificate, key });
    options.final_state = match args.final_state {
        FinalStateWhen::Auto => FinalStateMode::Auto,
        FinalStateWhen::Always => FinalStateMode::Always,
        FinalStateWhen::Never => FinalStateMode::Never,
    };
    options.spool_max = args.spool_max;
    if args.values {
        options.values_max = VALUES_MAX;
    }
    options.redact = redaction(args)?;
    if let Some(rule) = &args.user {
        let wrong = |error: RuleError| CliError::usage(format!("--user: {error}"));
        options.users = Rules::for_users(rule).map_err(wrong)?;
    }
    if keeps_secrets(args, &options.redact) {
        let sealer = Sealer::new(&key::for_secrets(&args.trace)?);
        let error = |error| CliError::because("what is redacted cannot be sealed", &error);
        options.sealer = Some(sealer.map_err(error)?);
    }
    options.spool_for = who_may_go_on(args);
    if !args.no_pins {
        options.pin();
    }
    Ok(options)
}

/// From outside, if there is no command to start.
fn proxies(args: &RecordArgs) -> Result<Option<Front>, CliError> {
    let wrong = |flag: &str, error: &dyn Display| CliError::usage(format!("{flag}: {error}"));
    let (Some(listen), Some(app), Some(pg_listen)) = (&args.listen, &args.app, &args.pg_listen)
    else {
        return Ok(None);
    };
    Ok(Some(Front::proxies_of(
        listen.parse().map_err(|error| wrong("--listen", &error))?,
        app.parse().map_err(|error| wrong("--app", &error))?,
        pg_listen
            .parse()
            .map_err(|error| wrong("--pg-listen", &error))?,
    )))
}

/// Where a service finds its database that is told so as most are.
const SERVICE_URL: &str = "DATABASE_URL";

/// What to do with a service into which nothing can be loaded.
fn outside(args: &RecordArgs) -> String {
    let postgres = database(args).unwrap_or_else(|_| "URL".to_owned());
    unseen::hint(&args.trace.trace.to_string(), &postgres, None)
}

fn database(args: &RecordArgs) -> Result<String, CliError> {
    if let Some(given) = &args.postgres {
        return Ok(given.clone());
    }
    let set = std::env::var(SERVICE_URL).ok();
    set.filter(|url| url.starts_with("postgres"))
        .ok_or_else(|| {
            let message = format!("which database? {SERVICE_URL} names no Postgres");
            CliError::usage(message).hint("say it with --postgres URL, or in HINDCAST_POSTGRES")
        })
}

/// Whether what is redacted can be sent by a replay.
fn keeps_secrets(args: &RecordArgs, rules: &Rules) -> bool {
    !args.drop_secrets && !rules.is_empty()
}

/// Who may read what the service did and was not recorded yet, if the recorder is killed: who can
/// read what is taken out of requests, since that is in it.
fn who_may_go_on(args: &RecordArgs) -> Option<PublicKey> {
    // What is dropped must not be on disk for anybody, and without a place for a key there is
    // nobody.
    let wanted = !args.command.is_empty() && !args.drop_secrets;
    wanted.then(|| key::for_secrets(&args.trace).ok()).flatten()
}

/// The rules of the command line, behind those that always hold.
fn redaction(args: &RecordArgs) -> Result<Rules, CliError> {
    let mut rules = match args.no_default_redaction {
        true => Rules::default(),
        false => Rules::defaults(),
    };
    let wrong = |flag: &str, error: RuleError| CliError::usage(format!("{flag}: {error}"));
    if let Some(file) = &args.redact_file {
        let text = std::fs::read_to_string(file).map_err(|error| {
            CliError::because(
                format!("cannot read the rules in {}", file.display()),
                &error,
            )
        })?;
        rules
            .add_lines(&text)
            .map_err(|error| wrong("--redact-file", error))?;
    }
    for rule in &args.redact {
        rules.add(rule).map_err(|error| wrong("--redact", error))?;
    }
    Ok(rules)
}

/// The terminal is the service's, if there is one.
fn say(args: &RecordArgs, line: std::fmt::Arguments<'_>) {
    match args.command.is_empty() {
        true => println!("{line}"),
        false => eprintln!("{line}"),
    }
}

/// How a service is recorded from inside.
#[derive(Default)]
struct Means {
    transactions: String,
    /// The runtimes in which a shim tells what a thread works on.
    shims: Vec<&'static str>,
}

fn announce(args: &RecordArgs, started: &Started, base: Option<String>, means: &Means) {
    let pg_listen = started.pg_listen.as_ref().map(ToString::to_string);
    let Means {
        transactions,
        shims,
    } = means;
    if args.json {
        println!(
            "{}",
            json!({ "event": "started", "recorder": started.recorder.number, "listen": started.listen.as_ref().map(ToString::to_string), "pg_listen": pg_listen, "transactions": transactions, "base": base, "redacted": started.recorder.redacted, "shims": shims, "warnings": started.warnings })
        );
        return;
    }
    say(
        args,
        format_args!(
            "Recording into {} as recorder {}",
            args.trace.trace, started.recorder.number
        ),
    );
    match (&started.listen, &args.app) {
        (Some(listen), Some(app)) => {
            say(args, format_args!("  requests      {listen} → {app}"));
            let gateway = pg_listen.unwrap_or_default();
            let database = &started.recorder.postgres;
            say(args, format_args!("  transactions  {gateway} → {database}"));
        }
        _ => {
            say(
                args,
                format_args!("  requests      as the service's process tells, nothing in the way"),
            );
            say(args, format_args!("  transactions  {transactions}"));
            if !shims.is_empty() {
                let shims = shims.join(", ");
                say(
                    args,
                    format_args!("  event loops   told by a shim in {shims}"),
                );
            }
        }
    }
    let none = match args.base_from {
        Some(_) => "read from the backup, at the first moment at which nothing is in flight",
        None => {
            "none: take one with `hindcast base` before the first request, or nothing can be replayed"
        }
    };
    let base = base.as_deref().unwrap_or(none);
    say(args, format_args!("  base          {base}"));
    match &started.recorder.redacted[..] {
        [] => say(
            args,
            format_args!("  redacted      nothing: --redact RULE leaves secrets out"),
        ),
        rules => {
            let shown = Rules::read(rules).map_or_else(|_| rules.join("; "), |all| all.to_string());
            let kept = match args.drop_secrets {
                true => "not kept: what checks it diverges in a replay",
                false => "sealed for a replay; --drop-secrets keeps nothing",
            };
            say(args, format_args!("  redacted      {shown} ({kept})"));
        }
    }
    for warning in &started.warnings {
        say(args, format_args!("  warning       {warning}"));
    }
    say(args, format_args!("Stop with Ctrl-C."));
}

fn report(args: &RecordArgs, recording: &Recording, last: Status) -> Status {
    let status = recording.status();
    if args.json {
        println!("{}", as_json("status", &status));
    } else if status.requests != last.requests || status.transactions != last.transactions {
        say(args, format_args!("{}", line(&status)));
    }
    if !args.json {
        warn_of_gaps(&status, &last);
    }
    if let Some(failure) = status
        .writer
        .wal_failure
        .as_ref()
        .filter(|failure| Some(*failure) != last.writer.wal_failure.as_ref())
    {
        eprintln!(
            "Warning: the recording cannot be written: {failure}. The service goes on; what is lost becomes a gap."
        );
    }
    if let Some(failure) = status
        .writer
        .segment_failure
        .as_ref()
        .filter(|failure| Some(*failure) != last.writer.segment_failure.as_ref())
    {
        eprintln!(
            "Warning: finished segments cannot be put into the recording: {failure}. They wait in the write-ahead folder."
        );
    }
    status
}

/// As soon as it is known: what writes past the recorder can be stopped, and a right be granted.
fn warn_of_gaps(status: &Status, last: &Status) {
    let past_us = status.unaccounted.saturating_sub(last.unaccounted);
    if past_us > 0 {
        eprintln!(
            "Warning: {} wrote to this database past the recorder. `hindcast ls` says which tables they wrote to",
            count(past_us, "transaction")
        );
    }
    if let Some(because) = &status.unexplained_because
        && last.unexplained == 0
    {
        eprintln!(
            "Warning: it cannot be told of every transaction whether it wrote to this database: {because}"
        );
    }
}

/// Says once for each cause that transactions belong to no request.
fn warn_of_ghosts(
    args: &RecordArgs,
    recording: &Recording,
    warned: Option<ghosts::Cause>,
) -> Option<ghosts::Cause> {
    let status = recording.status();
    let Some(cause) = ghosts::cause(&status).filter(|cause| Some(*cause) != warned) else {
        return warned;
    };
    let listen = recording.started().listen.as_ref().map(ToString::to_string);
    let front = listen.as_deref().zip(args.app.as_deref());
    eprintln!("{}", ghosts::warning(cause, &status, front));
    Some(cause)
}

fn line(status: &Status) -> String {
    let mut line = format!(
        "{}, {} ({})",
        count(status.requests, "request"),
        count(status.transactions, "transaction"),
        count(status.ghosts, "ghost")
    );
    if status.spooled > SPOOLED_SAID {
        line += &format!(", {} still to be looked at", bytes(status.spooled));
    }
    if status.writer.buffered_bytes > 0 {
        line += &format!(
            ", {} waiting to be written",
            bytes(status.writer.buffered_bytes)
        );
    }
    line
}

fn as_json(event: &str, status: &Status) -> serde_json::Value {
    json!({
        "event": event,
        "spooled_bytes": status.spooled,
        "requests": status.requests,
        "requests_in_flight": status.requests_in_flight,
        "requests_broken": status.requests_broken,
        "requests_unrecorded": status.requests_unrecorded,
        "transactions": status.transactions,
        "transactions_aborted": status.transactions_aborted,
        "by_comment": status.by_comment,
        "by_application_name": status.by_application_name,
        "by_being_alone": status.by_being_alone,
        "by_turn": status.by_turn,
        "ghosts": status.ghosts,
        "unattributed": status.unattributed,
        "read_committed": status.read_committed,
        "gaps": status.gaps,
        "unaccounted": status.unaccounted,
        "unexplained": status.unexplained,
        "unexplained_because": status.unexplained_because,
        "dropped_requests": status.writer.dropped_requests,
        "dropped_transactions": status.writer.dropped_transactions,
        "buffered_bytes": status.writer.buffered_bytes,
    })
}

fn remark_of_unattributed(status: &Status, is_inside: bool) -> Option<String> {
    let (lacking, hint) = match is_inside {
        true => (
            "it is not known for which",
            "The README says which servers and drivers are known",
        ),
        false => (
            "carried no traceparent",
            "Make the service pass traceparent on to its database: see examples/README.md",
        ),
    };
    let by = status.unattributed_by.iter().take(3);
    let by: Vec<_> = by
        .map(|(client, times)| format!("{client}: {times}"))
        .collect();
    (status.unattributed > 0).then(|| {
        format!(
            "{} began while several requests were in flight and {lacking} ({}). They are ghosts now: work of no request is replayed as such, \
             but not a request that one of them belongs to. {hint}",
            count(status.unattributed, "transaction"),
            by.join(", ")
        )
    })
}

/// What should be known about a recording, with what to do about it.
fn remarks(status: &Status, is_inside: bool, by_gateway: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    remarks.extend(remark_of_unattributed(status, is_inside));
    if by_gateway && status.read_committed > 0 {
        remarks.push(format!(
            "{} ran at READ COMMITTED; their replay is approximate, since a gateway knows only what their first statements saw. `--isolation repeatable-read` raises sessions that do not choose; the service must then retry SQLSTATE 40001",
            count(status.read_committed, "transaction")
        ));
    }
    if status.unaccounted > 0 {
        remarks.push(format!(
            "{} wrote to this database without passing a recorder; replay refuses to cross them without --across-gaps. `hindcast ls` says which tables they wrote to",
            count(status.unaccounted, "transaction")
        ));
    }
    if status.unexplained > 0 {
        remarks.push(format!(
            "it cannot be told whether {} wrote to this database past the recorder: {}",
            count(status.unexplained, "transaction"),
            status.unexplained_because.as_deref().unwrap_or("unknown")
        ));
    }
    if status.presumed_subtransactions > 0 {
        remarks.push(format!(
            "{} taken for subtransactions of functions that catch exceptions, since the server's WAL could not be read to make sure",
            count(status.presumed_subtransactions, "transaction id")
        ));
    }
    if status.unobserved_sessions > 0 {
        remarks.push(format!(
            "{} could not be followed any further, and passed through",
            count(status.unobserved_sessions, "session")
        ));
    }
    if status.other_database_sessions > 0 {
        remarks.push(format!(
            "{} with databases that are not recorded: what the service does there is not replayed. `--postgres` names the one that is",
            count(status.other_database_sessions, "session")
        ));
    }
    let (requests, transactions) = (
        status.writer.dropped_requests,
        status.writer.dropped_transactions,
    );
    if requests + transactions > 0 {
        remarks.push(format!(
            "{} and {} are missing: the recording could not be written fast enough, or not at all",
            count(requests, "request"),
            count(transactions, "transaction")
        ));
    }
    remarks
}

/// A template database is left behind on purpose: say so, and how to be rid of it.
fn base_stays(base: &Base) -> Option<String> {
    let BaseKind::Template { database } = &base.kind else {
        return None;
    };
    Some(format!(
        "template database {database} stays in the server for replays; `hindcast base ls` lists such databases, \
         `hindcast base drop {database}` removes this one"
    ))
}

/// What the service's process told and could not be used.
fn remarks_from_inside(end: &InsideEnd) -> Vec<String> {
    let seen = &end.seen;
    let left_alone = [
        (
            seen.tls,
            "encrypted by the service itself, by other means than a shared libssl on a socket",
        ),
        (seen.http2, "HTTP/2"),
        (seen.unrecognised, "no protocol that is known"),
        (
            seen.malformed,
            "broken off: what came next was no such protocol",
        ),
        (seen.upgraded, "upgraded, to WebSocket or another"),
    ];
    let mut remarks: Vec<_> = left_alone
        .into_iter()
        .filter(|(connections, _)| *connections > 0)
        .map(|(connections, why)| {
            let connections = count(connections, "connection");
            format!("{connections} from clients not recorded: {why}")
        })
        .collect();
    if seen.lost_records + end.rings_refused > 0 {
        remarks.push(format!(
            "{} of what the service's process told were lost ({}): the recorder was not fast enough",
            count(seen.lost_records, "record"),
            bytes(seen.lost_bytes)
        ));
    }
    if let Some(reason) = &end.failed {
        remarks.push(format!("requests were not recorded to the end: {reason}"));
    }
    remarks
}

fn conclude(
    args: &RecordArgs,
    summary: Summary,
    base: Option<&Base>,
    unseen: Vec<String>,
) -> Result<(), CliError> {
    if args.json {
        let mut stopped = as_json("stopped", &summary.status);
        stopped["base"] = json!(base.map(base::describe));
        stopped["final_state"] = json!(summary.final_state.as_ref().err());
        println!("{stopped}");
    } else {
        say(
            args,
            format_args!(
                "Recorded {} into {}",
                line(&summary.status),
                args.trace.trace
            ),
        );
        match &summary.final_state {
            Ok(state) => say(
                args,
                format_args!(
                    "  final state   {}",
                    count(state.tables.len() as u64, "table")
                ),
            ),
            Err(reason) => say(args, format_args!("  final state   not recorded: {reason}")),
        }
        if let Some(base) = base.and_then(base_stays) {
            say(args, format_args!("  base          {base}"));
        }
        let listen = summary.started.listen.as_ref().map(ToString::to_string);
        let front = listen.as_deref().zip(args.app.as_deref());
        if let Some(remark) = ghosts::remark(&summary.status, front) {
            say(args, format_args!("  note          {remark}"));
        }
        let inside = summary.inside.iter().flat_map(remarks_from_inside);
        let is_inside = summary.started.tap.is_some();
        let by_gateway = summary.started.pg_listen.is_some();
        for remark in remarks(&summary.status, is_inside, by_gateway)
            .into_iter()
            .chain(inside)
            .chain(unseen)
        {
            say(args, format_args!("  note          {remark}"));
        }
        say(
            args,
            format_args!("Next: hindcast ls --trace {}", args.trace.trace),
        );
    }
    summary
        .closed
        .map_err(|error| CliError::because("the recording could not be completed", &error))
}
