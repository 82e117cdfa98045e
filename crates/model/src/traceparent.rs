//! The W3C `traceparent` that names a request.

use std::fmt;

use crate::RequestId;

/// `00-<prefix><request>-<span>-01`, each part 16 hexadecimal digits.
///
/// The trace-id (prefix and request) alone names the request, so nothing has to be looked up. The
/// prefix is drawn once per recorder. See [W3C Trace
/// Context](https://www.w3.org/TR/trace-context/#traceparent-header), section 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    pub prefix: u64,
    pub request: RequestId,
    /// Not zero: the standard forbids it.
    pub span: u64,
}

impl Traceparent {
    /// The name of the header, and of the key in a SQL comment.
    pub const KEY: &'static str = "traceparent";

    /// Reads a `traceparent` of any origin as if it were ours; the prefix tells whether it is.
    ///
    /// Version 00 has exactly four fields. Later versions may append fields behind a dash. Version
    /// ff, a trace-id or span of zeros, and upper-case digits are invalid.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let version = hex(text.get(0..2)?)?;
        hex(text.get(53..55)?)?;
        let dashes = [2, 35, 52].iter().all(|&at| text[at] == b'-');
        let ends = text.len() == 55 || version > 0 && text[55] == b'-';
        let (prefix, request) = (hex(&text[3..19])?, hex(&text[19..35])?);
        let span = hex(&text[36..52])?;
        let zeros = prefix == 0 && request == 0 || span == 0;
        (version != 0xff && dashes && ends && !zeros).then_some(Self {
            prefix,
            request: crate::Id(request),
            span,
        })
    }

    /// The request, if the `traceparent` was given out under this prefix.
    pub fn request_of(text: &[u8], prefix: u64) -> Option<RequestId> {
        let found = Self::parse(text).filter(|found| found.prefix == prefix)?;
        Some(found.request)
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            prefix,
            request,
            span,
        } = self;
        write!(f, "00-{prefix:016x}{:016x}-{span:016x}-01", request.0)
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value: u64, digit| {
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
    use crate::Id;

    #[test]
    fn what_is_written_can_be_read() {
        let ours = Traceparent {
            prefix: 0xfeed_0000_0000_0001,
            request: Id::new(3, 17),
            span: 5,
        };
        let text = ours.to_string();
        assert_eq!(
            text,
            "00-feed0000000000010003000000000011-0000000000000005-01"
        );
        assert_eq!(Traceparent::parse(text.as_bytes()), Some(ours));
        let request = |prefix| Traceparent::request_of(text.as_bytes(), prefix);
        assert_eq!(request(ours.prefix), Some(ours.request));
        assert_eq!(request(1), None, "it is somebody else's");
    }

    #[test]
    fn malformed_ones_are_no_traceparent() {
        for text in [
            "",
            "00",
            "00-feed0000000000010003000000000011-0000000000000005",
            "0-feed0000000000010003000000000011-0000000000000005-01",
            "00-feed0000000000010003000000000011-0000000000000000-01",
            "00-00000000000000000000000000000000-0000000000000005-01",
            "ff-feed0000000000010003000000000011-0000000000000005-01",
            "00-FEED0000000000010003000000000011-0000000000000005-01",
            "00-feed0000000000010003000000000011-0000000000000005-01-more",
            "01-feed0000000000010003000000000011-0000000000000005-01more",
            "00-feed0000000000010003000000000011-0000000000000005-0x",
            "00_feed0000000000010003000000000011-0000000000000005-01",
            "00-feed00000000000100030000000000é-0000000000000005-01",
            " 00-feed0000000000010003000000000011-0000000000000005-01",
        ] {
            assert_eq!(Traceparent::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn later_versions_may_have_more_fields() {
        for text in [
            "01-feed0000000000010003000000000011-0000000000000005-01-more",
            "cc-feed0000000000010003000000000011-0000000000000005-01",
        ] {
            assert!(Traceparent::parse(text.as_bytes()).is_some(), "{text}");
        }
    }
}
