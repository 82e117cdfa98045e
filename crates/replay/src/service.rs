//! The service under replay, as a child process with everything that it starts.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hindcast_pg::secret;
use tokio::process::{Child, ChildStdin, Command};

use crate::inside::Inside;
use crate::place::Place;
use crate::ready::Ready;

/// For so long a service that starts may say nothing; while it says something, it is at work.
pub const START_PATIENCE: Duration = Duration::from_secs(120);
const START_MAX: Duration = Duration::from_secs(900);
const STOP_PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("the log {} cannot be written", path.display())]
    Log {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the service cannot be started")]
    Spawn(#[source] std::io::Error),
    #[error("something listens on {url} already")]
    AlreadyThere { url: String },
    #[error("the service ended before it listened on {url}: {status}")]
    Ended {
        url: String,
        status: String,
        last_lines: Vec<String>,
    },
    #[error("the service does not listen on {url} after {} s", after.as_secs())]
    NotListening {
        url: String,
        after: Duration,
        last_lines: Vec<String>,
    },
    #[error("the service listens, and is not ready as --ready says after {} s", after.as_secs())]
    NotReady {
        after: Duration,
        last_lines: Vec<String>,
    },
}

/// A running service. Dropping it ends the service and all that it started.
#[derive(Debug)]
pub struct Service {
    /// The shell of `service.sh`.
    supervisor: Child,
    /// The pipe that it watches: it ends the service when this is closed. Kept apart, since
    /// waiting for a child closes its standard input.
    lifeline: Option<ChildStdin>,
    log: PathBuf,
    /// The log as the service writes to it.
    pub output: Arc<File>,
}

impl Service {
    /// Starts `command` with a shell and waits until `place` accepts connections.
    pub async fn start(command: &str, place: &Place, log: &Path) -> Result<Self, ServiceError> {
        if place.accepts().await {
            return Err(ServiceError::AlreadyThere {
                url: place.to_string(),
            });
        }
        let mut service = Self::spawn(command, log, |_| {})?;
        let accepts = async || place.accepts().await.then_some(());
        service.until(&place.to_string(), accepts).await?;
        Ok(service)
    }

    /// Starts a service as it was started when it was recorded, and waits until it accepts
    /// connections. Returns where.
    pub async fn start_inside(inside: &Inside, log: &Path) -> Result<(Self, Place), ServiceError> {
        let mut service = Self::spawn(inside.command(), log, |command| {
            command.env_clear().envs(inside.environment());
            command.current_dir(inside.directory());
        })?;
        let place = async || {
            let place = inside.service()?;
            for (_, also) in inside.also() {
                also.accepts().await.then_some(())?;
            }
            place.accepts().await.then_some(place)
        };
        let place = service.until("what it was recorded on", place).await?;
        Ok((service, place))
    }

    fn spawn(
        command: &str,
        log: &Path,
        change: impl FnOnce(&mut Command),
    ) -> Result<Self, ServiceError> {
        let file = hindcast_private::create(log)
            .and_then(|file| Ok((file.try_clone()?, file.try_clone()?, file)));
        let (out, err, output) = file.map_err(|source| ServiceError::Log {
            path: log.to_owned(),
            source,
        })?;
        let mut starting = Command::new("/bin/sh");
        change(&mut starting);
        let mut supervisor = starting
            .args(["-c", include_str!("service.sh"), "hindcast-service"])
            // Not an argument: it may hold a password, and arguments show in `ps`.
            .env("HINDCAST_SERVICE", command)
            // May be the key itself, and is none of the service's business.
            .env_remove("HINDCAST_KEY")
            .env_remove("HINDCAST_SECRETS_KEY")
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .map_err(ServiceError::Spawn)?;
        let lifeline = supervisor.stdin.take();
        Ok(Self {
            supervisor,
            lifeline,
            log: log.to_owned(),
            output: Arc::new(output),
        })
    }

    /// Waits until the service does what it does when it serves.
    pub async fn until_ready(&mut self, ready: &Ready, place: &Place) -> Result<(), ServiceError> {
        let log = self.log.clone();
        let is = async || ready.is(place, &log).await.then_some(());
        let outcome = self.until(&place.to_string(), is).await;
        outcome.map_err(|error| match error {
            ServiceError::NotListening {
                after, last_lines, ..
            } => ServiceError::NotReady { after, last_lines },
            error => error,
        })
    }

    /// Waits until the service listens somewhere.
    async fn until<T>(
        &mut self,
        url: &str,
        mut place: impl AsyncFnMut() -> Option<T>,
    ) -> Result<T, ServiceError> {
        let started = tokio::time::Instant::now();
        // When it said something last, and how much it had said by then.
        let (mut spoke, mut said) = (started, 0);
        loop {
            if let Some(place) = place().await {
                return Ok(place);
            }
            if let Ok(Some(status)) = self.supervisor.try_wait() {
                return Err(ServiceError::Ended {
                    url: url.to_owned(),
                    status: describe(status),
                    last_lines: self.last_lines(),
                });
            }
            let length = std::fs::metadata(&self.log).map_or(0, |log| log.len());
            if length != said {
                (spoke, said) = (tokio::time::Instant::now(), length);
            }
            if spoke.elapsed() > START_PATIENCE || started.elapsed() > START_MAX {
                return Err(ServiceError::NotListening {
                    url: url.to_owned(),
                    after: Duration::from_secs(started.elapsed().as_secs()),
                    last_lines: self.last_lines(),
                });
            }
            // There is nothing to wait on: a port does not tell when it begins to accept.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The process group that the service and all that it started are in.
    pub fn process_group(&self) -> Option<u32> {
        self.supervisor.id()
    }

    /// Resolves when the service has ended by itself, with how it ended.
    pub async fn ended(&mut self) -> String {
        match self.supervisor.wait().await {
            Ok(status) => describe(status),
            Err(error) => error.to_string(),
        }
    }

    pub async fn stop(mut self) {
        drop(self.lifeline.take());
        let _ = tokio::time::timeout(STOP_PATIENCE, self.supervisor.wait()).await;
    }

    pub fn last_lines(&self) -> Vec<String> {
        last_lines(&self.log, 10)
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        // A shell tells of a signal by adding 128.
        (Some(code @ 129..=192), _) => format!("killed by signal {}", code - 128),
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn last_lines(log: &Path, count: usize) -> Vec<String> {
    let Ok(file) = File::open(log) else {
        return Vec::new();
    };
    let mut lines = VecDeque::with_capacity(count + 1);
    for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
        // Services like to print the URLs that they cannot reach.
        lines.push_back(secret::masked(&String::from_utf8_lossy(&line)));
        if lines.len() > count {
            lines.pop_front();
        }
    }
    lines.into()
}
