//! `hindcast web`, and `hindcast retro --web`

use std::io::Write;
use std::net::SocketAddr;

use hindcast_gateway::ListenAddress;
use hindcast_trace::{OpenError, Trace};
use hindcast_web::{ServeError, Server, Source};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{TraceArg, WebArgs};
use crate::error::{CliError, Exit};

pub async fn run(args: WebArgs) -> Result<Exit, CliError> {
    let report = args.report.as_deref().map(report).transpose()?;
    serve(args.trace, &args.listen, report).await
}

fn report(path: &std::path::Path) -> Result<serde_json::Value, CliError> {
    let shown = path.display();
    let hint = "write one with `hindcast retro … --json > FILE`";
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::because(format!("cannot read the report {shown}"), &error))?;
    let report: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
        CliError::because(format!("{shown} is no report of a retroaction"), &error).hint(hint)
    })?;
    match (report.get("outcome"), report.get("counts")) {
        (Some(_), Some(_)) => Ok(report),
        _ => Err(CliError::failed(format!("{shown} is no report of a retroaction")).hint(hint)),
    }
}

/// Serves the page until Ctrl-C.
pub async fn serve(
    args: TraceArg,
    listen: &str,
    report: Option<serde_json::Value>,
) -> Result<Exit, CliError> {
    let address = address(listen).await?;
    let key = super::key::given(&args)?;
    let location = args.trace.clone();
    let open = move || -> Result<Trace, OpenError> { Trace::open_with(&location, key.as_ref()) };
    let opened = tokio::task::spawn_blocking(move || (open(), open)).await;
    let (opened, open) =
        opened.map_err(|error| CliError::because("the recording cannot be read", &error))?;
    let trace = opened.map_err(|error| super::cannot_open(&args, &error))?;
    for warning in trace.warnings() {
        eprintln!("Warning: {warning}");
    }
    let source = Source {
        shown: args.trace.to_string(),
        open: Box::new(open),
        report,
    };
    let server = Server::bind(address, trace, source)
        .await
        .map_err(refused)?;
    println!("{}", server.url());
    // Whoever started it may be waiting for the address.
    let _ = std::io::stdout().flush();
    eprintln!("Open this address in a browser on this machine. Ctrl-C ends it.");
    let cannot = |error| CliError::because("cannot listen for signals", &error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    tokio::select! {
        _ = server.run() => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(Exit::Success)
}

fn refused(error: ServeError) -> CliError {
    let hint = error.hint();
    let failed = match error {
        ServeError::NotLoopback { .. } => CliError::usage(format!("--listen: {error}")),
        _ => CliError::because("cannot serve the page", &error),
    };
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

async fn address(listen: &str) -> Result<SocketAddr, CliError> {
    let wrong = |error: String| CliError::usage(format!("--listen: {error}"));
    let (host, port) = match listen.parse().map_err(wrong)? {
        ListenAddress::Tcp { host, port } => (host, port),
        ListenAddress::Unix(_) => {
            return Err(wrong(
                "the page is served over TCP: give 127.0.0.1:PORT".into(),
            ));
        }
    };
    let mut found = tokio::net::lookup_host((host.as_str(), port))
        .await
        .map_err(|error| wrong(format!("{host} is not found: {error}")))?;
    found
        .next()
        .ok_or_else(|| wrong(format!("{host} has no address")))
}
