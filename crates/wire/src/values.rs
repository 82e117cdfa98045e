//! With which values a statement runs, as a number: the constants in its text, and what is bound to
//! it. It tells executions of one statement apart, whose fingerprint is the same.
//!
//! Whoever knows the number can try values against it, so it is kept nowhere: a recording has a
//! digest of it, under a key.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::message::frontend;
use crate::sql::Statement;

/// Of a statement that runs with what `bound` says: the number of values and the values, as they
/// stand in a `Bind`. `None`: it has no values.
pub fn values_of(statement: &Statement, bound: Option<&[u8]>) -> Option<u64> {
    let bound = bound.filter(|bound| !matches!(bound, [] | [0, 0]));
    match (statement.constants, bound) {
        (0, None) => None,
        (constants, bound) => Some(xxh3_64_with_seed(bound.unwrap_or_default(), constants)),
    }
}

/// The same, one number for each value, in order: some of them may be drawn anew each time.
pub fn each_value(statement: &Statement, bind: Option<&[u8]>) -> Vec<u64> {
    let values = bind.and_then(|bind| frontend::bind_values(bind).ok());
    let values = values.unwrap_or_default();
    let bound = values.iter().map(|value| match value {
        Some(value) => xxh3_64_with_seed(value, 1),
        None => 0,
    });
    let constants = (statement.constants != 0).then_some(statement.constants);
    constants.into_iter().chain(bound).collect()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::sql::{Dialect, Script};

    fn of(text: &str, parameters: &[Option<&[u8]>]) -> Option<u64> {
        let script = Script::of(text.as_bytes(), Dialect::default());
        let mut bind = BytesMut::new();
        frontend::bind(&mut bind, b"portal", b"name", parameters);
        let (bound, _) = frontend::bind_rest(&bind[5..]).unwrap();
        values_of(&script.statements[0], Some(bound))
    }

    #[test]
    fn other_values_are_another_number() {
        let text = "SELECT * FROM item WHERE id = $1 AND kind = 'a' LIMIT 10";
        let one = of(text, &[Some(b"1")]);
        assert!(one.is_some());
        assert_eq!(one, of(text, &[Some(b"1")]));
        let bound: [&[Option<&[u8]>]; 4] = [&[Some(b"2")], &[None], &[Some(b"")], &[]];
        for other in bound {
            assert_ne!(one, of(text, other), "{other:?}");
        }
        for other in ["'b' LIMIT 10", "'a' LIMIT 11", "'a1' LIMIT 0"] {
            let text = format!("SELECT * FROM item WHERE id = $1 AND kind = {other}");
            assert_ne!(one, of(&text, &[Some(b"1")]), "{other}");
        }
    }

    #[test]
    fn white_space_and_comments_are_no_values_and_neither_are_names() {
        let one = of("SELECT * FROM item WHERE id = 1", &[]);
        let commented = "SELECT *  FROM item /*traceparent='00-1-2-01'*/ WHERE id = 1";
        assert_eq!(one, of(commented, &[]));
        assert_eq!(None, of("SELECT * FROM item", &[]));
        assert_eq!(None, of("SELECT 'item'::regclass", &[]));
    }
}
