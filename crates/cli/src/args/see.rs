//! `hindcast see`

use std::ffi::OsString;

use clap::Args;
use hindcast_replay::see::Moment;
use hindcast_trace::RequestId;

use super::{ServiceArgs, TargetArgs, TraceArg};

#[derive(Args)]
#[command(
    after_help = "The database is a rewound copy, in which the recording was replayed up to there. Any client can use it, for as \
long as this runs.\n\nExit codes: psql's own; as those of all commands if it does not come to psql."
)]
pub struct SeeArgs {
    #[command(flatten)]
    pub trace: TraceArg,
    #[command(flatten)]
    pub target: TargetArgs,
    /// A transaction, as `hindcast show` names it: t42
    #[arg(value_name = "TRANSACTION")]
    pub transaction: String,
    /// What its statement N saw, its own writes up to there included; `end`: what it saw before its
    /// commit. Default: what it saw when it took its snapshot
    #[arg(long, value_name = "N", value_parser = moment)]
    pub statement: Option<Moment>,
    /// Print how to connect, and wait for Ctrl-C, instead of starting psql
    #[arg(long)]
    pub url: bool,
    /// The same as JSON
    #[arg(long, conflicts_with = "psql")]
    pub json: bool,
    /// Keep the database when this ends, and print how to remove it
    #[arg(long)]
    pub keep: bool,
    /// Go on although the replay did something else on the way: what is seen may not be what was
    /// recorded
    #[arg(long)]
    pub keep_going: bool,
    /// Go on although the recording has gaps before the transaction
    #[arg(long)]
    pub across_gaps: bool,
    /// Command that starts the service, as it was started for the recording; not needed where
    /// `record -- COMMAND` started it
    #[arg(long, value_name = "COMMAND")]
    pub app: Option<String>,
    #[command(flatten)]
    pub service: ServiceArgs,
    /// Arguments for psql, e.g. -c 'SELECT …'
    #[arg(last = true, value_name = "PSQL", conflicts_with = "url")]
    pub psql: Vec<OsString>,
}

fn moment(text: &str) -> Result<Moment, String> {
    match (text, text.parse()) {
        ("end", _) => Ok(Moment::End),
        (_, Ok(number @ 1..)) => Ok(Moment::Statement(number)),
        _ => Err("a number from 1 on, as `hindcast show` counts them, or end".to_owned()),
    }
}

impl SeeArgs {
    /// The transaction's number; a request's if that was given.
    pub fn asked(&self) -> Option<Result<hindcast_trace::TransactionId, RequestId>> {
        match self.transaction.strip_prefix('t') {
            Some(id) => id.parse().ok().map(Ok),
            None => self.transaction.parse().ok().map(Err),
        }
    }
}
