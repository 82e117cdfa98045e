//! Traffic that is described in a plain file: see `examples/*/requests`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Barrier, Mutex};

use crate::http::{Client, Response};

/// `METHOD PATH BODY` with `{client}` and `{round}` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub method: String,
    pub target: String,
    pub body: Option<String>,
}

/// What is sent once, and what every client sends at the same time as the others, round after
/// round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub once: Vec<Line>,
    pub round: Vec<Line>,
}

/// How often each kind of request was answered with each status.
pub type Counts = BTreeMap<(String, u16), u64>;

impl Line {
    fn parse(text: &str) -> Self {
        let mut words = text.splitn(3, ' ');
        let mut word = || words.next().map(str::to_owned);
        let (Some(method), Some(target)) = (word(), word()) else {
            panic!("METHOD PATH BODY expected, found {text:?}")
        };
        Self {
            method,
            target,
            body: word(),
        }
    }

    fn send(&self, to: &mut Client, client: usize, round: usize) -> Response {
        let fill = |text: &str| {
            text.replace("{client}", &client.to_string())
                .replace("{round}", &round.to_string())
        };
        to.send(
            &self.method,
            &fill(&self.target),
            self.body.as_deref().map(fill).as_deref(),
        )
        .unwrap_or_else(|error| {
            panic!(
                "{} {} of client {client} failed: {error}",
                self.method, self.target
            )
        })
    }
}

impl Script {
    /// # Panics
    /// If the file cannot be read or does not say `METHOD PATH BODY` in each line.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let mut script = Self::default();
        let mut into = &mut script.once;
        for line in text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            match line {
                "---" => into = &mut script.round,
                line => into.push(Line::parse(line)),
            }
        }
        script
    }

    /// Sends what is sent once, then rounds until `enough` says so after one.
    ///
    /// # Panics
    /// If the service cannot be reached, answers with a server error, or `rounds_max` rounds are
    /// not enough.
    pub fn run(
        &self,
        address: &str,
        clients: usize,
        rounds_max: usize,
        mut enough: impl FnMut() -> bool,
    ) -> Counts {
        let counts = Mutex::new(Counts::new());
        let count = |line: &Line, response: &Response| {
            assert!(
                response.status < 500,
                "{} {} was answered with {}: {}",
                line.method,
                line.target,
                response.status,
                response.text()
            );
            let kind = format!("{} {}", line.method, line.target);
            *counts
                .lock()
                .expect("no client panics while it counts")
                .entry((kind, response.status))
                .or_default() += 1;
        };
        let mut first = Client::new(address);
        for line in &self.once {
            count(line, &line.send(&mut first, 0, 0));
        }
        let mut connected: Vec<Client> = (0..clients).map(|_| Client::new(address)).collect();
        for round in 1..=rounds_max {
            let start = Barrier::new(clients);
            std::thread::scope(|scope| {
                for (client, to) in connected.iter_mut().enumerate() {
                    let (start, count) = (&start, &count);
                    scope.spawn(move || {
                        start.wait();
                        for line in &self.round {
                            count(line, &line.send(to, client + 1, round));
                        }
                    });
                }
            });
            if enough() {
                return counts
                    .into_inner()
                    .expect("no client panics while it counts");
            }
        }
        panic!("{rounds_max} rounds were not enough")
    }
}
