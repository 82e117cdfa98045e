//! Columns of a statement that are filled by a call which draws: from a sequence, or a UUID.

use super::lexer::TokenKind;
use super::statement::SequenceColumn;
use super::words::Words;

/// Functions that draw a UUID, without arguments.
const DRAW_UUIDS: [&str; 6] = [
    "gen_random_uuid",
    "uuid_generate_v1",
    "uuid_generate_v1mc",
    "uuid_generate_v4",
    "uuidv4",
    "uuidv7",
];

/// Items of a `SELECT` that are simply `nextval('…')`, `currval('…')` or `lastval()`, with their
/// names.
pub fn sequence_columns(words: &Words<'_>) -> Vec<SequenceColumn> {
    let columns = items(words).filter_map(|at| {
        // nextval ( 'name' [ :: regclass ] ) [ [AS] alias ]
        let function = ["nextval", "currval", "lastval"];
        let function = function.into_iter().find(|name| words.is(at, name))?;
        (words.kind(at + 1) == Some(TokenKind::Open)).then_some(())?;
        if function == "lastval" {
            (words.kind(at + 2) == Some(TokenKind::Close)).then_some(())?;
            return Some(SequenceColumn {
                column: alias(words, at + 3, function)?,
                sequence: None,
                is_last: true,
            });
        }
        let sequence = String::from_utf8(words.string(at + 2)?).ok()?;
        let mut end = at + 3;
        if words.at(end) == b":" && words.at(end + 1) == b":" && words.is(end + 2, "regclass") {
            end += 3;
        }
        (words.kind(end) == Some(TokenKind::Close)).then_some(())?;
        Some(SequenceColumn {
            column: alias(words, end + 1, function)?,
            sequence: Some(sequence.into()),
            is_last: function == "currval",
        })
    });
    columns.collect()
}

/// Items of a `SELECT` that are simply `gen_random_uuid()` or the like, by their names.
pub fn uuid_columns(words: &Words<'_>) -> Vec<Box<str>> {
    let columns = items(words).filter_map(|at| {
        let function = drawing_call(words, at)?;
        alias(words, at + 3, function)
    });
    columns.collect()
}

/// The table of an `INSERT`, with its schema if that is written.
pub fn inserts_into(words: &Words<'_>) -> Option<Box<str>> {
    let at = words.find_top("into")? + 1;
    let name = |at| String::from_utf8_lossy(&words.name(at)).into_owned();
    let name = match words.at(at + 1) == b"." {
        true => format!("{}.{}", name(at), name(at + 2)),
        false => name(at),
    };
    Some(name.into())
}

/// Columns that each row of `INSERT … VALUES` has from such a call.
pub fn inserted_uuids(words: &Words<'_>) -> Vec<Box<str>> {
    let Some(values) = words.find_top("values") else {
        return Vec::new();
    };
    let Some(into) = words.find_top("into").filter(|&into| into < values) else {
        return Vec::new();
    };
    let Some(open) = (into..values).find(|&at| words.kind(at) == Some(TokenKind::Open)) else {
        return Vec::new();
    };
    let (columns, _) = list(words, open);
    let name = |&at: &usize| String::from_utf8_lossy(&words.name(at)).into();
    let mut drawn: Vec<Option<Box<str>>> = columns.iter().map(|at| Some(name(at))).collect();
    let mut row = values + 1;
    while words.kind(row) == Some(TokenKind::Open) {
        let (items, end) = list(words, row);
        for (at, column) in items.into_iter().zip(&mut drawn) {
            let at = unqualified(words, at);
            let ends = |at| matches!(words.kind(at), Some(TokenKind::Comma | TokenKind::Close));
            if drawing_call(words, at).is_none() || !ends(at + 3) {
                *column = None;
            }
        }
        row = end + 1;
        if words.kind(row) == Some(TokenKind::Comma) {
            row += 1;
        }
    }
    drawn.into_iter().flatten().collect()
}

/// The last word of the name with which each item of a `SELECT` begins.
fn items<'a>(words: &'a Words<'_>) -> impl Iterator<Item = usize> + 'a {
    let select = words.top_level().take_while(|&at| !words.is(at, "from"));
    select.filter(|&at| {
        at > 0
            && (words.is(at - 1, "select")
                || words.kind(at - 1) == Some(TokenKind::Comma)
                || words.at(at - 1) == b".")
    })
}

/// The function of `gen_random_uuid ( )` or the like that stands here.
fn drawing_call(words: &Words<'_>, at: usize) -> Option<&'static str> {
    let function = DRAW_UUIDS.iter().find(|name| words.is(at, name))?;
    let called = [TokenKind::Open, TokenKind::Close];
    ([words.kind(at + 1)?, words.kind(at + 2)?] == called).then_some(function)
}

/// Behind `schema .`
fn unqualified(words: &Words<'_>, at: usize) -> usize {
    match words.at(at + 1) == b"." {
        true => at + 2,
        false => at,
    }
}

/// What an item is called that ends before here: `[AS] alias`, or by its function. `None`: it goes
/// on.
fn alias(words: &Words<'_>, end: usize, function: &str) -> Option<Box<str>> {
    let aliased = words.is(end, "as");
    let alias = end + usize::from(aliased);
    match words.kind(alias) {
        None | Some(TokenKind::Comma) => Some(function.into()),
        Some(TokenKind::Word) if !aliased && words.is(alias, "from") => Some(function.into()),
        Some(TokenKind::Word | TokenKind::QuotedName) => {
            Some(String::from_utf8_lossy(&words.name(alias)).into())
        }
        _ => None,
    }
}

/// Where the items of a list in parentheses begin, and where it is closed.
fn list(words: &Words<'_>, open: usize) -> (Vec<usize>, usize) {
    let mut begins = vec![open + 1];
    let mut depth = 0;
    let mut at = open;
    while let Some(kind) = words.kind(at) {
        match kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close if depth == 1 => break,
            TokenKind::Close => depth -= 1,
            TokenKind::Comma if depth == 1 => begins.push(at + 1),
            _ => {}
        }
        at += 1;
    }
    (begins, at)
}
