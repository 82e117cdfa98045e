//! What a standby does before it follows: it copies what there is.
//!
//! ```text
//!  slot made ──▶ snapshot ──┬─▶ schema: types, tables       pg_dump --section=pre-data
//!                           ├─▶ rows: W × COPY ──▶ COPY     pieces of tables, all at the snapshot
//!                           └─▶ indexes, constraints        pg_dump --section=post-data
//!                               progress := consistent point, state := following (one transaction)
//! ```
//!
//! [`to_backup`] copies into a Postgres backup, [`read_rows`] hands rows to whoever wants them, the
//! in-memory store for one. [`state`] is what the backup says about itself.
//!
//! Sequences are not copied, and not followed later either: their values are not in the logical
//! log. On the backup they stay where the schema starts them until [`crate::promote`] sets them.
//!
//! The invariant: the backup says `following` only if it holds, durably, exactly the snapshot's
//! rows. Whatever happens before leaves it `copying`, and whoever finds that begins again.

mod copy;
mod dump;
pub(crate) mod enums;
mod error;
pub mod indexes;
mod join;
mod reshape;
pub mod rights;
mod rows;
mod schema;
pub mod state;
mod workers;

pub use copy::{BackupCopy, to_backup};
pub(crate) use copy::{watched, writing};
pub use error::{InitialError, Side, Unfit};
pub use join::{Join, join};
pub use reshape::{Adapted, adapt, grown};
pub use rows::Fields;
pub use state::{Hold, Identity, Start, StopRequest, announce, start};
pub(crate) use workers::reading;
pub use workers::{Copied, Source};

use crate::source::ReplicatedTable;
use crate::status::Control;

/// Hands over all rows of the tables as of the snapshot: `each` is called with a table's place in
/// the list and a row of it, from several threads at once. Columns are those of the table, in its
/// order.
pub fn read_rows<E>(
    source: &Source<'_>,
    tables: &[ReplicatedTable],
    control: &Control,
    each: impl Fn(usize, &Fields) -> Result<(), E> + Sync,
) -> Result<Copied, InitialError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let takers = (0..source.workers.max(1))
        .map(|_| (Fields::default(), None))
        .collect();
    workers::run(source, tables, takers, control, |fields, table, piece| {
        let at = piece.table();
        piece.read(|line| {
            fields.read(line);
            each(at, fields).map_err(|error| InitialError::Taken {
                table: table.to_string(),
                source: error.into(),
            })
        })
    })
}
