//! The messages before a session proper: requests for encryption, cancel requests, and the
//! `StartupMessage`.

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

const PROTOCOL_3: u32 = 3 << 16;
const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;

/// Length and code.
const HEAD: usize = 8;
/// Postgres' own limit for a startup packet.
const PACKET_BYTES_MAX: usize = 10_000;

/// The first byte of a TLS handshake, for clients that do not ask before they encrypt
/// (`sslnegotiation=direct`).
const TLS_HANDSHAKE: u8 = 0x16;

/// What a client's `StartupMessage` says: `user`, `database`, and settings for the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// `3 << 16 | minor`
    version: u32,
    /// In the client's order. Values need not be UTF-8.
    entries: Vec<(String, Vec<u8>)>,
}

impl Parameters {
    pub fn new(user: &str, database: &str) -> Self {
        let entry = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        Self {
            version: PROTOCOL_3,
            entries: vec![entry("user", user), entry("database", database)],
        }
    }

    /// The last value given, as Postgres takes it. Names are compared without case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.entries
            .iter()
            .rev()
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| &value[..])
    }

    /// Like [`Parameters::get`], empty if absent or not text.
    pub fn text(&self, name: &str) -> &str {
        self.get(name)
            .and_then(|value| std::str::from_utf8(value).ok())
            .unwrap_or_default()
    }

    pub fn set(&mut self, name: &str, value: &str) {
        debug_assert!(
            !name.contains('\0') && !value.contains('\0'),
            "parameters are terminated by NUL"
        );
        self.entries
            .retain(|(given, _)| !given.eq_ignore_ascii_case(name));
        self.entries
            .push((name.to_owned(), value.as_bytes().to_vec()));
    }

    pub fn user(&self) -> &str {
        self.text("user")
    }

    /// As Postgres does, the user's name if none was given.
    pub fn database(&self) -> &str {
        match self.text("database") {
            "" => self.user(),
            database => database,
        }
    }

    /// Whether this is to become a replication connection, which speaks another language than SQL
    /// sessions do.
    pub fn is_replication(&self) -> bool {
        match self.get("replication") {
            None => false,
            Some(value) => {
                let value = value.to_ascii_lowercase();
                !matches!(
                    &value[..],
                    b"false" | b"off" | b"no" | b"0" | b"f" | b"n" | b""
                )
            }
        }
    }

    /// Whether the session chooses a value for a setting: as a parameter, or with `-c` in
    /// `options`.
    pub fn chooses(&self, setting: &str) -> bool {
        if self.get(setting).is_some() {
            return true;
        }
        // `-c name=value`, `-cname=value` and `--name=value`, where dashes in the name stand for
        // underscores.
        let options = self.text("options").to_ascii_lowercase().replace('-', "_");
        options.split_ascii_whitespace().any(|word| {
            let word = word.trim_start_matches("__");
            let word = word.strip_prefix("_c").unwrap_or(word);
            word.split('=').next() == Some(setting)
        })
    }

    /// Appends the whole `StartupMessage`.
    pub fn encode(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_u32(0);
        out.put_u32(self.version);
        for (name, value) in &self.entries {
            out.put_slice(name.as_bytes());
            out.put_u8(0);
            out.put_slice(value);
            out.put_u8(0);
        }
        out.put_u8(0);
        let length = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// As `ProcessStartupPacket` reads it: names and values, each behind the other and ended by a
    /// NUL, until a name is empty; that NUL has to be the last byte.
    fn decode(version: u32, body: &[u8]) -> Result<Self, StartupError> {
        let mut entries = Vec::new();
        let mut rest = body;
        while let Some((name, behind)) = terminated(rest).filter(|(name, _)| !name.is_empty()) {
            let (value, behind) = terminated(behind).ok_or(StartupError::Layout)?;
            // One that is not text the server does not know either, and it says so.
            entries.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
            rest = behind;
        }
        match rest {
            [0] => Ok(Self { version, entries }),
            _ => Err(StartupError::Layout),
        }
    }
}

/// What a client opens a connection with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum First {
    SslRequest,
    GssEncRequest,
    /// The whole packet, to be forwarded as it is, and the key in it.
    Cancel {
        key: CancelKey,
        packet: Vec<u8>,
    },
    Startup(Parameters),
    /// Protocol 2 or something newer than 3.
    Unsupported {
        major: u32,
        minor: u32,
    },
}

/// Process id and secret. The secret has four bytes, or up to 256 since protocol 3.2.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CancelKey {
    pub process: u32,
    pub secret: Vec<u8>,
}

/// What comes before the next NUL, and what behind it.
fn terminated(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// What a client has asked for before it said who it is. Each may be asked for once: what comes
/// after it has to be the session's startup packet, or the other of the two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub ssl: bool,
    pub gss: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StartupError {
    /// The client is told so, as Postgres does. Where a packet has no sensible length it says
    /// nothing, and neither do we.
    #[error("the client's startup packet is not names and values, each with a terminator")]
    Layout,
    #[error("the client's startup packet is malformed: {0}")]
    Malformed(&'static str),
    /// The client connected and left: a port scan or a health check.
    #[error("the client left before it said anything")]
    Silent,
    #[error("the client's connection broke during startup")]
    Broken(#[source] std::io::Error),
}

/// Reads one packet, and nothing beyond it: what follows may be a TLS handshake.
pub(super) async fn read_first(
    stream: &mut (impl AsyncRead + Unpin),
    asked: Asked,
) -> Result<First, StartupError> {
    let mut head = [0; HEAD];
    fill(stream, &mut head[..4]).await?;
    // Before anything else is read: a client that sends no more than this would wait for ever.
    let length = length_of(&head)?;
    stream
        .read_exact(&mut head[4..])
        .await
        .map_err(|_| StartupError::Malformed("it ends within its header"))?;
    let mut packet = head.to_vec();
    packet.resize(length, 0);
    stream
        .read_exact(&mut packet[HEAD..])
        .await
        .map_err(StartupError::Broken)?;
    understand(packet, asked)
}

/// Takes one packet off `input`; `None` if it is not all there.
pub(crate) fn take_first(
    input: &mut BytesMut,
    asked: Asked,
) -> Result<Option<First>, StartupError> {
    let length = match input.len() {
        ..4 => return Ok(None),
        _ => length_of(input)?,
    };
    if input.len() < length {
        return Ok(None);
    }
    understand(input.split_to(length).to_vec(), asked).map(Some)
}

/// How long a packet is that begins so.
fn length_of(packet: &[u8]) -> Result<usize, StartupError> {
    let length = word(&packet[..4]) as usize;
    match (HEAD..=PACKET_BYTES_MAX).contains(&length) {
        true => Ok(length),
        false => Err(StartupError::Malformed("its length is out of bounds")),
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

fn understand(packet: Vec<u8>, asked: Asked) -> Result<First, StartupError> {
    let (head, body) = packet.split_at(HEAD);
    let code = word(&head[4..]);
    match (code, code >> 16) {
        (SSL_REQUEST, _) if !asked.ssl => Ok(First::SslRequest),
        (GSSENC_REQUEST, _) if !asked.gss => Ok(First::GssEncRequest),
        (CANCEL_REQUEST, _) if (8..=260).contains(&body.len()) => {
            let process = u32::from_be_bytes(body[..4].try_into().expect("four bytes"));
            let key = CancelKey {
                process,
                secret: body[4..].to_vec(),
            };
            Ok(First::Cancel { key, packet })
        }
        (CANCEL_REQUEST, _) => Err(StartupError::Malformed(
            "a cancel request of a strange length",
        )),
        (version, 3) => Parameters::decode(version, body).map(First::Startup),
        (_, major) => Ok(First::Unsupported {
            major,
            minor: code & 0xffff,
        }),
    }
}

/// Fills `bytes`, the first that a client sends. It may leave before it sends any.
async fn fill(stream: &mut (impl AsyncRead + Unpin), bytes: &mut [u8]) -> Result<(), StartupError> {
    let mut filled = 0;
    while filled < bytes.len() {
        match stream
            .read(&mut bytes[filled..])
            .await
            .map_err(StartupError::Broken)?
        {
            0 if filled == 0 => return Err(StartupError::Silent),
            0 => return Err(StartupError::Malformed("it ends within its header")),
            count => filled += count,
        }
    }
    Ok(())
}

pub(super) fn is_tls_handshake(first: u8) -> bool {
    first == TLS_HANDSHAKE
}

/// An `ErrorResponse` that ends a session.
pub(super) fn fatal(sqlstate: &str, message: &str, hint: Option<&str>) -> BytesMut {
    let mut out = BytesMut::with_capacity(64 + message.len());
    out.put_u8(b'E');
    out.put_u32(0);
    let fields = [
        (b'S', "FATAL"),
        (b'V', "FATAL"),
        (b'C', sqlstate),
        (b'M', message),
    ];
    for (field, value) in fields.into_iter().chain(hint.map(|hint| (b'H', hint))) {
        out.put_u8(field);
        out.put_slice(value.replace('\0', " ").as_bytes());
        out.put_u8(0);
    }
    out.put_u8(0);
    let length = (out.len() - 1) as u32;
    out[1..5].copy_from_slice(&length.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<First, StartupError> {
        read_after(bytes, Asked::default())
    }

    fn read_after(bytes: &[u8], asked: Asked) -> Result<First, StartupError> {
        futures::FutureExt::now_or_never(read_first(&mut &bytes[..], asked))
            .expect("a slice is always ready")
    }

    #[test]
    fn a_length_that_cannot_be_is_refused_before_more_is_read() {
        for length in [0u32, 7, 10_001, 1 << 30, u32::MAX] {
            // The client keeps the connection open, and sends nothing else.
            let (mut client, mut gateway) = tokio::io::duplex(64);
            let length_bytes = length.to_be_bytes();
            let sent = tokio::io::AsyncWriteExt::write_all(&mut client, &length_bytes);
            futures::FutureExt::now_or_never(sent).unwrap().unwrap();
            let first =
                futures::FutureExt::now_or_never(read_first(&mut gateway, Asked::default()));
            assert!(
                matches!(first, Some(Err(StartupError::Malformed(_)))),
                "{length}: {first:?}"
            );
        }
    }

    #[test]
    fn a_startup_message_survives_decoding_and_encoding() {
        let mut parameters = Parameters::new("alice", "shop");
        parameters.set("application_name", "psql");
        let mut packet = BytesMut::new();
        parameters.encode(&mut packet);
        assert_eq!(read(&packet).unwrap(), First::Startup(parameters.clone()));
        assert_eq!(
            (parameters.user(), parameters.database()),
            ("alice", "shop")
        );

        parameters.set("DATABASE", "other");
        assert_eq!(parameters.database(), "other");
        let no_database = Parameters {
            entries: vec![("user".into(), b"bob".to_vec())],
            ..parameters
        };
        assert_eq!(no_database.database(), "bob");
    }

    #[test]
    fn a_session_may_choose_its_isolation_in_several_ways() {
        let with = |name: &str, value: &str| {
            let mut parameters = Parameters::new("a", "b");
            parameters.set(name, value);
            parameters.chooses("default_transaction_isolation")
        };
        assert!(with("default_transaction_isolation", "serializable"));
        assert!(with("Default_Transaction_Isolation", "serializable"));
        assert!(with(
            "options",
            "-c default_transaction_isolation=serializable"
        ));
        assert!(with(
            "options",
            "-csearch_path=x -cdefault_transaction_isolation=serializable"
        ));
        assert!(with(
            "options",
            "--default-transaction-isolation=serializable"
        ));
        assert!(!with("options", "-c statement_timeout=5"));
        assert!(!with("application_name", "default_transaction_isolation"));
    }

    #[test]
    fn malformed_packets_are_told_apart() {
        assert!(matches!(read(&[]), Err(StartupError::Silent)));
        assert!(matches!(read(&[0, 0, 0]), Err(StartupError::Malformed(_))));
        assert!(matches!(
            read(&[0, 0, 0, 4, 0, 3, 0, 0]),
            Err(StartupError::Malformed(_))
        ));
        assert!(matches!(read(&[0xff; 8]), Err(StartupError::Malformed(_))));
        assert!(matches!(
            read(&[0, 0, 0, 12, 0, 3, 0, 0, b'a']),
            Err(StartupError::Broken(_))
        ));
        for body in [
            &b"a\0"[..],
            b"",
            b"user\0alice\0",
            b"user\0alice",
            b"user\0alice\0\0more\0",
            b"user\0alice\0\0\0",
        ] {
            let length = [0, 0, 0, body.len() as u8 + 8];
            let packet = [&length[..], &[0, 3, 0, 0], body].concat();
            assert!(
                matches!(read(&packet), Err(StartupError::Layout)),
                "{body:?}"
            );
        }
        assert_eq!(
            read(&[0, 0, 0, 8, 0, 2, 0, 0]).unwrap(),
            First::Unsupported { major: 2, minor: 0 }
        );
        let mut request = BytesMut::new();
        hindcast_pg::handshake::ssl_request(&mut request);
        assert_eq!(read(&request).unwrap(), First::SslRequest);
        let asked = Asked {
            ssl: true,
            gss: false,
        };
        assert_eq!(
            read_after(&request, asked).unwrap(),
            First::Unsupported {
                major: 1234,
                minor: 5679
            }
        );
    }

    proptest::proptest! {
        #[test]
        fn no_packet_makes_it_panic(bytes: Vec<u8>) {
            let _ = read(&bytes);
            let _ = Parameters::decode(PROTOCOL_3, &bytes);
        }
    }
}
