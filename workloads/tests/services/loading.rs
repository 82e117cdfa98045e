use hindcast_workloads::load::{LoadError, LoadOptions, load};
use hindcast_workloads::{Variant, Workload};

use crate::common::{Session, database, load_options, runtime};

fn counts(session: &Session, tables: &[&str]) -> Vec<i64> {
    tables
        .iter()
        .map(|table| {
            session
                .value(&format!("SELECT count(*) FROM {table}"))
                .parse()
                .unwrap()
        })
        .collect()
}

#[test]
fn the_small_workloads_are_loaded_at_the_papers_sizes() {
    let (_, url) = database();
    for workload in [Workload::Moodle, Workload::Wordpress] {
        runtime()
            .block_on(load(workload, &load_options(&url, 1.0)))
            .unwrap();
    }
    let session = Session::new(&url);
    let tables = [
        "mdl_forum",
        "mdl_forum_subscriptions",
        "mdl_user",
        "wp_options",
        "wp_posts",
        "wp_comments",
    ];
    assert_eq!(
        counts(&session, &tables),
        [1_000, 1_000, 5_000, 10_000, 2_000, 20_000]
    );
    let one_each =
        "SELECT count(DISTINCT forum) = 1000 AND count(*) = 1000 FROM mdl_forum_subscriptions";
    assert_eq!(session.value(one_each), "t");
    let sizes =
        "SELECT bool_and(length(option_name) = 10 AND length(option_value) = 100) FROM wp_options";
    assert_eq!(session.value(sizes), "t");
    let ten_each = r#"SELECT bool_and(n = 10 AND bytes = 10240) FROM (SELECT count(*) AS n, sum(length(comment_content)) AS bytes FROM wp_comments GROUP BY "comment_post_ID") c"#;
    assert_eq!(session.value(ten_each), "t");
    // Ids go on where the data ends.
    assert_eq!(
        session.value(r#"SELECT nextval('"wp_comments_comment_ID_seq"')"#),
        "20001"
    );
}

#[test]
fn a_small_tpcc_has_the_proportions_of_the_specification() {
    let (_, url) = database();
    runtime()
        .block_on(load(Workload::Tpcc, &load_options(&url, 0.005)))
        .unwrap();
    let session = Session::new(&url);
    let tables = [
        "warehouse",
        "district",
        "item",
        "stock",
        "customer",
        "history",
        "orders",
        "new_order",
    ];
    assert_eq!(
        counts(&session, &tables),
        [1, 10, 12_000, 12_000, 3_600, 3_600, 3_600, 1_080]
    );
    let lines = "SELECT (SELECT count(*) FROM order_line) = (SELECT sum(o_ol_cnt) FROM orders)";
    assert_eq!(session.value(lines), "t");
    let share = "SELECT avg((i_data LIKE '%ORIGINAL%')::int) BETWEEN 0.08 AND 0.12 FROM item";
    assert_eq!(session.value(share), "t");
    let each_ordered = "SELECT count(DISTINCT (o_d_id, o_c_id)) FROM orders";
    assert_eq!(session.value(each_ordered), "3600");
}

#[test]
fn the_same_seed_loads_the_same_rows_and_another_does_not() {
    let digest = |seed| {
        let (_, url) = database();
        for workload in [Workload::WpComments, Workload::Tpcc] {
            runtime()
                .block_on(load(
                    workload,
                    &LoadOptions {
                        seed,
                        ..load_options(&url, 0.005)
                    },
                ))
                .unwrap();
        }
        // Columns that default to the time of loading are left out.
        Session::new(&url).value(
            r#"SELECT (SELECT sum(hashtextextended(concat("comment_ID", comment_content, comment_date), 0)) FROM wp_comments)
                   || ' ' || (SELECT sum(hashtextextended(c::text, 0)) FROM customer c)
                   || ' ' || (SELECT sum(hashtextextended(l::text, 0)) FROM order_line l)"#,
        )
    };
    let first = digest(5);
    assert_eq!(first, digest(5));
    assert_ne!(first, digest(6));
}

#[test]
fn tables_that_are_there_are_kept_unless_they_are_to_be_replaced() {
    let (_, url) = database();
    let options = load_options(&url, 0.05);
    runtime()
        .block_on(load(Workload::Moodle, &options))
        .unwrap();
    let error = runtime()
        .block_on(load(Workload::Moodle, &options))
        .unwrap_err();
    assert!(matches!(error, LoadError::Exists("mdl_user")), "{error}");

    let session = Session::new(&url);
    session.run("DELETE FROM mdl_forum");
    runtime()
        .block_on(load(
            Workload::Moodle,
            &LoadOptions {
                replace: true,
                ..options
            },
        ))
        .unwrap();
    assert_eq!(counts(&session, &["mdl_forum"]), [50]);
}

#[test]
fn a_failed_load_leaves_nothing_behind() {
    let (_, url) = database();
    let session = Session::new(&url);
    // In the way of the last of the three.
    session.run("CREATE TABLE wp_postmeta ()");
    let error = runtime()
        .block_on(load(Workload::WpComments, &load_options(&url, 0.01)))
        .unwrap_err();
    assert!(matches!(error, LoadError::Exists("wp_postmeta")), "{error}");
    assert_eq!(session.value("SELECT to_regclass('wp_posts') IS NULL"), "t");

    let refused = LoadOptions {
        variant: Variant::Checked,
        ..load_options(&url, 0.01)
    };
    let error = runtime()
        .block_on(load(Workload::Moodle, &refused))
        .unwrap_err();
    assert!(matches!(error, LoadError::Variant(_)), "{error}");
}
