//! Arguments of `hindcast standby`.

use std::iter::once;
use std::path::PathBuf;
use std::time::Duration;

use super::{size, span};
use clap::{Args, Subcommand, ValueEnum};
use hindcast_pg::{DatabaseUrl, Lsn};
use hindcast_standby::source::RowFilter;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct StandbyArgs {
    #[command(subcommand)]
    pub action: Option<StandbyAction>,
    #[command(flatten)]
    pub follow: Option<FollowArgs>,
}

#[derive(Subcommand)]
pub enum StandbyAction {
    /// Stop following, copy sequences, check, and hand over: the backup becomes a database of its
    /// own
    Promote(PromoteArgs),
    /// Let primary and backup change places: keep users from writing to the primary, wait until the
    /// backup has everything, compare, promote it, and make the old primary its backup
    Switchover(SwitchoverArgs),
    /// Keep users from writing to a database, such as a primary that was down and is back: new
    /// sessions only read, and those that are there are ended
    Fence(FenceArgs),
    /// What a backup says about its standby: how far it is, and whether anybody follows
    Status(StatusArgs),
    /// Remove slot and publication from the primary, so that it keeps no WAL for a standby that is
    /// gone
    Drop(DropArgs),
}

#[derive(Args, Clone)]
pub struct FollowArgs {
    /// The primary: a database of a stock Postgres with wal_level = logical
    #[arg(long, value_name = "URL")]
    pub from: DatabaseUrl,
    /// The backup: a database of another stock Postgres
    #[arg(long, value_name = "URL", required_unless_present = "memory")]
    pub to: Option<DatabaseUrl>,
    /// Follow into memory, in place of a backup; reads go to --serve
    #[arg(long, requires = "serve", conflicts_with_all = ["to", "databases"])]
    pub memory: bool,
    /// Databases in place of the one that the URLs name, each with a standby of its own, called
    /// NAME_DATABASE; may be given more than once
    #[arg(long = "database", value_name = "DATABASE")]
    pub databases: Vec<String>,
    /// Tells several standbys of one primary apart: slot and publication are called hindcast_NAME
    #[arg(long, value_name = "NAME", default_value = "standby")]
    pub name: String,
    /// Connections that apply changes [default: 1 to a backup, so that every reader sees whole
    /// transactions; the cores less one in memory]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: Option<u16>,
    /// What is applied as one: rows, as C5 does; the others are there to be measured against
    #[arg(long, value_enum, value_name = "WHAT", default_value = "row")]
    pub granularity: Granularity,
    /// Cut an epoch after so many row changes
    #[arg(long, value_name = "N", default_value = "20000", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "memory")]
    pub epoch_rows: u32,
    /// Cut an epoch at least this often while there are changes, in milliseconds
    #[arg(
        long,
        value_name = "MS",
        default_value = "2",
        conflicts_with = "memory"
    )]
    pub epoch_ms: u64,
    /// Connections of the initial copy
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub copy_workers: u16,
    /// Replicate only these tables, e.g. public.orders or 'sales.*'; may be given more than once
    #[arg(long = "table", value_name = "PATTERN")]
    pub tables: Vec<String>,
    /// Leave out these tables; may be given more than once
    #[arg(
        long = "exclude-table",
        visible_alias = "exclude",
        value_name = "PATTERN"
    )]
    pub exclude_tables: Vec<String>,
    /// Of these tables only the rows that meet a condition, e.g. "orders: region = 'eu'"; the
    /// primary must be Postgres 15 or newer; may be given more than once
    #[arg(long = "row-filter", value_name = "TABLE: CONDITION")]
    pub row_filters: Vec<RowFilter>,
    /// The backup has the tables already: do not copy the schema
    #[arg(long, conflicts_with = "memory")]
    pub no_schema: bool,
    /// Compare the rows of the backup with the primary's all the time, at one position of the log,
    /// and repair what differs; reads at most so much a second of each, e.g. 2MB
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "memory")]
    pub check_rate: Option<u64>,
    /// Until more is compared; following stops for a moment each time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span, requires = "check_rate")]
    pub check_period: Duration,
    /// Receive large transactions while they are still running; they wait in files until they
    /// commit
    #[arg(long)]
    pub streaming: bool,
    /// Where reads of the memory are served, e.g. :5433 (this machine only)
    #[arg(long, value_name = "ADDRESS", conflicts_with = "to")]
    pub serve: Option<String>,
    /// A file with the password that readers of the memory give, for any user's name; without it
    /// nothing is served beyond this machine
    #[arg(long, value_name = "FILE", requires = "serve")]
    pub serve_password_file: Option<PathBuf>,
    /// Certificate (PEM) with which reads of the memory are encrypted: only encrypted connections
    /// are accepted then
    #[arg(long, value_name = "FILE", requires_all = ["serve", "serve_tls_key"])]
    pub serve_tls_cert: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "serve_tls_cert")]
    pub serve_tls_key: Option<PathBuf>,
    /// How long past states can be read AS OF, e.g. 30s or 5m
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = span, conflicts_with = "to")]
    pub retention: Duration,
    /// Stop taking changes in above this much memory, e.g. 8GB
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "to")]
    pub memory_max: Option<u64>,
    /// Serve metrics for Prometheus here: :9187 for this machine only, 0.0.0.0:9187 for others too
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// End when everything up to here is visible and durable
    #[arg(long, value_name = "LSN", value_parser = lsn, conflicts_with = "databases")]
    pub until: Option<Lsn>,
    /// Print the status as JSON, one object a second
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Granularity {
    /// Writes wait only for earlier writes of the same row
    Row,
    /// Transactions with a common row wait for each other, as in KuaFu; only with --memory
    Transaction,
    /// One transaction after the other
    Single,
}

/// What can be done for several databases by one command.
pub trait PerDatabase: Clone {
    fn parts(&mut self) -> Parts<'_>;

    /// The same for each database that was named, or as it is for the one in the URLs.
    fn each(&self) -> Vec<(Option<String>, Self)> {
        let mut args = self.clone();
        let named = std::mem::take(args.parts().databases);
        let of = |database: String| {
            let mut args = args.clone();
            let parts = args.parts();
            for url in parts.urls {
                *url = url.with_database(&database);
            }
            if let Some(name) = parts.name {
                *name = standby_of(name, &database);
            }
            (Some(database), args)
        };
        match named.is_empty() {
            true => vec![(None, args)],
            false => named.into_iter().map(of).collect(),
        }
    }
}

/// What differs from one database to another.
pub struct Parts<'a> {
    databases: &'a mut Vec<String>,
    urls: Vec<&'a mut DatabaseUrl>,
    name: Option<&'a mut String>,
}

impl PerDatabase for FollowArgs {
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            databases: &mut self.databases,
            urls: once(&mut self.from).chain(&mut self.to).collect(),
            name: Some(&mut self.name),
        }
    }
}

impl PerDatabase for PromoteArgs {
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            databases: &mut self.databases,
            urls: once(&mut self.to).chain(&mut self.from).collect(),
            name: Some(&mut self.name),
        }
    }
}

impl PerDatabase for SwitchoverArgs {
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            databases: &mut self.databases,
            urls: vec![&mut self.from, &mut self.to],
            name: Some(&mut self.name),
        }
    }
}

impl PerDatabase for FenceArgs {
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            databases: &mut self.databases,
            urls: vec![&mut self.from],
            name: None,
        }
    }
}

impl PerDatabase for StatusArgs {
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            databases: &mut self.databases,
            urls: once(&mut self.to).chain(&mut self.from).collect(),
            name: Some(&mut self.name),
        }
    }
}

impl PerDatabase for DropArgs {
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            databases: &mut self.databases,
            urls: vec![&mut self.from],
            name: Some(&mut self.name),
        }
    }
}

/// The name of one of several standbys, as slots can be called: lower-case letters, digits and
/// underscores. A database whose name has others, or is long, is told apart by a digest of it.
fn standby_of(name: &str, database: &str) -> String {
    const LENGTH: usize = 24;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if database.chars().all(fits) && database.len() <= LENGTH {
        return format!("{name}_{database}");
    }
    let lower = database.to_ascii_lowercase();
    let kept: String = lower
        .chars()
        .filter(|&c| fits(c))
        .take(LENGTH - 9)
        .collect();
    format!("{name}_{kept}_{:08x}", crc32fast::hash(database.as_bytes()))
}

#[derive(Args, Clone)]
pub struct PromoteArgs {
    /// Databases in place of the one that the URLs name, each with a standby of its own, called
    /// NAME_DATABASE; may be given more than once
    #[arg(long = "database", value_name = "DATABASE")]
    pub databases: Vec<String>,
    /// The backup
    #[arg(long, value_name = "URL")]
    pub to: DatabaseUrl,
    /// The primary, if it can still be reached: what is missing is waited for, sequences are
    /// copied, slot and publication removed
    #[arg(long, value_name = "URL")]
    pub from: Option<DatabaseUrl>,
    #[arg(long, value_name = "NAME", default_value = "standby")]
    pub name: String,
    /// Do not wait for what the primary still has
    #[arg(long)]
    pub no_wait: bool,
    /// Compare all rows of both before handing over
    #[arg(long, requires = "from")]
    pub check: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone)]
pub struct SwitchoverArgs {
    /// Databases in place of the one that the URLs name, each with a standby of its own, called
    /// NAME_DATABASE; may be given more than once
    #[arg(long = "database", value_name = "DATABASE")]
    pub databases: Vec<String>,
    /// The primary, which becomes the backup
    #[arg(long, value_name = "URL")]
    pub from: DatabaseUrl,
    /// The backup, which becomes the primary
    #[arg(long, value_name = "URL")]
    pub to: DatabaseUrl,
    #[arg(long, value_name = "NAME", default_value = "standby")]
    pub name: String,
    /// Do not compare the rows of both
    #[arg(long)]
    pub no_check: bool,
    /// Do not make the old primary a backup of the new one
    #[arg(long)]
    pub no_back: bool,
    /// Take back what a switchover began that was killed
    #[arg(long)]
    pub abort: bool,
    /// How long each wait may take without progress
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span)]
    pub patience: Duration,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone)]
pub struct FenceArgs {
    /// Databases in place of the one that the URLs name, each with a standby of its own, called
    /// NAME_DATABASE; may be given more than once
    #[arg(long = "database", value_name = "DATABASE")]
    pub databases: Vec<String>,
    /// The database
    #[arg(long, value_name = "URL")]
    pub from: DatabaseUrl,
    /// Let users write again
    #[arg(long)]
    pub lift: bool,
}

#[derive(Args, Clone)]
pub struct StatusArgs {
    /// Databases in place of the one that the URLs name, each with a standby of its own, called
    /// NAME_DATABASE; may be given more than once
    #[arg(long = "database", value_name = "DATABASE")]
    pub databases: Vec<String>,
    /// The backup
    #[arg(long, value_name = "URL")]
    pub to: DatabaseUrl,
    /// The primary, to see how far behind the backup is
    #[arg(long, value_name = "URL")]
    pub from: Option<DatabaseUrl>,
    #[arg(long, value_name = "NAME", default_value = "standby")]
    pub name: String,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone)]
pub struct DropArgs {
    /// Databases in place of the one that the URLs name, each with a standby of its own, called
    /// NAME_DATABASE; may be given more than once
    #[arg(long = "database", value_name = "DATABASE")]
    pub databases: Vec<String>,
    /// The primary
    #[arg(long, value_name = "URL")]
    pub from: DatabaseUrl,
    #[arg(long, value_name = "NAME", default_value = "standby")]
    pub name: String,
}

fn lsn(text: &str) -> Result<Lsn, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a position like 0/16B3748"))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    #[command(name = "hindcast standby", no_binary_name = true)]
    struct Standby {
        #[command(flatten)]
        args: StandbyArgs,
    }

    fn standby(given: &[&str]) -> Result<StandbyArgs, String> {
        Standby::try_parse_from(given)
            .map(|standby| standby.args)
            .map_err(|error| error.to_string().lines().next().unwrap_or_default().into())
    }

    #[test]
    fn to_a_backup_or_into_memory() {
        Standby::command().debug_assert();
        let backup = standby(&["--from=postgres://p/d", "--to=postgres://b/d"]).unwrap();
        let follow = backup.follow.unwrap();
        assert_eq!(
            (follow.name.as_str(), follow.epoch_rows),
            ("standby", 20_000)
        );
        let memory = standby(&[
            "--from=postgres://p/d",
            "--memory",
            "--serve=:5433",
            "--retention=5m",
            "--memory-max=2GB",
        ])
        .unwrap();
        let follow = memory.follow.unwrap();
        assert_eq!(follow.retention, Duration::from_secs(300));
        assert_eq!(follow.memory_max, Some(2_000_000_000));
        let promote = standby(&["promote", "--to=postgres://b/d"]).unwrap();
        assert!(
            matches!(promote.action, Some(StandbyAction::Promote(_))) && promote.follow.is_none()
        );
    }

    #[test]
    fn what_cannot_go_together_is_refused() {
        for given in [
            &["--from=postgres://p/d"][..],
            &["--to=postgres://b/d"],
            &["--from=postgres://p/d", "--memory"],
            &[
                "--from=postgres://p/d",
                "--to=postgres://b/d",
                "--memory",
                "--serve=:1",
            ],
            &["--from=postgres://p/d", "--to=postgres://b/d", "--serve=:1"],
            &["--from=mysql://p/d", "--to=postgres://b/d"],
            &[
                "--from=postgres://p/d",
                "--to=postgres://b/d",
                "--workers=0",
            ],
            &[
                "--from=postgres://p/d",
                "--memory",
                "--serve=:1",
                "--database=d",
            ],
        ] {
            assert!(standby(given).is_err(), "{given:?}");
        }
    }

    #[test]
    fn each_database_has_urls_and_a_name_of_its_own() {
        let several = standby(&[
            "--from=postgres://p/postgres",
            "--to=postgres://b/postgres",
            "--database=shop",
            "--database=Billing EU",
        ]);
        let each = several.unwrap().follow.unwrap().each();
        let seen: Vec<_> = each
            .iter()
            .map(|(database, args)| {
                let to = args.to.as_ref().unwrap().database();
                assert_eq!(args.from.database(), to);
                assert!(args.databases.is_empty());
                (database.as_deref().unwrap(), to, args.name.as_str())
            })
            .collect();
        let billing = "standby_billingeu_431d1bae";
        assert_eq!(seen[0], ("shop", "shop".to_owned(), "standby_shop"));
        assert_eq!(seen[1], ("Billing EU", "Billing EU".to_owned(), billing));
        let one = standby(&["--from=postgres://p/d", "--to=postgres://b/e"]).unwrap();
        let each = one.follow.unwrap().each();
        assert_eq!(each.len(), 1);
        assert_eq!(each[0].1.from.database(), "d");
        assert_eq!(
            (each[0].0.as_ref(), each[0].1.name.as_str()),
            (None, "standby")
        );
    }
}
