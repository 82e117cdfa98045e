//! Puts a Postgres database back to a past state.
//!
//! ```text
//!   take_template ─┐                                  ┌─ clone of the template
//!   take_backup   ─┼─▶ Base … recording … ─▶ rewind ──┼─ backup + archived WAL to the exact commit, in a private server
//!   adopt_backup  ─┘                         (Point)  └─ backup as it is
//! ```
//!
//! The state that is wanted is a [`Point`]: sets of recorded transactions that must be in and out. After rewinding the server itself
//! is asked which transactions it holds (`pg_xact_status`), and a state that is not the wanted one is an error, never a warning. The
//! [`Rewound`] database may still lack transactions that no WAL could bring back: [`Rewound::missing`] lists them, and replaying them
//! is somebody else's business.
//!
//! Beside it there are [`cluster`], private servers that never outlive the process that started them, [`pins`], which make
//! sequences and clocks of a rewound database answer as recorded, and [`state`], digests and differences of what tables hold.
//!
//! Start reading at [`rewind`]. The invariant: a recorded server and its database are only ever read; all that is written is a clone,
//! a copy, or a new folder. The source is R³ §5.2.

mod backup;
mod check;
pub mod cluster;
mod error;
pub mod pins;
mod point;
mod recover;
mod rewound;
mod server;
pub mod state;
mod template;
mod wal;

pub use backup::{adopt_backup, take_backup};
pub use error::{RewindError, Session};
pub use hindcast_pg::Lsn;
pub use point::{Options, Point, Progress, Reached, Step};
pub use rewound::{Kept, Rewound, rewind};
pub use template::{drop_template, take_template};
