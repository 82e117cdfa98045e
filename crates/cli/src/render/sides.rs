//! Both sides of a divergence: the statements that were recorded, those that the service ran in
//! their place, and the rows.
//!
//! ```text
//!      1  BEGIN
//!   -  2  SELECT * FROM t WHERE a = $1        recorded
//!   +  2  SELECT * FROM t WHERE a > $1        replayed
//!           $1 = 7
//!           SELECT 1: id = 3, a = 7
//! ```

use std::fmt::Write;

use hindcast_replay::verdict::{Answer, Sides, Told};

use super::format::{count, cut};

/// How much of a statement, of its values, and of a row is shown.
const WIDTH: usize = 400;
/// So many statements are shown before the first that differs, and behind the last.
const AROUND: usize = 3;
/// So many statements of one side are shown that differ.
const DIFFERING: usize = 8;

/// `, statement 2 of 3`
pub fn place(sides: &Sides) -> String {
    let all = sides.recorded.len();
    match sides.differs_at {
        Some(at) if at < all => format!(", statement {} of {all}", at + 1),
        Some(_) => format!(", after its {}", count(all as u64, "statement")),
        None => String::new(),
    }
}

pub fn block(sides: &Sides) -> String {
    let mut text = String::new();
    let (recorded, replayed) = (&sides.recorded, &sides.replayed);
    if replayed.is_empty() {
        for (told, number) in recorded.iter().zip(1..).take(DIFFERING) {
            statement(&mut text, ' ', number, told);
            told.answer.iter().for_each(|it| answer(&mut text, "", it));
        }
        left_out(&mut text, recorded.len().saturating_sub(DIFFERING));
        return text;
    }
    let pairs = || recorded.iter().zip(replayed);
    let before = pairs().take_while(|(a, b)| is_same(a, b)).count();
    let rest = recorded.len().min(replayed.len()) - before;
    let backwards = recorded.iter().rev().zip(replayed.iter().rev()).take(rest);
    let behind = backwards.take_while(|(a, b)| is_same(a, b)).count();
    // Where no statement is another one, what they were answered tells.
    let shown_from = match before == recorded.len() && before == replayed.len() {
        true => sides.differs_at.unwrap_or(0),
        false => before,
    };
    let first = shown_from.saturating_sub(AROUND);
    left_out(&mut text, first);
    for (at, (a, b)) in pairs().enumerate().take(before).skip(first) {
        statement(&mut text, ' ', at + 1, with_values(a, b));
        if sides.differs_at.is_none_or(|it| it == at) {
            both_answers(&mut text, a, b);
        }
    }
    let side = |text: &mut String, sign, all: &[Told]| {
        let own = &all[before..all.len() - behind];
        for (told, number) in own.iter().zip(before + 1..).take(DIFFERING) {
            statement(text, sign, number, told);
            told.answer.iter().for_each(|it| answer(text, "", it));
        }
        left_out(text, own.len().saturating_sub(DIFFERING));
    };
    side(&mut text, '-', recorded);
    side(&mut text, '+', replayed);
    let rest = (recorded.len() - behind + 1..).zip(&recorded[recorded.len() - behind..]);
    for (number, told) in rest.take(AROUND) {
        statement(&mut text, ' ', number, told);
    }
    left_out(&mut text, behind.saturating_sub(AROUND));
    text
}

/// What would have told more.
pub fn hint(sides: &Sides) -> Option<&'static str> {
    (!sides.recorded.is_empty() && !sides.values_kept).then_some(
        "values and rows of a recording are kept with `record --values`, and shown beside those of the replay",
    )
}

/// Rows of an answer, the first few, in lines of their own.
pub fn answer(text: &mut String, side: &str, answer: &Answer) {
    let space = if side.is_empty() { "" } else { " " };
    let end = cut(&answer.end, WIDTH);
    if answer.rows.is_empty() {
        let _ = writeln!(text, "           {side}{space}{end}");
        return;
    }
    let _ = writeln!(text, "           {side}{space}{end}:");
    for row in &answer.rows {
        let columns = answer.columns.iter().zip(row);
        let columns = columns.map(|(column, value)| match value {
            Some(value) => format!("{column} = {value}"),
            None => format!("{column} = NULL"),
        });
        let row: Vec<String> = columns.collect();
        let _ = writeln!(text, "             {}", cut(&row.join(", "), WIDTH));
    }
    if answer.more > 0 {
        let _ = writeln!(
            text,
            "             … and {}",
            count(answer.more, "more row")
        );
    }
}

fn both_answers(text: &mut String, recorded: &Told, replayed: &Told) {
    match (&recorded.answer, &replayed.answer) {
        (Some(a), Some(b)) if a == b => answer(text, "both:", a),
        (a, b) => {
            a.iter().for_each(|it| answer(text, "recorded:", it));
            b.iter().for_each(|it| answer(text, "replayed:", it));
        }
    }
}

/// The same statement, with the same values as far as these are known.
fn is_same(a: &Told, b: &Told) -> bool {
    let values = [&a.spoken.values, &b.spoken.values];
    let known = values.iter().all(|values| !values.is_empty());
    a.fingerprint == b.fingerprint && (!known || values[0] == values[1])
}

fn with_values<'a>(recorded: &'a Told, replayed: &'a Told) -> &'a Told {
    match recorded.spoken.values.is_empty() && recorded.answer.is_none() {
        true => replayed,
        false => recorded,
    }
}

fn statement(text: &mut String, sign: char, number: usize, told: &Told) {
    let spoken = &told.spoken;
    let _ = writeln!(text, "  {sign} {number:>3}  {}", cut(&spoken.text, WIDTH));
    if !spoken.values.is_empty() {
        let values = spoken.values.iter().zip(1..);
        let values = values.map(|(value, number)| format!("${number} = {value}"));
        let values: Vec<String> = values.collect();
        let _ = writeln!(text, "           {}", cut(&values.join(", "), WIDTH));
    }
}

fn left_out(text: &mut String, statements: usize) {
    if statements > 0 {
        let _ = writeln!(text, "         … {}", count(statements as u64, "statement"));
    }
}

#[cfg(test)]
mod tests {
    use hindcast_replay::verdict::Spoken;

    use super::*;

    fn told(text: &str, values: &[&str], rows: &[&str]) -> Told {
        let row = |value: &&str| vec![Some((*value).to_owned())];
        Told {
            spoken: Spoken {
                text: text.to_owned(),
                values: values.iter().map(|it| (*it).to_owned()).collect(),
            },
            answer: (!rows.is_empty()).then(|| Answer {
                columns: vec!["n".to_owned()],
                rows: rows.iter().map(row).collect(),
                end: format!("SELECT {}", rows.len()),
                ..Answer::default()
            }),
            fingerprint: text.len() as u64,
        }
    }

    #[test]
    fn another_statement_is_shown_beside_the_recorded_one() {
        let (begin, end) = (told("BEGIN", &[], &[]), told("COMMIT", &[], &[]));
        let sides = Sides {
            recorded: vec![
                begin.clone(),
                told("SELECT a = $1", &["7"], &[]),
                end.clone(),
            ],
            replayed: vec![begin, told("SELECT a + 1 > $1", &["7"], &["1", "2"]), end],
            differs_at: Some(1),
            ..Sides::default()
        };
        assert_eq!(place(&sides), ", statement 2 of 3");
        let shown = "      1  BEGIN
  -   2  SELECT a = $1
           $1 = 7
  +   2  SELECT a + 1 > $1
           $1 = 7
           SELECT 2:
             n = 1
             n = 2
      3  COMMIT
";
        assert_eq!(block(&sides), shown);
    }

    #[test]
    fn rows_of_both_sides_are_shown_where_only_they_differ() {
        let sides = Sides {
            recorded: vec![told("SELECT n", &[], &["1"])],
            replayed: vec![told("SELECT n", &[], &["2"])],
            differs_at: Some(0),
            ..Sides::default()
        };
        let shown = "      1  SELECT n
           recorded: SELECT 1:
             n = 1
           replayed: SELECT 1:
             n = 2
";
        assert_eq!(block(&sides), shown);
    }

    #[test]
    fn of_what_did_not_come_the_recorded_side_is_shown() {
        let sides = Sides {
            recorded: (0..12).map(|_| told("SELECT n", &[], &[])).collect(),
            ..Sides::default()
        };
        let shown = block(&sides);
        assert_eq!(shown.lines().count(), DIFFERING + 1);
        assert!(shown.ends_with("… 4 statements\n"), "{shown}");
    }
}
