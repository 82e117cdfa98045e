//! Building with PGXS.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::source;

/// The extension is in the server's folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// `15`
    pub major: u32,
    pub library: PathBuf,
}

/// Why the extension could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("cannot run {}", pg_config.display())]
    PgConfig {
        pg_config: PathBuf,
        source: io::Error,
    },
    #[error("{} says {said:?} and not what server it belongs to", pg_config.display())]
    Unknown { pg_config: PathBuf, said: String },
    #[error("the extension is for Postgres 13 to 18, and this is {major}")]
    Version { major: u32 },
    #[error("the headers of Postgres {major} are not installed: there is no {}", missing.display())]
    Headers { major: u32, missing: PathBuf },
    #[error("cannot run {program}")]
    Program {
        program: &'static str,
        source: io::Error,
    },
    #[error("cannot write the source into a temporary folder")]
    Folder(#[source] io::Error),
    #[error("the extension cannot be built:\n{output}")]
    Build { output: String },
    #[error("the extension cannot be copied into the server's folders:\n{output}")]
    Copy { output: String },
}

impl InstallError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::PgConfig { .. } | Self::Unknown { .. } => {
                "name the pg_config of the server, e.g. --pg-config /usr/lib/postgresql/15/bin/pg_config"
                    .to_owned()
            }
            Self::Version { .. } => {
                "name another server's pg_config with --pg-config".to_owned()
            }
            Self::Headers { major, .. } => format!(
                "Debian, Ubuntu: apt install postgresql-server-dev-{major}; packages of postgresql.org for Fedora, RHEL: \
                 dnf install postgresql{major}-devel; Fedora's own: dnf install postgresql-server-devel"
            ),
            Self::Program { .. } | Self::Build { .. } => {
                "a C compiler and make are needed: Debian, Ubuntu: apt install build-essential; Fedora, RHEL: dnf install gcc make"
                    .to_owned()
            }
            Self::Folder(_) => "TMPDIR names another folder".to_owned(),
            Self::Copy { .. } => {
                "the folders belong to root: run `sudo hindcast extension install` with the same arguments".to_owned()
            }
        }
    }
}

/// Builds the extension for the server of this `pg_config`, and copies it into the server's
/// folders. A library that a running server has loaded stays until that server is restarted.
pub fn install(pg_config: &Path) -> Result<Installed, InstallError> {
    let said = ask(pg_config, "--version")?;
    let major = major(&said).ok_or_else(|| InstallError::Unknown {
        pg_config: pg_config.to_owned(),
        said: said.clone(),
    })?;
    if !(13..=18).contains(&major) {
        return Err(InstallError::Version { major });
    }
    let headers = Path::new(&ask(pg_config, "--includedir-server")?).join("postgres.h");
    let makefile = PathBuf::from(ask(pg_config, "--pgxs")?);
    for missing in [headers, makefile] {
        if !missing.is_file() {
            return Err(InstallError::Headers { major, missing });
        }
    }
    let folder = hindcast_private::temporary_folder(std::env::temp_dir(), "hindcast-extension-")
        .map_err(InstallError::Folder)?;
    source::write(folder.path()).map_err(InstallError::Folder)?;
    make(folder.path(), pg_config, "all", |output| {
        InstallError::Build { output }
    })?;
    make(folder.path(), pg_config, "install", |output| {
        InstallError::Copy { output }
    })?;
    let library = Path::new(&ask(pg_config, "--pkglibdir")?).join("hindcast.so");
    Ok(Installed { major, library })
}

fn ask(pg_config: &Path, question: &str) -> Result<String, InstallError> {
    let output = Command::new(pg_config)
        .arg(question)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| InstallError::PgConfig {
            pg_config: pg_config.to_owned(),
            source,
        })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// `PostgreSQL 15.18 (Debian 15.18-0+deb12u1)`, `PostgreSQL 18beta1`
fn major(version: &str) -> Option<u32> {
    let number = version.strip_prefix("PostgreSQL ")?;
    let end = number.find(|c: char| !c.is_ascii_digit());
    number[..end.unwrap_or(number.len())].parse().ok()
}

fn make(
    folder: &Path,
    pg_config: &Path,
    target: &str,
    failed: impl Fn(String) -> InstallError,
) -> Result<(), InstallError> {
    let output = Command::new("make")
        .arg("--silent")
        .arg("--directory")
        .arg(folder)
        .arg(format!("PG_CONFIG={}", pg_config.display()))
        // Bitcode for the just-in-time compiler would need the clang that the server was built
        // with.
        .arg("with_llvm=no")
        .arg(target)
        .env_remove("MAKEFLAGS")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| InstallError::Program {
            program: "make",
            source,
        })?;
    if output.status.success() {
        return Ok(());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    Err(failed(text.trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(major("PostgreSQL 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major("PostgreSQL 18beta1"), Some(18));
        assert_eq!(major("PostgreSQL 18"), Some(18));
        assert_eq!(major("MariaDB 11"), None);
        assert_eq!(major(""), None);
    }
}
