//! Sends recorded requests again and compares what comes back.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hindcast_gateway::http::headers;
use hindcast_gateway::inside::CgiProtocol;
use hindcast_model::Traceparent;
use hindcast_order::{Admission, Request, Span, admission};
use hindcast_taplog::board::REQUEST_HEADER;
use hindcast_trace::{self as trace, RequestFilter, RequestId, Secrets, Trace};
use http::{HeaderValue, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cgi;
use crate::clients::{self, Clients, cached};
use crate::compare::{Compare, Seen};
use crate::connect::Client;
use crate::doors::{Door, Doors};
use crate::learned;
use crate::others;
use crate::pins::Pins;
use crate::place::{Asked, Place};
use crate::plan::Plan;
use crate::recording::{Answer, Recording};
use crate::shared::Shared;
use crate::verdict::{Divergence, Remark};

/// How many requests are read ahead of the one that is to be sent.
const READ_AHEAD: usize = 512;

/// How many of these are handed over at once.
const READ_AT_ONCE: usize = 32;

/// How long a request may lie before it is sent again, times the copies there are; and how many
/// there are at most.
const UNTAKEN_PATIENCE: Duration = Duration::from_millis(30);

/// Likewise, once, where the process has it that took it originally.
const PROCESS_PATIENCE: Duration = Duration::from_secs(1);
const COPIES_MAX: u32 = 12;

/// How long is waited, once, for somebody to listen where the service did, and how often is looked.
const LISTENER_PATIENCE: Duration = Duration::from_secs(10);
const LISTENER_PAUSE: Duration = Duration::from_millis(50);

type Response = Result<http::Response<Incoming>, hyper_util::client::legacy::Error>;

pub struct Sender {
    pub shared: Arc<Shared>,
    pub plan: Arc<Plan>,
    pub service: Place,
    /// What else requests came to.
    pub also: Vec<(Asked, Place)>,
    /// How many requests came from each client, by its address.
    pub clients: HashMap<SocketAddr, u32>,
    /// Requests came to more than one process of the service.
    pub has_processes: bool,
    pub compare: Arc<dyn Compare>,
    /// The high halves of the trace-ids, by recorder.
    pub prefixes: HashMap<u16, u64>,
    /// The service's tap finds out which request it has got, and what that is to draw and to read.
    pub inside: Option<Pins>,
    pub debug_wait: Option<RequestId>,
    pub pace: Pace,
    /// Transactions begin in the order of the recording: see [`hindcast_order::openings`].
    pub begins_in_order: bool,
    /// What the service says by FastCGI goes there.
    pub service_output: Option<Arc<File>>,
}

/// When requests are sent, as far as their order permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// At once.
    #[default]
    Max,
    /// When they arrived, as seen from the first.
    Recorded,
}

/// How far the sending is.
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

impl Sender {
    /// Sends all requests. Ends early when the replay is over. What was sent and not answered by
    /// then is given up.
    ///
    /// `told` hears after each response how far it is; `wait` is called once, before the request
    /// that a debugger waits for.
    pub async fn run(
        self,
        trace: Arc<Trace>,
        remarks: &mut Vec<Remark>,
        mut told: impl FnMut(Sent),
        wait: impl AsyncFnOnce(RequestId),
    ) -> Result<(), trace::ReadError> {
        let monitor = self.shared.monitor.clone();
        let is_over = || monitor.with(|coordinator| coordinator.is_over());
        let recording = Arc::clone(&self.shared.recording);
        let debug_wait = self.debug_wait.and_then(|id| recording.find(id));
        let mut changes = monitor.changes();
        let mut sending = Sending::new(self, trace, remarks);
        let mut wait = Some(wait);
        loop {
            changes.borrow_and_update();
            sending.note_begun();
            let (mut due, mut stands_behind) = (None, false);
            while let Some(request) = sending.admission.next() {
                if is_over() {
                    return Ok(());
                }
                due = sending.due(request);
                if due.is_some() {
                    break;
                }
                stands_behind = !monitor.with(|c| c.may_go_on(request));
                if stands_behind {
                    break;
                }
                let Some(company) = sending.may_join(request) else {
                    break;
                };
                if sending.waits_for_its_client(request).await? {
                    break;
                }
                // Others may be in flight: what was concurrent with this request may only be able
                // to end after it.
                if debug_wait == Some(request)
                    && let Some(wait) = wait.take()
                {
                    wait(recording.request(request).id).await;
                    if is_over() {
                        return Ok(());
                    }
                }
                sending.send(request, company).await?;
            }
            if sending.admission.is_finished() && sending.admission.in_flight() == 0 {
                return Ok(());
            }
            let in_flight = sending.admission.in_flight() > 0;
            let done = tokio::select! {
                done = sending.exchanges.join_next(),
                    if in_flight || due.is_none() && !stands_behind => done,
                () = pause(due), if due.is_some() => continue,
                // It may have begun all that it has to begin alone, or another what comes first.
                _ = changes.changed(), if sending.secluded.is_some() || stands_behind => continue,
            };
            match done {
                Some(Ok(done)) => sending.take(done),
                Some(Err(error)) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // They are cancelled only when all of this is dropped.
                    Err(_) => continue,
                },
                None => unreachable!("the first in line is sent when nothing is in flight"),
            }
            told(sending.sent);
        }
    }
}

/// Whether other requests may be in flight beside one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    Any,
    /// None, until it has begun the transactions that were known by being alone.
    None,
}

/// All requests, while they are sent.
struct Sending<'a> {
    sender: Sender,
    recording: Arc<Recording>,
    admission: Admission,
    reader: Reader,
    doors: Doors,
    exchanges: JoinSet<Done>,
    is_deserted: Arc<AtomicBool>,
    sent: Sent,
    clients: Clients,
    /// The request in flight that no other may join yet.
    secluded: Option<Request>,
    remarks: &'a mut Vec<Remark>,
    started: Instant,
}

impl<'a> Sending<'a> {
    fn new(sender: Sender, trace: Arc<Trace>, remarks: &'a mut Vec<Remark>) -> Self {
        let recording = Arc::clone(&sender.shared.recording);
        let limit = match sender.begins_in_order {
            true => usize::MAX,
            false => limit(&recording),
        };
        Self {
            admission: Admission::new(&spans_of_workers(&recording), limit),
            reader: Reader::new(trace, &sender.plan, Arc::clone(&recording)),
            doors: Doors::new(&sender.service, sender.also.clone(), sender.inside.as_ref()),
            exchanges: JoinSet::new(),
            is_deserted: Arc::default(),
            sent: Sent {
                of: recording.requests.len() as u64,
                ..Default::default()
            },
            secluded: None,
            clients: Clients::default(),
            remarks,
            started: Instant::now(),
            recording,
            sender,
        }
    }

    fn must_be_alone(&self, request: Request) -> bool {
        let monitor = &self.sender.shared.monitor;
        monitor.with(|coordinator| coordinator.must_be_alone(request))
    }

    /// Lets others join the secluded request if it has begun all that it has to begin alone.
    fn note_begun(&mut self) {
        self.secluded = self.secluded.filter(|&one| self.must_be_alone(one));
    }

    /// When the request is to be sent, if that is not now.
    fn due(&self, request: Request) -> Option<Instant> {
        if self.sender.pace == Pace::Max {
            return None;
        }
        let arrived = |request| self.recording.request(request).arrived;
        let after = arrived(request) - arrived(Request(0));
        let due = self.started + Duration::from_micros(after.max(0) as u64);
        (due > Instant::now()).then_some(due)
    }

    /// Whether the request may be sent now, beside those in flight, and what may then join it.
    fn may_join(&self, request: Request) -> Option<Company> {
        let company = match self.must_be_alone(request) {
            true => Company::None,
            false => Company::Any,
        };
        let alone = self.admission.in_flight() == 0;
        let may = self.secluded.is_none() && (company == Company::Any || alone);
        may.then_some(company)
    }

    /// Whether the client that sent the request had another answer by then, which it has not got
    /// yet.
    async fn waits_for_its_client(&mut self, request: Request) -> Result<bool, trace::ReadError> {
        let arrived = self.recording.request(request).arrived;
        let full = self.reader.peek(request).await?;
        let must_wait = |full: &Read| {
            let headers = &full.request.headers;
            self.clients.must_wait(arrived, headers, &full.carried)
        };
        Ok(full.is_some_and(must_wait))
    }

    async fn send(&mut self, request: Request, company: Company) -> Result<(), trace::ReadError> {
        let recorded = self.recording.request(request);
        let full = match recorded.answer {
            Answer::Unrecorded => Err("it was passed through unrecorded"),
            Answer::Complete | Answer::Broken => self
                .reader
                .take(request)
                .await?
                .ok_or("it is not in the recording any more"),
        };
        let monitor = &self.sender.shared.monitor;
        let full = match full {
            Ok(full) => full,
            Err(reason) => {
                self.remarks.push(Remark::NotSentAgain {
                    request: recorded.id,
                    reason: reason.to_owned(),
                });
                self.admission.ended(request);
                monitor.with(|coordinator| coordinator.request_ended(request));
                self.sent.done += 1;
                self.sent.not_compared += 1;
                return Ok(());
            }
        };
        self.admission.sent(request);
        let given: &[_] = match &full.request.response {
            trace::Response::Answered { headers, .. } => headers,
            _ => &[],
        };
        let given = (given, learned::given(&full.request.response));
        let headers = &full.request.headers;
        self.clients.sent(request, headers, recorded.ended, given);
        let put = cached(self.recording.numbers_of(request), false);
        self.clients.has_put(request, put);
        if company == Company::None {
            self.secluded = Some(request);
        }
        monitor.with(|coordinator| coordinator.request_sent(request));
        let prefix = self.sender.prefixes.get(&recorded.id.recorder());
        let compared = self.sender.plan.compares(recorded.id, recorded.arrived);
        let exchange = Exchange {
            number: request,
            shared: Arc::clone(&self.sender.shared),
            door: self.doors.of(full.request.came_to.as_deref()).clone(),
            prefix: prefix.copied().unwrap_or_default(),
            inside: self.sender.inside.clone(),
            compare: Arc::clone(&self.sender.compare),
            compared: compared && recorded.answer == Answer::Complete,
            service_output: self.sender.service_output.clone(),
            is_deserted: Arc::clone(&self.is_deserted),
            client: self.client(&full.request),
            is_clients_last: self.is_clients_last(&full.request),
        };
        self.exchanges.spawn(async move {
            Done {
                request,
                divergence: exchange.run(full).await,
            }
        });
        Ok(())
    }

    fn client(&self, request: &trace::Request) -> Option<Client> {
        let came_by = others::process(request).filter(|_| self.sender.has_processes);
        let address = others::client(request)?;
        Some(Client { address, came_by })
    }

    /// Whether its client sends nothing more by a connection from the same port.
    fn is_clients_last(&mut self, request: &trace::Request) -> bool {
        let client = others::client(request);
        let left = client.and_then(|client| self.sender.clients.get_mut(&client));
        left.is_some_and(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        })
    }

    fn take(&mut self, done: Done) {
        let Done {
            request,
            divergence,
        } = done;
        self.admission.ended(request);
        self.clients.ended(request);
        self.secluded = self.secluded.filter(|&one| one != request);
        let recorded = self.recording.request(request);
        self.sent.done += 1;
        self.sent.not_compared += u64::from(recorded.answer != Answer::Complete);
        self.sender.shared.monitor.with(|coordinator| {
            // What is missing among its transactions explains a difference in the response, so it
            // comes first.
            coordinator.request_ended(request);
        });
        self.sender.shared.settle_results(false);
        if let Some(divergence) = divergence {
            let monitor = &self.sender.shared.monitor;
            monitor.with(|coordinator| coordinator.diverge(divergence));
        }
    }
}

async fn pause(until: Option<Instant>) {
    if let Some(until) = until {
        tokio::time::sleep_until(until.into()).await;
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

/// Those spans as far as they take one of the workers: what is left to do in the background
/// when a request is answered, as jobs and mail, takes none. What another request sees in a cache
/// is put there by one that is sent before it.
fn spans_of_workers(recording: &Recording) -> Vec<Span> {
    let mut spans = spans(recording);
    let arrived: Vec<_> = recording.requests.iter().map(|one| one.arrived).collect();
    let cached = |number: usize, is_seen| {
        cached(recording.numbers_of(Request(number as u32)), is_seen).collect::<Vec<_>>()
    };
    clients::begin_before_who_sees(&mut spans, &arrived, cached);
    for (span, request) in spans.iter_mut().zip(&recording.requests) {
        *span = span.until(request.ended);
    }
    spans
}

/// The most requests that were in flight at one time, or the most sessions that requests used at
/// one time if these were fewer: with more in flight than there are connections, one that all
/// others wait for could be left without.
fn limit(recording: &Recording) -> usize {
    let in_flight = admission::overlap(
        recording
            .requests
            .iter()
            .map(|request| (request.arrived, request.ended)),
    );
    match connections_used(recording) {
        0 => in_flight,
        sessions => in_flight.min(sessions),
    }
}

/// How many sessions requests used at one time.
pub fn connections_used(recording: &Recording) -> usize {
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
    admission::overlap(sessions.into_values())
}

/// Connections that are enough for the service not to lock itself up.
pub fn connections_needed(recording: &Recording) -> usize {
    Admission::new(&spans(recording), 1).overlap()
}

/// A request with its body.
struct Read {
    request: trace::Request,
    /// As the recording shows it, where secrets of it were kept apart.
    redacted: Option<trace::Request>,
    /// Hashes of what it carries that an answer may have given.
    carried: HashSet<u64>,
}

impl Read {
    fn new(recorded: trace::Request, trace: &Trace) -> Self {
        let redacted = matches!(recorded.secrets, Secrets::Sealed(_)).then(|| recorded.clone());
        let request = trace.with_secrets(recorded);
        let both = [Some(&request), redacted.as_ref()];
        let both = both.into_iter().flatten();
        Self {
            carried: both.flat_map(learned::carried).collect(),
            redacted,
            request,
        }
    }
}

/// Reads requests with their bodies, a little ahead of where they are needed.
struct Reader {
    incoming: mpsc::Receiver<Result<Vec<Read>, trace::ReadError>>,
    /// Read, and not asked for yet: requests are not sent in the order of arrival.
    early: HashMap<Request, Read>,
    recording: Arc<Recording>,
}

impl Reader {
    fn new(trace: Arc<Trace>, plan: &Plan, recording: Arc<Recording>) -> Self {
        // Who reads is woken once for several.
        let (out, incoming) = mpsc::channel(READ_AHEAD / READ_AT_ONCE);
        let filter = RequestFilter {
            arrived: Some(plan.period.clone()),
            ..Default::default()
        };
        tokio::task::spawn_blocking(move || {
            let mut requests = trace.requests(filter);
            loop {
                let some = requests.by_ref().take(READ_AT_ONCE);
                let some = some.map(|request| Ok(Read::new(request?, &trace)));
                let some: Result<Vec<Read>, _> = some.collect();
                let is_last = some.as_ref().map_or(true, Vec::is_empty);
                if out.blocking_send(some).is_err() || is_last {
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

    async fn take(&mut self, wanted: Request) -> Result<Option<Read>, trace::ReadError> {
        self.peek(wanted).await?;
        Ok(self.early.remove(&wanted))
    }

    async fn peek(&mut self, wanted: Request) -> Result<Option<&Read>, trace::ReadError> {
        while !self.early.contains_key(&wanted)
            && let Some(some) = self.incoming.recv().await
        {
            for mut read in some? {
                if let Some(number) = self.recording.find(read.request.id) {
                    let seen = cached(self.recording.numbers_of(number), true);
                    read.carried.extend(seen);
                    self.early.insert(number, read);
                }
            }
        }
        Ok(self.early.get(&wanted))
    }
}

/// One request and its response.
struct Exchange {
    number: Request,
    shared: Arc<Shared>,
    door: Door,
    prefix: u64,
    inside: Option<Pins>,
    compare: Arc<dyn Compare>,
    compared: bool,
    service_output: Option<Arc<File>>,
    /// Nobody has listened for as long as is waited for that.
    is_deserted: Arc<AtomicBool>,
    /// Whom the service is to see as its client.
    client: Option<Client>,
    /// Its client's connection is closed after it.
    is_clients_last: bool,
}

impl Exchange {
    async fn run(self, read: Read) -> Option<Divergence> {
        let recorded = read.request;
        self.compare.sending(&recorded);
        let learned = &self.shared.learned;
        let sent = learned.to_send(&recorded, read.redacted.as_ref());
        let mut outcome = self.send(sent.as_ref().unwrap_or(&recorded)).await;
        if outcome.is_err() {
            self.wait_for_a_listener().await;
        }
        if let Some(pins) = &self.inside {
            pins.answered(&recorded);
        }
        outcome = outcome.map(|seen| learned.answered(&recorded, seen));
        if !self.compared {
            return None;
        }
        self.compare.response(&recorded, outcome)
    }

    /// A service that ended is seen to have ended only when its parent has been told. What was in
    /// flight is not over until then, and nothing else is sent, which nobody would answer.
    async fn wait_for_a_listener(&self) {
        let since = Instant::now();
        while !self.is_deserted.load(Ordering::Relaxed) && !self.door.place.accepts().await {
            if since.elapsed() >= LISTENER_PATIENCE {
                self.is_deserted.store(true, Ordering::Relaxed);
            }
            tokio::time::sleep(LISTENER_PAUSE).await;
        }
    }

    async fn send(&self, recorded: &trace::Request) -> Result<Seen, String> {
        // The number that the service's taps know it by.
        let number = self.inside.as_ref().map(|pins| pins.sending(recorded));
        let traceparent = self.traceparent(recorded);
        let Some(protocol) = CgiProtocol::of(recorded) else {
            return self.send_http(recorded, traceparent, number).await;
        };
        let inside = self.inside.as_ref().zip(number);
        let place = &self.door.place;
        let log = self.service_output.as_deref();
        cgi::send(
            place,
            protocol,
            recorded,
            traceparent.as_deref(),
            inside,
            log,
        )
        .await
    }

    /// The service got what its caller sent, if it was recorded from inside.
    fn traceparent(&self, recorded: &trace::Request) -> Option<String> {
        if self.inside.is_some() {
            return recorded.caller_traceparent.clone();
        }
        let parent = Traceparent {
            prefix: self.prefix,
            request: recorded.id,
            span: recorded.id.0 | 1 << 63,
        };
        Some(parent.to_string())
    }

    /// Each client has connections of its own, by what stands in the service's place.
    fn uri(&self, recorded: &trace::Request) -> Result<Uri, String> {
        let scheme = match recorded.is_encrypted() {
            true => "https",
            false => "http",
        };
        let authority = match self.client {
            Some(client) => client.authority(),
            None => self.door.place.authority(),
        };
        format!("{scheme}://{authority}{}", recorded.target)
            .parse()
            .map_err(|error| format!("its target cannot be sent: {error}"))
    }

    async fn send_http(
        &self,
        recorded: &trace::Request,
        traceparent: Option<String>,
        number: Option<u64>,
    ) -> Result<Seen, String> {
        let uri = self.uri(recorded)?;
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
        let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
        let headers = request.headers_mut();
        if !headers.contains_key(http::header::HOST) {
            headers.insert(http::header::HOST, value(&self.door.place.authority())?);
        }
        if let Some(traceparent) = traceparent {
            headers.insert(Traceparent::KEY, value(&traceparent)?);
        }
        if let Some(number) = number {
            headers.insert(REQUEST_HEADER, numbered(number));
        }
        let connection = capture_connection(&mut request);
        let mut response = self
            .request(number.unwrap_or(0), &request, &connection)
            .await;
        // A service may close a connection just when it is used again. What it has not begun is
        // sent once more; by another number, since it may have read the first one's beginning.
        let monitor = &self.shared.monitor;
        if response.is_err() && !monitor.with(|c| c.has_begun(self.number)) {
            if let Some(pins) = &self.inside {
                let again = numbered(pins.sending(recorded));
                request.headers_mut().insert(REQUEST_HEADER, again);
            }
            response = self.door.anew.request(request).await;
        }
        // Some servers close the connection after a failure without having said so, and what is
        // sent on it meanwhile is lost. A server with few threads may have one for each connection.
        let has_failed = response
            .as_ref()
            .is_ok_and(|response| response.status().is_server_error());
        if (has_failed || self.is_clients_last)
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

impl Exchange {
    /// A worker that has many threads may have taken the connection, and all of them may wait for
    /// what this request does, while others have nothing to do. What no worker has taken is sent
    /// again, by another connection, until one takes it; the taps see to it that only one does.
    async fn request(
        &self,
        number: u64,
        request: &http::Request<Full<Bytes>>,
        connection: &CaptureConnection,
    ) -> Response {
        let mut sent = FuturesUnordered::new();
        sent.push(self.door.http.request(request.clone()));
        let Some(pins) = &self.inside else {
            return sent.next().await.expect("it was sent");
        };
        let mut copies = 1;
        loop {
            let lies = match self.came_by().filter(|_| copies == 1) {
                Some(_) => tokio::time::sleep(PROCESS_PATIENCE),
                None => tokio::time::sleep(UNTAKEN_PATIENCE * copies),
            };
            tokio::select! {
                Some(response) = sent.next() => {
                    // A connection was closed of which another worker has the request.
                    let is_other = response.is_err() && pins.is_taken(number) && !sent.is_empty();
                    if !is_other {
                        return response;
                    }
                }
                () = lies, if copies < COPIES_MAX && !pins.is_taken(number) => {
                    if copies > 1 || !self.is_connecting(connection) {
                        sent.push(self.door.anew.request(self.copy(request)));
                        copies += 1;
                    }
                }
            }
        }
    }

    fn came_by(&self) -> Option<u64> {
        self.client.and_then(|client| client.came_by)
    }

    /// The process to which it came is waited for.
    fn is_connecting(&self, connection: &CaptureConnection) -> bool {
        self.came_by().is_some() && connection.connection_metadata().is_none()
    }

    /// To be taken by any process.
    fn copy(&self, request: &http::Request<Full<Bytes>>) -> http::Request<Full<Bytes>> {
        let mut copy = request.clone();
        let came_by = None;
        let anybody = self.client.map(|client| Client { came_by, ..client });
        let scheme = request.uri().scheme_str().unwrap_or("http");
        if let Some(client) = anybody
            && let Some(target) = request.uri().path_and_query()
            && let Ok(uri) = format!("{scheme}://{}{target}", client.authority()).parse()
        {
            *copy.uri_mut() = uri;
        }
        copy
    }
}

/// The number that taps know a request by.
fn numbered(number: u64) -> HeaderValue {
    let digits = format!("{number:016x}");
    HeaderValue::try_from(digits).expect("digits are allowed in a header")
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
