//! What other tools are given.

use hindcast_trace::Trace;
use hindcast_view::Index;
use hindcast_view::export::{Tables, csv, otlp, perfetto};
use serde_json::Value;

use crate::made::{Made, NOON, Own, indexed};

/// Two requests at the same time, of which the second waits for the first, and a ghost.
fn recording() -> (Made, Trace, Index) {
    let mut made = Made::new();
    made.shape(
        1,
        &[
            "BEGIN",
            "UPDATE stock SET n = n - $1, note = 'a,b'",
            "COMMIT",
        ],
    )
    .request(1, 0, 200, "POST /buy?n=1", 200)
    .request(2, 10, 300, "POST /buy?n=2", 500);
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
        rechecked: &[1],
        ..own
    })
    .transaction(Own {
        number: 3,
        session: 3,
        began: 300,
        ended: 310,
        ..own
    });
    let trace = made.trace();
    let index = indexed(&trace);
    (made, trace, index)
}

#[test]
fn perfetto_has_lanes_and_arrows_for_waits() {
    let (_made, trace, index) = recording();
    let mut out = Vec::new();
    perfetto(&trace, &index, &mut out).unwrap();
    let written: Value = serde_json::from_slice(&out).unwrap();
    let events = written["traceEvents"].as_array().unwrap();
    let of = |phase: &str, category: &str| -> Vec<&Value> {
        let own = |event: &&Value| event["ph"] == phase && event["cat"] == category;
        events.iter().filter(own).collect()
    };
    let requests = of("X", "request");
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0]["name"], "POST /buy");
    assert_eq!(
        (&requests[0]["ts"], &requests[0]["dur"]),
        (&0.into(), &200.into())
    );
    assert_ne!(
        requests[0]["tid"], requests[1]["tid"],
        "they ran at the same time"
    );
    let transactions = of("X", "transaction");
    assert_eq!(transactions.len(), 3);
    assert!(
        transactions[0]["name"]
            .as_str()
            .unwrap()
            .starts_with("UPDATE stock")
    );
    assert_eq!(of("s", "request").len(), 2, "a ghost belongs to no request");
    let (left, arrived) = (of("s", "wait"), of("f", "wait"));
    assert_eq!((left.len(), arrived.len()), (1, 1));
    assert_eq!((&left[0]["tid"], &left[0]["ts"]), (&1.into(), &149.into()));
    assert_eq!(
        (&arrived[0]["tid"], &arrived[0]["ts"]),
        (&2.into(), &150.into())
    );
    assert_eq!(left[0]["id"], arrived[0]["id"]);
}

#[test]
fn otlp_has_spans_with_parents_and_links() {
    let (_made, trace, index) = recording();
    let mut out = Vec::new();
    otlp(&trace, &index, &mut out).unwrap();
    let mut spans = Vec::new();
    for line in String::from_utf8(out).unwrap().lines() {
        let batch: Value = serde_json::from_str(line).unwrap();
        let own = &batch["resourceSpans"][0]["scopeSpans"][0]["spans"];
        spans.extend(own.as_array().unwrap().clone());
    }
    assert_eq!(spans.len(), 5);
    let length = |value: &Value| value.as_str().map_or(0, str::len);
    for span in &spans {
        assert_eq!(
            (length(&span["traceId"]), length(&span["spanId"])),
            (32, 16)
        );
    }
    let (request, own) = (&spans[1], &spans[3]);
    assert_eq!(
        (&request["kind"], &request["status"]["code"]),
        (&2.into(), &2.into())
    );
    assert_eq!(request["startTimeUnixNano"], format!("{}000", NOON + 10));
    assert_eq!(own["parentSpanId"], request["spanId"]);
    assert_eq!(own["traceId"], request["traceId"]);
    assert_eq!(
        own["links"][0]["spanId"], spans[2]["spanId"],
        "it waited for the first"
    );
    assert!(spans[4]["parentSpanId"].is_null(), "a ghost has no parent");
    assert_ne!(spans[4]["traceId"], spans[0]["traceId"]);
}

#[test]
fn csv_has_a_line_for_each() {
    let (_made, trace, index) = recording();
    let (mut requests, mut transactions, mut statements) = (Vec::new(), Vec::new(), Vec::new());
    let tables = Tables {
        requests: &mut requests,
        transactions: &mut transactions,
        statements: &mut statements,
    };
    csv(&trace, &index, tables).unwrap();
    let lines = |bytes: Vec<u8>| -> Vec<String> {
        let text = String::from_utf8(bytes).unwrap();
        text.split_terminator("\r\n").map(str::to_owned).collect()
    };
    let requests = lines(requests);
    assert!(
        requests[2].starts_with("2,2026-11-21 04:00:00.000010,300,POST"),
        "{}",
        requests[2]
    );
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[2].split(',').nth(7), Some("500"));
    let transactions = lines(transactions);
    assert_eq!(transactions.len(), 4);
    assert!(transactions[3].starts_with("3,,3,"), "{}", transactions[3]);
    let statements = lines(statements);
    assert!(statements[1].ends_with(",1,BEGIN,,"), "{}", statements[1]);
    assert!(
        statements[2].contains("\"UPDATE stock SET n = n - $1, note = 'a,b'\",stock,stock"),
        "{}",
        statements[2]
    );
}
