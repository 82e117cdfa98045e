//! The original final state, to compare with.

use std::sync::Arc;

use hindcast_pg::tokio::Client;
use hindcast_pg::{ConnectError, ConnectOptions, DatabaseUrl};
use hindcast_replay::redacted::Redacted;
use hindcast_replay::sender::Sent;
use hindcast_replay::{
    Hooks, Plan, ReplayError, ReplayOptions, RestoreError, Start, restore, verdict,
};
use hindcast_rewind::{Options as RewindOptions, Rewound};
use hindcast_state::StateError;
use hindcast_trace::{RequestId, Trace};

use crate::database::connect;
use crate::report::Baseline;

/// Where the user wants it from.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The recorded database, if it still is as it was when the recording ended.
    Recorded,
    /// A database.
    Given(Box<DatabaseUrl>),
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
    Connect(#[from] ConnectError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("the original service cannot be replayed")]
    Replay(#[source] ReplayError),
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
            let named = ConnectOptions::named("hindcast comparison");
            let client = Client::connect(url, &named).await?;
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
    let Some(expected) = &plan.final_state else {
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
    let actual = Redacted::digest_tables(trace, &client).await?;
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
    options.setting.use_database(rewound.url().clone(), &pinned);
    let verdict = hindcast_replay::run(
        Arc::clone(trace),
        start.plan.clone(),
        options,
        &mut Unwatched,
    )
    .await
    .map_err(BaselineError::Replay)?;
    let client = connect(rewound.url()).await?;
    Ok(Original {
        client: Some(client),
        against: Baseline::Replayed {
            faithful: verdict.faithful,
        },
        rewound: Some(rewound),
    })
}

/// The replay of the original service is not watched.
struct Unwatched;

impl Hooks for Unwatched {
    fn progress(&mut self, _: Sent) {}
    async fn debug_wait(&mut self, _: RequestId, _: Option<u32>) {}
}
