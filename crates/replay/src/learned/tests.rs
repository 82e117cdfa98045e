use hindcast_trace::{Digest, Id, Secrets};

use super::*;

const ONE: &str = "3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6d";
const TWO: &str = "Zk81LmQ2xR7bT9uYcA0vN4wHfGjE6dXp";
const THREE: &str = "pT0uZk81LmQ2YcAvN4wHfGjE6dXpxR7b";
const FOUR: &str = "N4wHfGjEpT0uZk81LmQ2YcAv6dXpxR7b";

fn headers(all: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    let all = all.iter();
    all.map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
        .collect()
}

/// A request, and what it was answered.
fn recorded(target: &str, sent: &[(&str, &str)], given: &[(&str, &str)], body: &str) -> Request {
    Request {
        id: Id(1),
        arrived: 0,
        ended: 1_000_000,
        method: "GET".into(),
        target: target.into(),
        headers: headers(sent),
        body: Vec::new(),
        caller_traceparent: None,
        user_id: None,
        came_to: None,
        came_from: None,
        came_by: None,
        response: Response::Answered {
            status: 200,
            headers: headers(given),
            body_digest: Digest::of(body.as_bytes()),
            body_bytes: body.len() as u64,
            body: Some(body.as_bytes().to_vec()),
        },
        clock: Vec::new(),
        secrets: Secrets::None,
        calls: Vec::new(),
    }
}

fn seen(given: &[(&str, &str)], body: &str) -> Seen {
    Seen {
        status: 200,
        headers: headers(given),
        body: body.as_bytes().to_vec(),
    }
}

/// A client has logged in: `ONE` is its session, and `THREE` what its next form carries.
fn logged_in() -> Learned {
    let learned = Learned::new(0, Clock::Real, Draws::Free);
    let cookie = |value: &str| format!("sid={value}; Path=/; HttpOnly");
    let form = |value: &str| format!(r#"<input type="hidden" name="csrf" value="{value}">"#);
    let login = recorded("/login", &[], &[("set-cookie", &cookie(ONE))], &form(THREE));
    let came = seen(&[("set-cookie", &cookie(TWO))], &form(FOUR));
    let came = learned.answered(&login, came);
    assert_eq!(came.headers, headers(&[("set-cookie", &cookie(ONE))]));
    assert_eq!(came.body, form(THREE).as_bytes());
    learned
}

#[test]
fn a_client_that_logged_in_again_goes_on_with_what_it_got() {
    let learned = logged_in();
    let mut next = recorded("/notes", &[("cookie", &format!("a=b; sid={ONE}"))], &[], "");
    next.body = format!("text=hello&csrf={THREE}").into_bytes();
    let sent = learned.to_send(&next, None).unwrap();
    assert_eq!(
        sent.headers,
        headers(&[("cookie", &format!("a=b; sid={TWO}"))])
    );
    assert_eq!(sent.body, format!("text=hello&csrf={FOUR}").as_bytes());
    let counts = learned.counts().unwrap();
    assert_eq!(
        (counts.values, counts.requests, counts.responses),
        (2, 1, 1)
    );
    let other = recorded("/notes", &[("cookie", "sid=of-somebody-else")], &[], "");
    assert!(learned.to_send(&other, None).is_none());
}

#[test]
fn what_was_drawn_does_not_differ_and_hides_nothing() {
    let learned = logged_in();
    let page = |session: &str, n: u32| format!("<p>session {session}</p><b>{n}</b>");
    let request = recorded("/me", &[], &[("etag", "\"a\"")], &page(ONE, 1));
    let came = |n| learned.answered(&request, seen(&[("etag", "\"b\"")], &page(TWO, n)));
    assert_eq!(came(1).body, page(ONE, 1).as_bytes());
    assert_eq!(came(1).headers, headers(&[("etag", "\"a\"")]));
    assert_eq!(came(2).body, page(ONE, 2).as_bytes());
    // The session of nobody that is known.
    let strange = learned.answered(&request, seen(&[], &page(FOUR, 1)));
    assert_ne!(strange.body, page(ONE, 1).as_bytes());
}

#[test]
fn one_id_for_another_is_a_difference() {
    let learned = Learned::new(0, Clock::Real, Draws::Free);
    let list = |one: &str, other: &str| format!(r#"[{{"id":"{one}"}},{{"id":"{other}"}}]"#);
    // Rows that were there before.
    let before = recorded("/notes", &[], &[], &list(ONE, TWO));
    learned.answered(&before, seen(&[], &list(ONE, TWO)));
    let came = learned.answered(&before, seen(&[], &list(TWO, ONE)));
    assert_eq!(came.body, list(TWO, ONE).as_bytes());
    // And rows that were made.
    let made = recorded("/made", &[], &[], &format!(r#"{{"id":"{THREE}"}}"#));
    let came = learned.answered(&made, seen(&[], &format!(r#"{{"id":"{FOUR}"}}"#)));
    assert_eq!(came.body, format!(r#"{{"id":"{THREE}"}}"#).as_bytes());
    let listed = recorded("/notes", &[], &[], &list(ONE, THREE));
    let came = learned.answered(&listed, seen(&[], &list(FOUR, ONE)));
    assert_eq!(came.body, list(THREE, ONE).as_bytes());
}

/// The recording has hashes for the token, in the answer and in what `redacted` shows of the
/// request; the request as it came was sealed.
#[test]
fn a_token_that_was_redacted_is_learned_by_its_hash() {
    const HASH: &str = "redacted-0123456789abcdef";
    let learned = Learned::new(0, Clock::Real, Draws::Free);
    let body = |token: &str| format!(r#"{{"access_token":"{token}"}}"#);
    let login = recorded("/login", &[], &[], &body(HASH));
    learned.answered(&login, seen(&[], &body(TWO)));
    let bearer = |token: &str| {
        let authorization = format!("Bearer {token}");
        recorded("/me?n=1", &[("authorization", &authorization)], &[], "")
    };
    let sent = learned.to_send(&bearer(ONE), Some(&bearer(HASH))).unwrap();
    assert_eq!(sent.headers, bearer(TWO).headers);
    // Where nothing was sealed the hash itself is sent.
    let sent = learned.to_send(&bearer(HASH), None).unwrap();
    assert_eq!(sent.headers, bearer(TWO).headers);
}

#[test]
fn secrets_are_found_by_what_is_around_them() {
    let found = |redacted: &str, text: &str| {
        let found = in_places(redacted.as_bytes(), text.as_bytes());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let found = found
            .into_iter()
            .map(|(hash, value)| (text(hash), text(value)));
        found.collect::<Vec<_>>()
    };
    let (a, b) = ("redacted-0123456789abcdef", "redacted-fedcba9876543210");
    assert_eq!(
        found(
            &format!("user=x&token={a}&pin={b}"),
            "user=x&token=s%2Fcret&pin=12"
        ),
        [
            (a.to_owned(), "s/cret".to_owned()),
            (b.to_owned(), "12".to_owned())
        ]
    );
    assert!(found(&format!("user=y&token={a}"), "user=x&token=secret").is_empty());
    assert!(found("user=x", "user=x").is_empty());
}

#[test]
fn who_carries_what_an_answer_gave_has_to_wait_for_it() {
    let login = recorded("/login", &[], &[("set-cookie", &format!("s={ONE}"))], "");
    let given = given(&login.response);
    let carried = |cookie: &str| carried(&recorded("/", &[("cookie", cookie)], &[], ""));
    let waits = |cookie: &str| given.iter().any(|one| carried(cookie).contains(one));
    assert!(waits(&format!("a=b; s={ONE}")));
    assert!(!waits(&format!("a=b; s={TWO}")));
}

#[test]
fn results_are_the_same_but_for_what_was_drawn() {
    use bytes::BytesMut;
    use hindcast_wire::digest::ResultDigest;
    use hindcast_wire::message::backend::data_row;

    let learned = logged_in();
    let results = |values: &[&str]| {
        let (mut results, mut digest) = (Results::default(), ResultDigest::new());
        let mut row = BytesMut::new();
        let values: Vec<_> = values.iter().map(|value| Some(value.as_bytes())).collect();
        data_row(&mut row, &values);
        results.row(false, &row[5..]);
        results.complete(b"SELECT 1");
        digest.row(false, &row[5..]);
        digest.complete(b"SELECT 1");
        (results, digest.value())
    };
    use results::Explained;
    let explain = |was: &[&str], is: &[&str]| learned.explain(&results(is).0, results(was).1);
    assert_eq!(explain(&[ONE, "1"], &[TWO, "1"]), Explained::Same);
    assert_eq!(explain(&[ONE, "1"], &[TWO, "2"]), Explained::Drawn);
    assert_eq!(explain(&["one", "1"], &["one", "2"]), Explained::Other);
}

/// An answer with an id and a text, of a service whose draws are pinned.
fn of_pinned(given: &[&str], id: &str, text: &str) -> (Learned, Seen) {
    use hindcast_wire::message::frontend;

    let learned = Learned::new(0, Clock::Moved, Draws::Pinned);
    let body = |id: &str, text: &str| format!(r#"{{"id":"{id}","text":"{text}"}}"#);
    for id in given {
        let sql = format!("INSERT INTO note VALUES ('{id}')");
        learned.note_given(frontend::QUERY, sql.as_bytes());
    }
    let request = recorded("/", &[], &[], &body(ONE, "2026-11-25T01:02:03Z"));
    let answer = seen(&[], &body(id, text));
    let seen = learned.answered(&request, answer);
    (learned, seen)
}

#[test]
fn where_draws_are_pinned_ids_are_learned_that_the_database_was_given() {
    let text = "2026-11-25T01:02:03Z";
    let restored = |given: &[&str], id: &str| {
        let (learned, seen) = of_pinned(given, id, text);
        let restored = String::from_utf8(seen.body).unwrap().contains(ONE);
        assert_eq!(learned.counts().is_some(), restored);
        restored
    };
    assert!(restored(&[TWO], TWO));
    assert!(!restored(&[], TWO), "it may be computed of what is shown");
    assert!(!restored(&[&TWO[1..]], &TWO[1..]), "it has another form");
}

#[test]
fn where_draws_are_pinned_another_time_is_a_difference() {
    let (_, seen) = of_pinned(&[TWO], TWO, "2026-11-25T01:02:04Z");
    let body = String::from_utf8(seen.body).unwrap();
    assert!(body.contains(ONE) && body.contains("01:02:04"), "{body}");
}
