//! Whether a text looks like one that a program drew: a session's key, a token, a UUID.
//!
//! Words, names, numbers and times do not. In doubt a text is none: a value that is taken for a
//! drawn one is not compared any more.

/// Shorter texts are not told from words.
const SHORTEST: usize = 16;
/// A run of letters and digits that is so long is no name with a number.
const LONG: usize = 22;
/// Longer ones are contents.
const LONGEST: usize = 4096;

pub fn is_generated(text: &[u8]) -> bool {
    if !(SHORTEST..=LONGEST).contains(&text.len()) || !text.iter().all(|&byte| is_of_token(byte)) {
        return false;
    }
    // Parts of a token that is made of several, as of a JWT: one that was drawn is enough.
    is_uuid(text) || text.split(|byte| b".:|!~%".contains(byte)).any(is_drawn)
}

/// Whether two texts that stand in the same place were drawn. Of two alike, one may have no digit.
pub fn are_generated(one: &[u8], other: &[u8]) -> bool {
    let alike = one.len() == other.len() && is_plain(one) && is_plain(other);
    match alike {
        true => is_generated(one) || is_generated(other),
        false => is_generated(one) && is_generated(other),
    }
}

/// Whether it may be one of two that are alike.
pub fn may_be_generated(text: &[u8]) -> bool {
    is_generated(text) || text.len() >= SHORTEST && is_plain(text)
}

fn is_plain(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_alphanumeric)
}

/// Whether a page or JSON may hold such a text: it has so many characters in a row that are those
/// of a token, or write one of them.
pub fn may_hold_generated(body: &[u8]) -> bool {
    let mut run = 0;
    body.iter().any(|&byte| {
        let is_of_one = is_of_token(byte) || b"\\&#;".contains(&byte);
        run = if is_of_one { run + 1 } else { 0 };
        run >= SHORTEST
    })
}

/// `6f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d`.
pub fn is_uuid(text: &[u8]) -> bool {
    text.len() == 36
        && text.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_+/=.:|!~%".contains(&byte)
}

fn is_drawn(part: &[u8]) -> bool {
    if part.len() < SHORTEST {
        return false;
    }
    let has = |is: fn(&u8) -> bool| part.iter().any(is);
    let (upper, lower) = (has(u8::is_ascii_uppercase), has(u8::is_ascii_lowercase));
    let digit = has(u8::is_ascii_digit);
    let one_case = upper != lower;
    if one_case && digit && part.iter().all(u8::is_ascii_hexdigit) {
        return letters(part) >= 6;
    }
    // How often another kind of character follows: words are long runs of one kind.
    let kinds = part.iter().map(|&byte| kind(byte));
    let changes = kinds.clone().zip(kinds.skip(1)).filter(|(a, b)| a != b);
    let changes = changes.count();
    match (upper && lower, digit) {
        // base64, of which three characters in five are followed by one of another kind.
        (true, _) => changes * 5 >= part.len() * 2,
        // base32 and base36, as of ids that sort by time; no separators, as slugs have.
        (false, true) => {
            // A long one may have few digits; a name has them at its end.
            let enough = changes * 5 >= part.len() || part.len() >= LONG && changes > 1;
            is_plain(part) && enough && letters(part) >= 8
        }
        (false, false) => false,
    }
}

/// How many different characters there are.
fn letters(part: &[u8]) -> u32 {
    let mut seen = [0u64; 4];
    for &byte in part {
        seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
    seen.iter().map(|word| word.count_ones()).sum()
}

fn kind(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_holds_none_is_known_as_such() {
        for none in [
            r#"{"id":123456,"name":"A name","mail":"somebody@example.org","done":true}"#,
            "<p>words of a text</p>",
            "",
        ] {
            assert!(!may_hold_generated(none.as_bytes()), "{none}");
        }
        for some in [
            r#"{"token":"nX\/0rU1tJ\/8yq2L"}"#,
            r#"{"token":"nX\u002b0rU1tJ8yq"}"#,
            r#"<input value="nX&#43;0rU1t&amp;a">"#,
        ] {
            assert!(may_hold_generated(some.as_bytes()), "{some}");
        }
    }

    #[test]
    fn what_programs_draw_is_told_from_what_people_write() {
        for drawn in [
            "6f2c1c5e-5cf4-4b0c-9d3f-2f6e7a8b9c0d",
            "d41d8cd98f00b204e9800998ecf8427e",
            "3q2-7wR9bXk1LmZpT0uYcA_vN4sHfGjE6dQ8iKoBtWM",
            "nX+0rU1tJ/8yq2LwzE9aVg==",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVPmB92K27uhbUJU1p1rwW1gFWFOEjXk",
            "s%3A3q27wR9bXk1LmZpT0uYcAvN4sHfGjE6.d8Qm1xR2",
            "01HZX3K5T9QW8V7N6M4B2C0D1E",
            "kOpMzTbRaXeYiQwLnSvU",
            "cmwz7tvji0000257dhubc8yqq",
            "v8bwvbgfgancfjnxaaizoe4h",
            "vqbwvbgfga7cfjnxaaizoeth",
        ] {
            assert!(is_generated(drawn.as_bytes()), "{drawn}");
        }
        let (few, many) = ("iindvrhdoudepbiynhjsawj6", "ib64239yvlgmqvfs32zw3evv");
        assert!(are_generated(few.as_bytes(), many.as_bytes()));
        assert!(!are_generated(few.as_bytes(), &many.as_bytes()[1..]));
        assert!(!are_generated(few.as_bytes(), few.as_bytes()));
        for written in [
            "application/json",
            "changed-by-person-7-in-round-12",
            "note-0-of-3-and-1-more",
            "1234567890123456",
            "2026-11-25T01:02:03.123456Z",
            "NotesOfPersonNumber12345",
            "internationalisation",
            "notesofpersonnumber12345",
            "/notes/12345/comments/678901",
            "a text of several words 123 ABC",
            "00000000000000000000000000000000",
        ] {
            assert!(!is_generated(written.as_bytes()), "{written}");
        }
    }
}
