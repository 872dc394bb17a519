//! What can be wrong with a ledger, and why an import is refused.

use std::path::PathBuf;

use crate::{InputError, TargetError, Trouble};

/// What went wrong with the ledger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The database failed.
    #[error("{}: {trouble} (while {doing})", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The kind of trouble.
        trouble: Trouble,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
    /// The database cannot be created.
    #[error(transparent)]
    Target(Box<TargetError>),
    /// What the ledger says cannot be true. Nothing was changed.
    #[error("{}: the ledger is damaged: {what}; restore the database from a backup, it was left as it is", path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What cannot be true.
        what: String,
    },
    /// The ledger has another version than this program writes: a later one, or an older one that could not be upgraded. Nothing
    /// was changed.
    #[error("{}: the ledger has version {found}, expected {expected}; {remedy}", path.display())]
    Version {
        /// The database.
        path: PathBuf,
        /// The version found.
        found: i64,
        /// The version that this program writes.
        expected: i64,
        /// What to do.
        remedy: String,
    },
    /// There is no database, or no ledger in it.
    #[error("{}: no run was ever started here; check the target", path.display())]
    Missing {
        /// The database.
        path: PathBuf,
    },
    /// No run of that name.
    #[error("no run is called {run}; see nightly-import status for those that there are")]
    UnknownRun {
        /// The name.
        run: String,
    },
    /// Another process goes on with this run.
    #[error(
        "run {run} was taken over by pid {pid} on {host} at {since}; this process can no longer write"
    )]
    Fenced {
        /// The run.
        run: String,
        /// The machine of the process that has it now.
        host: String,
        /// That process.
        pid: i64,
        /// Since when.
        since: String,
    },
    /// Counts do not agree. Nothing of the transaction was written.
    #[error(
        "run {run} does not balance: {what}; nothing of this transaction was written; find out why before the next run, beginning \
         with nightly-import status {run}"
    )]
    Unbalanced {
        /// The run.
        run: String,
        /// The counts, and what they should be.
        what: String,
    },
}

/// Why a look-up came to no decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookUpError {
    /// The input, target or pipeline is not the one that the ledger describes.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The ledger cannot be read, or is damaged.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// An input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
}

/// Why an import is refused until somebody decides. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The input of an unfinished run has become shorter.
    #[error(
        "{}: was truncated: it has {found} bytes, run {run} began with {expected} and committed {committed}{}; \
         put the whole file back, and start again",
        path.display(),
        if *same { ", and up to there it is identical" } else { "" }
    )]
    InputTruncated {
        /// The input.
        path: PathBuf,
        /// The run that is not finished.
        run: String,
        /// Its size now, in bytes.
        found: u64,
        /// Its size when the run began.
        expected: u64,
        /// Bytes that were committed of it.
        committed: u64,
        /// True if the committed part is still there unchanged.
        same: bool,
    },
    /// The input of an unfinished run has other content.
    #[error(
        "{}: was replaced: its first {committed} bytes are not those that run {run} committed; put the first file back, \
         or give this one another name",
        path.display()
    )]
    InputReplaced {
        /// The input.
        path: PathBuf,
        /// The run that is not finished.
        run: String,
        /// Bytes that were committed of the first content.
        committed: u64,
    },
    /// The input has grown since it was taken.
    #[error(
        "{}: has grown: {found} bytes, run {run} knew {expected} of them; --accept-grown takes the added records",
        path.display()
    )]
    InputGrown {
        /// The input.
        path: PathBuf,
        /// The run that took it, or is not finished with it.
        run: String,
        /// Its size now, in bytes.
        found: u64,
        /// Its size then.
        expected: u64,
    },
    /// The input has grown inside a record that is already stored.
    #[error(
        "{}: has grown inside its last record, which run {run} has stored; give the added records in a file of their own",
        path.display()
    )]
    InputGrownInRecord {
        /// The input.
        path: PathBuf,
        /// The run that stored the record.
        run: String,
    },
    /// The pipeline is not the one that the unfinished run began with.
    #[error("run {run} began with other settings: {differences}; {remedy}")]
    PipelineChanged {
        /// The run that is not finished.
        run: String,
        /// What differs: name, found, expected.
        differences: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The unfinished run has inputs that were not given.
    #[error("run {run} is not finished and also reads {}; give all its inputs", path.display())]
    InputMissing {
        /// The run.
        run: String,
        /// The input that was not given, as the run knew it.
        path: PathBuf,
    },
    /// The inputs belong to two unfinished runs.
    #[error("runs {one} and {other} are both unfinished; give the inputs of one of them only")]
    TwoRuns {
        /// One.
        one: String,
        /// The other.
        other: String,
    },
    /// The same file was given twice.
    #[error("{} and {} have the same content; give one of them", one.display(), other.display())]
    SameContent {
        /// One.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// Either of two files may be an input of which nothing is committed, and that is no longer where it was.
    #[error("{} and {} may both be {}, of which run {run} has committed nothing; put that one back where it was", one.display(), other.display(), path.display())]
    Ambiguous {
        /// One.
        one: PathBuf,
        /// The other.
        other: PathBuf,
        /// The input, as the run knew it.
        path: PathBuf,
        /// The run.
        run: String,
    },
    /// Rows were stored, and the table is no longer there.
    #[error(
        "run {run} stored {stored} rows in table {table}, and there is no such table now; restore it"
    )]
    TableMissing {
        /// The run.
        run: String,
        /// The table.
        table: String,
        /// Records that were stored.
        stored: u64,
    },
    /// Rows were stored, and the table is empty.
    #[error("run {run} stored {stored} rows in table {table}, and it is empty now; restore them")]
    TableEmpty {
        /// The run.
        run: String,
        /// The table.
        table: String,
        /// Records that were stored.
        stored: u64,
    },
}
