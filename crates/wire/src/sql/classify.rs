//! What kind of statement a list of tokens is.

use std::ops::Range;
use std::sync::Arc;

use super::drawn;
use super::lexer::{Token, TokenKind};
use super::statement::{ADVISORY, Company, Fingerprint, Kind, Statement};
use super::words::Words;
use hindcast_model::Isolation;
use xxhash_rust::xxh3::xxh3_64;

/// Whether a statement that begins with these tokens creates a function or procedure.
pub(super) fn creates_routine(text: &[u8], tokens: &[Token]) -> bool {
    let words = Words::new(text, tokens);
    if !words.is(0, "create") {
        return false;
    }
    let kind = if words.is(1, "or") && words.is(2, "replace") {
        3
    } else {
        1
    };
    words.any(kind, &["function", "procedure"])
}

pub(super) fn classify(text: &[u8], tokens: &[Token], range: Range<usize>) -> Statement {
    let words = Words::new(text, tokens);
    let kind = kind(&words);
    let company = company(&words, &kind);
    let query = matches!(
        kind,
        Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Merge
    );
    let names = |test: &dyn Fn(&[u8]) -> bool| {
        let mut words = tokens.iter().filter(|token| token.kind == TokenKind::Word);
        words.any(|token| test(token.text(text)))
    };
    let tries = names(&|word| starts_with(word, b"pg_try_advisory_"));
    // Pools give back all at the end of each use, and seldom have any.
    let gives_all = |word: &[u8]| word.eq_ignore_ascii_case(b"pg_advisory_unlock_all");
    let unlocks = |word: &[u8]| starts_with(word, b"pg_advisory_unlock") && !gives_all(word);
    let waits = |word: &[u8]| {
        starts_with(word, b"pg_advisory_") && !starts_with(word, b"pg_advisory_unlock")
    };
    let (gives_back, takes) = (names(&unlocks), tries || names(&waits));
    let advisory = gives_back || takes;
    let mut locks = if kind == Kind::Lock || words.top_level().any(|at| is_row_lock(&words, at)) {
        lock_targets(&words)
    } else {
        Vec::new()
    };
    if advisory {
        locks.push(ADVISORY);
    }
    Statement {
        range,
        takes_snapshot: takes_snapshot(&kind),
        tries,
        gives_back: gives_back && !takes,
        company,
        ordered: query
            && words
                .top_level()
                .any(|at| words.is(at, "order") && words.is(at + 1, "by")),
        returning: query && kind != Kind::Select && words.find_top("returning").is_some(),
        empties_on_commit: kind == Kind::Utility && empties_on_commit(&words),
        notifies: kind == Kind::Notify || words.find("pg_notify").is_some(),
        locks: locks.into(),
        sequences: match kind {
            Kind::Select => drawn::sequence_columns(&words).into(),
            _ => Box::default(),
        },
        inserts_into: match kind {
            Kind::Insert => drawn::inserts_into(&words),
            _ => None,
        },
        uuids: match kind {
            Kind::Select => drawn::uuid_columns(&words).into(),
            Kind::Insert => drawn::inserted_uuids(&words).into(),
            _ => Box::default(),
        },
        kind,
        // Filled in by the caller.
        fingerprint: Arc::new(Fingerprint {
            hash: 0,
            text: String::new(),
        }),
        constants: 0,
    }
}

/// `CREATE TEMP TABLE … ON COMMIT DELETE ROWS`
fn empties_on_commit(words: &Words<'_>) -> bool {
    let table = words.is(0, "create") && words.any(1, &["temp", "temporary", "local", "global"]);
    table
        && words.top_level().any(|at| {
            words.is(at, "on") && words.is(at + 1, "commit") && words.is(at + 2, "delete")
        })
}

fn starts_with(word: &[u8], prefix: &[u8]) -> bool {
    word.get(..prefix.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}

/// As `PlannedStmtRequiresSnapshot` in Postgres decides, except that what only touches the session
/// is counted among those that do not.
fn takes_snapshot(kind: &Kind) -> bool {
    match kind {
        Kind::Prepare | Kind::Declare => true,
        Kind::Lock | Kind::Notify | Kind::Cursor | Kind::Discard { .. } => false,
        _ => kind.may_write(),
    }
}

fn kind(words: &Words<'_>) -> Kind {
    let keyword = words.at(0).to_ascii_lowercase();
    match &keyword[..] {
        b"begin" => begin(words),
        b"start" if words.is(1, "transaction") => begin(words),
        b"commit" | b"end" if words.is(1, "prepared") => {
            Kind::CommitPrepared { gid: gid(words, 2) }
        }
        b"commit" | b"end" => Kind::Commit {
            chain: chain(words),
        },
        b"rollback" if words.is(1, "prepared") => Kind::RollbackPrepared { gid: gid(words, 2) },
        b"rollback" | b"abort" => {
            let next = if words.any(1, &["work", "transaction"]) {
                2
            } else {
                1
            };
            if words.is(next, "to") {
                Kind::RollbackTo
            } else {
                Kind::Rollback {
                    chain: chain(words),
                }
            }
        }
        b"savepoint" => Kind::Savepoint,
        b"release" => Kind::Release,
        b"prepare" if words.is(1, "transaction") && words.kind(2) == Some(TokenKind::String) => {
            Kind::PrepareTransaction { gid: gid(words, 2) }
        }
        b"prepare" => Kind::Prepare,
        b"execute" => Kind::Execute,
        b"set" => set(words),
        b"reset" | b"load" => Kind::Set,
        b"show" => Kind::Show,
        b"checkpoint" => Kind::Checkpoint,
        b"discard" => Kind::Discard {
            all: words.is(1, "all"),
        },
        b"deallocate" => {
            let next = if words.is(1, "prepare") && words.kind(2).is_some() {
                2
            } else {
                1
            };
            let name = if words.is(next, "all") {
                None
            } else {
                Some(words.name(next))
            };
            Kind::Deallocate { name }
        }
        b"listen" | b"unlisten" => Kind::Listen,
        b"notify" => Kind::Notify,
        b"lock" => Kind::Lock,
        b"declare" => Kind::Declare,
        b"fetch" | b"move" | b"close" => Kind::Cursor,
        b"copy" => copy(words),
        b"select" | b"values" | b"table" | b"(" => Kind::Select,
        b"insert" => Kind::Insert,
        b"update" => Kind::Update,
        b"delete" => Kind::Delete,
        b"merge" => Kind::Merge,
        b"with" => with(words),
        b"call" => Kind::Call,
        b"do" => Kind::Do,
        _ => Kind::Utility,
    }
}

fn begin(words: &Words<'_>) -> Kind {
    let (isolation, read_only) = modes(words);
    Kind::Begin {
        isolation,
        read_only,
    }
}

/// `ISOLATION LEVEL …` and `READ ONLY` or `READ WRITE`, wherever they stand.
fn modes(words: &Words<'_>) -> (Option<Isolation>, Option<bool>) {
    let (mut isolation, mut read_only) = (None, None);
    for index in 1..words.indices().end {
        if words.is(index, "level") {
            isolation = match () {
                () if words.is(index + 1, "serializable") => Some(Isolation::Serializable),
                () if words.is(index + 1, "repeatable") => Some(Isolation::RepeatableRead),
                // READ UNCOMMITTED is READ COMMITTED in Postgres.
                () if words.is(index + 1, "read") => Some(Isolation::ReadCommitted),
                () => isolation,
            };
        } else if words.is(index, "read") && words.any(index + 1, &["only", "write"]) {
            read_only = Some(words.is(index + 1, "only"));
        }
    }
    (isolation, read_only)
}

fn chain(words: &Words<'_>) -> bool {
    words
        .find("chain")
        .is_some_and(|at| at > 0 && words.is(at - 1, "and"))
}

fn gid(words: &Words<'_>, index: usize) -> Box<[u8]> {
    words
        .string(index)
        .unwrap_or_else(|| words.at(index).to_vec())
        .into()
}

fn set(words: &Words<'_>) -> Kind {
    let next = if words.any(1, &["session", "local"]) && !words.is(2, "characteristics") {
        2
    } else {
        1
    };
    if words.is(next, "transaction") || words.is(1, "constraints") {
        let (isolation, read_only) = modes(words);
        Kind::SetTransaction {
            isolation,
            read_only,
        }
    } else {
        Kind::Set
    }
}

fn copy(words: &Words<'_>) -> Kind {
    for at in words.top_level() {
        if words.is(at, "from") {
            return if words.is(at + 1, "stdin") {
                Kind::CopyFromStdin
            } else {
                Kind::Utility
            };
        }
        if words.is(at, "to") {
            return if words.is(at + 1, "stdout") {
                Kind::CopyToStdout
            } else {
                Kind::Utility
            };
        }
    }
    Kind::Utility
}

/// The statement behind the common table expressions.
fn with(words: &Words<'_>) -> Kind {
    for at in words.top_level() {
        match () {
            () if words.any(at, &["select", "values", "table"]) => return Kind::Select,
            () if words.is(at, "insert") => return Kind::Insert,
            () if words.is(at, "update") => return Kind::Update,
            () if words.is(at, "delete") => return Kind::Delete,
            () if words.is(at, "merge") => return Kind::Merge,
            () => {}
        }
    }
    Kind::Select
}

/// What Postgres guards with `PreventInTransactionBlock`, or does differently in one.
fn company(words: &Words<'_>, kind: &Kind) -> Company {
    let concurrently = || words.find("concurrently").is_some();
    match kind {
        Kind::Call | Kind::Declare | Kind::Lock => Company::Pipelined,
        // A DO block may commit; one that names nothing through which it could, cannot.
        Kind::Do if commits_inside(words) => Company::Pipelined,
        Kind::CommitPrepared { .. }
        | Kind::RollbackPrepared { .. }
        | Kind::Discard { all: true } => Company::Refused,
        Kind::Utility => match &words.at(0).to_ascii_lowercase()[..] {
            b"vacuum" | b"cluster" | b"reindex" | b"analyze" | b"analyse" => Company::Refused,
            b"create" | b"drop" | b"alter"
                if words.any(1, &["database", "tablespace", "system", "subscription"]) =>
            {
                Company::Refused
            }
            // CREATE [UNIQUE] INDEX, DROP INDEX, ALTER TABLE … DETACH PARTITION; REFRESH
            // MATERIALIZED VIEW CONCURRENTLY is fine.
            b"create" | b"drop" | b"alter" if concurrently() => Company::Refused,
            _ => Company::Any,
        },
        _ => Company::Any,
    }
}

fn commits_inside(words: &Words<'_>) -> bool {
    let body = (1..words.indices().end).find(|&index| words.kind(index) == Some(TokenKind::String));
    body.is_none_or(|index| {
        let body = words.at(index).to_ascii_lowercase();
        ["commit", "rollback", "call", "execute"]
            .iter()
            .any(|word| memchr::memmem::find(&body, word.as_bytes()).is_some())
    })
}

/// `FOR UPDATE`, `FOR NO KEY UPDATE`, `FOR SHARE`, `FOR KEY SHARE`
fn is_row_lock(words: &Words<'_>, at: usize) -> bool {
    words.is(at, "for")
        && (words.any(at + 1, &["update", "share"])
            || (words.is(at + 1, "key") && words.is(at + 2, "share"))
            || (words.is(at + 1, "no") && words.is(at + 2, "key") && words.is(at + 3, "update")))
}

/// The tables that a `LOCK` names, or that a query reads from: which of these it locks, its text
/// does not always tell.
fn lock_targets(words: &Words<'_>) -> Vec<u32> {
    let mut targets = Vec::new();
    let mut index = 1;
    let mut expect_table = words.is(0, "lock");
    while index < words.indices().end {
        if words.any(index, &["from", "join", "update"]) {
            expect_table = true;
        } else if expect_table && words.any(index, &["table", "only", "lateral"]) {
            // Noise between the keyword and the name.
        } else if expect_table
            && matches!(
                words.kind(index),
                Some(TokenKind::Word | TokenKind::QuotedName)
            )
        {
            while words.at(index + 1) == b"." {
                index += 2;
            }
            // By the last part of its name, so that `t`, `public.t` and `"t"` are the same.
            targets.push(xxh3_64(&words.name(index)) as u32);
            // Further tables follow behind commas, perhaps after an alias.
            expect_table = false;
            let alias = if words.is(index + 1, "as") { 2 } else { 1 };
            if words.kind(index + 1) == Some(TokenKind::Comma) {
                expect_table = true;
                index += 1;
            } else if words.kind(index + alias + 1) == Some(TokenKind::Comma)
                && words.kind(index + alias) == Some(TokenKind::Word)
            {
                expect_table = true;
                index += alias + 1;
            }
        } else if words.is(index, "for") && is_row_lock(words, index) {
            break;
        } else {
            expect_table = false;
        }
        index += 1;
    }
    targets.sort_unstable();
    targets.dedup();
    targets
}
