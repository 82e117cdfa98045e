//! What to say when transactions belong to no request.

use hindcast_gateway::record::Status;
use hindcast_trace::TransactionId;

use super::format::count;

/// So many ghosts in a row are worth a word.
pub const ROW: u64 = 20;

/// Why transactions belong to no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No request came to the ingress.
    IngressUnused,
    /// Requests come, and the database is not told which of them a transaction belongs to.
    Unnamed,
}

/// Whether a recording should be looked at because all that it gets are ghosts.
///
/// A job that runs between requests which are attributed well is none of this.
pub fn cause(status: &Status) -> Option<Cause> {
    match () {
        () if status.ghosts_in_a_row < ROW => None,
        () if status.requests + status.requests_in_flight == 0 => Some(Cause::IngressUnused),
        () if status.requests_meanwhile > 0 => Some(Cause::Unnamed),
        () => None,
    }
}

/// What is wrong, why, and what to do, with how to check.
/// `front`: the ingress and the service behind it, if the service is not recorded from inside.
pub fn warning(cause: Cause, status: &Status, front: Option<(&str, &str)>) -> String {
    let ghosts = count(status.ghosts_in_a_row, "transaction");
    let Some((listen, app)) = front else {
        return warning_from_inside(cause, status, &ghosts);
    };
    match cause {
        Cause::IngressUnused => format!(
            "Warning: {ghosts} in a row belong to no request: no request has come to {listen} yet.\n\
             Cause: clients connect to the service at {app} directly, or these are migrations, jobs or psql, which are \
             recorded as ghosts.\n\
             Hint: let clients connect to {listen} instead of {app}. To check: {}",
            check(listen)
        ),
        Cause::Unnamed => format!(
            "Warning: {ghosts} in a row belong to no request, although {} came meanwhile.\n\
             Cause: the service does not pass `traceparent` on to its database, neither in a comment of its SQL nor as \
             application_name. These requests cannot be replayed.\n\
             Hint: switch it on in the service's OpenTelemetry or driver: see examples/README.md. To check: send a request \
             and run `SELECT application_name, query FROM pg_stat_activity`; traceparent='00-…' should be in one of them",
            count(status.requests_meanwhile, "request")
        ),
    }
}

fn warning_from_inside(cause: Cause, status: &Status, ghosts: &str) -> String {
    match cause {
        Cause::IngressUnused => format!(
            "Warning: {ghosts} in a row belong to no request: no request was seen yet.\n\
             Cause: none has come, or these are migrations and jobs, or the service speaks something else than HTTP/1.1, \
             FastCGI or uwsgi, or encrypts it itself."
        ),
        Cause::Unnamed => format!(
            "Warning: {ghosts} in a row belong to no request, although {} came meanwhile.\n\
             Cause: several requests are served by one thread, or a request by several, with a server or a driver that no \
             shim knows, so it is not known on whose behalf the service speaks to its database. These requests cannot be \
             replayed.\n\
             Hint: record it from outside, with OpenTelemetry in the service: see examples/README.md",
            count(status.requests_meanwhile, "request")
        ),
    }
}

fn check(listen: &str) -> String {
    match listen.contains('/') {
        true => format!(
            "`curl -i --unix-socket {listen} http://localhost/` answers as the service does"
        ),
        false => format!("`curl -i http://{listen}/` answers as the service does"),
    }
}

/// What the end of a recording without requests says.
pub fn remark(status: &Status, front: Option<(&str, &str)>) -> Option<String> {
    (status.requests == 0).then(|| {
        let Some((listen, app)) = front else {
            return match status.transactions {
                0 => "nothing was recorded: no request was seen".to_owned(),
                n => format!("{} and no request was seen", count(n, "transaction")),
            };
        };
        let what = match status.transactions {
            0 => "nothing was recorded: no request came to".to_owned(),
            n => format!("{} and no request: none came to", count(n, "transaction")),
        };
        format!(
            "{what} {listen}. Requests are recorded where clients connect there instead of to {app}"
        )
    })
}

/// What a list of requests says where there are none. `ghosts`: how many there are, and the first.
/// `front`: as above.
pub fn nothing_listed(
    location: &str,
    ghosts: Option<(u64, TransactionId)>,
    front: Option<(&str, &str)>,
) -> String {
    let Some((listen, app)) = front else {
        return nothing_listed_from_inside(location, ghosts);
    };
    match ghosts {
        None => format!(
            "Nothing was recorded in {location}: no request came to {listen}, and no transaction to the Postgres gateway.\n\
             Hint: clients connect to {listen} instead of to {app}, and the service's database URL names the gateway"
        ),
        Some((ghosts, first)) => format!(
            "No requests were recorded in {location}, only {} that belong to none (ghosts).\n\
             Cause: no request came to {listen}. That is as it should be for migrations, jobs and psql; a service's clients \
             must connect there instead of to {app}.\n\
             Hint: `hindcast show t{first}` shows the first of them, and what its client sent",
            count(ghosts, "transaction")
        ),
    }
}

fn nothing_listed_from_inside(location: &str, ghosts: Option<(u64, TransactionId)>) -> String {
    let unseen =
        "the service speaks something else than HTTP/1.1, FastCGI or uwsgi, or encrypts it itself";
    match ghosts {
        None => format!(
            "Nothing was recorded in {location}: no request was seen, and no transaction.\n\
             Cause: none came between the service's start and its end, or {unseen}.\n\
             Hint: record again, and send requests to the address of the service, which is the one that it always has"
        ),
        Some((ghosts, first)) => format!(
            "No requests were recorded in {location}, only {} that belong to none (ghosts).\n\
             Cause: no request was seen. That is as it should be for migrations and jobs; or else {unseen}.\n\
             Hint: `hindcast show t{first}` shows the first of them, and what its client sent",
            count(ghosts, "transaction")
        ),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use hindcast_trace::Id;

    use super::*;

    fn status(ghosts: u64, requests: u64, meanwhile: u64) -> Status {
        Status {
            transactions: ghosts,
            ghosts_in_a_row: ghosts,
            requests,
            requests_meanwhile: meanwhile,
            ..Status::default()
        }
    }

    #[test]
    fn ghosts_are_told_when_nothing_else_comes() {
        assert_eq!(cause(&status(19, 0, 0)), None);
        assert_eq!(cause(&status(20, 0, 0)), Some(Cause::IngressUnused));
        assert_eq!(cause(&status(20, 3, 1)), Some(Cause::Unnamed));
        // A job between requests that are attributed.
        assert_eq!(cause(&status(500, 3, 0)), None);
        // The first request is on its way: not yet.
        let begun = Status {
            requests_in_flight: 1,
            ..status(20, 0, 0)
        };
        assert_eq!(cause(&begun), None);
    }

    #[test]
    fn a_warning_has_a_cause_and_a_check() {
        let (listen, app) = ("127.0.0.1:8080", "http://127.0.0.1:8000");
        expect![[r#"
            Warning: 20 transactions in a row belong to no request: no request has come to 127.0.0.1:8080 yet.
            Cause: clients connect to the service at http://127.0.0.1:8000 directly, or these are migrations, jobs or psql, which are recorded as ghosts.
            Hint: let clients connect to 127.0.0.1:8080 instead of http://127.0.0.1:8000. To check: `curl -i http://127.0.0.1:8080/` answers as the service does
        "#]]
        .assert_eq(&(warning(Cause::IngressUnused, &status(20, 0, 0), Some((listen, app))) + "\n"));
        expect![[r#"
            Warning: 41 transactions in a row belong to no request, although 3 requests came meanwhile.
            Cause: the service does not pass `traceparent` on to its database, neither in a comment of its SQL nor as application_name. These requests cannot be replayed.
            Hint: switch it on in the service's OpenTelemetry or driver: see examples/README.md. To check: send a request and run `SELECT application_name, query FROM pg_stat_activity`; traceparent='00-…' should be in one of them
        "#]]
        .assert_eq(&(warning(Cause::Unnamed, &status(41, 9, 3), Some((listen, app))) + "\n"));
        assert!(check("/run/in.sock").contains("--unix-socket /run/in.sock"));
    }

    #[test]
    fn an_empty_list_says_what_there_is() {
        expect![[r#"
            No requests were recorded in ./trace, only 3 transactions that belong to none (ghosts).
            Cause: no request came to 127.0.0.1:8080. That is as it should be for migrations, jobs and psql; a service's clients must connect there instead of to http://127.0.0.1:8000.
            Hint: `hindcast show t7` shows the first of them, and what its client sent"#]]
        .assert_eq(&nothing_listed("./trace", Some((3, Id(7))), Some(("127.0.0.1:8080", "http://127.0.0.1:8000"))));
        expect![[r#"
            Nothing was recorded in ./trace: no request was seen, and no transaction.
            Cause: none came between the service's start and its end, or the service speaks something else than HTTP/1.1, FastCGI or uwsgi, or encrypts it itself.
            Hint: record again, and send requests to the address of the service, which is the one that it always has"#]]
        .assert_eq(&nothing_listed("./trace", None, None));
        expect![[r#"
            Nothing was recorded in ./trace: no request came to :1, and no transaction to the Postgres gateway.
            Hint: clients connect to :1 instead of to http://a, and the service's database URL names the gateway"#]]
        .assert_eq(&nothing_listed("./trace", None, Some((":1", "http://a"))));
        expect!["3 transactions and no request: none came to :1. Requests are recorded where clients connect there instead of to http://a"]
            .assert_eq(&remark(&status(3, 0, 0), Some((":1", "http://a"))).unwrap());
        assert_eq!(remark(&status(3, 1, 0), Some((":1", "http://a"))), None);
    }
}
