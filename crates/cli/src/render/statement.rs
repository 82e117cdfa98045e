//! Statements and the values they were sent with.

use std::fmt::Write;

use hindcast_trace::{Shape, Transaction};
use hindcast_view::{Answer, answers, spoken};

use super::format::cut;
use super::sides::answer;

/// How much of a statement, and of its values, is shown.
const WIDTH: usize = 400;

/// So many rows are shown of what a statement was answered.
const ROWS: usize = 5;

/// With what they were answered, where that was kept.
pub fn statements_of(transaction: &Transaction, shape: &Shape) -> String {
    let sent = transaction.client_bytes.as_deref();
    let answered = transaction.server_bytes.as_deref().unwrap_or_default();
    statements(sent, shape, &answers(sent, answered, ROWS))
}

/// With their values, where these were kept. One that failed is the last that was answered.
fn statements(sent: Option<&[u8]>, shape: &Shape, answers: &[Answer]) -> String {
    let mut text = String::new();
    let mut answers = answers.iter();
    for (number, statement) in (1..).zip(spoken(sent, &shape.statements)) {
        let _ = writeln!(text, "  {number:>2}  {}", cut(&statement.text, WIDTH));
        if !statement.values.is_empty() {
            let values = statement.values.iter().zip(1..);
            let values = values.map(|(value, number)| format!("${number} = {value}"));
            let values: Vec<String> = values.collect();
            let _ = writeln!(text, "        {}", cut(&values.join(", "), WIDTH));
        }
        let answered = answers.next().filter(|it| it.failed || !it.rows.is_empty());
        answered.iter().for_each(|it| answer(&mut text, "", it));
    }
    text
}

#[cfg(test)]
mod tests {
    use hindcast_trace::ShapeId;

    use super::*;

    #[test]
    fn a_statement_is_shown_as_it_was_sent_where_that_was_kept() {
        let shape = Shape {
            id: ShapeId(1),
            statements: vec!["SELECT $1".to_owned()],
        };
        let mut sent = bytes::BytesMut::new();
        hindcast_wire::message::frontend::query(&mut sent, b"SELECT\n 'a' /*traceparent='00-1'*/");
        assert_eq!(statements(Some(&sent), &shape, &[]), "   1  SELECT 'a'\n");
        assert_eq!(statements(None, &shape, &[]), "   1  SELECT $1\n");
    }
}
