//! Followers: copies of a program that replay what it does while it does it, and go on in its place
//! when it is killed.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use hindcast_tests::exec::outcome::run;
use hindcast_tests::exec::{Outcome, Program, Scene, programs, strays};
use hindcast_tests::{Process, wait_for};

use crate::checked_clients::{Client, Clients, OfLighttpd, OfMemcached, OfRedis, connected};
use crate::exec_servers::{Cache, lighttpd, memcached, redis};

/// The process that holds the descriptors of the program that leads.
const HOLDER: &str = "hindcast-table";

/// The processes that run the program. One that has handed descriptors over may take a while to
/// end where processors are busy, beside the next that holds them.
fn programs(server: &Process) -> Vec<u32> {
    let mut programs = strays::family(server.pid());
    programs.retain(|pid| *pid != server.pid() && !strays::is_named(*pid, HOLDER));
    programs
}

/// The program that a followed recording began with and all that follow it, in the order in which
/// they were started.
fn leader_and_followers<const COUNT: usize>(server: &Process) -> [u32; COUNT] {
    let mut all = wait_for(
        "the program, its followers and who holds descriptors",
        || {
            strays::named(server.pid(), HOLDER)?;
            <[u32; COUNT]>::try_from(programs(server)).ok()
        },
    );
    all.sort_unstable();
    all
}

fn start(scene: &Scene, program: &Program, port: u16) -> Process {
    let program = program.clone().options(["--follow", "1"]);
    let mut server = scene.start_recording(&program);
    server.wait_until_it_listens(port);
    server
}

fn here(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn kill(pid: u32) {
    run(Command::new("kill").args(["-KILL", &pid.to_string()]));
}

/// Kills the program under load, as often as `rounds` says, each time after other work. A thread
/// that gets no processor for a second costs the recording, not the program: not more than one of
/// five.
fn campaign<C: Client>(rounds: u64, make: impl Fn(u64) -> (Scene, Program, u16)) {
    let mut unrecorded = 0;
    for round in 0..rounds {
        let (scene, program, port) = make(round);
        let server = start(&scene, &program, port);
        let [leader, follower] = leader_and_followers(&server);
        let clients = Clients::start::<C>(here(port), || ());
        clients.wait_for_more(100 + round * 97);
        kill(leader);
        clients.wait_for_more(300);
        clients.end();
        run(Command::new("kill").args(["-TERM", &follower.to_string()]));
        let recorded = Outcome::of_end(server);
        recorded.assert_said(&["ended by SIGKILL", "goes on in its place"]);
        if recorded.said.contains("It is recorded from there on.") {
            scene.replay().assert_code(recorded.code());
        } else {
            unrecorded += 1;
        }
    }
    assert!(unrecorded <= rounds / 5, "{unrecorded} of {rounds}");
}

/// Kills the program under load, then each process that has gone on in its place, `times` in all:
/// each is survived by a follower that began after the one before. The recording is of all of them.
fn kill_one_after_the_other<C: Client>(times: u64, (scene, program, port): (Scene, Program, u16)) {
    let server = start(&scene, &program, port);
    let [mut leader, mut follower] = leader_and_followers(&server);
    let clients = Clients::start::<C>(here(port), || ());
    for round in 0..times {
        clients.wait_for_more(100 + round * 97);
        kill(leader);
        clients.wait_for_more(300);
        leader = follower;
        follower = wait_for("a new follower", || follower_of(&server, leader));
    }
    clients.end();
    run(Command::new("kill").args(["-TERM", &leader.to_string()]));
    let recorded = Outcome::of_end(server);
    let said = &recorded.said;
    assert_eq!(
        said.matches("It is recorded from there on.").count() as u64,
        times,
        "{said}"
    );
    let replayed = scene.replay();
    replayed.assert_code(recorded.code());
}

/// The one process beside `leader` that runs the program.
fn follower_of(server: &Process, leader: u32) -> Option<u32> {
    strays::named(server.pid(), HOLDER)?;
    let mut programs = programs(server);
    programs.retain(|pid| *pid != leader);
    match programs[..] {
        [follower] => Some(follower),
        _ => None,
    }
}

#[test]
fn redis_is_killed_three_times_and_its_recording_is_whole() {
    let redis = redis(Scene::new("follow-on-redis"), &[]);
    kill_one_after_the_other::<OfRedis>(3, redis);
}

#[test]
fn memcached_is_killed_three_times_and_its_recording_is_whole() {
    let memcached = memcached(Scene::new("follow-on-memcached"), &[]);
    kill_one_after_the_other::<OfMemcached>(3, memcached);
}

#[test]
fn lighttpd_is_killed_three_times_and_its_recording_is_whole() {
    kill_one_after_the_other::<OfLighttpd>(3, kept_alive("follow-on-lighttpd"));
}

/// Of two followers one goes on, and the other follows that one at once.
#[test]
fn the_follower_that_is_left_survives_the_next_kill() {
    let (scene, program, port) = memcached(Scene::new("follow-two"), &[]);
    let program = program.options(["--follow", "2"]);
    let mut server = scene.start_recording(&program);
    server.wait_until_it_listens(port);
    let [mut leader, _, _] = leader_and_followers(&server);
    let clients = Clients::start::<OfMemcached>(here(port), || ());
    for round in 0..2 {
        clients.wait_for_more(200);
        kill(leader);
        leader = wait_for("one that goes on", || went_on(&server).nth(round));
    }
    clients.wait_for_more(200);
    clients.end();
    run(Command::new("kill").args(["-TERM", &leader.to_string()]));
    let recorded = Outcome::of_end(server);
    recorded.assert_said(&["follows it, and follower 3 begins", "and follower 4 begins"]);
    scene.replay().assert_code(recorded.code());
}

/// The followers that were said to go on.
fn went_on(server: &Process) -> impl Iterator<Item = u32> {
    let said = server.stderr();
    let numbers: Vec<_> = said
        .match_indices("(pid ")
        .filter_map(|(at, before)| said[at + before.len()..].split(')').next()?.parse().ok())
        .collect();
    numbers.into_iter()
}

/// It is killed in the middle of its call: whatever comes behind is of the follower.
#[test]
fn the_recording_goes_on_with_what_the_follower_does() {
    let scene = Scene::new("follow-on-shell");
    let program = Program::new("sh")
        .args([
            "-c",
            "echo one; kill -KILL $$ 2> /dev/null; echo two; ls / | wc -l; exit 3",
        ])
        .options(["--follow", "1"]);
    let recorded = scene.record(&program);
    recorded.assert_code(3);
    recorded.assert_said(&["It is recorded from there on. Follower 2 begins"]);
    assert_eq!(recorded.text().matches("two").count(), 1, "{recorded:?}");
    scene.assert_replays(&recorded);
}

#[test]
fn a_follower_whose_log_is_not_kept_is_not_recorded_and_that_is_said() {
    let scene = Scene::new("follow-forgotten");
    let program = Program::new(hindcast_tests::program("hindcast")).args([
        "exec",
        "--follow",
        "1",
        "--",
        "sh",
        "-c",
        "kill -KILL $$ 2> /dev/null; echo two; exit 3",
    ]);
    let ended = scene.run(&program);
    ended.assert_code(3);
    ended.assert_said(&[
        "It is not recorded and has no follower, because what it has replayed was not kept.",
    ]);
}

/// What a thread acquires first after that comes after all that others had acquired before, and so
/// on: the result depends on it. A thread that gets no processor for a second costs the recording,
/// not the program: then once more.
#[test]
fn the_order_of_locks_goes_on_with_what_the_follower_does() {
    const ATTEMPTS: u32 = 5;
    let is_recorded = (0..ATTEMPTS).any(|_| {
        let scene = Scene::new("follow-on-threads");
        let program = Program::new(programs::compiled("follow_threads"))
            .args(["runs", "on"])
            .options(["--follow", "1"]);
        let server = scene.start_recording(&program);
        wait_for("the threads to be at it", || {
            scene.work().join("runs").exists().then_some(())
        });
        let [leader, _] = leader_and_followers(&server);
        kill(leader);
        std::fs::write(scene.work().join("on"), "").expect("the scene's folder is ours");
        let recorded = Outcome::of_end(server);
        recorded.assert_code(0);
        recorded.assert_said(&["goes on in its place"]);
        let is_recorded = recorded.said.contains("It is recorded from there on.");
        if is_recorded {
            scene.assert_replays(&recorded);
        }
        is_recorded
    });
    assert!(is_recorded, "not once of {ATTEMPTS} times");
}

#[test]
fn redis_is_killed_and_no_client_notices() {
    campaign::<OfRedis>(10, |round| {
        redis(Scene::new(&format!("follow-redis-{round}")), &[])
    });
}

#[test]
fn memcached_with_four_threads_is_killed_and_no_client_notices() {
    campaign::<OfMemcached>(10, |round| {
        memcached(Scene::new(&format!("follow-memcached-{round}")), &[])
    });
}

#[test]
fn lighttpd_is_killed_and_no_client_notices() {
    campaign::<OfLighttpd>(10, |round| kept_alive(&format!("follow-lighttpd-{round}")));
}

/// As [`lighttpd`] with connections that last.
fn kept_alive(scene: &str) -> (Scene, Program, u16) {
    let (scene, program, port) = lighttpd(Scene::new(scene));
    let work = scene.work().display().to_string();
    let configuration = format!(
        "server.document-root = \"{work}\"\nserver.port = {port}\nserver.bind = \"127.0.0.1\"\nserver.max-keep-alive-requests = 100000\n"
    );
    (scene.file("lighttpd.conf", configuration), program, port)
}

/// It is what its leader was: not the user that the launcher is.
#[test]
fn a_follower_that_goes_on_is_the_user_that_its_leader_was() {
    let (scene, program, port) = memcached(Scene::new("follow-user"), &["-u", "nobody"]);
    let server = start(&scene, &program, port);
    let [leader, follower] = leader_and_followers(&server);
    let mut cache = Cache::connect(here(port));
    cache.set("key", b"value");
    let user = |pid: u32| {
        std::fs::metadata(format!("/proc/{pid}"))
            .expect("it runs")
            .uid()
    };
    let nobody = user(leader);
    assert_ne!(nobody, 0);
    kill(leader);
    assert_eq!(cache.get("key").as_deref(), Some(&b"value"[..]));
    assert_eq!(user(follower), nobody);
    run(Command::new("kill").args(["-TERM", &follower.to_string()]));
    Outcome::of_end(server).assert_said(&["goes on in its place"]);
}

/// The program ends as it would alone, and so does its follower.
#[test]
fn a_followed_program_ends_as_it_would_and_replays() {
    let scene = Scene::new("follow-end");
    let program = Program::new("sh")
        .args(["-c", "echo one; ls / > /dev/null; echo two; exit 3"])
        .options(["--follow", "2"]);
    let recorded = scene.record(&program);
    recorded.assert_code(3);
    assert_eq!(recorded.text().matches("two").count(), 1, "{recorded:?}");
    assert!(!recorded.text().contains("dropped"), "{recorded:?}");
    scene.assert_replays(&recorded);
}

#[test]
fn a_follower_that_is_killed_is_named_and_the_program_goes_on() {
    let (scene, program, port) = memcached(Scene::new("follow-dropped"), &[]);
    let server = start(&scene, &program, port);
    let [leader, follower] = leader_and_followers(&server);
    let mut cache = Cache::connect(here(port));
    cache.set("key", b"value");
    kill(follower);
    wait_for("the follower to be reaped", || {
        (!strays::family(server.pid()).contains(&follower)).then_some(())
    });
    assert_eq!(cache.get("key").as_deref(), Some(&b"value"[..]));
    run(Command::new("kill").args(["-TERM", &leader.to_string()]));
    let recorded = Outcome::of_end(server);
    recorded.assert_said(&["follower 1 was dropped", "nobody follows it any more"]);
    scene.replay().assert_code(recorded.code());
}

/// What the leader saw and its follower did not is a fault of the leader's alone.
#[test]
fn a_fault_that_does_not_happen_again_is_survived() {
    let scene = Scene::new("follow-fault").file("switch", vec![b'0'; 4096]);
    let program = Program::new(programs::compiled("follow_fault"))
        .args(["port", "switch"])
        .options(["--follow", "1"]);
    let server = scene.start_recording(&program);
    let port = wait_for("the port", || {
        let port = std::fs::read_to_string(scene.work().join("port")).ok()?;
        port.trim().parse::<u16>().ok()
    });
    leader_and_followers::<2>(&server);
    let mut stream = BufReader::new(connected(here(port)));
    let ask = |stream: &mut BufReader<TcpStream>| {
        stream.get_mut().write_all(b"?").expect("it is there");
        let mut line = String::new();
        stream.read_line(&mut line).expect("it answers");
        line.trim().to_owned()
    };
    assert_eq!([ask(&mut stream), ask(&mut stream)], ["1", "2"]);
    let mut switch = std::fs::OpenOptions::new()
        .write(true)
        .open(scene.work().join("switch"))
        .expect("it is there");
    switch.write_all(b"1").expect("it can be written");
    assert_eq!([ask(&mut stream), ask(&mut stream)], ["3", "4"]);
    drop(stream);
    let ended = Outcome::of_end(server);
    ended.assert_said(&["ended by SIGSEGV", "goes on in its place"]);
    assert!(ended.text().contains("4 lines"), "{}", ended.text());
    ended.assert_code(0);
}

/// The same fault in both: the program ends as it would.
#[test]
fn a_fault_that_happens_again_ends_the_program() {
    let scene = Scene::new("follow-same-fault");
    let program = Program::new("sh")
        .args(["-c", "kill -SEGV $$"])
        .options(["--follow", "1"]);
    scene.record(&program).assert_code(139);
}

#[test]
fn what_a_follower_cannot_have_is_refused_at_once() {
    let scene = Scene::new("follow-refused");
    let cached = Program::new("true").options(["--follow", "1", "--optimize", "cache"]);
    let outcome = scene.record(&cached);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(
        said.contains("a follower needs every result at once"),
        "{said}"
    );
    outcome.assert_code(2);
    let many = Program::new("true").options(["--follow", "9"]);
    scene.record(&many).assert_code(2);
}
