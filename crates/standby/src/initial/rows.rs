//! COPY's text format: a row a line, values separated by tabs.

use std::ops::Range;

/// A row of a table, as COPY sends it: values in the order of the columns that were asked for.
#[derive(Debug, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    values: Vec<Option<Range<usize>>>,
}

impl Fields {
    /// Reads a line, with or without its newline; what was read before is gone.
    pub fn read(&mut self, line: &[u8]) {
        self.bytes.clear();
        self.values.clear();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        for field in line.split(|&byte| byte == b'\t') {
            if field == b"\\N" {
                self.values.push(None);
                continue;
            }
            let start = self.bytes.len();
            unescape(field, &mut self.bytes);
            self.values.push(Some(start..self.bytes.len()));
        }
    }

    /// A table without columns has one empty value, as its line is empty, too.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// `None` is NULL.
    pub fn get(&self, column: usize) -> Option<&[u8]> {
        let range = self.values.get(column)?.clone()?;
        Some(&self.bytes[range])
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        self.values
            .iter()
            .map(|range| range.clone().map(|range| &self.bytes[range]))
    }
}

/// Undoes the escapes that COPY TO writes: it uses the short ones only, but all that COPY FROM
/// understands are the same length or shorter in bytes.
fn unescape(mut field: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = field.iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&field[..at]);
        out.push(match field.get(at + 1) {
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'v') => 11,
            Some(&other) => other,
            None => b'\\',
        });
        field = field.get(at + 2..).unwrap_or_default();
    }
    out.extend_from_slice(field);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(line: &str) -> Vec<Option<String>> {
        let mut fields = Fields::default();
        fields.read(line.as_bytes());
        fields
            .iter()
            .map(|value| value.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
            .collect()
    }

    #[test]
    fn null_is_not_the_text_that_looks_like_it() {
        assert_eq!(
            fields("\\N\t\\\\N\tN\t\n"),
            [
                None,
                Some("\\N".into()),
                Some("N".into()),
                Some(String::new())
            ]
        );
    }

    #[test]
    fn a_row_does_not_show_what_was_read_before() {
        let mut fields = Fields::default();
        fields.read(b"a\tb\tc\n");
        fields.read(b"d\n");
        assert_eq!((fields.len(), fields.get(0)), (1, Some(&b"d"[..])));
        assert_eq!(fields.get(1), None);
    }

    /// As `CopyAttributeOutText` does it.
    fn escape(value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for &byte in value {
            match byte {
                8 => out.extend(b"\\b"),
                12 => out.extend(b"\\f"),
                b'\n' => out.extend(b"\\n"),
                b'\r' => out.extend(b"\\r"),
                b'\t' => out.extend(b"\\t"),
                11 => out.extend(b"\\v"),
                b'\\' => out.extend(b"\\\\"),
                other => out.push(other),
            }
        }
        out
    }

    proptest! {
        #[test]
        fn what_postgres_writes_is_read_back(
            row in prop::collection::vec(prop::option::of(prop::collection::vec(
                prop_oneof![Just(b'\\'), Just(b'\t'), Just(b'\n'), Just(b'N'), any::<u8>()], 0..12)), 1..6)
        ) {
            let line: Vec<Vec<u8>> = row
                .iter()
                .map(|value| value.as_ref().map_or(b"\\N".to_vec(), |value| escape(value)))
                .collect();
            let mut line = line.join(&b'\t');
            line.push(b'\n');
            let mut fields = Fields::default();
            fields.read(&line);
            let read: Vec<Option<Vec<u8>>> = fields.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
            prop_assert_eq!(read, row);
        }
    }
}
