//! `postgres://` URLs, read as libpq reads them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

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
    pub connect_timeout: Duration,
    /// Parameters that only concern us as a client (`application_name`, `options`).
    pub others: Vec<(String, String)>,
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
    #[error("`{0}` holds a % that is not followed by two hex digits, or is not UTF-8")]
    Escape(String),
    #[error("sslmode `{0}` is not one of disable, allow, prefer, require, verify-ca, verify-full")]
    SslMode(String),
    #[error("`{name}` cannot be `{value}`")]
    Value { name: String, value: String },
    #[error("unknown parameter `{0}`")]
    Parameter(String),
}

const DEFAULT_PORT: u16 = 5432;
const SOCKET_FOLDER: &str = "/var/run/postgresql";

impl FromStr for DatabaseUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"))
            .ok_or(UrlError::Scheme)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        // A password may hold an unescaped `@`; a host may not.
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            Some((user, password)) => (non_empty(unescape(user)?), non_empty(unescape(password)?)),
            None => (None, None),
        };
        let mut url = Self {
            addresses: Vec::new(),
            user,
            password,
            database: non_empty(unescape(database)?),
            ssl_mode: SslMode::Prefer,
            ssl_root_cert: None,
            ssl_cert: None,
            ssl_key: None,
            connect_timeout: Duration::from_secs(10),
            others: Vec::new(),
        };
        let mut hosts: Vec<(String, Option<String>)> = hosts
            .split(',')
            .filter(|host| !host.is_empty())
            .map(split_host)
            .collect::<Result<_, _>>()?;
        let mut ports = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (unescape(name)?, unescape(value)?);
            match name.as_str() {
                "host" | "hostaddr" => {
                    hosts = value
                        .split(',')
                        .map(|host| (host.to_owned(), None))
                        .collect();
                }
                "port" => ports = value.split(',').map(str::to_owned).collect(),
                "user" => url.user = non_empty(value),
                "password" => url.password = non_empty(value),
                "dbname" => url.database = non_empty(value),
                "sslmode" => url.ssl_mode = ssl_mode(&value)?,
                "sslrootcert" => url.ssl_root_cert = non_empty(value).map(PathBuf::from),
                "sslcert" => url.ssl_cert = non_empty(value).map(PathBuf::from),
                "sslkey" => url.ssl_key = non_empty(value).map(PathBuf::from),
                "connect_timeout" => {
                    let seconds: u64 = value.parse().map_err(|_| UrlError::Value {
                        name: name.clone(),
                        value: value.clone(),
                    })?;
                    // libpq: zero waits for ever. Nobody wants that of a gateway.
                    url.connect_timeout =
                        Duration::from_secs(if seconds == 0 { 600 } else { seconds.max(2) });
                }
                "application_name" | "options" => url.others.push((name, value)),
                // Known to libpq, without meaning for a gateway.
                "target_session_attrs"
                | "load_balance_hosts"
                | "channel_binding"
                | "gssencmode"
                | "keepalives"
                | "keepalives_idle"
                | "keepalives_interval"
                | "keepalives_count"
                | "tcp_user_timeout"
                | "fallback_application_name"
                | "client_encoding"
                | "sslcompression"
                | "sslsni"
                | "krbsrvname"
                | "sslnegotiation"
                | "ssl_min_protocol_version"
                | "ssl_max_protocol_version"
                | "passfile" => {}
                _ => return Err(UrlError::Parameter(name)),
            }
        }
        if hosts.is_empty() {
            hosts.push((SOCKET_FOLDER.to_owned(), None));
        }
        if ports.len() > 1 && ports.len() != hosts.len() {
            return Err(UrlError::PortCount {
                hosts: hosts.len(),
                ports: ports.len(),
            });
        }
        for (at, (host, port)) in hosts.into_iter().enumerate() {
            let port = port
                .as_ref()
                .or_else(|| ports.get(at))
                .or_else(|| ports.first());
            let port = match port.map(String::as_str) {
                None | Some("") => DEFAULT_PORT,
                Some(text) => match text.parse() {
                    Ok(port) if port > 0 => port,
                    _ => return Err(UrlError::Port(text.to_owned())),
                },
            };
            url.addresses.push(address(host, port));
        }
        Ok(url)
    }
}

impl DatabaseUrl {
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
            connect_timeout: Duration::from_secs(10),
            others: Vec::new(),
        }
    }

    /// The user given, else `PGUSER`, else the user we run as.
    pub fn user(&self) -> String {
        let from_environment = || {
            ["PGUSER", "USER"]
                .iter()
                .find_map(|name| std::env::var(name).ok())
        };
        self.user
            .clone()
            .or_else(from_environment)
            .unwrap_or_else(|| "postgres".to_owned())
    }

    /// The database given, else the one named like the user.
    pub fn database(&self) -> String {
        self.database.clone().unwrap_or_else(|| self.user())
    }

    /// The password given, else `PGPASSWORD`.
    pub fn password(&self) -> Option<String> {
        self.password
            .clone()
            .or_else(|| std::env::var("PGPASSWORD").ok())
    }
}

/// Never shows the password.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", escape(user))?;
        }
        for (at, address) in self.addresses.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match address {
                Address::Unix(path) => write!(f, "{comma}{}", escape(&path.to_string_lossy()))?,
                Address::Tcp { .. } => write!(f, "{comma}{address}")?,
            }
        }
        match &self.database {
            Some(database) => write!(f, "/{}", escape(database)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.ssl_mode)
    }
}

/// `host`, `host:port`, `[::1]:port`, `%2Ffolder`, `%2Ffolder:port`.
fn split_host(text: &str) -> Result<(String, Option<String>), UrlError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| UrlError::Host(text.to_owned()))?;
        return match (rest, rest.strip_prefix(':')) {
            ("", _) => Ok((host.to_owned(), None)),
            (_, Some(port)) => Ok((host.to_owned(), Some(port.to_owned()))),
            _ => Err(UrlError::Host(text.to_owned())),
        };
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(UrlError::Host(text.to_owned())),
        Some((host, port)) => Ok((unescape(host)?, Some(port.to_owned()))),
        None => Ok((unescape(text)?, None)),
    }
}

fn address(host: String, port: u16) -> Address {
    match host.as_str() {
        "" => Address::Unix(format!("{SOCKET_FOLDER}/.s.PGSQL.{port}").into()),
        // Like libpq, a folder; unlike libpq, also the socket itself, as it shows up in `ls`.
        path if path.starts_with('/') && path.contains("/.s.PGSQL.") => Address::Unix(host.into()),
        path if path.starts_with('/') => {
            Address::Unix(format!("{}/.s.PGSQL.{port}", path.trim_end_matches('/')).into())
        }
        _ => Address::Tcp { host, port },
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

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn unescape(text: &str) -> Result<String, UrlError> {
    let failed = || UrlError::Escape(text.to_owned());
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || {
            bytes
                .next()
                .and_then(|digit| char::from(digit).to_digit(16))
        };
        let (high, low) = (digit().ok_or_else(failed)?, digit().ok_or_else(failed)?);
        out.push((high << 4 | low) as u8);
    }
    String::from_utf8(out).map_err(|_| failed())
}

fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte))
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(url: &str) -> Result<String, UrlError> {
        let url: DatabaseUrl = url.parse()?;
        Ok(url
            .addresses
            .iter()
            .map(Address::to_string)
            .collect::<Vec<_>>()
            .join(" "))
    }

    #[test]
    fn hosts_are_read_as_libpq_reads_them() {
        let check = |url: &str, expected: &str| {
            assert_eq!(addresses(url).as_deref(), Ok(expected), "{url}")
        };
        check("postgres://localhost/db", "localhost:5432");
        check(
            "postgresql://u:p@db.example:6000/db?sslmode=disable",
            "db.example:6000",
        );
        check("postgres://a:1,b:2,c/db", "a:1 b:2 c:5432");
        check("postgres://[::1]:7/db", "[::1]:7");
        check("postgres:///db", "/var/run/postgresql/.s.PGSQL.5432");
        check("postgres:///db?host=/tmp&port=7", "/tmp/.s.PGSQL.7");
        check("postgres://%2Ftmp%2Fx:9/db", "/tmp/x/.s.PGSQL.9");
        check("postgres:///db?host=/tmp/.s.PGSQL.9", "/tmp/.s.PGSQL.9");
        check("postgres:///db?host=a,b&port=1,2", "a:1 b:2");
        check("postgres:///db?host=a,b&port=1", "a:1 b:1");
    }

    #[test]
    fn mistakes_are_named() {
        let check =
            |url: &str, expected: UrlError| assert_eq!(addresses(url), Err(expected), "{url}");
        check("mysql://localhost", UrlError::Scheme);
        check("localhost:5432", UrlError::Scheme);
        check("postgres://h:port/db", UrlError::Port("port".into()));
        check("postgres://h:0/db", UrlError::Port("0".into()));
        check("postgres://[::1/db", UrlError::Host("[::1".into()));
        check(
            "postgres:///db?host=a,b,c&port=1,2",
            UrlError::PortCount { hosts: 3, ports: 2 },
        );
        check(
            "postgres://h/db?sslmode=full",
            UrlError::SslMode("full".into()),
        );
        check("postgres://h/d%zzb", UrlError::Escape("d%zzb".into()));
        check(
            "postgres://h/db?sslmod=full",
            UrlError::Parameter("sslmod".into()),
        );
    }

    #[test]
    fn the_password_is_read_and_never_shown() {
        let url: DatabaseUrl = "postgres://al%40ice:s%3Acr@et@h/shop%20x".parse().unwrap();
        assert_eq!(url.user.as_deref(), Some("al@ice"));
        assert_eq!(url.password.as_deref(), Some("s:cr@et"));
        assert_eq!(url.to_string(), "postgres://al%40ice@h:5432/shop%20x");
        assert!(!format!("{url:?}").contains("cr@et"));
        let again: DatabaseUrl = "postgres://al%40ice@%2Ftmp%2F.s.PGSQL.7/x".parse().unwrap();
        assert_eq!(
            again.to_string().parse::<DatabaseUrl>().unwrap().addresses,
            again.addresses
        );
    }

    proptest::proptest! {
        #[test]
        fn no_url_makes_it_panic(text in "(postgres://)?[a-z%0-9@:/?&=,\\[\\].]*") {
            let _ = text.parse::<DatabaseUrl>();
        }
    }
}
