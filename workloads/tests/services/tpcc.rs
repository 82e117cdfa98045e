use hindcast_workloads::drive::{DriveOptions, HttpCall, Limit, Requests, drive};
use hindcast_workloads::tpcc::{Line, NewOrder, Ordered, Paid, Payment};
use hindcast_workloads::{Scale, Variant, Workload};

use crate::common::{App, SMALL};

fn order(items: &[i32]) -> HttpCall {
    let line = |&i_id| Line {
        i_id,
        supply_w_id: 1,
        quantity: 4,
    };
    let entry_d = Some("2024-05-06T07:08:09Z".into());
    let lines = items.iter().map(line).collect();
    HttpCall::post(
        "/tpcc/new-order".into(),
        &NewOrder {
            w_id: 1,
            d_id: 2,
            c_id: 3,
            entry_d,
            lines,
        },
    )
}

fn payment(c_id: Option<i32>, c_last: Option<&str>) -> HttpCall {
    let c_last = c_last.map(str::to_owned);
    let (w_id, d_id) = (1, 2);
    let payment = Payment {
        w_id,
        d_id,
        c_w_id: 1,
        c_d_id: 2,
        c_id,
        c_last,
        amount_cents: 12_345,
        date: None,
    };
    HttpCall::post("/tpcc/payment".into(), &payment)
}

#[test]
fn an_order_takes_from_stock_and_adds_up() {
    let app = App::new(Workload::Tpcc);
    let stock = "SELECT s_quantity || ' ' || s_ytd || ' ' || s_order_cnt FROM stock WHERE s_w_id = 1 AND s_i_id = 17";
    app.session()
        .run("UPDATE stock SET s_quantity = 15 WHERE s_i_id = 17");

    // An item may stand on two lines.
    let ordered: Ordered = app.ok(&order(&[17, 5, 17]));
    assert_eq!(ordered.lines.len(), 3);
    // 15 - 4 = 11; 11 - 4 would leave less than ten, so 91 arrive.
    assert_eq!(
        (ordered.lines[0].s_quantity, ordered.lines[2].s_quantity),
        (11, 98)
    );
    assert_eq!(app.session().value(stock), "98 8 2");

    let sum: i64 = ordered.lines.iter().map(|line| line.amount_cents).sum();
    let expected = sum as f64 * (1.0 - ordered.c_discount) * (1.0 + ordered.w_tax + ordered.d_tax);
    assert!((ordered.total_cents as f64 - expected).abs() <= 0.5);
    let stored = format!(
        "SELECT sum(ol_amount * 100)::bigint || ' ' || count(*) || ' ' || max(o_entry_d) FILTER (WHERE o_ol_cnt = 3 AND o_all_local = 1)
           FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
          WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = {} AND o_c_id = 3",
        ordered.o_id
    );
    let session = app.session();
    session.run("SET TimeZone = 'UTC'");
    assert_eq!(
        session.value(&stored),
        format!("{sum} 3 2024-05-06 07:08:09+00")
    );

    let next: Ordered = app.ok(&order(&[1]));
    assert_eq!(next.o_id, ordered.o_id + 1);
    assert_eq!(app.violations(), [""; 0]);
}

#[test]
fn an_order_for_an_item_nobody_sells_leaves_nothing_behind() {
    let app = App::new(Workload::Tpcc);
    let state = "SELECT (SELECT count(*) FROM orders) || ' ' || (SELECT sum(d_next_o_id) FROM district) || ' ' || (SELECT count(*) FROM new_order)";
    let before = app.session().value(state);
    let (status, body) = app.send(&order(&[1, 2, 3_000_000]));
    assert_eq!((status, body["error"].as_str()), (422, Some("rolled_back")));
    assert_eq!(app.session().value(state), before);
}

#[test]
fn a_payment_reaches_warehouse_district_customer_and_history() {
    let app = App::new(Workload::Tpcc);
    let session = app.session();
    session.run("UPDATE customer SET c_credit = 'GC' WHERE c_id = 3; UPDATE customer SET c_credit = 'BC' WHERE c_id = 4");
    let good: Paid = app.ok(&payment(Some(3), None));
    assert_eq!(
        (good.c_id, good.c_balance_cents, good.c_data),
        (3, -1_000 - 12_345, None)
    );
    let bad: Paid = app.ok(&payment(Some(4), None));
    let file = bad.c_data.unwrap();
    assert!(
        file.starts_with("4 2 1 2 1 12345|") && file.len() == 200,
        "{file}"
    );

    let paid = "SELECT c_balance || ' ' || c_ytd_payment || ' ' || c_payment_cnt || ' ' || (c_data LIKE '4 2 1 2 1 12345|%')
                  FROM customer WHERE c_w_id = 1 AND c_d_id = 2 AND c_id = 4";
    assert_eq!(session.value(paid), "-133.45 133.45 2 true");
    let history = "SELECT count(*) || ' ' || max(h_amount) FROM history WHERE h_amount = 123.45 AND h_data LIKE '%    %'";
    assert_eq!(session.value(history), "2 123.45");
    assert_eq!(session.value("SELECT w_ytd FROM warehouse"), "300246.90");
    assert_eq!(app.violations(), [""; 0]);
}

#[test]
fn a_customer_named_by_last_name_is_the_one_in_the_middle() {
    let app = App::new(Workload::Tpcc);
    app.session().run(
        "UPDATE customer SET c_last = 'TWIN', c_first = chr(64 + c_id) WHERE c_d_id = 2 AND c_id BETWEEN 11 AND 14;
         UPDATE customer SET c_last = 'ONLY' WHERE c_d_id = 2 AND c_id = 20",
    );
    assert_eq!(
        app.ok::<Paid>(&payment(None, Some("TWIN"))).c_id,
        12,
        "the second of four"
    );
    assert_eq!(app.ok::<Paid>(&payment(None, Some("ONLY"))).c_id, 20);
    assert_eq!(app.send(&payment(None, Some("NOBODY"))).0, 404);
    assert_eq!(app.send(&payment(None, None)).0, 400);
    assert_eq!(
        app.session().value("SELECT w_ytd FROM warehouse"),
        "300246.90",
        "only two were paid"
    );
}

#[test]
fn the_consistency_conditions_hold_after_a_concurrent_run() {
    let app = App::with(Workload::Tpcc, Variant::Original, |options| {
        options.retries_max = 5
    });
    let orders = "SELECT count(*) FROM orders";
    let before: u64 = app.session().value(orders).parse().unwrap();
    let requests = Requests::new(Workload::Tpcc, Scale::new(SMALL).unwrap(), 9, None).unwrap();
    let options = DriveOptions {
        clients: 6,
        ..DriveOptions::new(app.target.clone(), Limit::requests(800))
    };
    let report = drive(requests, &options).unwrap();

    assert_eq!(report.requests, 800);
    let expected = [
        "ok",
        "rolled_back",
        "serialization_failure",
        "deadlock_detected",
    ];
    assert!(
        report
            .outcomes
            .keys()
            .all(|kind| expected.contains(&kind.as_str())),
        "{:?}",
        report.outcomes
    );
    assert!(report.outcome("ok") > 400, "{:?}", report.outcomes);
    assert_eq!(app.violations(), [""; 0]);
    let made = report.operations["new-order"].outcomes["ok"];
    assert_eq!(app.session().value(orders), (before + made).to_string());
}

#[test]
fn the_consistency_conditions_notice_what_is_inconsistent() {
    let app = App::new(Workload::Tpcc);
    app.session().run(
        "UPDATE warehouse SET w_ytd = w_ytd + 1;
         UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 1;
         DELETE FROM new_order WHERE no_d_id = 2 AND no_o_id = (SELECT min(no_o_id) + 1 FROM new_order);
         DELETE FROM order_line WHERE ol_d_id = 3 AND ol_o_id = 1 AND ol_number = 1",
    );
    assert_eq!(app.violations().len(), 4, "{:?}", app.violations());
}
