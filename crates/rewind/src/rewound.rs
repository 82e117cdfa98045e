//! A rewound database, and what becomes of it.

use std::collections::HashMap;
use std::path::Path;

use hindcast_pg::DatabaseUrl;
use hindcast_trace::{Base, BaseKind, Xid};

use crate::cloned::Cloned;
use crate::error::RewindError;
use crate::point::{Options, Point, Reached, Step};
use crate::server::connect_beside;
use crate::{check, dump, recover, template};
use hindcast_cluster::Cluster;

/// A database in the state of a [`Point`], checked. Dropping it removes what was made.
#[derive(Debug)]
pub struct Rewound {
    url: DatabaseUrl,
    database: String,
    reached: Reached,
    missing: Vec<Xid>,
    unaccounted: Vec<Xid>,
    /// `None` once it was kept or discarded.
    made: Option<Made>,
    oids: HashMap<u32, u32>,
}

enum Made {
    Clone(Box<Cloned>),
    Private(Box<Cluster>),
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Clone(_) => "Clone",
            Self::Private(_) => "Private",
        })
    }
}

/// Puts a database into the state of `point`, starting from `base`.
///
/// With a template or a backup without archived WAL the state is that of the base, and
/// [`Rewound::missing`] says which recorded transactions have to be executed to get from there to
/// the point.
pub async fn rewind(base: &Base, point: &Point, options: &Options) -> Result<Rewound, RewindError> {
    check::point(point)?;
    match &base.kind {
        BaseKind::Template { database } => from_template(base, database, point, options).await,
        BaseKind::Backup {
            folder,
            wal_archive,
        } => {
            let recovered =
                recover::recover(folder.as_ref(), wal_archive.as_deref(), point, options).await?;
            Ok(Rewound {
                url: recovered.url,
                database: options.database.clone(),
                reached: recovered.reached,
                missing: recovered.missing,
                unaccounted: Vec::new(),
                made: Some(Made::Private(Box::new(recovered.cluster))),
                oids: HashMap::new(),
            })
        }
        BaseKind::Dump { folder } => from_dump(folder.as_ref(), options).await,
    }
}

async fn from_dump(folder: &Path, options: &Options) -> Result<Rewound, RewindError> {
    let restored = dump::restore(folder, options).await?;
    Ok(Rewound {
        url: restored.url,
        database: options.database.clone(),
        reached: Reached::Dump {
            folder: folder.to_owned(),
        },
        // It was taken where the recording begins.
        missing: Vec::new(),
        unaccounted: Vec::new(),
        made: Some(Made::Private(Box::new(restored.cluster))),
        oids: restored.oids,
    })
}

async fn from_template(
    base: &Base,
    name: &str,
    point: &Point,
    options: &Options,
) -> Result<Rewound, RewindError> {
    let server = options.server.as_ref().ok_or(RewindError::NoServer)?;
    let beside = connect_beside(server).await?;
    template::check_base(&beside, server, name).await?;
    (options.progress)(Step::Checking);
    let since = check::since_template(&beside, &base.snapshot, point).await?;
    if !since.unaccounted.is_empty() && !options.allow_unaccounted {
        return Err(RewindError::Unaccounted {
            xids: since.unaccounted,
        });
    }
    (options.progress)(Step::Cloning {
        base: name.to_owned(),
    });
    let cloned = Cloned::make(server, beside, name, &options.database).await?;
    Ok(Rewound {
        url: server.with_database(cloned.database()),
        database: cloned.database().to_owned(),
        reached: Reached::Template {
            base: name.to_owned(),
        },
        missing: since.missing,
        unaccounted: since.unaccounted,
        made: Some(Made::Clone(Box::new(cloned))),
        oids: HashMap::new(),
    })
}

impl Rewound {
    /// Of the rewound database, as the user who rewound it (a superuser, for backups).
    pub fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// The name of the rewound database.
    pub fn database(&self) -> &str {
        &self.database
    }

    pub fn reached(&self) -> &Reached {
        &self.reached
    }

    /// Transactions of the point's `included` that the database does not hold yet: replay executes
    /// them first. Ascending.
    pub fn missing(&self) -> &[Xid] {
        &self.missing
    }

    /// Transactions that nobody recorded and that the database lacks; empty unless
    /// [`Options::allow_unaccounted`] was set. Ascending.
    pub fn unaccounted(&self) -> &[Xid] {
        &self.unaccounted
    }

    /// What tables and sequences are called here, by their oids in the recorded database; empty
    /// where they are the same.
    pub fn oids(&self) -> &HashMap<u32, u32> {
        &self.oids
    }

    /// The private server that a backup was restored into.
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.made {
            Some(Made::Private(cluster)) => Some(cluster),
            _ => None,
        }
    }

    /// Leaves the database, and the private server that holds it, for the user.
    pub async fn keep(mut self) -> Result<Kept, RewindError> {
        let removal = match self.made.take() {
            Some(Made::Clone(cloned)) => {
                cloned.keep().await?;
                format!(
                    "DROP DATABASE {}",
                    hindcast_pg::quote_identifier(&self.database)
                )
            }
            Some(Made::Private(cluster)) => {
                let left = cluster.leave_running();
                let pid = left
                    .pid
                    .map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
                format!("kill {pid}; then rm -r {}", left.folder.display())
            }
            None => String::new(),
        };
        Ok(Kept {
            url: self.url.clone(),
            removal,
        })
    }

    /// Drops the database, or stops the private server and removes its folder.
    pub async fn discard(mut self) -> Result<(), RewindError> {
        match self.made.take() {
            Some(Made::Clone(cloned)) => cloned.discard().await,
            Some(Made::Private(cluster)) => {
                let _ = tokio::task::spawn_blocking(move || drop(cluster)).await;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// What the user needs to know about a database that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub url: DatabaseUrl,
    /// How to get rid of it.
    pub removal: String,
}
