//! Values as Postgres writes them: parameters from Rust, results to Rust.

use std::fmt::Write;

/// A value that can be a parameter.
pub trait ToText: Sync {
    /// Appends the value; false for NULL.
    fn to_text(&self, out: &mut String) -> bool;
}

/// A value that can be read from a result. `text` is `None` for NULL.
pub trait FromText<'a>: Sized {
    fn from_text(text: Option<&'a str>) -> Option<Self>;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl ToText for $type {
            fn to_text(&self, out: &mut String) -> bool {
                write!(out, "{self}").is_ok()
            }
        }

        impl FromText<'_> for $type {
            fn from_text(text: Option<&str>) -> Option<Self> {
                text?.parse().ok()
            }
        }
    )*};
}

numbers!(i16 i32 i64 u32 u64 f64);

impl ToText for str {
    fn to_text(&self, out: &mut String) -> bool {
        out.push_str(self);
        true
    }
}

impl ToText for String {
    fn to_text(&self, out: &mut String) -> bool {
        self.as_str().to_text(out)
    }
}

impl<T: ToText + ?Sized> ToText for &T {
    fn to_text(&self, out: &mut String) -> bool {
        (**self).to_text(out)
    }
}

impl<T: ToText> ToText for Option<T> {
    fn to_text(&self, out: &mut String) -> bool {
        self.as_ref().is_some_and(|value| value.to_text(out))
    }
}

/// An array. Elements of every type may be quoted.
impl<T: ToText> ToText for [T] {
    fn to_text(&self, out: &mut String) -> bool {
        out.push('{');
        let mut text = String::new();
        for (at, value) in self.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            text.clear();
            if !value.to_text(&mut text) {
                out.push_str("NULL");
                continue;
            }
            out.push('"');
            for character in text.chars() {
                if matches!(character, '"' | '\\') {
                    out.push('\\');
                }
                out.push(character);
            }
            out.push('"');
        }
        out.push('}');
        true
    }
}

impl<T: ToText> ToText for Vec<T> {
    fn to_text(&self, out: &mut String) -> bool {
        self.as_slice().to_text(out)
    }
}

impl<'a> FromText<'a> for &'a str {
    fn from_text(text: Option<&'a str>) -> Option<Self> {
        text
    }
}

impl FromText<'_> for String {
    fn from_text(text: Option<&str>) -> Option<Self> {
        text.map(str::to_owned)
    }
}

impl FromText<'_> for bool {
    fn from_text(text: Option<&str>) -> Option<Self> {
        match text? {
            "t" => Some(true),
            "f" => Some(false),
            _ => None,
        }
    }
}

/// Postgres' `"char"`, which writes its zero as the empty text.
impl FromText<'_> for char {
    fn from_text(text: Option<&str>) -> Option<Self> {
        Some(text?.chars().next().unwrap_or('\0'))
    }
}

impl<'a, T: FromText<'a>> FromText<'a> for Option<T> {
    fn from_text(text: Option<&'a str>) -> Option<Self> {
        match text {
            None => Some(None),
            Some(_) => T::from_text(text).map(Some),
        }
    }
}

/// An array of one dimension.
impl<T: for<'a> FromText<'a>> FromText<'_> for Vec<T> {
    fn from_text(text: Option<&str>) -> Option<Self> {
        let text = text?;
        // Bounds other than from 1 are written in front: `[0:1]={a,b}`.
        let text =
            text.split_once("]=").map_or(
                text,
                |(bounds, rest)| {
                    if bounds.starts_with('[') { rest } else { text }
                },
            );
        let mut rest = text.strip_prefix('{')?;
        let mut values = Vec::new();
        if rest == "}" {
            return Some(values);
        }
        let mut unquoted = String::new();
        loop {
            let quoted = rest.starts_with('"');
            let end = if quoted {
                unquote(&rest[1..], &mut unquoted)? + 1
            } else {
                rest.find([',', '}'])?
            };
            let value = match &rest[..end] {
                "NULL" => None,
                _ if quoted => Some(unquoted.as_str()),
                plain => Some(plain),
            };
            values.push(T::from_text(value)?);
            match rest[end..].chars().next()? {
                ',' => rest = &rest[end + 1..],
                _ => return Some(values),
            }
        }
    }
}

/// Puts what stands before the next quote into `out`, and returns where what follows the quote
/// begins.
fn unquote(text: &str, out: &mut String) -> Option<usize> {
    out.clear();
    let mut from = 0;
    loop {
        let at = from + text[from..].find(['"', '\\'])?;
        out.push_str(&text[from..at]);
        if text.as_bytes()[at] == b'"' {
            return Some(at + 1);
        }
        let escaped = text[at + 1..].chars().next()?;
        out.push(escaped);
        from = at + 1 + escaped.len_utf8();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &dyn ToText) -> Option<String> {
        let mut out = String::new();
        value.to_text(&mut out).then_some(out)
    }

    #[test]
    fn parameters_are_written_as_postgres_reads_them() {
        assert_eq!(text(&-5_i64).as_deref(), Some("-5"));
        assert_eq!(text(&Some("it's")).as_deref(), Some("it's"));
        assert_eq!(text(&None::<i32>), None);
        let list = vec![Some("a\"b\\c"), None, Some(""), Some("NULL")];
        assert_eq!(
            text(&list).as_deref(),
            Some(r#"{"a\"b\\c",NULL,"","NULL"}"#)
        );
        assert_eq!(text(&Vec::<u32>::new()).as_deref(), Some("{}"));
    }

    #[test]
    fn arrays_are_read_as_postgres_writes_them() {
        let read = |text| Vec::<Option<String>>::from_text(Some(text));
        let list = |values: &[Option<&str>]| {
            let owned = values.iter().map(|value| value.map(str::to_owned));
            Some(owned.collect::<Vec<_>>())
        };
        assert_eq!(read("{}"), list(&[]));
        assert_eq!(
            read(r#"{a,"b, \"c\\d}",NULL,"NULL",""}"#),
            list(&[Some("a"), Some("b, \"c\\d}"), None, Some("NULL"), Some("")])
        );
        assert_eq!(read("[0:1]={x,ü}"), list(&[Some("x"), Some("ü")]));
        for broken in ["", "{", "{a", "{\"a", "a"] {
            assert_eq!(read(broken), None, "{broken}");
        }
        assert_eq!(Vec::<i32>::from_text(Some("{1,-2}")), Some(vec![1, -2]));
        assert_eq!(Vec::<i32>::from_text(Some("{1,x}")), None);
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_back(list in proptest::collection::vec(proptest::option::of(".*"), 0..5)) {
            let written = text(&list);
            proptest::prop_assert_eq!(Vec::<Option<String>>::from_text(written.as_deref()), Some(list));
        }

        #[test]
        fn no_text_makes_reading_panic(text in ".*") {
            let _ = Vec::<Option<String>>::from_text(Some(&text));
        }
    }
}
