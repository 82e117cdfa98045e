//! The checker itself, without Hindcast: what follows soundly passes, what does not is caught.

use hindcast_tests::standby::readers::{Readers, View};
use hindcast_tests::standby::workload::Workload;
use hindcast_tests::standby::{Pair, Proxy, Random, checker};
use hindcast_tests::wait_for;

#[test]
fn a_stock_subscription_passes() {
    let pair = Pair::shared("stock", &checker::schema());
    pair.subscribe();
    pair.wait_for_subscription();
    let workload = Workload::start(&pair.primary_url(), 3, 0, &mut Random::seeded());
    let readers = Readers::start(
        &pair.backup_url(),
        &[View::Statement, View::RepeatableRead],
        false,
    );
    wait_for("readers to see something", || {
        (readers.states() > 100 && workload.transactions() > 1000).then_some(())
    });
    let transactions = workload.stop();
    pair.wait_for_subscription();
    let seen = readers.stop();
    seen.assert_sound();
    pair.assert_equal();
    pair.unsubscribe();
    eprintln!(
        "{transactions} transactions, {} states, {} different",
        seen.states, seen.advances
    );
}

#[test]
fn a_reader_without_a_snapshot_is_caught() {
    let pair = Pair::shared("torn", &checker::schema());
    let workload = Workload::start(&pair.primary_url(), 2, 0, &mut Random::seeded());
    let readers = Readers::start(&pair.primary_url(), &[View::Torn], false);
    wait_for("the reader to be caught", || {
        readers.is_broken().then_some(())
    });
    workload.stop();
    let seen = readers.stop();
    eprintln!("{}", seen.broken[0]);
}

#[test]
fn a_backup_that_loses_changes_of_rows_is_caught() {
    let pair = Pair::shared("lossy", &checker::schema());
    pair.subscribe();
    pair.wait_for_subscription();
    // Every tenth change of an account never happens; the next one of the same account heals it.
    pair.backup(
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN random() < 0.9 THEN NEW END; END $$;
         CREATE TRIGGER skip BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION skip();
         ALTER TABLE account ENABLE ALWAYS TRIGGER skip;",
    );
    let workload = Workload::start(&pair.primary_url(), 2, 0, &mut Random::seeded());
    let readers = Readers::start(&pair.backup_url(), &[View::Statement], false);
    wait_for("the loss to be caught", || {
        readers.is_broken().then_some(())
    });
    workload.stop();
    let seen = readers.stop();
    eprintln!("{}", seen.broken[0]);
    pair.unsubscribe();
}

#[test]
fn a_stock_subscription_passes_on_a_wire_that_is_cut() {
    let mut random = Random::seeded();
    let pair = Pair::shared("stock-cut", &checker::schema());
    let wire = Proxy::to(pair.servers().primary.port());
    // It connects again after five seconds by default.
    pair.backup("ALTER SYSTEM SET wal_retrieve_retry_interval = '100ms'");
    pair.backup("SELECT pg_reload_conf()");
    pair.subscribe_by(wire.port());
    pair.wait_for_subscription();
    let workload = Workload::start(&pair.primary_url(), 2, 0, &mut random);
    let readers = Readers::start(&pair.backup_url(), &[View::RepeatableRead], false);
    for _ in 0..5 {
        let cuts = wire.cuts();
        wire.cut_after(1 + random.below(20_000));
        wait_for("the wire to be cut", || (wire.cuts() > cuts).then_some(()));
    }
    workload.stop();
    pair.wait_for_subscription();
    readers.stop().assert_sound();
    pair.assert_equal();
    pair.unsubscribe();
}
