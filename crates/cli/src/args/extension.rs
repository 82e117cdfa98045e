//! Arguments of `hindcast extension`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub enum ExtensionAction {
    /// Build the extension for a server on this machine, and copy it into the server's folders
    Install(InstallArgs),
    /// Say whether the extension records, and what is missing if not; exit code 1 if anything is
    Check(CheckArgs),
}

#[derive(Args)]
pub struct InstallArgs {
    /// The server's pg_config, which says where its headers and folders are
    #[arg(long, value_name = "PATH", default_value = "pg_config")]
    pub pg_config: PathBuf,
}

#[derive(Args)]
pub struct CheckArgs {
    /// The database in which the extension is to be read, and the role that is to read it
    #[arg(
        long,
        env = "HINDCAST_POSTGRES",
        value_name = "URL",
        hide_env_values = true
    )]
    pub postgres: String,
    /// One JSON object per finding
    #[arg(long)]
    pub json: bool,
}
