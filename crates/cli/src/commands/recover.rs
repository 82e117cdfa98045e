//! `hindcast recover`, and the same beside a recorder.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hindcast_gateway::inside::give_way;
use hindcast_gateway::record::{self, Converted, ResumeError};
use hindcast_trace::{Key, Micros, SecretKey, Spooled, Trace};

use super::{cannot_open, key};
use crate::args::{RecoverArgs, TraceArg};
use crate::error::{CliError, Exit};
use crate::render::format::count;
use crate::render::spooled::line;

/// How often it is said how far it is.
const SAY_EVERY: Duration = Duration::from_secs(5);

pub fn run(args: &RecoverArgs) -> Result<Exit, CliError> {
    let trace = &args.trace;
    let (key, secret) = keys(trace)?;
    let spooled = hindcast_trace::spooled(&trace.trace);
    for one in spooled.map_err(|error| cannot_open(trace, &error))? {
        let converted = go_on(trace, key.as_ref(), secret.as_ref(), &one);
        let converted = converted.map_err(|error| cannot_go_on(one.recorder, &error))?;
        println!("{}", said(one.recorder, &converted));
    }
    let recovered = Trace::recover_with(&trace.trace, key.as_ref())
        .map_err(|error| cannot_open(trace, &error))?;
    println!(
        "{} became segments",
        count(recovered as u64, "write-ahead file")
    );
    Ok(Exit::Success)
}

/// Of the trace, and what opens the keys of spools.
fn keys(trace: &TraceArg) -> Result<(Option<Key>, Option<SecretKey>), CliError> {
    let key = key::given(trace)?;
    let secret = match &key {
        Some(key) => key.secret().cloned(),
        None => key::of_secrets(trace)?,
    };
    Ok((key, secret))
}

/// Goes on with what earlier recorders left, in the time that nobody else wants. It ends with this
/// process, wherever it is then: the next one goes on.
pub fn in_background(trace: &TraceArg) {
    let trace = trace.clone();
    let spooled = hindcast_trace::spooled(&trace.trace).unwrap_or_default();
    let left: Vec<Spooled> = spooled.into_iter().filter(|one| !one.in_use).collect();
    if left.is_empty() {
        return;
    }
    still_spooled(&trace, &left)
        .for_each(|line| eprintln!("Warning: {line}, and so does this recorder"));
    let thread = std::thread::Builder::new().name("hindcast-recover".to_owned());
    let started = thread.spawn(move || {
        give_way();
        for one in left {
            let recorder = one.recorder;
            let converted = keys(&trace).and_then(|(key, secret)| {
                let resumed = record::resume(&trace.trace, key.as_ref(), secret.as_ref(), &one);
                resumed.map_err(|error| cannot_go_on(recorder, &error))
            });
            match converted {
                Ok(converted) => eprintln!("{}", said(recorder, &converted)),
                Err(error) => eprintln!("{error}"),
            }
        }
    });
    if let Err(error) = started {
        eprintln!("Warning: no thread can be started for it: {error}");
    }
}

/// With what a recorder left that was killed, and says now and then how far it is.
fn go_on(
    trace: &TraceArg,
    key: Option<&Key>,
    secret: Option<&SecretKey>,
    spooled: &Spooled,
) -> Result<Converted, ResumeError> {
    std::thread::scope(|scope| {
        let conversion = std::thread::Builder::new().name("hindcast-convert".to_owned());
        let conversion = conversion
            .spawn_scoped(scope, || record::resume(&trace.trace, key, secret, spooled))
            .expect("the operating system gives us another thread");
        let mut said = SystemTime::now();
        while !conversion.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
            if said.elapsed().unwrap_or_default() >= SAY_EVERY {
                said = SystemTime::now();
                let ours = Spooled {
                    in_use: true,
                    ..spooled.clone()
                };
                still_spooled(trace, &[ours]).for_each(|line| eprintln!("{line}"));
            }
        }
        conversion
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn said(recorder: u16, converted: &Converted) -> String {
    match converted {
        Converted::InUse => format!(
            "Recorder {recorder} is running, or another process goes on with what it left: nothing to do here"
        ),
        Converted::Whole {
            requests,
            transactions,
        } => format!(
            "Recorder {recorder} was killed. What it left is in the recording now: {} and {} in all",
            count(*requests, "request"),
            count(*transactions, "transaction")
        ),
        Converted::Lost(why) => {
            format!("Recorder {recorder} was killed, and what it left is of no use: {why}")
        }
    }
}

fn cannot_go_on(recorder: u16, error: &ResumeError) -> CliError {
    let message = format!("cannot go on with what recorder {recorder} left");
    CliError::because(message, error).hint(error.hint())
}

/// What is to be said of what is not in the recording yet.
pub fn still_spooled<'a>(
    trace: &'a TraceArg,
    spooled: &'a [Spooled],
) -> impl Iterator<Item = String> + 'a {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_micros() as Micros);
    spooled
        .iter()
        .filter_map(move |one| line(one, &record::progress(one)?, &trace.trace, now))
}
