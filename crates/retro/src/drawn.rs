//! Columns whose values the statements of a service draw in the database:
//! `INSERT INTO voucher (id) VALUES (gen_random_uuid())`. They differ from run to run as those do
//! whose default is such a function.
//!
//! A column is one of them only if each statement that inserts into its table and gives it a value
//! draws that value, by the same function, and no statement sets it later. So a value that anybody
//! chose is never taken for one that was drawn. None is, where it is not known what some statement
//! does. Functions and triggers are not looked into.

use std::collections::{BTreeMap, BTreeSet};

use hindcast_select::{Name, Statements};
use hindcast_state::Aligned;

/// By table as written, and column: the function that draws; `None`: it is given in another way.
#[derive(Debug, Default)]
pub struct Drawn {
    columns: BTreeMap<Name, BTreeMap<String, Option<String>>>,
}

impl Drawn {
    /// Of all statements, of the recording and of the changed code.
    pub fn of<'a>(texts: impl Iterator<Item = &'a String>) -> Self {
        let mut statements = Statements::default();
        let mut drawn = Self::default();
        for text in texts.collect::<BTreeSet<_>>() {
            let statement = statements.of(text);
            if statement.undetermined.is_some() {
                return Self::default();
            }
            for (table, effects) in &statement.writes {
                let mut note = |column: &str, function: Option<&String>| {
                    let columns = drawn.columns.entry(table.clone()).or_default();
                    let known = columns.entry(column.to_owned());
                    let known = known.or_insert_with(|| function.cloned());
                    if known.as_ref() != function {
                        *known = None;
                    }
                };
                for column in effects.update.iter().flatten() {
                    note(column, None);
                }
                for (column, function) in &effects.inserts {
                    note(column, function.as_ref());
                }
                if effects.insert && effects.inserts.is_empty() {
                    note(hindcast_select::ANY_COLUMN, None);
                }
            }
        }
        drawn
    }

    /// Gives such columns what they are drawn by as their default.
    pub(crate) fn apply(&self, aligned: &mut Aligned) {
        let is_meant = |name: &Name| match &name.schema {
            Some(schema) => aligned.table == format!("{schema}.{}", name.name),
            None => aligned.table.rsplit('.').next() == Some(&name.name),
        };
        let meant = self.columns.iter().filter(|(name, _)| is_meant(name));
        let meant: Vec<_> = meant.map(|(_, columns)| columns).collect();
        if meant
            .iter()
            .any(|of| of.contains_key(hindcast_select::ANY_COLUMN))
        {
            return;
        }
        for column in &mut aligned.columns {
            let functions = meant.iter().filter_map(|of| of.get(&column.name));
            let functions: BTreeSet<_> = functions.collect();
            if functions.len() == 1
                && let Some(Some(function)) = functions.first()
            {
                column.default = Some(format!("{function}()"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which columns of table `v` are drawn, and how.
    fn drawn(texts: &[&str]) -> String {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        let drawn = Drawn::of(texts.iter());
        let all = drawn.columns.values().flatten();
        let all = all.filter_map(|(column, by)| Some(format!("{column}={}", by.as_ref()?)));
        all.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_column_is_drawn_if_every_statement_draws_it() {
        let draws = "INSERT INTO v (id, n, at) VALUES (gen_random_uuid(), $1, clock_timestamp())";
        assert_eq!(drawn(&[draws]), "at=clock_timestamp id=gen_random_uuid");
        let others = [
            "INSERT INTO v (id, n, at) VALUES ($1, $2, clock_timestamp())",
            "INSERT INTO v (id, at) VALUES (gen_random_uuid(), now()), ($1, clock_timestamp())",
            "UPDATE v SET id = $1, at = $2",
            "INSERT INTO v (id, at) SELECT id, at FROM old",
        ];
        assert_eq!(drawn(&[draws, others[0]]), "at=clock_timestamp");
        for other in &others[1..] {
            assert_eq!(drawn(&[draws, other]), "", "{other}");
        }
        assert_eq!(drawn(&[draws, "DO $1"]), "");
        // A value that is made of one that was drawn is another matter, as is one of arguments.
        let made = "INSERT INTO v (id, n) VALUES (f(gen_random_uuid()), random($1, $2))";
        assert_eq!(drawn(&[made]), "");
    }
}
