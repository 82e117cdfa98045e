//! `hindcast standby` of several databases by one command.

use hindcast_tests::stage::free_port;
use hindcast_tests::standby::{Pair, assert_refused};
use hindcast_tests::{http, wait_for};

const ORDERS: &str = "CREATE TABLE orders (id serial PRIMARY KEY, what text);
     INSERT INTO orders (what) SELECT 'thing ' || i FROM generate_series(1, 100) i;";

#[test]
fn several_databases_are_followed_by_one_process() {
    let shop = Pair::shared("several_shop", ORDERS);
    let billing = Pair::shared("several_billing", ORDERS);
    let databases = [
        "--database",
        "several_shop",
        "--database",
        "several_billing",
    ];
    let address = format!("127.0.0.1:{}", free_port());
    let absent = ["--database", "several_absent", "--metrics", &address];
    let mut follower = shop.follow(&[&databases[..], &absent].concat());
    for pair in [&shop, &billing] {
        pair.primary("INSERT INTO orders (what) VALUES ('new')");
        pair.wait_until_equal(&mut follower);
    }
    // One that cannot be followed is none of the others' business, and each says which it is.
    wait_for("the error", || {
        let said = follower.process.stderr();
        said.contains("Error: database several_absent: the standby stopped")
            .then_some(())
    });
    follower.wait_for_report("a report of the second", |report| {
        report["database"] == "several_billing" && report["state"] == "following"
    });
    let metrics = http::Client::new(address)
        .send("GET", "/metrics", None)
        .expect("the metrics are served")
        .text();
    for (database, following) in [("shop", 1), ("billing", 1), ("absent", 0)] {
        let line = format!("following{{database=\"several_{database}\"}} {following}\n");
        assert!(metrics.contains(&line), "{line} is not in:\n{metrics}");
    }

    let (from, to) = (shop.primary_url(), shop.backup_url());
    let ask = |action: &str, more: &[&str]| {
        let servers = [
            action,
            "--to",
            &to,
            "--from",
            &from,
            "--name",
            "several_shop",
        ];
        shop.run(&[&servers, &databases[..], more].concat())
    };
    let status = ask("status", &[]).assert_code(0).stdout;
    for database in ["shop", "billing"] {
        let lines =
            format!("Database several_{database}:\nhindcast_several_shop_several_{database} of ");
        assert!(status.contains(&lines), "{lines} is not in:\n{status}");
    }
    assert_eq!(status.matches("somebody follows").count(), 2, "{status}");

    // Both end by themselves then, and the error is what the whole ends with.
    let promoted = ask("promote", &["--check"]).assert_code(0).stdout;
    assert_eq!(promoted.matches("Promoted: ").count(), 2, "{promoted}");
    assert_refused(&follower.wait(), &["database several_absent: "]);
    for pair in [&shop, &billing] {
        pair.backup("INSERT INTO orders (what) VALUES ('after')");
        let slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%several%'";
        assert_eq!(pair.primary(slots), "0");
    }
}
