//! Which base a replay starts from.

use hindcast_replay::{Start, StartError};
use hindcast_trace::Id;

use crate::coordinator::Written;

/// When the base was taken from which a replay of request 4 starts.
fn start(bases: &str) -> Result<i64, StartError> {
    let requests = "request 1 10..20\nrequest 2 30..60\nrequest 3 40..50\nrequest 4 100..110";
    let folder = tempfile::tempdir().unwrap();
    let trace = Written::of(&format!("{bases}\n{requests}")).trace(&folder.path().join("trace"));
    Start::choose(&trace, Some(Id(4)), None).map(|start| start.base.taken)
}

#[test]
fn a_dump_that_was_taken_while_a_request_was_in_flight_is_passed_over() {
    assert_eq!(start("base 5 dump a\nbase 25 dump b").unwrap(), 25);
    // Request 2 was under way, and request 3 had come and gone.
    assert_eq!(start("base 25 dump a\nbase 55 dump b").unwrap(), 25);
    assert_eq!(start("base 25 dump a\nbase 60 dump b").unwrap(), 25);
    assert_eq!(start("base 30 dump a\nbase 45 dump b").unwrap(), 30);
    assert_eq!(start("base 25 dump a\nbase 61 dump b").unwrap(), 61);
    let error = start("base 15 dump a\nbase 45 dump b").unwrap_err();
    assert!(matches!(error, StartError::BaseTooLate { .. }), "{error}");
}

/// Nothing is in flight when one is made.
#[test]
fn a_template_is_taken_as_it_is() {
    assert_eq!(start("base 25 template a\nbase 45 dump b").unwrap(), 25);
    assert_eq!(start("base 45 template a\nbase 35 dump b").unwrap(), 45);
}
