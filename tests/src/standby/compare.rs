//! Whether two databases hold the same.

use std::collections::BTreeMap;

use crate::session::{Failure, Session};

/// Tables of the user by name, each with its rows as sorted texts.
pub type Contents = BTreeMap<String, Vec<String>>;

/// The text of a value depends on these besides the value.
const SETTINGS: &str = "SET extra_float_digits = 3; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres'; SET timezone = 'UTC'; \
     SET bytea_output = 'hex'; SET lc_monetary = 'C'; SET search_path = pg_catalog, public";

/// Tables with rows of their own, without what belongs to Hindcast.
const TABLES: &str = "SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
     WHERE relkind = 'r' AND relpersistence = 'p' AND nspname NOT IN ('pg_catalog', 'information_schema', 'hindcast') AND nspname NOT LIKE 'pg\\_%' ORDER BY 1";

/// What a database holds. The session keeps its settings, and a transaction it is in.
pub fn contents(session: &Session) -> Result<Contents, Failure> {
    session.run(SETTINGS)?;
    let mut contents = Contents::new();
    for table in session.query(TABLES)?.into_iter().flatten().flatten() {
        // Columns by name: where they lie may differ.
        let columns = session.value(&format!(
            "SELECT coalesce(string_agg(format('%I', attname), ', ' ORDER BY attname), 'NULL') FROM pg_attribute \
             WHERE attrelid = '{}'::regclass AND attnum > 0 AND NOT attisdropped",
            table.replace('\'', "''")
        ))?;
        let rows = session.query(&format!(
            "SELECT r::text FROM (SELECT {columns} FROM ONLY {table}) r ORDER BY r::text COLLATE \"C\""
        ))?;
        let rows = rows.into_iter().flatten().flatten().collect();
        contents.insert(table, rows);
    }
    Ok(contents)
}

/// In words, at most a few rows per table; `None` if they are equal.
pub fn difference(primary: &Contents, backup: &Contents) -> Option<String> {
    let mut words = String::new();
    for (table, rows) in primary {
        let Some(others) = backup.get(table) else {
            words += &format!("{table} is not on the backup\n");
            continue;
        };
        if rows == others {
            continue;
        }
        words += &format!(
            "{table}: {} rows on the primary, {} on the backup\n",
            rows.len(),
            others.len()
        );
        for (side, these, those) in [
            ("primary", counted(rows), counted(others)),
            ("backup", counted(others), counted(rows)),
        ] {
            let only = these
                .iter()
                .filter(|(row, count)| those.get(*row).unwrap_or(&0) < *count);
            for (row, count) in only.take(5) {
                let row: String = row.chars().take(300).collect();
                words += &format!("  only on the {side} ({count}×): {row}\n");
            }
        }
    }
    for table in backup.keys() {
        if !primary.contains_key(table) {
            words += &format!("{table} is only on the backup\n");
        }
    }
    (!words.is_empty()).then_some(words)
}

fn counted(rows: &[String]) -> BTreeMap<&str, usize> {
    let mut counted = BTreeMap::new();
    for row in rows {
        *counted.entry(row.as_str()).or_default() += 1;
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[&str]) -> Contents {
        let rows = rows.iter().map(|&row| row.to_owned()).collect();
        Contents::from([("public.t".to_owned(), rows)])
    }

    #[test]
    fn equal_is_equal() {
        assert_eq!(difference(&of(&["(1)", "(2)"]), &of(&["(1)", "(2)"])), None);
    }

    #[test]
    fn a_row_that_is_there_twice_is_named() {
        let words = difference(&of(&["(1)"]), &of(&["(1)", "(1)"])).unwrap_or_default();
        assert!(words.contains("only on the backup (2×): (1)"), "{words}");
    }

    #[test]
    fn a_lost_row_is_named() {
        let words = difference(&of(&["(1)", "(2)"]), &of(&["(1)"])).unwrap_or_default();
        assert!(words.contains("only on the primary (1×): (2)"), "{words}");
    }
}
