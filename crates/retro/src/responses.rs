//! How responses differ from the recorded ones.
//!
//! [`compare`] looks at one response and has no state; a [`Collector`] does so for all of them,
//! counts by kind, and describes some.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

use hindcast_replay::compare::{
    HeaderDifference, Ignore, Seen, excerpt, first_difference, header_differences,
};
use hindcast_trace::{Digest, RequestId, Response};
use serde_json::Value;

use crate::json;
use crate::noise::{self, Noise, Numbers, Window};
use crate::report::{BodyChange, Group, ResponseChange, Responses, ValueChange};

/// How much is described and kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The first ones in the order of the requests.
    pub described: usize,
    /// Values by JSON pointer within one response.
    pub values_per_response: usize,
    /// Kinds of change that are counted apart; what comes beyond is counted together by kind of
    /// request.
    pub groups: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            described: 1000,
            values_per_response: 20,
            groups: 10_000,
        }
    }
}

/// What comparing one response found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    Same,
    /// Only clocks, sequences or randomness.
    Noise,
    Changed,
    /// The recording does not have the response, or not all of it.
    Unknown,
}

/// The same, with what there is to say.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    Same,
    Unknown,
    /// Where the noise is.
    Noise(String),
    /// What kind of change it is, without the kind of request: `201 → 200`, `/subscribers/* is
    /// gone`.
    Changed(String, Box<ResponseChange>),
}

/// What is known while a response is compared.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    pub ignore: &'a Ignore,
    /// `run` may end now: what came came before.
    pub window: &'a Window,
    pub numbers: &'a dyn Numbers,
}

/// Compares what came now, or why nothing came, with what is recorded. `of` is the kind of request.
pub fn compare(
    request: RequestId,
    of: &str,
    recorded: &Response,
    now: Result<&Seen, &str>,
    facts: Facts<'_>,
    values_max: usize,
) -> Found {
    let Response::Answered {
        status,
        headers,
        body_digest,
        body_bytes,
        body,
    } = recorded
    else {
        return Found::Unknown;
    };
    let mut change = ResponseChange {
        request,
        of: of.to_owned(),
        status: (Some(*status), None),
        headers: Vec::new(),
        body: None,
        error: None,
    };
    let seen = match now {
        Ok(seen) => seen,
        Err(error) => {
            change.error = Some(error.to_owned());
            return Found::Changed(format!("{status} → no response"), Box::new(change));
        }
    };
    change.status.1 = Some(seen.status);
    let recorded = Recorded {
        digest: *body_digest,
        bytes: *body_bytes,
        body: body.as_deref(),
    };
    let mut bodies = compare_bodies(recorded, &seen.body, facts, values_max);
    for header in header_differences(headers, &seen.headers, facts.ignore) {
        if let Some(noise) = header_noise(&header, !bodies.noise.is_empty(), facts) {
            bodies.noise.insert(format!("{}: {noise}", header.name));
            continue;
        }
        change.headers.push(ValueChange {
            name: header.name,
            before: header.expected,
            after: header.actual,
        });
    }
    change.body = bodies.change;
    let what = if *status != seen.status {
        format!("{status} → {}", seen.status)
    } else {
        let headers = (change.headers.iter()).map(|header| match (&header.before, &header.after) {
            (None, _) => format!("header {} is new", header.name),
            (_, None) => format!("header {} is gone", header.name),
            _ => format!("header {} changed", header.name),
        });
        first_few(headers.chain(bodies.what))
    };
    if !what.is_empty() {
        Found::Changed(what, Box::new(change))
    } else if bodies.noise.is_empty() {
        Found::Same
    } else {
        Found::Noise(first_few(bodies.noise))
    }
}

fn header_noise(header: &HeaderDifference, body_is_noise: bool, facts: Facts<'_>) -> Option<Noise> {
    match (&header.expected, &header.actual) {
        // A tag of a body differs because the body does.
        (Some(_), Some(_)) if header.name == "etag" && body_is_noise => Some(Noise::Random),
        (Some(before), Some(after)) => noise::in_text(before, after, facts.window),
        _ => None,
    }
}

/// So many parts of a change make it a kind of its own.
const PARTS_OF_KIND: usize = 3;

fn first_few(parts: impl IntoIterator<Item = String>) -> String {
    let mut parts = parts.into_iter();
    let mut shown: Vec<_> = parts.by_ref().take(PARTS_OF_KIND).collect();
    if parts.next().is_some() {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}

/// What the recording has of a body.
#[derive(Clone, Copy)]
struct Recorded<'a> {
    digest: Digest,
    bytes: u64,
    body: Option<&'a [u8]>,
}

#[derive(Default)]
struct Bodies {
    change: Option<BodyChange>,
    /// What kind of change it is.
    what: BTreeSet<String>,
    noise: BTreeSet<String>,
}

/// Longer values are cut: a difference is for people to read.
const VALUE_CHARACTERS_MAX: usize = 200;

fn compare_bodies(recorded: Recorded, now: &[u8], facts: Facts<'_>, values_max: usize) -> Bodies {
    let mut bodies = Bodies::default();
    if recorded.digest == Digest::of(now) && recorded.bytes == now.len() as u64 {
        return bodies;
    }
    let Some(before) = recorded.body else {
        bodies.what.insert("another body".to_owned());
        bodies.change = Some(BodyChange::Unkept {
            before_bytes: recorded.bytes,
            after_bytes: now.len() as u64,
            after: excerpt(now, 0),
        });
        return bodies;
    };
    let masked;
    let (before, now) = if facts.ignore.touches_bodies() {
        masked = (facts.ignore.masked(before), facts.ignore.masked(now));
        (&masked.0[..], &masked.1[..])
    } else {
        (before, now)
    };
    if before == now {
        return bodies;
    }
    if let (Some(old), Some(new)) = (parse(before), parse(now))
        && old != new
    {
        compare_json(&old, &new, before, facts, values_max, &mut bodies);
        return bodies;
    }
    let at = first_difference(before, now);
    bodies.what.insert("another body".to_owned());
    bodies.change = Some(BodyChange::Text {
        at: at as u64,
        before: excerpt(before, at),
        after: excerpt(now, at),
    });
    bodies
}

/// Only objects and arrays: of a lone value the whole text is the better description.
fn parse(body: &[u8]) -> Option<Value> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace())?;
    matches!(first, b'{' | b'[').then(|| serde_json::from_slice(body).ok())?
}

fn compare_json(
    old: &Value,
    new: &Value,
    before: &[u8],
    facts: Facts<'_>,
    values_max: usize,
    bodies: &mut Bodies,
) {
    let before = String::from_utf8_lossy(before);
    let fresh = |text: &str| !before.contains(text);
    let (mut changes, mut more) = (Vec::new(), 0);
    for change in json::changes(old, new) {
        if let Some(noise) = noise::in_change(&change, facts.window, facts.numbers, &fresh) {
            bodies.noise.insert(format!("{}: {noise}", change.masked));
            continue;
        }
        let how = match (change.before, change.after) {
            (None, _) => "is new",
            (_, None) => "is gone",
            _ => "changed",
        };
        // The whole body has the empty pointer.
        let place = if change.masked.is_empty() {
            "the body"
        } else {
            &change.masked
        };
        if bodies.what.len() <= PARTS_OF_KIND {
            bodies.what.insert(format!("{place} {how}"));
        }
        if changes.len() == values_max {
            more += 1;
            continue;
        }
        let shown = |value: Option<&Value>| {
            value.map(|value| crate::rows::cut(&value.to_string(), VALUE_CHARACTERS_MAX))
        };
        changes.push(ValueChange {
            before: shown(change.before),
            after: shown(change.after),
            name: change.pointer,
        });
    }
    if !changes.is_empty() {
        bodies.change = Some(BodyChange::Json { changes, more });
    }
}

/// Collects differences from many threads: counts all of them, describes some. Its memory does not
/// grow with the number of responses.
#[derive(Debug)]
pub struct Collector {
    ignore: Ignore,
    limits: Limits,
    collected: Mutex<Collected>,
}

#[derive(Debug, Default)]
struct Collected {
    changed: u64,
    noise: u64,
    described: BTreeMap<RequestId, ResponseChange>,
    groups: HashMap<String, Counted>,
    noise_groups: HashMap<String, Counted>,
}

#[derive(Debug)]
struct Counted {
    count: u64,
    first: RequestId,
    last: RequestId,
}

impl Collector {
    pub fn new(ignore: Ignore, limits: Limits) -> Self {
        Self {
            ignore,
            limits,
            collected: Mutex::default(),
        }
    }

    /// Compares what came now, or why nothing came, with what is recorded. `of` is the kind of
    /// request. The `run` of the window may end now.
    pub fn compare(
        &self,
        request: RequestId,
        of: &str,
        recorded: &Response,
        now: Result<&Seen, &str>,
        window: &Window,
        numbers: &dyn Numbers,
    ) -> Compared {
        let facts = Facts {
            ignore: &self.ignore,
            window,
            numbers,
        };
        let values_max = self.limits.values_per_response;
        match compare(request, of, recorded, now, facts, values_max) {
            Found::Same => Compared::Same,
            Found::Unknown => Compared::Unknown,
            Found::Noise(what) => {
                let mut collected = self.lock();
                collected.noise += 1;
                count(
                    &mut collected.noise_groups,
                    of,
                    &what,
                    request,
                    &self.limits,
                );
                Compared::Noise
            }
            Found::Changed(what, change) => {
                let mut collected = self.lock();
                collected.changed += 1;
                count(&mut collected.groups, of, &what, request, &self.limits);
                collected.described.insert(request, *change);
                if collected.described.len() > self.limits.described {
                    collected.described.pop_last();
                }
                Compared::Changed
            }
        }
    }

    /// Changed responses so far, noise not included.
    pub fn changed(&self) -> u64 {
        self.lock().changed
    }

    /// Responses so far that differ only in noise.
    pub fn noise(&self) -> u64 {
        self.lock().noise
    }

    pub fn finish(self) -> Responses {
        let collected = self
            .collected
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        Responses {
            changed: collected.described.into_values().collect(),
            groups: groups(collected.groups),
            noise: groups(collected.noise_groups),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        // Nothing in here can be half done: a panic elsewhere does not make the counts wrong.
        self.collected
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn count(
    groups: &mut HashMap<String, Counted>,
    of: &str,
    what: &str,
    request: RequestId,
    limits: &Limits,
) {
    let mut key = format!("{of}: {what}");
    if groups.len() >= limits.groups && !groups.contains_key(&key) {
        key = format!("{of}: changes of other kinds");
    }
    let group = groups.entry(key).or_insert(Counted {
        count: 0,
        first: request,
        last: request,
    });
    group.count += 1;
    group.first = group.first.min(request);
    group.last = group.last.max(request);
}

/// The most frequent first.
fn groups(counted: HashMap<String, Counted>) -> Vec<Group<RequestId>> {
    let mut groups: Vec<_> = counted
        .into_iter()
        .map(|(what, counted)| Group {
            what,
            count: counted.count,
            first: counted.first,
            last: counted.last,
        })
        .collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.what.cmp(&b.what)));
    groups
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use hindcast_trace::Id;

    use super::*;
    use crate::noise::NoNumbers;

    const WINDOW: Window = Window {
        // 2024-05-01 12:00 to 12:10, 2024-06-03 09:00 to 09:05.
        original: (1_714_564_800_000_000, 1_714_565_400_000_000),
        run: (1_717_405_200_000_000, 1_717_405_500_000_000),
        replayed: None,
    };

    fn headers(given: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        (given.iter())
            .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
            .collect()
    }

    fn answered(status: u16, head: &[(&str, &str)], body: &str) -> Response {
        Response::Answered {
            status,
            headers: headers(head),
            body_digest: Digest::of(body.as_bytes()),
            body_bytes: body.len() as u64,
            body: Some(body.as_bytes().to_vec()),
        }
    }

    fn seen(status: u16, head: &[(&str, &str)], body: &str) -> Seen {
        Seen {
            status,
            headers: headers(head),
            body: body.as_bytes().to_vec(),
        }
    }

    fn find(recorded: &Response, now: Result<&Seen, &str>, ignore: &Ignore) -> Found {
        let facts = Facts {
            ignore,
            window: &WINDOW,
            numbers: &NoNumbers,
        };
        compare(Id(1), "GET /x", recorded, now, facts, 3)
    }

    fn check(recorded: &Response, now: &Seen, expected: Expect) {
        let text = match find(recorded, Ok(now), &Ignore::default()) {
            Found::Changed(what, change) => {
                let headers = (change.headers.iter())
                    .map(|h| format!("\n{}: {:?} → {:?}", h.name, h.before, h.after));
                let body = match &change.body {
                    None => String::new(),
                    Some(BodyChange::Json { changes, more }) => {
                        let values = (changes.iter())
                            .map(|c| format!("\n{} {:?} → {:?}", c.name, c.before, c.after));
                        values.collect::<String>() + &format!("\n{more} more")
                    }
                    Some(other) => format!("\n{other:?}"),
                };
                format!("{what}{}{body}", headers.collect::<String>())
            }
            other => format!("{other:?}"),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn a_status_says_it_all() {
        check(
            &answered(201, &[("location", "/x/1")], r#"{"id":1}"#),
            &seen(409, &[], r#"{"error":"twice"}"#),
            expect![[r#"
                201 → 409
                location: Some("/x/1") → None
                /id Some("1") → None
                /error None → Some("\"twice\"")
                0 more"#]],
        );
    }

    #[test]
    fn a_removed_element_is_one_change() {
        check(
            &answered(
                200,
                &[],
                r#"{"subscribers":[{"user":1},{"user":1},{"user":2}]}"#,
            ),
            &seen(200, &[], r#"{"subscribers":[{"user":1},{"user":2}]}"#),
            expect![[r#"
                /subscribers/* is gone
                /subscribers/1 Some("{\"user\":1}") → None
                0 more"#]],
        );
    }

    #[test]
    fn kinds_and_values_are_cut() {
        check(
            &answered(200, &[], r#"{"a":1,"b":1,"c":1,"d":1,"e":1}"#),
            &seen(200, &[], r#"{"a":2,"b":2,"c":2,"d":2,"f":1}"#),
            expect![[r#"
                /a changed, /b changed, /c changed, …
                /a Some("1") → Some("2")
                /b Some("1") → Some("2")
                /c Some("1") → Some("2")
                3 more"#]],
        );
    }

    #[test]
    fn clocks_and_fresh_uuids_are_noise_and_hide_nothing() {
        let before =
            r#"{"id":"6f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d","at":"2024-05-01T12:03:04Z","n":1}"#;
        let after =
            r#"{"id":"7f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d","at":"2024-06-03T09:01:00Z","n":1}"#;
        let etag = [("etag", "\"a\"")];
        let other_etag = [("etag", "\"b\"")];
        check(
            &answered(200, &etag, before),
            &seen(200, &other_etag, after),
            expect![[r#"Noise("/at: a clock, /id: randomness, etag: randomness")"#]],
        );
        check(
            &answered(200, &etag, before),
            &seen(200, &etag, &after.replace("\"n\":1", "\"n\":2")),
            expect![[r#"
                /n changed
                /n Some("1") → Some("2")
                0 more"#]],
        );
        check(
            &answered(200, &etag, "same"),
            &seen(200, &other_etag, "same"),
            expect![[r#"
                header etag changed
                etag: Some("\"a\"") → Some("\"b\"")"#]],
        );
    }

    #[test]
    fn text_is_shown_around_the_first_difference() {
        check(
            &answered(200, &[], "Hello world, how are you"),
            &seen(200, &[], "Hello there"),
            expect![[r#"
                another body
                Text { at: 6, before: "Hello world, how are you", after: "Hello there" }"#]],
        );
        // The values are equal, and a client might still tell them apart.
        check(
            &answered(200, &[], r#"{"a": 1}"#),
            &seen(200, &[], r#"{"a":1}"#),
            expect![[r#"
                another body
                Text { at: 5, before: "{\"a\": 1}", after: "{\"a\":1}" }"#]],
        );
    }

    #[test]
    fn a_body_that_was_not_kept_is_known_by_its_digest() {
        let unkept = |text: &str| Response::Answered {
            status: 200,
            headers: Vec::new(),
            body_digest: Digest::of(text.as_bytes()),
            body_bytes: text.len() as u64,
            body: None,
        };
        let now = seen(200, &[], "now");
        check(&unkept("now"), &now, expect!["Same"]);
        check(
            &unkept("before"),
            &now,
            expect![[r#"
                another body
                Unkept { before_bytes: 6, after_bytes: 3, after: "now" }"#]],
        );
    }

    #[test]
    fn no_response_is_a_change_unless_the_recording_has_none() {
        let found = find(
            &answered(200, &[], ""),
            Err("connection refused"),
            &Ignore::default(),
        );
        let Found::Changed(what, change) = found else {
            panic!("{found:?}")
        };
        assert_eq!(
            (what.as_str(), change.error.as_deref()),
            ("200 → no response", Some("connection refused"))
        );
        let broken = Response::Broken {
            reason: "gone".into(),
        };
        assert_eq!(
            find(&broken, Err("refused"), &Ignore::default()),
            Found::Unknown
        );
    }

    #[test]
    fn what_is_ignored_is_no_difference() {
        let mut ignore = Ignore::default();
        ignore.add("json:/n").unwrap();
        let recorded = answered(200, &[], r#"{"n":1,"m":1}"#);
        let found = |body: &str| find(&recorded, Ok(&seen(200, &[], body)), &ignore);
        assert_eq!(found(r#"{"n":2,"m":1}"#), Found::Same);
        assert!(
            matches!(found(r#"{"n":2,"m":2}"#), Found::Changed(what, _) if what == "/m changed")
        );
    }

    #[test]
    fn all_are_counted_and_the_first_are_described() {
        let limits = Limits {
            described: 3,
            values_per_response: 1,
            groups: 2,
        };
        let collector = Collector::new(Ignore::default(), limits);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let collector = &collector;
                scope.spawn(move || {
                    // Later requests first, so that what is kept must make room.
                    for n in (0..250u64).rev() {
                        let status = if n < 100 { 409 } else { 500 };
                        let compared = collector.compare(
                            Id(n * 4 + thread + 1),
                            "POST /x",
                            &answered(200, &[], ""),
                            Ok(&seen(status, &[], "")),
                            &WINDOW,
                            &NoNumbers,
                        );
                        assert_eq!(compared, Compared::Changed);
                    }
                });
            }
        });
        for other in [418, 419] {
            collector.compare(
                Id(9000 + u64::from(other)),
                "GET /y",
                &answered(200, &[], ""),
                Ok(&seen(other, &[], "")),
                &WINDOW,
                &NoNumbers,
            );
        }
        assert_eq!((collector.changed(), collector.noise()), (1002, 0));
        let responses = collector.finish();
        let described: Vec<_> = responses
            .changed
            .iter()
            .map(|change| change.request.0)
            .collect();
        assert_eq!(described, [1, 2, 3]);
        let groups: Vec<_> = (responses.groups.iter())
            .map(|group| {
                (
                    group.what.as_str(),
                    group.count,
                    group.first.0,
                    group.last.0,
                )
            })
            .collect();
        assert_eq!(
            groups,
            [
                ("POST /x: 200 → 500", 600, 401, 1000),
                ("POST /x: 200 → 409", 400, 1, 400),
                ("GET /y: changes of other kinds", 2, 9418, 9419),
            ]
        );
    }
}
