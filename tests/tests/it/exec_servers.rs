//! Servers under load: recorded while clients come and go, ended by a signal, and replayed without
//! anybody to talk to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::Command;
use std::time::Duration;

use hindcast_tests::exec::outcome::run;
use hindcast_tests::exec::{Outcome, Program, Recorded, Scene, programs, strays};
use hindcast_tests::stage::free_port;
use hindcast_tests::{Process, wait_for};

/// What 64 KB files hold.
pub fn page(number: usize) -> Vec<u8> {
    (0..65536)
        .map(|at: usize| b'a' + ((at * 7 + number * 13) % 26) as u8)
        .collect()
}

fn with_pages(mut scene: Scene) -> Scene {
    for number in 0..8 {
        scene = scene.file(&format!("pages/{number}.html"), page(number));
    }
    scene
}

/// Load by `ab`: keep-alive, and connections of one request each; every answer counted.
fn load_by_ab(port: u16) {
    for (requests, keep_alive) in [(1500, true), (300, false)] {
        let mut ab = Command::new("ab");
        ab.args(["-q", "-n", &requests.to_string(), "-c", "8", "-s", "20"]);
        if keep_alive {
            ab.arg("-k");
        }
        let report = run(ab.arg(format!("http://127.0.0.1:{port}/3.html")));
        assert!(
            report.contains(&format!("Complete requests:      {requests}")),
            "{report}"
        );
        assert!(
            report.contains("Failed requests:        0") && !report.contains("Non-2xx"),
            "{report}"
        );
    }
}

/// What comes back is what the file holds; a file that is not there is not found; a part of one is
/// a part.
fn ask_for_pages(port: u16) {
    let curl = |arguments: &[&str], path: &str| {
        let output = Command::new("curl")
            .args(["-s", "--max-time", "20"])
            .args(arguments)
            .arg(format!("http://127.0.0.1:{port}/{path}"))
            .output();
        output.expect("curl is installed").stdout
    };
    for number in 0..8 {
        assert!(curl(&[], &format!("{number}.html")) == page(number));
    }
    assert!(curl(&["-r", "100-199"], "2.html") == page(2)[100..200]);
    assert_eq!(
        curl(&["-o", "/dev/null", "-w", "%{http_code}"], "nothing.html"),
        b"404"
    );
    assert_eq!(
        curl(&["-I", "-o", "/dev/null", "-w", "%{http_code}"], "1.html"),
        b"200"
    );
}

pub fn lighttpd(scene: Scene) -> (Scene, Program, u16) {
    let (scene, port) = (with_pages(scene), free_port());
    let work = scene.work().display().to_string();
    let configuration = format!(
        "server.document-root = \"{work}/pages\"\nserver.port = {port}\nserver.bind = \"127.0.0.1\"\nserver.modules = (\"mod_accesslog\")\n\
         accesslog.filename = \"{work}/access.log\"\nserver.max-keep-alive-requests = 200\nmimetype.assign = (\".html\" => \"text/html\")\n"
    );
    let scene = scene.file("lighttpd.conf", configuration);
    (
        scene,
        Program::new("lighttpd").args(["-D", "-f", "lighttpd.conf"]),
        port,
    )
}

fn nginx(scene: Scene) -> (Scene, Program, u16) {
    let (scene, port) = (with_pages(scene), free_port());
    let configuration = format!(
        "daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log stderr info;\n\
         events {{ worker_connections 200; }}\n\
         http {{ access_log access.log; sendfile on; tcp_nopush on; keepalive_requests 200; default_type text/html;\n\
           client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
           server {{ listen 127.0.0.1:{port}; root pages; add_header X-Time \"$msec $request_id $pid\"; }} }}\n"
    );
    let work = scene.work().display().to_string();
    let scene = scene.file("nginx.conf", configuration);
    (
        scene,
        Program::new("nginx").args(["-e", "stderr", "-p", &work, "-c", "nginx.conf"]),
        port,
    )
}

pub fn redis(scene: Scene, extra: &[&str]) -> (Scene, Program, u16) {
    let port = free_port();
    let port_text = port.to_string();
    let mut arguments = vec![
        "--port",
        &port_text,
        "--bind",
        "127.0.0.1",
        "--dir",
        ".",
        "--loglevel",
        "verbose",
        "--save",
        "",
    ];
    arguments.extend(extra);
    let program = Program::new("redis-server").args(arguments);
    (scene, program, port)
}

/// Without its two housekeeping threads, which compare a clock that another thread writes without a
/// lock.
pub fn memcached(scene: Scene, extra: &[&str]) -> (Scene, Program, u16) {
    let port = free_port();
    let program = Program::new("memcached").args([
        "-t",
        "4",
        "-l",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-U",
        "0",
        "-u",
        "root",
        "-m",
        "64",
        "-o",
        "no_lru_maintainer,no_lru_crawler",
        "-v",
    ]);
    (scene, program.args(extra.iter().copied()), port)
}

fn start(scene: &Scene, program: &Program, port: u16) -> Process {
    let mut server = scene.start_recording(program);
    server.wait_until_it_listens(port);
    server
}

#[test]
fn lighttpd_under_load() {
    let (scene, program, port) = lighttpd(Scene::new("lighttpd"));
    let server = start(&scene, &program, port);
    load_by_ab(port);
    ask_for_pages(port);
    let recorded = Outcome::of_stopped(server, "TERM");
    recorded.assert_code(0);
    scene.assert_replays(&recorded);
}

#[test]
fn nginx_with_one_process_under_load() {
    let (scene, program, port) = nginx(Scene::new("nginx"));
    let server = start(&scene, &program, port);
    load_by_ab(port);
    ask_for_pages(port);
    let recorded = Outcome::of_stopped(server, "TERM");
    recorded.assert_code(0);
    scene.assert_replays(&recorded);
}

#[test]
fn redis_under_load() {
    let (scene, program, port) = redis(Scene::new("redis"), &[]);
    let server = start(&scene, &program, port);
    benchmark(port);
    let cli = |arguments: &[&str]| {
        run(Command::new("redis-cli")
            .args(["-p", &port.to_string()])
            .args(arguments))
        .trim()
        .to_owned()
    };
    assert_eq!(cli(&["SAVE"]), "OK");
    assert_eq!(cli(&["SET", "a key", "a value"]), "OK");
    assert_eq!(cli(&["GET", "a key"]), "a value");
    assert_eq!(
        cli(&["EVAL", "return redis.call('TIME')[1] > '0'", "0"]),
        "1"
    );
    cli(&["DEBUG", "JMAP"]);
    assert!(cli(&["INFO"]).contains("used_memory"));
    // A thread frees memory and counts it in atomics, without a lock: whoever asked for the counts
    // now would ask for the outcome of a race.
    assert_eq!(cli(&["FLUSHALL", "ASYNC"]), "OK");
    let recorded = Outcome::of_stopped(server, "TERM");
    recorded.assert_code(0);
    assert!(
        recorded.text().contains("DB saved on disk") && recorded.text().contains("bye bye"),
        "{}",
        recorded.text()
    );
    scene.assert_replays(&recorded);
}

fn benchmark(port: u16) {
    let report = run(Command::new("redis-benchmark").args([
        "-p",
        &port.to_string(),
        "-q",
        "-n",
        "4000",
        "-c",
        "20",
        "-r",
        "1000",
        "-d",
        "100",
        "-t",
        "set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100,mset",
    ]));
    assert!(
        report.contains("GET") && report.contains("requests per second"),
        "{report}"
    );
    run(Command::new("redis-benchmark").args([
        "-p",
        &port.to_string(),
        "-q",
        "-n",
        "8000",
        "-c",
        "10",
        "-P",
        "16",
        "-t",
        "set,get",
    ]));
}

/// A save in the background is a child process; the append-only file is written by a thread.
#[test]
fn redis_saves_in_the_background() {
    let (scene, program, port) = redis(
        Scene::new("redis-saves"),
        // With `everysec` a thread frees memory behind each `fsync`, and the save says how much is
        // in use, which redis counts without a lock.
        &["--appendonly", "yes", "--appendfsync", "no"],
    );
    let server = start(&scene, &program, port);
    let cli = |arguments: &[&str]| {
        run(Command::new("redis-cli")
            .args(["-p", &port.to_string()])
            .args(arguments))
        .trim()
        .to_owned()
    };
    run(Command::new("redis-benchmark").args([
        "-p",
        &port.to_string(),
        "-q",
        "-n",
        "5000",
        "-c",
        "10",
        "-r",
        "2000",
        "-t",
        "set",
    ]));
    assert!(cli(&["BGSAVE"]).contains("Background saving started"));
    wait_for("the save in the background", || {
        cli(&["INFO", "persistence"])
            .contains("rdb_bgsave_in_progress:0")
            .then_some(())
    });
    assert!(cli(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:ok"));
    let recorded = Outcome::of_stopped(server, "TERM");
    recorded.assert_code(0);
    scene.assert_replays_in_any_order_of_lines(&recorded);
}

/// The text protocol over one connection.
pub struct Cache {
    reader: BufReader<TcpStream>,
}

impl Cache {
    pub fn connect(at: impl ToSocketAddrs) -> Self {
        let stream = TcpStream::connect(at).expect("it listens");
        // A follower that has begun anew may have much to replay before it answers.
        stream
            .set_read_timeout(Some(Duration::from_secs(90)))
            .expect("a positive time");
        stream.set_nodelay(true).expect("it is TCP");
        Self {
            reader: BufReader::new(stream),
        }
    }

    pub fn say(&mut self, what: &[u8]) {
        self.reader.get_mut().write_all(what).expect("it is there");
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    pub fn set(&mut self, key: &str, value: &[u8]) {
        self.say(format!("set {key} 0 0 {}\r\n", value.len()).as_bytes());
        self.say(value);
        self.say(b"\r\n");
        assert_eq!(self.line(), "STORED");
    }

    pub fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.say(format!("get {key}\r\n").as_bytes());
        let head = self.line();
        if head == "END" {
            return None;
        }
        let size: usize = head
            .rsplit(' ')
            .next()
            .and_then(|size| size.parse().ok())
            .unwrap_or_else(|| panic!("{head}"));
        let mut value = vec![0; size + 2];
        self.reader.read_exact(&mut value).expect("the value comes");
        value.truncate(size);
        assert_eq!(self.line(), "END");
        Some(value)
    }
}

/// Eight clients that set, read and count, their keys shared and their own.
fn load_the_cache(port: u16) {
    Cache::connect(("127.0.0.1", port)).set("counter", b"0");
    let clients: Vec<_> = (0..8)
        .map(|client: usize| {
            std::thread::spawn(move || {
                let mut cache = Cache::connect(("127.0.0.1", port));
                for round in 0..400 {
                    let value = vec![b'a' + (client as u8); 10 + (round * 37) % 3000];
                    cache.set(&format!("own-{client}-{}", round % 50), &value);
                    assert_eq!(
                        cache.get(&format!("own-{client}-{}", round % 50)),
                        Some(value)
                    );
                    cache.set(
                        &format!("shared-{}", round % 20),
                        format!("{client} {round}").as_bytes(),
                    );
                    cache.get(&format!("shared-{}", (round * 3) % 20));
                    cache.say(b"incr counter 1\r\n");
                    cache.line();
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("every client gets its answers");
    }
    assert_eq!(
        Cache::connect(("127.0.0.1", port))
            .get("counter")
            .as_deref(),
        Some(&b"3200"[..])
    );
}

#[test]
fn memcached_with_four_threads_under_load() {
    let (scene, program, port) = memcached(Scene::new("memcached"), &[]);
    let server = start(&scene, &program, port);
    load_the_cache(port);
    let recorded = Outcome::of_stopped(server, "TERM");
    let events = Recorded::in_folder(scene.recording()).events();
    assert!(events.len() >= 5, "four workers and the first: {events:?}");
    scene.assert_replays(&recorded);
}

/// Without the housekeeping threads: only the order of edges has a place for what a thread does
/// because time has passed.
#[test]
fn memcached_in_the_relaxed_total_order() {
    let (scene, program, port) = memcached(Scene::new("memcached-relaxed"), &[]);
    let server = start(&scene, &program.options(["--order", "relaxed"]), port);
    load_the_cache(port);
    let recorded = Outcome::of_stopped(server, "TERM");
    scene.assert_replays(&recorded);
}

/// Killed in the middle of its work: everything up to the last complete event is there, and replay
/// says that it ends there.
fn killed(
    scene: &Scene,
    program: &Program,
    port: u16,
    launcher_too: bool,
    work: impl Fn(u16) + Send + 'static,
) {
    let server = start(scene, program, port);
    work(port);
    let mut recorded = None;
    let family = strays::family(server.pid());
    let victim = *family.get(1).expect("the launcher has a child");
    if launcher_too {
        server.kill();
    } else {
        run(Command::new("kill").args(["-KILL", &victim.to_string()]));
        recorded = Some(Outcome::of_end(server));
        recorded.as_ref().map(|outcome| outcome.assert_code(137));
    }
    let bytes = Recorded::in_folder(scene.recording()).bytes();
    assert!(bytes > 10_000, "{bytes} bytes were recorded");
    for _ in 0..2 {
        let replayed = scene.replay();
        replayed.assert_said(&["recording ends"]);
        if let Some(recorded) = &recorded {
            replayed.assert_code(137);
            assert_eq!(
                String::from_utf8_lossy(&replayed.stdout),
                String::from_utf8_lossy(&recorded.stdout)
            );
        } else {
            // Nobody was there to see how it ended.
            assert!([0, 137].contains(&replayed.code()), "{replayed:?}");
        }
    }
}

#[test]
fn a_killed_redis_replays_to_its_last_complete_event() {
    let (scene, program, port) = redis(Scene::new("redis-killed"), &[]);
    killed(&scene, &program, port, false, |port| {
        run(Command::new("redis-benchmark").args([
            "-p",
            &port.to_string(),
            "-q",
            "-n",
            "3000",
            "-c",
            "10",
            "-t",
            "set,get",
        ]));
    });
}

#[test]
fn a_lighttpd_that_is_killed_with_its_launcher_replays_too() {
    let (scene, program, port) = lighttpd(Scene::new("lighttpd-killed"));
    killed(&scene, &program, port, true, load_by_ab);
}

/// Without the housekeeping threads: with them one replay in some forty differs, where the clock
/// turns that they compare without a lock.
#[test]
fn a_memcached_that_is_killed_under_load_replays_too() {
    let (scene, program, port) = memcached(Scene::new("memcached-killed"), &[]);
    killed(&scene, &program, port, false, |port| {
        // Killed while clients still ask.
        for client in 0..4 {
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
                let line = format!("set key-{client} 0 0 5\r\nhello\r\nget key-{client}\r\n");
                let mut answer = [0; 1000];
                while stream.write_all(line.as_bytes()).is_ok()
                    && stream.read(&mut answer).is_ok_and(|size| size > 0)
                {}
            });
        }
        load_the_cache(port);
    });
}

/// Nobody knows how far it was, so it is not computed again for ever.
#[test]
fn a_program_that_is_killed_while_it_computes_replays_to_there() {
    let scene = Scene::new("compute-killed");
    let program = Program::new(programs::compiled("compute"));
    let server = scene.start_recording(&program);
    let victim = wait_for("the program", || strays::named(server.pid(), "compute"));
    // Until it has computed for a while.
    wait_for("it to compute", || {
        let stat = std::fs::read_to_string(format!("/proc/{victim}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let ticks: u64 = fields.nth(11)?.parse().ok()?;
        (ticks > 30).then_some(())
    });
    run(Command::new("kill").args(["-KILL", &victim.to_string()]));
    Outcome::of_end(server).assert_code(137);
    let replayed = scene.replay();
    replayed.assert_said(&["recording ends", "killed while it computed"]);
    replayed.assert_code(137);
}
