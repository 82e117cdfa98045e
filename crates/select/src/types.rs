//! Request types: which requests count as invocations of the same handler.
//!
//! A recording knows methods and targets; which handler answered is known only where the service
//! told its route. So a type is, in this order, the route the service reported, the first of the
//! user's [`Patterns`] that matches, or the path with everything masked that looks like an id. Ids
//! that do not look like one (names, slugs) are found by counting: a [`TypeNamer`] sees every
//! request before it names any.
//!
//! Two handlers taken for one type cost time (more requests are executed than needed), never
//! correctness, because a type reads and writes whatever any of its requests did. Therefore masking
//! may be generous.

use std::collections::HashMap;

/// More distinct values than this at one place of otherwise equal paths are ids.
pub const DISTINCT_MAX: usize = 50;

/// Segments of a path beyond this are not told apart.
pub const SEGMENTS_MAX: usize = 24;

const ID: &str = "{id}";
const REST: &str = "{rest...}";

/// Paths of request types as a user writes them: `GET /forums/{id}/subscribers`, `/users/{name}`,
/// `/static/{path...}`.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    /// In capitals; `None`: any.
    method: Option<String>,
    /// As written.
    path: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    One,
    Rest,
}

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error(
        "`{0}` is no request pattern: write a path, or a method and a path, as in `GET /forums/{{id}}/subscribers`"
    )]
    Shape(String),
    #[error("`{0}` has no path that begins with `/`")]
    Path(String),
    #[error(
        "in `{pattern}`, `{segment}` is neither a name nor a placeholder: write `{{id}}` for one segment, `{{path...}}` for all that follow"
    )]
    Placeholder { pattern: String, segment: String },
    #[error("in `{0}`, something follows a placeholder that takes the rest of the path")]
    AfterRest(String),
}

impl Patterns {
    /// The first that matches a request names its type, so the order counts.
    pub fn parse(texts: &[String]) -> Result<Self, PatternError> {
        let patterns = texts.iter().map(|text| Pattern::parse(text));
        Ok(Self {
            patterns: patterns.collect::<Result<_, _>>()?,
        })
    }

    fn path_of(&self, method: &str, path: &str) -> Option<&str> {
        let pattern = self.patterns.iter().find(|it| it.matches(method, path))?;
        Some(&pattern.path)
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, PatternError> {
        let mut words = text.split_whitespace();
        let (method, path) = match (words.next(), words.next(), words.next()) {
            (Some(path), None, _) => (None, path),
            (Some(method), Some(path), None) => (Some(method.to_ascii_uppercase()), path),
            _ => return Err(PatternError::Shape(text.to_owned())),
        };
        let Some(rooted) = path.strip_prefix('/') else {
            return Err(PatternError::Path(text.to_owned()));
        };
        let mut segments = Vec::new();
        for segment in rooted.split('/') {
            if segments.last() == Some(&Segment::Rest) {
                return Err(PatternError::AfterRest(text.to_owned()));
            }
            segments.push(
                Segment::parse(segment).ok_or_else(|| PatternError::Placeholder {
                    pattern: text.to_owned(),
                    segment: segment.to_owned(),
                })?,
            );
        }
        Ok(Self {
            method,
            path: path.to_owned(),
            segments,
        })
    }

    fn matches(&self, method: &str, path: &str) -> bool {
        if let Some(own) = &self.method
            && !own.eq_ignore_ascii_case(method)
        {
            return false;
        }
        let mut values = segments(path);
        for segment in &self.segments {
            match (segment, values.next()) {
                (Segment::Rest, _) => return true,
                (Segment::One, Some(value)) if !value.is_empty() => {}
                (Segment::Literal(own), Some(value)) if own == value => {}
                _ => return false,
            }
        }
        values.next().is_none()
    }
}

impl Segment {
    fn parse(text: &str) -> Option<Self> {
        let Some(inner) = text.strip_prefix('{') else {
            let plain = !text.contains(['{', '}']);
            return plain.then(|| Self::Literal(text.to_owned()));
        };
        let name = inner.strip_suffix('}')?;
        if name.contains(['{', '}']) {
            return None;
        }
        Some(if name.ends_with("...") {
            Self::Rest
        } else {
            Self::One
        })
    }
}

/// Names the types of requests, after it has seen all of them.
///
/// What it remembers is bounded by the number of distinct masked paths, and at each place of a path
/// by [`DISTINCT_MAX`].
#[derive(Clone, Debug, Default)]
pub struct TypeNamer {
    patterns: Patterns,
    root: Place,
}

/// The values seen at one place of paths that begin alike.
#[derive(Clone, Debug, Default)]
struct Place {
    next: HashMap<Box<str>, Place>,
    /// There were too many: all are ids.
    ids: bool,
}

impl TypeNamer {
    pub fn new(patterns: Patterns) -> Self {
        Self {
            patterns,
            root: Place::default(),
        }
    }

    /// Requests that a route or a pattern will name do not count towards what is an id.
    pub fn observe(&mut self, method: &str, target: &str, route: Option<&str>) {
        let path = path(target);
        if route.is_some_and(|route| !route.is_empty())
            || self.patterns.path_of(method, path).is_some()
        {
            return;
        }
        let mut place = &mut self.root;
        for segment in masked(path) {
            place = place.follow(&segment);
        }
    }

    /// Whether a request like this one was observed, or is named by a pattern.
    pub fn knows(&self, method: &str, target: &str) -> bool {
        let path = path(target);
        if self.patterns.path_of(method, path).is_some() {
            return true;
        }
        let mut place = &self.root;
        for segment in masked(path) {
            let segment = if place.ids { ID } else { segment.as_str() };
            match place.next.get(segment) {
                Some(next) => place = next,
                None => return false,
            }
        }
        true
    }

    /// `GET /forums/{id}/subscribers`.
    pub fn name(&self, method: &str, target: &str, route: Option<&str>) -> String {
        let method = method.to_ascii_uppercase();
        if let Some(route) = route.filter(|route| !route.is_empty()) {
            // Some services report `GET /path`, as in the name of a span.
            return match route.split_once(' ') {
                Some((first, _)) if first.eq_ignore_ascii_case(&method) => route.to_owned(),
                _ => format!("{method} {route}"),
            };
        }
        let path = path(target);
        if let Some(pattern) = self.patterns.path_of(&method, path) {
            return format!("{method} {pattern}");
        }
        let mut name = method + " ";
        let mut place = Some(&self.root);
        let start = name.len();
        for segment in masked(path) {
            let segment = match place {
                Some(place) if place.ids => ID,
                _ => segment.as_str(),
            };
            name.push('/');
            name.push_str(segment);
            place = place.and_then(|place| place.next.get(segment));
        }
        if !path.starts_with('/') && name[start..].starts_with('/') {
            name.remove(start);
        }
        name
    }
}

impl Place {
    fn follow(&mut self, segment: &str) -> &mut Place {
        let segment = if self.ids { ID } else { segment };
        if !self.next.contains_key(segment) {
            self.next.insert(segment.into(), Place::default());
            let named = self.next.len() - usize::from(self.next.contains_key(ID));
            if named > DISTINCT_MAX {
                self.collapse();
                return self.next.entry(ID.into()).or_default();
            }
        }
        self.next.entry(segment.into()).or_default()
    }

    fn collapse(&mut self) {
        let mut all = Place::default();
        for (_, place) in self.next.drain() {
            all.absorb(place);
        }
        self.next.insert(ID.into(), all);
        self.ids = true;
    }

    fn absorb(&mut self, other: Place) {
        if other.ids && !self.ids {
            self.collapse();
        }
        for (segment, place) in other.next {
            self.follow(&segment).absorb(place);
        }
    }
}

/// The path of a request target, without the query; of a target in absolute form too.
fn path(target: &str) -> &str {
    let end = target.find(['?', '#']).unwrap_or(target.len());
    let target = &target[..end];
    match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => match rest.find('/') {
            Some(at) => &rest[at..],
            None => "/",
        },
        _ => target,
    }
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}

fn masked(path: &str) -> impl Iterator<Item = String> {
    segments(path)
        .take(SEGMENTS_MAX + 1)
        .enumerate()
        .map(|(at, segment)| {
            if at == SEGMENTS_MAX {
                return REST.to_owned();
            }
            mask(segment)
        })
}

/// `{id}` for what looks like one, also before a file name's extension.
fn mask(segment: &str) -> String {
    if is_id(segment) {
        return ID.to_owned();
    }
    if let Some((stem, extension)) = segment.rsplit_once('.')
        && (1..=5).contains(&extension.len())
        && extension.bytes().all(|byte| byte.is_ascii_alphabetic())
        && is_id(stem)
    {
        return format!("{ID}.{extension}");
    }
    segment.to_owned()
}

fn is_id(text: &str) -> bool {
    let bytes = text.as_bytes();
    let has = |test: fn(&u8) -> bool| bytes.iter().any(test);
    let all = |test: fn(&u8) -> bool| bytes.iter().all(test);
    let digits = has(u8::is_ascii_digit);
    let integer = {
        let number = text.strip_prefix('-').unwrap_or(text);
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    // Words of eight letters from a to f exist; such ids without any digit are rare.
    let hex = bytes.len() >= 8 && digits && all(u8::is_ascii_hexdigit);
    let ulid = bytes.len() == 26
        && digits
        && all(|byte| {
            byte.is_ascii_alphanumeric()
                && !matches!(byte.to_ascii_uppercase(), b'I' | b'L' | b'O' | b'U')
        });
    // Slugs are in lower case, so a long mixture of all three kinds is a token.
    let token = bytes.len() >= 16
        && digits
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && all(|byte| byte.is_ascii_alphanumeric() || b"-_=+.~%".contains(byte));
    integer || is_uuid(bytes) || hex || ulid || token
}

fn is_uuid(bytes: &[u8]) -> bool {
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Result<Patterns, PatternError> {
        Patterns::parse(
            &texts
                .iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    fn alone(method: &str, target: &str) -> String {
        TypeNamer::default().name(method, target, None)
    }

    #[test]
    fn ids_are_masked_and_words_are_not() {
        for (target, name) in [
            ("/", "GET /"),
            (
                "/forums/12/subscribers?page=3",
                "GET /forums/{id}/subscribers",
            ),
            ("/forums/-1", "GET /forums/{id}"),
            ("/forums/", "GET /forums/"),
            ("/a/0b6f1b0e-7d0c-4f63-9a0e-1d2f3a4b5c6d", "GET /a/{id}"),
            ("/a/deadbee5", "GET /a/{id}"),
            ("/a/fabaceae", "GET /a/fabaceae"),
            ("/a/cafe", "GET /a/cafe"),
            ("/a/01ARZ3NDEKTSV4RRFFQ69G5FAV", "GET /a/{id}"),
            ("/a/V1StGXR8_Z5jdHi6B-myT", "GET /a/{id}"),
            ("/a/internationalization", "GET /a/internationalization"),
            (
                "/a/how-to-write-a-slug-in-2024",
                "GET /a/how-to-write-a-slug-in-2024",
            ),
            ("/img/4711.png", "GET /img/{id}.png"),
            ("/v2/login", "GET /v2/login"),
            ("http://shop.example/cart/7", "GET /cart/{id}"),
            ("http://shop.example", "GET /"),
            ("/go?to=http://a/b", "GET /go"),
            ("*", "GET *"),
        ] {
            assert_eq!(alone("get", target), name, "{target}");
        }
    }

    #[test]
    fn a_route_comes_before_a_pattern_and_a_pattern_before_the_path() {
        let namer = TypeNamer::new(patterns(&["/users/{name}"]).expect("well-formed"));
        assert_eq!(namer.name("GET", "/users/ada", Some("/u/:n")), "GET /u/:n");
        assert_eq!(
            namer.name("GET", "/users/ada", Some("GET /u/:n")),
            "GET /u/:n"
        );
        assert_eq!(
            namer.name("GET", "/users/ada", Some("")),
            "GET /users/{name}"
        );
        assert_eq!(namer.name("GET", "/users/ada", None), "GET /users/{name}");
        assert_eq!(namer.name("GET", "/users/ada/x", None), "GET /users/ada/x");
    }

    #[test]
    fn the_first_pattern_that_matches_names_the_type() {
        let namer = TypeNamer::new(
            patterns(&["POST /a/{x}", "/a/new", "/a/{y}", "/files/{path...}"])
                .expect("well-formed"),
        );
        assert_eq!(namer.name("post", "/a/new", None), "POST /a/{x}");
        assert_eq!(namer.name("GET", "/a/new", None), "GET /a/new");
        assert_eq!(namer.name("GET", "/a/old", None), "GET /a/{y}");
        assert_eq!(namer.name("GET", "/a/", None), "GET /a/");
        assert_eq!(
            namer.name("GET", "/files/a/b/c", None),
            "GET /files/{path...}"
        );
        assert_eq!(namer.name("GET", "/files", None), "GET /files/{path...}");
    }

    #[test]
    fn patterns_that_cannot_be_meant_are_refused() {
        let refused = |text: &str| patterns(&[text]).expect_err(text);
        assert!(matches!(refused(""), PatternError::Shape(_)));
        assert!(matches!(refused("GET /a /b"), PatternError::Shape(_)));
        assert!(matches!(refused("users"), PatternError::Path(_)));
        assert!(matches!(refused("/a/{x...}/b"), PatternError::AfterRest(_)));
        for text in ["/a/{x", "/a/x}", "/a/{{x}}", "/a/b{x}"] {
            assert!(
                matches!(refused(text), PatternError::Placeholder { .. }),
                "{text}"
            );
        }
    }

    #[test]
    fn many_values_at_one_place_are_ids() {
        let mut namer = TypeNamer::default();
        for user in 0..=DISTINCT_MAX {
            namer.observe("GET", &format!("/users/user-{user}/posts"), None);
        }
        namer.observe("GET", "/users/late/posts/first", None);
        namer.observe("GET", "/about", None);
        let name = |target| namer.name("GET", target, None);
        assert_eq!(name("/users/user-3/posts"), "GET /users/{id}/posts");
        assert_eq!(
            name("/users/late/posts/first"),
            "GET /users/{id}/posts/first"
        );
        assert_eq!(name("/users/unseen"), "GET /users/{id}");
        assert_eq!(name("/about"), "GET /about");
        assert!(namer.knows("GET", "/users/unseen/posts"));
        assert!(namer.knows("GET", "/about"));
        assert!(!namer.knows("GET", "/wp-login.php"));
    }

    #[test]
    fn few_values_at_one_place_are_names() {
        let mut namer = TypeNamer::default();
        for page in 0..DISTINCT_MAX {
            namer.observe("GET", &format!("/pages/page-{page}"), None);
            namer.observe("GET", &format!("/pages/{page}"), None);
        }
        assert_eq!(
            namer.name("GET", "/pages/page-3", None),
            "GET /pages/page-3"
        );
        assert_eq!(namer.name("GET", "/pages/3", None), "GET /pages/{id}");
    }

    #[test]
    fn values_below_ids_are_counted_together() {
        let mut namer = TypeNamer::default();
        for each in 0..=DISTINCT_MAX {
            namer.observe("GET", &format!("/a/x-{}/p-{each}", each / 2), None);
            namer.observe("GET", &format!("/b/{each}/p-{each}"), None);
        }
        for each in 0..=DISTINCT_MAX {
            namer.observe("GET", &format!("/a/y-{each}/q"), None);
        }
        assert_eq!(namer.name("GET", "/b/1/p-1", None), "GET /b/{id}/{id}");
        assert_eq!(namer.name("GET", "/a/x-1/p-2", None), "GET /a/{id}/{id}");
    }

    #[test]
    fn requests_named_otherwise_do_not_make_others_ids() {
        let mut namer = TypeNamer::new(patterns(&["POST /{page}"]).expect("well-formed"));
        for each in 0..=DISTINCT_MAX {
            namer.observe("POST", &format!("/p-{each}"), None);
            namer.observe("GET", &format!("/q-{each}"), Some("/{q}"));
        }
        assert_eq!(namer.name("GET", "/about", None), "GET /about");
    }

    #[test]
    fn endless_paths_end() {
        let name = alone("GET", &"/x".repeat(1000));
        assert_eq!(name, format!("GET {}/{REST}", "/x".repeat(SEGMENTS_MAX)));
    }
}
