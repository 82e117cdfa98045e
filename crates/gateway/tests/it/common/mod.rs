//! What the tests of this crate share: real servers, real clients, certificates.

pub mod stage;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use hindcast_cluster::{Cluster, Options};
use hindcast_gateway::ListenAddress;
use hindcast_pg::DatabaseUrl;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Long enough for a slow machine; a test that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub async fn cluster() -> Cluster {
    cluster_with(Options::throw_away()).await
}

pub async fn cluster_with(options: Options) -> Cluster {
    Cluster::temporary_async(options)
        .await
        .expect("a private server")
}

pub fn url_of(cluster: &Cluster) -> DatabaseUrl {
    cluster.url("postgres").parse().expect("a URL")
}

pub fn any_port() -> ListenAddress {
    "127.0.0.1:0".parse().expect("an address")
}

pub fn port_of(address: &ListenAddress) -> u16 {
    match address {
        ListenAddress::Tcp { port, .. } => *port,
        ListenAddress::Unix(path) => panic!("{} has no port", path.display()),
    }
}

/// A session of tokio-postgres through the gateway.
pub async fn connect(address: &ListenAddress, user: &str) -> tokio_postgres::Client {
    try_connect(address, user)
        .await
        .expect("a session through the gateway")
}

pub async fn try_connect(
    address: &ListenAddress,
    user: &str,
) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::new();
    config
        .host("127.0.0.1")
        .port(port_of(address))
        .user(user)
        .dbname("postgres");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

/// Runs a program of the Postgres client tools without blocking the runtime.
pub async fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .kill_on_drop(true)
        .stdin(std::process::Stdio::null());
    command.env("PGCONNECT_TIMEOUT", "20");
    tokio::time::timeout(PATIENCE, command.output())
        .await
        .unwrap_or_else(|_| panic!("{program} takes too long"))
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// What `psql` printed, or what it complained about.
pub async fn psql(connection: &str, sql: &str) -> Result<String, String> {
    let output = run(
        "psql",
        &[
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            connection,
            "-c",
            sql,
        ],
    )
    .await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// Waits for a fact.
pub async fn until<F: Future<Output = bool>>(what: &str, mut fact: impl FnMut() -> F) {
    let start = Instant::now();
    while !fact().await {
        assert!(start.elapsed() < PATIENCE, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A certificate authority and a certificate that it signed for `localhost`.
pub struct Certificates {
    pub folder: tempfile::TempDir,
}

impl Certificates {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // A server that runs as another user reads from here too.
        open_to_all(folder.path());
        let certificates = Self { folder };
        let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority
            .distinguished_name
            .push(rcgen::DnType::CommonName, "test authority");
        let authority_key = rcgen::KeyPair::generate().expect("a key");
        let authority_certificate = authority
            .self_signed(&authority_key)
            .expect("a certificate");
        let issuer = rcgen::Issuer::new(authority, authority_key);
        let leaf_key = rcgen::KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned()];
        let leaf = rcgen::CertificateParams::new(names)
            .expect("parameters")
            .signed_by(&leaf_key, &issuer)
            .expect("a certificate");
        std::fs::write(certificates.root(), authority_certificate.pem()).expect("written");
        std::fs::write(certificates.certificate(), leaf.pem()).expect("written");
        std::fs::write(certificates.key(), leaf_key.serialize_pem()).expect("written");
        certificates
    }

    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// A server that encrypts over TCP with these certificates, and asks for passwords there.
pub async fn encrypted_cluster(certificates: &Certificates) -> Cluster {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let hba = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n".to_owned();
    let options = Options {
        hba,
        ..Options::throw_away()
    };
    let (certificate, key) = (certificates.certificate(), certificates.key());
    tokio::task::spawn_blocking(move || {
        let mut cluster = Cluster::temporary(options).expect("a private server");
        cluster
            .sql(
                "postgres",
                "SET password_encryption = 'scram-sha-256'; CREATE ROLE alice LOGIN PASSWORD 'secret'",
            )
            .expect("a role");
        cluster
            .stop(hindcast_cluster::Shutdown::Fast)
            .expect("stopped");
        let data = cluster.data_folder();
        let owner = std::fs::metadata(&data).expect("a data folder");
        for (source, name) in [(certificate, "server.crt"), (key, "server.key")] {
            let target = data.join(name);
            std::fs::copy(source, &target).expect("copied");
            std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600))
                .expect("permissions");
            if is_root() {
                chown(&target, Some(owner.uid()), Some(owner.gid())).expect("owner");
            }
        }
        let settings = &mut cluster.options_mut().settings;
        settings.push(("ssl".into(), "on".into()));
        settings.push((
            "ssl_cert_file".into(),
            data.join("server.crt").display().to_string(),
        ));
        settings.push((
            "ssl_key_file".into(),
            data.join("server.key").display().to_string(),
        ));
        cluster.start().expect("started with TLS");
        cluster
    })
    .await
    .expect("no panic")
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Resident memory of this process at its highest, in bytes.
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .expect("a peak");
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        * 1024
}

pub async fn raw_session(address: &ListenAddress) -> tokio::net::TcpStream {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port_of(address)))
        .await
        .unwrap();
    let mut startup = b"\0\0\0\0\0\x03\0\0user\0postgres\0database\0postgres\0\0".to_vec();
    let length = startup.len() as u32;
    startup[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&startup).await.unwrap();
    while read_message(&mut stream).await.0 != b'Z' {}
    stream
}

pub async fn read_message(stream: &mut tokio::net::TcpStream) -> (u8, Vec<u8>) {
    let tag = stream.read_u8().await.unwrap();
    let length = stream.read_u32().await.unwrap() as usize - 4;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (tag, body)
}

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}
