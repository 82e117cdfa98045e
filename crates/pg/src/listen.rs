//! Where something of ours listens.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// `:6432` (this machine only), `0.0.0.0:6432` (every IPv4 interface), `[::]:6432` (every
/// interface), `localhost:6432`, or the path of a unix socket.
///
/// The same everywhere: the ingress, the gateway, the standby in memory, metrics. What they serve
/// is data, so other machines reach it only where that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// The host that is meant where none is given.
const THIS_MACHINE: &str = "127.0.0.1";

impl ListenAddress {
    /// A port that only this machine reaches.
    pub fn on_this_machine(port: u16) -> Self {
        Self::Tcp {
            host: THIS_MACHINE.to_owned(),
            port,
        }
    }

    /// Whether only this machine reaches it.
    pub fn is_of_this_machine(&self) -> bool {
        match self {
            Self::Tcp { host, .. } => match host.parse::<IpAddr>() {
                Ok(address) => address.is_loopback(),
                Err(_) => host == "localhost",
            },
            Self::Unix(_) => true,
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        let wrong = || {
            format!(
                "`{text}` is not :PORT (this machine only), HOST:PORT or the path of a unix socket; \
                 0.0.0.0:PORT is every IPv4 interface, [::]:PORT every interface"
            )
        };
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let port = port.parse().map_err(|_| wrong())?;
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']').ok_or_else(wrong)?,
            // Without brackets it is not clear where the address ends.
            None if host.contains([':', ']']) => return Err(wrong()),
            None => host,
        };
        Ok(match host {
            "" => Self::on_this_machine(port),
            host => Self::Tcp {
                host: host.to_owned(),
                port,
            },
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "127.0.0.1:0",
            "0.0.0.0:8080",
            "localhost:6432",
            "[::1]:6432",
            "[::]:6432",
            "/tmp/.s.PGSQL.6432",
        ] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        for wrong in [
            "localhost",
            "localhost:http",
            "::1:5433",
            "[::1:5433",
            "::1]:5433",
            "host:70000",
            "",
        ] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        for text in [":8080", "8080", "[]:8080"] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), "127.0.0.1:8080", "{text}");
        }
        for (text, expected) in [
            (":1", true),
            ("127.8.8.8:1", true),
            ("[::1]:1", true),
            ("localhost:1", true),
            ("/run/socket", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.1.2.3:1", false),
            ("db.example:1", false),
        ] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.is_of_this_machine(), expected, "{text}");
        }
    }
}
