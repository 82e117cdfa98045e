//! Control connections: not to the database that is cloned, but to one beside it.

use hindcast_pg::tokio::Client;
use hindcast_pg::{ConnectOptions, DatabaseUrl};

use crate::error::RewindError;

pub(crate) async fn connect(url: &DatabaseUrl, database: &str) -> Result<Client, RewindError> {
    let named = ConnectOptions::named("hindcast");
    let doing = format!("connect to the database {database} of {url}");
    Client::connect(&url.with_database(database), &named)
        .await
        .map_err(|error| RewindError::database(doing)(error.into()))
}

/// A session in a database that is in nobody's way, so that the one of the URL has no session of
/// ours.
pub(crate) async fn connect_beside(url: &DatabaseUrl) -> Result<Client, RewindError> {
    let mut first_error = None;
    for database in ["postgres", "template1"] {
        if database == url.database() {
            continue;
        }
        match connect(url, database).await {
            Ok(client) => return Ok(client),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.expect("at least one of two databases has another name"))
}
