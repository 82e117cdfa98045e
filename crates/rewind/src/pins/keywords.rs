//! Calls, and keywords that ask for the time or the database's name, in the texts of the catalog.

use hindcast_wire::sql::lexer::{Lexer, Token, TokenKind};
use hindcast_wire::sql::{Dialect, keyword_edits};

/// Replaces such keywords by calls of functions that [`super::prepare`] made, which answer as
/// recorded. `None`: the text has none of them.
pub fn rewrite_keywords(sql: &str) -> Option<String> {
    let edits = keyword_edits(sql.as_bytes(), Dialect::default());
    if edits.is_empty() {
        return None;
    }
    let mut rewritten = Vec::new();
    edits.apply(sql.as_bytes(), &mut rewritten);
    Some(String::from_utf8(rewritten).expect("whole words are replaced by ASCII"))
}

/// Clocks that go on within a transaction.
const CLOCKS: [&str; 2] = ["clock_timestamp", "timeofday"];

/// Functions whose results the server's extension tells.
const TOLD: [&str; 5] = [
    "clock_timestamp",
    "random",
    "gen_random_uuid",
    "gen_random_bytes",
    "gen_salt",
];

/// Why what a statement, default, view or function holds may come out otherwise than recorded: one
/// reason for each function that is called and whose results are not recorded. `told`: the server
/// told what it drew.
pub fn unpinned_calls(sql: &str, told: bool) -> Vec<String> {
    let why = |name: String| match name.as_str() {
        one if CLOCKS.contains(&one) => format!("{name}() runs on from the recorded time"),
        one if one.contains("uuid") => format!("{name}() is pinned where a result showed it"),
        _ => format!("{name}() is not pinned"),
    };
    let mut calls = calls(sql);
    calls.retain(|name| !(told && TOLD.contains(&name.as_str())));
    calls.into_iter().map(why).collect()
}

/// Whether a text calls a function whose result is another one in each run. Those of UUIDs are not
/// among them: what a result showed of them is pinned. `told`: as for [`unpinned_calls`].
pub fn draws_anew(sql: &str, told: bool) -> bool {
    let mut calls = calls(sql).into_iter();
    calls.any(|name| !(name.contains("uuid") || told && TOLD.contains(&name.as_str())))
}

/// The functions of a text whose results are not recorded: clocks that go on and randomness.
fn calls(sql: &str) -> Vec<String> {
    const RANDOM: [&str; 10] = [
        "random",
        "random_normal",
        "gen_random_uuid",
        "uuid_generate_v1",
        "uuid_generate_v1mc",
        "uuid_generate_v4",
        "uuidv4",
        "uuidv7",
        "gen_random_bytes",
        "gen_salt",
    ];
    let tokens: Vec<Token> = Lexer::new(sql.as_bytes(), Dialect::default())
        .filter(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment))
        .collect();
    let mut found = Vec::new();
    for pair in tokens.windows(2) {
        let name = sql[pair[0].start..pair[0].end].to_ascii_lowercase();
        if (pair[0].kind, pair[1].kind) == (TokenKind::Word, TokenKind::Open)
            && [&CLOCKS[..], &RANDOM].concat().contains(&name.as_str())
            && !found.contains(&name)
        {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_such_keywords_stay() {
        assert_eq!(rewrite_keywords("SELECT 'current_date', now()"), None);
        assert_eq!(
            rewrite_keywords("é || current_date").as_deref(),
            Some("é || pg_catalog.\"current_date\"()")
        );
    }

    #[test]
    fn calls_that_are_not_recorded_are_found_outside_strings() {
        assert_eq!(
            unpinned_calls(
                "gen_random_uuid(), RANDOM (), random(), Clock_Timestamp()",
                false
            ),
            [
                "gen_random_uuid() is pinned where a result showed it",
                "random() is not pinned",
                "clock_timestamp() runs on from the recorded time"
            ]
        );
        assert!(unpinned_calls("'random()' || random -- random()", false).is_empty());
        assert_eq!(
            unpinned_calls("random(), random_normal(), gen_salt('bf')", true),
            ["random_normal() is not pinned"]
        );
    }
}
