//! Failures, by what happens next.

use std::time::Duration;

use crate::{Position, Reason};

/// Why a call gave no result for a record. The type says what happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The data is bad: the record becomes a dead letter, and the run goes on.
    Reject(Reason),
    /// The world is bad: the record is tried again. When the service as a whole is down, the stage waits.
    Transient {
        /// What went wrong, without field values.
        message: String,
        /// How long the service asked to be left alone, if it did.
        retry_after: Option<Duration>,
    },
    /// Nothing can go on: what is done is committed, and the run ends so that it can be taken up again.
    Fatal(String),
}

impl Failure {
    /// A transient failure without a hint when to come back.
    pub fn transient(message: impl Into<String>) -> Failure {
        Failure::Transient { message: message.into(), retry_after: None }
    }
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Failure {
        Failure::Reject(reason)
    }
}

/// Settings that cannot work, refused before anything runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// An option names a stage that the pipeline does not have.
    #[error("no stage is called \"{name}\"; this pipeline has {known}")]
    UnknownStage {
        /// The name that was given.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// Two stages share a name.
    #[error("two stages are called \"{name}\"; give each a name of its own")]
    SameName {
        /// The name.
        name: String,
    },
    /// A width or bound of zero.
    #[error("{stage}: {what} is 0; it must be at least 1, or nothing would ever move")]
    Zero {
        /// The stage.
        stage: String,
        /// The setting.
        what: &'static str,
    },
    /// More than one worker for a source or a sink.
    #[error(
        "{stage}: found {found} workers; a source or a sink has one, the stages between can have more"
    )]
    OneWorker {
        /// The stage.
        stage: String,
        /// The workers asked for.
        found: usize,
    },
    /// A rate that nothing would ever move with.
    #[error("{stage}: rate {found} is not above 0; give one such as 0.5 or 200")]
    Rate {
        /// The stage.
        stage: String,
        /// The rate.
        found: String,
    },
    /// A setting of calls, for a stage that calls nobody.
    #[error(
        "{stage}: {what} is for stages that call somebody, and this one does not; leave it out"
    )]
    CallsNobody {
        /// The stage.
        stage: String,
        /// The setting.
        what: &'static str,
    },
    /// Something is larger than what must hold it.
    #[error(
        "{stage}: {what} {found} is more than {bound} {limit}; lower the one or raise the other"
    )]
    TooLarge {
        /// The stage.
        stage: String,
        /// The setting that is too large.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The setting that bounds it.
        bound: &'static str,
        /// That one's value.
        limit: u64,
    },
}

/// What a source could not do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// One sentence: what, where, and what to do.
    pub message: String,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl SourceError {
    /// An error that says it all.
    pub fn new(message: impl Into<String>) -> SourceError {
        SourceError { message: message.into(), source: None }
    }
}

/// What a sink could not do. Nothing of the group is in the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The target cannot be written.
    #[error("{0}")]
    Target(String),
    /// The run was told to stop while the target was waited for.
    #[error("told to stop while the target was waited for")]
    Stopped,
    /// Another run has taken over; this one can no longer write.
    #[error("{0}")]
    Fenced(String),
    /// Too many records were rejected for anything to be written.
    #[error("{0}")]
    Limit(String),
    /// Counts do not agree.
    #[error("{0}")]
    Unbalanced(String),
}

/// Why a run ended before all its input was settled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The source failed.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// The sink failed.
    #[error("{0}")]
    Sink(#[from] SinkError),
    /// A call said that nothing can go on.
    #[error("{stage}: {message}")]
    Fatal {
        /// The stage.
        stage: String,
        /// Its words.
        message: String,
    },
    /// Records came out of the source and have no verdict. A fault of a stage or of this crate.
    #[error("{missing} records have no verdict, the first at {at}; nothing of them was committed")]
    Unaccounted {
        /// How many.
        missing: u64,
        /// Where the first group with a gap begins.
        at: Position,
    },
    /// A task of the run panicked outside the handling of a record.
    #[error("internal error: {0}")]
    Panic(String),
}
