//! Where a service listens that is replayed.

use std::fmt;

use hindcast_gateway::http::ServiceUrl;

#[derive(Clone, Debug)]
pub enum Place {
    Tcp(ServiceUrl),
    /// By the abstract name that its socket has in place of a path.
    Unix(String),
}

/// What a service listened on when it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    Port(u16),
    /// In the file system.
    Path(String),
}

impl Asked {
    /// Of an address as the recording has it: `127.0.0.1:8000`, `[::]:8000`, `unix:/run/app.sock`.
    pub fn recorded(address: &str) -> Option<Self> {
        if let Some(path) = address.strip_prefix("unix:") {
            return path
                .starts_with(['/', '.'])
                .then(|| Self::Path(path.to_owned()));
        }
        let (_, port) = address.rsplit_once(':')?;
        port.parse().ok().map(Self::Port)
    }
}

impl Place {
    /// Who is asked, by the address of a request with HTTP.
    pub fn authority(&self) -> String {
        match self {
            Self::Tcp(url) => url.authority().to_string(),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }

    pub async fn accepts(&self) -> bool {
        let connecting = async {
            match self {
                Self::Tcp(url) => url.connect().await.is_ok(),
                Self::Unix(name) => tokio::net::UnixStream::connect(format!("\0{name}"))
                    .await
                    .is_ok(),
            }
        };
        let patience = std::time::Duration::from_secs(1);
        tokio::time::timeout(patience, connecting).await == Ok(true)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(url) => url.fmt(f),
            Self::Unix(name) => write!(f, "the Unix socket @{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_port_or_a_path() {
        let recorded = |address| Asked::recorded(address);
        for address in ["127.0.0.1:8000", "[::1]:8000", "[::ffff:10.0.0.7]:8000"] {
            assert_eq!(recorded(address), Some(Asked::Port(8000)), "{address}");
        }
        let path = |path: &str| Some(Asked::Path(path.to_owned()));
        assert_eq!(recorded("unix:/run/app:1.sock"), path("/run/app:1.sock"));
        assert_eq!(recorded("unix:./app.sock"), path("./app.sock"));
        // These are not moved in a replay.
        assert_eq!(recorded("unix:@app"), None);
        assert_eq!(recorded("unix:"), None);
        assert_eq!(recorded(""), None);
    }
}
