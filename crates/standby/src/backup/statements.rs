//! The SQL that writes a batch.
//!
//! Pure: a table in, a text out. Parameters are arrays, one per column, one element per row; their
//! types are those of [`Column::array_sql`]. Columns are named after their place: `u.c3` is the
//! fourth column's new value, `u.k0` the first column of the key.

use super::table::{Column, Table};
use super::values::Wire;

/// A value that came as an array's element, as the column's type.
fn cast(column: &Column, value: &str) -> String {
    match column.wire {
        Wire::Cast => format!("{value}::{}", column.type_sql),
        _ => value.to_owned(),
    }
}

/// `unnest($1::int8[], $2::text[]) AS u(k0, c1)`.
fn unnest<'a>(columns: impl Iterator<Item = (&'a Column, String)> + Clone) -> String {
    let arrays: Vec<String> = columns
        .clone()
        .enumerate()
        .map(|(at, (column, _))| format!("${}::{}", at + 1, column.array_sql()))
        .collect();
    let names: Vec<String> = columns.map(|(_, name)| name).collect();
    format!("unnest({}) AS u({})", arrays.join(", "), names.join(", "))
}

fn key_columns(table: &Table) -> impl Iterator<Item = (&Column, String)> + Clone {
    let numbered = table.key.iter().enumerate();
    numbered.map(|(at, &column)| (&table.columns[column], format!("k{at}")))
}

fn numbered<'a>(
    table: &'a Table,
    columns: &'a [usize],
) -> impl Iterator<Item = (&'a Column, String)> + Clone {
    columns
        .iter()
        .map(|&column| (&table.columns[column], format!("c{column}")))
}

/// `t."id" OPERATOR(pg_catalog.=) u.k0 AND …`.
fn same_key(table: &Table) -> String {
    let conditions: Vec<String> = key_columns(table)
        .zip(&table.key_operators)
        .map(|((column, name), operator)| {
            let value = cast(column, &format!("u.{name}"));
            format!("t.{} OPERATOR({operator}) {value}", column.name)
        })
        .collect();
    conditions.join(" AND ")
}

fn set(table: &Table, columns: &[usize]) -> String {
    let assignments: Vec<String> = numbered(table, columns)
        .map(|(column, name)| format!("{} = {}", column.name, cast(column, &format!("u.{name}"))))
        .collect();
    assignments.join(", ")
}

/// Parameters: the key's columns.
pub fn delete(table: &Table) -> String {
    format!(
        "DELETE FROM {} AS t USING {} WHERE {}",
        table.only(),
        unnest(key_columns(table)),
        same_key(table)
    )
}

/// What an update of these columns sets, and what it can only find as it is.
pub fn settable(table: &Table, mask: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let fixed: Vec<usize> = table.fixed().collect();
    mask.iter().partition(|column| !fixed.contains(column))
}

/// Parameters: the key's columns, those of the mask that can be set, those that can not. `None` if
/// there is nothing to set.
///
/// A row whose identity column would have to change is not found, and the count of rows tells.
pub fn update(table: &Table, mask: &[usize]) -> Option<String> {
    let (settable, fixed) = settable(table, mask);
    if settable.is_empty() {
        return None;
    }
    let columns = key_columns(table)
        .chain(numbered(table, &settable))
        .chain(numbered(table, &fixed));
    let mut sql = format!(
        "UPDATE {} AS t SET {} FROM {} WHERE {}",
        table.only(),
        set(table, &settable),
        unnest(columns),
        same_key(table)
    );
    for (column, name) in numbered(table, &fixed) {
        sql += &format!(" AND t.{} = u.{name}", column.name);
    }
    Some(sql)
}

/// Moves rows to other keys. Parameters: the old key's columns, then those of the mask, the new
/// key's among them.
pub fn move_key(table: &Table, mask: &[usize]) -> String {
    format!(
        "UPDATE {} AS t SET {} FROM {} WHERE {}",
        table.only(),
        set(table, mask),
        unnest(key_columns(table).chain(numbered(table, mask))),
        same_key(table)
    )
}

fn all(table: &Table) -> Vec<usize> {
    (0..table.columns.len()).collect()
}

fn names(table: &Table) -> String {
    let names: Vec<&str> = table
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    names.join(", ")
}

/// Parameters: all columns.
pub fn insert(table: &Table) -> String {
    let all = all(table);
    let values: Vec<String> = numbered(table, &all)
        .map(|(column, name)| cast(column, &format!("u.{name}")))
        .collect();
    format!(
        "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {}",
        table.name,
        names(table),
        values.join(", "),
        unnest(numbered(table, &all))
    )
}

/// The same for many rows; they follow as lines.
pub fn copy(table: &Table) -> String {
    format!("COPY {} ({}) FROM STDIN", table.name, names(table))
}

/// For a table without columns.
pub fn insert_nothing(table: &Table) -> String {
    format!("INSERT INTO {} DEFAULT VALUES", table.name)
}

/// Which of the keys has not exactly one row, and how many it has. Parameters: the key's columns.
pub fn count_keys(table: &Table) -> String {
    let unnest = unnest(key_columns(table));
    let unnest = unnest.replacen(") AS u(", ") WITH ORDINALITY AS u(", 1);
    let unnest = format!("{}, place)", unnest.trim_end_matches(')'));
    format!(
        "SELECT place, found FROM {unnest}, LATERAL (SELECT count(*) AS found FROM {} AS t WHERE {}) AS counted \
         WHERE found <> 1 ORDER BY place LIMIT 1",
        table.only(),
        same_key(table)
    )
}

/// `one`: where one row with exactly these values is. Parameters: the values that are not null.
fn one_row(table: &Table, nulls: &[bool]) -> (String, usize) {
    let mut parameters = 0;
    let conditions: Vec<String> = table
        .columns
        .iter()
        .zip(nulls)
        .map(|(column, null)| {
            if *null {
                return format!("t.{} IS NULL", column.name);
            }
            parameters += 1;
            match column.textual {
                true => format!("t.{} = ${parameters}::{}", column.name, column.type_sql),
                // What the type's output function writes, as the log has it: a cast to text is
                // another function for some types (`inet`, `bpchar`).
                false => format!(
                    "pg_catalog.format('%s', t.{}) COLLATE \"C\" = ${parameters}::text",
                    column.name
                ),
            }
        })
        .collect();
    let conditions = match conditions.is_empty() {
        true => "true".to_owned(),
        false => conditions.join(" AND "),
    };
    let one = format!(
        "(SELECT tableoid AS o, ctid AS c FROM {} AS t WHERE {conditions} LIMIT 1) AS one",
        table.only()
    );
    (one, parameters)
}

/// Deletes one row with exactly these values. Parameters: the values that are not null.
pub fn delete_row(table: &Table, nulls: &[bool]) -> String {
    let (one, _) = one_row(table, nulls);
    format!(
        "DELETE FROM {} AS t USING {one} WHERE t.ctid = one.c AND t.tableoid = one.o",
        table.only()
    )
}

/// Parameters: the old values that are not null, then the mask's new ones.
pub fn update_row(table: &Table, nulls: &[bool], mask: &[usize]) -> String {
    let (one, parameters) = one_row(table, nulls);
    let assignments: Vec<String> = mask
        .iter()
        .zip(parameters + 1..)
        .map(|(&column, parameter)| {
            let column = &table.columns[column];
            format!("{} = ${parameter}::{}", column.name, column.type_sql)
        })
        .collect();
    format!(
        "UPDATE {} AS t SET {} FROM {one} WHERE t.ctid = one.c AND t.tableoid = one.o",
        table.only(),
        assignments.join(", ")
    )
}

/// All tables of one message, as on the primary.
pub fn truncate(tables: &[&Table], cascade: bool, restart_identity: bool) -> String {
    let names: Vec<String> = tables.iter().map(|table| table.only()).collect();
    format!(
        "TRUNCATE {}{}{}",
        names.join(", "),
        if restart_identity {
            " RESTART IDENTITY"
        } else {
            ""
        },
        if cascade { " CASCADE" } else { "" }
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::pgoutput::{Identity, Relation};

    fn table(always: bool) -> Table {
        let column = |name: &str, type_sql: &str, type_oid| Column {
            name: hindcast_pg::quote_identifier(name),
            type_sql: type_sql.to_owned(),
            wire: Wire::of(type_oid),
            parsed_as: None,
            always: always && name == "n",
            textual: type_oid == 20,
        };
        Table {
            serial: 1,
            relation: Arc::new(Relation {
                id: 1,
                schema: "public".to_owned(),
                name: "t".to_owned(),
                identity: Identity::Default,
                columns: vec![],
            }),
            name: "\"public\".\"t\"".to_owned(),
            partitioned: false,
            columns: vec![
                column("id", "bigint", 20),
                column("price", "numeric(10,2)", 1700),
                column("n", "bigint", 20),
            ],
            key: vec![0],
            key_operators: vec!["pg_catalog.=".to_owned()],
            constrained: false,
            deferrable: false,
            extra_columns: false,
            spreadable: true,
        }
    }

    fn check(actual: impl Into<String>, expected: Expect) {
        expected.assert_eq(&actual.into());
    }

    #[test]
    fn rows_are_found_by_their_key() {
        let table = table(false);
        check(
            delete(&table),
            expect![[
                r#"DELETE FROM ONLY "public"."t" AS t USING unnest($1::int8[]) AS u(k0) WHERE t."id" OPERATOR(pg_catalog.=) u.k0"#
            ]],
        );
        check(
            update(&table, &[1, 2]).unwrap(),
            expect![[
                r#"UPDATE ONLY "public"."t" AS t SET "price" = u.c1::numeric(10,2), "n" = u.c2 FROM unnest($1::int8[], $2::text[], $3::int8[]) AS u(k0, c1, c2) WHERE t."id" OPERATOR(pg_catalog.=) u.k0"#
            ]],
        );
        check(
            move_key(&table, &[0, 2]),
            expect![[
                r#"UPDATE ONLY "public"."t" AS t SET "id" = u.c0, "n" = u.c2 FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS u(k0, c0, c2) WHERE t."id" OPERATOR(pg_catalog.=) u.k0"#
            ]],
        );
        check(
            insert(&table),
            expect![[
                r#"INSERT INTO "public"."t" ("id", "price", "n") OVERRIDING SYSTEM VALUE SELECT u.c0, u.c1::numeric(10,2), u.c2 FROM unnest($1::int8[], $2::text[], $3::int8[]) AS u(c0, c1, c2)"#
            ]],
        );
        check(
            copy(&table),
            expect![[r#"COPY "public"."t" ("id", "price", "n") FROM STDIN"#]],
        );
        check(
            count_keys(&table),
            expect![[
                r#"SELECT place, found FROM unnest($1::int8[]) WITH ORDINALITY AS u(k0, place), LATERAL (SELECT count(*) AS found FROM ONLY "public"."t" AS t WHERE t."id" OPERATOR(pg_catalog.=) u.k0) AS counted WHERE found <> 1 ORDER BY place LIMIT 1"#
            ]],
        );
    }

    #[test]
    fn an_identity_column_is_compared_and_not_set() {
        let table = table(true);
        check(
            update(&table, &[1, 2]).unwrap(),
            expect![[
                r#"UPDATE ONLY "public"."t" AS t SET "price" = u.c1::numeric(10,2) FROM unnest($1::int8[], $2::text[], $3::int8[]) AS u(k0, c1, c2) WHERE t."id" OPERATOR(pg_catalog.=) u.k0 AND t."n" = u.c2"#
            ]],
        );
        assert_eq!(update(&table, &[2]), None);
    }

    #[test]
    fn without_a_key_one_row_is_found_by_all_its_values() {
        let table = table(false);
        check(
            delete_row(&table, &[false, false, true]),
            expect![[
                r#"DELETE FROM ONLY "public"."t" AS t USING (SELECT tableoid AS o, ctid AS c FROM ONLY "public"."t" AS t WHERE t."id" = $1::bigint AND pg_catalog.format('%s', t."price") COLLATE "C" = $2::text AND t."n" IS NULL LIMIT 1) AS one WHERE t.ctid = one.c AND t.tableoid = one.o"#
            ]],
        );
        check(
            update_row(&table, &[false, true, true], &[1]),
            expect![[
                r#"UPDATE ONLY "public"."t" AS t SET "price" = $2::numeric(10,2) FROM (SELECT tableoid AS o, ctid AS c FROM ONLY "public"."t" AS t WHERE t."id" = $1::bigint AND t."price" IS NULL AND t."n" IS NULL LIMIT 1) AS one WHERE t.ctid = one.c AND t.tableoid = one.o"#
            ]],
        );
    }

    #[test]
    fn values_with_a_cast_of_their_own_are_read_by_the_input_function() {
        let mut table = table(false);
        table.columns[1] = Column {
            name: "\"of\"".to_owned(),
            type_sql: "regclass".to_owned(),
            wire: Wire::of(2205),
            parsed_as: Some("regclass[]".to_owned()),
            always: false,
            textual: false,
        };
        check(
            update(&table, &[1]).unwrap(),
            expect![[
                r#"UPDATE ONLY "public"."t" AS t SET "of" = u.c1::regclass FROM unnest($1::int8[], $2::regclass[]) AS u(k0, c1) WHERE t."id" OPERATOR(pg_catalog.=) u.k0"#
            ]],
        );
    }

    #[test]
    fn tables_are_truncated_together() {
        let (one, two) = (table(false), table(true));
        check(
            truncate(&[&one, &two], true, true),
            expect![[r#"TRUNCATE ONLY "public"."t", ONLY "public"."t" RESTART IDENTITY CASCADE"#]],
        );
    }
}
