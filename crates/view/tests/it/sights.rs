//! Who saw whom, who waited, and what crossed.

use hindcast_trace::{Id, Trace};
use hindcast_view::{Index, Lanes, Sight, request_detail, transaction_detail};

use crate::made::{Made, Own, indexed, sent};

const CHECK: &str = "SELECT id FROM subs WHERE userid = $1 AND forum = $2";
const INSERT: &str = "INSERT INTO subs (userid, forum) VALUES ($1, $2)";

fn sight(trace: &Trace, index: &Index, number: u64) -> Sight {
    let detail = transaction_detail(trace, index, Lanes::Client, Id::new(0, number));
    detail.unwrap().unwrap().sight.unwrap()
}

fn ids(neighbours: &[hindcast_view::Neighbour]) -> Vec<&str> {
    neighbours.iter().map(|one| one.id.as_str()).collect()
}

/// Two clients subscribe a user to a forum, each after a look whether it is done already: both look
/// before either has written. A third one did so before, and a fourth writes elsewhere.
fn race(values: [Option<[&str; 2]>; 2]) -> (Made, Trace) {
    let sent = values.map(|values| values.map(|values| sent(INSERT, &values)));
    let mut made = Made::new();
    made.shape(1, &[CHECK])
        .shape(2, &[INSERT])
        .shape(3, &["UPDATE others SET n = $1"])
        .request(1, 0, 50, "POST /subscribe", 201)
        .request(2, 100, 400, "POST /subscribe", 201)
        .request(3, 110, 300, "POST /subscribe", 201)
        .request(4, 120, 60, "POST /other", 201);
    let write = Own {
        shape: 2,
        ..Own::default()
    };
    made.transaction(Own {
        number: 1,
        request: Some(1),
        began: 10,
        ended: 40,
        snapshot: "100:100:",
        xid: Some(100),
        ..write
    })
    .transaction(Own {
        number: 2,
        session: 2,
        request: Some(2),
        began: 110,
        ended: 150,
        snapshot: "101:101:",
        ..Own::default()
    })
    .transaction(Own {
        number: 3,
        session: 3,
        request: Some(3),
        began: 120,
        ended: 160,
        snapshot: "101:101:",
        ..Own::default()
    })
    .transaction(Own {
        number: 4,
        session: 4,
        request: Some(4),
        began: 125,
        ended: 170,
        snapshot: "101:101:",
        xid: Some(101),
        shape: 3,
        ..Own::default()
    })
    .transaction(Own {
        number: 5,
        session: 3,
        request: Some(3),
        began: 200,
        ended: 260,
        snapshot: "102:102:",
        xid: Some(102),
        sent: sent[1].as_deref(),
        ..write
    })
    .transaction(Own {
        number: 6,
        session: 2,
        request: Some(2),
        began: 300,
        ended: 380,
        snapshot: "103:103:",
        xid: Some(103),
        sent: sent[0].as_deref(),
        ..write
    });
    let trace = made.trace();
    (made, trace)
}

#[test]
fn a_transaction_saw_what_its_snapshot_shows_and_nothing_else() {
    let (_made, trace) = race([None, None]);
    let index = indexed(&trace);
    let check = sight(&trace, &index, 2);
    // Of others, which writes another table, nothing is told.
    assert_eq!(ids(&check.saw), ["1"]);
    assert_eq!(
        check.snapshot.as_deref(),
        Some("every transaction id below 101 that committed")
    );
    assert_eq!(check.saw[0].tables, ["subs"]);
    assert_eq!(check.saw[0].request.as_deref(), Some("1"));
    // What began after it was over is not beside it.
    assert_eq!(ids(&check.unseen), [] as [&str; 0]);
    // Both looked before either wrote, though no write began while another look was under way.
    let one = &check.crossed[0];
    let (own, other) = ([&one.read, &one.write], [&one.other_read, &one.other_write]);
    assert_eq!(
        (own, other),
        (
            ["2", "6"].map(String::from).each_ref(),
            ["3", "5"].map(String::from).each_ref()
        )
    );
    assert_eq!(sight(&trace, &index, 1).crossed, [], "it was over before");
    let insert = sight(&trace, &index, 6);
    assert_eq!(
        ids(&insert.saw),
        ["5", "1"],
        "the latest first; both write the table"
    );
}

#[test]
fn two_requests_that_did_not_see_each_other_have_crossed() {
    // The looks are longer, so that both writes fall beside them.
    let mut made = Made::new();
    let both = sent(INSERT, &["459", "12"]);
    for (sent, known) in [(Some(both.as_slice()), true), (None, false)] {
        let trace = crossing(&mut made, [sent, sent]);
        let index = indexed(&trace);
        for number in [1, 2] {
            let crossed = sight(&trace, &index, number).crossed;
            assert_eq!(crossed.len(), 1, "{number}");
            let one = &crossed[0];
            assert_eq!((one.read.as_str(), one.write.as_str()), ("1", "1"));
            let other = (one.other_read.as_str(), one.other_write.as_str());
            assert_eq!((other, one.request.as_str()), (("3", "3"), "2"));
            assert_eq!(
                (one.tables.as_slice(), one.known),
                (&["subs".to_owned()][..], known)
            );
            let values: &[&str] = if known { &["459", "12"] } else { &[] };
            assert_eq!(one.values, values);
        }
        made = Made::new();
    }
}

#[test]
fn writers_of_different_rows_have_not_crossed() {
    let mut made = Made::new();
    let (one, other) = (sent(INSERT, &["459", "12"]), sent(INSERT, &["460", "13"]));
    let trace = crossing(&mut made, [Some(&one), Some(&other)]);
    let index = indexed(&trace);
    let own = sight(&trace, &index, 1);
    assert_eq!(ids(&own.unseen), ["3"]);
    assert_eq!(own.crossed, []);
}

/// Each of two requests looks and writes in one transaction; both run at the same time. The first
/// one has a second transaction.
fn crossing(made: &mut Made, sent: [Option<&[u8]>; 2]) -> Trace {
    made.shape(2, &[INSERT])
        .shape(4, &["UPDATE mine SET n = 1"])
        .request(1, 0, 500, "POST /subscribe", 201)
        .request(2, 10, 500, "POST /subscribe", 201);
    let write = Own {
        shape: 2,
        snapshot: "100:100:",
        ..Own::default()
    };
    made.transaction(Own {
        request: Some(1),
        began: 10,
        ended: 100,
        xid: Some(100),
        sent: sent[0],
        ..write
    })
    .transaction(Own {
        number: 2,
        request: Some(1),
        began: 150,
        ended: 160,
        xid: Some(102),
        snapshot: "102:102:",
        shape: 4,
        ..write
    })
    .transaction(Own {
        number: 3,
        session: 2,
        request: Some(2),
        began: 20,
        ended: 110,
        xid: Some(101),
        sent: sent[1],
        ..write
    });
    made.trace()
}

#[test]
fn who_waited_is_told_with_whom_it_waited_for() {
    let mut made = Made::new();
    made.shape(1, &["UPDATE stock SET n = n - $1 WHERE id = $2"])
        .request(1, 0, 200, "POST /buy", 200)
        .request(2, 10, 300, "POST /buy", 200)
        .request(3, 400, 50, "POST /lock", 200)
        .request(4, 410, 90, "POST /lock", 200);
    let own = Own {
        snapshot: "100:100:",
        ..Own::default()
    };
    made.transaction(Own {
        request: Some(1),
        began: 10,
        ended: 150,
        xid: Some(100),
        ..own
    })
    .transaction(Own {
        number: 2,
        session: 2,
        request: Some(2),
        began: 20,
        ended: 250,
        xid: Some(101),
        rechecked: &[0],
        ..own
    })
    .transaction(Own {
        number: 3,
        request: Some(3),
        began: 405,
        ended: 440,
        lock: Some(1),
        ..own
    })
    .transaction(Own {
        number: 4,
        session: 2,
        request: Some(4),
        began: 415,
        ended: 490,
        lock: Some(2),
        ..own
    });
    let trace = made.trace();
    let index = indexed(&trace);
    for (number, other) in [(2, Some("1")), (4, Some("3"))] {
        let waited = sight(&trace, &index, number).waited;
        assert_eq!(waited.len(), 1, "t{number}");
        assert_eq!(waited[0].statement, 1);
        assert_eq!(waited[0].other.as_ref().map(|one| one.id.as_str()), other);
    }
    for number in [1, 3] {
        assert_eq!(
            sight(&trace, &index, number).waited,
            [],
            "t{number} was first"
        );
    }
}

#[test]
fn a_request_is_told_whole() {
    let (_made, trace) = race([Some(["459", "12"]), Some(["459", "12"])]);
    let index = indexed(&trace);
    let detail = request_detail(&trace, &index, Id::new(0, 2))
        .unwrap()
        .unwrap();
    assert_eq!(
        (detail.status, detail.of.as_deref()),
        (Some(201), Some("POST /subscribe"))
    );
    assert_eq!(
        detail.response.map(|body| body.text).as_deref(),
        Some("answer 2")
    );
    let own: Vec<_> = detail
        .transactions
        .iter()
        .map(|one| one.id.as_str())
        .collect();
    assert_eq!(own, ["2", "6"]);
    let insert = &detail.transactions[1];
    assert_eq!(insert.statements[0].values, ["459", "12"]);
    assert_eq!(
        (insert.writes.as_slice(), insert.with_values),
        (&["subs".to_owned()][..], true)
    );
    assert_eq!(
        request_detail(&trace, &index, Id::new(0, 99)).unwrap(),
        None
    );
}
