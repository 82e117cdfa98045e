//! What a service draws that nobody can have it draw again: session keys, CSRF tokens, ids.
//!
//! Where nothing can be loaded into a service, as into a static binary of Go, it answers a replayed
//! request with other values than it did. What stands where is learned from the two answers to one
//! request, and is put into the client's later requests; in what the service answers and reads it
//! is put back before that is compared.
//!
//! ```text
//!   recorded   POST /login ─▶ Set-Cookie: sid=A      Cookie: sid=A ─▶ …
//!   replayed   POST /login ─▶ Set-Cookie: sid=B      Cookie: sid=B ─▶ …      A → B is learned
//! ```
//!
//! Where draws are pinned, that is left for ids that depend on more than their request ([`Draws`]).
//!
//! `pairs` finds the values (pure), `replacer` puts them in, `generated` tells what was drawn,
//! `results` looks at the rows of transactions. [`Learned`] is what is known so far. None of the
//! values leaves this module but to where it is sent and compared.

mod generated;
mod pairs;
mod replacer;
mod results;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hindcast_gateway::redact::MARK;
use hindcast_trace::{Digest, Micros, Request, Response};
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Window;
use crate::compare::Seen;
use crate::verdict::Learning;
use pairs::{How, Pair};
use replacer::{Number, Replacer, Way, percent_decoded};
pub use results::{Explained, Results};

type Headers = [(String, Vec<u8>)];

/// What is known so far.
pub struct Learned {
    known: Mutex<Known>,
    /// When the original began, by its clock, and this run by the clock of today.
    original: Micros,
    began: Micros,
    clock: Clock,
    draws: Draws,
}

#[derive(Default)]
struct Known {
    to_replay: Replacer,
    to_record: Replacer,
    pairs: HashMap<Vec<u8>, Vec<u8>>,
    /// The other way round.
    recorded: HashMap<Vec<u8>, Vec<u8>>,
    /// Hashes of values that looked drawn and were the same in both answers.
    same: HashSet<u64>,
    /// Hashes of what the service gave to its database in this run: of bytes that are no text, or,
    /// where its draws are pinned, of words that may be drawn.
    given: HashSet<u64>,
    /// Hashes of which no request has shown yet what they are of.
    hashes: HashSet<Vec<u8>>,
    count: Number,
    put_in: BTreeSet<Number>,
    counts: Learning,
}

/// What the service's clock shows in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The time of today.
    Real,
    /// The time of the original, as where a tap moves it.
    Moved,
}

/// What the service draws in a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draws {
    /// Something else each time.
    Free,
    /// What it drew. Left are ids that depend on more than the request: on a count of the process,
    /// or on its number.
    #[default]
    Pinned,
}

impl Learned {
    /// In a run that begins now, of a recording that began then.
    pub fn new(original: Micros, clock: Clock, draws: Draws) -> Self {
        Self {
            known: Mutex::default(),
            original,
            began: now(),
            clock,
            draws,
        }
    }

    /// The request as it is to be sent. `redacted`: as the recording shows it, where secrets of it
    /// were kept apart.
    pub fn to_send(&self, request: &Request, redacted: Option<&Request>) -> Option<Request> {
        let own = owners(&request.headers);
        let mut known = self.known();
        if known.pairs.is_empty() {
            return None;
        }
        for (hash, value) in redacted.into_iter().flat_map(|it| secrets(it, request)) {
            let replayed = known.pairs.get(&hash).cloned();
            known.hashes.remove(&hash);
            let is_new = |replayed: &Vec<u8>| {
                *replayed != value && known.pairs.get(&value) != Some(replayed)
            };
            if let Some(replayed) = replayed.filter(is_new) {
                known.add(&value, &replayed, &own);
            }
        }
        let mut found = BTreeSet::new();
        let mut sent = request.clone();
        let replace =
            |text: &[u8], way, found: &mut _| known.to_replay.replace(text, way, &own, found);
        if let Some(target) = replace(sent.target.as_bytes(), Way::Url, &mut found) {
            sent.target = String::from_utf8(target).ok()?;
        }
        for (_, value) in &mut sent.headers {
            if let Some(replaced) = replace(value, Way::Plain, &mut found) {
                *value = replaced;
            }
        }
        let way = match is_form(&sent.headers) {
            true => Way::Url,
            false => Way::Plain,
        };
        if let Some(body) = replace(&sent.body, way, &mut found) {
            sent.body = body;
            let length = sent.body.len().to_string().into_bytes();
            let is_length = |name: &str| name.eq_ignore_ascii_case("content-length");
            for (_, value) in sent.headers.iter_mut().filter(|(name, _)| is_length(name)) {
                value.clone_from(&length);
            }
        }
        if found.is_empty() {
            return None;
        }
        known.counts.requests += 1;
        known.put_in.extend(found);
        Some(sent)
    }

    /// Learns from what came for a request. Returns it with recorded values in the places of those
    /// that they stand for.
    pub fn answered(&self, request: &Request, seen: Seen) -> Seen {
        let Response::Answered {
            headers,
            body,
            body_digest,
            ..
        } = &request.response
        else {
            return seen;
        };
        let mut own = owners(&request.headers);
        own.extend(owners(headers));
        let mut known = self.known();
        let is_plain = |headers: &Headers| {
            let encoding = headers.iter().find(|(name, _)| name == "content-encoding");
            encoding.is_none_or(|(_, value)| value == b"identity")
        };
        let empty = seen.body.is_empty();
        let readable = is_plain(&seen.headers) && is_plain(headers);
        let body = body.as_deref().filter(|_| readable);
        let unread = || match self.draws {
            Draws::Free => true,
            Draws::Pinned => Digest::of(&seen.body) != *body_digest,
        };
        known.counts.unread += u64::from(body.is_none() && !empty && unread());
        known.note_same(headers, body, &seen);
        known.learn(pairs::of_headers(headers, &seen.headers), &own, self.draws);
        if let Some(body) = body.filter(|body| *body != seen.body) {
            known.learn(pairs::of_bodies(body, &seen.body), &own, self.draws);
            let restored = known.restored(&seen.body, Way::Page, &own);
            let restored = restored.as_deref().unwrap_or(&seen.body);
            known.learn(pairs::of_texts(body, restored), &own, self.draws);
        }
        let window = (self.draws == Draws::Free).then(|| self.window(request.ended));
        let times = Times(window);
        let (seen, changed) = as_recorded(&known, (headers, *body_digest, body), seen, &own, times);
        known.counts.responses += u64::from(changed);
        seen
    }

    /// Whether there is more to be known of what answers gave.
    pub fn lacks_values(&self) -> bool {
        !self.known().hashes.is_empty()
    }

    /// A text with recorded values in the places of those that stand for them; `None` if there are
    /// none.
    pub fn restored(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.known().restored(text, Way::Plain, &[])
    }

    /// The same of a text.
    pub fn restored_text(&self, text: &str) -> Option<String> {
        String::from_utf8(self.restored(text.as_bytes())?).ok()
    }

    /// All that is known and is text: values of this run, each with the recorded one.
    pub fn texts(&self) -> Vec<(String, String)> {
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).ok();
        let known = self.known();
        let all = known.recorded.iter();
        all.filter_map(|(now, was)| text(now).zip(text(was)))
            .collect()
    }

    /// `None`: nothing had to be learned.
    pub fn counts(&self) -> Option<Learning> {
        let known = self.known();
        let pinned = self.draws == Draws::Pinned;
        let counts = Learning {
            pinned,
            values: known.put_in.len() as u64,
            ..known.counts
        };
        let none = Learning {
            pinned,
            unread: if pinned { counts.unread } else { 0 },
            ..Learning::default()
        };
        (counts != none).then_some(counts)
    }

    fn count_transaction(&self) {
        self.known().counts.transactions += 1;
    }

    /// When the original had come to a moment, and this run is now.
    fn window(&self, ended: Micros) -> Window {
        let now = now();
        let run = match self.clock {
            Clock::Real => (self.began, now),
            // It is put forward to each request, and may have gone on from there.
            Clock::Moved => (self.original, ended + (now - self.began)),
        };
        Window {
            original: (self.original, ended),
            run,
            replayed: None,
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing in here can be half done.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn learn(&mut self, pairs: Vec<Pair>, own: &[u64], draws: Draws) {
        for pair in pairs {
            if draws == Draws::Pinned && !self.may_be_drawn(&pair) {
                continue;
            }
            let Pair {
                recorded,
                replayed,
                how,
            } = pair;
            let is_known = self.pairs.get(&recorded) == Some(&replayed);
            let differs =
                self.pairs.contains_key(&recorded) || self.recorded.contains_key(&replayed);
            let same = [&recorded, &replayed].map(|value| self.same.contains(&xxh3_64(value)));
            // Another value than one that is known by its place is a difference.
            let is_other = differs || same.contains(&true);
            if !is_known && (how == How::Secret || !is_other) {
                self.add(&recorded, &replayed, own);
            }
        }
    }

    /// Whether what is pinned may still have come out otherwise: as an id of the same form that the
    /// service gave to its database. What a hash stands for is known when it is sent.
    fn may_be_drawn(&mut self, pair: &Pair) -> bool {
        let Pair {
            recorded,
            replayed,
            how,
        } = pair;
        if pairs::is_hash(recorded) {
            if self
                .pairs
                .insert(recorded.clone(), replayed.clone())
                .as_ref()
                != Some(replayed)
            {
                self.hashes.insert(recorded.clone());
            }
            return false;
        }
        let is_given =
            || longest_word(replayed).is_some_and(|it| self.given.contains(&xxh3_64(it)));
        recorded.len() == replayed.len() && (*how == How::Secret || is_given())
    }

    fn add(&mut self, recorded: &[u8], replayed: &[u8], own: &[u64]) {
        let number = self.count;
        self.count += 1;
        self.to_replay.add(number, recorded, replayed, own);
        self.to_record.add(number, replayed, recorded, own);
        self.pairs.insert(recorded.to_vec(), replayed.to_vec());
        self.recorded.insert(replayed.to_vec(), recorded.to_vec());
    }

    /// Notes what looks drawn and is in both answers.
    fn note_same(&mut self, headers: &Headers, body: Option<&[u8]>, seen: &Seen) {
        let hashes = |given: Vec<Vec<u8>>| given.into_iter().map(|value| xxh3_64(&value));
        // As a rule the bodies are the same, and then so is what they hold.
        let (body, other) = match body {
            Some(body) if body == seen.body => {
                self.same.extend(hashes(pairs::given_by_body(body)));
                (None, None)
            }
            body => (body, body.map(|_| &seen.body[..])),
        };
        let one: HashSet<u64> = hashes(pairs::given(headers, body)).collect();
        if !one.is_empty() {
            let other = hashes(pairs::given(&seen.headers, other));
            self.same.extend(other.filter(|hash| one.contains(hash)));
        }
    }

    fn restored(&self, text: &[u8], way: Way, own: &[u64]) -> Option<Vec<u8>> {
        self.to_record.replace(text, way, own, &mut BTreeSet::new())
    }
}

/// When both runs were, where times that moved with them are no differences.
struct Times(Option<Window>);

impl Times {
    fn with_age_of(&self, recorded: &[u8], cookie: Vec<u8>) -> Vec<u8> {
        match &self.0 {
            Some(window) => window.with_age_of(recorded, cookie),
            None => cookie,
        }
    }

    fn with_times_of(&self, recorded: &[u8], text: &[u8]) -> Vec<u8> {
        match &self.0 {
            Some(window) => window.with_times_of(recorded, text),
            None => text.to_vec(),
        }
    }
}

/// An answer with recorded values in the places of what they stand for, and with recorded times
/// where it has times of this run. Whether it had any.
fn as_recorded(
    known: &Known,
    (headers, digest, body): (&Headers, Digest, Option<&[u8]>),
    mut seen: Seen,
    own: &[u64],
    times: Times,
) -> (Seen, bool) {
    let body = body_as_recorded(known, (digest, body), &seen.body, own, &times);
    let mut changed = body.is_some();
    seen.body = body.unwrap_or(seen.body);
    let in_places = pairs::have_same_names(headers, &seen.headers);
    let mut of_names: HashMap<String, usize> = HashMap::new();
    for ((name, value), at) in seen.headers.iter_mut().zip(0..) {
        let name = name.as_str();
        let recorded = match in_places {
            true => Some(&headers[at].1),
            false => {
                let nth = of_names.entry(name.to_ascii_lowercase()).or_default();
                let of_name = headers
                    .iter()
                    .filter(|(other, _)| other.eq_ignore_ascii_case(name));
                let recorded = of_name.map(|(_, value)| value).nth(*nth);
                *nth += 1;
                recorded
            }
        };
        let Some(recorded) = recorded.filter(|recorded| recorded[..] != value[..]) else {
            continue;
        };
        let restored = known
            .restored(value, Way::Plain, own)
            .unwrap_or_else(|| value.clone());
        let restored = match name.eq_ignore_ascii_case("set-cookie") {
            true => times.with_age_of(recorded, restored),
            false => restored,
        };
        // The tag of a body that was restored was made of what it was.
        let is_tag = name.eq_ignore_ascii_case("etag") && changed;
        if is_tag || times.with_times_of(recorded, &restored) == *recorded {
            value.clone_from(recorded);
            changed |= !is_tag && name != "date";
        } else {
            *value = restored;
        }
    }
    (seen, changed)
}

/// The same of a body; `None`: it is the same as it was.
fn body_as_recorded(
    known: &Known,
    (digest, recorded): (Digest, Option<&[u8]>),
    seen: &[u8],
    own: &[u64],
    times: &Times,
) -> Option<Vec<u8>> {
    if recorded == Some(seen) {
        return None;
    }
    // How a page writes a value shows only in some values.
    let ways = [Way::Plain, Way::Page, Way::Json, Way::Url];
    let mut written = ways.map(|way| {
        let body = known.restored(seen, way, own);
        let body = body.unwrap_or_else(|| seen.to_vec());
        match recorded {
            Some(recorded) => times.with_times_of(recorded, &body),
            None => body,
        }
    });
    let is_recorded = |body: &Vec<u8>| match recorded {
        Some(recorded) => body == recorded,
        None => Digest::of(body) == digest,
    };
    let found = written.iter().position(is_recorded).unwrap_or(0);
    let body = std::mem::take(&mut written[found]);
    (body != seen).then_some(body)
}

/// Whether a request's body is a form, in which values are written as in a URL.
fn is_form(headers: &Headers) -> bool {
    let kind = headers.iter().find(|(name, _)| name == "content-type");
    kind.is_some_and(|(_, kind)| kind.starts_with(b"application/x-www-form-urlencoded"))
}

/// Who sent a request, or is given an answer, as hashes of what says so.
fn owners(headers: &Headers) -> Vec<u64> {
    let cookies = crate::clients::identities(headers).map(xxh3_64);
    let bearer = headers.iter().filter(|(name, _)| name == "authorization");
    cookies
        .chain(bearer.map(|(_, value)| xxh3_64(value)))
        .collect()
}

/// What a request carries that an answer may have given: to find who has to wait for whom.
pub fn carried(request: &Request) -> HashSet<u64> {
    let texts = request.headers.iter().map(|(_, value)| &value[..]);
    let texts = texts.chain([request.target.as_bytes(), &request.body[..]]);
    let words = texts.flat_map(|text| replacer::words(text).map(|word| &text[word]));
    let long = words.filter(|word| word.len() >= WORD);
    long.map(xxh3_64).collect()
}

/// What a recorded answer gives its client that a later request may carry; likewise.
pub fn given(response: &Response) -> Vec<u64> {
    let Response::Answered { headers, body, .. } = response else {
        return Vec::new();
    };
    let given = pairs::given(headers, body.as_deref());
    let words = given.iter().filter_map(|value| longest_word(value));
    words
        .filter(|word| word.len() >= WORD)
        .map(xxh3_64)
        .collect()
}

fn longest_word(value: &[u8]) -> Option<&[u8]> {
    let word = replacer::words(value).max_by_key(|word| word.len())?;
    Some(&value[word])
}

/// Of what is carried, the words that are at least so long are looked at.
const WORD: usize = 8;

/// The hashes in a redacted request, each with what stands in its place in the request as it came.
fn secrets(redacted: &Request, request: &Request) -> Vec<(Vec<u8>, Vec<u8>)> {
    let headers = redacted.headers.iter().zip(&request.headers);
    let headers = headers.map(|((_, redacted), (_, value))| (&redacted[..], &value[..]));
    let rest = [
        (redacted.target.as_bytes(), request.target.as_bytes()),
        (&redacted.body[..], &request.body[..]),
    ];
    let texts = headers.chain(rest);
    texts
        .flat_map(|(redacted, text)| in_places(redacted, text))
        .collect()
}

fn in_places(redacted: &[u8], text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let (mut rest, mut text) = (redacted, text);
    while let Some(at) = position(rest, MARK.as_bytes()) {
        let (before, from) = rest.split_at(at);
        let word = replacer::words(from).next().map_or(0, |word| word.end);
        let (hash, behind) = from.split_at(word);
        let Some(value) = text.strip_prefix(before) else {
            return found;
        };
        // Up to what stands behind it, which ends where the next one begins.
        let next = position(behind, MARK.as_bytes()).unwrap_or(behind.len());
        let end = match next {
            0 => Some(value.len()),
            _ => position(value, &behind[..next]),
        };
        let Some(end) = end else { return found };
        found.push((hash.to_vec(), percent_decoded(&value[..end])));
        (rest, text) = (behind, &value[end..]);
    }
    found
}

fn position(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as Micros)
}

#[cfg(test)]
mod tests;
