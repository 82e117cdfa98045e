//! `hindcast extension`

use super::setting;
use crate::args::{CheckArgs, ExtensionAction, InstallArgs};
use crate::error::{CliError, Exit};
use crate::render::extension as render;

pub async fn run(action: ExtensionAction) -> Result<Exit, CliError> {
    match action {
        ExtensionAction::Install(args) => install(args).await,
        ExtensionAction::Check(args) => check(&args).await,
    }
}

async fn install(args: InstallArgs) -> Result<Exit, CliError> {
    let installed =
        tokio::task::spawn_blocking(move || hindcast_extension::install(&args.pg_config))
            .await
            .expect("installing does not panic")
            .map_err(|error| {
                CliError::because("the extension was not installed", &error).hint(error.hint())
            })?;
    print!("{}", render::installed(&installed));
    Ok(Exit::Success)
}

async fn check(args: &CheckArgs) -> Result<Exit, CliError> {
    let url = setting::url("--postgres", &args.postgres)?;
    let findings = hindcast_extension::check(&url).await.map_err(|error| {
        CliError::because("the extension cannot be checked", &error).hint(error.hint())
    })?;
    match args.json {
        true => findings
            .iter()
            .for_each(|finding| println!("{}", render::json(finding))),
        false => print!("{}", render::findings(&findings)),
    }
    Ok(
        match findings.iter().all(|finding| finding.next.is_none()) {
            true => Exit::Success,
            false => Exit::Missing,
        },
    )
}
