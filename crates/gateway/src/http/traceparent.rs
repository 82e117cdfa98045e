//! The W3C `traceparent` that names a request.

use std::fmt;

use hindcast_trace::RequestId;

/// `00-<prefix><request>-<span>-01`, each part 16 hex digits: the trace-id alone names the request, so nothing has to be
/// looked up. The prefix is drawn once per recorder ([`hindcast_trace::Recorder::trace_id_prefix`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    pub prefix: u64,
    pub request: RequestId,
    /// Not zero: the standard forbids it.
    pub span: u64,
}

impl Traceparent {
    /// The name of the header.
    pub const HEADER: &'static str = "traceparent";

    /// Reads a `traceparent` of any origin as if it were ours; whether it is, the prefix tells.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.trim().as_bytes();
        // Later versions of the standard may append fields, but not change the first four.
        let version = hex(bytes.get(0..2)?)?;
        let (trace, parent, flags) = (bytes.get(3..35)?, bytes.get(36..52)?, bytes.get(53..55)?);
        let dashes = [2, 35, 52].iter().all(|&at| bytes[at] == b'-');
        let ends = bytes.len() == 55 || version > 0 && bytes[55] == b'-';
        if version == 0xff || !dashes || !ends {
            return None;
        }
        hex(flags)?;
        let (prefix, request, span) = (hex(&trace[..16])?, hex(&trace[16..])?, hex(parent)?);
        if prefix == 0 && request == 0 || span == 0 {
            return None;
        }
        Some(Self {
            prefix,
            request: hindcast_trace::Id(request),
            span,
        })
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{:016x}{:016x}-{:016x}-01",
            self.prefix, self.request.0, self.span
        )
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            // The standard demands lower case.
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindcast_trace::Id;

    #[test]
    fn what_is_written_can_be_read() {
        let ours = Traceparent {
            prefix: 0xfeed_0000_0000_0001,
            request: Id::new(3, 17),
            span: 5,
        };
        assert_eq!(
            ours.to_string(),
            "00-feed0000000000010003000000000011-0000000000000005-01"
        );
        assert_eq!(Traceparent::parse(&ours.to_string()), Some(ours));
    }

    #[test]
    fn malformed_ones_are_no_traceparent() {
        for text in [
            "",
            "00",
            "00-feed0000000000010003000000000011-0000000000000005",
            "00-feed0000000000010003000000000011-0000000000000000-01",
            "00-00000000000000000000000000000000-0000000000000005-01",
            "ff-feed0000000000010003000000000011-0000000000000005-01",
            "00-FEED0000000000010003000000000011-0000000000000005-01",
            "00-feed0000000000010003000000000011-0000000000000005-01-more",
            "00_feed0000000000010003000000000011-0000000000000005-01",
            "00-feed00000000000100030000000000é-0000000000000005-01",
        ] {
            assert_eq!(Traceparent::parse(text), None, "{text}");
        }
        assert!(
            Traceparent::parse("01-feed0000000000010003000000000011-0000000000000005-01-more")
                .is_some()
        );
    }
}
