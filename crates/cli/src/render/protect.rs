//! What `hindcast protect` says.

use std::fmt::Write as _;

use hindcast_protect::backup::{self, Reason};
use hindcast_protect::message::{Progress, Protection, Standing, Status};
use hindcast_protect::terms::{self, Next, Unprotected};

use super::exec::how;
use super::format::{bytes, count};

pub fn of_running(notice: &terms::Notice) -> String {
    match notice {
        terms::Notice::Protected {
            pid,
            address,
            device,
            by,
        } => format!(
            "Note: the program (pid {pid}) is protected: clients talk to {} ({device}), and {by} goes on if this machine is lost\n",
            address.ip
        ),
        terms::Notice::Unprotected { why, next } => unprotected(why, next),
        terms::Notice::CatchesUp(to) => format!(
            "Note: {to} is given the log, and catches up; until it has, the program is unprotected\n"
        ),
        terms::Notice::NotAttached {
            to,
            why,
            hint,
            next,
        } => {
            let hint = match hint.is_empty() {
                true => what_next(next),
                false => hint.clone(),
            };
            format!(
                "Warning: the program runs on unprotected: {to} does not protect it: {why}\n         {hint}\n"
            )
        }
        terms::Notice::NotCopied(why) => format!(
            "Warning: a process that the program has started is not protected: {why}\n         After a takeover it is missing: for the program it was killed.\n"
        ),
        terms::Notice::LogDropped(keep) => log_dropped(*keep),
        terms::Notice::Silent { by, silence } => format!(
            "Warning: the backup {by} was not heard for {} ms: answers to clients wait, for it may have taken over\n         They go out when it is heard again, or has ended (end it there). --alone-after goes on without it.\n",
            silence.as_millis()
        ),
        terms::Notice::Replaced(by) => format!(
            "Warning: {by} goes on in the program's place, as this machine was not heard: the program is ended here\n"
        ),
        terms::Notice::Heard(by) => format!("Note: the backup {by} is heard again\n"),
        terms::Notice::Lost { ended, by } => format!(
            "Warning: the program was ended by {}; {by} is told to go on in its place\n",
            how(*ended)
        ),
    }
}

fn unprotected(why: &Unprotected, next: &Next) -> String {
    let said = match why {
        Unprotected::BackupEnded => "the backup has ended".to_owned(),
        Unprotected::Dropped(why) => format!("the copy on the backup was dropped: {why}"),
        Unprotected::Silence(silence) => {
            format!("the backup was not heard for {} ms", silence.as_millis())
        }
        Unprotected::Log(why) => format!("its log cannot be sent: {why}"),
        Unprotected::Background(others) => format!(
            "it has gone into the background: the process that was started has ended, and {others} {} on",
            if *others == 1 {
                "other runs"
            } else {
                "others run"
            }
        ),
    };
    format!(
        "Warning: the program runs on unprotected: {}\n         {}\n{}",
        said,
        what_next(next),
        match why {
            Unprotected::Dropped(_) => DROPPED_AGAIN,
            _ => "",
        }
    )
}

const DROPPED_AGAIN: &str = "         Where that is dropped as well, threads of the program change memory that they share without locks, as those of node and java do: it cannot be protected.\n";

fn what_next(next: &Next) -> String {
    match next {
        Next::Attach { at } => format!(
            "Give it a new backup: hindcast protect attach --at HOST:{} --to BACKUP:PORT",
            at.rsplit_once(':').map_or(at.as_str(), |(_, port)| port)
        ),
        Next::Deaf => "Start it again under `hindcast protect run` when there is time; with --listen a new backup can be attached while it runs.".to_owned(),
        Next::Foreground => "Start it again so that it stays in the foreground: redis-server --daemonize no, nginx -g 'daemon off;', lighttpd -D, memcached without -d.".to_owned(),
        Next::Restart(why) => format!(
            "Start it again under `hindcast protect run` when there is time: it can have no new backup, as {why}."
        ),
    }
}

fn log_dropped(keep: u64) -> String {
    format!(
        "Note: the log is larger than {}, and is dropped from here on: once the backup is lost or has taken over, a new one is possible only after the program was started again\n      --keep has it kept up to another size.\n",
        bytes(keep)
    )
}

pub fn catches_up(to: &str, progress: Progress) -> String {
    format!("Note: {to} catches up: {}\n", how_far(progress))
}

fn how_far(progress: Progress) -> String {
    format!(
        "{} of {} of the log sent, {} events replayed",
        bytes(progress.sent),
        bytes(progress.of),
        progress.replayed
    )
}

pub fn of_backup(notice: &backup::Notice) -> String {
    match notice {
        backup::Notice::Listening(at) => format!("Note: stands by at {at}\n"),
        backup::Notice::Follows {
            program,
            from,
            runs: false,
        } => {
            format!("Note: follows {program}, which runs at {from}\n")
        }
        backup::Notice::Follows {
            program,
            from,
            runs: true,
        } => {
            format!(
                "Note: catches up with {program}, which runs at {from}; it cannot go on here before that\n"
            )
        }
        backup::Notice::CaughtUp => "Note: has caught up, and follows\n".to_owned(),
        backup::Notice::TooEarly(reason) => format!(
            "Warning: the primary is gone: {}\n         The program does not go on here, as this machine had not caught up. It waits for the next.\n",
            why_gone(reason)
        ),
        backup::Notice::BeginsAt(events) => {
            format!("Note: begins at a checkpoint, after {events} events\n")
        }
        backup::Notice::NoCheckpoints(why) => format!(
            "Note: no checkpoints are taken: {why}\n      The whole log is kept, up to --keep.\n"
        ),
        backup::Notice::LogDropped(keep) => log_dropped(*keep),
        backup::Notice::Leads(notice) => of_running(notice),
        backup::Notice::Refused { why, hint } => {
            let hint = if hint.is_empty() {
                String::new()
            } else {
                format!("\n         {hint}")
            };
            format!("Warning: a program was refused: {why}{hint}\n")
        }
        backup::Notice::Dropped(why) => format!(
            "Warning: the copy was dropped: {why}\n         The program runs on unprotected on the primary.\n"
        ),
        backup::Notice::NotCopied => {
            "Note: a process that the program has started has done something else here, and its copy was ended\n      Should it run at a takeover it is missing: for the program it was killed.\n"
                .to_owned()
        }
        backup::Notice::Ended => "Note: the program has ended by itself\n".to_owned(),
        backup::Notice::Lost(reason) => {
            let why = why_gone(reason);
            format!("Warning: the primary is gone: {why}\n")
        }
        backup::Notice::TookOver(takeover) => took_over(takeover),
        backup::Notice::NotTakenOver(why) => {
            format!("Warning: the program cannot go on here: {why}\n")
        }
    }
}

fn took_over(takeover: &backup::Takeover) -> String {
    let lost = match takeover.lost {
        0 => String::new(),
        lost => match &takeover.why_lost {
            Some(why) => format!(", {lost} could not be kept ({why})"),
            None => format!(", {lost} could not be kept"),
        },
    };
    let connections = match takeover.connections {
        1 => "1 connection".to_owned(),
        several => format!("{several} connections"),
    };
    let files = match takeover.lost_files {
        0 => String::new(),
        files => format!(
            "\n      What it has written to {} is not on this machine: its writes there fail.",
            count(files.into(), "open file")
        ),
    };
    let cut = match takeover.cut_files {
        0 => String::new(),
        files => format!(
            "\n      What the primary had appended to {} beyond what it had told was cut off again.",
            count(files.into(), "file")
        ),
    };
    let then = match takeover.is_recorded {
        true => "Give it a new backup: hindcast protect attach --at THIS:PORT --to BACKUP:PORT",
        false => {
            "It is not recorded, so it can have no new backup: start it again under `hindcast protect run` when there is time."
        }
    };
    format!(
        "Note: the program (pid {}) goes on here after {:.1} ms, with {connections}{lost}{files}{cut}\n      It is not protected any more. {then}\n",
        takeover.pid,
        takeover.took.as_secs_f64() * 1000.0
    )
}

fn why_gone(reason: &Reason) -> String {
    match reason {
        Reason::Said => "its program was lost".to_owned(),
        Reason::Closed => "its hindcast has ended".to_owned(),
        Reason::Silent(silence) => format!("it was not heard for {} ms", silence.as_millis()),
    }
}

pub fn status(status: &Status) -> String {
    let standing = match status.standing {
        Standing::Waits => "waits for a primary",
        Standing::Follows => "follows",
        Standing::CatchesUp => "catches up",
        Standing::Runs => "runs the program",
        Standing::Leads => "goes on in the primary's place",
    };
    let mut made = format!("standing     {standing}\n");
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(made, "{name:12} {value}");
    };
    if let Some(program) = &status.program {
        line("program", program);
    }
    if let Some(address) = &status.address {
        line("address", address);
    }
    if status.standing != Standing::Waits {
        line("connections", &status.connections.to_string());
        let replayed = match status.protection {
            None => format!(", {} events replayed", status.events),
            Some(_) => String::new(),
        };
        line("log", &format!("{} bytes{replayed}", status.log_bytes));
    }
    match &status.protection {
        None => {}
        Some(Protection::By(backup)) => line("protected", &format!("by {backup}")),
        Some(Protection::CatchesUp { backup, progress }) => {
            let how = how_far(*progress);
            line("protected", &format!("no: {backup} catches up, {how}"));
        }
        Some(Protection::Nobody { impossible: None }) => {
            line("protected", "no, a backup can be attached");
        }
        Some(Protection::Nobody {
            impossible: Some(why),
        }) => line("protected", &format!("no, and no backup can be: {why}")),
    }
    match status.took_ms {
        Some(took) => line("took over in", &format!("{took} ms")),
        None if status.standing == Standing::Follows => {
            line("heard", &format!("{} ms ago", status.silent_ms));
        }
        None => {}
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_is_dropped_has_a_reason_and_something_to_do() {
        let dropped = of_running(&terms::Notice::Unprotected {
            why: Unprotected::Dropped("at thread 2, event 22".to_owned()),
            next: Next::Attach {
                at: "10.0.0.2:7401".to_owned(),
            },
        });
        assert!(dropped.contains("--at HOST:7401"), "{dropped}");
        assert!(dropped.contains("without locks"), "{dropped}");
    }

    #[test]
    fn a_status_says_what_is_known() {
        let waits = Status::default();
        assert_eq!(status(&waits), "standing     waits for a primary\n");
        let leads = Status {
            standing: Standing::Leads,
            address: Some("10.0.0.10/24".into()),
            program: Some("/usr/bin/memcached".into()),
            connections: 3,
            log_bytes: 1000,
            events: 70,
            silent_ms: 5,
            took_ms: Some(41),
            protection: Some(Protection::CatchesUp {
                backup: "other:7400".into(),
                progress: Progress {
                    sent: 2_000_000,
                    of: 5_000_000,
                    replayed: 70,
                },
            }),
        };
        let text = status(&leads);
        for line in [
            "standing     goes on in the primary's place\n",
            "program      /usr/bin/memcached\n",
            "connections  3\n",
            "protected    no: other:7400 catches up, 2000.0 kB of 5000.0 kB of the log sent, 70 events replayed\n",
            "took over in 41 ms\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
