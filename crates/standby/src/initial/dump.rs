//! The primary's schema: `pg_dump` writes it, the backup executes it.
//!
//! In two parts, as `pg_restore` does it: what rows need before they can be copied (types,
//! functions, tables), and what is cheaper or only possible after them (indexes, constraints,
//! triggers). Owners, privileges, tablespaces, publications and subscriptions stay behind: the
//! backup may not have what they name.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hindcast_cluster::{Binaries, ClusterError};
use hindcast_pg::{Connection, DatabaseUrl, Error};
use hindcast_wire::sql::{Dialect, Script};

use super::error::InitialError;
use crate::status::Control;

/// How long `pg_dump` may wait for tables that somebody has locked.
const LOCK_PATIENCE: &str = "--lock-wait-timeout=60s";

/// A schema as two lists of statements.
#[derive(Clone, Debug, Default)]
pub(super) struct Schema {
    pub before_data: Vec<String>,
    pub after_data: Vec<String>,
}

impl Schema {
    /// As of the snapshot, so that it fits the rows. Of all there is, or of these tables only, each
    /// as SQL writes it.
    pub fn dump(
        primary: &DatabaseUrl,
        server_version: u32,
        snapshot: &str,
        only: &[String],
        control: &Control,
    ) -> Result<Self, InitialError> {
        let program = find(server_version / 10_000)?;
        let section = |name: &str| {
            let text = dump(&program, primary, snapshot, only, name, control)?;
            Ok::<_, InitialError>(statements(&text))
        };
        Ok(Self {
            before_data: section("pre-data")?,
            after_data: section("post-data")?,
        })
    }
}

/// A `pg_dump` that understands the primary: as new as that, or newer.
fn find(needed: u32) -> Result<PathBuf, InitialError> {
    let server = Binaries::find_version(needed).or_else(|_| Binaries::find());
    let (program, error) = match server {
        Ok(binaries) if binaries.program("pg_dump").is_file() => {
            (binaries.program("pg_dump"), None)
        }
        // The client programs may be there without a server.
        Ok(binaries) => {
            let looked = vec![binaries.folder().to_owned()];
            (
                PathBuf::from("pg_dump"),
                Some(ClusterError::NotFound { looked }),
            )
        }
        Err(error) => (PathBuf::from("pg_dump"), Some(error)),
    };
    let output = Command::new(&program).arg("--version").output();
    let found = output
        .ok()
        .and_then(|output| version(&String::from_utf8_lossy(&output.stdout)));
    match (found, error) {
        (Some(found), _) if found >= needed => Ok(program),
        (Some(found), _) => Err(InitialError::OldPgDump {
            program,
            found,
            needed,
        }),
        (None, error) => Err(InitialError::NoPgDump(error.unwrap_or(
            ClusterError::NotFound {
                looked: program.parent().map(PathBuf::from).into_iter().collect(),
            },
        ))),
    }
}

/// `pg_dump (PostgreSQL) 15.7 (Debian 15.7-0+deb12u1)`
fn version(text: &str) -> Option<u32> {
    let word = text.split_whitespace().nth(2)?;
    let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn dump(
    program: &PathBuf,
    primary: &DatabaseUrl,
    snapshot: &str,
    only: &[String],
    section: &str,
    control: &Control,
) -> Result<String, InitialError> {
    let mut command = Command::new(program);
    command
        .args([
            "--schema-only",
            "--no-owner",
            "--no-privileges",
            "--no-tablespaces",
        ])
        .args([
            "--no-publications",
            "--no-subscriptions",
            "--no-security-labels",
        ])
        .args([
            "--encoding=UTF8",
            "--no-password",
            "--exclude-schema=hindcast",
            LOCK_PATIENCE,
        ])
        .arg(format!("--section={section}"))
        .arg(format!("--snapshot={snapshot}"))
        .args(only.iter().map(|table| format!("--table={table}")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    primary.hand_to(&mut command);
    command
        .env("PGAPPNAME", "hindcast standby")
        .env("LC_MESSAGES", "C")
        .env_remove("LC_ALL");
    let failed = |source| InitialError::RunPgDump {
        program: program.clone(),
        source,
    };
    let mut child = command.spawn().map_err(failed)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (status, out, err) = std::thread::scope(|scope| {
        let out = scope.spawn(|| read_all(out));
        let err = scope.spawn(|| read_all(err));
        let status = wait(&mut child, control);
        let text = |thread: std::thread::ScopedJoinHandle<'_, std::io::Result<Vec<u8>>>| {
            thread.join().expect("reading a pipe does not panic")
        };
        (status, text(out), text(err))
    });
    let Some(status) = status.map_err(failed)? else {
        return Err(InitialError::Stopped);
    };
    if !status.success() {
        let output = String::from_utf8_lossy(&err.map_err(failed)?)
            .trim()
            .to_owned();
        return Err(InitialError::PgDump { output });
    }
    Ok(String::from_utf8_lossy(&out.map_err(failed)?).into_owned())
}

fn read_all(pipe: Option<impl Read>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// `None` when it was ended because everything is to stop.
fn wait(child: &mut Child, control: &Control) -> std::io::Result<Option<std::process::ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if control.is_stopping() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The statements of a script that is meant for `psql`.
fn statements(script: &str) -> Vec<String> {
    let script = without_restriction(script);
    let bytes = script.as_bytes();
    Script::of(bytes, Dialect::default())
        .statements
        .iter()
        .map(|statement| String::from_utf8_lossy(statement.text(bytes)).into_owned())
        .collect()
}

/// Newer versions of `pg_dump` put `\restrict KEY` in front and `\unrestrict KEY` behind: orders to
/// `psql`. The key is random, so that nothing else in the script can be such a line.
fn without_restriction(script: &str) -> String {
    let Some(key) = script
        .lines()
        .find_map(|line| line.strip_prefix("\\restrict "))
    else {
        return script.to_owned();
    };
    let orders = [format!("\\restrict {key}"), format!("\\unrestrict {key}")];
    script
        .split_inclusive('\n')
        .filter(|line| !orders.iter().any(|order| line.trim_end() == order))
        .collect()
}

/// Executes statements in the transaction that is open. Says what was left out.
pub(super) fn execute(
    backup: &mut Connection,
    statements: &[String],
) -> Result<Vec<String>, InitialError> {
    let mut left_out = Vec::new();
    for statement in statements {
        let fallback = Fallback::of(statement);
        let failed = |source| InitialError::Schema {
            statement: shortened(statement),
            source,
        };
        if fallback == Fallback::None {
            backup.execute(statement).map_err(failed)?;
            continue;
        }
        let tried = attempt(backup, statement).map_err(failed)?;
        let Err(error) = tried else { continue };
        match (fallback, error.code()) {
            // A setting that the primary's version has and the backup's has not.
            (Fallback::Setting, Some("42704")) => {}
            (Fallback::Comment, Some("42501")) => {}
            // It refers to a table that is not replicated, and empty here.
            (Fallback::ForeignKey, Some("23503")) => {
                let unchecked = format!("{statement} NOT VALID");
                let message = match attempt(backup, &unchecked).map_err(failed)? {
                    Ok(()) => "is not checked for the rows that are there",
                    Err(_) => "is left out",
                };
                left_out.push(format!(
                    "a foreign key {message}, since it refers to rows that are not replicated: {}",
                    shortened(statement)
                ));
            }
            _ => return Err(failed(error)),
        }
    }
    Ok(left_out)
}

/// What may fail without harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fallback {
    None,
    Setting,
    Comment,
    ForeignKey,
}

impl Fallback {
    fn of(statement: &str) -> Self {
        if statement.starts_with("SET ") {
            Self::Setting
        } else if statement.starts_with("COMMENT ON ") {
            Self::Comment
        } else if statement.starts_with("ALTER TABLE ") && statement.contains(" FOREIGN KEY ") {
            Self::ForeignKey
        } else {
            Self::None
        }
    }
}

/// Outside: the transaction is lost. Inside: the statement failed, and the transaction is as it was
/// before.
pub(super) fn attempt(
    backup: &mut Connection,
    statement: &str,
) -> Result<Result<(), Error>, Error> {
    backup.execute("SAVEPOINT hindcast")?;
    let tried = backup.execute(statement).map(drop);
    let end = match &tried {
        Ok(()) => "RELEASE SAVEPOINT hindcast",
        Err(_) => "ROLLBACK TO SAVEPOINT hindcast; RELEASE SAVEPOINT hindcast",
    };
    match backup.execute(end) {
        Ok(_) => Ok(tried),
        Err(error) => Err(tried.err().unwrap_or(error)),
    }
}

/// The beginning of a statement, in one line.
fn shortened(statement: &str) -> String {
    const SHOWN: usize = 160;
    let line = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_for_psql_is_its_statements() {
        let script = "--\n-- a dump; of something\n--\n\n\\restrict a1B2\n\nSET x = 0;\nCREATE FUNCTION f() RETURNS text\n    AS $_$\n\\restrict b;\nSELECT ';'$_$;\n\
            CREATE FUNCTION g(i int) RETURNS int BEGIN ATOMIC SELECT i; SELECT i + 1; END;\n\n\\unrestrict a1B2\n";
        assert_eq!(
            statements(script),
            [
                "SET x = 0",
                "CREATE FUNCTION f() RETURNS text\n    AS $_$\n\\restrict b;\nSELECT ';'$_$",
                "CREATE FUNCTION g(i int) RETURNS int BEGIN ATOMIC SELECT i; SELECT i + 1; END",
            ]
        );
        assert_eq!(statements("-- nothing\n"), [""; 0]);
    }

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        assert_eq!(
            version("pg_dump (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"),
            Some(15)
        );
        assert_eq!(version("pg_dump (PostgreSQL) 19beta1\n"), Some(19));
        assert_eq!(version(""), None);
    }

    #[test]
    fn programs_that_are_too_old_are_not_used() {
        match find(999) {
            Err(InitialError::OldPgDump { found, needed, .. }) => {
                assert!((14..999).contains(&found) && needed == 999);
            }
            other => panic!("{other:?}"),
        }
        assert!(find(14).is_ok());
    }

    #[test]
    fn long_statements_are_shown_in_one_line() {
        assert_eq!(
            shortened("CREATE TABLE t (\n    k int\n)"),
            "CREATE TABLE t ( k int )"
        );
        assert_eq!(shortened(&"é".repeat(200)).chars().count(), 161);
    }
}
