//! How a connection becomes a session.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hindcast_pg::scram::{Exchange, ScramError, Verifier};
use hindcast_wire::message::backend::{self, Status};
use hindcast_wire::message::frontend::{
    CANCEL_REQUEST, GSSENC_REQUEST, PASSWORD, PROTOCOL_3_0, SSL_REQUEST, Startup,
};
use ring::rand::{SecureRandom, SystemRandom};

use super::answer::put_error;
use super::link::{Link, LinkError};
use super::place::Place;
use super::settings::Settings;
use super::sql::SqlError;

/// Kinds of `Authentication` requests behind the offer of mechanisms.
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// How long a connection may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers what comes before the first query; `None` if there will not be one.
pub fn startup(link: &mut Link, place: &Place) -> Option<Settings> {
    link.set_patience(Some(PATIENCE)).ok()?;
    // A client asks for each kind of encryption once.
    for _ in 0..3 {
        let packet = match link.startup() {
            Ok(packet) => packet,
            Err(LinkError::Garbage(what)) => {
                refuse(link, &SqlError::new("08P01", what));
                return None;
            }
            Err(LinkError::Closed | LinkError::Silent) => return None,
        };
        let code = packet.get(4..8).map(|code| {
            u32::from_be_bytes(
                code.try_into()
                    .unwrap_or_else(|_| unreachable!("four bytes")),
            )
        })?;
        match code {
            SSL_REQUEST | GSSENC_REQUEST => {
                let tls = place.shared.tls.as_ref();
                let tls = tls.filter(|_| code == SSL_REQUEST && !link.is_encrypted());
                link.out.put_u8(if tls.is_some() { b'S' } else { b'N' });
                link.flush().ok()?;
                if let Some(config) = tls {
                    link.encrypt(Arc::clone(config)).ok()?;
                }
            }
            CANCEL_REQUEST => {
                let process = packet.get(8..12)?.try_into().map(u32::from_be_bytes).ok()?;
                place.shared.cancel(process, &packet[12..]);
                return None;
            }
            _ => {
                let permitted = must_be_encrypted(link, place);
                let settings = match permitted.and_then(|()| session(link, place, &packet)) {
                    Ok(settings) => settings,
                    Err(error) => {
                        refuse(link, &error);
                        return None;
                    }
                };
                link.flush().ok()?;
                link.set_patience(None).ok()?;
                return Some(settings);
            }
        }
    }
    None
}

/// Before anything is said that others should not hear.
fn must_be_encrypted(link: &Link, place: &Place) -> Result<(), SqlError> {
    match place.shared.tls.is_none() || link.is_encrypted() {
        true => Ok(()),
        false => Err(
            SqlError::new("28000", "connections are accepted encrypted only")
                .hint("connect with sslmode=require"),
        ),
    }
}

fn session(link: &mut Link, place: &Place, packet: &[u8]) -> Result<Settings, SqlError> {
    let startup = Startup::parse(packet)
        .map_err(|error| SqlError::new("08P01", format!("invalid startup packet: {error}")))?;
    if startup.version >> 16 != 3 {
        return Err(SqlError::new(
            "0A000",
            format!(
                "unsupported frontend protocol {}.{}: server supports 3.0",
                startup.version >> 16,
                startup.version & 0xFFFF
            ),
        ));
    }
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    if startup.is_replication() {
        return Err(SqlError::new("0A000", "there is no replication from here")
            .hint("replicate from the primary"));
    }
    let user = startup.get("user").map(text).unwrap_or_default();
    if user.is_empty() {
        return Err(SqlError::new(
            "28000",
            "no PostgreSQL user name specified in startup packet",
        ));
    }
    let served = &place.shared.database;
    if let Some(database) = startup.get("database").map(text)
        && !database.is_empty()
        && database != *served
    {
        return Err(
            SqlError::new("3D000", format!("database \"{database}\" does not exist"))
                .hint(format!("this server has \"{served}\" and no other")),
        );
    }
    let mut settings = Settings::new(&place.shared.server_version, &user);
    let mut unknown = Vec::new();
    for (name, value) in startup.parameters() {
        let (name, value) = (text(name), text(value));
        match name.to_ascii_lowercase().as_str() {
            "user" | "database" | "replication" => {}
            "options" => {
                for (name, value) in options(&value)? {
                    settings.set(&name, &value)?;
                }
            }
            other if other.starts_with("_pq_.") => unknown.push(name),
            // A client that is told of no other encoding takes this one.
            "client_encoding" if value.eq_ignore_ascii_case("auto") => {}
            _ => {
                settings.set(&name, &value)?;
            }
        }
    }
    settings.started();
    if let Some(verifier) = &place.shared.password {
        authenticate(link, verifier, &user)?;
    }
    if !place.admit() {
        return Err(SqlError::new("53300", "sorry, too many clients already")
            .hint("close sessions that are not needed, or put a connection pooler in front"));
    }
    if startup.version != PROTOCOL_3_0 || !unknown.is_empty() {
        negotiate(&mut link.out, &unknown);
    }
    welcome(&mut link.out, place, &settings);
    Ok(settings)
}

/// From the end of the login to where the first query is awaited.
fn welcome(out: &mut BytesMut, place: &Place, settings: &Settings) {
    backend::authentication(out, 0, &[]);
    for (name, value) in settings.reported() {
        backend::parameter_status(out, name.as_bytes(), value.as_bytes());
    }
    backend::backend_key_data(out, place.process, &place.secret);
    backend::ready_for_query(out, Status::Idle);
}

/// Lets in who knows the password.
fn authenticate(link: &mut Link, verifier: &Verifier, user: &str) -> Result<(), SqlError> {
    let mut nonce = [0; 18];
    SystemRandom::new()
        .fill(&mut nonce)
        .map_err(|_| SqlError::new("XX000", "there is no randomness for a login"))?;
    backend::authentication(&mut link.out, backend::SASL, &Exchange::offer());
    let first = said(link)?;
    let refused = |error| refusal(error, user);
    let (exchange, reply) = Exchange::begin(verifier, &first, &nonce).map_err(refused)?;
    backend::authentication(&mut link.out, SASL_CONTINUE, &reply);
    let second = said(link)?;
    let proof = exchange.finish(verifier, &second).map_err(refused)?;
    backend::authentication(&mut link.out, SASL_FINAL, &proof);
    Ok(())
}

/// The body of a message that answers a question about the password.
fn said(link: &mut Link) -> Result<Bytes, SqlError> {
    let gone = || SqlError::new("08006", "the client is gone");
    link.flush().map_err(|_| gone())?;
    match link.message() {
        Ok(message) if message.tag() == PASSWORD => Ok(message.0.slice(5..)),
        Ok(_) => Err(SqlError::new("08P01", "expected SASL response")),
        Err(LinkError::Garbage(what)) => Err(SqlError::new("08P01", what)),
        Err(LinkError::Closed | LinkError::Silent) => Err(gone()),
    }
}

fn refusal(error: ScramError, user: &str) -> SqlError {
    match error {
        ScramError::Wrong => SqlError::new(
            "28P01",
            format!("password authentication failed for user \"{user}\""),
        ),
        error => SqlError::new("08P01", error.to_string()),
    }
}

/// Which version it will be after all, and which of the protocol's options are unknown.
fn negotiate(out: &mut BytesMut, unknown: &[String]) {
    let length: usize = 12 + unknown.iter().map(|name| name.len() + 1).sum::<usize>();
    out.put_u8(backend::NEGOTIATE_PROTOCOL_VERSION);
    // Both are bounded by the startup packet's length.
    out.put_u32(length as u32);
    out.put_u32(PROTOCOL_3_0);
    out.put_u32(unknown.len() as u32);
    for name in unknown {
        out.put_slice(name.as_bytes());
        out.put_u8(0);
    }
}

/// The settings of `-c name=value --name=value`. A backslash makes the next character an ordinary
/// one.
fn options(text: &str) -> Result<Vec<(String, String)>, SqlError> {
    let mut words = vec![String::new()];
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        let last = words.len() - 1;
        match c {
            '\\' => words[last].extend(characters.next()),
            c if c.is_ascii_whitespace() => words.push(String::new()),
            c => words[last].push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    let mut settings = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let pair = match (word.strip_prefix("--"), word.strip_prefix("-c")) {
            (Some(pair), _) => Some(pair.to_owned()),
            (None, Some("")) => words.next(),
            (None, Some(pair)) => Some(pair.to_owned()),
            (None, None) => None,
        };
        match pair.as_deref().and_then(|pair| pair.split_once('=')) {
            Some((name, value)) => settings.push((name.replace('-', "_"), value.to_owned())),
            None => {
                return Err(SqlError::new(
                    "42601",
                    format!("invalid command-line argument for server process: {word}"),
                ));
            }
        }
    }
    Ok(settings)
}

/// Ends a connection with a reason.
fn refuse(link: &mut Link, error: &SqlError) {
    put_error(&mut link.out, "FATAL", error);
    // Whether it is heard is not known in any case.
    let _ = link.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_postgres_reads_them() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            options("-c statement_timeout=5s --search-path=a\\ b -cjit=off").unwrap(),
            [
                pair("statement_timeout", "5s"),
                pair("search_path", "a b"),
                pair("jit", "off")
            ]
        );
        assert!(options("-B 16").is_err());
    }
}
