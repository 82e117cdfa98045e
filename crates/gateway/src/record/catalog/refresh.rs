//! Keeps what is known of the catalog current.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hindcast_pg::tokio::{Client, Connector};
use hindcast_pg::{ConnectError, ConnectOptions, Error};

use super::known::Wanted;
use super::read;
use crate::record::sink::Sink;

/// Tables that were learned since it was last asked which of them still exist.
const LEARNED_MAX: usize = 1000;
/// How long to leave a server alone that could not be asked.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{}", crate::http::with_causes(.0))]
    Query(#[from] Error),
}

/// Looks up what sessions want to know, for as long as there are any.
pub(in crate::record) async fn keep_current(
    control: Client,
    connector: Arc<Connector>,
    sink: Arc<Sink>,
) {
    let mut refresher = Refresher {
        control: Some(control),
        connector,
        sink: Arc::clone(&sink),
        learned: HashSet::new(),
        learned_max: LEARNED_MAX,
    };
    let known = sink.catalog();
    loop {
        let wanted = known.next_wanted().await;
        match refresher.refresh(&wanted).await {
            Ok(()) => known.serve(wanted.ticket),
            Err(error) => {
                tracing::warn!(%error, "cannot read the catalog again");
                refresher.control = None;
                known.not_served(wanted.ticket);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

struct Refresher {
    control: Option<Client>,
    connector: Arc<Connector>,
    sink: Arc<Sink>,
    /// Tables that were made, or met, while recording. Most databases keep theirs; where tables
    /// come and go, those that went are forgotten.
    learned: HashSet<u32>,
    learned_max: usize,
}

impl Refresher {
    async fn refresh(&mut self, wanted: &Wanted) -> Result<(), RefreshError> {
        if self.control.as_ref().is_none_or(Client::is_closed) {
            let options = ConnectOptions::named("hindcast: catalog");
            self.control = Some(self.connector.client(&options).await?);
        }
        let control = self.control.as_ref().expect("it has just connected");
        let known = self.sink.catalog();
        if wanted.is_everything() {
            known.set(read::all_sequences(control).await?);
            self.learned.clear();
        } else {
            let (sequences, _) = known.sequences();
            let found = read::look_up(control, wanted, &sequences).await?;
            drop(sequences);
            if !found.is_empty() {
                known.change(|known| found.tell(known));
            }
            self.learned.extend(found.tables.keys());
        }
        if wanted.change.routines {
            let ledger = self.sink.ledger();
            let look = ledger.keeping().look();
            let routines = read::routines(control).await?;
            ledger.set_functions_catch(routines.catch);
            ledger.keeping().found(look, routines.leave_statements);
        }
        if self.learned.len() > self.learned_max {
            known.serve(wanted.ticket);
            self.forget_dropped().await?;
        }
        Ok(())
    }

    /// Or a service that makes tables all the time would have all of them remembered.
    async fn forget_dropped(&mut self) -> Result<(), RefreshError> {
        let Some(control) = &self.control else {
            return Ok(());
        };
        let known = self.sink.catalog();
        let (sequences, _) = known.sequences();
        let filling = |table: &u32| sequences.of_table(*table).collect::<Vec<u32>>();
        let learned: Vec<u32> = self.learned.iter().copied().collect();
        let filling: Vec<u32> = learned.iter().flat_map(filling).collect();
        drop(sequences);
        let existing = read::existing(control, &[&learned[..], &filling[..]].concat()).await?;
        let gone = |relation: &&u32| !existing.contains(relation);
        known.change(|known| {
            learned
                .iter()
                .filter(gone)
                .for_each(|table| known.forget_table(*table));
            filling
                .iter()
                .filter(gone)
                .for_each(|sequence| known.forget_sequence(*sequence));
        });
        self.learned.retain(|table| existing.contains(table));
        self.learned_max = LEARNED_MAX.max(2 * self.learned.len());
        Ok(())
    }
}
