//! The comment by which a template base is known.

use std::fmt;

/// How the comments of all bases begin.
pub(crate) const BASE: &str = "hindcast: base of ";
const CLOSED: &str = "; closed to connections";

/// `hindcast: base of shop, taken 2026-11-22 19:20:11 UTC for /srv/trace; closed to connections`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub source: String,
    /// In UTC. Unknown where an older version took it.
    pub taken: Option<String>,
    /// Where the recording is for which it was taken.
    pub recording: Option<String>,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BASE}{}, taken ", self.source)?;
        match &self.taken {
            Some(taken) => write!(f, "{taken} UTC")?,
            None => f.write_str("before recording")?,
        }
        if let Some(recording) = &self.recording {
            write!(f, " for {recording}")?;
        }
        f.write_str(CLOSED)
    }
}

impl Mark {
    /// `None` for a comment that is not ours.
    pub fn parse(comment: &str) -> Option<Self> {
        let rest = comment.strip_prefix(BASE)?;
        let rest = rest.strip_suffix(CLOSED).unwrap_or(rest);
        let (source, taken) = rest.split_once(", taken ").unwrap_or((rest, ""));
        let (taken, recording) = match taken.split_once(" UTC") {
            Some((time, rest)) => (Some(time.to_owned()), rest.strip_prefix(" for ")),
            None => (None, None),
        };
        Some(Self {
            source: source.to_owned(),
            taken,
            recording: recording.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_as_it_was_written() {
        let mark = |taken: Option<&str>, recording: Option<&str>| Mark {
            source: "shop".to_owned(),
            taken: taken.map(str::to_owned),
            recording: recording.map(str::to_owned),
        };
        for mark in [
            mark(Some("2026-11-22 19:20:11"), Some("/srv/a trace; it's mine")),
            mark(Some("2026-11-22 19:20:11"), None),
            mark(None, None),
        ] {
            assert_eq!(Mark::parse(&mark.to_string()), Some(mark));
        }
        let older = "hindcast: base of shop, taken before recording; closed to connections";
        assert_eq!(Mark::parse(older), Some(mark(None, None)));
        assert_eq!(Mark::parse("production"), None);
        assert_eq!(Mark::parse("hindcast: a rewound database, kept"), None);
    }
}
