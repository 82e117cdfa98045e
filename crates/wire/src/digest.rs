//! What a transaction was answered, folded into 32 bits.
//!
//! Recording and replay must come to the same digest exactly when a client could not tell the
//! answers apart, except for the order of rows where the statement left it open. So rows of a
//! statement without a top-level `ORDER BY` are summed, those of one with it are chained, and
//! statements are chained. Parameter reports, notices, notifications and row descriptions do not
//! count, and a driver may ask for values as text now and in binary then: the one who hands rows in
//! has brought them into their [text form](crate::text).

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::sql::Fingerprint;

/// Accumulates the digest of one transaction, statement by statement.
#[derive(Clone, Debug, Default)]
pub struct ResultDigest {
    chain: u64,
    /// Rows since the last statement ended, where their order is open.
    sum: u64,
    rows: u64,
}

impl ResultDigest {
    pub fn new() -> Self {
        Self::default()
    }

    /// A row: the body of a `DataRow`, a `CopyData` from the server, or a `FunctionCallResponse`.
    pub fn row(&mut self, ordered: bool, body: &[u8]) {
        self.row_hash(ordered, row_hash(body));
    }

    /// A row whose hash is known, by [`row_hash`] or [`RowHasher`].
    pub fn row_hash(&mut self, ordered: bool, hash: u64) {
        self.rows += 1;
        if ordered {
            self.chain = fold(self.chain, hash);
        } else {
            self.sum = self.sum.wrapping_add(hash);
        }
    }

    /// A statement ended: the tag of `CommandComplete` without its zero byte; empty for
    /// `EmptyQueryResponse`. A suspended portal does not end its statement.
    pub fn complete(&mut self, tag: &[u8]) {
        self.end_statement(b'C', tag);
    }

    /// A statement failed with this SQLSTATE.
    pub fn error(&mut self, sqlstate: &[u8]) {
        self.end_statement(b'E', sqlstate);
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The digest of everything so far.
    pub fn value(&self) -> u32 {
        fold(self.chain, self.sum) as u32
    }

    fn end_statement(&mut self, kind: u8, text: &[u8]) {
        self.chain = fold(fold(self.chain, self.sum), xxh3_64(text) ^ u64::from(kind));
        self.sum = 0;
    }
}

/// What [`ResultDigest::row`] makes of a row.
pub fn row_hash(body: &[u8]) -> u64 {
    xxh3_64(body)
}

fn fold(chain: u64, next: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&chain.to_le_bytes());
    bytes[8..].copy_from_slice(&next.to_le_bytes());
    xxh3_64(&bytes)
}

/// Folds the fingerprints of a transaction's statements into what names its shape.
#[derive(Clone, Debug, Default)]
pub struct ShapeHasher(u64);

impl ShapeHasher {
    pub fn new() -> Self {
        Self::default()
    }
    pub fn add(&mut self, fingerprint: &Fingerprint) {
        self.0 = fold(self.0, fingerprint.hash);
    }
    pub fn value(&self) -> u32 {
        self.0 as u32
    }
}

/// Hashes a row that comes in parts to the same value as [`ResultDigest::row`] does in one.
#[derive(Default)]
pub struct RowHasher(Box<Xxh3>);

impl std::fmt::Debug for RowHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowHasher").finish_non_exhaustive()
    }
}

impl RowHasher {
    pub fn new() -> Self {
        Self::default()
    }
    pub fn part(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// The row is complete; the hasher is ready for the next.
    pub fn finish(&mut self) -> u64 {
        let hash = self.0.digest();
        self.0.reset();
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(ordered: bool, rows: &[&str]) -> u32 {
        let mut digest = ResultDigest::new();
        for row in rows {
            digest.row(ordered, row.as_bytes());
        }
        digest.complete(b"SELECT");
        digest.value()
    }

    #[test]
    fn the_order_of_rows_counts_only_where_the_statement_fixed_it() {
        assert_eq!(digest(false, &["a", "b"]), digest(false, &["b", "a"]));
        assert_ne!(digest(true, &["a", "b"]), digest(true, &["b", "a"]));
    }

    #[test]
    fn rows_count_as_often_as_they_come() {
        assert_ne!(digest(false, &["a"]), digest(false, &["a", "a"]));
        assert_ne!(digest(true, &["a"]), digest(true, &["a", "a"]));
    }

    #[test]
    fn a_row_belongs_to_its_statement() {
        let mut one = ResultDigest::new();
        one.row(false, b"a");
        one.complete(b"SELECT");
        one.complete(b"SELECT");
        let mut other = ResultDigest::new();
        other.complete(b"SELECT");
        other.row(false, b"a");
        other.complete(b"SELECT");
        assert_ne!(one.value(), other.value());
    }

    #[test]
    fn an_error_is_not_a_completion() {
        let (mut one, mut other) = (ResultDigest::new(), ResultDigest::new());
        one.complete(b"40001");
        other.error(b"40001");
        assert_ne!(one.value(), other.value());
    }

    #[test]
    fn a_row_in_parts_hashes_like_a_row_in_one() {
        let row: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let mut hasher = RowHasher::new();
        for _ in 0..2 {
            row.chunks(777).for_each(|part| hasher.part(part));
            assert_eq!(hasher.finish(), xxh3_64(&row));
        }
    }
}
