//! The whole main job on a server as managed ones are: TLS only, SCRAM, and a password that is in
//! no command line.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use hindcast_cluster::{Cluster, Options, Shutdown};
use hindcast_tests::{Finished, Process, Stage, http, program};

const PASSWORD: &str = "s3cr:t\\ 'x";

/// A stage whose server takes nothing but encrypted sessions over TCP.
struct Encrypted {
    stage: Stage,
    root: PathBuf,
}

/// Where the password of a command comes from.
enum From {
    Variable,
    Passfile,
    /// The service `shop`, with where the server is and the password.
    Service,
}

fn encrypted() -> Encrypted {
    let options = Options {
        hba: "local all all trust\n\
              hostssl all all 127.0.0.1/32 scram-sha-256\n\
              hostssl replication all 127.0.0.1/32 scram-sha-256\n"
            .to_owned(),
        ..Options::throw_away()
            .set("wal_level", "replica")
            .set("max_wal_senders", 4)
    };
    let mut stage = Stage::with("tls", "SELECT 1", options);
    let role = PASSWORD.replace('\'', "''");
    let role = format!("CREATE ROLE shop SUPERUSER LOGIN PASSWORD '{role}'");
    stage.sql(&role);
    stage.sql("ALTER DATABASE app OWNER TO shop");
    let root = stage.folder().join("root.pem");
    encrypt(&mut stage.cluster, &root);
    let mut load = Command::new(program("hindcast-workload"));
    load.args(["load", "moodle", "--scale", "0.01", "--database-url"])
        .arg(stage.cluster.socket_url("app").to_string());
    Process::start("load", load, stage.folder())
        .wait()
        .assert_code(0);
    Encrypted { stage, root }
}

/// Gives the server a certificate for `localhost`, signed by an authority whose certificate is
/// written to `root`.
pub fn encrypt(cluster: &mut Cluster, root: &Path) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    // A name of its own: OpenSSL takes a certificate whose issuer has its name for self-signed.
    let name = &mut authority.distinguished_name;
    name.push(rcgen::DnType::CommonName, "an authority for tests");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let certificate = authority.self_signed(&authority_key).expect("signed");
    std::fs::write(root, certificate.pem()).expect("written");
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let leaf = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
        .expect("parameters")
        .signed_by(&key, &issuer)
        .expect("signed");
    cluster.stop(Shutdown::Fast).expect("stopped");
    let data = cluster.data_folder();
    let owner = std::fs::metadata(&data).expect("a data folder");
    for (name, text) in [
        ("server.crt", leaf.pem()),
        ("server.key", key.serialize_pem()),
    ] {
        let path = data.join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        chown(&path, Some(owner.uid()), Some(owner.gid())).expect("the server's");
    }
    let settings = &mut cluster.options_mut().settings;
    let file = |name: &str| data.join(name).display().to_string();
    settings.push(("ssl".to_owned(), "on".to_owned()));
    settings.push(("ssl_cert_file".to_owned(), file("server.crt")));
    settings.push(("ssl_key_file".to_owned(), file("server.key")));
    cluster.start().expect("started with TLS");
}

impl Encrypted {
    fn url(&self) -> String {
        format!(
            "postgres://shop@localhost:{}/app?sslmode=verify-full&sslrootcert={}",
            self.stage.cluster.port(),
            self.root.display()
        )
    }

    /// `hindcast` with arguments, and a password only where `from` says.
    fn command(&self, from: &From, arguments: &[&str]) -> Command {
        let home = self.stage.folder().join("home");
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir(&home).expect("a folder");
        let write = |name: &str, text: String| {
            let path = home.join(name);
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        };
        let mut command = self.stage.hindcast(arguments);
        command.env("HOME", &home).env_remove("PGPASSWORD");
        match from {
            From::Variable => {
                command.env("PGPASSWORD", PASSWORD);
            }
            From::Passfile => {
                let escaped = PASSWORD.replace('\\', "\\\\").replace(':', "\\:");
                let port = self.stage.cluster.port();
                write(".pgpass", format!("localhost:{port}:*:shop:{escaped}\n"));
            }
            From::Service => {
                let port = self.stage.cluster.port();
                let root = self.root.display();
                write(
                    ".pg_service.conf",
                    format!(
                        "[shop]\nhost=localhost\nport={port}\nuser=shop\ndbname=app\npassword={PASSWORD}\n\
                         sslmode=verify-full\nsslrootcert={root}\n"
                    ),
                );
            }
        }
        command.arg("--trace").arg(self.stage.trace());
        command
    }

    fn run(&self, from: &From, name: &str, arguments: &[&str]) -> Finished {
        Process::start(name, self.command(from, arguments), self.stage.folder()).wait()
    }

    /// What starts the service. It logs in by itself, through the gateway.
    fn service(&self, variant: &str) -> String {
        let password = "s3cr%3At%5C%20%27x";
        format!(
            "exec {} serve moodle --listen 127.0.0.1:{} --variant {variant} \
             --database-url 'postgres://shop:{password}@127.0.0.1:{}/app'",
            program("hindcast-workload").display(),
            self.stage.service_port,
            self.stage.gateway_port
        )
    }

    fn record(&self) {
        let ingress = self.stage.ingress();
        let app = format!("http://127.0.0.1:{}", self.stage.service_port);
        let gateway = format!("127.0.0.1:{}", self.stage.gateway_port);
        let url = self.url();
        let mut arguments = vec!["record", "--base", "template", "--postgres", &url];
        arguments.extend(["--listen", &ingress, "--app", &app, "--pg-listen", &gateway]);
        let command = self.command(&From::Variable, &arguments);
        let mut recorder = Process::start("record", command, self.stage.folder());
        recorder.wait_until_it_listens(self.stage.ingress_port);
        let mut service = Command::new("sh");
        service.args(["-c", &self.service("original")]);
        let service = self.stage.start_service(service);
        let mut client = http::Client::new(self.stage.ingress());
        for user in 1..=4 {
            let body = format!("{{\"userid\":{user},\"forum\":1}}");
            let response = client.send("POST", "/subscribe", Some(&body));
            assert!(response.expect("the service answers").status < 300);
        }
        service.stop();
        recorder.interrupt().assert_code(0);
    }
}

#[test]
fn a_server_that_takes_only_tls_is_recorded_rewound_replayed_and_retroacted() {
    let there = encrypted();
    let url = there.url();

    let plain = there.url().replace("verify-full", "disable");
    let refused = there.run(&From::Variable, "plain", &["base", "--postgres", &plain]);
    assert_ne!(refused.code, Some(0), "the server takes plain sessions");
    let nameless = there.url().replace("localhost", "127.0.0.1");
    let refused = there.run(&From::Variable, "name", &["base", "--postgres", &nameless]);
    assert!(
        refused.stderr.contains("TLS handshake failed"),
        "{}",
        refused.stderr
    );

    let backup = there.stage.cluster.folder().join("backup");
    let backup = backup.display().to_string();
    let base = ["base", "--postgres", "service=shop", "--backup", &backup];
    there.run(&From::Service, "base", &base).assert_code(0);

    there.record();

    let rewind = ["rewind", "--before", "1", "--json", "--postgres", &url];
    let rewound = there.run(&From::Passfile, "rewind", &rewind).assert_code(0);
    assert!(
        rewound.stdout.contains("sslmode=verify-full"),
        "{}",
        rewound.stdout
    );

    let app = there.service("original");
    let replay = [
        "replay",
        "--json",
        "--app",
        &app,
        "--postgres",
        "service=shop",
    ];
    let replayed = there.run(&From::Service, "replay", &replay).assert_code(0);
    let verdict: serde_json::Value =
        serde_json::from_str(&replayed.stdout).expect("the verdict is JSON");
    assert_eq!(verdict["faithful"], true, "{verdict}");

    // Where the database is, the recording says; the password it does not.
    let retro = ["retro", "--json", "--app", &app];
    let report = there.run(&From::Passfile, "retro", &retro).assert_code(0);
    let against: serde_json::Value = serde_json::from_str(&report.stdout).expect("JSON");
    let against = &against["state"]["against"]["baseline"];
    assert_eq!(against, "recorded_database");

    for output in [&rewound, &replayed, &report] {
        assert!(!output.stdout.contains("s3cr") && !output.stderr.contains("s3cr"));
    }
}
