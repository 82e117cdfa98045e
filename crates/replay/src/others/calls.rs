//! The recorded calls, and which of them answers what a replayed service asks.
//!
//! What a request asks is answered by its own calls. What is asked on nobody's behalf, as by a
//! worker that looks for jobs in Redis, is answered in the recorded order, and not before the
//! requests have got as far as they had when it was answered: see [`Progress`].

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use hindcast_gateway::messages::{self, Protocol, redis};
use hindcast_trace::{Call, Micros, Request};

use super::progress::Progress;

/// All recorded calls, by whom they were made to.
#[derive(Default)]
pub struct Calls {
    pub peers: BTreeMap<String, Peer>,
    /// What was asked and is not recorded, and how often.
    pub unknown: BTreeMap<String, u64>,
    /// What requests brought with other values than recorded, and how often.
    pub brought: BTreeMap<String, u64>,
    pub progress: Progress,
    /// When that was found which workers were given since this was emptied.
    pub handed: Vec<Micros>,
}

#[derive(Default)]
pub struct Peer {
    calls: Vec<Recorded>,
    /// So many of them the service encrypted.
    encrypted: usize,
    by_request: HashMap<u64, Vec<usize>>,
    /// By what was asked.
    by_sent: HashMap<Vec<u8>, Vec<usize>>,
    /// What was asked of Redis on nobody's behalf: by what was asked, by what that is about, and by
    /// the same without numbers and identifiers.
    nobodys: [HashMap<Vec<u8>, Vec<usize>>; 3],
    /// What was published, in its order.
    published: Vec<Published>,
}

struct Recorded {
    sent: Vec<u8>,
    answer: Answer,
    is_given: bool,
    /// Zero: nobody's.
    request: u64,
    began: Micros,
    ended: Micros,
    /// The call that brought what this one found.
    brought_by: Option<usize>,
}

struct Published {
    message: Vec<u8>,
    at: Micros,
    is_given: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub bytes: Vec<u8>,
    pub closes: bool,
}

/// What there is for bytes that may not be all.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Answer(Answer),
    /// A recorded call begins so.
    More,
    /// There is an answer later: by this moment, or when something moves.
    Later(Option<Instant>),
    Nothing,
}

/// A message that a service sent.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Zero: nobody.
    pub request: u64,
    pub sent: &'a [u8],
    pub at: Instant,
    pub now: Instant,
}

impl Calls {
    pub fn add(&mut self, request: &Request, call: Call) {
        let peer = self.peers.entry(call.peer.clone()).or_default();
        if call.within {
            self.progress.calls(request.id, call.ended);
        }
        peer.add(request.id.0, call);
    }

    pub fn note(&mut self, peer: &str, what: &str) {
        *self.unknown.entry(format!("{what} of {peer}")).or_default() += 1;
    }

    /// All were added.
    pub fn whole(&mut self) {
        self.progress.whole();
        self.peers.values_mut().for_each(Peer::whole);
    }

    /// Workers find what they found only when requests have got as far: what they do is undone, and
    /// the less is in the way of others until then the better.
    pub fn hand_late(&mut self) {
        let calls = self.peers.values_mut().flat_map(|peer| &mut peer.calls);
        calls.for_each(|call| call.brought_by = None);
    }

    /// A message is whole.
    pub fn answer(&mut self, name: &str, asked: Asked) -> Found {
        let Some(peer) = self.peers.get_mut(name) else {
            return Found::Nothing;
        };
        let compared = messages::compared(asked.sent);
        let sent = compared.as_deref().unwrap_or(asked.sent);
        let asked = Asked { sent, ..asked };
        if let Some(found) = peer.answer(asked, &mut self.progress, &mut self.handed) {
            return found;
        }
        let Some(answer) = peer.brought(asked, &mut self.progress) else {
            return Found::Nothing;
        };
        let what = format!("{} of {name}", messages::title(asked.sent));
        *self.brought.entry(what).or_default() += 1;
        Found::Answer(answer)
    }

    /// Nothing says where a message ends.
    pub fn answer_bytes(&mut self, name: &str, request: u64, sent: &[u8]) -> Found {
        let peer = self.peers.get_mut(name);
        peer.map_or(Found::Nothing, |peer| {
            peer.answer_bytes(request, sent, &mut self.progress)
        })
    }

    /// What was published to one of these channels, if it is its time.
    pub fn published(
        &mut self,
        name: &str,
        channels: &[Vec<u8>],
        last: &mut (Micros, Vec<u8>),
        now: Instant,
    ) -> Option<Vec<u8>> {
        let horizon = self.progress.horizon(now);
        self.peers.get_mut(name)?.published(channels, last, horizon)
    }
}

impl Peer {
    pub fn add(&mut self, request: u64, mut call: Call) {
        if call.sent.is_empty() && redis::is_published(&call.received) {
            return self.published.push(Published {
                message: call.received,
                at: call.ended,
                is_given: false,
            });
        }
        if redis::asks_for_script(&call.received) {
            return;
        }
        if let Some(compared) = messages::compared(&call.sent) {
            call.sent = compared;
        }
        let at = self.calls.len();
        self.encrypted += usize::from(call.encrypted);
        if call.within {
            self.by_request.entry(request).or_default().push(at);
        } else if Protocol::of(&call.sent) == Some(Protocol::Redis) {
            for (by, key) in self.nobodys.iter_mut().zip(names(&call.sent)) {
                by.entry(key).or_default().push(at);
            }
        }
        self.by_sent.entry(call.sent.clone()).or_default().push(at);
        self.calls.push(Recorded {
            sent: call.sent,
            answer: Answer {
                bytes: call.received,
                closes: call.closed,
            },
            is_given: false,
            request: if call.within { request } else { 0 },
            began: call.began,
            ended: call.ended,
            brought_by: None,
        });
    }

    /// They were told as the requests ended.
    fn whole(&mut self) {
        let calls = &self.calls;
        let lists = self.nobodys.iter_mut().flat_map(HashMap::values_mut);
        lists.for_each(|list| list.sort_by_key(|&at| calls[at].ended));
        self.published.sort_by_key(|published| published.at);
        self.find_who_brought();
    }

    /// What a worker finds, as a job's message, was brought by the last call that had it.
    fn find_who_brought(&mut self) {
        /// Shorter ones may be there more than once.
        const VALUE_MIN: usize = 24;
        let mut order: Vec<usize> = (0..self.calls.len()).collect();
        order.sort_by_key(|&at| self.calls[at].ended);
        let mut brought: HashMap<Vec<u8>, usize> = HashMap::new();
        for at in order {
            let call = &self.calls[at];
            if Protocol::of(&call.sent) != Some(Protocol::Redis) {
                continue;
            }
            if call.request == 0 && redis::takes(&call.sent) {
                let found = redis::words(&call.answer.bytes);
                let by = found.filter_map(|word| brought.get(word)).max().copied();
                self.calls[at].brought_by = by;
            } else if redis::brings(&call.sent) {
                let words = redis::words(&call.sent).filter(|word| word.len() >= VALUE_MIN);
                brought.extend(words.map(|word| (word.to_vec(), at)));
            }
        }
    }

    /// Whether who connects begins with a handshake.
    pub fn is_encrypted(&self) -> bool {
        !self.calls.is_empty() && self.encrypted == self.calls.len()
    }

    fn answer(
        &mut self,
        asked: Asked,
        progress: &mut Progress,
        handed: &mut Vec<Micros>,
    ) -> Option<Found> {
        let sent = asked.sent;
        if messages::sets_up(sent) {
            return self.any(sent, progress).map(Found::Answer);
        }
        if asked.request == 0
            && let Some(found) = self.background(asked, progress, handed)
        {
            return Some(found);
        }
        let own = self.own(asked.request, |recorded| recorded == sent, progress);
        let found = own.or_else(|| self.any(sent, progress)).or_else(|| {
            // What it carries may have been redacted.
            let line = http_line(sent)?;
            let is_it = |recorded: &[u8]| http_line(recorded) == Some(line);
            self.own(asked.request, is_it, progress)
        });
        found.map(Found::Answer)
    }

    /// What puts something there is answered as what put something else there: a job's message
    /// names the process that left it.
    fn brought(&mut self, asked: Asked, progress: &mut Progress) -> Option<Answer> {
        let is_redis = Protocol::of(asked.sent) == Some(Protocol::Redis);
        if !is_redis || !redis::brings(asked.sent) {
            return None;
        }
        let about = redis::about(asked.sent);
        let is_it = |recorded: &[u8]| redis::about(recorded) == about;
        self.own(asked.request, is_it, progress)
    }

    /// What is asked of Redis on nobody's behalf. `None`: nobody asked for the like.
    fn background(
        &mut self,
        asked: Asked,
        progress: &Progress,
        handed: &mut Vec<Micros>,
    ) -> Option<Found> {
        if Protocol::of(asked.sent) != Some(Protocol::Redis) {
            return None;
        }
        let lists = self.nobodys.iter().zip(names(asked.sent));
        let list = lists.filter_map(|(by, name)| by.get(&name)).next()?;
        let horizon = progress.horizon(asked.now);
        let calls = &mut self.calls;
        let is_due = |calls: &[Recorded], at: usize| {
            let by = calls[at].brought_by.map(|by| calls[by].is_given);
            by == Some(true) || calls[at].ended <= horizon
        };
        let is_nothing = |call: &Recorded| redis::is_nothing(&call.answer.bytes);
        let left = || list.iter().filter(|&&at| !calls[at].is_given).copied();
        let found = left().find(|&at| !is_nothing(&calls[at]) && is_due(calls, at));
        // Who looks less often than it did, or later, finds what is there by now.
        let until = found.map_or(horizon, |at| calls[at].ended);
        let passed = left().take_while(|&at| is_nothing(&calls[at]) && calls[at].ended <= until);
        let passed: Vec<usize> = passed.collect();
        let next = found.or(passed.last().copied()).or(left().next());
        for at in passed {
            calls[at].is_given = Some(at) != next;
        }
        let took = |call: &Recorded| match redis::waits(asked.sent) {
            true => Duration::from_micros(u64::try_from(call.ended - call.began).unwrap_or(0)),
            false => Duration::ZERO,
        };
        if let Some(at) = found {
            calls[at].is_given = true;
            if redis::takes(asked.sent) {
                handed.push(calls[at].ended);
            }
            return Some(Found::Answer(calls[at].answer.clone()));
        }
        let due = next.filter(|&at| is_due(calls, at));
        // What was found before is not found again by who takes it away.
        let takes = redis::takes(asked.sent);
        let mut before = list.iter().rev().copied();
        let before = before.find(|&at| match takes {
            true => is_nothing(&calls[at]),
            false => calls[at].is_given && (next.is_none() || is_nothing(&calls[at])),
        });
        let last = list.last().copied();
        let last = last.filter(|_| next.is_none() && !redis::waits(asked.sent));
        let Some(at) = due.or(before).or(last) else {
            return Some(Found::Later(None));
        };
        let until = asked.at + took(&calls[at]);
        if asked.now < until {
            return Some(Found::Later(Some(until)));
        }
        calls[at].is_given |= due.is_some();
        Some(Found::Answer(calls[at].answer.clone()))
    }

    /// Nothing says where a message ends.
    fn answer_bytes(&mut self, request: u64, sent: &[u8], progress: &mut Progress) -> Found {
        let own = self.own(request, |recorded| recorded == sent, progress);
        if let Some(answer) = own.or_else(|| self.any(sent, progress)) {
            return Found::Answer(answer);
        }
        let longer = |recorded: &Recorded| !recorded.is_given && recorded.sent.starts_with(sent);
        match self.calls.iter().any(longer) {
            true => Found::More,
            false => Found::Nothing,
        }
    }

    /// What it says before it is asked.
    pub fn greeting(&self) -> Option<Answer> {
        let first = self.by_sent.get(&b""[..])?.first()?;
        Some(self.calls[*first].answer.clone())
    }

    fn published(
        &mut self,
        channels: &[Vec<u8>],
        last: &mut (Micros, Vec<u8>),
        horizon: Micros,
    ) -> Option<Vec<u8>> {
        /// Connections that one message went to got it within this time.
        const TOGETHER: Micros = 5000;
        let is_of = |published: &Published| {
            let channel = redis::channel(&published.message);
            channel.is_some_and(|channel| channels.iter().any(|known| known == channel))
        };
        let next = self.published.iter_mut().find(|published| {
            let is_copy = published.at - last.0 <= TOGETHER && published.message == last.1;
            !published.is_given && published.at <= horizon && is_of(published) && !is_copy
        })?;
        next.is_given = true;
        *last = (next.at, next.message.clone());
        Some(next.message.clone())
    }

    /// The request's first that was not given yet.
    fn own(
        &mut self,
        request: u64,
        is_it: impl Fn(&[u8]) -> bool,
        progress: &mut Progress,
    ) -> Option<Answer> {
        let own = self.by_request.get(&request)?;
        let fits = |&&at: &&usize| !self.calls[at].is_given && is_it(&self.calls[at].sent);
        let at = *own.iter().find(fits)?;
        Some(self.give(at, progress))
    }

    /// Somebody's: one that was not given yet, or else the last.
    fn any(&mut self, sent: &[u8], progress: &mut Progress) -> Option<Answer> {
        let all = self.by_sent.get(sent)?;
        let next = all.iter().find(|&&at| !self.calls[at].is_given);
        let at = *next.or(all.last())?;
        Some(self.give(at, progress))
    }

    fn give(&mut self, at: usize, progress: &mut Progress) -> Answer {
        let call = &mut self.calls[at];
        if !std::mem::replace(&mut call.is_given, true) && call.request != 0 {
            progress.given(call.request, call.ended);
        }
        call.answer.clone()
    }
}

/// By what a command on nobody's behalf is looked for, the closest first.
fn names(sent: &[u8]) -> [Vec<u8>; 3] {
    let about = redis::about(sent);
    let masked = redis::masked(&about);
    [sent.to_vec(), about, masked]
}

/// Method and target.
fn http_line(sent: &[u8]) -> Option<&[u8]> {
    let is_http = Protocol::of(sent) == Some(Protocol::Http);
    sent.split(|&byte| byte == b'\r').next().filter(|_| is_http)
}

#[cfg(test)]
mod tests;
