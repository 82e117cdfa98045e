//! Timelines at all distances, filters and search.

use std::sync::atomic::AtomicBool;

use hindcast_trace::{Micros, Trace};
use hindcast_view::{
    COLUMNS_MAX, Filter, Index, Lanes, Levels, MARKS_MAX, Progress, Question, StatusClass,
    Timeline, Wanted, listed, overview, request_lines, search, timeline,
};
use serde_json::{Value, json};

use crate::made::{Made, NOON, Own, indexed, sent};

fn question(from: Micros, until: Micros) -> Question {
    Question {
        from: NOON + from,
        until: NOON + until,
        columns: 100,
        lane: 0,
        rows: 100,
    }
}

fn json_of(answer: &Timeline) -> Value {
    serde_json::to_value(answer).expect("answers are JSON")
}

/// Every number of requests below `count` is asked for once, 10 µs after the one before.
fn many(count: u64) -> Trace {
    let mut made = Made::new();
    for number in 0..count {
        let status = if number % 100 == 7 { 500 } else { 200 };
        let line = format!("GET /notes/{number}");
        made.request(number + 1, number as Micros * 10, 35, &line, status);
    }
    let trace = made.trace();
    // It is read later.
    std::mem::forget(made.folder);
    trace
}

/// Of columns: the requests and the failed ones, all lanes together.
fn sums(answer: &Value) -> (u64, u64) {
    let sum = |name: &str| -> u64 {
        let lanes = answer["columns"].as_array().expect("columns").iter();
        let counts = lanes.flat_map(|lane| lane[name].as_array().expect("counts"));
        counts.map(|count| count.as_u64().expect("a number")).sum()
    };
    (sum("requests"), sum("failed"))
}

#[test]
fn few_requests_are_marks_with_their_transactions() {
    let mut made = Made::new();
    made.shape(1, &["SELECT 1"])
        .request(1, 0, 100, "GET /a", 200)
        .request(2, 50, 100, "GET /b", 404)
        .request(3, 120, 10, "POST /a", 0)
        .transaction(Own {
            request: Some(2),
            began: 60,
            ended: 90,
            ..Own::default()
        })
        .transaction(Own {
            number: 2,
            began: 70,
            ended: 75,
            ..Own::default()
        });
    let trace = made.trace();
    let index = indexed(&trace);
    let levels = Levels::of(&index, Lanes::Client, None);
    let answer = json_of(&timeline(&index, &levels, &question(-10, 1000)));
    assert_eq!(answer["drawn"], "marks");
    let marks = answer["marks"].as_array().unwrap();
    let told: Vec<Value> = marks
        .iter()
        .map(|mark| {
            json!([
                mark["id"],
                mark["lane"],
                mark["at"],
                mark["took"],
                mark["status"]
            ])
        })
        .collect();
    // The second comes while the first is under way; the third finds the first lane free.
    assert_eq!(
        told,
        [
            json!(["1", 0, 10, 100, 200]),
            json!(["2", 1, 60, 100, 404]),
            json!(["3", 0, 130, 10, 0])
        ]
    );
    assert_eq!(marks[1]["transactions"][0]["id"], "1");
    assert_eq!(marks[0]["transactions"], json!([]));
    assert_eq!(answer["ghosts"][0]["id"], "2");
    assert_eq!(index.types.len(), 3);

    // What began before the range and reaches into it is in it.
    let late = json_of(&timeline(&index, &levels, &question(90, 110)));
    assert_eq!(late["marks"].as_array().unwrap().len(), 2);
    assert_eq!(late["marks"][0]["at"], -90);
    let after = json_of(&timeline(&index, &levels, &question(200, 300)));
    assert_eq!(after["marks"], json!([]));
}

#[test]
fn many_requests_are_columns_that_add_up_at_every_distance() {
    let count = 30_000;
    let trace = many(count);
    let index = indexed(&trace);
    assert_eq!(index.types, ["GET /notes/{id}"]);
    for lanes in [Lanes::Client, Lanes::Type, Lanes::Session] {
        let levels = Levels::of(&index, lanes, None);
        let mut span = count as Micros * 10;
        while span > 70_000 {
            let whole = json_of(&timeline(&index, &levels, &question(0, span)));
            assert_eq!(whole["drawn"], "columns", "{span}");
            // Columns begin before the range and end behind it, by less than their length.
            let column = whole["column_us"].as_i64().unwrap();
            let (requests, failed) = sums(&whole);
            let least = (span / 10) as u64;
            let most = ((span + 2 * column) / 10) as u64;
            assert!(
                requests >= least && requests <= most,
                "{requests} in {span}"
            );
            assert!(failed >= least / 100 && failed <= most / 100 + 1);
            assert!(
                column >= span / 100 && column <= span / 25,
                "{column} of {span}"
            );
            span /= 2;
        }
        // Near by they are marks again.
        let near = json_of(&timeline(&index, &levels, &question(1000, 2000)));
        assert_eq!(near["drawn"], "marks");
        assert_eq!(near["marks"].as_array().unwrap().len(), 103);
    }
}

#[test]
fn an_answer_is_bounded_whatever_is_asked() {
    let trace = many(20_000);
    let index = indexed(&trace);
    let levels = Levels::of(&index, Lanes::Client, None);
    for (from, until) in [(0, 39_000), (0, 41_000), (0, 200_000), (-1 << 50, 1 << 50)] {
        let asked = Question {
            columns: u32::MAX,
            rows: usize::MAX,
            ..question(from, until)
        };
        let answer = json_of(&timeline(&index, &levels, &asked));
        let marks = answer["marks"].as_array().map_or(0, Vec::len);
        assert!(marks <= MARKS_MAX);
        for lane in answer["columns"].as_array().into_iter().flatten() {
            assert!(lane["x"].as_array().unwrap().len() <= COLUMNS_MAX as usize + 1);
        }
    }
    let whole = overview(&index, &levels, 50);
    assert_eq!(whole.requests.iter().sum::<u64>(), 20_000);
    assert_eq!(whole.failed.iter().sum::<u64>(), 200);
    assert!(whole.x.len() <= 51);
    assert_eq!(listed(&index, &levels, NOON, NOON + 1000, 10).len(), 10);
}

#[test]
fn a_list_has_targets_where_they_are_near_and_types_where_they_are_far_apart() {
    let trace = many(25_000);
    let index = indexed(&trace);
    let lines = |places: &[usize]| {
        let lines = request_lines(&trace, &index, places).into_iter();
        let told = lines.map(|(id, _, took, status, method, target)| {
            format!("{id} {took} {status:?} {method} {target}")
        });
        told.collect::<Vec<_>>()
    };
    let near = ["8 35 Some(500) GET /notes/7", "9 35 Some(200) GET /notes/8"];
    assert_eq!(lines(&[7, 8]), near);
    let far = [
        "8 35 Some(500) GET /notes/{id}",
        "24001 35 Some(200) GET /notes/{id}",
    ];
    assert_eq!(lines(&[7, 24_000]), far);
    assert!(lines(&[]).is_empty());
}

/// Ids that a filter and what is wanted leave.
fn left(trace: &Trace, index: &Index, filter: &Filter, wanted: &Wanted) -> Vec<u64> {
    let (progress, cancelled) = (Progress::default(), AtomicBool::new(false));
    let found = (!wanted.is_empty())
        .then(|| search(trace, index, wanted, &progress, &cancelled).expect("it is read"));
    let only = filter.select(index, found.as_ref().map(|found| &found.requests));
    let levels = Levels::of(index, Lanes::Client, only);
    let all = listed(index, &levels, Micros::MIN, Micros::MAX, 1000);
    assert_eq!(levels.by_lane.iter().sum::<u64>(), all.len() as u64);
    all.iter().map(|at| index.id[*at]).collect()
}

#[test]
fn filters_and_search_leave_what_was_asked_for() {
    let insert = "INSERT INTO orders (id, buyer) VALUES ($1, $2)";
    let (own, other) = (sent(insert, &["4711", "7"]), sent(insert, &["47", "4711x"]));
    let mut made = Made::new();
    made.shape(1, &["SELECT name FROM users"])
        .shape(2, &[insert])
        .request(1, 0, 100, "GET /orders/12", 200)
        .request(2, 200, 9_000, "POST /orders", 201)
        .request(3, 400, 100, "POST /orders", 409)
        .request(4, 600, 100, "POST /orders?id=4711", 500)
        .request(5, 800, 100, "GET /orders/4711", 200);
    let write = Own {
        shape: 2,
        ..Own::default()
    };
    made.transaction(Own {
        request: Some(1),
        ..Own::default()
    })
    .transaction(Own {
        number: 2,
        request: Some(2),
        sent: Some(&own),
        ..write
    })
    .transaction(Own {
        number: 3,
        request: Some(3),
        sent: Some(&other),
        aborted: true,
        ..write
    })
    .transaction(Own {
        number: 4,
        request: Some(4),
        ..write
    });
    let trace = made.trace();
    let index = indexed(&trace);
    let filter = Filter::default;
    let none = Wanted::default();
    let by = |filter: Filter| left(&trace, &index, &filter, &none);
    assert_eq!(by(filter()), [1, 2, 3, 4, 5]);
    let status = vec![StatusClass::Failed];
    assert_eq!(by(Filter { status, ..filter() }), [3, 4]);
    let types = vec!["POST /orders".to_owned()];
    assert_eq!(by(Filter { types, ..filter() }), [2, 3, 4]);
    assert_eq!(
        by(Filter {
            took_min: 5_000,
            ..filter()
        }),
        [2]
    );
    assert_eq!(
        by(Filter {
            contended: true,
            ..filter()
        }),
        [3]
    );

    let text = |text: &str| Wanted {
        text: text.to_owned(),
        row: None,
    };
    let wanted = |wanted: &Wanted| left(&trace, &index, &filter(), wanted);
    // In a target, in a value, in a statement, in a response.
    assert_eq!(wanted(&text("4711")), [2, 3, 4, 5]);
    assert_eq!(wanted(&text("insert INTO")), [2, 3, 4]);
    assert_eq!(wanted(&text("Answer 3")), [3]);
    assert!(wanted(&text("no such thing")).is_empty());

    let row = |text: &str| Wanted {
        text: String::new(),
        row: Some(Wanted::parse_row(text).unwrap()),
    };
    // 2 by its value; 4 by its target, since its values were not kept. 5 touched no table.
    assert_eq!(wanted(&row("orders 4711")), [2, 4]);
    assert_eq!(wanted(&row("orders 47")), [3]);
    let progress = Progress::default();
    let found = search(
        &trace,
        &index,
        &row("orders 47"),
        &progress,
        &AtomicBool::new(false),
    );
    let how = found.unwrap().how;
    assert_eq!((how.by_value, how.by_request, how.unknown), (1, 0, 1));
    let no_such = row("invoices 1").check(&index).unwrap_err();
    assert_eq!(
        no_such.to_string(),
        "no recorded statement names the table \"invoices\""
    );
}

#[test]
fn requests_are_found_though_clocks_step_back_and_paths_look_alike() {
    let mut made = Made::new();
    for number in 1..=80 {
        made.request(
            number,
            10_000 - number as Micros * 100,
            50,
            &format!("GET /u/name{number}"),
            200,
        );
    }
    made.request(81, 20_000, 5, "GET /favicon.ico", 404);
    let trace = made.trace();
    let index = indexed(&trace);
    assert!(index.arrived.is_sorted());
    let at = index.find(hindcast_trace::Id::new(0, 80)).unwrap();
    assert_eq!(index.arrived[at], NOON + 2_000);
    // So many names are ids, also those that came first; what was never found is no type by itself.
    assert_eq!(index.types, ["GET /u/{id}", "GET (not found)"]);
}

#[test]
fn a_recording_without_requests_has_a_timeline() {
    let trace = Made::new().trace();
    let index = indexed(&trace);
    assert_eq!(index.span(), None);
    let levels = Levels::of(&index, Lanes::Client, None);
    let answer = json_of(&timeline(&index, &levels, &question(0, 1000)));
    assert_eq!(
        (&answer["marks"], &answer["requests"]),
        (&json!([]), &json!(0))
    );
    assert_eq!(overview(&index, &levels, 100).x, [] as [u64; 0]);
}
