//! Progress, rejects and reports of runs, kept in the target database; and the files beside it.
//!
//! ```text
//!  inputs --- content ---> [ look-up ] <--- runs, progress ---+
//!                              |                              |
//!            new, go on, done, refused                        |
//!                              v                              |
//!  PATH.lock --- one holder: [ run ] --- one transaction: [ ledger ] in PATH
//!                              |           fence, rows, rejects, progress, counts
//!                              v
//!                      PATH.status.json, replaced every second
//! ```
//!
//! - A run is known by the content of its inputs, never by their names.
//! - What is damaged is refused by name. It is never taken for a first run, and never overwritten.
//! - Every write of a run checks its fence: a run that was taken over can no longer write.
//! - The database file is opened by SQLite and by nothing else: closing another handle of it would drop SQLite's own locks.
//! - Times in the ledger are the database's clock, in UTC.

mod fingerprint;
mod input;

mod lock;
mod process;
mod sqlite;
mod status;
mod target;

mod schema;

mod checks;
mod ledger;

mod attempt;
mod commit;

mod decision;
mod look_up;
mod query;

mod error;

#[cfg(test)]
mod tests;

pub use attempt::{Attempt, Mark, RunSpec};
pub use commit::{
    AddedRows, Settled, Ticket, added_rows, commits, complete, fence, has_tried, note_floor,
    totals, write_progress, write_rejects, write_tried,
};
pub use decision::{Accept, Decision, Done, GoOn, PipelineIdentity, ResumePoint};
pub use error::{LedgerError, LookUpError, Refusal};
pub use fingerprint::Fingerprint;
pub use input::{InputError, InputFile, prefix, prefixes};
pub use ledger::Ledger;
pub use lock::{Lock, LockError};
pub use process::Process;
pub use query::{
    AttemptInfo, AuditEntry, InputInfo, KeptReport, RejectInfo, RejectState, RunInfo, RunState,
};
pub use schema::{VERSION, ddl};
pub use sqlite::{Trouble, quoted, trouble};
pub use status::{Status, StatusError, StatusFile};
pub use target::{Target, TargetError};
