//! What was left out of a recording, and what that means for a replay.
//!
//! A redacted request is sent as it came, if what was taken out of it was sealed and the key is
//! here; else with hashes in the places of its secrets. A response is compared
//! without what the rules leave out. A service that checks a secret answers otherwise than it did,
//! and then the verdict names the rule.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use hindcast_gateway::redact::{MARK, RuleNumber, Rules};
use hindcast_pg::tokio::Client;
use hindcast_state::{Rows, StateError};
use hindcast_trace::{Request, RequestId, Response, Secrets, TableDigest, Trace};
use memchr::memmem;

use crate::compare::Seen;
use crate::verdict::{Divergence, Remark};

/// The rules of a recording, and where they applied to what was sent.
#[derive(Debug, Default)]
pub struct Redacted {
    /// By the number of the recorder. Those without rules are not here.
    rules: HashMap<u16, Rules>,
    /// Of a later version. What they left out differs; they are always suspects.
    unknown: Vec<String>,
    sent: Mutex<Vec<(RequestId, BTreeSet<RuleNumber>)>>,
}

impl Redacted {
    pub fn of(trace: &Trace) -> Self {
        let (mut rules, mut unknown) = (HashMap::new(), Vec::new());
        for recorder in trace.recorders() {
            let mut own = Rules::default();
            for text in &recorder.redacted {
                if own.add(text).is_err() {
                    unknown.push(text.clone());
                }
            }
            if !own.is_empty() {
                rules.insert(recorder.number, own);
            }
        }
        Self {
            rules,
            unknown,
            sent: Mutex::default(),
        }
    }

    /// The tables of a database as the final state of the recording has them: without the columns
    /// that its recorder left out.
    pub async fn digest_tables(
        trace: &Trace,
        client: &Client,
    ) -> Result<Vec<TableDigest>, StateError> {
        let rules = Self::last_rules(trace);
        let left_out = |column: &str| rules.leaves_out(column);
        hindcast_state::digest_tables_without(client, &left_out).await
    }

    /// The rows of a table that such a digest is of.
    pub async fn rows(trace: &Trace, client: &Client, table: &str) -> Result<Rows, StateError> {
        let rules = Self::last_rules(trace);
        let left_out = |column: &str| rules.leaves_out(column);
        hindcast_state::rows_without(client, table, &left_out).await
    }

    fn last_rules(trace: &Trace) -> Rules {
        let last = trace.recorders().iter().max_by_key(|one| one.started);
        let mut rules = Rules::default();
        for text in last.into_iter().flat_map(|recorder| &recorder.redacted) {
            // What is not known here differs, and is named.
            let _ = rules.add(text);
        }
        rules
    }

    fn rules(&self, request: RequestId) -> Option<&Rules> {
        self.rules.get(&request.recorder())
    }

    /// The rules of the recorder with this number, if it has any.
    pub fn of_recorder(&self, recorder: u16) -> Option<&Rules> {
        self.rules.get(&recorder)
    }

    /// Whether the final state of a recording was taken without a column.
    pub fn leaves_out(trace: &Trace, column: &str) -> bool {
        Self::last_rules(trace).leaves_out(column)
    }

    /// The rules that left something out of a request or of its response.
    pub fn rules_of(&self, request: &Request) -> Vec<String> {
        let Some(rules) = self.rules(request.id) else {
            return Vec::new();
        };
        let mut applied = rules.applied_to_request(request);
        applied.extend(rules.applied_to_response(&request.response));
        applied
            .into_iter()
            .map(|one| rules.text(one).to_owned())
            .collect()
    }

    /// A request goes out as it is recorded, or as it came.
    pub fn sending(&self, request: &Request) {
        if request.secrets == Secrets::Opened {
            return;
        }
        let Some(rules) = self.rules(request.id) else {
            return;
        };
        let applied = rules.applied_to_request(request);
        if !applied.is_empty() {
            let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.push((request.id, applied));
        }
    }

    /// Both responses as they compare: with the same in the place of every secret.
    pub fn comparable<'a>(
        &self,
        recorded: &'a Request,
        mut seen: Seen,
    ) -> (Cow<'a, Response>, Seen) {
        let Some(rules) = self.rules(recorded.id) else {
            return (Cow::Borrowed(&recorded.response), seen);
        };
        let is_same = is_without_secrets(&recorded.response, &seen.body);
        if !is_same {
            seen.body = rules.masked_body(&seen.headers, &seen.body).into_owned();
        }
        seen.headers = rules.masked_headers(&seen.headers).into_owned();
        let mut expected = recorded.response.clone();
        if let Response::Answered { headers, body, .. } = &mut expected {
            if !is_same {
                *body = body
                    .take()
                    .map(|body| rules.masked_body(headers, &body).into_owned());
            }
            *headers = rules.masked_headers(headers).into_owned();
        }
        (Cow::Owned(expected), seen)
    }

    /// What may have caused a divergence: rules that applied to the request itself, else to any
    /// that was sent, else those about columns, which change what ghosts write, if any ran.
    pub fn cause(&self, divergence: &Divergence, ghosts: bool) -> Option<Remark> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let own =
            (sent.iter()).filter(|(request, _)| divergence.position.request == Some(*request));
        let own: Vec<_> = own.collect();
        let suspects = match own.is_empty() {
            true => sent.iter().collect(),
            false => own,
        };
        let first = suspects.iter().map(|(request, _)| *request).min();
        let mut rules: BTreeSet<&str> = self.unknown.iter().map(String::as_str).collect();
        for (request, applied) in suspects {
            let known = self.rules(*request);
            rules.extend(
                known
                    .into_iter()
                    .flat_map(|all| applied.iter().map(|one| all.text(*one))),
            );
        }
        if divergence.position.request.is_none() && ghosts {
            let columns = self.rules.values().flat_map(Rules::texts);
            rules.extend(columns.filter(|text| text.starts_with("column:")));
        }
        (!rules.is_empty()).then(|| Remark::Redacted {
            request: first,
            rules: rules.into_iter().map(str::to_owned).collect(),
        })
    }
}

/// Whether a body is the recorded one, of which nothing was redacted.
fn is_without_secrets(recorded: &Response, seen: &[u8]) -> bool {
    let recorded = match recorded {
        Response::Answered { body, .. } => body.as_deref(),
        _ => None,
    };
    recorded == Some(seen) && memmem::find(seen, MARK.as_bytes()).is_none()
}
