use super::*;
use crate::message::backend;
use crate::sql::Dialect;
use bytes::BytesMut;

/// A tracker of an established session whose payloads are names.
struct Session(Tracker<&'static str, ()>);

impl Session {
    fn new() -> Self {
        let mut tracker = Tracker::new();
        tracker.answer(backend::READY_FOR_QUERY, b"I").unwrap();
        Self(tracker)
    }

    fn parse(&mut self, name: &str, text: &str, payload: &'static str) {
        let script = Arc::new(Script::of(text.as_bytes(), Dialect::default()));
        let parse = Parse {
            name: name.as_bytes(),
            text: text.as_bytes(),
            types: &[0, 0],
        };
        self.0.parse(&parse, script, (), payload).unwrap();
    }

    fn bind(&mut self, name: &str) {
        self.0
            .bind(b"", name.as_bytes(), (Formats::Text, None), "bind")
            .unwrap();
    }

    fn execute(&mut self, payload: &'static str) {
        self.0.execute(b"", payload).unwrap();
    }

    /// Who is answered in full by each of these messages, given by tag and status.
    fn answers(&mut self, tags: &str) -> Vec<&'static str> {
        let mut done = Vec::new();
        for tag in tags.split_whitespace() {
            let (tag, body) = (tag.as_bytes()[0], &tag.as_bytes()[1..]);
            let answer = self.0.answer(tag, body).unwrap();
            done.extend(answer.done.map(|pending| pending.payload));
        }
        done
    }

    fn text_of(&self, name: &str) -> Option<String> {
        let text = self.0.statement(name.as_bytes())?.text.clone()?;
        Some(String::from_utf8(text.to_vec()).unwrap())
    }
}

#[test]
fn answers_go_to_the_oldest_message() {
    let mut session = Session::new();
    session.parse("", "SELECT 1", "parse");
    session.bind("");
    session.execute("execute");
    session.0.sync("sync").unwrap();
    session.0.query(0, "query").unwrap();
    assert_eq!(
        session.answers("1 2 D D C ZI T D C T C"),
        ["parse", "bind", "execute", "sync"]
    );
    assert_eq!(session.answers("N S A ZT"), ["query"]);
    assert!(session.0.is_quiet());
    assert_eq!(session.0.status(), Status::InTransaction);
}

#[test]
fn an_error_discards_up_to_the_next_sync() {
    let mut session = Session::new();
    session.parse("", "SELECT 1", "parse");
    session.bind("");
    session.0.inject(Sent::Execute, "ours").unwrap();
    session.execute("execute");
    session.0.query(0, "a query within the batch").unwrap();
    session.0.sync("sync").unwrap();
    session.0.query(0, "query").unwrap();
    assert_eq!(session.answers("1 E"), ["parse", "bind"]);
    let discarded: Vec<_> = session
        .0
        .discarded()
        .map(|pending| pending.payload)
        .collect();
    assert_eq!(discarded, ["ours", "execute", "a query within the batch"]);
    assert_eq!(session.0.injected_outstanding(), 0);
    assert_eq!(session.answers("ZI C ZI"), ["sync", "query"]);
}

#[test]
fn what_is_sent_after_an_error_is_discarded_until_a_sync_is_sent() {
    let mut session = Session::new();
    session.parse("", "nonsense", "parse");
    assert_eq!(session.answers("E"), ["parse"]);
    session.bind("");
    assert!(session.0.is_discarding());
    assert_eq!(session.0.outstanding(), 0);
    session.0.sync("sync").unwrap();
    assert!(!session.0.is_discarding());
    assert_eq!(session.answers("ZI"), ["sync"]);
}

#[test]
fn an_error_in_a_query_discards_nothing() {
    let mut session = Session::new();
    session.0.query(0, "one").unwrap();
    session.0.query(0, "two").unwrap();
    assert_eq!(session.answers("E ZI C ZI"), ["one", "two"]);
}

#[test]
fn statements_that_were_not_prepared_after_all_are_forgotten() {
    let mut session = Session::new();
    session.parse("s", "SELECT 1", "old");
    session.0.sync("sync").unwrap();
    session.answers("1 ZI");
    // The name is taken: the server refuses, and everything behind is discarded.
    session.parse("s", "SELECT 2", "taken");
    session.parse("other", "SELECT 3", "discarded");
    session.0.close(Target::Statement(b"s"), "close").unwrap();
    session.parse("s", "SELECT 4", "discarded too");
    assert_eq!(
        session.text_of("s").as_deref(),
        Some("SELECT 4"),
        "as far as was known then"
    );
    session.0.sync("sync").unwrap();
    session.answers("E ZI");
    assert_eq!(session.text_of("s").as_deref(), Some("SELECT 1"));
    assert_eq!(session.text_of("other"), None);
}

#[test]
fn a_statement_that_was_not_closed_after_all_is_still_there() {
    let mut session = Session::new();
    session.parse("s", "SELECT 1", "parse");
    session.0.sync("sync").unwrap();
    session.answers("1 ZI");
    session.parse("", "nonsense", "parse");
    session.0.close(Target::Statement(b"s"), "close").unwrap();
    session.0.sync("sync").unwrap();
    assert_eq!(session.text_of("s"), None);
    session.answers("E ZI");
    assert_eq!(session.text_of("s").as_deref(), Some("SELECT 1"));
}

#[test]
fn deallocation_spares_what_was_prepared_later() {
    let mut session = Session::new();
    session.parse("old", "SELECT 1", "parse");
    session.0.query(0, "DEALLOCATE ALL").unwrap();
    session.parse("new", "SELECT 2", "parse");
    session.answers("1");
    let sequence = session.0.front().unwrap().sequence;
    session.0.deallocate(None, sequence);
    assert_eq!(
        (session.text_of("old"), session.text_of("new").is_some()),
        (None, true)
    );
}

#[test]
fn portals_end_with_their_transaction() {
    let mut session = Session::new();
    session.parse("", "SELECT 1", "parse");
    session
        .0
        .bind(b"p", b"", (Formats::All(1), None), "bind")
        .unwrap();
    session.0.sync("sync").unwrap();
    session.answers("1 2 ZT");
    assert_eq!(session.0.portal(b"p").unwrap().formats, Formats::All(1));
    session.0.sync("sync").unwrap();
    session.answers("ZI");
    assert!(session.0.portal(b"p").is_none());
}

#[test]
fn a_copy_swallows_syncs_and_its_end() {
    let mut session = Session::new();
    session.parse("", "COPY t FROM STDIN", "parse");
    session.bind("");
    session.execute("execute");
    session.0.sync("swallowed").unwrap();
    assert!(session.0.may_be_copying());
    session.answers("1 2 G");
    session.0.copy_data();
    session.0.copy_end("end").unwrap();
    assert!(!session.0.may_be_copying());
    session.0.sync("sync").unwrap();
    assert_eq!(session.answers("C ZI"), ["execute", "sync"]);
}

#[test]
fn a_copy_that_never_began_swallows_nothing() {
    let mut session = Session::new();
    session.parse("", "COPY nope FROM STDIN", "parse");
    session.bind("");
    session.execute("execute");
    session.0.sync("sync").unwrap();
    session.answers("1 2 E");
    assert!(!session.0.may_be_copying());
    assert_eq!(session.answers("ZI"), ["sync"]);
    // The client did not know yet; the server ignores it.
    session.0.copy_data();
    session.0.copy_end("end").unwrap();
    session.0.sync("sync two").unwrap();
    assert_eq!(session.answers("ZI"), ["sync two"]);
}

#[test]
fn one_ready_for_query_too_many_is_nobodys() {
    let mut session = Session::new();
    assert_eq!(
        session.0.answer(b'Z', b"I").unwrap().role,
        Role::Ready(Status::Idle)
    );
    assert_eq!(
        session.0.answer(b'C', b"SELECT 1\0").unwrap_err(),
        Unexpected::NothingOutstanding
    );
    session.0.query(0, "query").unwrap();
    assert_eq!(
        session.0.answer(b'1', b"").unwrap_err(),
        Unexpected::NotAnAnswer(Sent::Query)
    );
}

#[test]
fn a_text_that_was_not_kept_cannot_be_prepared_again() {
    let mut session = Session::new();
    let text = "x".repeat(limits::PREPARED_BYTES_MAX);
    session.parse("large", &text, "parse");
    session.parse("small", "SELECT 1", "parse");
    let message = |name: &str| {
        session
            .0
            .statement(name.as_bytes())
            .unwrap()
            .parse_message()
            .is_some()
    };
    assert_eq!((message("large"), message("small")), (true, false));
    let mut out = BytesMut::new();
    session
        .0
        .statement(b"large")
        .unwrap()
        .parse_message()
        .unwrap()
        .build(&mut out);
    assert!(out.len() > text.len());
}
