//! Where a database is: URLs and conninfo strings, completed from the environment as libpq
//! completes them.
//!
//! Pure: [`DatabaseUrl::read`] is handed the [`Environment`]. What was given comes first, then the
//! service's section of `pg_service.conf`, then variables (`PGHOST` …), then defaults; a password
//! that none of them has is looked up in `.pgpass` by the server that asks for it. A URL never
//! prints its password.

mod environment;
mod text;

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

pub use environment::{Environment, PROCESS, TextFile};

use crate::quote::percent_encode;
use environment::PassFile;
use text::Settings;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    Tcp {
        host: String,
        port: u16,
    },
    /// The socket itself, not the folder it is in.
    Unix(PathBuf),
}

impl Address {
    /// As libpq names them: the folder of a socket is its host.
    pub fn host_and_port(&self) -> (String, String) {
        match self {
            Address::Tcp { host, port } => (host.clone(), port.to_string()),
            Address::Unix(socket) => {
                let folder = socket.parent().unwrap_or(socket).display().to_string();
                let name = socket.file_name().unwrap_or_default().to_string_lossy();
                let port = name.rsplit('.').next().unwrap_or_default().to_owned();
                (folder, port)
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// How much encryption is asked of the server. Unix sockets are never encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    Disable,
    /// Encrypted if the server can. `allow` means the same here.
    Prefer,
    /// Encrypted, with whomever.
    Require,
    /// Encrypted, with a server whose certificate a known authority signed.
    VerifyCa,
    /// And which is the host it was asked for.
    VerifyFull,
}

/// Whether a password must prove that the encrypted connection ends at the server
/// (SCRAM-SHA-256-PLUS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    Disable,
    /// If the server offers it.
    #[default]
    Prefer,
    Require,
}

/// A database and how to get there.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    /// Tried in this order; at least one.
    pub addresses: Vec<Address>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub database: Option<String>,
    pub ssl_mode: SslMode,
    /// `system` for the operating system's.
    pub ssl_root_cert: Option<PathBuf>,
    pub ssl_cert: Option<PathBuf>,
    pub ssl_key: Option<PathBuf>,
    pub channel_binding: ChannelBinding,
    pub connect_timeout: Duration,
    /// Parameters that only concern us as a client (`application_name`, `options`).
    pub others: Vec<(String, String)>,
    /// Who we run as: the user where none is given.
    login: String,
    passfile: Arc<PassFile>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("a database URL begins with postgres:// or postgresql://")]
    Scheme,
    #[error("`{0}` is not a port")]
    Port(String),
    #[error("`{0}` is not a host")]
    Host(String),
    #[error("{ports} ports do not fit {hosts} hosts")]
    PortCount { hosts: usize, ports: usize },
    /// Which part, never what it is: it may be the password.
    #[error("the {0} holds a % that is not followed by two hex digits, or is not UTF-8")]
    Escape(&'static str),
    #[error(
        "an @ stands behind a / or ?: in a user's name or a password write / as %2F, ? as %3F and # as %23, \
         elsewhere write @ as %40"
    )]
    Login,
    #[error("sslmode `{0}` is not one of disable, allow, prefer, require, verify-ca, verify-full")]
    SslMode(String),
    #[error("`{name}` cannot be `{value}`")]
    Value { name: String, value: String },
    #[error("unknown parameter `{0}`")]
    Parameter(String),
    /// After which parameter. What stands there is not shown: it may be the rest of a password.
    #[error("{} comes no name=value; a value with spaces stands in quotes", after(.0.as_deref()))]
    Keyword(Option<String>),
    #[error("no pg_service.conf has a service [{0}]")]
    Service(String),
}

fn after(parameter: Option<&str>) -> String {
    match parameter {
        Some(name) => format!("after `{name}`"),
        None => "at the beginning".to_owned(),
    }
}

const DEFAULT_PORT: u16 = 5432;
const SOCKET_FOLDER: &str = "/var/run/postgresql";

/// Known to libpq, without meaning here. `service` and `passfile` have had theirs already.
const IGNORED: [&str; 18] = [
    "target_session_attrs",
    "load_balance_hosts",
    "gssencmode",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "fallback_application_name",
    "client_encoding",
    "sslcompression",
    "sslsni",
    "krbsrvname",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "service",
    "passfile",
];

/// Read with the environment of this process.
impl FromStr for DatabaseUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::read(text, &PROCESS)
    }
}

impl DatabaseUrl {
    /// Reads a URL or a conninfo string (`host=… dbname=…`).
    pub fn read(text: &str, environment: &Environment<'_>) -> Result<Self, UrlError> {
        let mut settings = match text::is_conninfo(text) {
            true => text::conninfo(text)?,
            false => text::url(text)?,
        };
        environment.complete(&mut settings)?;
        let mut url = Self::from_settings(&settings)?;
        url.passfile = Arc::new(environment.passfile(settings.get("passfile").map(String::as_str)));
        if matches!(url.ssl_mode, SslMode::VerifyCa | SslMode::VerifyFull) {
            url.ssl_root_cert = (url.ssl_root_cert).or_else(|| environment.root_certificate());
        }
        if let Some(login) = (environment.variable)("USER") {
            url.login = login;
        }
        Ok(url)
    }

    fn from_settings(settings: &Settings) -> Result<Self, UrlError> {
        let mut url = Self::from_parts(Address::Unix(PathBuf::new()), "postgres", "");
        (url.user, url.database) = (None, None);
        url.addresses = addresses(settings)?;
        for (name, value) in settings.iter().filter(|(_, value)| !value.is_empty()) {
            let refuse = || UrlError::Value {
                name: name.clone(),
                value: value.clone(),
            };
            let path = || Some(PathBuf::from(value));
            match name.as_str() {
                "host" | "hostaddr" | "port" => {}
                "user" => url.user = Some(value.clone()),
                "password" => url.password = Some(value.clone()),
                "dbname" => url.database = Some(value.clone()),
                "sslmode" => url.ssl_mode = ssl_mode(value)?,
                "sslrootcert" => url.ssl_root_cert = path(),
                "sslcert" => url.ssl_cert = path(),
                "sslkey" => url.ssl_key = path(),
                "channel_binding" => {
                    url.channel_binding = match value.as_str() {
                        "disable" => ChannelBinding::Disable,
                        "prefer" => ChannelBinding::Prefer,
                        "require" => ChannelBinding::Require,
                        _ => return Err(refuse()),
                    }
                }
                "connect_timeout" => {
                    let seconds: u64 = value.parse().map_err(|_| refuse())?;
                    // libpq: zero waits for ever. No gateway should.
                    url.connect_timeout =
                        Duration::from_secs(if seconds == 0 { 600 } else { seconds.max(2) });
                }
                "application_name" | "options" => url.others.push((name.clone(), value.clone())),
                known if IGNORED.contains(&known) => {}
                _ => return Err(UrlError::Parameter(name.clone())),
            }
        }
        Ok(url)
    }

    /// A URL that nothing is added to from the environment.
    pub fn from_parts(address: Address, user: &str, database: &str) -> Self {
        Self {
            addresses: vec![address],
            user: Some(user.to_owned()),
            password: None,
            database: Some(database.to_owned()),
            ssl_mode: SslMode::Prefer,
            ssl_root_cert: None,
            ssl_cert: None,
            ssl_key: None,
            channel_binding: ChannelBinding::default(),
            connect_timeout: Duration::from_secs(10),
            others: Vec::new(),
            login: user.to_owned(),
            passfile: Arc::default(),
        }
    }

    /// Another database of the same server.
    pub fn with_database(&self, database: &str) -> Self {
        Self {
            database: Some(database.to_owned()),
            ..self.clone()
        }
    }

    /// The user given, else the user we run as.
    pub fn user(&self) -> String {
        self.user.clone().unwrap_or_else(|| self.login.clone())
    }

    /// The database given, else the one named like the user.
    pub fn database(&self) -> String {
        self.database.clone().unwrap_or_else(|| self.user())
    }

    /// The password given, else what `.pgpass` has for this address and database.
    pub fn password(&self, address: &Address, database: &str) -> Option<String> {
        let looked_up = || self.passfile.password(address, database, &self.user());
        self.password.clone().or_else(looked_up)
    }

    /// A password file that was not used because others can read it.
    pub fn exposed_passfile(&self) -> Option<&PathBuf> {
        self.passfile.exposed.as_ref()
    }

    /// Tells a program that uses libpq how to get there, by its environment: nothing of it, the
    /// password least of all, belongs on a command line.
    pub fn hand_to(&self, command: &mut Command) {
        let hosts = (self.addresses.iter()).map(Address::host_and_port);
        let (hosts, ports): (Vec<_>, Vec<_>) = hosts.unzip();
        for name in ["PGHOSTADDR", "PGSERVICE", "PGOPTIONS"] {
            command.env_remove(name);
        }
        command
            .env("PGHOST", hosts.join(","))
            .env("PGPORT", ports.join(","))
            .env("PGUSER", self.user())
            .env("PGDATABASE", self.database())
            .env("PGSSLMODE", self.ssl_mode.name())
            .env(
                "PGCONNECT_TIMEOUT",
                self.connect_timeout.as_secs().to_string(),
            );
        if let Some(password) = self.password(&self.addresses[0], &self.database()) {
            command.env("PGPASSWORD", password);
        }
        for (name, path) in [
            ("PGSSLROOTCERT", &self.ssl_root_cert),
            ("PGSSLCERT", &self.ssl_cert),
            ("PGSSLKEY", &self.ssl_key),
        ] {
            if let Some(path) = path {
                command.env(name, path);
            }
        }
        for (name, value) in &self.others {
            if name == "options" {
                command.env("PGOPTIONS", value);
            }
        }
    }
}

impl SslMode {
    /// As libpq calls it.
    pub fn name(self) -> &'static str {
        match self {
            SslMode::Disable => "disable",
            SslMode::Prefer => "prefer",
            SslMode::Require => "require",
            SslMode::VerifyCa => "verify-ca",
            SslMode::VerifyFull => "verify-full",
        }
    }
}

/// Never shows the password.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", percent_encode(user))?;
        }
        for (at, address) in self.addresses.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match address {
                Address::Unix(_) => {
                    let (folder, port) = address.host_and_port();
                    write!(f, "{comma}{}:{port}", percent_encode(&folder))?;
                }
                Address::Tcp { .. } => write!(f, "{comma}{address}")?,
            }
        }
        if let Some(database) = &self.database {
            write!(f, "/{}", percent_encode(database))?;
        }
        // What it takes to connect again, when the URL is copied or read from a recording.
        let mode = (self.ssl_mode != SslMode::Prefer).then(|| self.ssl_mode.name().to_owned());
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let parameters = [
            ("sslmode", mode),
            ("sslrootcert", path(&self.ssl_root_cert)),
            ("sslcert", path(&self.ssl_cert)),
            ("sslkey", path(&self.ssl_key)),
        ];
        let given = parameters
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        for (at, (name, value)) in given.enumerate() {
            let separator = if at == 0 { '?' } else { '&' };
            write!(f, "{separator}{name}={}", percent_encode(&value))?;
        }
        Ok(())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.ssl_mode)
    }
}

/// Hosts and ports are lists; one port is for all hosts.
fn addresses(settings: &Settings) -> Result<Vec<Address>, UrlError> {
    let list = |name: &str| {
        let given = settings.get(name).filter(|list| !list.is_empty());
        given.map(|list| list.split(',').collect::<Vec<_>>())
    };
    let hosts = list("host").or_else(|| list("hostaddr"));
    let hosts = hosts.unwrap_or_else(|| vec![SOCKET_FOLDER]);
    let ports = list("port").unwrap_or_else(|| vec![""]);
    if ports.len() > 1 && ports.len() != hosts.len() {
        return Err(UrlError::PortCount {
            hosts: hosts.len(),
            ports: ports.len(),
        });
    }
    let port = |text: &str| match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ if text.is_empty() => Ok(DEFAULT_PORT),
        _ => Err(UrlError::Port(text.to_owned())),
    };
    hosts
        .iter()
        .zip(ports.iter().cycle())
        .map(|(host, text)| Ok(address(host, port(text)?)))
        .collect()
}

fn address(host: &str, port: u16) -> Address {
    match host {
        "" => Address::Unix(format!("{SOCKET_FOLDER}/.s.PGSQL.{port}").into()),
        // Like libpq, a folder; unlike libpq, also the socket itself, as it shows up in `ls`.
        path if path.starts_with('/') && path.contains("/.s.PGSQL.") => Address::Unix(host.into()),
        path if path.starts_with('/') => {
            Address::Unix(format!("{}/.s.PGSQL.{port}", path.trim_end_matches('/')).into())
        }
        _ => Address::Tcp {
            host: host.to_owned(),
            port,
        },
    }
}

fn ssl_mode(text: &str) -> Result<SslMode, UrlError> {
    Ok(match text {
        "disable" => SslMode::Disable,
        "allow" | "prefer" => SslMode::Prefer,
        "require" => SslMode::Require,
        "verify-ca" => SslMode::VerifyCa,
        "verify-full" => SslMode::VerifyFull,
        _ => return Err(UrlError::SslMode(text.to_owned())),
    })
}

#[cfg(test)]
mod tests;
