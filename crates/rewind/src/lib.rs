//! Puts a Postgres database back to a past state.
//!
//! ```text
//!   take_template ─┐                                  ┌─ clone of the template
//!   take_backup   ─┼─▶ Base … recording … ─▶ rewind ──┼─ backup + archived WAL to the exact commit, in a private server
//!   adopt_backup  ─┘                         (Point)  ├─ backup as it is
//!   dump, hold    ─────────────────────────────────── └─ dump of a database, in a private server
//! ```
//!
//! The wanted state is a [`Point`]: sets of recorded transactions that must be in and out. After
//! rewinding, the server itself is asked which transactions it holds (`pg_xact_status`), and a
//! state that is not the wanted one is an error, never a warning. [`pins`] makes sequences and
//! clocks of a rewound database answer as recorded. The source is R³ §5.2.
//!
//! **What this crate does not do**: it replays no transactions. A [`Rewound`] database may lack
//! some that no WAL could bring back, and [`Rewound::missing`] lists them. It compares no tables
//! (`hindcast-state` does).
//!
//! **Where to start reading**: [`rewind`].
//!
//! **The invariant to keep**: a recorded server and its database are only read. All that is written
//! is a clone, a copy, or a new folder.

mod backup;
mod check;
mod cloned;
mod dump;
mod error;
mod mark;
pub mod pins;
mod point;
mod recover;
mod rewound;
mod server;
mod template;
mod wal;

pub use backup::{adopt_backup, take_backup};
pub use dump::{Elsewhere, Held, Hidden, dump, hold};
pub use error::{RewindError, Session};
pub use hindcast_pg::Lsn;
pub use point::{Options, Point, Progress, Reached, Step};
pub use rewound::{Kept, Rewound, rewind};
pub use template::{Template, drop_template, take_template, take_template_for, templates};
