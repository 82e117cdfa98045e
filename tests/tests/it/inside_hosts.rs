//! Instances of one service behind a load balancer, each with a recorder of its own, and one trace.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use hindcast_tests::http::Client;
use hindcast_tests::stage::free_port;
use hindcast_tests::{Process, Stage};

use super::inside::{CLIENTS, SCHEMA, command, replay};
use super::inside_extension;

const ROUNDS: usize = 20;

/// One recorder's host: the port of its instance, and the recorder.
struct Host {
    port: u16,
    recorder: Process,
}

impl Host {
    fn start(stage: &Stage, number: usize) -> Self {
        let port = free_port();
        let mut service = command(stage, 1);
        service[2] = port.to_string();
        // Only the first starts before anybody is connected.
        let base = ["template", "none"][number.min(1)];
        let mut command = stage.hindcast(&["record", "--base", base, "--trace"]);
        command
            .arg(stage.trace())
            .arg("--")
            .args(service)
            .env("DATABASE_URL", stage.database_url())
            .env("WALLET_SECRET", "s3cret");
        let mut recorder = Process::start(&format!("host-{number}"), command, stage.folder());
        recorder.wait_until_it_listens(port);
        Self { port, recorder }
    }
}

/// Gives each connection to the next instance that takes it; returns where it listens.
fn balancer(ports: Vec<u16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        let mut bytes = [0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    };
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let next = (0..ports.len()).map(|more| ports[(number + more) % ports.len()]);
            let mut instances = next.map(|port| TcpStream::connect(("127.0.0.1", port)));
            let (client, instance) = (client.unwrap(), instances.find_map(Result::ok).unwrap());
            let (from, to) = (client.try_clone().unwrap(), instance.try_clone().unwrap());
            thread::spawn(move || copy(from, to));
            thread::spawn(move || copy(instance, client));
        }
    });
    address
}

/// Each request by a connection of its own; returns how many were answered.
fn load(address: &str, rounds: usize) -> usize {
    let client = |number: usize| {
        let mut answered = 0;
        for round in 0..rounds {
            let (from, to) = (round % 4, (round + number) % 16);
            let transfer = format!("/{from}/{to}/{}", 10 + number);
            for (method, target) in [("POST", transfer), ("GET", format!("/{to}"))] {
                let answer = Client::new(address.to_owned()).send(method, &target, None);
                answered += usize::from(answer.is_ok());
            }
        }
        answered
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || client(number)))
            .collect();
        clients.into_iter().map(|one| one.join().unwrap()).sum()
    })
}

#[test]
fn instances_behind_a_load_balancer_are_one_recording_though_one_is_killed() {
    let stage = inside_extension::stage("hosts", SCHEMA, &[]);
    let mut hosts: Vec<_> = (0..3).map(|number| Host::start(&stage, number)).collect();
    let address = balancer(hosts.iter().map(|host| host.port).collect());
    assert_eq!(load(&address, ROUNDS), 2 * CLIENTS * ROUNDS);

    // In the middle of its work; its recorder ends with it.
    let killed = hosts.remove(1);
    let parent = killed.recorder.pid().to_string();
    let answered = thread::scope(|scope| {
        let load = scope.spawn(|| load(&address, ROUNDS));
        thread::sleep(Duration::from_millis(50));
        let mut kill = Command::new("pkill");
        kill.args(["-KILL", "-P", &parent]);
        assert!(kill.status().unwrap().success());
        load.join().unwrap()
    });
    killed.recorder.wait().assert_code(137);
    assert!(answered > CLIENTS * ROUNDS, "{answered}");
    for host in hosts {
        host.recorder.interrupt().assert_code(0);
    }

    let trace = stage.trace().display().to_string();
    let listed = stage.run("ls", &["ls", "--trace", &trace, "--limit", "0"]);
    let said = listed.assert_code(0).stderr;
    assert!(said.contains("by 3 recorders"), "{said}");
    assert!(!said.contains("Gap"), "{said}");
    let whole = replay(&stage, &[]).assert_code(0);
    assert!(whole.stdout.contains("faithful"), "{}", whole.stdout);
}
