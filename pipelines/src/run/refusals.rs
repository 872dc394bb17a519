//! What the errors of ledger, lock and sink mean for the exit code.

use gegendruck_checkpoints::{LedgerError, LockError, LookUpError, Refusal, Trouble};
use gegendruck_stages::sql::SqlError;

use crate::exit::{Exit, Refused};

/// What an error of the ledger means for the exit code.
pub fn refused(error: LedgerError) -> Refused {
    let exit = match &error {
        LedgerError::Fenced { .. } => Exit::Held,
        LedgerError::Unbalanced { .. } => Exit::Unbalanced,
        LedgerError::Target(_)
        | LedgerError::Version { .. }
        | LedgerError::Missing { .. }
        | LedgerError::UnknownRun { .. } => Exit::Usage,
        LedgerError::Database { trouble: Trouble::ReadOnly, .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    Refused::new(exit, error.to_string())
}

pub(crate) fn look_up_refused(error: LookUpError) -> Refused {
    match error {
        LookUpError::Refused(
            refusal @ (Refusal::TableMissing { .. } | Refusal::TableEmpty { .. }),
        ) => Refused::new(Exit::Unbalanced, refusal.to_string()),
        LookUpError::Refused(refusal) => Refused::new(Exit::Mismatch, refusal.to_string()),
        LookUpError::Ledger(error) => refused(error),
        LookUpError::Input(error) => Refused::failed(with_cause(&error)),
        other => Refused::failed(other.to_string()),
    }
}

pub(crate) fn lock_refused(error: &LockError) -> Refused {
    match error {
        // Its holder has created the lock at this moment, and not said yet who it is.
        LockError::Held { pid, .. } if pid == "unknown" => {
            let words = "another run is just starting to write this target; wait for it";
            Refused::new(Exit::Held, words)
        }
        LockError::Held { .. } => Refused::new(Exit::Held, error.to_string()),
        _ => Refused::usage(with_cause(error)),
    }
}

pub(crate) fn sql_refused(error: SqlError) -> Refused {
    match error {
        SqlError::NoTable { .. } | SqlError::TableDiffers { .. } => {
            Refused::usage(error.to_string())
        }
        SqlError::Database { trouble: Trouble::ReadOnly, .. } => Refused::usage(error.to_string()),
        SqlError::Ledger(error) => refused(error),
        other => Refused::failed(other.to_string()),
    }
}

/// An error with its causes, in one line.
pub fn with_cause(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(&format!(" ({words})"));
        }
        cause = error.source();
    }
    text
}
