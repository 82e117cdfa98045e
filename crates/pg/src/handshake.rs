//! What is said between opening a socket and the first query. Pure: messages in, bytes out.
//!
//! ```text
//!   ssl_request ─▶ ssl_answer ─▶ (TLS) ─▶ begin ─▶ on_message … ─▶ Session
//! ```
//!
//! Passwords in clear text, MD5 and SCRAM-SHA-256, the last one bound to the encrypted connection
//! (`-PLUS`) where the server offers it.

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::BytesMut;
use hindcast_wire::message::backend;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding as Bound, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::frontend;

use crate::error::{AttemptError, Error, ServerError};
use crate::tls;
use crate::url::{Address, ChannelBinding, DatabaseUrl, SslMode};

/// What a session is for.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Ask for a replication session: `START_REPLICATION` and its like work, and simple queries.
    pub replication: bool,
    /// Another database than the URL's.
    pub database: Option<String>,
    /// Settings of the session, `application_name` among them.
    pub settings: Vec<(String, String)>,
}

impl ConnectOptions {
    pub fn named(application_name: &str) -> Self {
        Self {
            settings: vec![("application_name".to_owned(), application_name.to_owned())],
            ..Self::default()
        }
    }

    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Asks the server whether it encrypts. It answers with one byte: see [`ssl_answer`].
pub fn ssl_request(out: &mut BytesMut) {
    frontend::ssl_request(out);
}

/// Whether TLS is what comes next.
pub fn ssl_answer(answer: u8, mode: SslMode) -> Result<bool, AttemptError> {
    match answer {
        b'S' => Ok(true),
        b'N' if mode == SslMode::Prefer => Ok(false),
        b'N' => Err(AttemptError::NoTls),
        other => Err(AttemptError::NotPostgres(other)),
    }
}

/// What is known of a session that is ready for its first query.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// What the server reported of itself (`ParameterStatus`).
    pub parameters: HashMap<String, String>,
    /// The process that serves it, and the word with which it can be asked to stop.
    pub process: u32,
    pub secret: u32,
}

impl Session {
    pub(crate) fn note_parameter(&mut self, body: &[u8]) -> Result<(), Error> {
        let (name, value) = backend::parse_parameter_status(body)
            .map_err(|error| Error::Protocol(error.to_string()))?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.parameters.insert(text(name), text(value));
        Ok(())
    }
}

/// A login under way.
pub struct Handshake {
    user: String,
    password: Option<String>,
    exposed_passfile: Option<PathBuf>,
    binding: ChannelBinding,
    /// The hash of the server's certificate, where it can be bound to.
    certificate: Option<Vec<u8>>,
    encrypted: bool,
    state: State,
    session: Session,
}

enum State {
    /// The server has not said yet whether it lets us in.
    Asking,
    Scram {
        exchange: ScramSha256,
        bound: bool,
    },
    /// It knows the password, too, and whether it was bound to the connection.
    Proven {
        bound: bool,
    },
    /// It did. What follows describes the session.
    Accepted,
}

impl Handshake {
    /// Writes the `StartupMessage`. `certificate` is the server's, in DER, where the connection is
    /// encrypted.
    pub fn begin(
        url: &DatabaseUrl,
        address: &Address,
        options: &ConnectOptions,
        certificate: Option<&[u8]>,
        out: &mut BytesMut,
    ) -> Result<Self, AttemptError> {
        let user = url.user();
        let database = options.database.clone().unwrap_or_else(|| url.database());
        let mut parameters = vec![
            ("user", user.as_str()),
            ("database", database.as_str()),
            ("client_encoding", "UTF8"),
        ];
        if options.replication {
            parameters.push(("replication", "database"));
        }
        let given = url.others.iter().chain(&options.settings);
        parameters.extend(given.map(|(name, value)| (name.as_str(), value.as_str())));
        frontend::startup_message(parameters, out)?;
        Ok(Self {
            password: url.password(address, &database),
            exposed_passfile: url.exposed_passfile().cloned(),
            user,
            binding: url.channel_binding,
            certificate: certificate.and_then(tls::endpoint_hash),
            encrypted: certificate.is_some(),
            state: State::Asking,
            session: Session::default(),
        })
    }

    /// Takes one message of the server, writes the answer if there is one, and returns the session
    /// once it is ready.
    pub fn on_message(
        &mut self,
        tag: u8,
        body: &[u8],
        out: &mut BytesMut,
    ) -> Result<Option<Session>, AttemptError> {
        match (tag, &self.state) {
            (b'E', _) => {
                let error = ServerError::parse(body).map_err(AttemptError::Session)?;
                return Err(AttemptError::Session(Error::Server(Box::new(error))));
            }
            (b'N', _) => {}
            (b'R', State::Asking | State::Scram { .. } | State::Proven { .. }) => {
                self.authenticate(body, out)?
            }
            (b'S', State::Accepted) => {
                let noted = self.session.note_parameter(body);
                noted.map_err(AttemptError::Session)?;
            }
            (b'K', State::Accepted) => {
                let word = |at: usize| {
                    let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
                    bytes.map_or(0, u32::from_be_bytes)
                };
                (self.session.process, self.session.secret) = (word(0), word(4));
            }
            (b'Z', State::Accepted) => return Ok(Some(std::mem::take(&mut self.session))),
            // A newer server's minor protocol version, or options it does not know.
            (b'v', _) => {}
            (other, _) => {
                return Err(AttemptError::Session(Error::Protocol(format!(
                    "{:?} while logging in",
                    char::from(other)
                ))));
            }
        }
        Ok(None)
    }

    fn authenticate(&mut self, body: &[u8], out: &mut BytesMut) -> Result<(), AttemptError> {
        let unsupported = |what: &str| AttemptError::Authentication(what.to_owned());
        let Some((kind, data)) = body.split_first_chunk() else {
            return Err(unsupported("cut off"));
        };
        let kind = u32::from_be_bytes(*kind);
        match kind {
            0 => self.accept()?,
            3 => frontend::password_message(self.password()?.as_bytes(), out)?,
            5 => {
                let salt = data
                    .try_into()
                    .map_err(|_| unsupported("md5 with a salt of another length"))?;
                let hash = md5_hash(self.user.as_bytes(), self.password()?.as_bytes(), salt);
                frontend::password_message(hash.as_bytes(), out)?;
            }
            10 => self.begin_scram(data, out)?,
            11 => {
                let State::Scram { exchange, .. } = &mut self.state else {
                    return Err(unsupported("SASL that was not begun"));
                };
                exchange.update(data)?;
                frontend::sasl_response(exchange.message(), out)?;
            }
            12 => {
                let State::Scram { exchange, bound } = &mut self.state else {
                    return Err(unsupported("SASL that was not begun"));
                };
                exchange.finish(data)?;
                self.state = State::Proven { bound: *bound };
            }
            7..=9 => return Err(unsupported("GSSAPI or SSPI")),
            other => return Err(unsupported(&format!("number {other}"))),
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<(), AttemptError> {
        let bound = match self.state {
            State::Proven { bound } => bound,
            State::Scram { .. } => {
                let reason = "SCRAM without the server's half".to_owned();
                return Err(AttemptError::Authentication(reason));
            }
            State::Asking | State::Accepted => false,
        };
        if self.binding == ChannelBinding::Require && !bound {
            return Err(AttemptError::NoChannelBinding);
        }
        self.state = State::Accepted;
        Ok(())
    }

    fn begin_scram(&mut self, offer: &[u8], out: &mut BytesMut) -> Result<(), AttemptError> {
        let offers = |name: &str| {
            let mut mechanisms = offer.split(|&byte| byte == 0);
            mechanisms.any(|mechanism| mechanism == name.as_bytes())
        };
        let wanted = self.encrypted && self.binding != ChannelBinding::Disable;
        let certificate = self.certificate.clone().filter(|_| wanted);
        let (mechanism, binding) = match certificate {
            Some(hash) if offers(SCRAM_SHA_256_PLUS) => {
                (SCRAM_SHA_256_PLUS, Bound::tls_server_end_point(hash))
            }
            // Says that we could have: a server that offered it would know that the offer was taken
            // out on the way.
            Some(_) => (SCRAM_SHA_256, Bound::unrequested()),
            None => (SCRAM_SHA_256, Bound::unsupported()),
        };
        if !offers(mechanism) {
            let names = String::from_utf8_lossy(offer).replace('\0', " ");
            return Err(AttemptError::Authentication(names.trim().to_owned()));
        }
        let exchange = ScramSha256::new(self.password()?.as_bytes(), binding);
        frontend::sasl_initial_response(mechanism, exchange.message(), out)?;
        self.state = State::Scram {
            exchange,
            bound: mechanism == SCRAM_SHA_256_PLUS,
        };
        Ok(())
    }

    fn password(&self) -> Result<&str, AttemptError> {
        let none = || AttemptError::NoPassword {
            exposed: self.exposed_passfile.clone(),
        };
        self.password.as_deref().ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays the server's messages to a login; what it ends with.
    fn play(url: &str, messages: &[(u8, &[u8])]) -> Result<Option<Session>, String> {
        let url: DatabaseUrl = url.parse().unwrap();
        let mut out = BytesMut::new();
        let options = ConnectOptions::named("test");
        let mut login =
            Handshake::begin(&url, &url.addresses[0], &options, None, &mut out).unwrap();
        let mut session = None;
        for (tag, body) in messages {
            session = login
                .on_message(*tag, body, &mut out)
                .map_err(|error| error.to_string())?;
        }
        Ok(session)
    }

    const ACCEPTED: (u8, &[u8]) = (b'R', &[0, 0, 0, 0]);
    const SCRAM: (u8, &[u8]) = (b'R', b"\0\0\0\x0ASCRAM-SHA-256\0\0");

    #[test]
    fn a_session_begins_when_the_server_is_ready() {
        let parameter: (u8, &[u8]) = (b'S', b"server_version\x0017.1\0");
        let key: (u8, &[u8]) = (b'K', &[0, 0, 0, 7, 1, 2, 3, 4]);
        let messages = [ACCEPTED, parameter, (b'N', b"\0"), key, (b'Z', b"I")];
        let session = play("postgres://u@h/d", &messages).unwrap().unwrap();
        assert_eq!((session.process, session.secret), (7, 0x01020304));
        assert_eq!(session.parameters["server_version"], "17.1");
        assert!(play("postgres://u@h/d", &messages[..4]).unwrap().is_none());
    }

    #[test]
    fn a_server_that_skips_its_half_is_refused() {
        let check = |url: &str, messages: &[(u8, &[u8])], expected: &str| {
            let refused = play(url, messages).map(drop).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        };
        check("postgres://u:p@h/d", &[SCRAM, ACCEPTED], "server's half");
        check(
            "postgres://u:p@h/d",
            &[(b'Z', b"I")],
            "'Z' while logging in",
        );
        check("postgres://u:p@h/d", &[(b'R', b"\0\0")], "cut off");
        check("postgres://u:p@h/d", &[(b'R', b"\0\0\0\x0B")], "not begun");
        check("postgres://u:p@h/d", &[(b'R', b"\0\0\0\x07")], "GSSAPI");
        let plus = (b'R', &b"\0\0\0\x0ASCRAM-SHA-256-PLUS\0\0"[..]);
        check("postgres://u:p@h/d", &[plus], "SCRAM-SHA-256-PLUS");
        let required = "postgres://u:p@h/d?channel_binding=require";
        check(required, &[ACCEPTED], "channel_binding=require");
    }
}
