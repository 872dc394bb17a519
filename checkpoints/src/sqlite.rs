//! What is SQLite's own: connection settings, identifiers and the classes of its errors.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

/// How long SQLite itself waits for a lock, on its own thread. Longer waits are the caller's, who can be cancelled in them.
const BUSY: Duration = Duration::from_millis(500);

/// Settings of a connection that may write, and changes none of the database's own.
pub(crate) fn as_it_is(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(BUSY)
        .disable_statement_logging()
}

/// Settings of a connection that may write.
pub(crate) fn writer(path: &Path, max_pages: Option<u32>) -> SqliteConnectOptions {
    let options = as_it_is(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // In KiB, as it is negative.
        .pragma("cache_size", "-8192")
        .pragma("temp_store", "FILE");
    match max_pages {
        Some(pages) => options.pragma("max_page_count", pages.to_string()),
        None => options,
    }
}

/// Settings of a connection that only reads; `immutable`: as if nobody could write.
pub(crate) fn reader(path: &Path, immutable: bool) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .immutable(immutable)
        .busy_timeout(BUSY)
        .pragma("cache_size", "-2048")
        .disable_statement_logging()
}

/// An SQL identifier that is taken as it is written, whatever is in it.
///
/// ```
/// assert_eq!(gegendruck_checkpoints::quoted("claims 26\""), "\"claims 26\"\"\"");
/// ```
pub fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// What kind of trouble an error of the database is, by what happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// Somebody else holds the database: try again later. The transaction may be gone.
    Busy,
    /// No room is left. The transaction is gone.
    Full,
    /// The disk failed. The transaction may be gone.
    Io,
    /// The database may not be written.
    ReadOnly,
    /// A process died in a transaction that is to be rolled back before anybody reads, and who only reads may not do that.
    LeftOpen,
    /// It is no database, or a damaged one.
    Damaged,
    /// A row breaks a rule of its table: SQLite's words, which name columns and hold no values. The transaction goes on.
    Constraint(String),
    /// A trigger refused a row. The transaction may be gone.
    Trigger,
    /// The connection is gone.
    Gone,
    /// Anything else, in the database's words.
    Other(String),
}

/// The kind of trouble that an error is.
pub fn trouble(error: &sqlx::Error) -> Trouble {
    let database = match error {
        sqlx::Error::Database(database) => database,
        sqlx::Error::WorkerCrashed | sqlx::Error::PoolClosed => return Trouble::Gone,
        sqlx::Error::Io(_) => return Trouble::Io,
        other => return Trouble::Other(other.to_string()),
    };
    let code: i32 = database.code().and_then(|code| code.parse().ok()).unwrap_or(1);
    // The low byte is SQLite's primary result code.
    match (code & 0xff, code) {
        (5 | 6, _) => Trouble::Busy,
        (13, _) => Trouble::Full,
        (10, _) => Trouble::Io,
        // SQLITE_READONLY_RECOVERY, SQLITE_READONLY_ROLLBACK
        (8, 264 | 776) => Trouble::LeftOpen,
        (8, _) => Trouble::ReadOnly,
        (11 | 26, _) => Trouble::Damaged,
        (14, _) => {
            Trouble::Other("the file cannot be opened; check the folder's permissions".into())
        }
        (19, 1811) => Trouble::Trigger,
        (19, _) => Trouble::Constraint(database.message().into()),
        _ => Trouble::Other(database.message().into()),
    }
}

/// What happened and what to do, in plain words.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trouble::Busy => "somebody else holds the database; close the other program, and start again",
            Trouble::Full => "disk full; make room, and start again",
            Trouble::Io => "the disk failed; see the system's log, and start again when it works",
            Trouble::ReadOnly => {
                "may not be written; give this user write permission on the file, its -wal and -shm if there, and its folder"
            }
            Trouble::LeftOpen => {
                "a process died in a transaction that is to be rolled back; the next run does that, or sqlite3 when it opens the file"
            }
            Trouble::Damaged => {
                "is no SQLite database, or a damaged one; restore it from a backup, it was left as it is"
            }
            Trouble::Trigger => "a trigger refused a row; take the trigger away, or give rows that it takes",
            Trouble::Gone => "the connection is gone; start again",
            Trouble::Constraint(words) | Trouble::Other(words) => words,
        })
    }
}
