//! Which headers belong to one connection only, and which tell something about a response.

use std::collections::HashSet;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers that belong to one connection and not to the message (RFC 9110, section 7.6.1), those
/// that only concern the framing included: the next connection is framed anew.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Headers of a response that differ from run to run without the service behaving differently.
const INSIGNIFICANT: [HeaderName; 4] = [
    header::DATE,
    header::SERVER,
    header::VIA,
    HeaderName::from_static("x-request-id"),
];

/// Whether a header belongs to one connection only, by its name. What a `Connection` header adds to
/// the list is known to [`strip_hop_by_hop`].
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

/// Removes the headers that must not be forwarded: the hop-by-hop ones, and those that `Connection`
/// names. `te: trailers` stays, since HTTP/2 (and gRPC in particular) wants it end to end.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in &named {
        headers.remove(name);
    }
    let trailers = headers.get(header::TE).is_some_and(|te| te == "trailers");
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Whether two runs of the same service must agree on this header of a response. `content-length`
/// is left to the body's digest.
pub fn is_significant(name: &HeaderName) -> bool {
    !is_hop_by_hop(name)
        && !INSIGNIFICANT.contains(name)
        && !counts_requests(name)
        && !tells_of_a_cache(name)
        && !tells_how_long(name)
        && name != header::CONTENT_LENGTH
}

/// Whether it tells what is left of a rate limit (`RateLimit-Remaining`, `X-RateLimit-Reset`,
/// `X-Rate-Limit-Remaining`): a number of the process, which depends on which of two requests of a
/// moment came first. That a request was refused is in its status. The limit itself is the code's.
fn counts_requests(name: &HeaderName) -> bool {
    let name = name.as_str();
    let name = name.strip_prefix("x-").unwrap_or(name);
    let of_limit = ["ratelimit", "rate-limit"];
    let what = of_limit.iter().find_map(|of| name.strip_prefix(of));
    what.is_some_and(|what| !matches!(what, "-limit" | "-policy"))
}

/// Whether it tells that a cache had the response (`X-Cache: HIT`), which Nest's interceptor and
/// proxies set. Which of two requests of a moment fills a cache is no difference where their reads
/// are concerned, and the body that the cache gave is compared.
fn tells_of_a_cache(name: &HeaderName) -> bool {
    matches!(name.as_str(), "x-cache" | "x-cache-hits" | "x-cache-status")
}

/// Whether it tells how long the request took (`Server-Timing`, `X-Runtime`, `X-Process-Time`,
/// `X-Response-Time-Ms`, `X-Envoy-Upstream-Service-Time`).
fn tells_how_long(name: &HeaderName) -> bool {
    const TOOK: [&str; 10] = [
        "runtime",
        "timing",
        "duration",
        "elapsed",
        "elapsed-time",
        "process-time",
        "processing-time",
        "response-time",
        "execution-time",
        "service-time",
    ];
    let name = name.as_str();
    let of = ["-ms", "-seconds", "-us"];
    let name = of
        .iter()
        .find_map(|of| name.strip_suffix(of))
        .unwrap_or(name);
    let ends_with = |what: &&str| {
        let before = name.strip_suffix(*what);
        before.is_some_and(|before| before.ends_with('-'))
    };
    TOOK.iter().any(ends_with)
}

/// As a trace keeps them: in order, names in lower case, without the hop-by-hop ones.
pub fn to_record(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let named: HashSet<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    headers
        .iter()
        .filter(|(name, _)| !is_hop_by_hop(name) && !named.contains(*name))
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}

/// The headers of a recorded message. What cannot be a header any more is left out; a recording
/// made by the ingress holds nothing of that kind.
pub fn from_record(headers: &[(String, Vec<u8>)]) -> HeaderMap {
    headers
        .iter()
        .filter_map(|(name, value)| {
            Some((
                name.parse::<HeaderName>().ok()?,
                HeaderValue::from_bytes(value).ok()?,
            ))
        })
        .fold(
            HeaderMap::with_capacity(headers.len()),
            |mut map, (name, value)| {
                map.append(name, value);
                map
            },
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&str, &str)]) -> HeaderMap {
        from_record(
            &headers
                .iter()
                .map(|(n, v)| (n.to_string(), v.as_bytes().to_vec()))
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn what_connection_names_is_not_forwarded() {
        let mut headers = map(&[
            ("host", "example"),
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
        ]);
        let recorded = to_record(&headers);
        strip_hop_by_hop(&mut headers);
        assert_eq!(
            headers,
            map(&[
                ("host", "example"),
                ("cookie", "a=1"),
                ("cookie", "b=2"),
                ("te", "trailers")
            ])
        );
        assert_eq!(
            from_record(&recorded),
            map(&[("host", "example"), ("cookie", "a=1"), ("cookie", "b=2")])
        );
    }

    #[test]
    fn what_is_left_of_a_limit_tells_nothing_of_the_service() {
        let is_significant = |name: &'static str| is_significant(&HeaderName::from_static(name));
        for name in [
            "ratelimit",
            "ratelimit-reset",
            "x-ratelimit-remaining",
            "x-rate-limit-used",
        ] {
            assert!(!is_significant(name), "{name}");
        }
        for name in ["x-rate", "etag", "ratelimit-policy", "x-ratelimit-limit"] {
            assert!(is_significant(name), "{name}");
        }
    }

    #[test]
    fn how_long_a_request_took_tells_nothing_of_the_service() {
        for (name, expected) in [
            ("server-timing", false),
            ("x-runtime", false),
            ("x-process-time", false),
            ("x-response-time-ms", false),
            ("x-envoy-upstream-service-time", false),
            ("duration", true),
            ("x-time", true),
            ("x-session-duration-limit", true),
        ] {
            let name = HeaderName::from_static(name);
            assert_eq!(is_significant(&name), expected, "{name}");
        }
    }

    #[test]
    fn that_a_cache_had_a_response_tells_nothing_of_the_service() {
        for (name, expected) in [("x-cache", false), ("x-cache-key", true), ("age", true)] {
            assert_eq!(
                is_significant(&HeaderName::from_static(name)),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn values_need_not_be_text() {
        let raw = vec![("x-name".to_owned(), vec![0xe9, b'!'])];
        assert_eq!(to_record(&from_record(&raw)), raw);
    }
}
