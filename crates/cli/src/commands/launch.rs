//! How a service is started again that `record -- COMMAND` had started.

use std::ffi::OsString;

use hindcast_gateway::http::ServiceUrl;
use hindcast_replay::inside::Launch;
use hindcast_replay::place::Asked;
use hindcast_trace::{PinsKey, Recorder};

use crate::args::ServiceArgs;
use crate::error::CliError;

/// As the recording says; what it does not keep is taken from our own environment.
pub fn of(recorder: &Recorder, args: &ServiceArgs) -> Result<Launch, CliError> {
    let mut environment = Vec::new();
    let mut missing = Vec::new();
    for variable in &recorder.environment {
        match variable.split_once('=') {
            Some((name, value)) => environment.push((name.to_owned(), OsString::from(value))),
            None => match std::env::var_os(variable) {
                Some(value) => environment.push((variable.clone(), value)),
                None => missing.push(variable.as_str()),
            },
        }
    }
    if !missing.is_empty() {
        eprintln!(
            "Warning: the service was started with {}, which the recording does not keep since it looks like a secret, and \
             which is not set here.",
            missing.join(", ")
        );
    }
    let asked = args.app_url.as_deref().map(asked).transpose()?;
    let database = recorder.postgres.parse().map_err(|error| {
        CliError::because("the recording names no database that can be found", &error)
    })?;
    Ok(Launch {
        command: words(&recorder.command),
        directory: recorder.directory.clone().into(),
        environment,
        folder: recorder.pins_key.as_ref().map(PinsKey::name),
        database,
        asked,
        outbound: args.outbound.into(),
    })
}

/// What the service listened on: `http://HOST:PORT` or `unix:PATH`.
fn asked(url: &str) -> Result<Asked, CliError> {
    if let Some(path) = url.strip_prefix("unix:") {
        return Ok(Asked::Path(path.to_owned()));
    }
    let url: ServiceUrl = url
        .parse()
        .map_err(|error| CliError::usage(format!("--app-url: {error}")))?;
    Ok(Asked::Port(url.authority().port_u16().unwrap_or(80)))
}

/// For a shell, which takes each as it stands.
fn words(command: &[String]) -> String {
    let quoted = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
    let words: Vec<_> = command.iter().map(quoted).collect();
    format!("exec {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_starts_what_was_started() {
        let command = ["printf", "%s|", "it's", "$HOME", "a b", ""].map(str::to_owned);
        let shell = std::process::Command::new("sh")
            .args(["-c", &words(&command)])
            .output()
            .unwrap();
        assert_eq!(shell.stdout, b"it's|$HOME|a b||");
    }
}
