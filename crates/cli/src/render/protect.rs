//! What `hindcast protect` says.

use std::fmt::Write as _;

use hindcast_protect::backup::{self, Reason};
use hindcast_protect::message::{Standing, Status};
use hindcast_protect::primary::{self, PrimaryOptions, Unprotected};

use super::exec::how;

pub fn of_primary(notice: &primary::Notice, options: &PrimaryOptions) -> String {
    let (address, to) = (&options.address, &options.to);
    match notice {
        primary::Notice::Protected { pid, device } => format!(
            "Note: the program (pid {pid}) is protected: clients talk to {} ({device}), and {to} goes on if this machine is lost\n",
            address.ip
        ),
        primary::Notice::Unprotected(why) => {
            let why = match why {
                Unprotected::BackupEnded => "the backup has ended".to_owned(),
                Unprotected::Dropped(why) => format!("the copy on the backup was dropped: {why}"),
                Unprotected::Silence(silence) => {
                    format!("the backup was not heard for {} ms", silence.as_millis())
                }
                Unprotected::Log(why) => format!("its log cannot be sent: {why}"),
            };
            format!(
                "Warning: the program runs on unprotected: {why}\n         Start it again under `hindcast protect run` when there is time.\n"
            )
        }
        primary::Notice::Silent(silence) => format!(
            "Warning: the backup {to} was not heard for {} ms: answers to clients wait, for it may have taken over\n         They go out when it is heard again, or has ended (end it there). --alone-after goes on without it.\n",
            silence.as_millis()
        ),
        primary::Notice::Replaced => format!(
            "Warning: {to} goes on in the program's place, as this machine was not heard: the program is ended here\n"
        ),
        primary::Notice::Heard => format!("Note: the backup {to} is heard again\n"),
        primary::Notice::Lost(ended) => format!(
            "Warning: the program was ended by {}; {to} is told to go on in its place\n",
            how(*ended)
        ),
    }
}

pub fn of_backup(notice: &backup::Notice) -> String {
    match notice {
        backup::Notice::Listening(at) => format!("Note: stands by at {at}\n"),
        backup::Notice::Follows { program, from } => {
            format!("Note: follows {program}, which runs at {from}\n")
        }
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
        backup::Notice::Ended => "Note: the program has ended by itself\n".to_owned(),
        backup::Notice::Lost(reason) => {
            let why = match reason {
                Reason::Said => "its program was lost".to_owned(),
                Reason::Closed => "its hindcast has ended".to_owned(),
                Reason::Silent(silence) => {
                    format!("it was not heard for {} ms", silence.as_millis())
                }
            };
            format!("Warning: the primary is gone: {why}\n")
        }
        backup::Notice::TookOver(takeover) => {
            let lost = match takeover.lost {
                0 => String::new(),
                lost => format!(", {lost} could not be kept"),
            };
            let connections = match takeover.connections {
                1 => "1 connection".to_owned(),
                several => format!("{several} connections"),
            };
            format!(
                "Note: the program (pid {}) goes on here after {:.1} ms, with {connections}{lost}\n      It is not protected any more. Start it again under `hindcast protect run` when there is time.\n",
                takeover.pid,
                takeover.took.as_secs_f64() * 1000.0
            )
        }
        backup::Notice::NotTakenOver(why) => {
            format!("Warning: the program cannot go on here: {why}\n")
        }
    }
}

pub fn status(status: &Status) -> String {
    let standing = match status.standing {
        Standing::Waits => "waits for a primary",
        Standing::Follows => "follows",
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
        line(
            "log",
            &format!(
                "{} bytes, {} events replayed",
                status.log_bytes, status.events
            ),
        );
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
        };
        let text = status(&leads);
        for line in [
            "standing     goes on in the primary's place\n",
            "program      /usr/bin/memcached\n",
            "connections  3\n",
            "took over in 41 ms\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
