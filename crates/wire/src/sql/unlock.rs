//! Takes row and table locks out of statement texts, for a replay that does without them.

use super::lexer::{Dialect, Lexer, Token, TokenKind};
use super::rewrite::Edits;

/// What a statement that may lock rows begins with. `CREATE POLICY … FOR UPDATE`, for one, means
/// something else.
const LOCKERS: [&str; 12] = [
    "select", "with", "values", "table", "insert", "update", "delete", "merge", "declare", "copy",
    "explain", "prepare",
];

/// Removes `FOR UPDATE` and its like but for those that skip what is locked, which decides what
/// they find and waits for nothing; of a cursor it leaves the weakest, by which `WHERE CURRENT OF`
/// finds the row. Turns the mode of a `LOCK TABLE` into the mode that
/// conflicts with no other. The server answers as it would have.
pub fn lock_edits(text: &[u8], dialect: Dialect) -> Edits {
    let mut edits = Edits::new();
    let may_lock = text
        .windows(4)
        .any(|window| window.eq_ignore_ascii_case(b"lock"))
        || text
            .windows(3)
            .any(|window| window.eq_ignore_ascii_case(b"for"));
    if !may_lock {
        return edits;
    }
    let tokens: Vec<Token> = Lexer::new(text, dialect)
        .filter(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment))
        .collect();
    for statement in tokens.split(|token| token.kind == TokenKind::Semicolon) {
        let words = Words {
            text,
            tokens: statement,
        };
        let first = statement
            .iter()
            .position(|token| token.kind != TokenKind::Open)
            .unwrap_or(0);
        if words.is(0, "lock") {
            weaken_table_lock(&words, &mut edits);
        } else if LOCKERS.iter().any(|word| words.is(first, word)) {
            let replacement: &[u8] = match words.is(first, "declare") {
                true => b"FOR KEY SHARE",
                false => b"",
            };
            replace_row_locks(&words, replacement, &mut edits);
        }
    }
    edits
}

struct Words<'a> {
    text: &'a [u8],
    tokens: &'a [Token],
}

impl Words<'_> {
    fn is(&self, index: usize, keyword: &str) -> bool {
        self.tokens.get(index).is_some_and(|token| {
            token.kind == TokenKind::Word
                && token
                    .text(self.text)
                    .eq_ignore_ascii_case(keyword.as_bytes())
        })
    }

    fn are(&self, index: usize, keywords: &[&str]) -> bool {
        keywords
            .iter()
            .zip(index..)
            .all(|(keyword, index)| self.is(index, keyword))
    }

    fn is_kind(&self, index: usize, kind: TokenKind) -> bool {
        self.tokens
            .get(index)
            .is_some_and(|token| token.kind == kind)
    }
}

/// `FOR { UPDATE | NO KEY UPDATE | SHARE | KEY SHARE } [ OF table [, …] ] [ NOWAIT ]`, wherever it
/// stands, but for `SKIP LOCKED`.
fn replace_row_locks(words: &Words<'_>, replacement: &[u8], edits: &mut Edits) {
    const STRENGTHS: [&[&str]; 4] = [
        &["for", "update"],
        &["for", "no", "key", "update"],
        &["for", "share"],
        &["for", "key", "share"],
    ];
    let mut index = 1;
    while index < words.tokens.len() {
        let Some(strength) = STRENGTHS.iter().find(|strength| words.are(index, strength)) else {
            index += 1;
            continue;
        };
        let start = words.tokens[index].start;
        index += strength.len();
        let named = index;
        if words.is(index, "of") {
            // Names, dots and commas: what follows the list is none of these, but for the keywords
            // below.
            index += 1;
            loop {
                index += 1;
                while words
                    .tokens
                    .get(index)
                    .is_some_and(|token| token.text(words.text) == b".")
                {
                    index += 2;
                }
                if !words.is_kind(index, TokenKind::Comma) {
                    break;
                }
                index += 1;
            }
        }
        if words.are(index, &["skip", "locked"]) {
            index += 2;
            continue;
        }
        let names_end = index;
        if words.is(index, "nowait") {
            index += 1;
        }
        let end_of = |index: usize| words.tokens[index.min(words.tokens.len()) - 1].end;
        let names = &words.text[end_of(named)..end_of(names_end)];
        let names = if replacement.is_empty() { b"" } else { names };
        edits.replace(start, end_of(index) - start, &[replacement, names].concat());
    }
}

/// `LOCK [ TABLE ] [ ONLY ] name [, …] [ IN mode MODE ] [ NOWAIT ]`
fn weaken_table_lock(words: &Words<'_>, edits: &mut Edits) {
    const WEAKEST: &[u8] = b"IN ACCESS SHARE MODE";
    let find = |keyword: &str| (1..words.tokens.len()).find(|&index| words.is(index, keyword));
    if let (Some(from), Some(to)) = (find("in"), find("mode"))
        && from < to
    {
        let start = words.tokens[from].start;
        edits.replace(start, words.tokens[to].end - start, WEAKEST);
        return;
    }
    let last = match find("nowait") {
        Some(nowait) => nowait - 1,
        None => words.tokens.len() - 1,
    };
    edits.insert(words.tokens[last].end, &[b" ", WEAKEST].concat());
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use proptest::prelude::*;

    fn unlocked(text: &str) -> String {
        let mut out = BytesMut::new();
        lock_edits(text.as_bytes(), Dialect::default()).apply(text.as_bytes(), &mut out);
        String::from_utf8(out.to_vec()).expect("ASCII stays ASCII")
    }

    #[test]
    fn rows_are_not_locked() {
        for (text, expected) in [
            (
                "SELECT a FROM t WHERE b = 1 FOR UPDATE",
                "SELECT a FROM t WHERE b = 1 ",
            ),
            (
                "select * from t for no key update nowait;",
                "select * from t ;",
            ),
            (
                "SELECT * FROM t FOR SHARE OF t, s.u NOWAIT LIMIT 3",
                "SELECT * FROM t  LIMIT 3",
            ),
            (
                "SELECT * FROM t, u FOR UPDATE OF t FOR KEY SHARE OF \"U\"",
                "SELECT * FROM t, u  ",
            ),
            ("(SELECT 1 FROM t FOR UPDATE)", "(SELECT 1 FROM t )"),
            (
                "DELETE FROM q WHERE id IN (SELECT id FROM q FOR UPDATE LIMIT 1)",
                "DELETE FROM q WHERE id IN (SELECT id FROM q  LIMIT 1)",
            ),
            (
                "BEGIN; SELECT 1 FROM t FOR UPDATE; COMMIT",
                "BEGIN; SELECT 1 FROM t ; COMMIT",
            ),
        ] {
            assert_eq!(unlocked(text), expected);
        }
    }

    #[test]
    fn rows_of_a_cursor_can_be_changed_where_it_stands() {
        let cursor = "DECLARE c CURSOR FOR SELECT a FROM t, u ORDER BY a FOR";
        for (lock, expected) in [
            ("UPDATE", "KEY SHARE"),
            ("NO KEY UPDATE OF t NOWAIT", "KEY SHARE OF t"),
            ("SHARE OF t, u", "KEY SHARE OF t, u"),
        ] {
            let text = format!("{cursor} {lock}");
            assert_eq!(unlocked(&text), format!("{cursor} {expected}"));
        }
    }

    #[test]
    fn tables_are_locked_in_nobodys_way() {
        for (text, expected) in [
            ("LOCK t", "LOCK t IN ACCESS SHARE MODE"),
            (
                "LOCK TABLE ONLY s.t, u;",
                "LOCK TABLE ONLY s.t, u IN ACCESS SHARE MODE;",
            ),
            (
                "lock table t in exclusive mode nowait",
                "lock table t IN ACCESS SHARE MODE nowait",
            ),
            (
                "LOCK TABLE t NOWAIT",
                "LOCK TABLE t IN ACCESS SHARE MODE NOWAIT",
            ),
        ] {
            assert_eq!(unlocked(text), expected);
        }
    }

    #[test]
    fn what_waits_for_nothing_or_only_looks_like_a_lock_stays() {
        for text in [
            "SELECT 'FOR UPDATE' FROM t -- FOR UPDATE",
            "DELETE FROM q WHERE id IN (SELECT id FROM q FOR UPDATE SKIP LOCKED LIMIT 1)",
            "SELECT * FROM t FOR SHARE OF t, s.u SKIP LOCKED LIMIT 3",
            "CREATE POLICY p ON t FOR UPDATE USING (true)",
            "SELECT substring(a for 3) FROM t",
            "SELECT \"for\" update FROM t",
            "SELECT lock FROM locks",
            "CREATE TRIGGER g AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()",
        ] {
            assert_eq!(unlocked(text), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(words in proptest::collection::vec(
            prop_oneof![Just("lock"), Just("select"), Just("for"), Just("update"), Just("of"), Just("t"), Just("."), Just(","), Just("in"), Just("mode"), Just("nowait"), Just("skip"), Just("locked"), Just(";"), Just("("), Just(")")],
            0..12,
        )) {
            let text = words.join(" ");
            let once = unlocked(&text);
            prop_assert!(once.len() <= text.len() + 24 * (1 + text.matches(';').count()));
        }
    }
}
