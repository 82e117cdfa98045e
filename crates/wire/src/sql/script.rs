//! Reads a text into statements.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::classify;
use super::lexer::{Dialect, Lexer, Token, TokenKind};
use super::reach::{self, Reach};
use super::statement::{Fingerprint, Statement};
use crate::limits;

/// What the allocator and an `Arc` add to the parts of a statement.
const ALLOCATIONS_BYTES: usize = 64;

/// The statements of one text.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// As many as the server will find: empty ones do not count.
    pub statements: Vec<Statement>,
    /// The text ends within a string, a quoted name or a comment; the server will refuse all of
    /// it.
    pub unterminated: bool,
    /// It names a setting that decides how texts are read (see [`Dialect`]).
    pub changes_dialect: bool,
    pub reach: Reach,
}

impl Script {
    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let own = |statement: &Statement| {
            let sequences = statement.sequences.iter();
            let length = |name: &Option<Box<str>>| name.as_deref().map_or(0, str::len);
            let names = sequences.map(|column| column.column.len() + length(&column.sequence));
            let uuids = statement.uuids.iter().map(|column| column.len());
            size_of_val(&*statement.locks)
                + size_of_val(&*statement.sequences)
                + names.sum::<usize>()
                + length(&statement.inserts_into)
                + size_of_val(&*statement.uuids)
                + uuids.sum::<usize>()
                + size_of::<Fingerprint>()
                + statement.fingerprint.text.capacity()
                + ALLOCATIONS_BYTES
        };
        size_of::<Self>()
            + self.statements.capacity() * size_of::<Statement>()
            + self.statements.iter().map(own).sum::<usize>()
    }

    /// Reads a text. Never fails: what is not SQL is a [`Kind::Utility`] statement for the server
    /// to refuse.
    pub fn of(text: &[u8], dialect: Dialect) -> Self {
        let mut lexer = Lexer::new(text, dialect);
        let (mut statements, mut tokens) = (Vec::new(), Vec::new());
        let (mut parens, mut bodies) = (0usize, 0usize);
        let (mut changes_dialect, mut omitted) = (false, 0u64);
        let (mut reach, mut names_others) = (Reach::None, false);
        for token in lexer.by_ref() {
            changes_dialect |= names_dialect(token, text);
            names_others |= reach::names_others(token, text);
            match token.kind {
                TokenKind::Space | TokenKind::Comment => continue,
                TokenKind::Semicolon if parens == 0 && bodies == 0 => {
                    let found = statement(text, &tokens, omitted);
                    reach = reach.max(Reach::of(found.as_ref(), names_others));
                    names_others = false;
                    statements.extend(found);
                    tokens.clear();
                    omitted = 0;
                    continue;
                }
                TokenKind::Open => parens += 1,
                TokenKind::Close => parens = parens.saturating_sub(1),
                // The body of a function in standard SQL has semicolons of its own: BEGIN ATOMIC …;
                // …; END
                TokenKind::Word if parens == 0 && classify::creates_routine(text, &tokens) => {
                    match token.text(text) {
                        word if word.eq_ignore_ascii_case(b"begin") => bodies += 1,
                        word if word.eq_ignore_ascii_case(b"case") && bodies > 0 => bodies += 1,
                        word if word.eq_ignore_ascii_case(b"end") => {
                            bodies = bodies.saturating_sub(1)
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
            tokens.push(token);
            if tokens.len() >= 2 * limits::STATEMENT_TOKENS_MAX {
                thin(&mut tokens);
                omitted += 1;
            }
        }
        let found = statement(text, &tokens, omitted);
        reach = reach.max(Reach::of(found.as_ref(), names_others));
        statements.extend(found);
        Self {
            statements,
            unterminated: lexer.is_unterminated(),
            changes_dialect,
            reach,
        }
    }
}

/// `tokens` without spaces and comments; `None` if there are none. `omitted`: how often some were
/// left out.
fn statement(text: &[u8], tokens: &[Token], omitted: u64) -> Option<Statement> {
    let (first, last) = (tokens.first()?, tokens.last()?);
    let range = first.start..last.end;
    let mut statement = classify::classify(text, tokens, range);
    let (fingerprint, constants) = fingerprint(text, tokens, omitted);
    statement.fingerprint = Arc::new(fingerprint);
    statement.constants = constants;
    Some(statement)
}

/// What stands for the middle of a long statement. It is read as a name.
const OMITTED: &str = "…h";

/// Begin and end of a long statement, between tokens. In between is the hash of the whole: so the
/// fingerprint of a fingerprint is itself.
fn cut(normal: &[u8], starts: &[usize], hash: u64) -> Vec<u8> {
    const TAIL: usize = limits::FINGERPRINT_BYTES_MAX / 4;
    const HEAD: usize = limits::FINGERPRINT_BYTES_MAX - TAIL - 32;
    let head = starts.partition_point(|&start| start <= HEAD);
    let tail = starts.partition_point(|&start| start + TAIL < normal.len());
    let at = |token: usize| starts.get(token).copied().unwrap_or(normal.len());
    let head = &normal[..at(head.saturating_sub(1))];
    let tail = &normal[at(tail).max(head.len())..];
    [
        head,
        format!(" {OMITTED}{hash:016x} ").as_bytes(),
        tail.trim_ascii_start(),
    ]
    .concat()
}

/// The hash of the whole, if this stands for the middle of it.
fn hash_in(token: &[u8]) -> Option<u64> {
    let hash = token.strip_prefix(OMITTED.as_bytes())?;
    let hash = std::str::from_utf8(hash)
        .ok()
        .filter(|hash| hash.len() == 16)?;
    u64::from_str_radix(hash, 16).ok()
}

/// With the hash of the constants that are not in it.
fn fingerprint(text: &[u8], tokens: &[Token], omitted: u64) -> (Fingerprint, u64) {
    // Constants are numbered behind the statement's own parameters, as pg_stat_statements does.
    let mut next = tokens
        .iter()
        .filter(|token| token.kind == TokenKind::Parameter)
        .map(|token| number(&token.text(text)[1..]))
        .max()
        .unwrap_or(0);
    let mut normal = Vec::with_capacity(tokens.last().map_or(0, |last| last.end - tokens[0].start));
    let mut previous_end = tokens.first().map_or(0, |token| token.start);
    let name = given_name(text, tokens);
    let mut constants = Vec::new();
    let mut starts = Vec::with_capacity(tokens.len());
    let mut of_whole = None;
    for (token, at) in tokens.iter().zip(0..) {
        starts.push(normal.len());
        if token.start > previous_end {
            normal.push(b' ');
        }
        previous_end = token.end;
        of_whole = of_whole.or_else(|| hash_in(token.text(text)));
        if name == Some(at) {
            normal.push(b'_');
        } else if matches!(token.kind, TokenKind::String | TokenKind::Number)
            && !names_object(text, &tokens[at..])
        {
            next = next.saturating_add(1);
            normal.push(b'$');
            normal.extend_from_slice(next.to_string().as_bytes());
            constants.extend_from_slice(token.text(text));
            constants.push(0);
        } else {
            normal.extend_from_slice(token.text(text));
        }
    }
    let hash = of_whole.unwrap_or_else(|| xxh3_64(&normal).wrapping_add(omitted));
    if normal.len() > limits::FINGERPRINT_BYTES_MAX || omitted > 0 {
        normal = cut(&normal, &starts, hash);
    }
    let text = String::from_utf8_lossy(&normal).into_owned();
    let constants = match &constants[..] {
        [] => 0,
        some => xxh3_64(some),
    };
    (Fingerprint { hash, text }, constants)
}

/// Whether the first of these is the name of a table, a type or the like: `'"users"'::regclass`.
/// Which one it is, is no value, and what is asked of two of them is not the same.
fn names_object(text: &[u8], tokens: &[Token]) -> bool {
    let after = |symbols: usize| tokens.get(1 + symbols);
    let is_cast = |symbols: usize| {
        let between = tokens.get(1..=symbols).unwrap_or_default();
        let all = between.iter().flat_map(|token| token.text(text));
        all.eq(b"::")
    };
    let kind = (1..=2)
        .find(|&symbols| is_cast(symbols))
        .and_then(after)
        .map(|token| token.text(text));
    kind.is_some_and(|kind| {
        kind.get(..3)
            .is_some_and(|start| start.eq_ignore_ascii_case(b"reg"))
    })
}

/// Where a name stands that the client chose for a cursor, a savepoint or a prepared statement. It
/// may have a counter in it, or the number of a thread.
fn given_name(text: &[u8], tokens: &[Token]) -> Option<usize> {
    let is = |at: usize, word: &str| {
        tokens.get(at).is_some_and(|token| {
            token.kind == TokenKind::Word && token.text(text).eq_ignore_ascii_case(word.as_bytes())
        })
    };
    let any = |at: usize, words: &[&str]| words.iter().any(|word| is(at, word));
    let last = tokens.len().checked_sub(1)?;
    let at = match () {
        () if is(0, "prepare") && is(1, "transaction") => return None,
        () if any(0, &["declare", "savepoint", "prepare", "execute"]) => 1,
        () if any(0, &["fetch", "move", "close", "release", "deallocate"]) => last,
        () if is(0, "rollback") && (1..last).any(|at| is(at, "to")) => last,
        () => return None,
    };
    let is_name = matches!(
        tokens.get(at)?.kind,
        TokenKind::Word | TokenKind::QuotedName
    );
    (at > 0 && is_name && !is(at, "all")).then_some(at)
}

/// `SET client_encoding`, `set_config('standard_conforming_strings', …)`, `SET NAMES`, and code
/// that has one of these in it.
fn names_dialect(token: Token, text: &[u8]) -> bool {
    let text = token.text(text);
    match token.kind {
        TokenKind::Word => ["standard_conforming_strings", "client_encoding", "names"]
            .iter()
            .any(|name| text.eq_ignore_ascii_case(name.as_bytes())),
        TokenKind::String | TokenKind::QuotedName => ["standard_conforming", "client_encoding"]
            .iter()
            .any(|name| memchr::memmem::find(text, name.as_bytes()).is_some()),
        _ => false,
    }
}

/// Drops tokens from the middle of a statement that has very many of them (rows of values), keeping
/// parentheses balanced.
fn thin(tokens: &mut Vec<Token>) {
    let middle = limits::STATEMENT_TOKENS_MAX / 2..tokens.len() - limits::STATEMENT_TOKENS_MAX / 4;
    let at = Token {
        kind: TokenKind::Symbol,
        start: tokens[middle.start].start,
        end: tokens[middle.start].start,
    };
    let of = |kind| {
        tokens[middle.clone()]
            .iter()
            .filter(|token| token.kind == kind)
            .count()
    };
    let (opened, closed) = (of(TokenKind::Open), of(TokenKind::Close));
    let kind = if opened > closed {
        TokenKind::Open
    } else {
        TokenKind::Close
    };
    let balance = opened
        .abs_diff(closed)
        .min(limits::STATEMENT_TOKENS_MAX / 8);
    tokens.splice(middle, std::iter::repeat_n(Token { kind, ..at }, balance));
}

fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0u32, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u32::from(digit - b'0'))
    })
}
