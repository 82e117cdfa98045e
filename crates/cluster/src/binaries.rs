//! Where the programs of a Postgres server are, and as whom they may run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ClusterError;

/// The programs of one Postgres installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
    major: u32,
}

impl Binaries {
    /// Finds an installation: `HINDCAST_PG_BIN` if it is set, then `pg_config --bindir`, then the
    /// newest of the folders that distributions use, then `PATH`.
    ///
    /// A folder counts only if it holds `initdb` and `postgres`: the client packages bring a
    /// `pg_config` or a `psql` without a server beside it.
    pub fn find() -> Result<Self, ClusterError> {
        if let Some(folder) =
            std::env::var_os("HINDCAST_PG_BIN").filter(|folder| !folder.is_empty())
        {
            return Self::in_folder(Path::new(&folder));
        }
        let mut looked = Vec::new();
        for folder in candidates(None) {
            match Self::in_folder(&folder) {
                Ok(binaries) => return Ok(binaries),
                Err(_) => looked.push(folder),
            }
        }
        Err(ClusterError::NotFound { looked })
    }

    /// Finds an installation of this major version: data folders can only be run by the version
    /// that wrote them.
    pub fn find_version(major: u32) -> Result<Self, ClusterError> {
        let preferred = Self::find();
        if let Ok(binaries) = &preferred
            && binaries.major == major
        {
            return preferred;
        }
        let mut looked = Vec::new();
        for folder in candidates(Some(major)) {
            match Self::in_folder(&folder) {
                Ok(binaries) if binaries.major == major => return Ok(binaries),
                _ => looked.push(folder),
            }
        }
        Err(ClusterError::VersionNotFound { major, looked })
    }

    /// The installation whose programs are in this folder.
    pub fn in_folder(folder: &Path) -> Result<Self, ClusterError> {
        let not_found = || ClusterError::NotFound {
            looked: vec![folder.to_owned()],
        };
        let folder = folder.canonicalize().map_err(|_| not_found())?;
        if !folder.join("initdb").is_file() {
            return Err(not_found());
        }
        let version = output_of(Command::new(folder.join("postgres")).arg("--version"))
            .ok_or_else(not_found)?;
        // `postgres (PostgreSQL) 15.7 (Debian 15.7-0+deb12u1)`, `… 18beta1`
        let major = version
            .split_whitespace()
            .nth(2)
            .map(|word| {
                word.chars()
                    .take_while(char::is_ascii_digit)
                    .collect::<String>()
            })
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(not_found)?;
        Ok(Self { folder, major })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// `15` for 15.7.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The path of `initdb`, `pg_basebackup`, `psql` …
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn candidates(major: Option<u32>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(folder) = output_of(Command::new("pg_config").arg("--bindir")) {
        folders.push(PathBuf::from(folder.trim()));
    }
    // Debian and Ubuntu; Fedora, RHEL and SUSE packages from postgresql.org; Homebrew; Alpine.
    let mut distribution = Vec::new();
    for (parent, prefix) in [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/usr/lib", "postgresql"),
        ("/opt/homebrew/opt", "postgresql@"),
        ("/usr/local/opt", "postgresql@"),
        ("/usr/libexec", "postgresql"),
    ] {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        distribution.extend(entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version: u32 = name.strip_prefix(prefix)?.parse().ok()?;
            Some((version, entry.path()))
        }));
    }
    distribution.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    for (version, path) in distribution {
        if major.is_none_or(|major| major == version) {
            folders.push(path.join("bin"));
            folders.push(path);
        }
    }
    folders.push(PathBuf::from("/usr/local/pgsql/bin"));
    folders.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| folder.join("postgres").is_file() && seen.insert(folder.clone()));
    folders
}

/// Standard output of a program that succeeded. Runs in `/`, since our own working folder may be
/// gone or closed to it.
fn output_of(command: &mut Command) -> Option<String> {
    let output = command
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// As whom the server runs. Postgres refuses to run as root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunAs {
    Ourselves,
    /// We are root and step down to this user.
    User {
        name: String,
        uid: u32,
        gid: u32,
    },
}

impl RunAs {
    /// Ourselves, or when we are root the user `postgres` if there is one, else `nobody`.
    pub fn unprivileged() -> Result<Self, ClusterError> {
        if id(&["-u"]) != Some(0) {
            return Ok(Self::Ourselves);
        }
        for name in ["postgres", "nobody"] {
            if let (Some(uid), Some(gid)) = (id(&["-u", name]), id(&["-g", name])) {
                return Ok(Self::User {
                    name: name.to_owned(),
                    uid,
                    gid,
                });
            }
        }
        Err(ClusterError::NoUnprivilegedUser)
    }

    /// Whoever owns this data folder: Postgres insists on it. Falls back to
    /// [`RunAs::unprivileged`].
    pub fn owner_of(folder: &Path) -> Result<Self, ClusterError> {
        use std::os::unix::fs::MetadataExt;
        let unprivileged = Self::unprivileged()?;
        if unprivileged == Self::Ourselves {
            return Ok(unprivileged);
        }
        match std::fs::metadata(folder) {
            Ok(metadata) if metadata.uid() != 0 => Ok(Self::User {
                name: format!("user {}", metadata.uid()),
                uid: metadata.uid(),
                gid: metadata.gid(),
            }),
            _ => Ok(unprivileged),
        }
    }

    /// A command that will run as this user, in `folder`, with messages in English and none of the
    /// `PG…` settings of our own environment.
    pub fn command(&self, program: impl Into<OsString>, folder: &Path) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(program.into());
        command
            .current_dir(folder)
            .env("LC_MESSAGES", "C")
            .env_remove("LC_ALL");
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PG")) {
                command.env_remove(name);
            }
        }
        if let Self::User { uid, gid, .. } = self {
            // Setting a uid as root also drops our supplementary groups.
            command.uid(*uid).gid(*gid).env("HOME", folder);
        }
        command
    }

    /// Makes this user the owner of a file or folder that we created.
    pub fn own(&self, path: &Path) -> Result<(), ClusterError> {
        match self {
            Self::Ourselves => Ok(()),
            Self::User { uid, gid, .. } => std::os::unix::fs::lchown(path, Some(*uid), Some(*gid))
                .map_err(|source| ClusterError::Folder {
                    path: path.to_owned(),
                    source,
                }),
        }
    }

    /// Makes a folder and those that lead to it. The new ones belong to this user, who could not
    /// enter them otherwise.
    pub fn make_folders(&self, path: &Path) -> Result<(), ClusterError> {
        let made = hindcast_private::folders(path).map_err(|source| ClusterError::Folder {
            path: path.to_owned(),
            source,
        })?;
        made.iter().try_for_each(|folder| self.own(folder))
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Ourselves => "ourselves",
            Self::User { name, .. } => name,
        }
    }
}

fn id(arguments: &[&str]) -> Option<u32> {
    output_of(Command::new("id").args(arguments))?
        .trim()
        .parse()
        .ok()
}
