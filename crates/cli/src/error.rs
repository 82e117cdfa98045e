//! What a user sees when something cannot be done: what, why, and what to type next.

use std::fmt;
use std::process::ExitCode;

/// How a run of `hindcast` ended. Stable: scripts rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; for a replay: faithful.
    Success,
    /// A replay diverged, a retroaction stopped before its end, or a recording has gaps that were
    /// to be treated as failures.
    Diverged,
    /// A check found that something is missing.
    Missing,
    /// The arguments do not fit together. The argument parser uses the same code.
    Usage,
    /// It could not be done: the message says why.
    Failed,
    /// What a program that was executed returned. The two that follow are beside what programs
    /// return, as those of `timeout` and `env`.
    Program(u8),
    /// A program in replay did not do what was recorded.
    ExecutionDiverged,
    /// A program was not executed.
    NotExecuted,
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Diverged | Exit::Missing => 1,
            Exit::Usage => 2,
            Exit::Failed => 3,
            Exit::Program(code) => code,
            Exit::ExecutionDiverged => 124,
            Exit::NotExecuted => 125,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// An error as it is printed: a line, its causes, a hint.
#[derive(Debug)]
pub struct CliError {
    pub exit: Exit,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
}

impl CliError {
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Failed,
            message: message.into(),
            causes: Vec::new(),
            hint: None,
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            ..Self::failed(message)
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Which of several databases it is about.
    pub fn of(mut self, database: &str) -> Self {
        self.message = format!("database {database}: {}", self.message);
        self
    }

    /// Lines that belong to the causes, indented.
    pub fn detail(mut self, what: &str, lines: &[String]) -> Self {
        if !lines.is_empty() {
            self.causes
                .push(format!("{what}:\n  {}", lines.join("\n  ")));
        }
        self
    }

    /// `message`, with `error` and everything behind it as causes.
    pub fn because(message: impl Into<String>, error: &dyn std::error::Error) -> Self {
        let mut failed = Self::failed(message);
        let mut cause = Some(error);
        while let Some(error) = cause {
            let text = error.to_string();
            // Some libraries repeat the cause in their own message.
            if !failed
                .causes
                .last()
                .is_some_and(|last| last.contains(&text))
            {
                failed.causes.push(text);
            }
            cause = error.source();
        }
        failed
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error: {}", self.message)?;
        for cause in &self.causes {
            write!(f, "\nCause: {cause}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nHint: {hint}")?;
        }
        Ok(())
    }
}
