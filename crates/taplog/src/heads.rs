//! What the first bytes of a request say.

use std::ops::Range;

use crate::board::REQUEST_HEADER;

const SAYS: &[u8] = REQUEST_HEADER.as_bytes();
const DIGITS: usize = 16;

/// Where the digits are of the number that a request says itself.
fn digits(bytes: &[u8]) -> Option<Range<usize>> {
    let at = bytes
        .windows(SAYS.len())
        .position(|window| window == SAYS)?;
    // A colon and a space.
    let from = at + SAYS.len() + 2;
    (from + DIGITS <= bytes.len()).then_some(from..from + DIGITS)
}

/// The number that a request says itself.
pub fn said(bytes: &[u8]) -> Option<u64> {
    let digits = &bytes[digits(bytes)?];
    digits.iter().try_fold(0, |number, &digit| {
        Some(number << 4 | u64::from(char::from(digit).to_digit(16)?))
    })
}

/// Where the line is in which a request of HTTP/1 says its number, if all of it has come.
pub fn saying(bytes: &[u8]) -> Option<Range<usize>> {
    const BEFORE: &[u8] = b"\r\n";
    let digits = digits(bytes)?;
    let begins = digits.start - 2 - SAYS.len();
    let is_line = bytes[..begins].ends_with(BEFORE) && bytes[digits.end..].starts_with(BEFORE);
    is_line.then_some(begins..digits.end + BEFORE.len())
}

/// The line in which a request says this number.
pub fn line(number: u64) -> [u8; LINE] {
    let digit = |at: usize| b"0123456789abcdef"[(number >> (4 * (DIGITS - 1 - at)) & 15) as usize];
    std::array::from_fn(|at| match at.checked_sub(SAYS.len() + 2) {
        None if at < SAYS.len() => SAYS[at],
        None => b": "[at - SAYS.len()],
        Some(at) if at < DIGITS => digit(at),
        Some(at) => b"\r\n"[at - DIGITS],
    })
}

const LINE: usize = SAYS.len() + 2 + DIGITS + 2;

const END: &[u8] = b"\r\n\r\n";

fn end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(END.len()).position(|four| four == END)
}

/// Whether the head of a request ends in these bytes.
pub fn is_whole(bytes: &[u8]) -> bool {
    end(bytes).is_some()
}

/// How much of a request's body is to come behind these first bytes, as far as its head, if that is
/// whole, says.
pub fn body_to_come(bytes: &[u8]) -> u64 {
    const NAME: &[u8] = b"content-length:";
    if !bytes.first().is_some_and(u8::is_ascii_uppercase) {
        return 0;
    }
    let Some(end) = end(bytes) else {
        return 0;
    };
    let length = bytes[..end].split(|&byte| byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        let value = value.trim_ascii();
        let is_number = name.eq_ignore_ascii_case(NAME) && value.len() < 19;
        let digit = |value: u64, &digit: &u8| {
            let digit = char::from(digit).to_digit(10)?;
            Some(value * 10 + u64::from(digit))
        };
        is_number.then(|| value.iter().try_fold(0, digit))?
    });
    let come = (bytes.len() - end - END.len()) as u64;
    length.unwrap_or(0).saturating_sub(come)
}

/// Whether these are the first bytes of a request: HTTP/1, FastCGI or uwsgi.
pub fn begins_request(bytes: &[u8]) -> bool {
    const METHOD_MAX: usize = 20;
    match bytes {
        // The record that begins a request.
        [1, 1, ..] => true,
        // A packet of variables, of some length.
        [0, low, high, 0, ..] => (*low, *high) != (0, 0),
        _ => {
            let letter = |byte: &&u8| byte.is_ascii_uppercase() || **byte == b'-';
            let letters = bytes.iter().take(METHOD_MAX).take_while(letter).count();
            match bytes.get(letters..) {
                // All that has come are letters.
                Some([]) => letters > 0,
                Some([b' ', then, ..]) => letters > 0 && matches!(then, b'/' | b'*' | b'h'),
                Some([b' ']) => letters > 0,
                _ => false,
            }
        }
    }
}

/// Whether these are the first bytes of a connection that carries HTTP/2 from its beginning on.
pub fn begins_http2(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PRI * HTTP/2.0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_is_put_in_says_its_number() {
        let head = [
            b"GET / HTTP/1.1\r\n".as_slice(),
            &line(0x1234_0000_0000_00ab),
            b"\r\n",
        ]
        .concat();
        assert_eq!(said(&head), Some(0x1234_0000_0000_00ab));
        assert_eq!(saying(&head), Some(16..16 + LINE));
    }

    #[test]
    fn the_line_that_says_the_number_is_found_once_it_is_whole() {
        let head = b"GET / HTTP/1.1\r\na: b\r\nhindcast-request: 00000000000000ff\r\nc: d\r\n\r\n";
        assert_eq!(said(head), Some(255));
        let line = saying(head).unwrap();
        assert_eq!(
            &head[line.clone()],
            b"hindcast-request: 00000000000000ff\r\n"
        );
        assert_eq!(saying(&head[..line.end - 1]), None);
        assert_eq!(said(&head[..line.end - 3]), None);
        // A variable of FastCGI, and a value in which it stands.
        assert_eq!(saying(b"\x01hindcast-request: 00000000000000ff\r\n"), None);
        assert_eq!(saying(b"hindcast-request: 00000000000000ff\r\n"), None);
    }

    #[test]
    fn what_is_to_come_of_a_body_its_head_says() {
        let of = |head: &str| body_to_come(head.as_bytes());
        assert_eq!(
            of("POST / HTTP/1.1\r\nContent-Length: 12\r\nA: b\r\n\r\nsome"),
            8
        );
        assert_eq!(of("POST / HTTP/1.1\r\ncontent-length:2\r\n\r\n{}GET /"), 0);
        assert_eq!(of("GET / HTTP/1.1\r\nA: b\r\n\r\n"), 0);
        assert_eq!(of("POST / HTTP/1.1\r\nContent-Length: 2x\r\n\r\n"), 0);
        // The head is not whole, or no text.
        assert_eq!(of("POST / HTTP/1.1\r\nContent-Length: 2\r\n"), 0);
        assert_eq!(body_to_come(b"\x01\x01\0\r\n\r\n"), 0);
    }
}
