//! Where a service listens that is replayed.

use std::fmt;

use hindcast_gateway::http::ServiceUrl;

#[derive(Clone, Debug)]
pub enum Place {
    Tcp(ServiceUrl),
    /// By the abstract name that its socket has in place of a path.
    Unix(String),
}

/// What a service listened on when it was recorded, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Port(u16),
    /// In the file system.
    Path(String),
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
