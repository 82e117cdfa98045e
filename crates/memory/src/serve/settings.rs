//! What `SET` and `SHOW` know.
//!
//! Clients set things as they connect that mean nothing to reads of one snapshot: those are
//! remembered and shown, no more. What would change an answer is either done or refused.

use std::collections::BTreeMap;
use std::time::Duration;

use hindcast_pg::Lsn;
use hindcast_store::AsOf;

use crate::encoding::parse_timestamp;

use super::sql::SqlError;

/// Names as Postgres writes them, what they are at first, and whether clients are told.
const KNOWN: [(&str, &str, bool); 31] = [
    ("server_version", "", true),
    ("server_encoding", "UTF8", true),
    ("client_encoding", "UTF8", true),
    ("DateStyle", "ISO, MDY", true),
    ("TimeZone", "UTC", true),
    ("IntervalStyle", "postgres", true),
    ("integer_datetimes", "on", true),
    ("standard_conforming_strings", "on", true),
    ("is_superuser", "off", true),
    ("session_authorization", "", true),
    ("application_name", "", true),
    ("in_hot_standby", "on", true),
    ("default_transaction_read_only", "on", true),
    ("transaction_read_only", "on", false),
    ("transaction_isolation", "repeatable read", false),
    ("transaction_deferrable", "off", false),
    ("default_transaction_isolation", "repeatable read", false),
    ("default_transaction_deferrable", "off", false),
    ("bytea_output", "hex", false),
    ("extra_float_digits", "1", false),
    ("search_path", "\"$user\", public", false),
    ("statement_timeout", "0", false),
    ("lock_timeout", "0", false),
    ("idle_in_transaction_session_timeout", "0", false),
    ("idle_session_timeout", "0", false),
    ("client_min_messages", "notice", false),
    ("row_security", "on", false),
    ("synchronize_seqscans", "on", false),
    ("jit", "off", false),
    ("max_identifier_length", "63", false),
    ("hindcast.as_of", "", false),
];

/// What nobody can set.
const FIXED: [&str; 6] = [
    "server_version",
    "server_encoding",
    "integer_datetimes",
    "is_superuser",
    "in_hot_standby",
    "max_identifier_length",
];

#[derive(Clone, Debug)]
pub struct Settings {
    /// As they are after `RESET`.
    initial: [String; KNOWN.len()],
    current: [String; KNOWN.len()],
    /// Names with a dot, which mean something to the client alone.
    custom: BTreeMap<String, String>,
}

fn place(name: &str) -> Option<usize> {
    let name = match name.to_ascii_lowercase().as_str() {
        "session_user" => "session_authorization".to_owned(),
        other => other.to_owned(),
    };
    KNOWN
        .iter()
        .position(|(known, _, _)| known.eq_ignore_ascii_case(&name))
}

fn at(name: &str) -> usize {
    place(name).unwrap_or_else(|| panic!("{name} is in the list"))
}

impl Settings {
    pub fn new(server_version: &str, user: &str) -> Self {
        let mut initial = KNOWN.map(|(_, value, _)| value.to_owned());
        initial[at("server_version")] = server_version.to_owned();
        initial[at("session_authorization")] = user.to_owned();
        Self {
            current: initial.clone(),
            initial,
            custom: BTreeMap::new(),
        }
    }

    /// What is set so far is what `RESET` goes back to.
    pub fn started(&mut self) {
        self.initial = self.current.clone();
    }

    fn get(&self, name: &str) -> &str {
        &self.current[at(name)]
    }

    /// All that have a name here.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        KNOWN
            .iter()
            .zip(&self.current)
            .map(|((name, _, _), value)| (*name, value.as_str()))
    }

    /// A client's own.
    pub fn custom(&self, name: &str) -> Option<&str> {
        self.custom
            .get(&name.to_ascii_lowercase())
            .map(String::as_str)
    }

    /// Those that clients are told of, as they begin and as they change.
    pub fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        KNOWN
            .iter()
            .zip(&self.current)
            .filter(|((_, _, reported), _)| *reported)
            .map(|((name, _, _), value)| (*name, value.as_str()))
    }

    /// Sets one; says what the client has to be warned of.
    pub fn set(&mut self, name: &str, value: &str) -> Result<Option<String>, SqlError> {
        let lower = name.to_ascii_lowercase();
        if matches!(
            lower.as_str(),
            "transaction" | "session characteristics" | "transaction snapshot" | "names"
        ) || lower.is_empty()
        {
            return Ok(None);
        }
        let Some(place) = place(&lower) else {
            return self.set_custom(lower, value);
        };
        if FIXED.contains(&lower.as_str()) {
            return Err(SqlError::new(
                "55P02",
                format!("parameter \"{name}\" cannot be changed"),
            ));
        }
        let one_of = |allowed: &[&str]| one_of(name, value, allowed);
        match lower.as_str() {
            "client_encoding" => {
                self.current[place] = encoding(value)?.to_owned();
                return Ok(None);
            }
            "datestyle" => {
                let first = value.split(',').next().unwrap_or_default().trim();
                if !first.eq_ignore_ascii_case("iso") {
                    return Err(SqlError::new(
                        "0A000",
                        format!("dates are given in the style ISO here, not {value}"),
                    ));
                }
                return Ok(None);
            }
            "timezone" => {
                // Clients set theirs as they connect. The values say which zone they are in, so
                // they are right as they are.
                let is_utc = ["utc", "etc/utc", "gmt", "0", "z"]
                    .iter()
                    .any(|zone| zone.eq_ignore_ascii_case(value));
                return Ok((!is_utc).then(|| {
                    "times are given in UTC here, and the time zone stays so".to_owned()
                }));
            }
            "intervalstyle" => one_of(&["postgres"])?,
            "bytea_output" => one_of(&["hex"])?,
            "standard_conforming_strings" => one_of(&["on", "true", "1"])?,
            "default_transaction_read_only" | "transaction_read_only" => {
                one_of(&["on", "true", "1", "yes"])?;
                return Ok(None);
            }
            "transaction_isolation" | "default_transaction_isolation" => {
                one_of(&["repeatable read", "read committed", "read uncommitted"])?;
                return Ok(None);
            }
            "session_authorization" => one_of(&[&self.initial[place].clone(), "default"])?,
            "statement_timeout" | "idle_in_transaction_session_timeout" => {
                parse_duration(value).ok_or_else(|| {
                    SqlError::new(
                        "22023",
                        format!("invalid value for parameter \"{name}\": \"{value}\""),
                    )
                    .hint("valid units are \"us\", \"ms\", \"s\", \"min\", \"h\" and \"d\"")
                })?;
            }
            "hindcast.as_of" if !value.is_empty() => {
                parse_as_of(value)?;
            }
            _ => {}
        }
        self.current[place] = value.to_owned();
        Ok(None)
    }

    fn set_custom(&mut self, name: String, value: &str) -> Result<Option<String>, SqlError> {
        if name.starts_with("hindcast.") || !name.contains('.') {
            // Others that Postgres has, and that say how it is to work, not what the answer is.
            const HARMLESS: [&str; 8] = [
                "enable_",
                "work_mem",
                "max_parallel",
                "cursor_",
                "geqo",
                "join_",
                "from_",
                "plan_",
            ];
            if HARMLESS.iter().any(|prefix| name.starts_with(prefix)) {
                return Ok(None);
            }
            return Err(unknown(&name));
        }
        if self.custom.len() >= 1000 {
            return Err(SqlError::new("53400", "too many settings in this session"));
        }
        self.custom.insert(name, value.to_owned());
        Ok(None)
    }

    pub fn reset(&mut self, name: Option<&str>) -> Result<(), SqlError> {
        let Some(name) = name else {
            self.current = self.initial.clone();
            self.custom.clear();
            return Ok(());
        };
        match place(name) {
            Some(place) => self.current[place] = self.initial[place].clone(),
            None if name.contains('.') && !name.to_ascii_lowercase().starts_with("hindcast.") => {
                self.custom.remove(&name.to_ascii_lowercase());
            }
            None => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Which state reads of this session see; `None`: the newest.
    pub fn as_of(&self) -> Option<&str> {
        Some(self.get("hindcast.as_of")).filter(|value| !value.is_empty())
    }

    pub fn statement_timeout(&self) -> Option<Duration> {
        parse_duration(self.get("statement_timeout")).filter(|limit| !limit.is_zero())
    }

    pub fn idle_in_transaction_timeout(&self) -> Option<Duration> {
        parse_duration(self.get("idle_in_transaction_session_timeout"))
            .filter(|limit| !limit.is_zero())
    }
}

fn unknown(name: &str) -> SqlError {
    SqlError::new(
        "42704",
        format!("unrecognized configuration parameter \"{name}\""),
    )
}

/// As Postgres writes durations; without a unit they are milliseconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u32 = text[..end].parse().ok()?;
    let unit = match text[end..].trim() {
        "us" => Duration::from_micros(1),
        "" | "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "min" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        "d" => Duration::from_secs(86_400),
        _ => return None,
    };
    unit.checked_mul(number)
}

/// An LSN, or a time.
pub fn parse_as_of(text: &str) -> Result<AsOf, SqlError> {
    let text = text.trim();
    if let Some(lsn) = text.contains('/').then(|| text.parse::<Lsn>()) {
        if let Ok(lsn) = lsn {
            return Ok(AsOf::Lsn(lsn.0));
        }
    } else if let Some(time) = parse_timestamp(text) {
        return Ok(AsOf::Time(time));
    }
    Err(
        SqlError::new("22023", format!("\"{text}\" is neither an LSN nor a time"))
            .hint("write 0/16B3748, or 2026-11-21 10:15:00+00"),
    )
}

fn one_of(name: &str, value: &str, allowed: &[&str]) -> Result<(), SqlError> {
    match allowed
        .iter()
        .any(|other| other.eq_ignore_ascii_case(value))
    {
        true => Ok(()),
        false => Err(
            SqlError::new("0A000", format!("{name} cannot be \"{value}\" here"))
                .hint(format!("it is {}", allowed[0])),
        ),
    }
}

/// A client's encoding, as Postgres shows it.
fn encoding(value: &str) -> Result<&'static str, SqlError> {
    let plain: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    match plain.to_ascii_uppercase().as_str() {
        "UTF8" | "UNICODE" => Ok("UTF8"),
        "SQLASCII" => Ok("SQL_ASCII"),
        _ => Err(SqlError::new(
            "0A000",
            format!("the client encoding {value} is not supported here"),
        )
        .hint("use UTF8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_set_is_remembered_and_what_would_change_answers_is_refused() {
        let mut settings = Settings::new("15.4", "ann");
        assert_eq!(settings.set("extra_float_digits", "3"), Ok(None));
        assert_eq!(settings.set("client_encoding", "'utf-8'"), Ok(None));
        assert_eq!(settings.set("My.Own", "x"), Ok(None));
        assert_eq!(settings.custom("my.own"), Some("x"));
        assert!(settings.set("TimeZone", "Europe/Berlin").unwrap().is_some());
        let code = |result: Result<_, SqlError>| result.map_err(|error| error.code);
        assert_eq!(
            code(settings.set("client_encoding", "LATIN1")),
            Err("0A000")
        );
        assert_eq!(code(settings.set("hindcast.asof", "x")), Err("42704"));
        assert_eq!(code(settings.set("hindcast.as_of", "soon")), Err("22023"));
        assert_eq!(code(settings.set("hindcast.as_of", "0/10")), Ok(None));
        assert_eq!(settings.as_of(), Some("0/10"));
        settings.reset(None).unwrap();
        assert_eq!(settings.as_of(), None);
        assert_eq!(parse_duration("2 min"), Some(Duration::from_secs(120)));
    }
}
