//! Changes to statement texts, and the way back for error positions.

use bytes::{BufMut, BytesMut};

use super::lexer::{Dialect, Encoding, Lexer, Token, TokenKind};

/// Changes to one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits(Vec<Edit>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    at: usize,
    removed: usize,
    inserted: Vec<u8>,
}

impl Edits {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces `removed` bytes at `at` of the original text. Edits must not overlap; of two at one place the first comes first.
    pub fn replace(&mut self, at: usize, removed: usize, inserted: &[u8]) {
        let index = self.0.partition_point(|edit| edit.at <= at);
        let fits = index == 0 || self.0[index - 1].at + self.0[index - 1].removed <= at;
        let clear = self.0.get(index).is_none_or(|next| at + removed <= next.at);
        assert!(fits && clear, "edits do not overlap");
        self.0.insert(
            index,
            Edit {
                at,
                removed,
                inserted: inserted.to_vec(),
            },
        );
    }

    pub fn insert(&mut self, at: usize, inserted: &[u8]) {
        self.replace(at, 0, inserted);
    }

    /// Appends the changed text.
    pub fn apply(&self, text: &[u8], out: &mut BytesMut) {
        let mut copied = 0;
        for edit in &self.0 {
            out.put_slice(&text[copied..edit.at]);
            out.put_slice(&edit.inserted);
            copied = edit.at + edit.removed;
        }
        out.put_slice(&text[copied..]);
    }

    /// How to get from positions in the changed text back to the original.
    pub fn positions(&self, text: &[u8], encoding: Encoding) -> PositionMap {
        let (mut shifts, mut counted, mut original, mut changed) =
            (Vec::with_capacity(self.0.len()), 0, 0, 0);
        for edit in &self.0 {
            let between = encoding.characters(&text[counted..edit.at]) as u32;
            let removed = encoding.characters(&text[edit.at..edit.at + edit.removed]) as u32;
            let inserted = encoding.characters(&edit.inserted) as u32;
            shifts.push(Shift {
                changed: changed + between,
                original: original + between,
                removed,
                inserted,
            });
            changed += between + inserted;
            original += between + removed;
            counted = edit.at + edit.removed;
        }
        let characters = original + encoding.characters(&text[counted..]) as u32;
        PositionMap {
            shifts: shifts.into(),
            characters,
        }
    }
}

/// Maps character positions of a changed text back to the original.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PositionMap {
    shifts: Box<[Shift]>,
    /// Of the original text.
    characters: u32,
}

/// One edit, in characters from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shift {
    changed: u32,
    original: u32,
    removed: u32,
    inserted: u32,
}

impl PositionMap {
    /// Positions count from 1, as in the server's errors. One within inserted text becomes that of the edit.
    pub fn to_original(&self, position: u32) -> u32 {
        let at = position.saturating_sub(1);
        match self.shifts.iter().rev().find(|shift| shift.changed <= at) {
            None => position,
            Some(shift) if at < shift.changed + shift.inserted => shift.original + 1,
            Some(shift) => at - shift.changed - shift.inserted + shift.original + shift.removed + 1,
        }
    }

    /// Whether a position is in text that was inserted at the very end.
    pub fn is_behind(&self, position: u32) -> bool {
        self.shifts.last().is_some_and(|shift| {
            shift.original + shift.removed >= self.characters
                && shift.inserted > 0
                && position > shift.changed
        })
    }

    /// One behind the last character of the original text: where the server reports an unexpected end.
    pub fn end(&self) -> u32 {
        self.characters + 1
    }
}

/// Replaces the clock's keywords (`CURRENT_TIMESTAMP`, `CURRENT_DATE`, …), which cannot be redefined, by expressions
/// on `now()`, which can. Result columns keep their names.
pub fn clock_edits(text: &[u8], dialect: Dialect) -> Edits {
    let mut edits = Edits::new();
    if !text.windows(5).any(|window| {
        window.eq_ignore_ascii_case(b"curre") || window.eq_ignore_ascii_case(b"local")
    }) {
        return edits;
    }
    let tokens: Vec<Token> = Lexer::new(text, dialect)
        .filter(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment))
        .collect();
    let is = |index: usize, keyword: &str| {
        tokens.get(index).is_some_and(|token: &Token| {
            token.kind == TokenKind::Word
                && token.text(text).eq_ignore_ascii_case(keyword.as_bytes())
        })
    };
    // For every open parenthesis, and outside of all: whether we are in a select list.
    let mut in_select_list = vec![false];
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Open => in_select_list.push(false),
            TokenKind::Close if in_select_list.len() > 1 => drop(in_select_list.pop()),
            TokenKind::Semicolon => in_select_list = vec![false],
            TokenKind::Word => {
                let innermost = in_select_list
                    .last_mut()
                    .expect("the outermost entry is never popped");
                if is(index, "select") || is(index, "returning") {
                    *innermost = true;
                } else if [
                    "from",
                    "where",
                    "union",
                    "except",
                    "intersect",
                    "group",
                    "order",
                    "limit",
                    "into",
                ]
                .iter()
                .any(|keyword| is(index, keyword))
                {
                    *innermost = false;
                }
                let Some((keyword, plain, with_precision)) =
                    CLOCKS.iter().find(|(keyword, ..)| is(index, keyword))
                else {
                    continue;
                };
                let qualified = index > 0 && tokens[index - 1].text(text) == b".";
                if qualified || is(index.wrapping_sub(1), "as") {
                    continue;
                }
                let precision = tokens
                    .get(index + 1)
                    .is_some_and(|next| next.kind == TokenKind::Open);
                let expression = if precision { with_precision } else { plain };
                let begins = index > 0
                    && (tokens[index - 1].kind == TokenKind::Comma
                        || ["select", "all", "distinct", "returning"]
                            .iter()
                            .any(|word| is(index - 1, word)));
                let next = index + 1 + if precision { 3 } else { 0 };
                let ends = match tokens.get(next) {
                    None => true,
                    Some(next_token) => {
                        matches!(
                            next_token.kind,
                            TokenKind::Comma | TokenKind::Close | TokenKind::Semicolon
                        ) || is(next, "from")
                    }
                };
                edits.replace(token.start, token.end - token.start, expression.as_bytes());
                if *innermost && begins && ends {
                    let end = tokens[next - 1].end;
                    edits.insert(end, format!(" AS \"{keyword}\"").as_bytes());
                }
            }
            _ => {}
        }
    }
    edits
}

/// Keyword, replacement, and replacement where a precision follows.
const CLOCKS: [(&str, &str, &str); 5] = [
    ("current_timestamp", "now()", "now()::timestamptz"),
    ("localtimestamp", "now()::timestamp", "now()::timestamp"),
    ("current_date", "now()::date", "now()::date"),
    ("current_time", "now()::timetz", "now()::timetz"),
    ("localtime", "now()::time", "now()::time"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apply(edits: &Edits, text: &str) -> String {
        let mut out = BytesMut::new();
        edits.apply(text.as_bytes(), &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn positions_behind_a_change_are_mapped_back() {
        let text = "/*ä*/ SELECT x; COMMIT";
        let mut edits = Edits::new();
        edits.replace(0, "/*ä*/ ".len(), b"");
        edits.insert(text.len() - 6, b"SELECT 7;");
        edits.insert(text.len(), b"\n;SELECT 8");
        let changed = apply(&edits, text);
        assert_eq!(changed, "SELECT x; SELECT 7;COMMIT\n;SELECT 8");
        let map = edits.positions(text.as_bytes(), Encoding::Utf8);
        let original: Vec<char> = text.chars().collect();
        for (wanted, position) in [('x', 8), ('M', 22)] {
            assert_eq!(changed.chars().nth(position - 1), Some(wanted));
            assert_eq!(
                original[map.to_original(position as u32) as usize - 1],
                wanted
            );
        }
        assert!(map.is_behind(changed.find(";SELECT 8").unwrap() as u32 + 1));
        assert!(!map.is_behind(25));
        assert_eq!(map.end(), original.len() as u32 + 1);
    }

    #[test]
    fn the_clock_is_read_through_a_function_that_can_be_replaced() {
        for (text, expected) in [
            (
                "INSERT INTO t VALUES (1, CURRENT_TIMESTAMP)",
                "INSERT INTO t VALUES (1, now())",
            ),
            (
                "SELECT current_timestamp, a FROM t",
                "SELECT now() AS \"current_timestamp\", a FROM t",
            ),
            (
                "SELECT CURRENT_TIMESTAMP(3)",
                "SELECT now()::timestamptz(3) AS \"current_timestamp\"",
            ),
            ("SELECT CURRENT_TIMESTAMP AS x", "SELECT now() AS x"),
            ("SELECT CURRENT_DATE - 1", "SELECT now()::date - 1"),
            (
                "SELECT a FROM t WHERE b < LOCALTIMESTAMP",
                "SELECT a FROM t WHERE b < now()::timestamp",
            ),
            (
                "SELECT 'CURRENT_TIMESTAMP', x.current_date, f(1, current_date)",
                "SELECT 'CURRENT_TIMESTAMP', x.current_date, f(1, now()::date)",
            ),
            ("SELECT 1", "SELECT 1"),
        ] {
            assert_eq!(
                apply(&clock_edits(text.as_bytes(), Dialect::default()), text),
                expected
            );
        }
    }

    proptest! {
        #[test]
        fn what_stays_is_found_again(text in "[a-zä]{1,30}", cuts in proptest::collection::vec((0usize..30, 0usize..4, "[0-9€]{0,3}"), 0..4)) {
            let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let mut cuts = cuts;
            cuts.sort();
            let (mut edits, mut free) = (Edits::new(), 0);
            for (at, count, inserted) in &cuts {
                let at = (*at).max(free);
                if at >= boundaries.len() { break; }
                let end = (at + count).min(boundaries.len() - 1);
                edits.replace(boundaries[at], boundaries[end] - boundaries[at], inserted.as_bytes());
                free = end + 1;
            }
            let changed: Vec<char> = apply(&edits, &text).chars().collect();
            let original: Vec<char> = text.chars().collect();
            let map = edits.positions(text.as_bytes(), Encoding::Utf8);
            for (index, character) in changed.iter().enumerate() {
                if character.is_alphabetic() {
                    let back = map.to_original(index as u32 + 1) as usize;
                    prop_assert_eq!(original[back - 1], *character);
                }
            }
        }
    }
}
