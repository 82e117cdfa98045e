//! The original final state, to compare with.

use std::sync::Arc;

use hindcast_gateway::pg::{Connector, ControlError, DatabaseUrl, TlsError};
use hindcast_replay::run::{Hooks, ReplayError, ReplayOptions};
use hindcast_replay::sender::Sent;
use hindcast_replay::{Plan, RestoreError, Start, restore, verdict};
use hindcast_rewind::state::{self, StateError};
use hindcast_rewind::{Options as RewindOptions, Rewound};
use hindcast_trace::{RequestId, Trace};
use tokio_postgres::Client;

use crate::database::connect;
use crate::report::Baseline;

/// Where the user wants it from.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The recorded database, if it still is as it was when the recording ended.
    Recorded,
    /// A database.
    Given(DatabaseUrl),
    /// This command starts the original service, which is replayed.
    Replay { command: String },
}

/// A database in the original final state.
#[derive(Debug)]
pub struct Original {
    pub client: Option<Client>,
    pub against: Baseline,
    /// What was made for it, and goes with it.
    pub rewound: Option<Rewound>,
}

#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    #[error("cannot connect to the database with the original final state")]
    Connect(#[source] tokio_postgres::Error),
    #[error("cannot connect to the database with the original final state")]
    Control(#[from] ControlError),
    #[error("TLS to the database with the original final state cannot be set up")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("the original service cannot be replayed")]
    Replay(#[source] ReplayError),
    #[error("the rewound database has an address that cannot be used: {0}")]
    Url(String),
}

impl Original {
    fn none(reason: impl Into<String>) -> Self {
        Self {
            client: None,
            against: Baseline::None {
                reason: reason.into(),
            },
            rewound: None,
        }
    }
}

/// Finds the original final state of what `start` plans.
pub async fn find(
    trace: &Arc<Trace>,
    start: &Start,
    choice: &Choice,
    rewinding: &RewindOptions,
    replaying: impl FnOnce() -> ReplayOptions,
) -> Result<Original, BaselineError> {
    match choice {
        Choice::Given(url) => {
            let connector = Connector::new(url.clone())?;
            let client = connector.control("hindcast comparison").await?;
            Ok(Original {
                client: Some(client),
                against: Baseline::Given,
                rewound: None,
            })
        }
        Choice::Recorded => recorded(trace, &start.plan, rewinding).await,
        Choice::Replay { command } => {
            let mut options = replaying();
            options.setting.service_command = Some(command.clone());
            replayed(trace, start, rewinding, options).await
        }
    }
}

async fn recorded(
    trace: &Trace,
    plan: &Plan,
    rewinding: &RewindOptions,
) -> Result<Original, BaselineError> {
    if !plan.reaches_end {
        return Ok(Original::none(
            "the range ends before the recording does, so nothing holds the state that it ended in",
        ));
    }
    let Some(expected) = trace.final_state() else {
        return Ok(Original::none(
            "the recording does not say what the tables held at its end",
        ));
    };
    let Some(server) = &rewinding.server else {
        return Ok(Original::none(
            "nothing says where the recorded database is",
        ));
    };
    let client = match connect(server).await {
        Ok(client) => client,
        Err(error) => {
            return Ok(Original::none(format!(
                "the recorded database cannot be reached: {error}"
            )));
        }
    };
    let actual = state::digest_tables(&client).await?;
    let mut differing = verdict::differing_tables(&expected.tables, &actual);
    if let Some((table, ..)) = differing.next() {
        return Ok(Original::none(format!(
            "the recorded database has changed since the recording ended: {table}"
        )));
    }
    drop(differing);
    Ok(Original {
        client: Some(client),
        against: Baseline::RecordedDatabase,
        rewound: None,
    })
}

async fn replayed(
    trace: &Arc<Trace>,
    start: &Start,
    rewinding: &RewindOptions,
    mut options: ReplayOptions,
) -> Result<Original, BaselineError> {
    let (rewound, pinned) = restore(trace, start, rewinding).await?;
    let url: DatabaseUrl = rewound
        .url()
        .parse()
        .map_err(|_| BaselineError::Url(rewound.url().to_owned()))?;
    options.setting.database = url;
    options.setting.unpinned = pinned
        .active
        .then(|| pinned.unpinned.iter().map(ToString::to_string).collect());
    let verdict = hindcast_replay::run(
        Arc::clone(trace),
        start.plan.clone(),
        options,
        &mut Unwatched,
    )
    .await
    .map_err(BaselineError::Replay)?;
    let client = connect(rewound.url())
        .await
        .map_err(BaselineError::Connect)?;
    Ok(Original {
        client: Some(client),
        against: Baseline::Replayed {
            faithful: verdict.faithful,
        },
        rewound: Some(rewound),
    })
}

/// Nobody watches the replay of the original service.
struct Unwatched;

impl Hooks for Unwatched {
    fn progress(&mut self, _: Sent) {}
    async fn debug_wait(&mut self, _: RequestId, _: Option<u32>) {}
}
