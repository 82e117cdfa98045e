//! Where the body of a message ends.

use super::Malformed;

/// Of a chunk's size with what may follow it, and of trailers.
const LINE_MAX: usize = 16 << 10;
const TRAILERS_MAX: usize = 256 << 10;

/// What is left of a body.
#[derive(Debug)]
pub(crate) enum Body {
    Length(u64),
    Chunked(Chunked),
    UntilClosed,
}

impl Body {
    pub fn chunked() -> Self {
        Self::Chunked(Chunked {
            state: State::Size,
            line: Vec::new(),
        })
    }

    /// Takes as much as belongs to the body. True once it has ended.
    pub fn take<'a>(
        &mut self,
        bytes: &mut &'a [u8],
        mut data: impl FnMut(&'a [u8]),
    ) -> Result<bool, Malformed> {
        match self {
            Self::Length(left) => {
                take_some(bytes, left, &mut data);
                Ok(*left == 0)
            }
            Self::Chunked(chunked) => chunked.take(bytes, data),
            Self::UntilClosed => {
                data(std::mem::take(bytes));
                Ok(false)
            }
        }
    }

    /// As many bytes of it came without being seen. True once it has ended.
    pub fn skip(&mut self, length: u64) -> Result<bool, Malformed> {
        let left = match self {
            Self::UntilClosed => return Ok(false),
            Self::Length(left) => left,
            Self::Chunked(Chunked {
                state: State::Data(left),
                ..
            }) => left,
            Self::Chunked(_) => return Err(Malformed),
        };
        *left = left.checked_sub(length).ok_or(Malformed)?;
        Ok(matches!(self, Self::Length(0)))
    }

    /// The fields after the last chunk, as they came, and an empty line.
    pub fn trailers(&self) -> &[u8] {
        match self {
            Self::Chunked(chunked) => &chunked.line,
            _ => &[],
        }
    }
}

fn take_some<'a>(bytes: &mut &'a [u8], left: &mut u64, data: &mut impl FnMut(&'a [u8])) {
    let length = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
    let (some, rest) = bytes.split_at(length);
    if !some.is_empty() {
        data(some);
    }
    *left -= length as u64;
    *bytes = rest;
}

#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
    /// As far as it has come; in the end, all lines of the trailers.
    line: Vec<u8>,
}

#[derive(Debug)]
enum State {
    Size,
    Data(u64),
    /// The end of a line behind a chunk's data.
    AfterData,
    /// The last line begins there.
    Trailers(usize),
    Ended,
}

impl Chunked {
    fn take<'a>(
        &mut self,
        bytes: &mut &'a [u8],
        mut data: impl FnMut(&'a [u8]),
    ) -> Result<bool, Malformed> {
        loop {
            match &mut self.state {
                State::Data(0) => self.state = State::AfterData,
                State::Data(left) => {
                    if bytes.is_empty() {
                        return Ok(false);
                    }
                    take_some(bytes, left, &mut data);
                }
                State::Ended => return Ok(true),
                State::Size | State::AfterData | State::Trailers(_) => {
                    if !self.take_line(bytes)? {
                        return Ok(false);
                    }
                    self.line_ended()?;
                }
            }
        }
    }

    /// False if the line goes on in bytes that are still to come.
    fn take_line(&mut self, bytes: &mut &[u8]) -> Result<bool, Malformed> {
        let end = memchr::memchr(b'\n', bytes);
        let (some, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        self.line.extend_from_slice(some);
        *bytes = rest;
        let limit = match self.state {
            State::Trailers(_) => TRAILERS_MAX,
            _ => LINE_MAX,
        };
        match self.line.len() > limit {
            true => Err(Malformed),
            false => Ok(end.is_some()),
        }
    }

    fn line_ended(&mut self) -> Result<(), Malformed> {
        let begin = match self.state {
            State::Trailers(begin) => begin,
            _ => 0,
        };
        let line = self.line[begin..].trim_ascii();
        self.state = match self.state {
            State::AfterData if line.is_empty() => State::Size,
            State::Size => match size(line)? {
                0 => State::Trailers(0),
                size => State::Data(size),
            },
            State::Trailers(_) if line.is_empty() => State::Ended,
            State::Trailers(_) => State::Trailers(self.line.len()),
            _ => return Err(Malformed),
        };
        if !matches!(self.state, State::Trailers(1..) | State::Ended) {
            self.line.clear();
        }
        Ok(())
    }
}

/// `1a` or `1a;name=value`.
fn size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits.trim_ascii()).map_err(|_| Malformed)?;
    match text.starts_with('+') {
        true => Err(Malformed),
        false => u64::from_str_radix(text, 16).map_err(|_| Malformed),
    }
}
