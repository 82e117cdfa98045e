//! Sends recorded requests again and compares what comes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use hindcast_gateway::http::{ServiceUrl, Traceparent, headers};
use hindcast_order::{Admission, Request, Span, admission};
use hindcast_trace::{self as trace, RequestFilter, RequestId, Trace};
use http::{HeaderValue, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::compare::Seen;
use crate::desk::Floor;
use crate::plan::Plan;
use crate::recording::{Answer, Recording};
use crate::verdict::{Divergence, Remark};

/// How many requests are read ahead of the one that is to be sent.
const READ_AHEAD: usize = 512;

pub struct Sender {
    pub floor: Arc<Floor>,
    pub plan: Arc<Plan>,
    pub service: ServiceUrl,
    pub judge: Arc<dyn Judge>,
    /// The high halves of the trace-ids, by recorder.
    pub prefixes: HashMap<u16, u64>,
    pub debug_wait: Option<RequestId>,
}

/// Compares responses with the recorded ones.
pub trait Judge: Send + Sync {
    /// What came back for a request whose response counts; an error if nothing did. What is returned goes to the coordinator.
    fn response(
        &self,
        recorded: &trace::Request,
        outcome: Result<Seen, String>,
    ) -> Option<Divergence>;
}

/// What the one who watches is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub done: u64,
    pub of: u64,
    pub not_compared: u64,
}

struct Done {
    request: Request,
    divergence: Option<Divergence>,
}

type Http = Client<HttpConnector, Full<Bytes>>;

impl Sender {
    /// Sends all requests. Ends early when the replay is over. What was sent and not answered by then is given up.
    ///
    /// `told` hears after each response how far it is; `wait` is called once, before the request that a debugger waits for.
    pub async fn run(
        self,
        trace: Arc<Trace>,
        remarks: &mut Vec<Remark>,
        mut told: impl FnMut(Sent),
        wait: impl AsyncFnOnce(RequestId),
    ) -> Result<(), trace::ReadError> {
        let recording = Arc::clone(&self.floor.recording);
        let mut admission = Admission::new(&spans(&recording), limit(&recording));
        let mut reader = Reader::new(trace, &self.plan, Arc::clone(&recording));
        let http: Http = Client::builder(TokioExecutor::new())
            // Shorter than what any common server allows, so that no request goes out on a connection that is about to close.
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(1))
            .build(HttpConnector::new());
        let anew: Http = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(HttpConnector::new());
        let gate = &self.floor.gate;
        let mut changes = gate.changes();
        let mut exchanges: JoinSet<Done> = JoinSet::new();
        let mut sent = Sent {
            of: recording.requests.len() as u64,
            ..Default::default()
        };
        let mut wait = Some(wait);
        // The request in flight that nobody may join yet.
        let mut secluded: Option<Request> = None;
        let mut in_flight: Vec<Request> = Vec::new();
        loop {
            changes.borrow_and_update();
            secluded = secluded.filter(|&one| gate.with(|c| c.must_be_alone(one)));
            while let Some(request) = admission.next() {
                if gate.with(|coordinator| coordinator.is_over()) {
                    return Ok(());
                }
                let recorded = recording.request(request);
                // Whose transactions were attributed by being alone must be alone again until it has begun them.
                let needs_alone = gate.with(|coordinator| coordinator.must_be_alone(request));
                if secluded.is_some() || needs_alone && admission.in_flight() > 0 {
                    break;
                }
                // Others may be in flight: what was concurrent with this request may only be able to end after it.
                if self.debug_wait == Some(recorded.id)
                    && let Some(wait) = wait.take()
                {
                    wait(recorded.id).await;
                    if gate.with(|coordinator| coordinator.is_over()) {
                        return Ok(());
                    }
                }
                let full = match recorded.answer {
                    Answer::Unrecorded => Err("it was passed through unrecorded"),
                    Answer::Complete | Answer::Broken => reader
                        .take(request)
                        .await?
                        .ok_or("it is not in the recording any more"),
                };
                let full = match full {
                    Ok(full) => full,
                    Err(reason) => {
                        remarks.push(Remark::NotSentAgain {
                            request: recorded.id,
                            reason: reason.to_owned(),
                        });
                        admission.ended(request);
                        gate.with(|coordinator| coordinator.request_ended(request));
                        sent.done += 1;
                        sent.not_compared += 1;
                        continue;
                    }
                };
                admission.sent(request);
                in_flight.push(request);
                secluded = needs_alone.then_some(request);
                self.note_alone(&recording, &in_flight);
                gate.with(|coordinator| coordinator.request_sent(request));
                let exchange = Exchange {
                    number: request,
                    floor: Arc::clone(&self.floor),
                    http: http.clone(),
                    anew: anew.clone(),
                    service: self.service.clone(),
                    prefix: self
                        .prefixes
                        .get(&recorded.id.recorder())
                        .copied()
                        .unwrap_or_default(),
                    judge: Arc::clone(&self.judge),
                    compared: self.plan.compares(recorded.id, recorded.arrived)
                        && recorded.answer == Answer::Complete,
                };
                exchanges.spawn(async move {
                    Done {
                        request,
                        divergence: exchange.run(full).await,
                    }
                });
            }
            if admission.is_finished() && admission.in_flight() == 0 {
                return Ok(());
            }
            let done = tokio::select! {
                done = exchanges.join_next() => done,
                // It may have begun all that it has to begin alone.
                _ = changes.changed(), if secluded.is_some() => continue,
            };
            let Done {
                request,
                divergence,
            } = match done {
                Some(Ok(done)) => done,
                Some(Err(error)) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // Nobody cancels them but whoever drops all of this.
                    Err(_) => continue,
                },
                None => unreachable!("the first in line is sent when nothing is in flight"),
            };
            admission.ended(request);
            secluded = secluded.filter(|&one| one != request);
            in_flight.retain(|&other| other != request);
            self.note_alone(&recording, &in_flight);
            sent.done += 1;
            sent.not_compared += u64::from(recording.request(request).answer != Answer::Complete);
            gate.with(|coordinator| {
                // What is missing among its transactions explains a difference in the response, so it comes first.
                coordinator.request_ended(request);
                if let Some(divergence) = divergence {
                    coordinator.diverge(divergence);
                }
            });
            told(sent);
        }
    }

    fn note_alone(&self, recording: &Recording, in_flight: &[Request]) {
        let alone = match in_flight {
            [one] => recording.request(*one).id.0,
            _ => 0,
        };
        self.floor.alone.store(alone, Ordering::Release);
    }
}

/// From each request's first to its last use of the database.
fn spans(recording: &Recording) -> Vec<Span> {
    (0..recording.requests.len() as u32)
        .map(|number| {
            let own = recording.own(Request(number));
            let first = own.first().map(|&tx| recording.transaction(tx).began);
            Span {
                first: first.unwrap_or(recording.request(Request(number)).arrived),
                last: own.iter().map(|&tx| recording.transaction(tx).ended).max(),
            }
        })
        .collect()
}

/// The most requests that were in flight at one time, or the most sessions that requests used at one time if these were fewer: with
/// more in flight than there are connections, one that everybody waits for could be left without.
fn limit(recording: &Recording) -> usize {
    let in_flight = admission::overlap(
        recording
            .requests
            .iter()
            .map(|request| (request.arrived, request.ended)),
    );
    let mut sessions: HashMap<_, (i64, i64)> = HashMap::new();
    for number in 0..recording.requests.len() as u32 {
        for &tx in recording.own(Request(number)) {
            let used = recording.transaction(tx);
            let (first, last) = sessions
                .entry(used.session)
                .or_insert((used.began, used.ended));
            (*first, *last) = (used.began.min(*first), used.ended.max(*last));
        }
    }
    match admission::overlap(sessions.into_values()) {
        0 => in_flight,
        sessions => in_flight.min(sessions),
    }
}

/// Connections that are enough for the service not to lock itself up.
pub fn connections_needed(recording: &Recording) -> usize {
    Admission::new(&spans(recording), 1).overlap()
}

/// Reads requests with their bodies, a little ahead of where they are needed.
struct Reader {
    incoming: mpsc::Receiver<Result<trace::Request, trace::ReadError>>,
    /// Read, and not asked for yet: requests are sent in another order than that of arrival.
    early: HashMap<Request, trace::Request>,
    recording: Arc<Recording>,
}

impl Reader {
    fn new(trace: Arc<Trace>, plan: &Plan, recording: Arc<Recording>) -> Self {
        let (out, incoming) = mpsc::channel(READ_AHEAD);
        let filter = RequestFilter {
            arrived: Some(plan.period.clone()),
            ..Default::default()
        };
        tokio::task::spawn_blocking(move || {
            for request in trace.requests(filter) {
                if out.blocking_send(request).is_err() {
                    return;
                }
            }
        });
        Self {
            incoming,
            early: HashMap::new(),
            recording,
        }
    }

    async fn take(&mut self, wanted: Request) -> Result<Option<trace::Request>, trace::ReadError> {
        if let Some(request) = self.early.remove(&wanted) {
            return Ok(Some(request));
        }
        while let Some(request) = self.incoming.recv().await {
            let request = request?;
            let Some(number) = self.recording.find(request.id) else {
                continue;
            };
            if number == wanted {
                return Ok(Some(request));
            }
            self.early.insert(number, request);
        }
        Ok(None)
    }
}

/// One request and its response.
struct Exchange {
    number: Request,
    floor: Arc<Floor>,
    http: Http,
    /// Uses no connection twice.
    anew: Http,
    service: ServiceUrl,
    prefix: u64,
    judge: Arc<dyn Judge>,
    compared: bool,
}

impl Exchange {
    async fn run(self, recorded: trace::Request) -> Option<Divergence> {
        let outcome = self.send(&recorded).await;
        if !self.compared {
            return None;
        }
        self.judge.response(&recorded, outcome)
    }

    async fn send(&self, recorded: &trace::Request) -> Result<Seen, String> {
        let uri: Uri = format!("{}{}", self.service, recorded.target)
            .parse()
            .map_err(|error| format!("its target cannot be sent: {error}"))?;
        let mut request = http::Request::new(Full::new(Bytes::copy_from_slice(&recorded.body)));
        *request.uri_mut() = uri;
        *request.method_mut() = recorded
            .method
            .parse()
            .map_err(|_| format!("its method {:?} cannot be sent", recorded.method))?;
        *request.headers_mut() = headers::from_record(&recorded.headers);
        // Framing is the connection's business.
        request.headers_mut().remove(http::header::CONTENT_LENGTH);
        request
            .headers_mut()
            .remove(http::header::TRANSFER_ENCODING);
        let parent = Traceparent {
            prefix: self.prefix,
            request: recorded.id,
            span: recorded.id.0 | 1 << 63,
        };
        let parent =
            HeaderValue::from_str(&parent.to_string()).map_err(|error| error.to_string())?;
        request.headers_mut().insert(Traceparent::HEADER, parent);
        let connection = capture_connection(&mut request);
        let mut response = self.http.request(request.clone()).await;
        // A service may close a connection just when it is used again. What it has not begun is sent once more.
        if response.is_err()
            && !self
                .floor
                .gate
                .with(|coordinator| coordinator.has_begun(self.number))
        {
            response = self.anew.request(request).await;
        }
        // Some servers close the connection after a failure without having said so, and what is sent on it meanwhile is lost.
        if response
            .as_ref()
            .is_ok_and(|response| response.status().is_server_error())
            && let Some(connection) = connection.connection_metadata().as_ref()
        {
            connection.poison();
        }
        let response = response.map_err(|error| with_causes(&error))?;
        let status = response.status().as_u16();
        let headers = headers::to_record(response.headers());
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| format!("the response broke off: {}", with_causes(&error)))?;
        Ok(Seen {
            status,
            headers,
            body: body.to_bytes().to_vec(),
        })
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
