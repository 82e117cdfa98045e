//! Programs of several processes that lose their machine: all of them go on.

use std::path::Path;
use std::process::Command;

use hindcast_tests::network::{End, Network};
use hindcast_tests::wait_for;

use crate::checked_clients::{OfLighttpd, OfRedis};
use crate::exec_servers::Cache;
use crate::protect::{Loss, Pair, at, backup_at, elsewhere, has_gone_on, program_of, with_pages};

/// The processes that this one has made, and their own.
fn children(process: i32) -> Vec<i32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let numbers = text.split_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

fn kill(process: i32) {
    // SAFETY: a process of this test's.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

fn with_workers(folder: &Path) {
    with_pages(folder);
    let path = folder.join("lighttpd.conf");
    let text = std::fs::read_to_string(&path).expect("it was written");
    std::fs::write(path, text + "server.max-worker = 2\n").expect("a file");
}

/// A master whose workers have the connections: they are kept, whatever is lost, also by the next
/// backup.
#[test]
fn a_master_and_its_workers_lose_their_machine_and_no_client_notices() {
    if !Network::is_possible() {
        return;
    }
    let server = ["lighttpd", "-D", "-f", "lighttpd.conf"];
    for loss in [Loss::Program, Loss::Machine] {
        let mut pair = Pair::prepared("protect-workers", &server, with_workers);
        let master = pair.program();
        wait_for("workers", || (children(master).len() == 2).then_some(()));
        // The master makes another one; its copy hears of the end from the master's log alone.
        let killed = children(master)[0];
        kill(killed);
        wait_for("another worker", || {
            let now = children(master);
            (now.len() == 2 && !now.contains(&killed)).then_some(())
        });
        let clients = pair.clients::<OfLighttpd>();
        clients.wait_for_more(100);
        pair.lose(loss);
        clients.wait_for_more(300);
        pair.wait_until_backup_says("goes on here after");
        has_gone_on(&pair.backup);
        assert!(pair.backup.stderr().contains("Give it a new backup"));
        // Once more, by the machine on which it was first.
        if let Loss::Program = loss {
            wait_for("the primary to end", || {
                (!pair.primary.is_running()).then_some(())
            });
            let options = ["--detect", "3s"];
            let place = ("again", pair.folder.path());
            let again = backup_at(&pair.network, End::Primary, place, &options);
            pair.attach("10.9.0.3:7400", "10.9.0.2:7400");
            clients.wait_for_more(100);
            kill(program_of(&pair.backup));
            clients.wait_for_more(300);
            clients.end();
            has_gone_on(&again);
        } else {
            clients.end();
        }
    }
}

const KEYS: usize = 1500;

/// It takes a millisecond for each key that it saves.
const REDIS_THAT_SAVES: [&str; 11] = [
    "redis-server",
    "--port",
    "7070",
    "--bind",
    "0.0.0.0",
    "--protected-mode",
    "no",
    "--save",
    "",
    "--rdb-key-save-delay",
    "1000",
];

fn redis(pair: &Pair, what: &str) -> String {
    elsewhere(&pair.network, || {
        let mut redis = Cache::connect(at());
        redis.say(format!("{what}\r\n").as_bytes());
        let mut answer = redis.line();
        if let Some(length) = answer.strip_prefix('$').filter(|length| *length != "-1") {
            let mut left: usize = length.parse().expect("a length");
            answer.clear();
            while left > 0 {
                let line = redis.line();
                left = left.saturating_sub(line.len() + 2);
                answer += &line;
                answer.push('\n');
            }
        }
        answer
    })
}

fn says(pair: &Pair, fact: &str) {
    wait_for(fact, || {
        redis(pair, "INFO persistence").contains(fact).then_some(())
    });
}

/// Fills it, and loses it while it saves.
fn lost_while_it_saves(pair: &Pair, folder: &Path) {
    let fill = format!("for i=1,{KEYS} do redis.call('set','key'..i,'value') end");
    redis(pair, &format!("EVAL \"{fill}\" 0"));
    assert!(redis(pair, "BGSAVE").contains("started"));
    says(pair, "rdb_bgsave_in_progress:1");
    // Until a part of it is on the disk.
    wait_for("a part of what is saved", || {
        let mut files = std::fs::read_dir(folder).expect("a folder").flatten();
        let is_written = |file: std::fs::DirEntry| {
            let is_new = file.file_name().to_string_lossy().starts_with("temp-");
            is_new && file.metadata().is_ok_and(|found| found.len() > 0)
        };
        files.any(is_written).then_some(())
    });
    pair.lose(Loss::Program);
}

#[test]
fn a_save_that_is_under_way_ends_on_the_other_machine() {
    if !Network::is_possible() {
        return;
    }
    let mut pair = Pair::start("protect-save", &REDIS_THAT_SAVES);
    let clients = pair.clients::<OfRedis>();
    clients.wait_for_more(50);
    lost_while_it_saves(&pair, pair.folder.path());
    pair.wait_until_backup_says("goes on here after");
    clients.wait_for_more(300);
    clients.end();
    says(&pair, "rdb_bgsave_in_progress:0");
    let said = redis(&pair, "INFO persistence");
    assert!(said.contains("rdb_last_bgsave_status:ok"), "{said}");
    assert!(said.contains("rdb_saves:1"), "{said}");
    let mut check = Command::new("redis-check-rdb");
    let checked = check.arg(pair.folder.path().join("dump.rdb")).output();
    let checked = String::from_utf8_lossy(&checked.expect("it runs").stdout).into_owned();
    assert!(checked.contains("RDB looks OK"), "{checked}");
    let keys = checked.lines().find_map(|line| {
        let words = line.strip_prefix("[info] ")?.strip_suffix(" keys read")?;
        words.parse::<usize>().ok()
    });
    assert!(keys.is_some_and(|keys| keys >= KEYS), "{checked}");
    has_gone_on(&pair.backup);
}

/// What was saved before the takeover is not on a disk of the backup's own: no half of a file is
/// taken for a whole one, and the next save is one.
#[test]
fn a_file_that_is_on_the_lost_machine_alone_is_not_written_on() {
    if !Network::is_possible() {
        return;
    }
    let mut pair = Pair::prepared("protect-hole", &["redis-server", "redis.conf"], |folder| {
        let data = folder.join("data");
        std::fs::create_dir(&data).expect("a folder");
        let words = REDIS_THAT_SAVES[1..].chunks(2);
        let lines = words.map(|words| match words[1] {
            "" => format!("{} \"\"\n", &words[0][2..]),
            value => format!("{} {value}\n", &words[0][2..]),
        });
        let text = lines.collect::<String>() + &format!("dir {}\n", data.display());
        std::fs::write(folder.join("redis.conf"), text).expect("a file");
    });
    lost_while_it_saves(&pair, &pair.folder.path().join("data"));
    pair.wait_until_backup_says("goes on here after");
    assert!(
        pair.backup
            .stderr()
            .contains("1 open file is not on this machine"),
        "{}",
        pair.backup.stderr()
    );
    says(&pair, "rdb_bgsave_in_progress:0");
    says(&pair, "rdb_last_bgsave_status:err");
    assert!(redis(&pair, "BGSAVE").contains("started"));
    says(&pair, "rdb_last_bgsave_status:ok");
    assert!(redis(&pair, "DBSIZE").contains(&KEYS.to_string()));
}

/// A child that cannot be recorded is missing after a takeover, and that is said when it begins.
#[test]
fn a_child_that_is_not_protected_is_named() {
    if !Network::is_possible() {
        return;
    }
    let script = "ldconfig -p > /dev/null; exec redis-server --port 7070 --bind 0.0.0.0 --protected-mode no --save ''";
    let mut pair = Pair::start("protect-static", &["sh", "-c", script]);
    let primary = &pair.primary;
    wait_for("a word about it", || {
        let said = primary.stderr();
        (said.contains("has started is not protected") && said.contains("ldconfig")).then_some(())
    });
    let clients = pair.clients::<OfRedis>();
    clients.wait_for_more(100);
    pair.lose(Loss::Program);
    clients.wait_for_more(100);
    clients.end();
    pair.wait_until_backup_says("goes on here after");
    has_gone_on(&pair.backup);
}
