//! Which tables refer to which.

use std::collections::{BTreeMap, BTreeSet};

use hindcast_pg::tokio::Client;

use crate::StateError;

/// A foreign key between two ordinary tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    pub table: String,
    pub columns: Vec<String>,
    pub references: String,
    pub referenced_columns: Vec<String>,
    pub deferrable: bool,
    /// Deleting or renaming the referenced row changes or deletes the referring one instead of
    /// being refused.
    pub acts: bool,
}

const FOREIGN_KEYS: &str = "SELECT pg_catalog.format('%I.%I', tn.nspname, t.relname), \
     ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(c.conkey) WITH ORDINALITY AS k(number, place) \
         JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place), \
     pg_catalog.format('%I.%I', rn.nspname, r.relname), \
     ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(c.confkey) WITH ORDINALITY AS k(number, place) \
         JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number ORDER BY k.place), \
     c.condeferrable, c.confdeltype IN ('c', 'n', 'd') OR c.confupdtype IN ('c', 'n', 'd') \
     FROM pg_catalog.pg_constraint c \
     JOIN pg_catalog.pg_class t ON t.oid = c.conrelid JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace \
     JOIN pg_catalog.pg_class r ON r.oid = c.confrelid JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace \
     WHERE c.contype = 'f' AND t.relkind = 'r' AND r.relkind = 'r' ORDER BY 1, c.conname";

impl ForeignKey {
    pub(super) async fn read_all(client: &Client) -> Result<Vec<Self>, StateError> {
        let rows = client
            .query(FOREIGN_KEYS, &[])
            .await
            .map_err(StateError::List)?;
        let read = |row: &hindcast_pg::Row| Self {
            table: row.get(0),
            columns: row.get(1),
            references: row.get(2),
            referenced_columns: row.get(3),
            deferrable: row.get(4),
            acts: row.get(5),
        };
        Ok(rows.iter().map(read).collect())
    }
}

/// Puts tables in an order in which each comes after those that it refers to, and names those for
/// which there is none, since they refer to each other or to themselves.
pub fn parents_first(tables: &[String], foreign_keys: &[ForeignKey]) -> (Vec<String>, Vec<String>) {
    let mut left: BTreeMap<&str, BTreeSet<&str>> = tables
        .iter()
        .map(|table| (table.as_str(), BTreeSet::new()))
        .collect();
    let mut circular = BTreeSet::new();
    for key in foreign_keys {
        if key.table == key.references {
            if left.contains_key(key.table.as_str()) {
                circular.insert(key.table.as_str());
            }
        } else if left.contains_key(key.references.as_str())
            && let Some(parents) = left.get_mut(key.table.as_str())
        {
            parents.insert(&key.references);
        }
    }
    let mut order = Vec::with_capacity(tables.len());
    while !left.is_empty() {
        let mut ready: Vec<&str> = (left.iter())
            .filter(|(_, parents)| parents.is_empty())
            .map(|(table, _)| *table)
            .collect();
        if ready.is_empty() {
            // Whoever is in a circle has to go without some parent; the one with the fewest missing
            // disturbs least.
            let next = *(left.iter().min_by_key(|(_, parents)| parents.len()))
                .expect("there are some left")
                .0;
            circular.insert(next);
            ready.push(next);
        }
        for table in ready {
            left.remove(table);
            for parents in left.values_mut() {
                parents.remove(table);
            }
            order.push(table.to_owned());
        }
    }
    (order, circular.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: &[(&str, &str)], order: &[&str], circular: &[&str]) {
        let keys: Vec<_> = keys
            .iter()
            .map(|(table, references)| ForeignKey {
                table: (*table).to_owned(),
                columns: Vec::new(),
                references: (*references).to_owned(),
                referenced_columns: Vec::new(),
                deferrable: false,
                acts: false,
            })
            .collect();
        let tables = ["a", "b", "c", "d"].map(str::to_owned);
        let (found, circles) = parents_first(&tables, &keys);
        assert_eq!(
            (found, circles),
            (
                order.iter().map(|t| (*t).to_owned()).collect(),
                circular.iter().map(|t| (*t).to_owned()).collect()
            )
        );
    }

    #[test]
    fn parents_come_before_children() {
        check(
            &[("a", "b"), ("b", "d"), ("a", "d"), ("c", "elsewhere")],
            &["c", "d", "b", "a"],
            &[],
        );
    }

    #[test]
    fn circles_are_cut_and_named() {
        check(
            &[("a", "b"), ("b", "a"), ("c", "a"), ("d", "d")],
            &["d", "a", "b", "c"],
            &["a", "d"],
        );
    }
}
