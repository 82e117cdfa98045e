//! Every limit of this crate, with the relations between them checked at compile time.
//!
//! A peer may be broken or hostile. These limits are what keeps a session's memory bounded whatever
//! arrives; a session that exceeds one is passed through unobserved, it is never refused.

/// The startup packet. Postgres' own limit (`MAX_STARTUP_PACKET_LENGTH`).
pub const STARTUP_BYTES_MAX: usize = 10_000;

/// A message of a kind that is always short. Postgres' own limit (`PQ_SMALL_MESSAGE_LIMIT`).
pub const SMALL_MESSAGE_BYTES_MAX: usize = 10_000 + 5;

/// Answers to an authentication request. Postgres' own limit (`PG_MAX_AUTH_TOKEN_LENGTH`).
pub const AUTHENTICATION_BYTES_MAX: usize = 65_535 + 5;

/// Any message. Postgres' own limit (`PQ_LARGE_MESSAGE_LIMIT`, one short of a gibibyte) with the
/// header.
pub const MESSAGE_BYTES_MAX: usize = 0x3fff_ffff + 5;

/// A message that must be seen whole before it can go on: statement texts and errors.
pub const WHOLE_MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A message that does not need to be seen whole is buffered up to here; a longer one is streamed.
pub const BUFFERED_BYTES_MAX: usize = 64 << 10;

/// A row with binary values is brought into its text form up to here; a longer one keeps its bytes.
pub const CONVERTED_ROW_BYTES_MAX: usize = 1 << 20;

/// Client messages that wait for an answer.
pub const OUTSTANDING_MAX: usize = 1 << 20;

/// Prepared statements and open portals of a session, each.
pub const PREPARED_MAX: usize = 1 << 16;

/// Statement texts that a session's prepared statements keep, for ghosts.
pub const PREPARED_BYTES_MAX: usize = 16 << 20;

/// Fingerprint text of one statement; of what is longer the middle is cut out, and it is told apart
/// by its hash. What an ORM asks of tables that it joins takes 5 to 10 KiB.
pub const FINGERPRINT_BYTES_MAX: usize = 16 << 10;

/// Tokens of one statement that are looked at; of one with more (rows of values) the middle is
/// skipped over.
pub const STATEMENT_TOKENS_MAX: usize = 16 << 10;

/// Statements of one transaction whose fingerprints are kept; further ones count in the shape only.
pub const STATEMENTS_MAX: usize = 4 << 10;

/// Locks, and sequence values, of one transaction that are kept.
pub const NOTED_MAX: usize = 64 << 10;

/// Tables that a session has asked for in vain and does not ask for again; behind these it forgets.
pub const UNKNOWN_TABLES_MAX: usize = 64;

/// What a cache of analysed texts takes in total by default.
pub const SCRIPT_CACHE_BYTES: usize = 16 << 20;

/// A text longer than this is not kept in the cache: it is hardly ever repeated.
pub const CACHED_TEXT_BYTES_MAX: usize = 32 << 10;

/// What one session keeps of either direction, by default, for aborted transactions and ghosts.
pub const KEPT_BYTES: usize = 1 << 20;

/// A buffer that grew beyond this is given back when it becomes empty.
pub const IDLE_BUFFER_BYTES_MAX: usize = 64 << 10;

const _: () = {
    assert!(SMALL_MESSAGE_BYTES_MAX <= BUFFERED_BYTES_MAX);
    assert!(STARTUP_BYTES_MAX <= BUFFERED_BYTES_MAX);
    assert!(BUFFERED_BYTES_MAX < WHOLE_MESSAGE_BYTES_MAX);
    assert!(BUFFERED_BYTES_MAX < CONVERTED_ROW_BYTES_MAX);
    assert!(AUTHENTICATION_BYTES_MAX < WHOLE_MESSAGE_BYTES_MAX);
    assert!(WHOLE_MESSAGE_BYTES_MAX < MESSAGE_BYTES_MAX);
    assert!(CACHED_TEXT_BYTES_MAX < SCRIPT_CACHE_BYTES / 64);
    assert!(FINGERPRINT_BYTES_MAX < CACHED_TEXT_BYTES_MAX);
};
