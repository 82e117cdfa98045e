//! What libpq takes from around a process: variables, `pg_service.conf`, `.pgpass`.

use std::io;
use std::path::{Path, PathBuf};

use super::text::Settings;
use super::{Address, UrlError};

/// What a process is surrounded by. Reading a URL looks at nothing else.
pub struct Environment<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    pub file: &'a dyn Fn(&Path) -> io::Result<TextFile>,
}

/// A file's text, and whether others than its owner may get at it.
#[derive(Clone, Debug, Default)]
pub struct TextFile {
    pub text: String,
    pub exposed: bool,
}

/// The environment of this process.
pub const PROCESS: Environment<'static> = Environment {
    variable: &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
    file: &|path| {
        use std::os::unix::fs::PermissionsExt;
        Ok(TextFile {
            text: std::fs::read_to_string(path)?,
            exposed: std::fs::metadata(path)?.permissions().mode() & 0o077 != 0,
        })
    },
};

/// libpq's parameters and the variables that give them where nothing else does.
const VARIABLES: [(&str, &str); 16] = [
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("port", "PGPORT"),
    ("dbname", "PGDATABASE"),
    ("user", "PGUSER"),
    ("password", "PGPASSWORD"),
    ("passfile", "PGPASSFILE"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("application_name", "PGAPPNAME"),
    ("options", "PGOPTIONS"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("service", "PGSERVICE"),
];

/// Where packages keep the service file of the whole system, unless `PGSYSCONFDIR` says.
const SYSTEM_FOLDERS: [&str; 2] = ["/etc/postgresql-common", "/etc"];

impl Environment<'_> {
    fn get(&self, variable: &str) -> Option<String> {
        (self.variable)(variable)
    }

    fn home(&self, file: &str) -> Option<PathBuf> {
        self.get("HOME").map(|home| Path::new(&home).join(file))
    }

    /// Adds what a service and the variables say about what was not given.
    pub(super) fn complete(&self, settings: &mut Settings) -> Result<(), UrlError> {
        let service = settings.get("service").cloned();
        if let Some(name) = service.or_else(|| self.get("PGSERVICE")) {
            for (name, value) in self.service(&name)? {
                settings.entry(name).or_insert(value);
            }
        }
        // A host that was given is not to be reached at another's address.
        let address_given = settings.contains_key("host");
        for (name, variable) in VARIABLES {
            if let Some(value) = self.get(variable)
                && !(name == "hostaddr" && address_given)
            {
                settings.entry(name.to_owned()).or_insert(value);
            }
        }
        Ok(())
    }

    fn service(&self, name: &str) -> Result<Settings, UrlError> {
        let own = match self.get("PGSERVICEFILE") {
            Some(path) => Some(PathBuf::from(path)),
            None => self.home(".pg_service.conf"),
        };
        let system = match self.get("PGSYSCONFDIR") {
            Some(folder) => vec![folder],
            None => SYSTEM_FOLDERS.map(str::to_owned).to_vec(),
        };
        let system = (system.iter()).map(|folder| Path::new(folder).join("pg_service.conf"));
        own.into_iter()
            .chain(system)
            .filter_map(|path| (self.file)(&path).ok())
            .find_map(|file| section(&file.text, name))
            .ok_or_else(|| UrlError::Service(name.to_owned()))
    }

    /// The root certificate that libpq verifies with when none is named, if it is there.
    pub(super) fn root_certificate(&self) -> Option<PathBuf> {
        let path = self.home(".postgresql/root.crt")?;
        (self.file)(&path).is_ok().then_some(path)
    }

    pub(super) fn passfile(&self, given: Option<&str>) -> PassFile {
        let path = match given {
            Some(path) => Some(PathBuf::from(path)),
            None => self.home(".pgpass"),
        };
        let Some((path, file)) = path.and_then(|path| {
            let file = (self.file)(&path).ok()?;
            Some((path, file))
        }) else {
            return PassFile::default();
        };
        PassFile {
            entries: match file.exposed {
                true => Vec::new(),
                false => file.text.lines().filter_map(entry).collect(),
            },
            exposed: file.exposed.then_some(path),
        }
    }
}

/// `[name]` and the lines `parameter=value` below it.
fn section(text: &str, name: &str) -> Option<Settings> {
    let lines = text.lines().map(str::trim);
    let header = format!("[{name}]");
    let mut own = lines.skip_while(|line| *line != header);
    own.next()?;
    let own = own.take_while(|line| !line.starts_with('['));
    let pairs = own
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='));
    Some(
        pairs
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect(),
    )
}

/// Passwords by where they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PassFile {
    /// `host:port:database:user:password`; `*` is anything.
    entries: Vec<[String; 5]>,
    /// The file was not used: others can read it.
    pub exposed: Option<PathBuf>,
}

impl PassFile {
    pub fn password(&self, address: &Address, database: &str, user: &str) -> Option<String> {
        let (host, port) = address.host_and_port();
        let host = match address {
            Address::Unix(_) if host == super::SOCKET_FOLDER => "localhost".to_owned(),
            _ => host,
        };
        let wanted = [host.as_str(), &port, database, user];
        let fits = |entry: &&[String; 5]| {
            let pairs = entry.iter().zip(wanted);
            pairs
                .into_iter()
                .all(|(has, wants)| has == "*" || has == wants)
        };
        self.entries.iter().find(fits).map(|entry| entry[4].clone())
    }
}

/// Five fields; `\:` and `\\` stand for themselves in them.
fn entry(line: &str) -> Option<[String; 5]> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = [const { String::new() }; 5];
    let mut at = 0;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => fields[at].extend(characters.next()),
            ':' if at < 4 => at += 1,
            _ => fields[at].push(character),
        }
    }
    (at == 4).then_some(fields)
}
