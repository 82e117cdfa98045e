use std::time::Duration;

use hindcast_workloads::database::Isolation;
use hindcast_workloads::drive::HttpCall;
use hindcast_workloads::load::migrate;
use hindcast_workloads::moodle::{Subscribe, Subscribed, Subscribers};
use hindcast_workloads::race::{self, RaceError, RaceOptions, Struck};
use hindcast_workloads::{Variant, Workload};
use serde_json::json;

use crate::common::{App, race, race_options, runtime};

const TABLE: &str = "mdl_forum_subscriptions";

fn subscribe() -> HttpCall {
    HttpCall::post(
        "/subscribe".into(),
        &Subscribe {
            userid: 7,
            forum: 3,
        },
    )
}

#[test]
fn a_user_who_subscribes_is_listed_and_subscribes_only_once() {
    let app = App::new(Workload::Moodle);
    let list = HttpCall::get("/forums/3/subscribers".into());
    let before: Subscribers = app.ok(&list);
    assert_eq!(
        before.subscribers.len(),
        1,
        "one subscriber is loaded for each forum"
    );
    let bytes = serde_json::to_vec(&before).unwrap().len();
    assert!(
        (400..700).contains(&bytes),
        "a list is about 500 bytes, not {bytes}"
    );

    let userid = before.subscribers[0].id % 10 + 1;
    let wish = HttpCall::post("/subscribe".into(), &Subscribe { userid, forum: 3 });
    let first: Subscribed = app.ok(&wish);
    let second: Subscribed = app.ok(&wish);
    assert!(first.created && !second.created);
    assert_eq!(first.subscription, second.subscription);

    let after: Subscribers = app.ok(&list);
    assert!(
        after
            .subscribers
            .iter()
            .any(|subscriber| subscriber.id == userid)
    );
    assert_eq!(after.subscribers.len(), 2);
    assert!(
        after
            .subscribers
            .is_sorted_by_key(|subscriber| &subscriber.email)
    );
    assert_eq!(app.violations(), [""; 0]);
}

#[test]
fn requests_that_mean_nothing_are_refused_with_a_reason() {
    let app = App::new(Workload::Moodle);
    let kinds = [
        app.get("/nowhere"),
        app.get("/forums/three/subscribers"),
        app.post("/subscribe", &json!({"userid": 1})),
        app.post(
            "/subscribe",
            &json!({"userid": 1, "forum": 2, "force": true}),
        ),
    ]
    .map(|(status, body)| (status, body["error"].as_str().unwrap().to_owned()));
    let invalid = (400, "invalid_request".to_owned());
    assert_eq!(
        kinds,
        [
            (404, "not_found".to_owned()),
            invalid.clone(),
            invalid.clone(),
            invalid
        ]
    );
    assert_eq!(
        app.get("/healthz"),
        (
            200,
            json!({"status": "ok", "workload": "moodle", "variant": "original"})
        )
    );
}

#[test]
fn two_subscriptions_at_once_both_insert_mdl_59854() {
    let app = App::new(Workload::Moodle);
    let [(one, first), (other, second)] = race(&app, TABLE, &subscribe());
    assert_eq!((one, other), (201, 201));
    assert_ne!(first["subscription"], second["subscription"]);
    let violations = app.violations();
    assert_eq!(violations.len(), 1);
    assert!(
        violations[0].starts_with("user 7 is subscribed to forum 3 by rows "),
        "{violations:?}"
    );
}

#[test]
fn one_transaction_instead_of_two_still_duplicates_under_snapshot_isolation() {
    let app = App::with(Workload::Moodle, Variant::Merged, |_| {});
    let [(one, _), (other, _)] = race(&app, TABLE, &subscribe());
    assert_eq!((one, other), (201, 201));
    assert_eq!(app.violations().len(), 1);
}

#[test]
fn one_transaction_is_enough_under_serializable() {
    let app = App::with(Workload::Moodle, Variant::Merged, |options| {
        options.isolation = Isolation::Serializable
    });
    let [(one, _), (other, loser)] = race(&app, TABLE, &subscribe());
    assert_eq!((one, other), (201, 409));
    assert_eq!(loser["error"], "serialization_failure");
    assert_eq!(app.violations(), [""; 0]);
}

#[test]
fn an_upsert_under_a_unique_index_does_not_duplicate_but_may_fail_to_serialize() {
    let app = App::with(Workload::Moodle, Variant::Upsert, |_| {});
    let [(one, _), (other, loser)] = race(&app, TABLE, &subscribe());
    assert_eq!((one, other), (201, 409));
    assert_eq!(loser["error"], "serialization_failure");
    assert_eq!(app.violations(), [""; 0]);
}

#[test]
fn an_upsert_that_is_tried_again_succeeds() {
    let app = App::with(Workload::Moodle, Variant::Upsert, |options| {
        options.retries_max = 3
    });
    let [(one, first), (other, second)] = race(&app, TABLE, &subscribe());
    assert_eq!((one, other), (201, 201));
    assert_eq!(first["subscription"], second["subscription"]);
    assert_eq!(app.violations(), [""; 0]);
}

#[test]
fn migrating_removes_duplicates_and_makes_the_original_fail_instead() {
    let app = App::new(Workload::Moodle);
    race(&app, TABLE, &subscribe());
    assert_eq!(app.violations().len(), 1);
    runtime()
        .block_on(migrate(Workload::Moodle, Variant::Upsert, &app.url))
        .unwrap();
    assert_eq!(app.violations(), [""; 0]);

    let another = HttpCall::post(
        "/subscribe".into(),
        &Subscribe {
            userid: 8,
            forum: 4,
        },
    );
    let [(one, _), (other, loser)] = race(&app, TABLE, &another);
    assert_eq!((one, other), (201, 500));
    assert_eq!(loser["error"], "unique_violation");
}

#[test]
fn the_driver_finds_the_race_without_help() {
    let app = App::new(Workload::Moodle);
    let race = race::race(Workload::Moodle, &race_options(&app)).unwrap();
    let Struck::SubscribedTwice(found) = race.struck else {
        panic!("another bug struck: {}", race.struck)
    };
    let [first, second] = found.subscriptions;
    let expected = format!(
        "user {} is subscribed to forum {} by rows {first}, {second}",
        found.userid, found.forum
    );
    // The mix may have struck elsewhere too.
    assert!(app.violations().contains(&expected), "{expected}");
}

#[test]
fn the_driver_finds_no_race_where_it_is_fixed() {
    let app = App::with(Workload::Moodle, Variant::Upsert, |_| {});
    let options = RaceOptions {
        time_max: Duration::from_millis(300),
        ..race_options(&app)
    };
    let error = race::race(Workload::Moodle, &options).unwrap_err();
    assert!(
        matches!(error, RaceError::NotFound { attempts: 1.., .. }),
        "{error}"
    );
}
