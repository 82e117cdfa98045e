use super::*;
use hindcast_model::Id;

const NAME: &str = "x";

/// Of each call: whose it is (zero: nobody's), when it was answered, what was asked and answered.
fn calls(all: &[(u64, Micros, &str, &str)]) -> Calls {
    let mut calls = Calls::default();
    let requests: std::collections::BTreeSet<u64> = all.iter().map(|call| call.0).collect();
    for id in requests.into_iter().filter(|&id| id != 0) {
        calls.progress.add(&request(id));
    }
    for &(id, ended, sent, received) in all {
        let call = Call {
            peer: NAME.to_owned(),
            within: id != 0,
            began: ended,
            ended,
            sent: sent.into(),
            received: received.into(),
            ..Call::default()
        };
        calls.add(&request(id), call);
    }
    calls.whole();
    calls
}

/// The n-th comes at n seconds and is over half a second later.
fn request(id: u64) -> Request {
    let arrived = id as Micros * 1_000_000;
    Request {
        id: Id(id),
        arrived,
        ended: arrived + 500_000,
        method: "GET".to_owned(),
        target: "/".to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        caller_traceparent: None,
        user_id: None,
        came_to: None,
        came_from: None,
        came_by: None,
        response: hindcast_trace::Response::Unrecorded {
            reason: String::new(),
        },
        clock: Vec::new(),
        secrets: hindcast_trace::Secrets::None,
        calls: Vec::new(),
    }
}

fn ask(calls: &mut Calls, request: u64, sent: &str) -> Found {
    let now = Instant::now();
    let asked = Asked {
        request,
        sent: sent.as_bytes(),
        at: now,
        now,
    };
    calls.answer(NAME, asked)
}

fn said(found: Found) -> Option<String> {
    match found {
        Found::Answer(answer) => Some(String::from_utf8(answer.bytes).unwrap()),
        _ => None,
    }
}

fn command(words: &[&str]) -> String {
    let words = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let words: Vec<String> = words.collect();
    format!("*{}\r\n{}", words.len(), words.concat())
}

const GET: &str = "GET /a HTTP/1.1\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nContent-Length: 1\r\n\r\n";

#[test]
fn a_request_gets_its_own_answers_in_their_order() {
    let mut calls = calls(&[(1, 0, GET, "1"), (2, 0, GET, "2"), (2, 0, GET, "3")]);
    let answers = [2, 1, 2].map(|request| said(ask(&mut calls, request, GET)).unwrap());
    assert_eq!(answers, ["2", "1", "3"]);
}

#[test]
fn what_is_redacted_does_not_keep_a_call_from_being_found() {
    let (recorded, asked) = (format!("{POST}x"), format!("{POST}y"));
    let mut calls = calls(&[(1, 0, &recorded, "1")]);
    assert_eq!(said(ask(&mut calls, 2, &asked)), None);
    assert_eq!(said(ask(&mut calls, 1, &asked)), Some("1".to_owned()));
    assert_eq!(said(ask(&mut calls, 1, &asked)), None);
}

#[test]
fn a_connection_is_set_up_by_anybody_and_without_the_password() {
    let mut calls = calls(&[(1, 0, &command(&["auth"]), "+OK\r\n")]);
    for request in [0, 1, 2] {
        let answer = ask(&mut calls, request, &command(&["AUTH", "secret"]));
        assert_eq!(said(answer), Some("+OK\r\n".to_owned()));
    }
}

#[test]
fn where_nothing_says_where_a_message_ends_more_is_waited_for() {
    let mut calls = calls(&[(0, 0, "", "220 "), (1, 0, "EHLO me\r\n", "250 ")]);
    let greeting = calls.peers[NAME].greeting();
    assert_eq!(greeting.unwrap().bytes, b"220 ");
    let mut answer = |sent: &str| calls.answer_bytes(NAME, 1, sent.as_bytes());
    assert_eq!(answer("EHLO"), Found::More);
    assert!(matches!(answer("EHLO me\r\n"), Found::Answer(_)));
    assert_eq!(answer("HELO"), Found::Nothing);
}

/// What a request leaves may say what process left it; who reads gets what is there, or nothing.
#[test]
fn a_request_that_brings_another_value_is_answered_and_told() {
    let (leave, other) = (
        command(&["LPUSH", "jobs", "by 7"]),
        command(&["LPUSH", "jobs", "by 8"]),
    );
    let mut calls = calls(&[
        (1, 0, &leave, ":1\r\n"),
        (1, 0, &command(&["HGET", "a", "b"]), "$-1\r\n"),
    ]);
    assert_eq!(said(ask(&mut calls, 1, &other)), Some(":1\r\n".to_owned()));
    assert_eq!(calls.brought.len(), 1);
    let read = ask(&mut calls, 1, &command(&["HGET", "a", "c"]));
    assert_eq!(read, Found::Nothing);
}

/// A worker looked in vain, and found a job that the first request had left. It finds it once.
#[test]
fn a_worker_finds_a_job_when_it_has_been_left() {
    let (look, leave) = (
        command(&["BRPOP", "jobs", "1"]),
        command(&["LPUSH", "jobs", "a"]),
    );
    let job = "*2\r\n$4\r\njobs\r\n$1\r\na\r\n";
    let mut calls = calls(&[
        (0, 900_000, &look, "*-1\r\n"),
        (1, 1_100_000, &leave, ":1\r\n"),
        (0, 1_200_000, &look, job),
    ]);
    assert_eq!(said(ask(&mut calls, 0, &look)), Some("*-1\r\n".to_owned()));
    assert_eq!(said(ask(&mut calls, 0, &look)), Some("*-1\r\n".to_owned()));
    calls.progress.sent(Id(1));
    ask(&mut calls, 1, &leave);
    assert_eq!(said(ask(&mut calls, 0, &look)), Some(job.to_owned()));
    assert_eq!(said(ask(&mut calls, 0, &look)), Some("*-1\r\n".to_owned()));
}

/// What is asked in the background may have values and names that are drawn.
#[test]
fn what_is_asked_in_the_background_is_known_by_what_it_is_about() {
    let key = |id: &str| command(&["SET", &format!("worker:{id}"), id]);
    let mut calls = calls(&[(0, 0, &key("01ef-aa67-0b"), "+OK\r\n")]);
    assert_eq!(
        said(ask(&mut calls, 0, &key("77cd-0aef-1c"))),
        Some("+OK\r\n".to_owned())
    );
    assert_eq!(
        ask(&mut calls, 0, &command(&["SET", "clerk:7", "x"])),
        Found::Nothing
    );
}

/// That others have not got as far does not keep a worker from a job that was left.
#[test]
fn what_is_found_is_there_as_soon_as_it_was_brought() {
    let job = "a message that names who left it";
    let (look, leave) = (
        command(&["BRPOP", "jobs", "1"]),
        command(&["LPUSH", "jobs", job]),
    );
    let found = command(&["jobs", job]);
    let mut calls = calls(&[
        (1, 1_100_000, &command(&["GET", "a"]), "$-1\r\n"),
        (2, 2_100_000, &leave, ":1\r\n"),
        (0, 2_200_000, &look, &found),
    ]);
    calls.progress.sent(Id(1));
    calls.progress.sent(Id(2));
    assert_eq!(ask(&mut calls, 0, &look), Found::Later(None));
    ask(&mut calls, 2, &leave);
    assert_eq!(said(ask(&mut calls, 0, &look)), Some(found));
    assert_eq!(calls.handed, [2_200_000]);
}

fn words(words: &[&str]) -> String {
    let each = words.iter();
    let each = each.map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), each.collect::<String>())
}

/// The first on a connection sends the script, all others name it.
#[test]
fn a_script_is_the_same_by_its_hash_and_by_its_text() {
    let script = "return redis.call('incr', KEYS[1])";
    let hash = "2bab3b661081db58bd2341920e0ba7cf5dc77b25";
    let by_text = words(&["eval", script, "1", "hits"]);
    let by_hash = words(&["EVALSHA", hash, "1", "hits"]);
    let mut calls = calls(&[
        (1, 10, &by_hash, "-NOSCRIPT No matching script.\r\n"),
        (1, 11, &by_text, ":1\r\n"),
        (2, 20, &by_hash, ":2\r\n"),
    ]);
    let mut answer = |request, sent: &str| said(ask(&mut calls, request, sent)).unwrap();
    assert_eq!(answer(1, &by_hash), ":1\r\n");
    assert_eq!(answer(2, &by_text), ":2\r\n");
}
