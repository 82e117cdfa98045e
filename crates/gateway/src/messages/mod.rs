//! Where messages end: of HTTP/1, and of what else a service speaks with others than its database.
//!
//! A connection that carries HTTP/1 or the protocol of Redis is cut into requests and answers. Of
//! all else is known that an answer follows what it answers.

mod body;
pub(crate) mod head;
pub mod redis;

pub(crate) use body::Body;
pub(crate) use head::{AnswerHead, Asked, Gathered};

/// What came is not what was expected to come.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    Redis,
    Other,
}

impl Protocol {
    /// By the first bytes that are sent; `None` if more are needed.
    pub fn of(first: &[u8]) -> Option<Self> {
        const METHOD_MAX: usize = 20;
        match first {
            [] | [b'*'] => None,
            [b'*', b'0'..=b'9', ..] => Some(Self::Redis),
            _ => {
                let letters = first.iter().take_while(|byte| byte.is_ascii_uppercase());
                let letters = letters.take(METHOD_MAX).count();
                match first.get(letters..)? {
                    _ if letters == 0 => Some(Self::Other),
                    [] | [b' '] => None,
                    [b' ', b'/' | b'*' | b'h', ..] => Some(Self::Http),
                    _ => Some(Self::Other),
                }
            }
        }
    }
}

/// What the one side says, cut into messages.
#[derive(Debug)]
pub enum Messages {
    Http(Box<Http>),
    Redis,
    /// Nothing says where a message ends.
    Other,
}

#[derive(Debug)]
pub struct Http {
    answers: bool,
    head: Gathered,
    body: Option<Body>,
}

impl Messages {
    pub fn asks(protocol: Protocol) -> Self {
        Self::new(protocol, false)
    }

    pub fn answers(protocol: Protocol) -> Self {
        Self::new(protocol, true)
    }

    fn new(protocol: Protocol, answers: bool) -> Self {
        match protocol {
            Protocol::Http => Self::Http(Box::new(Http {
                answers,
                head: Gathered::default(),
                body: None,
            })),
            Protocol::Redis => Self::Redis,
            Protocol::Other => Self::Other,
        }
    }

    /// Moves what belongs to a message from `bytes` to its end. True once the message is whole.
    /// `head_only`: what is answered is a HEAD.
    pub fn take(
        &mut self,
        bytes: &mut &[u8],
        message: &mut Vec<u8>,
        head_only: bool,
    ) -> Result<bool, Malformed> {
        match self {
            Self::Http(http) => {
                let before = *bytes;
                let whole = http.take(bytes, head_only);
                message.extend_from_slice(&before[..before.len() - bytes.len()]);
                whole
            }
            Self::Redis => {
                let before = message.len();
                message.extend_from_slice(bytes);
                let end = redis::end(message)?;
                if let Some(end) = end {
                    message.truncate(end);
                }
                *bytes = &bytes[message.len() - before..];
                Ok(end.is_some())
            }
            Self::Other => {
                message.extend_from_slice(std::mem::take(bytes));
                Ok(false)
            }
        }
    }
}

impl Http {
    fn take(&mut self, bytes: &mut &[u8], head_only: bool) -> Result<bool, Malformed> {
        loop {
            if let Some(body) = &mut self.body {
                let ended = body.take(bytes, |_| {})?;
                if ended {
                    self.body = None;
                }
                return Ok(ended);
            }
            let answers = self.answers;
            let parsed = self.head.take(bytes, |head| match answers {
                false => head::request(head).map(|(_, _, body)| Some(body)),
                true => head::answer(head).map(|head| match head.status {
                    // Another head follows.
                    100..=199 => None,
                    _ if head_only => Some(None),
                    _ => head.body(&Default::default()).ok(),
                }),
            });
            let Some(parsed) = parsed? else {
                return Ok(false);
            };
            match parsed? {
                None => {}
                Some(None | Some(Body::Length(0))) => return Ok(true),
                Some(body) => self.body = body,
            }
        }
    }
}

/// What a call asks for, in a few words: `GET /rates`, `HGET basket`.
pub fn title(sent: &[u8]) -> String {
    const LENGTH_MAX: usize = 80;
    let words: Vec<&[u8]> = match Protocol::of(sent) {
        Some(Protocol::Http) => sent.split(|&byte| byte == b' ').take(2).collect(),
        Some(Protocol::Redis) => redis::words(sent).take(2).collect(),
        _ => return format!("{} bytes", sent.len()),
    };
    let text = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    text.chars()
        .filter(|character| !character.is_control())
        .take(LENGTH_MAX)
        .collect()
}

/// Whether a call is about its connection only, so that any of the same bytes answers it, and
/// whether it names a password.
pub fn sets_up(sent: &[u8]) -> bool {
    const COMMANDS: [&str; 10] = [
        "auth", "hello", "select", "client", "ping", "info", "command", "readonly", "cluster",
        "echo",
    ];
    let first = redis_command(sent);
    first.is_some_and(|first| COMMANDS.contains(&first.as_str()))
}

/// What is kept of a message of Redis: without passwords.
pub fn without_password(sent: &[u8]) -> Option<Vec<u8>> {
    let command = redis_command(sent)?;
    let names_password = match command.as_str() {
        "auth" => true,
        "hello" => redis::words(sent).any(|word| word.eq_ignore_ascii_case(b"auth")),
        _ => false,
    };
    names_password.then(|| format!("*1\r\n${}\r\n{command}\r\n", command.len()).into_bytes())
}

/// What a call is compared by: without passwords, and scripts of Redis by their hashes. Who sends a
/// script itself is who comes first on a connection.
pub fn compared(sent: &[u8]) -> Option<Vec<u8>> {
    match Protocol::of(sent)? {
        Protocol::Redis => without_password(sent).or_else(|| redis::scripts_by_hash(sent)),
        _ => None,
    }
}

fn redis_command(sent: &[u8]) -> Option<String> {
    (Protocol::of(sent) == Some(Protocol::Redis)).then(|| redis::name(sent))
}

#[cfg(test)]
mod tests;
