//! Numbers, times and byte strings as people read them.

use hindcast_trace::Micros;

pub use hindcast_view::words::{count, duration, thousands, time};

/// `04:00:01.123` (UTC).
pub fn time_of_day(at: Micros) -> String {
    time(at).split_off("2026-11-21 ".len())
}

pub fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{} B", thousands(n)),
        10_000..10_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// Whether a character drives whoever shows it instead of being shown: control characters, and
/// those that turn the direction of the text around them.
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// At most `width` characters, the last one an ellipsis if something was cut. [Active](is_active)
/// characters are escaped, so that what a client sent cannot drive the terminal.
pub fn cut(text: &str, width: usize) -> String {
    let mut clean = String::new();
    for c in text.chars() {
        if is_active(c) {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    if clean.chars().count() <= width {
        return clean;
    }
    let mut short: String = clean.chars().take(width.saturating_sub(1)).collect();
    // It may end in where it was cut before.
    short.truncate(short.trim_end_matches('…').len());
    short.push('…');
    short
}

/// Text if it is text, else its size.
pub fn body(body: &[u8], width: usize) -> String {
    match std::str::from_utf8(body) {
        Ok(text) => cut(text, width),
        Err(_) => format!("({} of binary data)", bytes(body.len() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_like_numbers() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(1_203), "1,203");
        assert_eq!(thousands(1_000_000), "1,000,000");
        assert_eq!(count(1, "request"), "1 request");
        assert_eq!(count(2, "query"), "2 queries");
        assert_eq!(count(1_203, "retry"), "1,203 retries");
        assert_eq!(duration(312), "312 µs");
        assert_eq!(duration(4_214), "4.21 ms");
        assert_eq!(duration(12_345_678), "12.3 s");
        assert_eq!(duration(250_000_000), "4 min 10 s");
        assert_eq!(time(1_795_233_601_123_456), "2026-11-21 04:00:01.123");
        assert_eq!(time_of_day(1_795_233_601_123_456), "04:00:01.123");
    }

    #[test]
    fn a_clients_bytes_cannot_drive_the_terminal() {
        assert_eq!(cut("a\x1b[2Jb", 20), "a\\u{1b}[2Jb");
        assert_eq!(cut("exe.\u{202e}gpj", 20), "exe.\\u{202e}gpj");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("ab…cdef", 4), "ab…");
        assert_eq!(body(&[0xff, 0xfe], 10), "(2 B of binary data)");
    }
}
