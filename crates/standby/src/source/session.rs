//! How sessions with the primary, and with a backup, are set up.

use hindcast_pg::ConnectOptions;

/// How values look, whatever the primary's defaults are: exact, and the same for every reader. With
/// nothing else to search, names in values (`regclass` and its like) come with their schema, and no
/// function of somebody else's can be taken for one of the system's.
const LOOKS: [(&str, &str); 8] = [
    ("datestyle", "ISO"),
    ("intervalstyle", "postgres"),
    ("extra_float_digits", "3"),
    ("timezone", "UTC"),
    ("bytea_output", "hex"),
    ("lc_monetary", "C"),
    ("xmlbinary", "base64"),
    ("search_path", "pg_catalog"),
];

/// Defaults that are meant for the users of an application. A copy may take hours, and the session
/// that keeps the snapshot for it does nothing meanwhile. Where row security would hide rows from
/// us, an error is better than a backup without them.
const PATIENT: [(&str, &str); 5] = [
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("default_transaction_read_only", "off"),
    ("row_security", "off"),
];

/// A session in which values look the same whoever asks.
pub fn session(application_name: &str) -> ConnectOptions {
    LOOKS.iter().chain(&PATIENT).fold(
        ConnectOptions::named(application_name),
        |options, (name, value)| options.set(name, value),
    )
}
