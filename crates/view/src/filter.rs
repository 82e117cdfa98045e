//! Which requests are looked at, as far as the columns in memory tell.

use hindcast_trace::Micros;

use crate::bits::Bits;
use crate::index::{ABORTED, BROKEN, Index, RECHECKED, UNRECORDED};

/// Statuses that are asked for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusClass {
    Exactly(u16),
    /// `4xx`: the first digit.
    Hundreds(u16),
    /// 400 and above, and what was never answered.
    Failed,
    Broken,
    Unrecorded,
}

/// A filter that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("{0:?} is not a status: give 409, 4xx, failed, broken or unrecorded")]
    Status(String),
    #[error("{0:?} is not a duration: give 250us, 3ms or 1.5s")]
    Duration(String),
}

/// Everything that is asked must hold. The default takes everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// By name; several: any of them.
    pub types: Vec<String>,
    /// Several: any of them.
    pub status: Vec<StatusClass>,
    /// No shorter than this, in µs.
    pub took_min: Micros,
    /// With a transaction that aborted, or that had to wait for another.
    pub contended: bool,
}

impl StatusClass {
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let hundreds = |text: &str| text.strip_suffix("xx")?.parse::<u16>().ok();
        match text {
            "failed" => Ok(Self::Failed),
            "broken" => Ok(Self::Broken),
            "unrecorded" => Ok(Self::Unrecorded),
            _ => match (hundreds(text), text.parse()) {
                (Some(first @ 1..=9), _) => Ok(Self::Hundreds(first)),
                (None, Ok(exactly @ 100..)) => Ok(Self::Exactly(exactly)),
                _ => Err(FilterError::Status(text.to_owned())),
            },
        }
    }

    pub fn takes(self, status: u16) -> bool {
        match self {
            Self::Exactly(exactly) => status == exactly,
            Self::Hundreds(first) => status / 100 == first,
            Self::Failed => is_failed(status),
            Self::Broken => status == BROKEN,
            Self::Unrecorded => status == UNRECORDED,
        }
    }
}

/// A response of 400 and above, or none.
pub fn is_failed(status: u16) -> bool {
    status >= 400 || status == BROKEN
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `250us`, `3ms`, `1.5s`; without a unit milliseconds.
    pub fn parse_duration(text: &str) -> Result<Micros, FilterError> {
        let wrong = || FilterError::Duration(text.to_owned());
        let number = text.trim_end_matches(|c: char| c.is_alphabetic() || c == ' ');
        let factor = match text[number.len()..].trim() {
            "us" | "µs" => 1.0,
            "" | "ms" => 1e3,
            "s" => 1e6,
            _ => return Err(wrong()),
        };
        match number.parse::<f64>() {
            Ok(value) if value >= 0.0 && value.is_finite() => Ok((value * factor) as Micros),
            _ => Err(wrong()),
        }
    }

    /// The requests that it takes, among those of `within` if that is given. `None`: all.
    pub fn select(&self, index: &Index, within: Option<&Bits>) -> Option<Bits> {
        if self.is_empty() {
            return within.cloned();
        }
        let kinds = self.kinds(index);
        let mut bits = Bits::new(index.requests());
        for at in 0..index.requests() {
            let status = index.status[at];
            let taken = kinds
                .as_ref()
                .is_none_or(|kinds| kinds.has(usize::from(index.kind[at])))
                && (self.status.is_empty() || self.status.iter().any(|class| class.takes(status)))
                && i64::from(index.took[at]) >= self.took_min
                && within.is_none_or(|within| within.has(at))
                && (!self.contended || is_contended(index, at));
            if taken {
                bits.set(at);
            }
        }
        Some(bits)
    }

    fn kinds(&self, index: &Index) -> Option<Bits> {
        if self.types.is_empty() {
            return None;
        }
        let mut kinds = Bits::new(index.types.len());
        for (at, name) in index.types.iter().enumerate() {
            if self.types.contains(name) {
                kinds.set(at);
            }
        }
        Some(kinds)
    }
}

fn is_contended(index: &Index, request: usize) -> bool {
    let flags = &index.flags[index.transactions_of(request)];
    flags.iter().any(|flags| flags & (ABORTED | RECHECKED) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_durations_are_read_as_people_write_them() {
        let takes = |text: &str, status| StatusClass::parse(text).unwrap().takes(status);
        assert!(takes("409", 409) && !takes("409", 404));
        assert!(takes("4xx", 404) && !takes("4xx", 500));
        assert!(takes("failed", 500) && takes("failed", BROKEN) && !takes("failed", 302));
        assert!(takes("unrecorded", UNRECORDED) && !takes("failed", UNRECORDED));
        for wrong in ["", "xx", "0xx", "4x", "99", "many"] {
            assert!(StatusClass::parse(wrong).is_err(), "{wrong}");
        }
        let duration = Filter::parse_duration;
        assert_eq!(duration("250us"), Ok(250));
        assert_eq!(duration("3"), Ok(3_000));
        assert_eq!(duration("1.5 s"), Ok(1_500_000));
        assert!(duration("3 h").is_err() && duration("-1ms").is_err() && duration("").is_err());
    }
}
