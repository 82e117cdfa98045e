use std::thread;
use std::time::Duration;

use hindcast_workloads::database::Isolation;
use hindcast_workloads::drive::{DriveOptions, HttpCall, Limit, Mix, Requests, drive};
use hindcast_workloads::race::{self, RaceError, RaceOptions, Struck};
use hindcast_workloads::wp_comments::{Added, Moved, NewComment, Post};
use hindcast_workloads::wp_options::{NewOption, NewValue, OptionRow, Stored};
use hindcast_workloads::{Scale, Variant, Workload};
use serde_json::{Value, json};

use crate::common::{App, SMALL, race, race_options};

fn add_option(name: &str, value: &str) -> HttpCall {
    let new = NewOption {
        option_name: name.into(),
        option_value: value.into(),
        autoload: "yes".into(),
    };
    HttpCall::post("/options".into(), &new)
}

fn update_option(name: &str, value: &str) -> HttpCall {
    HttpCall::put(
        format!("/options/{name}"),
        &NewValue {
            option_value: value.into(),
        },
    )
}

fn get_option(name: &str) -> HttpCall {
    HttpCall::get(format!("/options/{name}"))
}

#[test]
fn options_are_read_added_once_and_updated() {
    let app = App::new(Workload::WpOptions);
    let option: OptionRow = app.ok(&get_option("opt_000042"));
    assert_eq!(
        (option.option_name.len(), option.option_value.len()),
        (10, 100)
    );

    let first: Stored = app.ok(&add_option("blogname", "Rivers"));
    let second: Stored = app.ok(&add_option("blogname", "Seas"));
    assert!(first.changed && !second.changed);
    assert_eq!(
        app.ok::<OptionRow>(&get_option("blogname")).option_value,
        "Rivers"
    );

    assert!(app.ok::<Stored>(&update_option("blogname", "Seas")).changed);
    assert!(!app.ok::<Stored>(&update_option("blogname", "Seas")).changed);
    assert_eq!(
        app.ok::<OptionRow>(&get_option("blogname")).option_value,
        "Seas"
    );

    assert_eq!(app.send(&get_option("nothing")).0, 404);
    assert!(
        app.ok::<Stored>(&update_option("nothing", "is added"))
            .changed
    );
    assert_eq!(
        app.ok::<OptionRow>(&get_option("nothing")).option_value,
        "is added"
    );
}

#[test]
fn two_inserts_at_once_violate_the_unique_key_wp_11437() {
    let app = App::new(Workload::WpOptions);
    let [(one, _), (other, loser)] = race(&app, "wp_options", &add_option("theme", "a"));
    assert_eq!((one, other), (201, 500));
    assert_eq!(loser["error"], "unique_violation");
    let message = loser["message"].as_str().unwrap();
    assert!(
        message.contains(r#"violates unique constraint "wp_options_option_name""#),
        "{message}"
    );
}

#[test]
fn an_upsert_leaves_serialization_failures_and_trying_again_leaves_none() {
    let app = App::with(Workload::WpOptions, Variant::Upsert, |_| {});
    let [(one, _), (other, loser)] = race(&app, "wp_options", &add_option("theme", "a"));
    assert_eq!((one, other), (201, 409));
    assert_eq!(loser["error"], "serialization_failure");

    let app = App::with(Workload::WpOptions, Variant::UpsertRetry, |_| {});
    let [(one, first), (other, second)] = race(&app, "wp_options", &add_option("theme", "a"));
    assert_eq!((one, other), (201, 201));
    assert_eq!(first["option_id"], second["option_id"]);
}

fn mix(app: &App, mix: &str, requests: u64) -> hindcast_workloads::drive::Report {
    let mix: Mix = mix.parse().unwrap();
    let requests_ = Requests::new(app.workload, Scale::new(SMALL).unwrap(), 1, Some(&mix)).unwrap();
    let options = DriveOptions {
        clients: 8,
        ..DriveOptions::new(app.target.clone(), Limit::requests(requests))
    };
    drive(requests_, &options).unwrap()
}

#[test]
fn the_driver_races_until_a_visitor_is_shown_wp_11437() {
    let app = App::new(Workload::WpOptions);
    let found = race::race(Workload::WpOptions, &race_options(&app)).unwrap();
    let Struck::OptionRefused(refused) = found.struck else {
        panic!("another bug struck: {}", found.struck)
    };
    assert!(
        refused.message.contains("wp_options_option_name"),
        "{}",
        refused.message
    );
    // The other visitor added it.
    app.ok::<OptionRow>(&get_option(&refused.option_name));
}

#[test]
fn the_driver_finds_neither_wordpress_bug_where_it_is_fixed() {
    let options = App::with(Workload::WpOptions, Variant::UpsertRetry, |_| {});
    let comments = App::with(Workload::WpComments, Variant::Checked, |options| {
        options.isolation = Isolation::Serializable;
        options.retries_max = 20;
    });
    for app in [options, comments] {
        let options = RaceOptions {
            time_max: Duration::from_millis(300),
            ..race_options(&app)
        };
        let error = race::race(app.workload, &options).unwrap_err();
        assert!(
            matches!(error, RaceError::NotFound { attempts: 1.., .. }),
            "{}: {error}",
            app.workload
        );
    }
}

#[test]
fn the_driver_provokes_wp_11437() {
    let app = App::new(Workload::WpOptions);
    let struck = (0..50).any(|_| mix(&app, "insert-option=1", 200).outcome("unique_violation") > 0);
    assert!(struck, "no unique violation in 10000 inserts");

    let fixed = App::with(Workload::WpOptions, Variant::UpsertRetry, |_| {});
    let report = mix(&fixed, "insert-option=1,update-option=1", 500);
    assert_eq!(report.outcome("ok"), 500, "{:?}", report.outcomes);
}

fn comment(post: i64, text: &str) -> HttpCall {
    let new = NewComment {
        comment_author: "Ada".into(),
        comment_author_email: "ada@example.org".into(),
        comment_content: text.into(),
        comment_date_gmt: Some("2020-02-29T12:00:00Z".into()),
    };
    HttpCall::post(format!("/posts/{post}/comments"), &new)
}

fn read(post: i64) -> HttpCall {
    HttpCall::get(format!("/posts/{post}"))
}

fn trash(post: i64) -> HttpCall {
    HttpCall::post_nothing(format!("/posts/{post}/trash"))
}

fn untrash(post: i64) -> HttpCall {
    HttpCall::post_nothing(format!("/posts/{post}/untrash"))
}

#[test]
fn a_post_comes_back_from_the_trash_with_its_comments() {
    let app = App::new(Workload::WpComments);
    let reply = app.client().send(&read(5)).unwrap();
    assert!(
        (10_000..14_000).contains(&reply.body.len()),
        "a post is about 10 KB, not {}",
        reply.body.len()
    );

    let added: Added = app.ok(&comment(5, "first!"));
    let before: Post = app.ok(&read(5));
    assert_eq!(
        (before.comments.len(), before.post_status.as_str()),
        (11, "publish")
    );
    let newest = before
        .comments
        .iter()
        .find(|comment| comment.id == added.comment)
        .unwrap();
    assert_eq!(newest.comment_content, "first!");
    assert_eq!(newest.comment_date_gmt, "2020-02-29T12:00:00.000000Z");

    let gone: Moved = app.ok(&trash(5));
    assert!(gone.moved && gone.comments == 11);
    assert!(!app.ok::<Moved>(&trash(5)).moved, "it is there already");
    let during: Post = app.ok(&read(5));
    assert_eq!(
        (during.comments.len(), during.post_status.as_str()),
        (0, "trash")
    );

    let back: Moved = app.ok(&untrash(5));
    assert!(back.moved && back.comments == 11);
    assert!(!app.ok::<Moved>(&untrash(5)).moved, "it is back already");
    let after: Post = app.ok(&read(5));
    assert_eq!(
        serde_json::to_value(&after).unwrap(),
        serde_json::to_value(&before).unwrap()
    );

    for call in [read(999), comment(999, "?"), trash(999)] {
        assert_eq!(app.send(&call).0, 404, "{} {}", call.method, call.path);
    }
    assert_eq!(app.violations(), [""; 0]);
}

#[test]
fn a_comment_without_a_date_gets_the_transactions() {
    let app = App::new(Workload::WpComments);
    let (status, _) = app.post(
        "/posts/5/comments",
        &json!({"comment_author": "Ada", "comment_content": "now"}),
    );
    assert_eq!(status, 201);
    let age = "SELECT now() - max(comment_date) BETWEEN '0' AND '5 min' FROM wp_comments";
    assert_eq!(app.session().value(age), "t");
}

/// Adds a comment after the post's comments were backed up and before they are moved.
fn comment_while_trashing(app: &App) -> [(u16, Value); 2] {
    let gate = app.session();
    gate.forbid_writes("wp_postmeta");
    thread::scope(|scope| {
        let trashing = scope.spawn(|| app.send(&trash(5)));
        gate.await_writers("wp_postmeta", 1);
        let commented = app.send(&comment(5, "in between"));
        gate.run("COMMIT");
        [commented, trashing.join().unwrap()]
    })
}

#[test]
fn a_comment_added_while_its_post_is_trashed_is_lost_wp_11073() {
    let app = App::new(Workload::WpComments);
    let [(commented, added), (trashed, moved)] = comment_while_trashing(&app);
    assert_eq!((commented, trashed), (201, 200));
    assert_eq!(moved["comments"], 11, "one more than was backed up");

    assert_eq!(app.ok::<Moved>(&untrash(5)).comments, 10);
    assert_eq!(app.ok::<Post>(&read(5)).comments.len(), 10);
    assert_eq!(
        app.violations(),
        [format!(
            "comment {} of post 5 was not restored with it",
            added["comment_ID"]
        )]
    );
}

#[test]
fn checking_for_the_trash_refuses_later_comments_but_not_concurrent_ones() {
    let app = App::with(Workload::WpComments, Variant::Checked, |_| {});
    let [(commented, _), (trashed, _)] = comment_while_trashing(&app);
    assert_eq!(
        (commented, trashed),
        (201, 200),
        "neither sees the other under snapshot isolation"
    );

    let (status, refusal) = app.send(&comment(5, "too late"));
    assert_eq!(
        (status, &refusal["error"]),
        (403, &json!("comment_on_trash"))
    );
    app.ok::<Moved>(&untrash(5));
    assert_eq!(app.violations().len(), 1);

    let original = App::new(Workload::WpComments);
    original.ok::<Moved>(&trash(5));
    assert_eq!(original.send(&comment(5, "why not")).0, 201);
}

#[test]
fn checking_for_the_trash_is_right_under_serializable() {
    let app = App::with(Workload::WpComments, Variant::Checked, |options| {
        options.isolation = Isolation::Serializable
    });
    let [(commented, _), (trashed, loser)] = comment_while_trashing(&app);
    assert_eq!((commented, trashed), (201, 409));
    assert_eq!(loser["error"], "serialization_failure");
    app.ok::<Moved>(&trash(5));
    app.ok::<Moved>(&untrash(5));
    assert_eq!(app.ok::<Post>(&read(5)).comments.len(), 11);
    assert_eq!(app.violations(), [""; 0]);
}

#[test]
fn the_driver_races_until_a_comment_is_lost_wp_11073() {
    let app = App::new(Workload::WpComments);
    let found = race::race(Workload::WpComments, &race_options(&app)).unwrap();
    let Struck::CommentLost(lost) = found.struck else {
        panic!("another bug struck: {}", found.struck)
    };
    // A post that went to the trash again since has taken the comment along.
    let fate = format!(
        r#"SELECT comment_approved FROM wp_comments WHERE "comment_ID" = {} AND "comment_post_ID" = {}"#,
        lost.comment, lost.post
    );
    assert_eq!(app.session().value(&fate), "post-trashed");
}

#[test]
fn the_driver_provokes_wp_11073() {
    let app = App::new(Workload::WpComments);
    let struck = (0..50).any(|_| {
        mix(&app, "add-comment=2,trash-post=1,untrash-post=1", 400);
        app.violations()
            .iter()
            .any(|violation| violation.contains("was not restored"))
    });
    assert!(struck, "no comment was lost in 20000 requests");
}

#[test]
fn both_fixes_run_in_one_service() {
    let app = App::with(Workload::Wordpress, Variant::Fixed, |_| {});
    let answers = race(&app, "wp_options", &add_option("theme", "a"));
    assert_eq!(answers.map(|(status, _)| status), [201, 201]);
    app.ok::<Moved>(&trash(5));
    assert_eq!(app.send(&comment(5, "too late")).0, 403);
}

#[test]
fn both_wordpress_workloads_run_in_one_service() {
    let app = App::with(Workload::Wordpress, Variant::UpsertRetry, |options| {
        options.retries_max = 20
    });
    let scale = Scale::new(SMALL).unwrap();
    let requests = Requests::new(Workload::Wordpress, scale, 1, None).unwrap();
    let report = drive(
        requests,
        &DriveOptions::new(app.target.clone(), Limit::requests(1_000)),
    )
    .unwrap();
    assert_eq!(report.requests, 1_000);
    assert_eq!(report.outcome("ok"), 1_000, "{:?}", report.outcomes);
    assert!(
        report.operations.contains_key("read-post") && report.operations.contains_key("get-option")
    );
}
