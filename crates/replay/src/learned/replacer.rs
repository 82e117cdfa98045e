//! Finds known values in texts and puts others in their places.
//!
//! A value is found as a whole token only: no letter and no digit stands beside it. It is found as
//! it is, as a URL has it, and as a page has it, and what takes its place is written in the same
//! way. A text is gone through once, however many values are known: each is looked up by the first
//! of its words, so that a value is found before what it begins with.

use std::collections::{BTreeSet, HashMap};

/// The number of a value that is known.
pub type Number = u32;

#[derive(Default)]
pub struct Replacer {
    /// By their first word, the longest first.
    forms: HashMap<Box<[u8]>, Vec<Form>>,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Plain,
    /// In a URL or a form.
    Url,
    /// In a page, as Go's and others' templates do.
    Page,
    /// In JSON, as PHP does.
    Json,
}

impl Way {
    const ALL: [Self; 4] = [Self::Plain, Self::Url, Self::Page, Self::Json];

    fn write(self, value: &[u8]) -> Vec<u8> {
        match self {
            Self::Plain => value.to_vec(),
            Self::Url => percent_encoded(value),
            Self::Page => with_entities(value),
            Self::Json => with_escaped_slashes(value),
        }
    }
}

/// A value as it is written in some ways.
struct Form {
    number: Number,
    from: Box<[u8]>,
    /// What takes its place, by the ways in which `from` is written like this.
    to: Vec<(Way, Box<[u8]>)>,
    /// Where the word is in `from`.
    word_at: usize,
    /// Who the value belongs to, as hashes.
    owners: Box<[u64]>,
}

impl Replacer {
    /// From now on `to` stands where `from` does. Of several with the same `from` the last one
    /// counts, unless an earlier one belongs to who asks.
    pub fn add(&mut self, number: Number, from: &[u8], to: &[u8], owners: &[u64]) {
        let mut known: Vec<Form> = Vec::new();
        for way in Way::ALL {
            let (from, to) = (way.write(from), way.write(to).into());
            if let Some(form) = known.iter_mut().find(|form| *form.from == from[..]) {
                form.to.push((way, to));
                continue;
            }
            let word = words(&from).next();
            known.push(Form {
                number,
                word_at: word.map_or(0, |word| word.start),
                to: vec![(way, to)],
                owners: owners.into(),
                from: from.into(),
            });
        }
        for form in known {
            let Some(word) = words(&form.from).next() else {
                return;
            };
            let forms = self.forms.entry(Box::from(&form.from[word])).or_default();
            let at = forms.partition_point(|other| other.from.len() > form.from.len());
            forms.insert(at, form);
        }
    }

    /// The text with what stands in the places of known values, for who is known by `own`; `None`
    /// if there is none in it. `way`: how a value is written where that does not show. The numbers
    /// of what was found go into `found`.
    pub fn replace(
        &self,
        text: &[u8],
        way: Way,
        own: &[u64],
        found: &mut BTreeSet<Number>,
    ) -> Option<Vec<u8>> {
        let mut replaced = Vec::new();
        let mut done = 0;
        for word in words(text) {
            let Some(forms) = self.forms.get(&text[word.clone()]) else {
                continue;
            };
            let fits = forms.iter().filter(|form| {
                let start = word.start.checked_sub(form.word_at);
                start.is_some_and(|start| start >= done && form.is_at(text, start))
            });
            let mut best: Option<&Form> = None;
            for form in fits {
                match best {
                    None => best = Some(form),
                    Some(one) if one.from != form.from => break,
                    Some(one) if !one.is_of(own) && form.is_of(own) => best = Some(form),
                    Some(_) => {}
                }
            }
            if let Some(form) = best {
                let start = word.start - form.word_at;
                replaced.extend_from_slice(&text[done..start]);
                replaced.extend_from_slice(form.written(way));
                done = start + form.from.len();
                found.insert(form.number);
            }
        }
        if done == 0 {
            return None;
        }
        replaced.extend_from_slice(&text[done..]);
        Some(replaced)
    }
}

impl Form {
    fn is_at(&self, text: &[u8], start: usize) -> bool {
        let end = start + self.from.len();
        text.get(start..end) == Some(&self.from[..])
            && !text.get(end).is_some_and(|&byte| is_of_word(byte))
            && (start == 0 || !is_of_word(text[start - 1]) || ends_escape(&text[..start]))
    }

    fn is_of(&self, own: &[u64]) -> bool {
        self.owners.iter().any(|owner| own.contains(owner))
    }

    fn written(&self, way: Way) -> &[u8] {
        let wanted = self.to.iter().find(|(of, _)| *of == way);
        &wanted.unwrap_or(&self.to[0]).1
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Whether `%2F` and the like stands at the end.
fn ends_escape(text: &[u8]) -> bool {
    matches!(text, [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// The runs of letters and digits. What is escaped in a URL stands between them.
pub fn words(text: &[u8]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < text.len() && !is_of_word(text[at]) {
            let escape = text.get(..at + 3).is_some_and(ends_escape);
            at += if escape { 3 } else { 1 };
        }
        let start = at;
        while at < text.len() && is_of_word(text[at]) {
            at += 1;
        }
        (start < at).then_some(start..at)
    })
}

pub fn percent_encoded(text: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            _ if is_of_word(byte) => encoded.push(byte),
            b'.' | b'~' => encoded.push(byte),
            _ => encoded.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    encoded
}

/// `%2F` as the byte that it stands for.
pub fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let escape = text.get(..at + 3).filter(|text| ends_escape(text));
        let digits = escape.and_then(|text| std::str::from_utf8(&text[at + 1..]).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(text[at]);
                at += 1;
            }
        }
    }
    decoded
}

fn with_entities(text: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'&' => escaped.extend_from_slice(b"&amp;"),
            b'<' => escaped.extend_from_slice(b"&lt;"),
            b'>' => escaped.extend_from_slice(b"&gt;"),
            b'+' | b'"' | b'\'' => escaped.extend_from_slice(format!("&#{byte};").as_bytes()),
            _ => escaped.push(byte),
        }
    }
    escaped
}

fn with_escaped_slashes(text: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    for &byte in text {
        escaped.extend((byte == b'/').then_some(b'\\'));
        escaped.push(byte);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(values: &[(&str, &str)], text: &str) -> String {
        replaced_in(Way::Plain, values, text)
    }

    fn replaced_in(way: Way, values: &[(&str, &str)], text: &str) -> String {
        let mut replacer = Replacer::default();
        for ((from, to), number) in values.iter().zip(0..) {
            replacer.add(number, from.as_bytes(), to.as_bytes(), &[]);
        }
        let replaced = replacer.replace(text.as_bytes(), way, &[], &mut BTreeSet::new());
        replaced.map_or("-".to_owned(), |text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_value_is_found_as_a_whole_token() {
        let values = [("abc123", "xyz789")];
        assert_eq!(replaced(&values, "sid=abc123; a=b"), "sid=xyz789; a=b");
        assert_eq!(
            replaced(&values, "/notes/abc123/abc123?a"),
            "/notes/xyz789/xyz789?a"
        );
        assert_eq!(replaced(&values, "sid=abc1234"), "-");
        assert_eq!(replaced(&values, "sid=1abc123 abc123-4"), "-");
        assert_eq!(
            replaced(&values, "next=%2Fnotes%2Fabc123"),
            "next=%2Fnotes%2Fxyz789"
        );
    }

    #[test]
    fn a_value_is_written_as_it_was() {
        let values = [("ab+cd/ef==", "uv/wx+yz==")];
        assert_eq!(
            replaced(&values, r#"{"t":"ab+cd/ef=="}"#),
            r#"{"t":"uv/wx+yz=="}"#
        );
        assert_eq!(
            replaced(&values, "t=ab%2Bcd%2Fef%3D%3D&u"),
            "t=uv%2Fwx%2Byz%3D%3D&u"
        );
        assert_eq!(
            replaced(&values, "value=\"ab&#43;cd/ef==\""),
            "value=\"uv/wx&#43;yz==\""
        );
        assert_eq!(replaced(&values, r#""ab+cd\/ef==""#), r#""uv\/wx+yz==""#);
        assert_eq!(replaced(&values, "t=ab+cd/ef==x"), "-");
    }

    /// It shows in what is written in one way only.
    #[test]
    fn a_value_that_is_written_the_same_in_all_ways_is_written_as_asked_for() {
        let values = [("abcd1234", "uv/wx+yz==")];
        let text = "t=abcd1234";
        assert_eq!(replaced_in(Way::Plain, &values, text), "t=uv/wx+yz==");
        assert_eq!(replaced_in(Way::Url, &values, text), "t=uv%2Fwx%2Byz%3D%3D");
        assert_eq!(replaced_in(Way::Page, &values, text), "t=uv/wx&#43;yz==");
        let values = [("a/b+1234", "u+v/1234")];
        assert_eq!(
            replaced_in(Way::Page, &values, "t=a%2Fb%2B1234"),
            "t=u%2Bv%2F1234"
        );
    }

    #[test]
    fn the_longest_value_counts() {
        let values = [("abc123", "short1"), ("abc123.def", "long22.uvw")];
        assert_eq!(
            replaced(&values, "abc123.def abc123.d"),
            "long22.uvw short1.d"
        );
        // Also where a part of it is known as well, and another word of it is longer.
        let values = [
            ("abc123.defghi456", "long22.uvwxyz789"),
            ("abc123", "short1"),
        ];
        assert_eq!(replaced(&values, "abc123.defghi456"), "long22.uvwxyz789");
    }

    #[test]
    fn of_two_clients_each_has_its_own() {
        let mut replacer = Replacer::default();
        replacer.add(0, b"shared-1", b"of-anna", &[1]);
        replacer.add(1, b"shared-1", b"of-bert", &[2]);
        let of = |own| replacer.replace(b"shared-1", Way::Plain, &[own], &mut BTreeSet::new());
        assert_eq!(of(1).unwrap(), b"of-anna");
        assert_eq!(of(2).unwrap(), b"of-bert");
        // Who is not known has the value that came last.
        assert_eq!(of(3).unwrap(), b"of-bert");
    }

    #[test]
    fn escapes_are_undone() {
        for text in ["a/b+c=d", "plain", "100%"] {
            assert_eq!(
                percent_decoded(&percent_encoded(text.as_bytes())),
                text.as_bytes()
            );
        }
        assert_eq!(percent_decoded(b"%zz%4"), b"%zz%4");
    }
}
