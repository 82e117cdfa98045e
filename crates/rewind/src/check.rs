//! The proof that a restored state is the wanted one, from the server's own record of which
//! transactions committed.

use std::collections::BTreeSet;

use hindcast_pg::tokio::Client;
use hindcast_trace::{Snapshot, Xid};

use crate::error::RewindError;
use crate::point::Point;

/// The recording must agree with itself before it is compared with a database.
pub(crate) fn point(point: &Point) -> Result<(), RewindError> {
    let Some(first) = &point.first_snapshot else {
        return Ok(());
    };
    let xids: Vec<Xid> = point
        .included
        .iter()
        .copied()
        .filter(|xid| !first.sees(*xid))
        .collect();
    if !xids.is_empty() {
        return Err(RewindError::NotSeen { xids });
    }
    let xids: Vec<Xid> = point
        .excluded
        .iter()
        .copied()
        .filter(|xid| first.sees(*xid))
        .collect();
    if !xids.is_empty() {
        return Err(RewindError::SeenTooEarly { xids });
    }
    Ok(())
}

/// What came after a template base, as its server knows it.
pub(crate) struct SinceBase {
    /// Recorded, wanted, and not in the base: replay has to execute them.
    pub missing: Vec<Xid>,
    /// Committed between the base and the point, and in no recording.
    pub unaccounted: Vec<Xid>,
}

/// Compares the point with a base whose snapshot is known, in the server that ran all the
/// transactions.
pub(crate) async fn since_template(
    client: &Client,
    base: &Snapshot,
    point: &Point,
) -> Result<SinceBase, RewindError> {
    let too_new: Vec<Xid> = point
        .excluded
        .iter()
        .copied()
        .filter(|xid| base.sees(*xid))
        .collect();
    if !too_new.is_empty() {
        return Err(RewindError::BaseTooNew { xids: too_new });
    }
    let missing: Vec<Xid> = point
        .included
        .iter()
        .copied()
        .filter(|xid| !base.sees(*xid))
        .collect();
    let end = match &point.first_snapshot {
        Some(first) => first.xmax,
        None => missing.last().map_or(base.xmax, |xid| Xid(xid.0 + 1)),
    };
    let outcomes = Outcomes::between(client, base.xmin, end).await?;
    let relevant = |xid: &Xid| {
        !base.sees(*xid)
            && point
                .first_snapshot
                .as_ref()
                .is_none_or(|first| first.sees(*xid))
            && !point.excluded.contains(xid)
            && !point.own.contains(xid)
            && (point.accounted_from.is_none_or(|from| *xid < from)
                || point.strangers.contains(xid))
    };
    let forgotten: Vec<Xid> = outcomes
        .forgotten
        .iter()
        .copied()
        .filter(relevant)
        .collect();
    if !forgotten.is_empty() {
        return Err(RewindError::Forgotten { xids: forgotten });
    }
    let not_committed: Vec<Xid> = missing
        .iter()
        .copied()
        .filter(|xid| !outcomes.committed.contains(xid))
        .collect();
    if !not_committed.is_empty() {
        return Err(RewindError::NotCommitted {
            xids: not_committed,
        });
    }
    let unaccounted = outcomes
        .committed
        .iter()
        .copied()
        .filter(relevant)
        .filter(|xid| !point.included.contains(xid))
        .collect();
    Ok(SinceBase {
        missing,
        unaccounted,
    })
}

/// Compares the point with what a recovered server holds, and returns the wanted transactions that
/// it lacks.
///
/// The server numbers new transactions from where its WAL ended, with ids that other transactions
/// had in the recorded one: this must run before anybody writes.
pub(crate) async fn recovered(
    client: &Client,
    point: &Point,
    from: Xid,
) -> Result<Vec<Xid>, RewindError> {
    let firsts = [point.included.first(), point.excluded.first(), Some(&from)];
    let low = firsts.into_iter().flatten().min().copied().unwrap_or(from);
    let outcomes = Outcomes::between(client, low, Xid(u64::MAX)).await?;
    let first = point.first_snapshot.as_ref();
    let holds: Vec<Xid> = outcomes
        .committed
        .iter()
        .copied()
        .filter(|xid| point.excluded.contains(xid) || first.is_some_and(|first| !first.sees(*xid)))
        .filter(|xid| !point.own.contains(xid))
        .collect();
    if !holds.is_empty() {
        return Err(RewindError::Holds { xids: holds });
    }
    Ok(point
        .included
        .iter()
        .copied()
        .filter(|xid| !outcomes.committed.contains(xid) && !outcomes.forgotten.contains(xid))
        .collect())
}

/// How the transactions of a range ended.
struct Outcomes {
    committed: BTreeSet<Xid>,
    /// So old that the server has dropped their status. They are long frozen, hence ended before
    /// anything recent.
    forgotten: BTreeSet<Xid>,
}

impl Outcomes {
    /// `end` excluded. Ids that were not given out yet are left out.
    async fn between(client: &Client, start: Xid, end: Xid) -> Result<Self, RewindError> {
        let rows = client
            .query(
                "SELECT x, pg_catalog.pg_xact_status(x::text::xid8) IS NULL FROM pg_catalog.generate_series($1::bigint, \
                 least($2::bigint, pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint - 1)) AS x \
                 WHERE coalesce(pg_catalog.pg_xact_status(x::text::xid8), 'committed') = 'committed'",
                // Ids below 3 are the server's own and have no status.
                &[&(start.0.max(3) as i64), &(end.0.saturating_sub(1).min(i64::MAX as u64) as i64)],
            )
            .await
            .map_err(RewindError::database("ask which transactions committed"))?;
        let mut outcomes = Self {
            committed: BTreeSet::new(),
            forgotten: BTreeSet::new(),
        };
        for row in rows {
            let xid = Xid(row.get::<i64>(0) as u64);
            if row.get(1) {
                outcomes.forgotten.insert(xid);
            } else {
                outcomes.committed.insert(xid);
            }
        }
        Ok(outcomes)
    }
}

/// Committed transactions that `after` sees and `before` does not.
pub(crate) async fn committed_between(
    client: &Client,
    before: &Snapshot,
    after: &Snapshot,
) -> Result<Vec<Xid>, RewindError> {
    let outcomes = Outcomes::between(client, before.xmin, after.xmax).await?;
    Ok(outcomes
        .committed
        .into_iter()
        .filter(|xid| after.sees(*xid) && !before.sees(*xid))
        .collect())
}

/// What a statement that ran now would see.
pub(crate) async fn current_snapshot(client: &Client) -> Result<Snapshot, RewindError> {
    let row = client
        .query_one("SELECT pg_catalog.pg_current_snapshot()::text", &[])
        .await
        .map_err(RewindError::database("take a snapshot"))?;
    let text: &str = row.get(0);
    Ok(text
        .parse()
        .expect("Postgres writes snapshots as xmin:xmax:list"))
}
