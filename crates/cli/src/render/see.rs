//! What `hindcast see` says of the database that it shows.

use hindcast_pg::DatabaseUrl;
use hindcast_replay::see::{Moment, seen_at};
use hindcast_trace::Transaction;

use super::format::cut;
use hindcast_view::snapshot_text;

/// `The database as t42 of request 17 saw it …`, and what that is.
pub fn heading(transaction: &Transaction, moment: Moment, statements: &[String]) -> String {
    let of = match transaction.request {
        Some((request, _)) => format!("t{} of request {request}", transaction.id),
        None => format!("t{}, a ghost,", transaction.id),
    };
    let text = |number: u32| {
        let statement = statements.get(number as usize - 1);
        statement.map_or(String::new(), |text| format!(": {}", cut(text, 100)))
    };
    let when = match moment {
        Moment::Snapshot => "when it took its snapshot".to_owned(),
        Moment::Statement(number) => format!("at its statement {number}{}", text(number)),
        Moment::End => "at its end, before its commit".to_owned(),
    };
    let mut heading = format!("The database as {of} saw it {when}:\n");
    if let Some(snapshot) = seen_at(transaction, moment) {
        heading += &format!("  saw       {}\n", snapshot_text(snapshot));
    }
    if moment != Moment::Snapshot {
        heading += "  and       what it had written itself by then\n";
    }
    heading
}

pub fn json(transaction: &Transaction, moment: Moment, url: &DatabaseUrl) -> serde_json::Value {
    let statement = match moment {
        Moment::Snapshot => serde_json::Value::Null,
        Moment::Statement(number) => number.into(),
        Moment::End => "end".into(),
    };
    serde_json::json!({
        "transaction": transaction.id.to_string(),
        "request": transaction.request.map(|(request, _)| request.to_string()),
        "statement": statement,
        "snapshot": seen_at(transaction, moment),
        "url": url.to_string(),
    })
}
