//! Dates, times and intervals as Postgres writes them, dates in the style `ISO`.

use super::Settings;
use super::numbers::put;
use std::io::Write;

const MICROS: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS;
/// From 1970 to 2000, from which Postgres counts.
const EPOCH_DAYS: i64 = 10_957;

pub(super) fn date(days: i32, out: &mut Vec<u8>) {
    match days {
        i32::MIN => out.extend_from_slice(b"-infinity"),
        i32::MAX => out.extend_from_slice(b"infinity"),
        _ => {
            let is_before_christ = day(days.into(), out);
            era(is_before_christ, out);
        }
    }
}

/// Without a time zone: `offset` is `None`. With one: how far local time is ahead of UTC, in
/// seconds, at a moment in seconds since 1970. False if that is not known.
pub(super) fn timestamp(micros: i64, settings: Option<&Settings>, out: &mut Vec<u8>) -> bool {
    if matches!(micros, i64::MIN | i64::MAX) {
        let sign = if micros < 0 { "-" } else { "" };
        put!(out, "{sign}infinity");
        return true;
    }
    let moment = micros.div_euclid(MICROS) + EPOCH_DAYS * 86_400;
    let offset = match settings.map(|settings| settings.offset(moment)) {
        Some(None) => return false,
        Some(offset) => offset,
        None => None,
    };
    // Postgres knows no moment that is close to the ends of what 64 bits hold.
    let local = micros.saturating_add(offset.unwrap_or(0) * MICROS);
    let is_before_christ = day(local.div_euclid(MICROS_PER_DAY), out);
    out.push(b' ');
    time(local.rem_euclid(MICROS_PER_DAY), out);
    if let Some(offset) = offset {
        zone(offset, out);
    }
    era(is_before_christ, out);
    true
}

/// Microseconds since midnight, 24:00 included.
pub(super) fn time(micros: i64, out: &mut Vec<u8>) {
    let seconds = micros / MICROS;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    put!(out, "{hours:02}:{minutes:02}:{:02}", seconds % 60);
    fraction(micros % MICROS, out);
}

/// How far local time is ahead of UTC, in seconds.
pub(super) fn zone(offset: i64, out: &mut Vec<u8>) {
    out.push(if offset < 0 { b'-' } else { b'+' });
    let offset = offset.abs();
    let (minutes, seconds) = (offset / 60 % 60, offset % 60);
    put!(out, "{:02}", offset / 3600);
    if minutes != 0 || seconds != 0 {
        put!(out, ":{minutes:02}");
    }
    if seconds != 0 {
        put!(out, ":{seconds:02}");
    }
}

/// In the style `postgres`.
pub(super) fn interval(micros: i64, days: i32, months: i32, out: &mut Vec<u8>) {
    let ends = [
        (i64::MIN, i32::MIN, b"-infinity" as &[u8]),
        (i64::MAX, i32::MAX, b"infinity"),
    ];
    if let Some((.., text)) = ends
        .iter()
        .find(|end| (end.0, end.1, end.1) == (micros, days, months))
    {
        return out.extend_from_slice(text);
    }
    let (mut is_first, mut is_behind_negative) = (true, false);
    for (value, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if value == 0 {
            continue;
        }
        let space = if is_first { "" } else { " " };
        let sign = if is_behind_negative && value > 0 {
            "+"
        } else {
            ""
        };
        let plural = if value == 1 { "" } else { "s" };
        put!(out, "{space}{sign}{value} {unit}{plural}");
        (is_first, is_behind_negative) = (false, value < 0);
    }
    if micros == 0 && !is_first {
        return;
    }
    if !is_first {
        out.push(b' ');
    }
    match () {
        _ if micros < 0 => out.push(b'-'),
        _ if is_behind_negative => out.push(b'+'),
        _ => {}
    }
    // Its parts are less than what 64 bits hold, whatever its sign.
    let seconds = (micros / MICROS).abs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    put!(out, "{hours:02}:{minutes:02}:{:02}", seconds % 60);
    fraction((micros % MICROS).abs(), out);
}

fn fraction(micros: i64, out: &mut Vec<u8>) {
    if micros == 0 {
        return;
    }
    put!(out, ".{micros:06}");
    while out.last() == Some(&b'0') {
        out.pop();
    }
}

/// The date of a day since 2000, in the Gregorian calendar. Whether it is before Christ, which is
/// said behind everything else.
fn day(since: i64, out: &mut Vec<u8>) -> bool {
    // Years that begin in March, so that leap days are at their ends; cycles of 400 years. The
    // first begins in the year 0.
    const DAYS_TO_2000: i64 = 730_425;
    const CYCLE: i64 = 146_097;
    let days = since + DAYS_TO_2000;
    let (cycle, day) = (days.div_euclid(CYCLE), days.rem_euclid(CYCLE));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = year + 400 * cycle + i64::from(month <= 2);
    let is_before_christ = year <= 0;
    let year = if is_before_christ { 1 - year } else { year };
    put!(out, "{year:04}-{month:02}-{day:02}");
    is_before_christ
}

fn era(is_before_christ: bool, out: &mut Vec<u8>) {
    if is_before_christ {
        out.extend_from_slice(b" BC");
    }
}
