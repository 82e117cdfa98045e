//! `record -- COMMAND` of services behind a web server: requests come by FastCGI, uwsgi or HTTP,
//! over TCP or a Unix socket, and are sent again in the same way.

use hindcast_tests::cgi::{Address, Client, Protocol};
use hindcast_tests::{Process, Stage, repository, wait_for};

use super::inside_extension;
use super::languages::{LIFETIME, REQUESTS, SCHEMA, load, surroundings};

struct Behind {
    stage: Stage,
    client: Client,
    command: Vec<String>,
}

impl Behind {
    fn new(name: &str, protocol: Protocol, over_path: bool, script: &str) -> Self {
        let stage = inside_extension::stage(name, SCHEMA, &[]);
        let address = match over_path {
            true => Address::Path(stage.folder().join("service.sock")),
            false => Address::Port(stage.service_port),
        };
        let client = Client {
            protocol,
            address,
            script: repository(script).display().to_string(),
        };
        Self {
            stage,
            client,
            command: Vec::new(),
        }
    }

    fn listen(&self) -> String {
        match &self.client.address {
            Address::Port(port) => format!("127.0.0.1:{port}"),
            Address::Path(path) => path.display().to_string(),
        }
    }

    /// Written by hand into a file, as a distribution's packages have it.
    fn php_fpm(mut self) -> Self {
        let folder = self.stage.folder().display().to_string();
        let text = format!(
            "[global]\nerror_log = {folder}/fpm.log\ndaemonize = no\n\
             [www]\nlisten = {}\nlisten.mode = 0666\nlisten.backlog = 100\n\
             pm = static\npm.max_children = 12\nclear_env = no\n",
            self.listen()
        );
        let file = self.stage.folder().join("fpm.conf");
        std::fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let command = [&php_fpm(), "--nodaemonize", "-R", "-y", &file];
        self.command = command.map(String::from).to_vec();
        self
    }

    fn uwsgi(mut self) -> Self {
        let listen = self.listen();
        let script = self.client.script.clone();
        let socket = match self.client.protocol {
            Protocol::Http => "--http-socket",
            _ => "--socket",
        };
        let command = [
            "uwsgi",
            "--plugin",
            "python3",
            socket,
            &listen,
            "--chmod-socket=666",
            "--wsgi-file",
            &script,
            "--processes",
            "3",
            "--threads",
            "4",
            "--master",
            "--die-on-term",
            "--lazy-apps",
        ];
        self.command = command.map(str::to_owned).to_vec();
        self
    }

    fn accepts(&self) -> bool {
        self.client.send_with("GET", "/notes", &[], b"").is_ok()
    }

    fn record(&self) {
        let mut command = self
            .stage
            .hindcast(&["record", "--base", "template", "--trace"]);
        command
            .arg(self.stage.trace())
            .arg("--")
            .args(&self.command);
        surroundings(&mut command, &self.stage);
        let recorder = Process::start("record", command, self.stage.folder());
        wait_for("the service answers", || self.accepts().then_some(()));
        load(|| {
            let client = self.client.clone();
            move |method: &str, target: &str, headers: &[(&str, &str)]| {
                let body = vec![b'b'; 20_000];
                let body = if method == "POST" { &body[..] } else { &[] };
                client.send_with(method, target, headers, body).unwrap()
            }
        });
        let recorded = recorder.interrupt().assert_code(0).stderr;
        assert!(recorded.contains(&requests()), "{recorded}");
        assert!(recorded.contains("(0 ghosts)"), "{recorded}");
    }

    fn replay(&self, more: &[&str]) -> String {
        let mut command = self.stage.hindcast(&["replay", "--trace"]);
        command
            .arg(self.stage.trace())
            .args(more)
            .env("HINDCAST_POSTGRES", self.stage.database_url());
        surroundings(&mut command, &self.stage);
        let replayed = Process::start("replay", command, self.stage.folder()).wait();
        let replayed = replayed.assert_code(0).stdout;
        // php-fpm leaves its process group.
        let folder = self.stage.folder().display().to_string();
        let left: Vec<_> = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .filter(|line| line.contains(&folder))
            .collect();
        assert!(left.is_empty(), "still there: {left:?}");
        replayed
    }

    fn is_recorded_and_replayed(&self) {
        self.record();
        std::thread::sleep(LIFETIME);
        let replayed = self.replay(&[]);
        assert!(replayed.contains("faithful"), "{replayed}");
        assert!(replayed.contains(&requests()), "{replayed}");
    }
}

/// Its name has its version in it.
fn php_fpm() -> String {
    let programs = std::fs::read_dir("/usr/sbin").unwrap();
    let mut paths = programs.map(|entry| entry.unwrap().path().display().to_string());
    let found = paths.find(|path| path.starts_with("/usr/sbin/php-fpm"));
    found.expect("`scripts/setup` installs php-fpm")
}

/// And the one by which it is found out that the service listens.
fn requests() -> String {
    format!("{} requests", REQUESTS + 1)
}

#[test]
fn php_behind_a_web_server_by_tcp() {
    let php = Behind::new(
        "fpm-tcp",
        Protocol::FastCgi,
        false,
        "tests/services/notes.php",
    );
    let php = php.php_fpm();
    php.is_recorded_and_replayed();
    // What PHP says goes to the web server, which is not there.
    let log = php.stage.folder().join("service.log");
    php.replay(&["--app-log", &log.display().to_string()]);
    let said = std::fs::read_to_string(log).unwrap();
    let line = said.lines().find(|line| line.ends_with("logs in"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.starts_with("request ") && line.contains(": PHP message: "),
        "{line}"
    );
}

#[test]
fn php_behind_a_web_server_by_a_unix_socket() {
    let php = Behind::new(
        "fpm-unix",
        Protocol::FastCgi,
        true,
        "tests/services/notes.php",
    );
    let php = php.php_fpm();
    php.record();
    let Address::Path(path) = &php.client.address else {
        unreachable!("it was asked for");
    };
    // Another one has the path by now, and keeps it.
    let other = std::os::unix::net::UnixListener::bind(path).unwrap();
    std::thread::sleep(LIFETIME);
    let listens = format!("unix:{}", path.display());
    for more in [&[][..], &["--app-url", &listens]] {
        let replayed = php.replay(more);
        assert!(replayed.contains("faithful"), "{replayed}");
        assert!(replayed.contains(&requests()), "{replayed}");
    }
    assert!(path.exists());
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_err(), "nobody has connected to it");
}

#[test]
fn uwsgi_by_tcp() {
    let python = Behind::new(
        "uwsgi-tcp",
        Protocol::Uwsgi,
        false,
        "tests/services/notes_wsgi.py",
    );
    python.uwsgi().is_recorded_and_replayed();
}

#[test]
fn uwsgi_by_a_unix_socket() {
    let python = Behind::new(
        "uwsgi-unix",
        Protocol::Uwsgi,
        true,
        "tests/services/notes_wsgi.py",
    );
    python.uwsgi().is_recorded_and_replayed();
}

#[test]
fn http_by_a_unix_socket() {
    let python = Behind::new(
        "http-unix",
        Protocol::Http,
        true,
        "tests/services/notes_wsgi.py",
    );
    python.uwsgi().is_recorded_and_replayed();
}
