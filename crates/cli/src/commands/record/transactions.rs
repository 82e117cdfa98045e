//! How the transactions of a service that is recorded from inside come to the recorder.

use hindcast_gateway::record::Transactions;
use hindcast_pg::tokio::Client;
use hindcast_pg::{ConnectOptions, DatabaseUrl};

use crate::args::{RecordArgs, TransactionsBy};
use crate::error::CliError;

/// By the extension, if it is there and nothing speaks against it; and what to say of it.
pub async fn choose(
    args: &RecordArgs,
    database: &DatabaseUrl,
) -> Result<(Transactions, String), CliError> {
    let gateway = |why: &str| {
        let said = format!("by way of a gateway to {database}: {why}");
        (Transactions::Gateway, said)
    };
    let against = against(args);
    match (args.transactions, against) {
        (TransactionsBy::Gateway, _) => return Ok(gateway("as was asked for")),
        (TransactionsBy::Extension, Some(flag)) => {
            let message =
                format!("{flag} needs the gateway, and --transactions extension is without");
            return Err(CliError::usage(message).hint("leave one of them out"));
        }
        (TransactionsBy::Auto, Some(flag)) => return Ok(gateway(&format!("{flag} needs it"))),
        (_, None) => {}
    }
    if args.transactions == TransactionsBy::Auto && may_encrypt(database).await? {
        return Ok(gateway(
            "the server offers TLS, which is followed only where the service encrypts by OpenSSL's shared libssl \
             (then --transactions extension is for it)",
        ));
    }
    match (missing(database).await?, args.transactions) {
        (None, _) => {
            let said = format!("as the extension in {database} tells, nothing in the way");
            Ok((Transactions::Extension, said))
        }
        (Some(missing), TransactionsBy::Extension) => {
            let message = format!("cannot record by the extension: {}", missing.what);
            Err(CliError::failed(message).hint(missing.next))
        }
        (Some(missing), _) => Ok(gateway(&format!(
            "{}; so of READ COMMITTED only the first snapshot is known, and its replay is approximate \
             (all of it: {}; or --isolation repeatable-read)",
            missing.what, missing.next
        ))),
    }
}

/// A flag of which the extension can do nothing.
fn against(args: &RecordArgs) -> Option<&'static str> {
    match () {
        _ if args.isolation.is_some() => Some("--isolation"),
        _ if args.durable => Some("--durable"),
        _ => None,
    }
}

struct Missing {
    what: String,
    next: String,
}

/// What keeps the extension from telling; `None`: nothing.
async fn missing(database: &DatabaseUrl) -> Result<Option<Missing>, CliError> {
    let found = hindcast_extension::check(database).await.map_err(|error| {
        let hint = error.hint();
        CliError::because("cannot record", &error).hint(hint)
    })?;
    for finding in found {
        if let Some(next) = finding.next {
            let what = format!(
                "the extension is not ready ({}: {})",
                finding.subject, finding.found
            );
            return Ok(Some(Missing { what, next }));
        }
    }
    Ok(None)
}

/// Whether a client that prefers TLS gets it.
pub async fn may_encrypt(database: &DatabaseUrl) -> Result<bool, CliError> {
    let named = ConnectOptions::named("hindcast: record");
    // That it can be reached was just seen.
    let Ok(client) = Client::connect(database, &named).await else {
        return Ok(false);
    };
    let row = client
        .query_one("SELECT pg_catalog.current_setting('ssl')", &[])
        .await
        .map_err(|error| CliError::because("cannot record", &error))?;
    let offered = row.get::<&str>(0) == "on";
    client.close().await;
    Ok(offered)
}
