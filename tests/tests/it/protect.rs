//! A server whose program, launcher or machine is lost, and that goes on on another machine with
//! its memory and its connections.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hindcast_tests::network::{End, Network};
use hindcast_tests::{Process, program, wait_for};
use tempfile::TempDir;

use crate::checked_clients::{Client, Clients, OfLighttpd, OfMemcached, OfRedis};
use crate::exec_servers::{Cache, page};

const SERVICE: &str = "10.9.0.10";
pub(crate) const PORT: u16 = 7070;

/// A primary with a program, its backup, and the network between them.
pub(crate) struct Pair {
    _said: Said,
    pub(crate) folder: TempDir,
    pub(crate) network: Network,
    pub(crate) backup: Process,
    pub(crate) primary: Process,
}

/// What is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    Program,
    Launcher,
    Machine,
}

pub(crate) fn at() -> SocketAddr {
    format!("{SERVICE}:{PORT}").parse().expect("an address")
}

/// The key of both.
fn key(folder: &Path) -> PathBuf {
    let path = folder.join("protect.key");
    if !path.exists() {
        let mut made = Command::new(program("hindcast"));
        let made = made.args(["protect", "key"]).arg(&path).status();
        assert!(made.expect("it runs").success());
    }
    path
}

pub(crate) fn backup(network: &Network, folder: &Path, options: &[&str]) -> Process {
    backup_at(network, End::Backup, ("backup", folder), options)
}

pub(crate) fn backup_at(
    network: &Network,
    end: End,
    (name, folder): (&str, &Path),
    options: &[&str],
) -> Process {
    let data = folder.join("data");
    let mut command = match data.exists() {
        false => network.command(end, program("hindcast")),
        // What the program keeps there is on a disk of this machine's own.
        true => {
            let mut apart = network.command(end, "unshare");
            let mounts = "mount -t tmpfs none \"$0\" && exec \"$@\"";
            apart.args(["-m", "sh", "-c", mounts]).arg(data);
            apart.arg(program("hindcast"));
            apart
        }
    };
    command
        .args(["protect", "backup", "--listen", ":7400", "--key"])
        .arg(key(folder))
        .arg("--address")
        .arg(format!("{SERVICE}/24"))
        .args(options);
    let backup = Process::start(name, command, folder);
    let stands_by = || backup.stderr().contains("stands by").then_some(());
    wait_for("the backup to stand by", stands_by);
    backup
}

fn primary(network: &Network, folder: &Path, options: &[&str], server: &[&str]) -> Process {
    let mut command = network.command(End::Primary, program("hindcast"));
    command
        .current_dir(folder)
        .args(["protect", "run", "--to", "10.9.0.3:7400", "--key"])
        .arg(key(folder))
        .arg("--address")
        .arg(format!("{SERVICE}/24"))
        .args(options)
        .arg("--")
        .args(server);
    let disk = folder.join("disk");
    if disk.exists() {
        command.env("TMPDIR", disk);
    }
    Process::start("primary", command, folder)
}

impl Pair {
    pub(crate) fn start(name: &str, server: &[&str]) -> Pair {
        Pair::prepared(name, server, |_| ())
    }

    /// With files in the folder in which the program runs.
    pub(crate) fn prepared(name: &str, server: &[&str], prepare: impl FnOnce(&Path)) -> Pair {
        Pair::with(name, &[], server, prepare)
    }

    /// With options of the primary's.
    pub(crate) fn with(
        name: &str,
        options: &[&str],
        server: &[&str],
        prepare: impl FnOnce(&Path),
    ) -> Pair {
        // Patient, as other tests run as well.
        Pair::both(name, (options, &["--detect", "3s"]), server, prepare)
    }

    /// With options of the backup's.
    pub(crate) fn backed(name: &str, options: &[&str], server: &[&str]) -> Pair {
        Pair::both(name, (&[], options), server, |_| ())
    }

    fn both(
        name: &str,
        (options, of_backup): (&[&str], &[&str]),
        server: &[&str],
        prepare: impl FnOnce(&Path),
    ) -> Pair {
        let folder = tempfile::Builder::new()
            .prefix(&format!("hindcast-{name}-"))
            .tempdir()
            .expect("a folder");
        prepare(folder.path());
        let network = Network::new();
        let backup = backup(&network, folder.path(), of_backup);
        let options = [&["--listen", ":7401"], options].concat();
        let mut primary = primary(&network, folder.path(), &options, server);
        let enter = network.enter(End::Client);
        primary.wait_until("the service to listen", || {
            let connected = std::thread::scope(|scope| {
                let connect = || {
                    enter();
                    std::net::TcpStream::connect_timeout(&at(), Duration::from_secs(1)).is_ok()
                };
                scope.spawn(connect).join().expect("it does not panic")
            });
            connected.then_some(())
        });
        Pair {
            _said: Said([&primary, &backup].map(|process| process.output_files()[1].clone())),
            folder,
            network,
            backup,
            primary,
        }
    }

    /// `hindcast protect`, asked by somebody who has the key.
    fn ask(&self, action: &str, arguments: &[&str]) -> std::process::Output {
        let mut command = self.network.command(End::Client, program("hindcast"));
        command.args(["protect", action]).args(arguments);
        let asked = command.arg("--key").arg(key(self.folder.path())).output();
        asked.expect("it runs")
    }

    /// Has the program at `at` protected by the backup `to`.
    pub(crate) fn attach(&self, at: &str, to: &str) {
        let attached = self.ask("attach", &["--at", at, "--to", to]);
        let said = String::from_utf8_lossy(&attached.stderr);
        assert!(attached.status.success(), "{said}");
    }

    /// What is said of itself at `at`.
    pub(crate) fn status(&self, at: &str) -> serde_json::Value {
        let status = self.ask("status", &["--at", at, "--json"]);
        let said = String::from_utf8_lossy(&status.stderr);
        assert!(status.status.success(), "{said}");
        serde_json::from_slice(&status.stdout).expect("the status is JSON")
    }

    fn lose_backup(&self) {
        // SAFETY: a process of this test's.
        unsafe { libc::kill(self.backup.pid() as i32, libc::SIGKILL) };
        wait_for("a word about it", || {
            let said = self.primary.stderr();
            said.contains("runs on unprotected: the backup has ended")
                .then_some(())
        });
    }

    pub(crate) fn clients<C: Client>(&self) -> Clients {
        Clients::start::<C>(at(), self.network.enter(End::Client))
    }

    pub(crate) fn program(&self) -> i32 {
        program_of(&self.primary)
    }

    pub(crate) fn lose(&self, what: Loss) {
        match what {
            // SAFETY: a process of this test's.
            Loss::Program => unsafe { libc::kill(self.program(), libc::SIGKILL) },
            // SAFETY: as above: `ip netns exec` has become it.
            Loss::Launcher => unsafe { libc::kill(self.primary.pid() as i32, libc::SIGKILL) },
            Loss::Machine => {
                self.network.cut(End::Primary);
                0
            }
        };
    }

    pub(crate) fn wait_until_backup_says(&mut self, text: &str) {
        let Pair { backup, .. } = self;
        wait_for(text, || backup.stderr().contains(text).then_some(()));
    }
}

/// The program, by what its launcher says.
pub(crate) fn program_of(launcher: &Process) -> i32 {
    let said = launcher.stderr();
    let (_, rest) = said.split_once("(pid ").expect("it says it");
    let number = rest.split(')').next().unwrap_or_default();
    number.parse().expect("a number")
}

/// What both have said, for a test that fails.
struct Said([PathBuf; 2]);

impl Drop for Said {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for path in &self.0 {
            let said = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = said
                .lines()
                .filter(|line| !line.contains("accept: "))
                .collect();
            let last = lines.len().saturating_sub(30);
            eprintln!("-- {}\n{}", path.display(), lines[last..].join("\n"));
        }
    }
}

/// Each of the three losses in turn, under clients that check each answer on one connection.
fn campaign<C: Client>(name: &str, rounds: u64, server: &[&str], prepare: impl Fn(&Path)) {
    for round in 0..rounds {
        let loss = [Loss::Program, Loss::Launcher, Loss::Machine][round as usize % 3];
        let mut pair = Pair::prepared(&format!("{name}-{round}"), server, &prepare);
        let clients = pair.clients::<C>();
        clients.wait_for_more(100 + round * 97);
        pair.lose(loss);
        clients.wait_for_more(300);
        clients.end();
        pair.wait_until_backup_says("goes on here after");
        let said = pair.backup.stderr();
        assert!(!said.contains("could not be kept"), "{loss:?}: {said}");
    }
}

#[test]
fn redis_loses_its_machine_and_no_client_notices() {
    if !Network::is_possible() {
        return;
    }
    campaign::<OfRedis>("protect-redis", 10, &REDIS, |_| ());
}

/// Without the threads that look after old items: they look at what the others write without its
/// locks, which loses a copy now and then. How often is counted by the campaign.
#[test]
fn memcached_with_four_threads_loses_its_machine_and_no_client_notices() {
    if !Network::is_possible() {
        return;
    }
    let port = PORT.to_string();
    let server = [
        "memcached",
        "-t",
        "4",
        "-p",
        &port,
        "-U",
        "0",
        "-l",
        "0.0.0.0",
        "-u",
        "nobody",
        "-o",
        "no_lru_maintainer,no_lru_crawler",
    ];
    campaign::<OfMemcached>("protect-memcached", 10, &server, |_| ());
}

#[test]
fn lighttpd_loses_its_machine_and_no_client_notices() {
    if !Network::is_possible() {
        return;
    }
    campaign::<OfLighttpd>(
        "protect-lighttpd",
        10,
        &["lighttpd", "-D", "-f", "lighttpd.conf"],
        with_pages,
    );
}

pub(crate) fn with_pages(folder: &Path) {
    let pages = folder.join("pages");
    std::fs::create_dir(&pages).expect("a folder");
    for number in 0..8 {
        std::fs::write(pages.join(format!("{number}.html")), page(number)).expect("a page");
    }
    let root = folder.display();
    let text = format!(
        "server.document-root = \"{root}\"\nserver.port = {PORT}\nserver.bind = \"0.0.0.0\"\nserver.max-keep-alive-requests = 100000\nserver.max-keep-alive-idle = 120\n"
    );
    std::fs::write(folder.join("lighttpd.conf"), text).expect("a file");
}

pub(crate) const REDIS: [&str; 9] = [
    "redis-server",
    "--port",
    "7070",
    "--bind",
    "0.0.0.0",
    "--protected-mode",
    "no",
    "--save",
    "",
];

/// With one thread that works: how several of them survive is counted by the campaign.
pub(crate) const MEMCACHED: [&str; 11] = [
    "memcached",
    "-t",
    "1",
    "-p",
    "7070",
    "-U",
    "0",
    "-l",
    "0.0.0.0",
    "-u",
    "nobody",
];

/// What a client at the other side of the network gets.
pub(crate) fn elsewhere<R: Send>(network: &Network, inner: impl FnOnce() -> R + Send) -> R {
    let enter = network.enter(End::Client);
    std::thread::scope(|scope| {
        let work = || {
            enter();
            inner()
        };
        scope.spawn(work).join().expect("it does not panic")
    })
}

/// Two machines never answer: the one that was cut off holds its answers, and ends when it hears
/// that it was replaced.
#[test]
fn a_primary_that_was_cut_off_does_not_answer_again() {
    if !Network::is_possible() {
        return;
    }
    let mut pair = Pair::start("protect-partition", &MEMCACHED);
    elsewhere(&pair.network, || Cache::connect(at()).set("key", b"before"));
    pair.lose(Loss::Machine);
    pair.wait_until_backup_says("goes on here after");
    elsewhere(&pair.network, || {
        let mut cache = Cache::connect(at());
        assert_eq!(cache.get("key").as_deref(), Some(&b"before"[..]));
        cache.set("key", b"after");
    });
    // It runs, and has the address still; what it would say waits.
    assert!(pair.network.has(End::Primary, SERVICE));
    pair.network.heal(End::Primary);
    let ended = pair.primary.wait();
    ended.assert_code(0);
    assert!(!pair.network.has(End::Primary, SERVICE));
    assert!(pair.network.has(End::Backup, SERVICE));
    assert_eq!(pair.network.rules(End::Primary), Vec::<String>::new());
    wait_for("what ran there to be gone", || {
        pair.network
            .processes(End::Primary)
            .is_empty()
            .then_some(())
    });
    elsewhere(&pair.network, || {
        let after = Cache::connect(at()).get("key");
        assert_eq!(after.as_deref(), Some(&b"after"[..]));
    });
}

#[test]
fn a_killed_launcher_leaves_nothing_on_its_machine() {
    if !Network::is_possible() {
        return;
    }
    let mut pair = Pair::start("protect-clean", &MEMCACHED);
    pair.lose(Loss::Launcher);
    pair.wait_until_backup_says("goes on here after");
    wait_for("the address to be given up", || {
        (!pair.network.has(End::Primary, SERVICE)).then_some(())
    });
    wait_for("rules and processes to be gone", || {
        let is_clean = pair.network.rules(End::Primary).is_empty()
            && pair.network.processes(End::Primary).is_empty();
        is_clean.then_some(())
    });
    assert_eq!(pair.network.rules(End::Backup), Vec::<String>::new());
}

/// It is never ended by its protection.
#[test]
fn without_its_backup_the_program_runs_on_and_says_so() {
    if !Network::is_possible() {
        return;
    }
    let pair = Pair::start("protect-alone", &MEMCACHED);
    let clients = pair.clients::<OfMemcached>();
    clients.wait_for_more(100);
    // SAFETY: a process of this test's.
    unsafe { libc::kill(pair.backup.pid() as i32, libc::SIGKILL) };
    clients.wait_for_more(300);
    clients.end();
    let primary = &pair.primary;
    wait_for("a word about it", || {
        let said = primary.stderr();
        said.contains("runs on unprotected: the backup has ended")
            .then_some(())
    });
    // SAFETY: as above.
    unsafe { libc::kill(pair.primary.pid() as i32, libc::SIGTERM) };
    pair.primary.wait().assert_code(0);
    assert_eq!(pair.network.rules(End::Primary), Vec::<String>::new());
}

/// A small disk, of its own, until it is dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf) -> Disk {
        std::fs::create_dir(&at).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m", "none"]);
        assert!(mount.arg(&at).status().expect("it runs").success());
        Disk(at)
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("all")).expect("there is room");
        while std::io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// What is not in the log cannot be protected: it is not taken for protected, and no backup goes on
/// with what was before.
#[test]
fn a_program_whose_recording_has_ended_runs_on_unprotected_and_that_is_said() {
    if !Network::is_possible() {
        return;
    }
    let disk = std::cell::OnceCell::new();
    let pair = Pair::prepared("protect-full", &REDIS, |folder| {
        let _ = disk.set(Disk::mount(folder.join("disk")));
    });
    let clients = pair.clients::<OfRedis>();
    clients.wait_for_more(100);
    disk.get().expect("it was mounted").fill();
    let primary = &pair.primary;
    wait_for("a word about it", || {
        let said = primary.stderr();
        let why = "recording has ended: the disk with the recording is full";
        (said.contains("runs on unprotected") && said.contains(why)).then_some(())
    });
    clients.wait_for_more(300);
    clients.end();
    let asked = pair.ask(
        "attach",
        &["--at", "10.9.0.2:7401", "--to", "10.9.0.3:7400"],
    );
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(
        said.contains("can have none: recording has ended"),
        "{said}"
    );
    pair.lose(Loss::Program);
    pair.primary.wait();
    let said = pair.backup.stderr();
    assert!(!said.contains("goes on here"), "{said}");
}

pub(crate) fn has_gone_on(backup: &Process) {
    let goes_on = "goes on here after";
    wait_for(goes_on, || backup.stderr().contains(goes_on).then_some(()));
    let said = backup.stderr();
    assert!(!said.contains("could not be kept"), "{said}");
}

/// A client whose one connection outlives everything: it checks what it has set before, and sets
/// something else.
struct Patient {
    cache: Cache,
    value: u32,
}

impl Patient {
    fn new(pair: &Pair) -> Patient {
        let mut cache = elsewhere(&pair.network, || Cache::connect(at()));
        cache.set("key", b"0");
        Patient { cache, value: 0 }
    }

    fn goes_on(&mut self) {
        for _ in 0..20 {
            let known = self.value.to_string();
            assert_eq!(self.cache.get("key").as_deref(), Some(known.as_bytes()));
            self.value += 1;
            self.cache.set("key", self.value.to_string().as_bytes());
        }
    }
}

/// The backup is lost, another takes its place, and goes on with connections that are older.
#[test]
fn a_program_that_has_lost_its_backup_gets_another() {
    if !Network::is_possible() {
        return;
    }
    for loss in [Loss::Program, Loss::Machine] {
        let pair = Pair::start("protect-again", &MEMCACHED);
        let mut client = Patient::new(&pair);
        client.goes_on();
        pair.lose_backup();
        client.goes_on();
        let status = pair.status("10.9.0.2:7401");
        assert_eq!(status["standing"], "runs");
        let nothing = &status["protection"]["nobody"]["impossible"];
        assert_eq!(*nothing, serde_json::Value::Null);
        let options = ["--detect", "3s"];
        let place = ("again", pair.folder.path());
        let again = backup_at(&pair.network, End::Backup, place, &options);
        pair.attach("10.9.0.2:7401", "10.9.0.3:7400");
        let status = pair.status("10.9.0.2:7401");
        assert_eq!(status["protection"]["by"], "10.9.0.3:7400");
        assert_eq!(pair.status("10.9.0.3:7400")["standing"], "follows");
        client.goes_on();
        pair.lose(loss);
        client.goes_on();
        has_gone_on(&again);
    }
}

/// The survivor is protected again, by the machine on which it was first, and is lost in its turn.
#[test]
fn a_program_that_has_survived_is_protected_again() {
    if !Network::is_possible() {
        return;
    }
    for loss in [Loss::Program, Loss::Launcher, Loss::Machine] {
        let mut pair = Pair::start("protect-twice", &MEMCACHED);
        let mut client = Patient::new(&pair);
        client.goes_on();
        pair.lose(Loss::Launcher);
        pair.wait_until_backup_says("goes on here after");
        client.goes_on();
        assert_eq!(pair.status("10.9.0.3:7400")["standing"], "leads");
        let options = ["--detect", "3s"];
        let place = ("again", pair.folder.path());
        let again = backup_at(&pair.network, End::Primary, place, &options);
        pair.attach("10.9.0.3:7400", "10.9.0.2:7400");
        client.goes_on();
        match loss {
            // SAFETY: processes of this test's.
            Loss::Program => unsafe { libc::kill(program_of(&pair.backup), libc::SIGKILL) },
            // SAFETY: as above.
            Loss::Launcher => unsafe { libc::kill(pair.backup.pid() as i32, libc::SIGKILL) },
            Loss::Machine => {
                pair.network.cut(End::Backup);
                0
            }
        };
        client.goes_on();
        has_gone_on(&again);
        assert!(pair.network.has(End::Primary, SERVICE));
    }
}

/// A survivor's new backup begins at a checkpoint of the copy that survived, and its own copy is
/// one of which there are checkpoints again.
#[test]
fn a_new_backup_begins_at_a_checkpoint() {
    if !Network::is_possible() {
        return;
    }
    for server in [&MEMCACHED[..], &REDIS[..]] {
        let is_redis = server[0] == "redis-server";
        let options = ["--detect", "3s", "--checkpoint-every", "0.2s"];
        let mut pair = Pair::backed("protect-checkpoint", &options, server);
        let clients = match is_redis {
            true => pair.clients::<OfRedis>(),
            false => pair.clients::<OfMemcached>(),
        };
        clients.wait_for_more(2000);
        // Several are taken meanwhile, of which the last stays.
        std::thread::sleep(Duration::from_secs(2));
        pair.lose(Loss::Launcher);
        pair.wait_until_backup_says("goes on here after");
        clients.wait_for_more(200);
        let place = ("again", pair.folder.path());
        let again = backup_at(&pair.network, End::Primary, place, &options);
        pair.attach("10.9.0.3:7400", "10.9.0.2:7400");
        let said = again.stderr();
        assert!(said.contains("begins at a checkpoint"), "{said}");
        clients.wait_for_more(500);
        std::thread::sleep(Duration::from_secs(1));
        // SAFETY: a process of this test's.
        unsafe { libc::kill(program_of(&pair.backup), libc::SIGKILL) };
        clients.wait_for_more(500);
        clients.end();
        has_gone_on(&again);
        for end in [&pair.backup, &again] {
            let said = end.stderr();
            assert!(!said.contains("no checkpoints are taken"), "{said}");
        }
    }
}

/// A backup that is not attached leaves the program as it was, and says why.
#[test]
fn a_backup_that_cannot_be_attached_is_refused() {
    if !Network::is_possible() {
        return;
    }
    let pair = Pair::start("protect-refused", &MEMCACHED);
    let refused = |pair: &Pair, at: &str, to: &str, texts: &[&str]| {
        let asked = pair.ask("attach", &["--at", at, "--to", to]);
        let said = String::from_utf8_lossy(&asked.stderr).into_owned();
        assert!(!asked.status.success(), "{said}");
        for text in texts {
            assert!(said.contains(text), "{text:?} is not in {said}");
        }
    };
    let (primary, backup) = ("10.9.0.2:7401", "10.9.0.3:7400");
    refused(
        &pair,
        primary,
        backup,
        &["is protected by 10.9.0.3:7400 already"],
    );
    refused(&pair, backup, backup, &["no program runs", "with --at"]);
    refused(
        &pair,
        "10.9.0.2:1",
        backup,
        &["cannot be asked", "--listen"],
    );
    let clients = pair.clients::<OfMemcached>();
    pair.lose_backup();
    refused(
        &pair,
        primary,
        backup,
        &["cannot be reached", "start it first"],
    );
    clients.wait_for_more(100);
    clients.end();
    assert_eq!(pair.network.rules(End::Primary), Vec::<String>::new());
    assert!(
        pair.primary
            .stderr()
            .contains("10.9.0.3:7400 does not protect it")
    );

    let small = ["--keep", "1KB"];
    let pair = Pair::with("protect-dropped", &small, &MEMCACHED, |_| ());
    let clients = pair.clients::<OfMemcached>();
    clients.wait_for_more(100);
    pair.lose_backup();
    clients.wait_for_more(100);
    let expected = "dropped when it was larger than";
    refused(&pair, primary, backup, &[expected, "hindcast protect run"]);
    assert!(
        pair.primary
            .stderr()
            .contains("and is dropped from here on")
    );
    clients.end();
}

#[test]
fn a_program_that_ends_by_itself_ends_on_both() {
    if !Network::is_possible() {
        return;
    }
    let pair = Pair::start("protect-end", &MEMCACHED);
    let status = pair.status("10.9.0.3:7400");
    assert_eq!(status["standing"], "follows");
    assert_eq!(status["address"], format!("{SERVICE}/24"));
    let path = PathBuf::from(status["program"].as_str().unwrap_or_default());
    assert_eq!(
        path.file_name().and_then(|name| name.to_str()),
        Some("memcached")
    );
    // SAFETY: a process of this test's.
    unsafe { libc::kill(pair.program(), libc::SIGTERM) };
    pair.primary.wait().assert_code(0);
    let backup = pair.backup.wait().assert_code(0);
    assert!(
        backup.stderr.contains("has ended by itself"),
        "{}",
        backup.stderr
    );
    assert!(!pair.network.has(End::Primary, SERVICE));
    assert!(!pair.network.has(End::Backup, SERVICE));
    drop(pair.folder);
}

#[test]
fn what_cannot_be_protected_is_said_before_it_runs() {
    if !Network::is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let network = Network::new();
    let touch = ["touch", "it-ran"];
    let refused = |options: &[&str], server: &[&str], code: i32, texts: &[&str]| {
        let ended = primary(&network, folder.path(), options, server).wait();
        let said = ended.assert_code(code).stderr;
        for text in texts {
            assert!(said.contains(text), "{text:?} is not in {said}");
        }
        assert!(!folder.path().join("it-ran").exists());
    };
    refused(
        &[],
        &touch,
        125,
        &[
            "cannot be reached",
            "start it first: hindcast protect backup",
        ],
    );
    refused(
        &["--device", "none"],
        &["/nowhere/at-all"],
        125,
        &["cannot be read"],
    );
    let mut other = network.command(End::Backup, program("hindcast"));
    other
        .args(["protect", "backup", "--listen", ":7400", "--key"])
        .arg(key(folder.path()))
        .args(["--address", "10.9.0.11/24"]);
    let mut other = Process::start("other", other, folder.path());
    wait_for("it to stand by", || {
        other.stderr().contains("stands by").then_some(())
    });
    refused(&[], &touch, 125, &["another address", "same --address"]);
    assert!(other.is_running(), "it waits for the next");
    let stranger = tempfile::tempdir().expect("a folder");
    let ended = primary(&network, stranger.path(), &[], &touch).wait();
    let said = ended.assert_code(125).stderr;
    assert!(
        said.contains("it has another key") && said.contains("protect key FILE"),
        "{said}"
    );
    let mut wrong = network.command(End::Backup, program("hindcast"));
    wrong
        .args(["protect", "backup", "--listen", ":1", "--no-key"])
        .args(["--address", "10.9.0.10"]);
    let said = Process::start("wrong", wrong, folder.path())
        .wait()
        .assert_code(2);
    assert!(
        said.stderr.contains("as in 10.0.0.10/24"),
        "{}",
        said.stderr
    );
    assert_eq!(network.rules(End::Primary), Vec::<String>::new());
}
