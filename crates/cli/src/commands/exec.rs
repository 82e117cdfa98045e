//! `hindcast exec`

use std::error::Error;
use std::fmt::Display;
use std::io::Write;

use hindcast_exec::gdb::{self, Debugger};
use hindcast_exec::log::LogicalTime;
use hindcast_exec::replay::{self, ReplayOptions, Replayed};
use hindcast_exec::run::{self, ChosenInterface, ExecError, RecordOptions};
use hindcast_exec::warning::Warning;
use hindcast_exec::{check, show};
use hindcast_execlog::config;

use crate::args::exec::{ExecArgs, Instructions, Interface, Optimization, Order, Policy, Waiting};
use crate::error::{CliError, Exit};
use crate::render::exec as render;

pub fn run(args: ExecArgs) -> Result<Exit, CliError> {
    // Every code below 124 is the program's.
    let done = if args.record.is_some() || args.follow.is_some() {
        record(args)
    } else if args.replay.is_some() {
        replay(args)
    } else if args.show.is_some() {
        show(&args)
    } else if let Some(folder) = &args.become_recorded {
        Err(cannot(
            "the recorded program cannot be started",
            &gdb::become_recorded(folder),
        ))
    } else if let Some(at) = args.aim {
        gdb::aim(moment(at), args.pass_over)
            .map(|before| {
                println!("Checkpoints before: {before}");
                Exit::Success
            })
            .map_err(|error| cannot("the replay cannot be aimed", &error))
    } else {
        check(&args)
    };
    done.map_err(|mut error| {
        if error.exit == Exit::Failed {
            error.exit = Exit::NotExecuted;
        }
        error
    })
}

fn record(args: ExecArgs) -> Result<Exit, CliError> {
    fits(&args)?;
    // A recording that nobody asked for is gone afterwards.
    let temporary = match args.record {
        Some(_) => None,
        None => Some(
            hindcast_private::temporary_folder(std::env::temp_dir(), "hindcast-follow-")
                .map_err(|error| CliError::because("no folder for the recording", &error))?,
        ),
    };
    let folder = match (&args.record, &temporary) {
        (Some(folder), _) => folder.clone(),
        (None, Some(temporary)) => temporary.path().to_owned(),
        (None, None) => unreachable!("one of them is there"),
    };
    let options = RecordOptions {
        followers: args.follow.unwrap_or(0),
        is_written_beside: args.follower,
        is_kept: temporary.is_none(),
        folder,
        order: match args.order {
            Order::Edge => config::Order::Edge,
            Order::Relaxed => config::Order::Relaxed,
            Order::Total => config::Order::Total,
            Order::Vector => config::Order::Vector,
        },
        policy: match args.policy {
            Policy::Record => config::Policy::Record,
            Policy::Report => config::Policy::Report,
            Policy::Abort => config::Policy::Abort,
        },
        instructions: match args.instructions {
            Instructions::Free => config::Instructions::Free,
            Instructions::Replaced => config::Instructions::Replaced,
            Instructions::Faulting => config::Instructions::Faulting,
        },
        one_at_a_time: args.one_at_a_time,
        cache: args.optimize.contains(&Optimization::Cache),
        reproduce: args
            .optimize
            .iter()
            .find_map(|optimization| match optimization {
                Optimization::Reproduce(folder) => Some(folder.clone()),
                Optimization::Cache => None,
            }),
        interfaces: interfaces(&args.interfaces)?,
        command: args.command,
    };
    let recorded = run::record(&options, &mut |notice| {
        eprint!("{}", render::notice(&notice))
    })
    .map_err(|error| cannot("the program was not recorded", &error))?;
    eprint!("{}", render::recorded(&recorded, &options.folder));
    Ok(match recorded.report {
        Some(_) => Exit::ExecutionDiverged,
        None => Exit::Program(recorded.ended.code()),
    })
}

/// Refuses options that want different things of the log.
fn fits(args: &ExecArgs) -> Result<(), CliError> {
    if args.follow.is_some() && args.optimize.contains(&Optimization::Cache) {
        return Err(
            CliError::usage("a follower needs every result at once, cache counts them")
                .hint("leave out --optimize cache"),
        );
    }
    let reproduces =
        |optimization: &Optimization| matches!(optimization, Optimization::Reproduce(_));
    if args.follower && args.optimize.iter().any(reproduces) {
        return Err(CliError::usage(
            "a follower puts what is read from files into the log, reproduce leaves it out",
        )
        .hint("leave out one of them"));
    }
    Ok(())
}

fn interfaces(given: &[Interface]) -> Result<Vec<ChosenInterface>, CliError> {
    let mut chosen = Vec::new();
    for interface in given {
        match interface {
            Interface::Libc => {}
            Interface::Sqlite3 => chosen.push(ChosenInterface::Sqlite3),
            Interface::Mpi => chosen.push(usable("mpi", ChosenInterface::mpi())?),
            Interface::Header(header) => {
                let own = ChosenInterface::from_header(header);
                chosen.push(usable(header.display(), own)?);
            }
        }
    }
    Ok(chosen)
}

fn usable(
    name: impl Display,
    built: Result<ChosenInterface, impl Error + 'static>,
) -> Result<ChosenInterface, CliError> {
    built.map_err(|error| CliError::because(format!("the interface {name} cannot be used"), &error))
}

fn replay(args: ExecArgs) -> Result<Exit, CliError> {
    let folder = args.replay.unwrap_or_default();
    if !args.gdb && !args.command.is_empty() {
        return Err(
            CliError::usage("a replay takes its command from the recording")
                .hint("what follows -- is for gdb, with --gdb"),
        );
    }
    let debugger = match args.gdb {
        false => None,
        true => {
            let own = std::env::current_exe()
                .map_err(|error| CliError::because("cannot find hindcast itself", &error))?;
            Some(Debugger {
                break_at: args.break_at.or(args.at).map(moment),
                arguments: args.command,
                hindcast: own,
            })
        }
    };
    let options = ReplayOptions {
        folder,
        waiting: match args.waiting {
            Waiting::Adaptive => config::Waiting::Adaptive,
            Waiting::Spin => config::Waiting::Spin,
            Waiting::Wait => config::Waiting::Wait,
        },
        stall_timeout: args.stall_timeout,
        debugger,
        at: args.at.map(moment),
        checkpoint_every: args.checkpoint_every,
    };
    let mut say = |warnings: &[Warning]| eprint!("{}", render::warnings(warnings, &options.folder));
    let replayed = replay::replay(&options, &mut say)
        .map_err(|error| cannot("the recording was not replayed", &error))?;
    eprint!("{}", render::replayed(&replayed, &options.folder));
    Ok(match replayed {
        Replayed::Ended { ended, .. } => Exit::Program(ended.code()),
        Replayed::RecordingEnds { as_then, .. } => {
            Exit::Program(as_then.map_or(0, |ended| ended.code()))
        }
        Replayed::Reported(report) if render::is_unusable(&report) => Exit::NotExecuted,
        Replayed::Reported(_) | Replayed::Stalled(_) => Exit::ExecutionDiverged,
        Replayed::Interrupted(signal) => Exit::Program(128u8.wrapping_add(signal as u8)),
        Replayed::Debugged { code, .. } => Exit::Program(code),
    })
}

fn moment(at: crate::args::exec::LogicalTime) -> LogicalTime {
    LogicalTime {
        thread: at.thread,
        event: at.event,
    }
}

fn show(args: &ExecArgs) -> Result<Exit, CliError> {
    let folder = args.show.clone().unwrap_or_default();
    let (recording, processes) = show::open(&folder).map_err(|error| match error {
        show::ShowError::Open(error) => {
            cannot("the recording cannot be shown", &ExecError::from(error))
        }
        show::ShowError::Log(error) => {
            cannot("the recording cannot be shown", &ExecError::from(error))
        }
    })?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = if args.events {
        let names = recording.names();
        show::events(&processes, &names, args.thread).try_for_each(|event| match args.json {
            true => writeln!(out, "{}", serde_json::json!(event)),
            false => writeln!(out, "{}", render::event(&event)),
        })
    } else {
        let contents = show::contents(recording, &processes, args.thread);
        match args.json {
            true => writeln!(out, "{:#}", serde_json::json!(contents)),
            false => write!(out, "{}", render::contents(&contents)),
        }
    };
    // Whoever reads has seen enough when it cannot be written (`| head`).
    let _ = written.and_then(|()| out.flush());
    Ok(Exit::Success)
}

fn check(args: &ExecArgs) -> Result<Exit, CliError> {
    let program = args.check.clone().unwrap_or_default();
    let interfaces = interfaces(&args.interfaces)?;
    let checked = check::check(&program, &interfaces)
        .map_err(|error| cannot("the program cannot be recorded", &error))?;
    match args.json {
        true => println!("{:#}", serde_json::json!(checked)),
        false => print!("{}", render::checked(&checked)),
    }
    Ok(Exit::Success)
}

fn cannot(what: &str, error: &ExecError) -> CliError {
    CliError::because(what, error).hint(error.hint())
}
