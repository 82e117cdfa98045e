//! Whether the client's transactions may write, as the client has it.

use hindcast_wire::sql::{Kind, Statement};

/// Sessions of a recorded service are read-only by default, which is ours: a service that asks
/// whether it may write is told what it has chosen itself.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// What its transactions begin with.
    reads_only: bool,
    /// What the open one has chosen.
    transaction: Option<bool>,
}

impl Access {
    /// The client has this run.
    pub fn note(&mut self, statement: &Statement) {
        match statement.kind {
            Kind::Begin { read_only, .. } => self.transaction = read_only,
            Kind::SetTransaction {
                read_only: Some(read_only),
                ..
            } => self.transaction = Some(read_only),
            Kind::Commit { chain: false } | Kind::Rollback { chain: false } => {
                self.transaction = None;
            }
            Kind::Set => self.reads_only = chosen(statement).unwrap_or(self.reads_only),
            _ => {}
        }
    }

    /// What a statement that asks for it is answered.
    pub fn shown(&self, statement: &Statement) -> Option<&'static [u8]> {
        if statement.kind != Kind::Show {
            return None;
        }
        let reads_only = match words(statement).as_slice() {
            [_, name] if name == "default_transaction_read_only" => self.reads_only,
            [_, name] if name == "transaction_read_only" => {
                self.transaction.unwrap_or(self.reads_only)
            }
            _ => return None,
        };
        Some(if reads_only { b"on" } else { b"off" })
    }
}

/// What a `SET` says of the transactions that begin after it, if it does.
fn chosen(statement: &Statement) -> Option<bool> {
    let words = words(statement);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words.contains(&"characteristics") {
        let read = words.iter().position(|&word| word == "read")?;
        return match *words.get(read + 1)? {
            "only" => Some(true),
            "write" => Some(false),
            _ => None,
        };
    }
    let name = "default_transaction_read_only";
    let named = words.iter().position(|&word| word == name)?;
    let value = words[named + 1..].iter().find(|&&word| word != "to");
    Some(value.is_some_and(|value| matches!(*value, "on" | "true" | "yes" | "1")))
}

fn words(statement: &Statement) -> Vec<String> {
    let text = statement.fingerprint.text.to_ascii_lowercase();
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}
