//! What requests see in caches of a Java process, and which ids they get of what it keeps: the same
//! in a replay in which they come in another order.

use std::time::Duration;

use hindcast_tests::http::Client;
use hindcast_tests::{Process, Stage};

use super::languages::{compile, java_with_threads_of_its_own};

/// What all of these answer by.
const SERVING: &str = "serving/Serving.java";
const FOUND: &str = "com.github.benmanes.caffeine.cache.Found";

/// In the replay a request looks into a cache before the one that filled it originally.
#[test]
fn a_request_sees_in_a_cache_of_caffeine_what_it_saw() {
    let stage = Stage::new("found-java", "");
    compile(&stage, &["Found.java", SERVING]);
    let service = |pause: u32| {
        let (folder, port) = (stage.folder().display(), stage.service_port);
        format!("exec java -cp {folder} {FOUND} {port} {pause}")
    };
    let looks = |ask: &(dyn Fn(&str) -> String + Sync)| {
        for cache in ["bounded", "unbounded"] {
            for way in ["computed", "absent", "future", "present", "computed"] {
                let target = format!("/{cache}/{way}");
                let late = ask(&format!("{target}/late"));
                assert_eq!(ask(&target), late);
                ask(&format!("/{cache}/clear"));
            }
        }
    };
    is_the_same_if_late(&stage, service, looks);
}

/// The same of entities, of those that are copied, and of results of queries.
#[test]
fn a_request_sees_in_the_second_level_cache_of_hibernate_what_it_saw() {
    const FILES: [&str; 8] = [
        SERVING,
        "hibernate/SharedSessionContractImplementor.java",
        "hibernate/SoftLock.java",
        "hibernate/DomainDataRegion.java",
        "hibernate/QueryResultsRegion.java",
        "hibernate/QueryKey.java",
        "hibernate/QueryResultsCacheImpl.java",
        "hibernate/Entities.java",
    ];
    let stage = Stage::new("entities-java", "");
    compile(&stage, &FILES);
    let service = |pause: u32| {
        let (folder, port) = (stage.folder().display(), stage.service_port);
        format!("exec java -cp {folder} org.hibernate.cache.spi.support.Entities {port} {pause}")
    };
    let looks = |ask: &(dyn Fn(&str) -> String + Sync)| {
        for kind in ["locked", "plain", "queries"] {
            for way in ["loaded", "made", "changed", "loaded"] {
                let target = format!("/{kind}/{way}");
                let late = ask(&format!("{target}/late"));
                assert_eq!(ask(&target), late);
                ask(&format!("/{kind}/clear"));
            }
        }
    };
    is_the_same_if_late(&stage, service, looks);
}

/// In the replay another request asks first, and its clock is later.
#[test]
fn a_request_gets_in_java_the_ids_of_the_time_that_it_got() {
    let stage = Stage::new("ids-java", "");
    let files = [
        SERVING,
        "ids/TimeBasedGenerator.java",
        "ids/Snowflake.java",
        "ids/TSID.java",
        "ids/Ids.java",
    ];
    compile(&stage, &files);
    let service = |pause: u32| {
        let (folder, port) = (stage.folder().display(), stage.service_port);
        format!("exec java -cp {folder} ids.Ids {port} {pause}")
    };
    let asks = |ask: &(dyn Fn(&str) -> String + Sync)| {
        for _ in 0..2 {
            std::thread::scope(|scope| {
                let late = scope.spawn(|| ask("/late"));
                std::thread::sleep(Duration::from_millis(100));
                let other = ask("/");
                assert_eq!(other.lines().count(), 2, "{other}");
                assert_ne!(other, late.join().unwrap());
            });
        }
    };
    is_the_same_if_late(&stage, service, asks);
}

/// Likewise of those that a process keeps, and the database is asked for as many.
#[test]
fn a_request_gets_of_eclipselink_the_ids_that_it_got() {
    let stage = Stage::new("ids-eclipselink", "");
    let files = [
        SERVING,
        "eclipselink/AbstractSession.java",
        "eclipselink/Accessor.java",
        "eclipselink/Sequence.java",
        "eclipselink/StandardSequence.java",
        "eclipselink/SequencingManager.java",
    ];
    compile(&stage, &files);
    let service = |pause: u32| {
        let (folder, port) = (stage.folder().display(), stage.service_port);
        let class = "org.eclipse.persistence.internal.sequencing.SequencingManager";
        format!("exec java -cp {folder} {class} {port} {pause}")
    };
    let asks = |ask: &(dyn Fn(&str) -> String + Sync)| {
        let mut asked = 0;
        for _ in 0..3 {
            std::thread::scope(|scope| {
                let late = scope.spawn(|| ask("/late"));
                std::thread::sleep(Duration::from_millis(100));
                let both = [ask("/"), late.join().unwrap()];
                let last = |answer: &String| answer.lines().last()?.parse::<u32>().ok();
                asked += both.iter().filter_map(last).sum::<u32>();
            });
        }
        assert_eq!(asked, 4, "18 ids by five at a time");
    };
    is_the_same_if_late(&stage, service, asks);
}

/// More of them than there are processors wait for what another one puts there.
#[test]
fn threads_that_java_runs_by_itself_wait_for_what_they_saw_in_a_cache() {
    let Some(java) = java_with_threads_of_its_own() else {
        return eprintln!("not tried: no Java here has virtual threads");
    };
    let stage = Stage::new("found-virtual", "");
    compile(&stage, &["Found.java", SERVING]);
    let service = |pause: u32| {
        let (folder, port) = (stage.folder().display(), stage.service_port);
        format!("exec {java} -cp {folder} {FOUND} {port} {pause} virtual")
    };
    let looks = |ask: &(dyn Fn(&str) -> String + Sync)| {
        std::thread::scope(|scope| {
            let late = scope.spawn(|| ask("/bounded/computed/late"));
            std::thread::sleep(Duration::from_millis(50));
            let others = [(); 8].map(|()| scope.spawn(|| ask("/bounded/computed")));
            let others = others.map(|other| other.join().unwrap());
            let late = late.join().unwrap();
            assert!(others.iter().all(|other| *other == late));
        });
    };
    is_the_same_if_late(&stage, service, looks);
}

/// In the replay a request looks into a loop's cache before the one that filled it originally.
#[test]
fn a_request_sees_in_a_loops_cache_of_java_what_it_saw() {
    let stage = Stage::new("cached-java", "");
    compile(
        &stage,
        &["reactor/CoreSubscriber.java", "reactor/Cached.java"],
    );
    let service = |pause: u32| {
        let (folder, port) = (stage.folder().display(), stage.service_port);
        format!("exec java -cp {folder} reactor.core.publisher.Cached {port} {pause}")
    };
    let looks = |ask: &(dyn Fn(&str) -> String + Sync)| {
        for round in 0..3 {
            std::thread::scope(|scope| {
                let late = scope.spawn(|| ask("/late"));
                // It is about to get an answer of the source.
                std::thread::sleep(Duration::from_millis(if round == 1 { 0 } else { 50 }));
                assert_eq!(ask("/"), late.join().unwrap());
            });
            ask("/clear");
        }
    };
    is_the_same_if_late(&stage, service, looks);
}

/// In the replay other objects have been asked for their hashes before.
#[test]
fn sets_of_classes_and_of_constants_come_in_the_order_in_which_they_came() {
    let stage = Stage::new("hashed-java", "");
    compile(&stage, &["Hashed.java", SERVING]);
    let service = |others: u32| {
        let (folder, port) = (stage.folder().display(), stage.service_port);
        format!("exec java -cp {folder} Hashed {port} {others}")
    };
    is_the_same_if_late(&stage, service, |ask| {
        let first = ask("/");
        assert!(
            first.contains("FOUND") && first.contains("Other"),
            "{first}"
        );
        assert_eq!(ask("/"), first);
    });
}

/// What is late in the replay, by so many milliseconds, was not where it was recorded.
fn is_the_same_if_late(
    stage: &Stage,
    service: impl Fn(u32) -> String,
    looks: impl Fn(&(dyn Fn(&str) -> String + Sync)),
) {
    let mut command = stage.hindcast(&["record", "--base", "template", "--trace"]);
    command
        .arg(stage.trace())
        .args(["--", "sh", "-c", &service(0)])
        .env("DATABASE_URL", stage.database_url());
    let mut recorder = Process::start("record", command, stage.folder());
    recorder.wait_until_it_listens(stage.service_port);
    looks(&|target: &str| {
        let mut client = Client::new(format!("127.0.0.1:{}", stage.service_port));
        client.send("GET", target, None).unwrap().text()
    });
    recorder.interrupt().assert_code(0);
    let mut command = stage.hindcast(&["replay", "--trace"]);
    command
        .arg(stage.trace())
        .args(["--app", &service(300)])
        .env("HINDCAST_POSTGRES", stage.database_url());
    let replayed = Process::start("replay", command, stage.folder()).wait();
    let replayed = replayed.assert_code(0).stdout;
    assert!(replayed.contains("faithful"), "{replayed}");
}
