//! Programs as people start them, that lose their machine.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hindcast_tests::network::{End, Network};
use hindcast_tests::wait_for;

use crate::checked_clients::{OfLighttpd, OfMemcached, OfRedis, connected};
use crate::protect::{
    Loss, PORT, Pair, at, backup_at, elsewhere, has_gone_on, program_of, with_pages,
};

/// How often each key was counted up, by what was appended to the file.
fn appended(folder: &Path) -> HashMap<String, u64> {
    let path = folder.join("appendonlydir/appendonly.aof.1.incr.aof");
    let text = std::fs::read_to_string(path).expect("it appends to it");
    let words: Vec<&str> = text.split("\r\n").collect();
    let mut counts = HashMap::new();
    for (at, word) in words.iter().enumerate() {
        if word.eq_ignore_ascii_case("INCR") {
            *counts.entry(words[at + 2].to_owned()).or_default() += 1;
        }
    }
    counts
}

fn count_of(pair: &Pair, key: &str) -> u64 {
    elsewhere(&pair.network, || {
        let mut redis = BufReader::new(connected(at()));
        let asked = format!("GET {key}\r\n");
        redis
            .get_mut()
            .write_all(asked.as_bytes())
            .expect("it is there");
        let mut lines = redis.lines().map(|line| line.expect("it answers"));
        lines
            .nth(1)
            .and_then(|line| line.parse().ok())
            .expect("a number")
    })
}

/// What the primary has appended to a file and the backup's copy does not know of is not done
/// twice: the file says what clients were told.
#[test]
fn what_was_appended_beyond_the_log_is_not_there_twice() {
    if !Network::is_possible() {
        return;
    }
    let server = [
        &crate::protect::REDIS[..],
        &["--appendonly", "yes", "--appendfsync", "no"],
    ]
    .concat();
    for _ in 0..3 {
        let mut pair = Pair::start("protect-append", &server);
        let clients = pair.clients::<OfRedis>();
        clients.wait_for_more(2000);
        pair.lose(Loss::Launcher);
        clients.wait_for_more(300);
        clients.end();
        pair.wait_until_backup_says("goes on here after");
        has_gone_on(&pair.backup);
        let known = (0..6).map(|number| format!("count-{number}"));
        let told: HashMap<String, u64> = known
            .map(|key| (key.clone(), count_of(&pair, &key)))
            .collect();
        assert_eq!(appended(pair.folder.path()), told);
    }
}

/// A thread for each connection, and a pair of sockets as event loops have one. Answers each line
/// with how often it came.
const THREADS: &str = "
import collections, socket, sys, threading
ends = socket.socketpair()
counts, lock = collections.Counter(), threading.Lock()
def serve(connection):
    for line in connection.makefile('rb'):
        with lock:
            counts[line] += 1
            answer = b'%d\\n' % counts[line]
        connection.sendall(answer)
    ends[0].send(b'.')
def read():
    while True:
        ends[1].recv(1)
threading.Thread(target=read, daemon=True).start()
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
";

/// Asks on one connection as long as it lives.
struct Counting(BufReader<TcpStream>, u64);

impl Counting {
    fn ask(&mut self, name: &str, times: u64) {
        for _ in 0..times {
            self.1 += 1;
            let asked = format!("{name}\n");
            self.0
                .get_mut()
                .write_all(asked.as_bytes())
                .expect("it is there");
            let mut answer = String::new();
            self.0.read_line(&mut answer).expect("it answers");
            assert_eq!(answer.trim(), self.1.to_string());
        }
    }
}

/// Threads that have ended, and pairs of sockets, are no obstacle to a checkpoint, nor to a backup
/// that begins at it.
#[test]
fn a_checkpoint_of_a_program_with_a_thread_for_each_connection_is_begun_at() {
    if !Network::is_possible() {
        return;
    }
    let port = PORT.to_string();
    let server = ["/usr/bin/python3", "-c", THREADS, &port];
    let options = ["--detect", "3s", "--checkpoint-every", "0.2s"];
    let mut pair = Pair::backed("protect-ended", &options, &server);
    let connect = || elsewhere(&pair.network, || BufReader::new(connected(at())));
    // Connections that end, with their threads.
    for number in 0..5 {
        Counting(connect(), 0).ask(&format!("short-{number}"), 3);
    }
    let mut client = Counting(connect(), 0);
    client.ask("kept", 50);
    std::thread::sleep(Duration::from_secs(2));
    client.ask("kept", 50);
    pair.lose(Loss::Launcher);
    client.ask("kept", 50);
    pair.wait_until_backup_says("goes on here after");
    let place = ("again", pair.folder.path());
    let again = backup_at(&pair.network, End::Primary, place, &options);
    pair.attach("10.9.0.3:7400", "10.9.0.2:7400");
    let said = again.stderr();
    assert!(said.contains("begins at a checkpoint"), "{said}");
    client.ask("kept", 50);
    // SAFETY: a process of this test's.
    unsafe { libc::kill(program_of(&pair.backup), libc::SIGKILL) };
    client.ask("kept", 50);
    has_gone_on(&again);
    for end in [&pair.backup, &again] {
        let said = end.stderr();
        assert!(!said.contains("no checkpoints are taken"), "{said}");
    }
}

/// A program that nobody asks anything writes nothing to its log: the backup is heard all the same.
#[test]
fn a_quiet_program_stays_protected() {
    if !Network::is_possible() {
        return;
    }
    let port = PORT.to_string();
    let server = ["/usr/bin/python3", "-c", THREADS, &port];
    let options = ["--alone-after", "3s"];
    let mut pair = Pair::with("protect-quiet", &options, &server, |_| ());
    let stream = elsewhere(&pair.network, || connected(at()));
    let mut client = Counting(BufReader::new(stream), 0);
    client.ask("kept", 10);
    std::thread::sleep(Duration::from_secs(4));
    client.ask("kept", 10);
    let said = pair.primary.stderr();
    assert!(!said.contains("not heard"), "{said}");
    pair.lose(Loss::Program);
    client.ask("kept", 10);
    pair.wait_until_backup_says("goes on here after");
    has_gone_on(&pair.backup);
}

/// The process of this name that this one has made, or one that it has.
fn of_name(process: i32, name: &str) -> Option<i32> {
    let comm = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    if comm.trim_end() == name {
        return Some(process);
    }
    let children = format!("/proc/{process}/task/{process}/children");
    let children = std::fs::read_to_string(children).ok()?;
    let mut children = children.split_whitespace();
    children.find_map(|child| of_name(child.parse().ok()?, name))
}

/// A copy that has a fifth of a processor: clients wait for it while all is well, and not when the
/// primary is lost.
#[test]
fn a_copy_that_is_slow_is_waited_for() {
    if !Network::is_possible() {
        return;
    }
    let mut pair = Pair::start("protect-slow", &crate::protect::MEMCACHED);
    let clients = pair.clients::<OfMemcached>();
    clients.wait_for_more(100);
    let copy = of_name(pair.backup.pid() as i32, "memcached").expect("there is a copy");
    let slows = AtomicBool::new(true);
    let took = std::thread::scope(|scope| {
        scope.spawn(|| {
            while slows.load(Ordering::Relaxed) {
                for (signal, time) in [(libc::SIGSTOP, 16), (libc::SIGCONT, 4)] {
                    // SAFETY: a process of this test's.
                    unsafe { libc::kill(copy, signal) };
                    std::thread::sleep(Duration::from_millis(time));
                }
            }
        });
        std::thread::sleep(Duration::from_secs(5));
        pair.lose(Loss::Program);
        pair.wait_until_backup_says("goes on here after");
        slows.store(false, Ordering::Relaxed);
        let said = pair.backup.stderr();
        let (_, rest) = said.split_once("goes on here after ").expect("it does");
        let took = rest.split(' ').next().and_then(|took| took.parse().ok());
        took.unwrap_or(f64::MAX)
    });
    clients.wait_for_more(100);
    clients.end();
    assert!(took < 2000.0, "it was {took} ms behind");
}

/// As distributions configure servers: the process that was started ends at once. The service is
/// there as long as its processes are, and it is said that nothing protects it, and what to do.
#[test]
fn a_program_that_goes_into_the_background_runs_on_unprotected_and_that_is_said() {
    if !Network::is_possible() {
        return;
    }
    let server = ["lighttpd", "-f", "lighttpd.conf"];
    let mut pair = Pair::prepared("protect-background", &server, with_pages);
    wait_for("a word about it", || {
        let said = pair.primary.stderr();
        said.contains("it has gone into the background")
            .then_some(())
    });
    let said = pair.primary.stderr();
    assert!(said.contains("stays in the foreground"), "{said}");
    assert!(!said.contains("the backup has ended"), "{said}");
    let clients = pair.clients::<OfLighttpd>();
    clients.wait_for_more(200);
    clients.end();
    assert!(pair.primary.is_running());
    // SAFETY: a process of this test's.
    unsafe { libc::kill(pair.primary.pid() as i32, libc::SIGTERM) };
    wait_for("the end of all", || {
        (!pair.primary.is_running()).then_some(())
    });
}

/// Its child writes down what the parent leaves in memory that both have, which no log tells of.
/// Answers each line with how often one came; one that asks for it, with the child's end.
const RACING_CHILD: &str = "
import mmap, os, socket, sys, time
shared = mmap.mmap(-1, 4096)
child = os.fork()
if child == 0:
    with open('seen', 'wb', 0) as file:
        while True:
            file.write(shared[:8])
            time.sleep(0.002)
listener = socket.create_server(('0.0.0.0', int(sys.argv[1])))
count = 0
while True:
    connection = listener.accept()[0]
    for line in connection.makefile('rb'):
        if line == b'child\\n':
            connection.sendall(b'%d\\n' % os.waitpid(child, os.WNOHANG)[1])
            continue
        count += 1
        shared[:8] = b'%08d' % count
        connection.sendall(b'%d\\n' % count)
";

/// A child to which no client talks is no copy any more: the rest is, and goes on; for the program
/// the child was killed.
#[test]
fn a_child_that_races_with_its_parent_is_left_out_alone() {
    if !Network::is_possible() {
        return;
    }
    let port = PORT.to_string();
    let server = ["/usr/bin/python3", "-c", RACING_CHILD, &port];
    let mut pair = Pair::start("protect-racing", &server);
    let stream = elsewhere(&pair.network, || connected(at()));
    let mut client = Counting(BufReader::new(stream), 0);
    client.ask("count", 500);
    let word = "has done something else";
    wait_for("a word about the child", || {
        let said = [pair.primary.stderr(), pair.backup.stderr()];
        said.iter().all(|said| said.contains(word)).then_some(())
    });
    client.ask("count", 50);
    pair.lose(Loss::Program);
    client.ask("count", 50);
    pair.wait_until_backup_says("goes on here after");
    has_gone_on(&pair.backup);
    client.1 = libc::SIGKILL as u64 - 1;
    client.ask("child", 1);
}
