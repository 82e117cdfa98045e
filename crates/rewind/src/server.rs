//! Control connections: not to the database that is cloned, but to one beside it.

use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls};

use crate::error::RewindError;

/// A server as a database URL names it.
#[derive(Clone)]
pub(crate) struct Server {
    config: Config,
    url: String,
    /// The database that the URL names.
    pub database: String,
}

impl Server {
    pub fn new(url: &str) -> Result<Self, RewindError> {
        let refuse = |reason: String| RewindError::Url {
            url: without_password(url),
            reason,
        };
        let mut config: Config = url
            .parse()
            .map_err(|error: tokio_postgres::Error| refuse(deepest(&error)))?;
        let database = config
            .get_dbname()
            .or(config.get_user())
            .ok_or_else(|| refuse("it names neither a database nor a user".to_owned()))?
            .to_owned();
        config.application_name("hindcast");
        Ok(Self {
            config,
            url: url.to_owned(),
            database,
        })
    }

    /// For messages.
    pub fn shown(&self) -> String {
        without_password(&self.url)
    }

    pub async fn connect(&self, database: &str) -> Result<Client, RewindError> {
        let mut config = self.config.clone();
        config.dbname(database);
        let (client, connection) =
            config
                .connect(NoTls)
                .await
                .map_err(RewindError::database(format!(
                    "connect to the database {database} of {}",
                    self.shown()
                )))?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// A session in a database that nobody minds, so that the one of the URL has no session of ours.
    pub async fn connect_beside(&self) -> Result<Client, RewindError> {
        let mut first_error = None;
        for database in ["postgres", "template1"] {
            if database == self.database {
                continue;
            }
            match self.connect(database).await {
                Ok(client) => return Ok(client),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.expect("at least one of two databases has another name"))
    }

    /// The URL of another database of the same server.
    pub fn url_of(&self, database: &str) -> String {
        let mut url = String::from("postgres://");
        if let Some(user) = self.config.get_user() {
            url.push_str(&percent_encode(user));
            if let Some(password) = self.config.get_password() {
                url.push(':');
                url.push_str(&percent_encode(&String::from_utf8_lossy(password)));
            }
            url.push('@');
        }
        let ports = self.config.get_ports();
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .enumerate()
            .map(|(index, host)| {
                let host = match host {
                    Host::Tcp(name) if name.contains(':') => format!("[{name}]"),
                    Host::Tcp(name) => percent_encode(name),
                    Host::Unix(folder) => percent_encode(&folder.display().to_string()),
                };
                match ports.get(index).or(ports.last()) {
                    Some(port) => format!("{host}:{port}"),
                    None => host,
                }
            })
            .collect();
        url.push_str(&hosts.join(","));
        url.push('/');
        url.push_str(&percent_encode(database));
        url
    }

    pub fn password(&self) -> Option<String> {
        self.config
            .get_password()
            .map(|password| String::from_utf8_lossy(password).into_owned())
    }

    /// The URL as given, without the password: command lines are for everybody to read.
    pub fn url_without_password(&self) -> String {
        without_password(&self.url)
    }
}

/// `postgres://user:secret@host/db?password=secret` and `user=… password=secret` without the secret.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Keyword form; a quoted password may hold spaces, so it is cut with care.
        let Some(start) = url.find("password") else {
            return url.to_owned();
        };
        let value = url[start..]
            .find('=')
            .map_or(url.len(), |at| start + at + 1);
        let tail = url[value..].trim_start();
        let end = match tail.strip_prefix('\'') {
            Some(quoted) => {
                let mut escaped = false;
                let close = quoted.char_indices().find(|(_, character)| {
                    let ends = !escaped && *character == '\'';
                    escaped = !escaped && *character == '\\';
                    ends
                });
                close.map_or(tail.len(), |(at, _)| at + 2)
            }
            None => tail.find(char::is_whitespace).unwrap_or(tail.len()),
        };
        return format!("{}{}", &url[..start], tail[end..].trim_start());
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => format!("{}@{host}", user.split(':').next().unwrap_or(user)),
        None => authority.to_owned(),
    };
    let path = match path.split_once('?') {
        Some((path, query)) => {
            let kept: Vec<_> = query
                .split('&')
                .filter(|pair| !pair.starts_with("password="))
                .collect();
            if kept.is_empty() {
                path.to_owned()
            } else {
                format!("{path}?{}", kept.join("&"))
            }
        }
        None => path.to_owned(),
    };
    format!("{scheme}://{authority}{path}")
}

pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The innermost cause, which says what is wrong.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// An SQL identifier, quoted.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// An SQL string, quoted.
pub(crate) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            (
                "postgres://u:p%40x@h:5/d?sslmode=disable",
                "postgres://u@h:5/d?sslmode=disable",
            ),
            (
                "postgres://u@h/d?password=p&connect_timeout=3",
                "postgres://u@h/d?connect_timeout=3",
            ),
            ("postgres://h/d", "postgres://h/d"),
            ("host=h password='a \\' b' user=u", "host=h user=u"),
            ("host=h user=u password=p", "host=h user=u "),
            ("host=h user=u", "host=h user=u"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn the_url_of_a_database_beside_names_the_same_server() {
        let server = Server::new("postgres://u%40x:p%2F@%2Ftmp%2Fs:5433/d").unwrap();
        assert_eq!(server.database, "d");
        let beside = server.url_of("odd /%");
        assert_eq!(beside, "postgres://u%40x:p%2F@%2Ftmp%2Fs:5433/odd%20%2F%25");
        assert_eq!(Server::new(&beside).unwrap().database, "odd /%");
    }
}
