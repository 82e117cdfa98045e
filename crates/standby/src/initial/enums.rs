//! Labels of enums that the primary got since its schema was copied.
//!
//! The log has the labels of values, and no word of their types. A label can be added to an enum
//! and not be removed, so one that the backup lacks is new, or another one has been renamed: which
//! rows of the backup that concerns, and from which position of the log on, nobody can say.

use std::collections::BTreeMap;

use hindcast_pg::{Connection, DatabaseUrl, Error, quote_identifier, quote_literal};

use super::copy::writing;
use super::error::{InitialError, Side};
use super::workers::reading;

/// The labels of each enum in their order, by schema and name.
type Enums = BTreeMap<(String, String), Vec<String>>;

const ENUMS: &str = "\
SELECT n.nspname, t.typname, e.enumlabel \
  FROM pg_catalog.pg_enum e JOIN pg_catalog.pg_type t ON t.oid = e.enumtypid JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
 WHERE n.nspname NOT IN ('information_schema', 'hindcast') AND n.nspname !~ '^pg_' \
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e') \
 ORDER BY e.enumtypid, e.enumsortorder";

fn enums(connection: &mut Connection) -> Result<Enums, Error> {
    let mut enums = Enums::new();
    for row in connection.query(ENUMS)?.iter() {
        let name = (row.string(0), row.string(1));
        enums.entry(name).or_default().push(row.string(2));
    }
    Ok(enums)
}

/// Makes the enums and labels that the backup lacks. Says which.
pub fn adapt_enums(
    primary: &DatabaseUrl,
    backup: &DatabaseUrl,
) -> Result<Vec<String>, InitialError> {
    let failed = |side| InitialError::query(side, "see the labels of its enums");
    let mut primary =
        Connection::connect(primary, &reading()).map_err(InitialError::connect(Side::Primary))?;
    let mut backup = writing(backup)?;
    let theirs = enums(&mut primary).map_err(failed(Side::Primary))?;
    let ours = enums(&mut backup).map_err(failed(Side::Backup))?;
    let mut made = Vec::new();
    for statement in additions(&theirs, &ours) {
        match backup.execute(&statement) {
            Ok(_) => made.push(statement),
            Err(error) if error.is_connection() => return Err(failed(Side::Backup)(error)),
            // Of a schema that is not there, or of somebody else: what needs it fails, and says
            // so.
            Err(_) => {}
        }
    }
    Ok(made)
}

fn additions(theirs: &Enums, ours: &Enums) -> Vec<String> {
    let mut statements = Vec::new();
    for (name, labels) in theirs {
        let of = format!(
            "{}.{}",
            quote_identifier(&name.0),
            quote_identifier(&name.1)
        );
        let Some(own) = ours.get(name) else {
            let labels: Vec<_> = labels.iter().map(|label| quote_literal(label)).collect();
            statements.push(format!("CREATE TYPE {of} AS ENUM ({})", labels.join(", ")));
            continue;
        };
        if own.iter().any(|label| !labels.contains(label)) {
            continue;
        }
        let mut before = None;
        for label in labels {
            if !own.contains(label) {
                // Those before it are there by now.
                let place = match before {
                    Some(before) => format!(" AFTER {}", quote_literal(before)),
                    None => own.first().map_or(String::new(), |first| {
                        format!(" BEFORE {}", quote_literal(first))
                    }),
                };
                let label = quote_literal(label);
                statements.push(format!("ALTER TYPE {of} ADD VALUE {label}{place}"));
            }
            before = Some(label);
        }
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(labels: &[&str]) -> Enums {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        Enums::from([(("public".to_owned(), "mood".to_owned()), labels)])
    }

    fn said(theirs: &[&str], ours: &[&str]) -> String {
        additions(&one(theirs), &one(ours)).join("; ")
    }

    #[test]
    fn a_label_is_added_in_its_place() {
        assert_eq!(said(&["a", "b"], &["a", "b"]), "");
        assert_eq!(
            said(&["x", "a", "y", "z", "b", "w"], &["a", "b"]),
            r#"ALTER TYPE "public"."mood" ADD VALUE 'x' BEFORE 'a'; ALTER TYPE "public"."mood" ADD VALUE 'y' AFTER 'a'; "#
                .to_owned()
                + r#"ALTER TYPE "public"."mood" ADD VALUE 'z' AFTER 'y'; ALTER TYPE "public"."mood" ADD VALUE 'w' AFTER 'b'"#
        );
    }

    #[test]
    fn an_enum_is_made_and_none_is_renamed() {
        assert_eq!(
            additions(&one(&["it's", "b"]), &Enums::new()),
            ["CREATE TYPE \"public\".\"mood\" AS ENUM ('it''s', 'b')"]
        );
        assert_eq!(said(&["happy", "b", "c"], &["glad", "b"]), "");
    }
}
