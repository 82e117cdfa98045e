//! A request and its answer, as they are told piece by piece.

use std::sync::Arc;

use hindcast_trace::Response;
use http::header::{HeaderMap, UPGRADE};

use super::host::{Came, Host};
use crate::http::{Exchange, PassedBody, PassedResponse, RequestHead, connected, upgraded};
use crate::messages::Asked;

/// One request from its head on, until both it and its answer have ended.
///
/// It gets its number when it has been read, or when its answer begins: a service that says `100
/// Continue` reads the rest with another turn, and works under that one's number.
pub(super) struct Call {
    began: u64,
    came: Came,
    /// The last turn that the tap told for it.
    turn: Option<u64>,
    /// That turn is another request's.
    within: bool,
    /// Until it has a number.
    head: Option<RequestHead>,
    body: PassedBody,
    /// Not all bytes of its body were seen.
    unseen: bool,
    /// `None` before it has a number, and if it can have none.
    exchange: Option<Exchange>,
    answer: Answer,
    /// What its answer depends on.
    pub asked: Asked,
}

enum Answer {
    Awaited,
    Begun {
        response: PassedResponse,
        status: u16,
        /// Bytes of its body that were not seen.
        unseen: u64,
    },
    /// At this moment; the request has not been read to its end yet.
    Ended(u64, Response),
}

impl Call {
    pub fn begin(
        host: &mut Host,
        began: u64,
        turn: Option<u64>,
        head: RequestHead,
        asked: Asked,
    ) -> Self {
        Self {
            began,
            came: host.came.clone(),
            turn,
            within: turn.is_some_and(|turn| !host.claims.claim(turn)),
            head: Some(head),
            body: PassedBody::default(),
            unseen: false,
            exchange: None,
            answer: Answer::Awaited,
            asked,
        }
    }

    /// The tap begins another turn in the middle of it.
    pub fn turn(&mut self, host: &mut Host, number: u64) {
        match self.head {
            Some(_) => {
                self.within = !host.claims.claim(number);
                if self.turn.replace(number).is_some() {
                    host.counters.turns_unused.one();
                }
            }
            None => host.counters.turns_unused.one(),
        }
    }

    pub fn body(&mut self, host: &Host, data: &[u8]) {
        self.body.pass(data, host.limits.request_body_max);
    }

    pub fn body_unseen(&mut self) {
        self.unseen = true;
    }

    /// It has been read.
    pub fn whole(&mut self, host: &mut Host) {
        self.body.complete = true;
        self.number(host);
    }

    fn number(&mut self, host: &mut Host) {
        let Some(head) = self.head.take() else {
            return;
        };
        if self.within {
            return host.counters.within.one();
        }
        let at = host.clock.micros(self.began);
        let turn = self.turn.and_then(|turn| {
            let arrival = host.witness.arrived_before(turn, at);
            arrival.or_else(|| {
                host.counters.turns_unused.one();
                None
            })
        });
        let arrival = turn.or_else(|| {
            host.counters.without_turn.one();
            let number = (host.numbers)();
            host.claims.claim(number);
            host.witness.arrived_before(number, at)
        });
        match arrival {
            Some(arrival) => {
                let witness = Arc::clone(&host.witness);
                let exchange = Exchange::begin(witness, arrival, head, host.limits, &host.redactor);
                self.exchange = Some(exchange);
            }
            None => {
                host.counters.refused.one();
                host.missed(self.began, self.began, "too many requests were in flight");
            }
        }
    }

    pub fn is_read(&self) -> bool {
        self.body.complete
    }

    pub fn is_answered(&self) -> bool {
        matches!(self.answer, Answer::Ended(..))
    }

    /// Nothing more is to come of it.
    pub fn is_over(&self) -> bool {
        self.body.complete && self.is_answered()
    }

    pub fn answer(&mut self, host: &mut Host, status: u16, headers: HeaderMap) {
        self.number(host);
        self.answer = Answer::Begun {
            response: PassedResponse::begin(status, headers, host.limits, &host.redactor),
            status,
            unseen: 0,
        };
    }

    pub fn answer_body(&mut self, data: &[u8]) {
        if let Answer::Begun { response, .. } = &mut self.answer {
            response.pass(data);
        }
    }

    pub fn answer_unseen(&mut self, length: u64) {
        if let Answer::Begun { unseen, .. } = &mut self.answer {
            *unseen = unseen.saturating_add(length);
        }
    }

    pub fn answer_trailers(&mut self, trailers: HeaderMap) {
        if let Answer::Begun { response, .. } = &mut self.answer {
            response.trailers(trailers);
        }
    }

    /// All of the answer was seen, or as much as can be.
    pub fn answer_whole(&mut self, host: &Host, at: u64) {
        let before = std::mem::replace(&mut self.answer, Answer::Awaited);
        let Answer::Begun {
            response,
            status,
            unseen,
        } = before
        else {
            self.answer = before;
            return;
        };
        let response = match unseen {
            0 => response.finish(host.limits, &host.redactor),
            unseen => {
                host.counters.partly_seen.one();
                let all = response.bytes().saturating_add(unseen);
                // It can be sent again, and what comes back is not compared.
                Response::Broken {
                    reason: format!(
                        "answered with {status}, but {unseen} of the {all} bytes of the body went \
                         from a file to the socket without being seen"
                    ),
                }
            }
        };
        self.answer = Answer::Ended(at, response);
    }

    /// What follows on the connection is another protocol.
    pub fn upgrade(&mut self, host: &mut Host, at: u64, headers: &HeaderMap) {
        self.number(host);
        let response = match self.asked.connect {
            true => connected(),
            false => upgraded(headers.get(UPGRADE).or(self.asked.upgrade.as_ref())),
        };
        self.answer = Answer::Ended(at, response);
    }

    /// Its answer will not be seen any more, or no more of it.
    pub fn give_up(&mut self, host: &mut Host, at: u64, reason: &str) {
        if self.is_answered() {
            return;
        }
        self.number(host);
        let reason = reason.to_owned();
        // Who sends it again has to have all of it.
        let response = match self.body.complete {
            true => Response::Broken { reason },
            false => Response::Unrecorded { reason },
        };
        self.answer = Answer::Ended(at, response);
    }

    /// Its client or the service went away.
    pub fn closed(&mut self, host: &mut Host, at: u64) {
        let reason = match &self.answer {
            Answer::Ended(..) => return,
            Answer::Begun { response, .. } => format!(
                "the connection was closed after {} bytes of the response",
                response.bytes()
            ),
            Answer::Awaited if self.body.complete => {
                "the connection was closed before the service had answered".to_owned()
            }
            Answer::Awaited => {
                "the connection was closed before the service had read the whole request".to_owned()
            }
        };
        self.number(host);
        self.answer = Answer::Ended(at, Response::Broken { reason });
    }

    /// Tells it. What it is not known to be by now, it is not.
    pub fn end(mut self, host: &mut Host) {
        let (Some(mut exchange), Answer::Ended(at, response)) = (self.exchange, self.answer) else {
            return;
        };
        let response = match response {
            Response::Answered { .. } | Response::Broken { .. } if self.unseen => {
                host.counters.partly_seen.one();
                Response::Unrecorded {
                    reason: "a part of the request's body went from the socket to a file without \
                             being seen"
                        .to_owned(),
                }
            }
            response => response,
        };
        exchange.set_body(std::mem::take(&mut self.body));
        let Came { to, from, by } = &self.came;
        exchange.set_came(to.as_deref(), from.as_deref(), *by);
        if let Some(turn) = self.turn {
            exchange.set_clock(&host.readings.take(turn));
            exchange.set_calls(host.calls.take(turn, &host.redactor));
        }
        exchange.end_at(host.clock.micros(at), response);
    }
}
