//! The serialization protocol of Redis, versions 2 and 3.

use super::Malformed;

/// Where the first message ends; `None` if it goes on in bytes that are still to come.
pub(super) fn end(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let (mut at, mut missing) = (0, 1u64);
    while missing > 0 {
        let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else {
            return Ok(None);
        };
        let Some(line) = memchr::memchr(b'\n', rest) else {
            return Ok(None);
        };
        let (kind, text) = (rest[0], rest[1..=line].trim_ascii_end());
        at += line + 1;
        missing -= 1;
        match kind {
            b'$' | b'=' | b'!' => {
                if let Ok(length) = usize::try_from(number(text)?) {
                    // And the end of its line.
                    at = at.checked_add(length + 2).ok_or(Malformed)?;
                    if at > bytes.len() {
                        return Ok(None);
                    }
                }
            }
            b'*' | b'~' | b'>' => missing += u64::try_from(number(text)?).unwrap_or(0),
            b'%' => missing += 2 * u64::try_from(number(text)?).unwrap_or(0),
            // What it is about follows.
            b'|' => missing += 1 + 2 * u64::try_from(number(text)?).unwrap_or(0),
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            _ => return Err(Malformed),
        }
    }
    Ok(Some(at))
}

fn number(text: &[u8]) -> Result<i32, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    text.parse().map_err(|_| Malformed)
}

/// The strings of a command.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            let line = memchr::memchr(b'\n', rest)?;
            let (head, after) = (rest[..line].trim_ascii_end(), &rest[line + 1..]);
            rest = after;
            if let Some(length) = head.strip_prefix(b"$") {
                let length = usize::try_from(number(length).ok()?).ok()?;
                let word = rest.get(..length)?;
                rest = rest.get(length + 2..).unwrap_or_default();
                return Some(word);
            }
        }
    })
}
