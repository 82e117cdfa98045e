//! Times that moved from one run to another: what a service reads from a clock that nobody pins.
//!
//! A value is such a time only if it was one when the original ran, and is one now; see [`Window`].

use std::ops::Range;
use std::sync::LazyLock;

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use hindcast_trace::Micros;
use regex::bytes::Regex;

/// When the original ran and when the changed code ran, by the wall clock. A value that moved from
/// the one to the other came from a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Up to the moment that the original final state shows.
    pub original: (Micros, Micros),
    pub run: (Micros, Micros),
    /// When the original was replayed, if its final state comes from that.
    pub replayed: Option<(Micros, Micros)>,
}

/// Clocks of several machines agree to this, and times written in whole seconds are this much in
/// the past.
const SLACK: Micros = 2_000_000;
const QUARTER: Micros = 15 * 60 * 1_000_000;
const DAY: Micros = 24 * 3600 * 1_000_000;

impl Window {
    /// Whether both lie, at least in part, when they must for the difference to come from a clock.
    pub fn moved(&self, before: Time, after: Time) -> bool {
        self.is_of_original(before) && after.overlaps(self.run)
    }

    pub fn is_of_original(&self, time: Time) -> bool {
        time.overlaps(self.original) || self.replayed.is_some_and(|period| time.overlaps(period))
    }

    pub fn is_of_either(&self, time: Time) -> bool {
        self.is_of_original(time) || time.overlaps(self.run)
    }

    /// How far the clock on the wall may be from UTC where a time was written without a zone;
    /// always just 0 if it was written with one.
    fn shifts(zoned: bool) -> impl Iterator<Item = Micros> {
        let range = if zoned { 0..=0 } else { -56..=48 };
        range.map(|quarters| quarters * QUARTER)
    }

    pub fn texts_moved(&self, before: &str, after: &str) -> bool {
        let (Some((before, zoned)), Some((after, also))) = (parse_time(before), parse_time(after))
        else {
            return false;
        };
        zoned == also
            && Self::shifts(zoned).any(|shift| self.moved(before.shift(shift), after.shift(shift)))
    }

    pub fn text_is_of_either(&self, text: &str) -> bool {
        parse_time(text).is_some_and(|(time, zoned)| {
            Self::shifts(zoned).any(|shift| self.is_of_either(time.shift(shift)))
        })
    }

    /// A cookie of this run with the number of seconds until it expires that the recorded one says,
    /// if each was written when its run was: how many are left depends on how fast a request was.
    pub fn with_age_of(&self, recorded: &[u8], cookie: Vec<u8>) -> Vec<u8> {
        let both = written(recorded).zip(written(&cookie));
        match both.filter(|((before, _), (after, _))| self.moved(*before, *after)) {
            Some(((_, recorded_at), (_, at))) => [
                &cookie[..at.start],
                &recorded[recorded_at],
                &cookie[at.end..],
            ]
            .concat(),
            None => cookie,
        }
    }

    pub fn epochs_moved(&self, before: f64, after: f64) -> bool {
        epochs(before)
            .zip(epochs(after))
            .any(|(b, a)| self.moved(b, a))
    }

    pub fn epoch_is_of_either(&self, value: f64) -> bool {
        epochs(value).any(|time| self.is_of_either(time))
    }
}

/// When a cookie was written that says how many seconds from then it expires, and when; and where
/// it says how many.
fn written(cookie: &[u8]) -> Option<(Time, Range<usize>)> {
    static EXPIRES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("(?i-u);\\s*expires=([^;]+)").expect("it is a regular expression")
    });
    static AGE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("(?i-u);\\s*max-age=([0-9]{1,9})").expect("it is a regular expression")
    });
    let value = |of: &Regex| of.captures(cookie)?.get(1).map(|found| found.range());
    let text = |range| str::from_utf8(&cookie[range]).ok();
    let (expires, _) = parse_time(text(value(&EXPIRES)?)?.trim())?;
    let age = value(&AGE)?;
    let seconds: Micros = text(age.clone())?.parse().ok()?;
    Some((expires.shift(-seconds * 1_000_000), age))
}

/// A moment, or a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    pub from: Micros,
    pub to: Micros,
}

impl Time {
    fn shift(self, by: Micros) -> Self {
        Self {
            from: self.from.saturating_add(by),
            to: self.to.saturating_add(by),
        }
    }

    fn overlaps(self, (from, to): (Micros, Micros)) -> bool {
        self.from <= to.saturating_add(SLACK) && self.to >= from.saturating_sub(SLACK)
    }
}

/// A number as seconds, milliseconds, microseconds and nanoseconds since the epoch.
pub fn epochs(value: f64) -> impl Iterator<Item = Time> {
    [1e6, 1e3, 1.0, 1e-3].into_iter().map(move |unit| {
        // A float that is out of range becomes the nearest integer, which is no time that is asked
        // for.
        let at = (value * unit) as Micros;
        Time { from: at, to: at }
    })
}

/// The time that a whole text is, and whether it says its zone: as Postgres, ISO 8601, RFC 3339 and
/// HTTP write it.
pub fn parse_time(text: &str) -> Option<(Time, bool)> {
    // Almost no text is a time, and parsing is slow.
    if !(10..=40).contains(&text.len()) {
        return None;
    }
    let at = |micros: Micros| Time {
        from: micros,
        to: micros,
    };
    if text.as_bytes()[0].is_ascii_alphabetic() {
        let time = DateTime::parse_from_rfc2822(text).ok()?;
        return Some((at(time.timestamp_micros()), true));
    }
    if !text.as_bytes()[..4].iter().all(u8::is_ascii_digit) || text.as_bytes()[4] != b'-' {
        return None;
    }
    if text.len() == 10 {
        let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
        let from = day.and_hms_opt(0, 0, 0)?.and_utc().timestamp_micros();
        let to = from + DAY - 1;
        return Some((Time { from, to }, false));
    }
    for format in ["%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z"] {
        if let Ok(time) = DateTime::parse_from_str(text, format) {
            return Some((at(time.timestamp_micros()), true));
        }
    }
    for format in ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"] {
        if let Ok(time) = NaiveDateTime::parse_from_str(text, format) {
            return Some((at(time.and_utc().timestamp_micros()), false));
        }
    }
    None
}

/// Whether both are times as HTTP writes them, in whole seconds, and about the same: one reading of
/// the clock more, or one less, may put the next into another second.
pub fn are_about_the_same(one: &str, other: &str) -> bool {
    let moment = |text: &str| Some(DateTime::parse_from_rfc2822(text).ok()?.timestamp_micros());
    let both = moment(one).zip(moment(other));
    both.is_some_and(|(one, other)| (one - other).abs() <= SLACK)
}

/// What may be a time in a text: as Postgres, ISO 8601, RFC 3339 and HTTP write it, or since the
/// epoch in seconds, milliseconds, microseconds or nanoseconds.
static TIMES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?x-u)
        \d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d(?::?\d\d)?)?
        |(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),\ \d\d[\ -][A-Z][a-z][a-z][\ -]\d{4}\ \d\d:\d\d:\d\d\ GMT
        |\b1\d{9}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?\b",
    )
    .expect("it is a regular expression")
});

/// The times in a text, each with where it is.
pub fn times_in(text: &[u8]) -> impl Iterator<Item = (std::ops::Range<usize>, Time)> {
    TIMES.find_iter(text).filter_map(|found| {
        let written = std::str::from_utf8(found.as_bytes()).ok()?;
        let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        let time = match written.bytes().all(is_number) {
            true => since_epoch(written)?,
            false => parse_time(written)?.0,
        };
        Some((found.range(), time))
    })
}

/// A number whose unit shows in how many digits it has before its fraction.
fn since_epoch(number: &str) -> Option<Time> {
    let digits = number.split('.').next().map_or(0, str::len);
    let unit = 10f64.powi(16 - digits as i32);
    let at = (number.parse::<f64>().ok()? * unit) as Micros;
    Some(Time { from: at, to: at })
}

impl Window {
    /// Whether a time may be another one because the clock is: it lay in the original run and lies
    /// in this one, or as long behind a moment of this run as it lay behind one of the original.
    fn is_clock(&self, before: Time, after: Time) -> bool {
        let behind = |time: Time, run: (Micros, Micros)| (time.from - run.1, time.from - run.0);
        let (was, is) = (behind(before, self.original), behind(after, self.run));
        was.0 <= is.1 + SLACK && is.0 <= was.1 + SLACK
    }

    /// The text with the times of another one in the places of its own, where these are other ones
    /// because the clock is.
    pub fn with_times_of(&self, before: &[u8], after: &[u8]) -> Vec<u8> {
        let (mut text, mut at) = (Vec::with_capacity(after.len()), 0);
        for ((was, time), (is, other)) in times_in(before).zip(times_in(after)) {
            if self.is_clock(time, other) {
                text.extend_from_slice(&after[at..is.start]);
                text.extend_from_slice(&before[was]);
                at = is.end;
            }
        }
        text.extend_from_slice(&after[at..]);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        let at = |text: &str| parse_time(text).unwrap().0.from;
        Window {
            original: (at("2024-05-01T12:00:00Z"), at("2024-05-01T12:10:00Z")),
            run: (at("2024-06-03T09:00:00Z"), at("2024-06-03T09:05:00Z")),
            replayed: None,
        }
    }

    fn is_same(before: &str, after: &str) -> bool {
        window().with_times_of(before.as_bytes(), after.as_bytes()) == before.as_bytes()
    }

    #[test]
    fn texts_that_differ_by_the_clock_do_not_differ() {
        let page = |time: &str, n: u32| format!("<p>written {time}</p><b>{n}</b>");
        let (then, now) = ("2024-05-01 12:03:04.5+00", "2024-06-03 09:01:02.25+00");
        assert!(is_same(&page(then, 1), &page(now, 1)));
        assert!(is_same(&page(then, 1), &page(then, 1)));
        assert!(!is_same(&page(then, 1), &page(now, 2)));
        assert!(!is_same(&page(then, 1), &page("2031-01-01 00:00:01+00", 1)));
        assert!(is_same("{\"exp\":1714565284}", "{\"exp\":1717405262}"));
        assert!(is_same(
            "{\"exp\":1714565284.25}",
            "{\"exp\":1717405262.125}"
        ));
        assert!(!is_same("{\"n\":1714565284}", "{\"n\":1717405262,\"m\":1}"));
    }

    /// A day from then, and a day from now.
    #[test]
    fn what_expires_as_much_later_does_not_differ() {
        let cookie = |time: &str| format!("a=b; Path=/; Expires={time}; HttpOnly");
        let (then, now) = (
            "Thu, 02 May 2024 12:10:00 GMT",
            "Tue, 04 Jun 2024 09:05:01 GMT",
        );
        assert!(is_same(&cookie(then), &cookie(now)));
        let later = "Wed, 05 Jun 2024 09:05:01 GMT";
        assert!(!is_same(&cookie(then), &cookie(later)));
    }
    #[test]
    fn a_cookie_says_how_many_seconds_are_left_until_it_expires() {
        let cookie =
            |time: &str, age: u32| format!("a=b; Expires={time} GMT; Max-Age={age}; HttpOnly");
        let recorded = cookie("Thu, 02 May 2024 12:10:00", 86_400);
        let as_recorded = |replayed: String| {
            let cookie = window().with_age_of(recorded.as_bytes(), replayed.into_bytes());
            String::from_utf8(cookie).unwrap()
        };
        let (expires, other) = ("Tue, 04 Jun 2024 09:03:00", "Wed, 05 Jun 2024 09:03:00");
        // It was written a moment later than the session was made.
        assert_eq!(
            as_recorded(cookie(expires, 86_397)),
            cookie(expires, 86_400)
        );
        // It lasts for longer, or for less.
        assert_eq!(as_recorded(cookie(other, 86_397)), cookie(other, 86_397));
        assert_eq!(as_recorded(cookie(expires, 3_600)), cookie(expires, 3_600));
    }
}
