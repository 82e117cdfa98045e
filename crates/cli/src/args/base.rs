//! Arguments of `hindcast base`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hindcast_trace::Location;

use super::TraceArg;

/// Without a subcommand it takes a base, as `take` does.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BaseArgs {
    #[command(subcommand)]
    pub action: Option<BaseAction>,
    #[command(flatten)]
    pub take: Option<TakeBaseArgs>,
}

impl TakeBaseArgs {
    pub fn trace_arg(&self) -> TraceArg {
        TraceArg {
            trace: self.trace.clone(),
            key: self.key.clone(),
            secrets_key: None,
        }
    }
}

#[derive(Subcommand)]
pub enum BaseAction {
    /// Take a base and note it in the recording; the same as `hindcast base` alone
    Take(TakeBaseArgs),
    /// List the template databases that bases left in the server, and the recordings that use them
    Ls(ListBasesArgs),
    /// Remove template databases that no recording needs any more
    Drop(DropBaseArgs),
}

#[derive(Args)]
pub struct TakeBaseArgs {
    // Not flattened: the parser does not notice that an optional group is there if its arguments
    // are in groups of their own.
    /// Where the recording is: a folder, or s3://bucket/prefix
    #[arg(long, env = "HINDCAST_TRACE", value_name = "DIR")]
    pub trace: Location,
    /// Key file of an encrypted recording
    #[arg(
        long,
        env = "HINDCAST_KEY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub key: Option<PathBuf>,
    /// The database that is or will be recorded
    #[arg(
        long,
        env = "HINDCAST_POSTGRES",
        value_name = "URL",
        hide_env_values = true
    )]
    pub postgres: String,
    /// Make a backup of the whole cluster with pg_basebackup in this folder, instead of a template
    /// database
    #[arg(long, value_name = "DIR")]
    pub backup: Option<PathBuf>,
    /// Where the cluster archives Postgres' WAL: with it, a rewind reaches any later transaction
    #[arg(long, value_name = "DIR", requires = "backup")]
    pub wal_archive: Option<String>,
}

/// Which server, and where recordings may be that use its bases.
#[derive(Args)]
pub struct BaseServerArgs {
    /// Any database of the server that has the bases
    #[arg(
        long,
        env = "HINDCAST_POSTGRES",
        value_name = "URL",
        hide_env_values = true
    )]
    pub postgres: String,
    /// A recording that may use them, besides those for which they were taken; may be given more
    /// than once
    #[arg(long = "trace", env = "HINDCAST_TRACE", value_name = "DIR")]
    pub traces: Vec<Location>,
    /// Key file of encrypted recordings
    #[arg(
        long,
        env = "HINDCAST_KEY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub key: Option<PathBuf>,
}

#[derive(Args)]
pub struct ListBasesArgs {
    #[command(flatten)]
    pub server: BaseServerArgs,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct DropBaseArgs {
    #[command(flatten)]
    pub server: BaseServerArgs,
    /// The template databases, as `hindcast base ls` names them
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Remove them even if a recording needs them, which then cannot be replayed
    #[arg(long)]
    pub force: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn base(given: &[&str]) -> Result<BaseArgs, clap::Error> {
        let command = ["hindcast", "base"];
        match Cli::try_parse_from(command.iter().chain(given))?.command {
            Command::Base(args) => Ok(*args),
            _ => panic!("another command"),
        }
    }

    #[test]
    fn without_a_subcommand_a_base_is_taken() {
        let where_to = ["--postgres=postgres://p/d", "--trace=t"];
        let alone = base(&where_to).unwrap();
        assert!(alone.action.is_none() && alone.take.is_some());
        let take = base(&["take", where_to[0], where_to[1], "--backup=b"]).unwrap();
        assert!(matches!(take.action, Some(BaseAction::Take(take)) if take.backup.is_some()));
        let list = base(&["ls", where_to[0], "--trace=t", "--trace=u"]).unwrap();
        assert!(matches!(list.action, Some(BaseAction::Ls(list)) if list.server.traces.len() == 2));
        assert!(base(&["drop", where_to[0], "one", "two", "--force"]).is_ok());
        assert!(base(&["drop", where_to[0]]).is_err());
        assert!(base(&[where_to[0]]).is_err());
    }
}
