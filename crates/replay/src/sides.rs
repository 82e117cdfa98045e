//! Both sides of a divergence: what the recording has of a transaction, and what the service did in
//! its place.
//!
//! Nothing that the recording's rules leave out is told of either side.

use hindcast_trace::{Request, Secrets, Trace, Transaction};
use hindcast_wire::answered::{Answer, RowForm, answers, of_transaction};
use hindcast_wire::sent::{self, SentStatement};
use hindcast_wire::spoken::{Spoken, spoken};
use hindcast_wire::sql::{Dialect, Script};

use crate::redacted::Redacted;
use crate::transcript::{ROWS_MAX, Said};
use crate::verdict::{Divergence, Position, Sides, Told};

/// What is in the place of a secret that was found in a value.
const SECRET: &str = "redacted";
/// Shorter ones are only looked for as whole values: they may be part of anything.
const SECRET_BYTES_MIN: usize = 4;

/// Reads the recording for what it has of where a replay diverged.
pub struct Teller<'a> {
    pub trace: &'a Trace,
    pub redacted: &'a Redacted,
    /// Statements are told with their values, and with rows.
    pub values: bool,
}

impl Teller<'_> {
    /// `None`: the recording cannot be read there, or has nothing to tell.
    pub fn sides(&self, divergence: &Divergence, said: Option<&Said>) -> Option<Sides> {
        let Position {
            request,
            transaction,
        } = divergence.position;
        let request = request.and_then(|id| self.trace.request(id).ok().flatten());
        let transaction = transaction.and_then(|id| self.trace.transaction(id).ok().flatten());
        let mut sides = Sides {
            request: request
                .as_ref()
                .map(|request| format!("{} {}", request.method, request.target)),
            ..Sides::default()
        };
        if let Some(transaction) = &transaction {
            sides.values_kept = self.values && transaction.client_bytes.is_some();
            sides.rows_kept = self.values && transaction.server_bytes.is_some();
            let secrets = request.map(|request| self.secrets(request));
            let secrets = secrets.unwrap_or_default();
            sides.recorded = self.recorded(transaction, &secrets);
            if let Some(said) = said {
                sides.replayed = self.replayed(transaction, &secrets, said);
                sides.differs_at = differs_at(&sides.recorded, &sides.replayed);
            }
        }
        (sides != Sides::default()).then_some(sides)
    }

    fn recorded(&self, transaction: &Transaction, secrets: &[String]) -> Vec<Told> {
        let shape = self.trace.shape(transaction.shape);
        let texts = shape.map_or(&[][..], |shape| &shape.statements);
        let rules = self.redacted.of_recorder(transaction.id.recorder());
        let sent = transaction.client_bytes.as_deref();
        let sent = sent.filter(|_| self.values).and_then(|sent| match rules {
            Some(rules) => rules.masked_client_bytes(sent).ok(),
            None => Some(sent.to_vec()),
        });
        let answered = transaction.server_bytes.as_deref();
        let answered = answered.filter(|_| self.values).map(|bytes| match rules {
            Some(rules) => rules.masked_server_bytes(bytes),
            None => bytes.to_vec(),
        });
        let answered = answered.unwrap_or_default();
        let answered = of_transaction(sent.as_deref(), &answered, ROWS_MAX);
        let spoken = spoken(sent.as_deref(), texts);
        let whole = answered.len() == spoken.len();
        let mut answered = answered.into_iter().filter(|_| whole);
        let told = |(mut spoken, text): (Spoken, &String)| {
            let mut answer = answered.next();
            hide(&mut spoken, &mut answer, secrets);
            told_as(spoken, answer, fingerprint(text))
        };
        spoken.into_iter().zip(texts).map(told).collect()
    }

    fn replayed(&self, recorded: &Transaction, secrets: &[String], said: &Said) -> Vec<Told> {
        let rules = self.redacted.of_recorder(recorded.id.recorder());
        let masked = rules.map(|rules| rules.masked_client_bytes(&said.sent));
        let sent = match &masked {
            None => Some(&said.sent),
            Some(masked) => masked.as_ref().ok(),
        };
        // What cannot be looked into is told without values.
        let with_values = self.values && sent.is_some();
        let statements = sent::statements(sent.unwrap_or(&said.sent));
        let answered = rules.map(|rules| rules.masked_server_bytes(&said.answered));
        let answered = answered.as_deref().unwrap_or(&said.answered);
        let mut answered = answers(answered, RowForm::Text, ROWS_MAX).into_iter();
        let told = |one: SentStatement| {
            let script = Script::of(one.text.as_bytes(), Dialect::default());
            let known = script.statements.into_iter().next();
            let fingerprint = known.map(|known| known.fingerprint);
            let mut spoken = Spoken::of(&one);
            let mut answer = answered.next();
            if !with_values {
                spoken.values.clear();
                let text = fingerprint.as_ref().map(|known| known.text.clone());
                spoken.text = text.unwrap_or_default();
                answer = answer.map(without_rows);
            }
            hide(&mut spoken, &mut answer, secrets);
            told_as(spoken, answer, fingerprint.map_or(0, |known| known.hash))
        };
        statements.into_iter().map(told).collect()
    }

    /// What was taken out of a request and sent all the same.
    fn secrets(&self, request: Request) -> Vec<String> {
        let Some(rules) = self.redacted.of_recorder(request.id.recorder()) else {
            return Vec::new();
        };
        let request = self.trace.with_secrets(request);
        if request.secrets != Secrets::Opened {
            return Vec::new();
        }
        let secrets = rules.secrets_in(&request).into_iter();
        let secrets = secrets.map(|secret| String::from_utf8_lossy(&secret).into_owned());
        secrets.filter(|secret| !secret.is_empty()).collect()
    }
}

fn told_as(spoken: Spoken, answer: Option<Answer>, fingerprint: u64) -> Told {
    Told {
        spoken,
        answer,
        fingerprint,
    }
}

fn fingerprint(text: &str) -> u64 {
    let script = Script::of(text.as_bytes(), Dialect::default());
    script
        .statements
        .first()
        .map_or(0, |one| one.fingerprint.hash)
}

fn without_rows(answer: Answer) -> Answer {
    Answer {
        more: answer.more + answer.rows.len() as u64,
        rows: Vec::new(),
        columns: Vec::new(),
        ..answer
    }
}

/// Takes secrets out of what the service made of them.
fn hide(spoken: &mut Spoken, answer: &mut Option<Answer>, secrets: &[String]) {
    let texts = std::iter::once(&mut spoken.text).chain(&mut spoken.values);
    let rows = answer.iter_mut().flat_map(|answer| &mut answer.rows);
    for text in texts.chain(rows.flatten().flatten()) {
        for secret in secrets {
            let whole = text.trim_matches('\'') == secret;
            if whole || secret.len() >= SECRET_BYTES_MIN {
                *text = text.replace(secret, SECRET);
            }
        }
    }
}

/// The first statement that is another one, or has other values or another answer where both sides
/// are known.
fn differs_at(recorded: &[Told], replayed: &[Told]) -> Option<usize> {
    let differ = |(a, b): (&Told, &Told)| {
        let values = [&a.spoken.values, &b.spoken.values];
        let known = values.iter().all(|values| !values.is_empty());
        let answers = a.answer.as_ref().zip(b.answer.as_ref());
        a.fingerprint != b.fingerprint
            || known && values[0] != values[1]
            || answers.is_some_and(|(a, b)| answers_differ(a, b))
    };
    let both = recorded.len().min(replayed.len());
    let first = recorded.iter().zip(replayed).position(differ);
    first.or_else(|| (recorded.len() != replayed.len()).then_some(both))
}

/// Rows may come in another order. Of what was not kept nothing is known.
fn answers_differ(a: &Answer, b: &Answer) -> bool {
    let sorted = |answer: &Answer| {
        let mut rows = answer.rows.clone();
        rows.sort();
        rows
    };
    let known = [a, b].iter().all(|answer| answer.more == 0);
    a.end != b.end || known && sorted(a) != sorted(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, values: &[&str], rows: Option<&[&str]>) -> Told {
        let row = |value: &&str| vec![Some((*value).to_owned())];
        let spoken = Spoken {
            text: text.to_owned(),
            values: values.iter().map(|it| (*it).to_owned()).collect(),
        };
        let answer = rows.map(|rows| Answer {
            columns: vec!["c".to_owned()],
            rows: rows.iter().map(row).collect(),
            end: format!("SELECT {}", rows.len()),
            ..Answer::default()
        });
        told_as(spoken, answer, fingerprint(text))
    }

    #[test]
    fn the_first_difference_that_is_known_is_found() {
        let begin = || told("BEGIN", &[], None);
        let select = |values, rows| told("SELECT a FROM t WHERE b = $1", values, rows);
        let check = |recorded: Told, replayed: Told, expected| {
            let sides = [vec![begin(), recorded], vec![begin(), replayed]];
            assert_eq!(differs_at(&sides[0], &sides[1]), expected);
        };
        check(select(&[], None), select(&["1"], Some(&["x"])), None);
        check(select(&["1"], None), select(&["2"], None), Some(1));
        check(select(&[], None), told("SELECT 1", &[], None), Some(1));
        let other_order = select(&[], Some(&["y", "x"]));
        check(select(&[], Some(&["x", "y"])), other_order, None);
        check(
            select(&[], Some(&["x"])),
            select(&[], Some(&["y"])),
            Some(1),
        );
        let (one, two) = ([begin()], [begin(), begin()]);
        assert_eq!(differs_at(&one, &two), Some(1));
    }

    #[test]
    fn a_secret_of_the_request_is_in_no_value() {
        let mut told = told(
            "SELECT crypt('hunter2', salt)",
            &["'hunter2'", "7", "'17'"],
            Some(&["hunter2!", "17"]),
        );
        let secrets = ["hunter2".to_owned(), "7".to_owned()];
        hide(&mut told.spoken, &mut told.answer, &secrets);
        assert_eq!(told.spoken.text, "SELECT crypt('redacted', salt)");
        assert_eq!(told.spoken.values, ["'redacted'", "redacted", "'17'"]);
        let rows = told.answer.unwrap().rows;
        assert_eq!(rows[0], [Some("redacted!".to_owned())]);
        assert_eq!(rows[1], [Some("17".to_owned())]);
    }
}
