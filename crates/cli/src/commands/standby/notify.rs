//! Tells systemd that a standby runs, what it does, and that it is not stuck (`sd_notify(3)`).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use hindcast_standby::status::{State, Status};

/// Where `NOTIFY_SOCKET` leads; to nowhere, if nobody supervises in this way.
pub struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How long it may be silent until it is taken for stuck.
    patience: Option<Duration>,
    said: String,
    alive_at: Option<Instant>,
}

impl Supervisor {
    /// From the environment of a service of `Type=notify`.
    pub fn of_this_process() -> Self {
        let variable = |name| std::env::var(name).ok();
        let watched_process = variable("WATCHDOG_PID").and_then(|pid| pid.parse().ok());
        let is_watched = watched_process.is_none_or(|pid: u32| pid == std::process::id());
        let micros = variable("WATCHDOG_USEC").and_then(|text| text.parse().ok());
        let patience = micros.filter(|_| is_watched).map(Duration::from_micros);
        Self::at(variable("NOTIFY_SOCKET").as_deref(), patience)
    }

    fn at(path: Option<&str>, patience: Option<Duration>) -> Self {
        let socket = path.and_then(|path| match connect(path) {
            Ok(socket) => Some(socket),
            Err(error) => {
                eprintln!("Warning: systemd cannot be told at {path:?}: {error}");
                None
            }
        });
        Self {
            socket,
            patience,
            said: String::new(),
            alive_at: None,
        }
    }

    /// It runs. A copy may take hours and a server be down, so that is all that it means.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// To be called every second: what it does, and, as long as it moves, that it is alive.
    pub fn show(&mut self, statuses: &[Status], line: &str, now: Instant) {
        if self.said != line {
            self.send(&format!("STATUS={line}"));
            line.clone_into(&mut self.said);
        }
        let Some(patience) = self.patience else {
            return;
        };
        let is_due = self.alive_at.is_none_or(|at| now >= at + patience / 4);
        if is_due
            && statuses
                .iter()
                .all(|status| is_alive(status, patience, now))
        {
            self.send("WATCHDOG=1");
            self.alive_at = Some(now);
        }
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            // A supervisor that does not listen is none of the standby's business.
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

/// While it follows, its loop turns many times a second. All else may take as long as it takes.
fn is_alive(status: &Status, patience: Duration, now: Instant) -> bool {
    let still = status.updated.map(|at| now.saturating_duration_since(at));
    status.state != State::Following || still.is_none_or(|still| still < patience / 2)
}

/// A path, or with an `@` in front a name without one.
fn connect(path: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_does_not_turn_is_not_alive() {
        let name = format!("hindcast-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let systemd = UnixDatagram::bind_addr(&address).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let said = || {
            let mut buffer = [0; 256];
            let received = |_| {
                let length = systemd.recv(&mut buffer).ok()?;
                Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
            };
            (0..).map_while(received).collect::<Vec<_>>().join(" ")
        };
        let minute = Duration::from_secs(60);
        let mut supervisor = Supervisor::at(Some(&format!("@{name}")), Some(minute));
        supervisor.ready();
        assert_eq!(said(), "READY=1");
        let start = Instant::now();
        let mut status = Status {
            state: State::Following,
            updated: Some(start),
            ..Status::default()
        };
        let mut shown = |status: &Status, seconds| {
            let statuses = std::slice::from_ref(status);
            supervisor.show(statuses, "Following", start + Duration::from_secs(seconds));
            said()
        };
        assert_eq!(shown(&status, 0), "STATUS=Following WATCHDOG=1");
        assert_eq!(shown(&status, 1), "");
        assert_eq!(shown(&status, 20), "WATCHDOG=1");
        // Its loop has not turned for half a minute, and more.
        assert_eq!(shown(&status, 40), "");
        assert_eq!(shown(&status, 400), "");
        status.updated = Some(start + Duration::from_secs(400));
        assert_eq!(shown(&status, 401), "WATCHDOG=1");
        // Waiting for a server, or copying, it may be still.
        status.state = State::Starting;
        assert_eq!(shown(&status, 1000), "WATCHDOG=1");
    }
}
