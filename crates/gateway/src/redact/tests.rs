use hindcast_trace::Digest;
use proptest::prelude::*;

use super::*;

fn redactor(rules: &[&str]) -> Redactor {
    Redactor {
        key: Key::of(b"a key"),
        ..Redactor::new(Rules::read(rules).unwrap())
    }
}

fn headers(of: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.as_bytes().to_vec());
    of.iter().map(owned).collect()
}

fn request(target: &str, given: &[(&str, &str)], body: &str) -> Request {
    Request {
        id: hindcast_trace::Id::new(0, 1),
        arrived: 1,
        ended: 2,
        method: "POST".to_owned(),
        target: target.to_owned(),
        headers: headers(given),
        body: body.as_bytes().to_vec(),
        caller_traceparent: None,
        user_id: None,
        came_to: None,
        came_from: None,
        came_by: None,
        clock: Vec::new(),
        secrets: Default::default(),
        calls: Vec::new(),
        response: Response::Answered {
            status: 200,
            headers: headers(&[("set-cookie", "sid=s3cret; Path=/")]),
            body_digest: Digest::of(b""),
            body_bytes: 0,
            body: Some(Vec::new()),
        },
    }
}

/// What is recorded, with `#` for each hash.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut parts = text.split(MARK);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| format!("{all}#{}", &part[16..]))
}

fn body(rules: &[&str], content_type: &str, text: &str) -> String {
    let mut request = request("/", &[("content-type", content_type)], text);
    redactor(rules).request(&mut request);
    shown(&request.body)
}

#[test]
fn json_is_redacted_where_a_rule_points() {
    let check = |rules: &[&str], text: &str, expected: &str| {
        assert_eq!(
            body(rules, "application/json; charset=utf-8", text),
            expected
        );
    };
    check(
        &["field:password"],
        r#"{ "user": "ann", "Pass_Word" : "x\u0041", "in": [{"password": {"a": 12, "b": [null, "y"]}}] }"#,
        r##"{ "user": "ann", "Pass_Word" : "#", "in": [{"password": {"a": 17, "b": [null, "#"]}}] }"##,
    );
    check(
        &["json:/users/*/pin"],
        "{\"users\":[{\"pin\":\"a\"},{\"pin\":\"b\"}],\"pin\":\"c\"}\n{\"users\":[]}",
        "{\"users\":[{\"pin\":\"#\"},{\"pin\":\"#\"}],\"pin\":\"c\"}\n{\"users\":[]}",
    );
    let card = body(
        &["cards"],
        "application/json",
        r#"{"n":"4111 1111 1111 1111","id":"17"}"#,
    );
    assert!(
        card.starts_with(r#"{"n":"4111 11"#) && !card.contains("1111 1111"),
        "{card}"
    );
}

#[test]
fn forms_and_queries_and_parts_are_redacted() {
    let form = "application/x-www-form-urlencoded";
    assert_eq!(
        body(
            &["field:password"],
            form,
            "a=1&user%5Bpassword%5D=x%20y&password=&b=2"
        ),
        "a=1&user%5Bpassword%5D=#&password=&b=2"
    );
    let parts = "--B\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\nx\r\ny\r\n--B\r\n\
                 content-disposition: form-data; name=\"password\"; filename=\"f\"\r\n\r\nfile\r\n--B--\r\n";
    assert_eq!(
        body(
            &["field:password"],
            "multipart/form-data; boundary=\"B\"",
            parts
        ),
        parts.replace("x\r\ny", "#")
    );
    let mut asked = request("/in?next=/&token=abc#x", &[], "");
    redactor(&["field:token"]).request(&mut asked);
    assert_eq!(shown(asked.target.as_bytes()), "/in?next=/&token=#");
}

#[test]
fn a_query_that_is_kept_as_a_variable_is_redacted_as_one() {
    let given = [(":fastcgi:QUERY_STRING", "q=/a&password=abc&b=c")];
    let mut asked = request("/a?b=c", &given, "");
    redactor(&["field:password"]).request(&mut asked);
    let kept = String::from_utf8(asked.headers[0].1.clone()).unwrap();
    assert!(kept.starts_with("q=/a&password="), "{kept}");
    assert!(kept.ends_with("&b=c") && !kept.contains("abc"), "{kept}");
}

#[test]
fn headers_and_cookies_are_redacted() {
    let given = [
        ("Authorization", "Bearer abc.def"),
        ("x-api-key", "abc"),
        ("cookie", "a=1; sid=s3cret"),
        (":fastcgi:DB_PASSWORD", "abc"),
    ];
    let mut asked = request("/", &given, "");
    let rules = [
        "header:authorization",
        "header:X-Api-Key",
        "cookie:sid",
        "header:DB_PASSWORD",
    ];
    redactor(&rules).request(&mut asked);
    let values: Vec<_> = asked
        .headers
        .iter()
        .map(|(_, value)| shown(value))
        .collect();
    assert_eq!(values, ["Bearer #", "#", "a=1; sid=#", "#"]);
    let Response::Answered { headers, .. } = &asked.response else {
        panic!("it was answered");
    };
    assert_eq!(shown(&headers[0].1), "sid=#; Path=/");
    // What was the same is the same.
    let of = |value: &[u8]| {
        String::from_utf8_lossy(value)
            .split(MARK)
            .nth(1)
            .map(|rest| rest[..16].to_owned())
    };
    assert_eq!(of(&asked.headers[2].1), of(&headers[0].1));
    assert_ne!(of(&asked.headers[1].1), of(&headers[0].1));
}

#[test]
fn lengths_are_right_again() {
    let given = [
        ("content-type", "application/json"),
        ("content-length", "16"),
    ];
    let mut asked = request("/", &given, r#"{"password":"x"}"#);
    redactor(&["field:password"]).request(&mut asked);
    assert_eq!(
        asked.headers[1].1,
        asked.body.len().to_string().into_bytes()
    );
    assert!(asked.body.len() > 16);
}

#[test]
fn a_body_that_cannot_be_looked_into_is_not_kept() {
    let encoded = [
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
    ];
    for (given, text) in [
        (&encoded[..], "\u{1f}\u{8b}"),
        (&encoded[..1], "{\"password\":\"x\""),
    ] {
        let mut asked = request("/", given, text);
        redactor(&["field:password"]).request(&mut asked);
        assert!(asked.body.is_empty());
        assert!(
            matches!(&asked.response, Response::Unrecorded { reason } if reason.starts_with(OPAQUE))
        );
        let kept = redactor(&["field:password"]).response_body(&headers(given), text.as_bytes());
        assert_eq!(kept.unwrap().kept, None);
        // Rules that are not about bodies do not mind.
        let mut asked = request("/", given, text);
        redactor(&["header:authorization"]).request(&mut asked);
        assert_eq!(asked.body, text.as_bytes());
    }
}

#[test]
fn the_rules_that_found_something_are_known_from_what_is_recorded() {
    let redactor = redactor(&[
        "header:authorization",
        "field:password",
        "field:token",
        "cookie:sid",
    ]);
    let given = [
        ("authorization", "Basic eA=="),
        ("content-type", "application/json"),
    ];
    let mut asked = request("/?token=1", &given, r#"{"password":"x"}"#);
    redactor.request(&mut asked);
    let rules = redactor.rules();
    let names = |applied: BTreeSet<RuleNumber>| {
        let names: Vec<_> = applied
            .into_iter()
            .map(|rule| rules.text(rule).to_owned())
            .collect();
        names.join(" ")
    };
    let applied = names(rules.applied_to_request(&asked));
    assert_eq!(applied, "header:authorization field:password field:token");
    assert_eq!(
        names(rules.applied_to_response(&asked.response)),
        "cookie:sid"
    );
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?[1-9][0-9]{0,17}(\\.[0-9]{1,3})?",
        "\"[a-z 0-9\\\\\\\\é]{0,20}\"".prop_map(|text| text.replace('\\', "\\\\")),
        Just("\"4111111111111111\"".to_owned()),
    ];
    let key = prop_oneof![
        Just("password"),
        Just("a"),
        Just("Api-Key"),
        Just("b\\u0041")
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5)
                .prop_map(|all| format!("[{}]", all.join(" , "))),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|all| {
                let all: Vec<_> = all.iter().map(|(k, v)| format!("\"{k}\" : {v}")).collect();
                format!("{{ {} }}", all.join(","))
            }),
        ]
    })
}

const RULES: [&str; 4] = ["field:password", "field:api_key", "json:/*/a", "cards"];

proptest! {
    #[test]
    fn nothing_changes_that_no_rule_is_about(text in json()) {
        let given = headers(&[("content-type", "application/json")]);
        let nothing = redactor(&["field:other", "json:/x/y", "header:x"]);
        prop_assert_eq!(nothing.response_body(&given, text.as_bytes()), None);
    }

    #[test]
    fn json_stays_json_and_masking_what_was_hashed_is_masking(text in json()) {
        let given = headers(&[("content-type", "application/json")]);
        let redactor = redactor(&RULES);
        let Some(body) = redactor.response_body(&given, text.as_bytes()) else {
            return Ok(());
        };
        let kept = body.kept.expect("it is JSON");
        let value: serde_json::Value = serde_json::from_slice(&kept).expect("it stays JSON");
        let before: serde_json::Value = serde_json::from_str(&text).expect("it was");
        prop_assert_eq!(skeleton(&value), skeleton(&before));
        let again = redactor.rules().masked_body(&given, &kept).into_owned();
        prop_assert_eq!(again, body.compared);
    }

    #[test]
    fn equal_stays_equal_and_different_different(one in "[ -~]{1,30}", other in "[ -~]{1,30}") {
        let key = Key::of(b"a key");
        let with = With::Hash(&key);
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        prop_assert_eq!(with.text(one.as_bytes()), with.text(one.as_bytes()));
        if !digits(&one) && !digits(&other) {
            prop_assert_eq!(with.text(one.as_bytes()) == with.text(other.as_bytes()), one == other);
        }
    }

    #[test]
    fn no_body_makes_it_panic(bytes: Vec<u8>, kind in prop::sample::select(vec![
        "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "",
    ])) {
        let given = headers(&[("content-type", kind)]);
        let redactor = redactor(&RULES);
        let hashed = redactor.response_body(&given, &bytes);
        if let Some(RedactedBody { kept: Some(kept), compared }) = hashed {
            prop_assert_eq!(redactor.rules().masked_body(&given, &kept).into_owned(), compared);
        }
    }
}

/// The shape of a JSON value and its keys, without its leaves.
fn skeleton(value: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Array(all) => all.iter().map(skeleton).collect(),
        Value::Object(all) => all
            .iter()
            .map(|(key, value)| (key.clone(), skeleton(value)))
            .collect(),
        Value::String(_) => "".into(),
        Value::Number(_) => 0.into(),
        other => other.clone(),
    }
}

#[test]
fn a_request_has_its_user_and_a_hash_of_one_who_is_redacted() {
    let user = |redact: &[&str], by: &str| {
        let given = [
            ("cookie", "lang=en; sid=ab12"),
            ("x-user", "17"),
            ("content-type", "application/json"),
        ];
        let mut asked = request(
            "/cart?user=18",
            &given,
            r#"{"who": {"id": 19}, "user": "a b"}"#,
        );
        let users = Rules::for_users(by).unwrap();
        redactor(redact).knowing_users_by(users).request(&mut asked);
        asked.user_id.map(|user| shown(user.as_bytes()))
    };
    for (by, expected) in [
        ("header:X-User", Some("17")),
        ("cookie:sid", Some("ab12")),
        ("json:/who/id", Some("19")),
        // The body comes before the query.
        ("field:user", Some("a b")),
        ("header:x-nobody", None),
    ] {
        assert_eq!(user(&[], by).as_deref(), expected, "{by}");
    }
    assert_eq!(user(&["cookie:*"], "cookie:sid").as_deref(), Some("#"));
    // What it was is not known to who gives a part of a recording away.
    let mut given = request("/", &[], "");
    given.user_id = Some("17".to_owned());
    redactor(&[]).request(&mut given);
    assert_eq!(given.user_id, None);
    for wrong in ["cards", "column:user", "17"] {
        assert!(Rules::for_users(wrong).is_err(), "{wrong}");
    }
}
