//! Arguments of `hindcast protect`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use hindcast_protect::network::Address;

use super::{size, span};

#[derive(Subcommand)]
pub enum ProtectAction {
    /// Stand by on this machine: replay what the program does on the primary, and go on in its
    /// place when it is lost
    Backup(BackupArgs),
    /// Run a program on this machine, and hold its answers until the backup has what explains them
    Run(ProtectRunArgs),
    /// Give a program that runs without protection a new backup, without stopping it
    Attach(ProtectAttachArgs),
    /// What a backup says of itself, or a machine on which the program runs
    Status(ProtectStatusArgs),
    /// Make the key that both machines need
    Key(ProtectKeyArgs),
}

#[derive(Args)]
pub struct ProtectKeyArgs {
    /// The new file; copy it to the other machine
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Args)]
pub struct KeyArg {
    /// The key that both machines have (hindcast protect key FILE makes one)
    #[arg(long, value_name = "FILE", required_unless_present = "no_key")]
    pub key: Option<PathBuf>,
    /// Trust everybody who can reach the backup's port: they read all that the program does, and
    /// can run programs on the backup
    #[arg(long, conflicts_with = "key")]
    pub no_key: bool,
}

/// On what terms a program runs, where it was started and where it goes on.
#[derive(Args)]
pub struct TermsArgs {
    #[command(flatten)]
    pub key: KeyArg,
    /// The address that clients talk to, with the length of its network; the machine on which the
    /// program runs gets it, and no other has it
    #[arg(long, value_name = "IP/PREFIX")]
    pub address: Address,
    /// Number of the netfilter queue in which answers wait
    #[arg(long, value_name = "NUMBER", default_value_t = 7400)]
    pub queue: u16,
    /// After so long a silence of the backup, go on without it, though it may have taken over: only
    /// where something else sees to it that it has not
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub alone_after: Option<Duration>,
    /// Keep the log up to this size: with it a new backup can be attached when this one was lost.
    /// A larger log is dropped
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1GB")]
    pub keep: u64,
}

#[derive(Args)]
#[command(after_help = "Exit codes: 0 it is protected; 1 it is not; 2 the arguments do not fit.")]
pub struct ProtectAttachArgs {
    /// Where the program runs: the machine with `protect run --listen`, or a backup that has taken
    /// over
    #[arg(long, value_name = "HOST:PORT")]
    pub at: String,
    /// The new backup, which is there already
    #[arg(long, value_name = "HOST:PORT")]
    pub to: String,
    #[command(flatten)]
    pub key: KeyArg,
}

#[derive(Args)]
#[command(
    after_help = "Exit codes: the program's own once it has gone on here, 128 + n if signal n ended it; 0 the program has ended by itself on the primary, or goes on at another backup; 2 the arguments do not fit; 125 it could not go on."
)]
pub struct BackupArgs {
    /// Where the primary connects to, on an address of this machine's own
    #[arg(long, value_name = "[HOST]:PORT")]
    pub listen: String,
    /// Take a checkpoint of the copy so often: only the log since then is kept, and should the
    /// program go on here a new backup begins there. 0s: none
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "60s")]
    pub checkpoint_every: Duration,
    /// How far the copy may be behind the program: when it is further, answers wait for it, and the
    /// program does no more than the copy can follow. 0s: they never wait
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "500ms")]
    pub lag: Duration,
    #[command(flatten)]
    pub terms: TermsArgs,
    /// The device that gets the address; without it the one through which the primary comes
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// After how long a silence the primary counts as dead
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "300ms")]
    pub detect: Duration,
    /// Wait for the next primary when a program has ended by itself
    #[arg(long)]
    pub again: bool,
}

#[derive(Args)]
#[command(
    after_help = "Exit codes: the program's own, 128 + n if signal n ended it; 0 the backup has taken over. Of hindcast itself: 2 the arguments do not fit; 125 the program was not started."
)]
pub struct ProtectRunArgs {
    /// The backup, which is there already
    #[arg(long, value_name = "HOST:PORT")]
    pub to: String,
    /// Where `protect attach` and `protect status` find the program, on an address of this
    /// machine's own
    #[arg(long, value_name = "[HOST]:PORT")]
    pub listen: Option<String>,
    #[command(flatten)]
    pub terms: TermsArgs,
    /// The device that gets the address; without it the one through which the backup is reached
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// The program, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

#[derive(Args)]
pub struct ProtectStatusArgs {
    /// The backup, or where the program runs
    #[arg(long, value_name = "HOST:PORT")]
    pub at: String,
    #[command(flatten)]
    pub key: KeyArg,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
