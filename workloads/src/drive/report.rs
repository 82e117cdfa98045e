use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::client::{HttpError, HttpReply};
use super::schedule::Arrivals;

/// What the clients saw.
pub(super) struct Tally {
    operations: Vec<OperationTally>,
    /// How long after it was due a request was sent.
    lateness: Histogram<u64>,
    abandoned: u64,
    last_answer: Option<Instant>,
    bytes_received: u64,
}

struct OperationTally {
    /// Of requests that were answered, in nanoseconds.
    latency: Histogram<u64>,
    outcomes: BTreeMap<String, u64>,
}

/// From a microsecond to ten minutes with three significant digits, in nanoseconds.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 600_000_000_000, 3)
        .expect("the bounds are constants that fit each other")
}

impl Tally {
    pub fn new(operations: usize) -> Self {
        let operation = || OperationTally {
            latency: histogram(),
            outcomes: BTreeMap::new(),
        };
        Self {
            operations: (0..operations).map(|_| operation()).collect(),
            lateness: histogram(),
            abandoned: 0,
            last_answer: None,
            bytes_received: 0,
        }
    }

    pub fn count(
        &mut self,
        operation: usize,
        outcome: Result<HttpReply, HttpError>,
        due: Instant,
        sent: Instant,
        answered: Instant,
    ) {
        let operation = &mut self.operations[operation];
        self.lateness.saturating_record(nanos(sent - due));
        let kind = match &outcome {
            Ok(reply) => {
                operation.latency.saturating_record(nanos(answered - due));
                self.bytes_received += reply.bytes as u64;
                kind(reply)
            }
            Err(error) => error.kind(),
        };
        match operation.outcomes.get_mut(kind) {
            Some(count) => *count += 1,
            None => _ = operation.outcomes.insert(kind.to_owned(), 1),
        }
        self.last_answer = self.last_answer.max(Some(answered));
    }

    /// A request that was due and will never be sent.
    pub fn abandon(&mut self) {
        self.abandoned += 1;
    }

    pub fn report(
        &self,
        names: Vec<&'static str>,
        arrivals: Arrivals,
        clients: usize,
        from: Instant,
    ) -> Report {
        let elapsed = self
            .last_answer
            .map_or(Duration::ZERO, |last| last.saturating_duration_since(from));
        let mut all = histogram();
        let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
        let mut operations = BTreeMap::new();
        for (name, tally) in names.into_iter().zip(&self.operations) {
            all.add(&tally.latency)
                .expect("all histograms have the same bounds");
            for (kind, count) in &tally.outcomes {
                *outcomes.entry(kind.clone()).or_default() += count;
            }
            let requests = tally.outcomes.values().sum();
            if requests > 0 {
                let outcomes = tally.outcomes.clone();
                let latency_us = Latency::of(&tally.latency);
                operations.insert(
                    name.to_owned(),
                    OperationReport {
                        requests,
                        outcomes,
                        latency_us,
                    },
                );
            }
        }
        let requests: u64 = outcomes.values().sum();
        let seconds = elapsed.as_secs_f64();
        let (loop_, rate) = match arrivals {
            Arrivals::Closed => ("closed", None),
            Arrivals::Poisson { rate } => ("open, Poisson arrivals", Some(rate)),
            Arrivals::Fixed { rate } => ("open, fixed arrivals", Some(rate)),
        };
        Report {
            arrivals: loop_.to_owned(),
            clients,
            offered_per_second: rate,
            seconds,
            requests,
            requests_per_second: if seconds > 0.0 {
                requests as f64 / seconds
            } else {
                0.0
            },
            abandoned: self.abandoned,
            outcomes,
            latency_us: Latency::of(&all),
            lateness_us: Latency::of(&self.lateness),
            bytes_received: self.bytes_received,
            operations,
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `ok`, or what the error calls itself, or its status.
fn kind(reply: &HttpReply) -> &str {
    if reply.status < 400 {
        return "ok";
    }
    let named = std::str::from_utf8(&reply.body).ok().and_then(|body| {
        let (_, rest) = body.split_once(r#""error":""#)?;
        rest.split_once('"').map(|(kind, _)| kind)
    });
    named.unwrap_or(match reply.status {
        400..=499 => "client_error",
        502 => "bad_gateway",
        503 => "unavailable",
        _ => "server_error",
    })
}

/// The outcome of a run. Times are in microseconds; latency counts from when a request was due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub arrivals: String,
    pub clients: usize,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub offered_per_second: Option<f64>,
    /// From the end of the warm-up to the last answer.
    pub seconds: f64,
    pub requests: u64,
    pub requests_per_second: f64,
    /// Requests of an open loop that were due but were never sent, because the service was too far
    /// behind at the end.
    pub abandoned: u64,
    /// `ok` and kinds of errors. `rolled_back` is part of TPC-C and not an error.
    pub outcomes: BTreeMap<String, u64>,
    pub latency_us: Latency,
    /// How long after it was due a request was sent: the driver's own delay plus waiting for a
    /// free client.
    pub lateness_us: Latency,
    pub bytes_received: u64,
    pub operations: BTreeMap<String, OperationReport>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    pub requests: u64,
    pub outcomes: BTreeMap<String, u64>,
    pub latency_us: Latency,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Latency {
    fn of(nanos: &Histogram<u64>) -> Self {
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        let at = |quantile| micros(nanos.value_at_quantile(quantile));
        Self {
            mean: nanos.mean() / 1_000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: micros(nanos.max()),
        }
    }
}

impl Report {
    /// How many requests ended this way.
    pub fn outcome(&self, kind: &str) -> u64 {
        self.outcomes.get(kind).copied().unwrap_or(0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offered = self
            .offered_per_second
            .map(|rate| format!(" at {rate}/s"))
            .unwrap_or_default();
        writeln!(
            f,
            "{} requests in {:.1} s, {:.0}/s ({}{offered}, {} clients)",
            self.requests, self.seconds, self.requests_per_second, self.arrivals, self.clients
        )?;
        if self.abandoned > 0 {
            writeln!(
                f,
                "{} more were due and never sent: the latencies below are too good",
                self.abandoned
            )?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<18}{:>9}{:>10}{:>10}{:>10}{:>10}   outcomes",
            "", "requests", "p50 ms", "p90 ms", "p99 ms", "max ms"
        )?;
        for (name, operation) in &self.operations {
            row(
                f,
                name,
                operation.requests,
                &operation.latency_us,
                &operation.outcomes,
            )?;
        }
        row(f, "all", self.requests, &self.latency_us, &self.outcomes)
    }
}

fn row(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    requests: u64,
    latency: &Latency,
    outcomes: &BTreeMap<String, u64>,
) -> fmt::Result {
    let outcomes: Vec<String> = outcomes
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    let [p50, p90, p99, max] =
        [latency.p50, latency.p90, latency.p99, latency.max].map(|micros| micros / 1_000.0);
    writeln!(
        f,
        "{name:<18}{requests:>9}{p50:>10.3}{p90:>10.3}{p99:>10.3}{max:>10.3}   {}",
        outcomes.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, body: &str) -> HttpReply {
        HttpReply {
            status,
            body: body.into(),
            bytes: body.len(),
        }
    }

    #[test]
    fn errors_are_counted_by_what_they_call_themselves() {
        assert_eq!(kind(&reply(201, "{}")), "ok");
        assert_eq!(
            kind(&reply(
                409,
                r#"{"error":"serialization_failure","message":"…"}"#
            )),
            "serialization_failure"
        );
        assert_eq!(kind(&reply(502, "Bad Gateway")), "bad_gateway");
    }

    #[test]
    fn latency_counts_from_when_a_request_was_due() {
        let due = Instant::now();
        let (sent, answered) = (
            due + Duration::from_millis(40),
            due + Duration::from_millis(50),
        );
        let mut tally = Tally::new(1);
        tally.count(0, Ok(reply(200, "{}")), due, sent, answered);
        let report = tally.report(vec!["read"], Arrivals::Closed, 1, due);
        assert!(
            (report.latency_us.p50 - 50_000.0).abs() < 50.0,
            "{:?}",
            report.latency_us
        );
        assert!(
            (report.lateness_us.max - 40_000.0).abs() < 40.0,
            "{:?}",
            report.lateness_us
        );
        assert_eq!(
            (
                report.requests,
                report.outcome("ok"),
                report.requests_per_second
            ),
            (1, 1, 20.0)
        );
    }

    #[test]
    fn a_failed_request_is_counted_but_has_no_latency() {
        let now = Instant::now();
        let mut tally = Tally::new(1);
        tally.count(
            0,
            Err(HttpError::Timeout),
            now,
            now,
            now + Duration::from_secs(30),
        );
        let report = tally.report(vec!["read"], Arrivals::Closed, 1, now);
        assert_eq!((report.outcome("timeout"), report.latency_us.max), (1, 0.0));
    }
}
