//! Statements with parameters, sent without waiting for one another's answers.

use bytes::Bytes;
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;

use super::Connection;
use crate::error::{Error, ServerError};
use crate::rows::{Rows, affected};

/// A parameter's value, in the form that it is sent in.
#[derive(Clone, Copy, Debug)]
pub enum Parameter<'a> {
    Null,
    Text(&'a [u8]),
    Binary(&'a [u8]),
}

/// What one run of a pipeline did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub affected: u64,
    pub rows: Rows,
}

/// A batch of the extended protocol. Nothing is known of its success before [`Pipeline::finish`];
/// the first error skips what follows it. Without a `BEGIN` in it the whole is one implicit
/// transaction.
#[must_use = "a pipeline that is not finished was never run"]
pub struct Pipeline<'a> {
    connection: &'a mut Connection,
    runs: usize,
    failure: Option<Error>,
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(connection: &'a mut Connection) -> Self {
        Self {
            connection,
            runs: 0,
            failure: None,
        }
    }

    /// Makes a named statement, for this and later pipelines. Types that are 0 are left to the
    /// server.
    pub fn prepare(&mut self, name: &str, sql: &str, types: &[u32]) {
        let written = frontend::parse(name, sql, types.iter().copied(), self.connection.output());
        self.note(written.map_err(Error::from));
    }

    /// Forgets a named statement.
    pub fn close(&mut self, name: &str) {
        let written = frontend::close(b'S', name, self.connection.output());
        self.note(written.map_err(Error::from));
    }

    pub fn run(&mut self, statement: &str, parameters: &[Parameter<'_>]) {
        self.runs += 1;
        let formats = parameters
            .iter()
            .map(|parameter| i16::from(matches!(parameter, Parameter::Binary(_))));
        let bound = frontend::bind(
            "",
            statement,
            formats,
            parameters,
            |parameter, out| match parameter {
                Parameter::Null => Ok(IsNull::Yes),
                Parameter::Text(bytes) | Parameter::Binary(bytes) => {
                    out.extend_from_slice(bytes);
                    Ok(IsNull::No)
                }
            },
            std::iter::empty::<i16>(),
            self.connection.output(),
        );
        self.note(bound.map_err(|error| {
            let reason = match error {
                frontend::BindError::Conversion(error) => error.to_string(),
                frontend::BindError::Serialization(error) => error.to_string(),
            };
            Error::Protocol(format!(
                "the parameters of a statement do not fit into a message: {reason}"
            ))
        }));
        let executed = frontend::execute("", 0, self.connection.output());
        self.note(executed.map_err(Error::from));
        let sent = self.connection.send_if_much();
        self.note(sent);
    }

    /// Runs a statement that has no parameters and that is not worth a name.
    pub fn run_sql(&mut self, sql: &str) {
        self.prepare("", sql, &[]);
        self.run("", &[]);
    }

    /// Waits for the answers: one outcome for each run.
    pub fn finish(self) -> Result<Vec<Outcome>, Error> {
        let connection = self.connection;
        if let Some(error) = self.failure {
            // Part of a batch may be on its way: the session cannot be used any more.
            return Err(connection.fail(error));
        }
        frontend::sync(connection.output());
        connection.send()?;
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(self.runs);
        let mut rows = Rows::default();
        let mut failure = None;
        loop {
            let (tag, body) = connection.message()?;
            match tag {
                b'D' => rows.push(Bytes::copy_from_slice(connection.bytes(body))),
                b'C' => outcomes.push(Outcome {
                    affected: affected(connection.bytes(body))?,
                    rows: std::mem::take(&mut rows),
                }),
                b'I' => outcomes.push(Outcome::default()),
                b'E' => {
                    let mut error = ServerError::parse(connection.bytes(body))?;
                    error.run = Some(outcomes.len());
                    failure = Some(error);
                }
                b'Z' => break,
                b'1' | b'2' | b'3' | b'n' | b't' | b'T' => {}
                other => return Err(connection.unexpected(other)),
            }
        }
        match failure {
            Some(error) => Err(Error::Server(Box::new(error))),
            None => Ok(outcomes),
        }
    }

    fn note(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }
}
