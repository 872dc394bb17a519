//! The SQL sink: rows, rejects, progress and counts, in one transaction for each group.
//!
//! ```text
//! group --> BEGIN IMMEDIATE --> fence --> rows --> rejects, attempts --> progress, counts --> COMMIT --> committed
//!              ^                           |                                                    |
//!     busy: wait, once more     key exists: a reject, a duplicate,                   outcome unknown: open again,
//!                               or an update                                         ask the ledger
//! ```
//!
//! - A group is in the target as a whole or not at all: its rows are there if and only if its span is committed.
//! - Equal keys are settled by the order of the source, inside a group and against the table. Batch sizes change nothing.
//! - After an error other than a rejected row, nothing more runs on that connection: its transaction may be gone, and a statement
//!   outside of one would stay. The connection is closed, which rolls back what is open.
//! - What belongs to SQLite alone is in `sqlite.rs`; another SQL target needs its own of that.

mod limit;
mod rows;
mod sqlite;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use gegendruck::{Clock, Committed, Group, Position, Sink, SinkContext, SinkError, Tally};
use gegendruck_checkpoints::{
    AddedRows, LedgerError, Settled, Target, Ticket, Trouble, added_rows, commits, complete, fence,
    has_tried, note_floor, totals, trouble, write_progress, write_rejects, write_tried,
};
use sqlx::Executor;
use sqlx::sqlite::SqliteConnection;

pub use limit::{MaxErrors, MaxErrorsError};
pub use sqlite::{TableState, check_table};

use crate::value::Row;
use rows::{Statements, Triggers};

/// What becomes of a row whose key is in the table already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// It is a reject, `key_exists`.
    #[default]
    Error,
    /// It is a duplicate; the table keeps the row that it has.
    Skip,
    /// It replaces the row that the table has.
    Update,
}

impl Conflict {
    /// The word for it in flags and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Conflict::Error => "error",
            Conflict::Skip => "skip",
            Conflict::Update => "update",
        }
    }
}

/// Whether a table that is not there is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// It is created.
    #[default]
    IfMissing,
    /// It is an error.
    Never,
}

/// Why rows cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// There is no such table, and it is not to be created.
    #[error("{}: there is no table {table}; create it, or leave out --no-create", path.display())]
    NoTable {
        /// The database.
        path: PathBuf,
        /// The table.
        table: String,
    },
    /// The table is there, and rows do not fit into it.
    #[error("{}: table {table} does not fit: {}; change the table, or name another one with --table", path.display(), differences.join("; "))]
    TableDiffers {
        /// The database.
        path: PathBuf,
        /// The table.
        table: String,
        /// What differs, each as "column: found, expected".
        differences: Vec<String>,
    },
    /// The database failed.
    #[error("{}: {trouble}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// The kind of trouble.
        trouble: Trouble,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
    /// The ledger failed, or the run was taken over.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Settings of a [`SqlSink`].
#[derive(Clone, Debug)]
#[must_use = "open it"]
pub struct SqlSinkBuilder<T> {
    target: Target,
    ticket: Ticket,
    table: String,
    stage: String,
    conflict: Conflict,
    create: Create,
    max_errors: MaxErrors,
    retry_for: Duration,
    finish: Vec<String>,
    rows: PhantomData<fn(T)>,
    #[cfg(test)]
    faults: tests::Faults,
}

impl<T: Row> SqlSinkBuilder<T> {
    /// The table's name; default: the one that the rows name.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// The sink's name in rejects; default: `store`.
    pub fn stage(mut self, name: impl Into<String>) -> Self {
        self.stage = name.into();
        self
    }

    /// What becomes of rows whose key exists; default: they are rejects.
    pub fn on_conflict(mut self, conflict: Conflict) -> Self {
        self.conflict = conflict;
        self
    }

    /// Whether a missing table is created; default: it is.
    pub fn create(mut self, create: Create) -> Self {
        self.create = create;
        self
    }

    /// How many rejects a run may have; default: [`MaxErrors::Default`].
    pub fn max_errors(mut self, max_errors: MaxErrors) -> Self {
        self.max_errors = max_errors;
        self
    }

    /// How long it waits for a database that somebody else holds; default: 15 minutes.
    pub fn retry_for(mut self, retry_for: Duration) -> Self {
        self.retry_for = retry_for;
        self
    }

    /// Adds statements that run in the transaction that completes the run, in the order in which they are added.
    pub fn finish(mut self, statements: impl Into<String>) -> Self {
        self.finish.push(statements.into());
        self
    }

    async fn connect(&self) -> Result<SqliteConnection, sqlx::Error> {
        let connection = self.target.connect().await?;
        #[cfg(test)]
        let connection = self.faults.install(connection).await;
        Ok(connection)
    }

    /// Opens the target, and creates the table if it is missing.
    ///
    /// # Errors
    /// The table does not fit, the run was taken over, or the database failed.
    ///
    /// # Cancel safety
    /// Dropped, the table was created or not.
    pub async fn open(self) -> Result<SqlSink<T>, SqlError> {
        let path = self.target.path().to_path_buf();
        let failed =
            |source| SqlError::Database { path: path.clone(), trouble: trouble(&source), source };
        let mut connection = self.connect().await.map_err(failed)?;
        let file = self.target.file().map_err(|source| failed(source.into()))?;
        if let TableState::Missing = check_table(&self.target, &T::TABLE, &self.table).await? {
            if self.create == Create::Never {
                return Err(SqlError::NoTable { path, table: self.table });
            }
            let ddl = T::TABLE.sqlite_ddl(&self.table);
            let mut patience = Patience::new(self.retry_for);
            while let Err(error) = sqlx::raw_sql(&ddl).execute(&mut connection).await {
                if trouble(&error) != Trouble::Busy || !patience.wait(None).await {
                    return Err(failed(error));
                }
            }
        }
        let decides = sqlite::decides_conflicts(&mut connection, &self.table).await;
        let triggers = sqlite::has_triggers(&mut connection, &self.table).await;
        let floor = sqlite::highest_row(&mut connection, &T::TABLE, &self.table).await;
        let floor = floor.map_err(failed)?;
        let triggers = match (triggers.map_err(failed)?, floor) {
            (false, _) => Triggers::None,
            (true, Some(_)) => Triggers::Counted,
            (true, None) => Triggers::Uncounted,
        };
        let decides = decides.map_err(failed)?;
        let statements = Statements::new(&T::TABLE, &self.table, decides, triggers);
        let total = totals(&mut connection, &self.ticket).await?;
        let has_tried = has_tried(&mut connection, &self.ticket).await?;
        let connection = Some(connection);
        Ok(SqlSink { connection, statements, total, floor, has_tried, file, settings: self })
    }
}

/// Writes rows of type `T` into a table, with the run's ledger beside it.
pub struct SqlSink<T> {
    settings: SqlSinkBuilder<T>,
    statements: Statements,
    /// In no transaction. Taken out for each one, and put back when that has ended well.
    connection: Option<SqliteConnection>,
    /// The run's counts over all attempts, as far as they are committed.
    total: Tally,
    /// The highest row number before this attempt, if row numbers only grow.
    floor: Option<i64>,
    /// The ledger has attempts of records that are not settled.
    has_tried: bool,
    /// The database's file.
    file: (u64, u64),
}

impl<T: Row> SqlSink<T> {
    /// A sink for the run that `ticket` may write.
    pub fn builder(target: &Target, ticket: &Ticket) -> SqlSinkBuilder<T> {
        SqlSinkBuilder {
            target: target.clone(),
            ticket: ticket.clone(),
            table: T::TABLE.name.into(),
            stage: "store".into(),
            conflict: Conflict::default(),
            create: Create::default(),
            max_errors: MaxErrors::Default,
            retry_for: Duration::from_secs(15 * 60),
            finish: Vec::new(),
            rows: PhantomData,
            #[cfg(test)]
            faults: tests::Faults::default(),
        }
    }
}

/// Why a transaction did not take.
#[derive(Debug)]
enum Failed {
    /// Somebody else holds the database. Nothing was written.
    Busy,
    /// Nothing was written.
    Target(Trouble),
    /// Nothing was written.
    Sink(SinkError),
}

/// What became of a transaction that was sent to be committed.
#[derive(Debug)]
enum Sent {
    Committed,
    /// There was no good answer. If it was made, it is the run's commit of that number.
    Unknown {
        number: u64,
        trouble: Trouble,
    },
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Failed {
        match trouble(&error) {
            Trouble::Busy => Failed::Busy,
            other => Failed::Target(other),
        }
    }
}

impl From<LedgerError> for Failed {
    fn from(error: LedgerError) -> Failed {
        match error {
            LedgerError::Database { trouble: Trouble::Busy, .. } => Failed::Busy,
            LedgerError::Database { trouble, .. } => Failed::Target(trouble),
            LedgerError::Fenced { .. } => Failed::Sink(SinkError::Fenced(error.to_string())),
            LedgerError::Unbalanced { .. } => {
                Failed::Sink(SinkError::Unbalanced(error.to_string()))
            }
            other => Failed::Sink(SinkError::Target(other.to_string())),
        }
    }
}

impl<T: Row + Send + Sync + 'static> SqlSink<T> {
    /// A transaction that holds the database's one write lock.
    async fn begin(&mut self) -> Result<SqliteConnection, Failed> {
        // SQLite would go on writing to a file that has no name any more.
        if self.settings.target.file().ok() != Some(self.file) {
            let words =
                "the database was moved, deleted or replaced while the run wrote it; put it back";
            return Err(Failed::Target(Trouble::Other(words.into())));
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.settings.connect().await?,
        };
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await?;
        Ok(connection)
    }

    /// Sends a transaction to be committed, as the run's commit of that number.
    async fn end(
        &mut self,
        mut connection: SqliteConnection,
        number: u64,
        context: Option<&SinkContext>,
    ) -> Sent {
        let commit = sqlx::query("COMMIT").execute(&mut connection);
        let done = match context {
            Some(context) => context.made_durable(commit).await,
            None => commit.await,
        };
        match done {
            #[cfg(test)]
            Ok(_) if self.settings.faults.loses_answer() => {
                Sent::Unknown { number, trouble: Trouble::Gone }
            }
            Ok(_) => {
                self.connection = Some(connection);
                Sent::Committed
            }
            Err(error) => Sent::Unknown { number, trouble: trouble(&error) },
        }
    }

    /// Writes a group in one transaction.
    async fn write(
        &mut self,
        group: &Group<T>,
        context: Option<&SinkContext>,
    ) -> Result<(Committed, Sent), Failed> {
        let mut connection = self.begin().await?;
        let number = fence(&mut connection, &self.settings.ticket).await?;
        if number == 1
            && let Some(floor) = self.floor
        {
            note_floor(&mut connection, &self.settings.ticket, floor).await?;
        }
        let conflict = self.settings.conflict;
        let stage = &self.settings.stage;
        let written =
            rows::write(&mut connection, &self.statements, conflict, stage, group).await?;
        let tally = Tally {
            read: group.amount.records,
            stored: written.stored,
            updated: written.updated,
            rejected: (group.rejects.len() + written.rejects.len()) as u64,
            filtered: group.filtered.total(),
            duplicate: written.duplicate,
        };
        let rejects = group.rejects.iter().chain(&written.rejects);
        let judged = self.settings.max_errors.judge(group.start, &self.total, &tally, rejects);
        let stop = judged.map_err(Failed::Sink)?;
        write_rejects(&mut connection, &self.settings.ticket, &group.rejects).await?;
        write_rejects(&mut connection, &self.settings.ticket, &written.rejects).await?;
        if self.has_tried || !group.tried.is_empty() {
            write_tried(&mut connection, &self.settings.ticket, &group.tried).await?;
        }
        let settled = Settled {
            tally: &tally,
            filtered: &group.filtered,
            checkpoints: &group.checkpoints,
            added: written.inserted,
        };
        write_progress(&mut connection, &self.settings.ticket, settled).await?;
        let sent = self.end(connection, number, context).await;
        Ok((Committed { tally, stop }, sent))
    }

    /// Whether the run's commit of that number was made. Waits for the old session to be gone.
    async fn was_committed(&mut self, number: u64) -> Result<bool, Failed> {
        let mut connection = self.begin().await?;
        let commits = commits(&mut connection, &self.settings.ticket).await?;
        sqlx::query("ROLLBACK").execute(&mut connection).await?;
        self.connection = Some(connection);
        Ok(commits >= number)
    }

    /// Completes the run in one transaction.
    async fn finish(&mut self) -> Result<Sent, Failed> {
        let mut connection = self.begin().await?;
        let number = fence(&mut connection, &self.settings.ticket).await?;
        self.are_there(&mut connection).await?;
        for statements in &self.settings.finish {
            connection.execute(statements.as_str()).await?;
        }
        let total = complete(&mut connection, &self.settings.ticket).await?;
        let differs = counts(&total).into_iter().zip(counts(&self.total)).find(|(a, b)| a != b);
        if let Some(((verdict, ledger), (_, own))) = differs {
            return Err(self
                .unbalanced(format!("the ledger has {ledger} records {verdict}, expected {own}")));
        }
        Ok(self.end(connection, number, None).await)
    }

    /// Fails if the table has not got the rows that were added, as far as they can be counted.
    async fn are_there(&self, connection: &mut SqliteConnection) -> Result<(), Failed> {
        let AddedRows { floor, expected } = added_rows(connection, &self.settings.ticket).await?;
        let table = &self.settings.table;
        let words = match floor {
            Some(floor) => match sqlite::rows_above(connection, table, floor).await? {
                found if found == expected => return Ok(()),
                found => format!("{found} new rows, expected {expected}"),
            },
            None if sqlite::has_rows(connection, table, expected).await? => return Ok(()),
            None => format!("fewer than the {expected} rows that were added"),
        };
        let why = "so somebody else writes it, or a trigger deletes some";
        Err(self.unbalanced(format!("table {table} has {words}, {why}")))
    }

    fn unbalanced(&self, what: String) -> Failed {
        let run = self.settings.ticket.run().into();
        LedgerError::Unbalanced { run, what }.into()
    }

    /// Whether what was sent is committed; asks the ledger until it answers. `Err` if it is not, and why.
    async fn settle(
        &mut self,
        sent: Sent,
        patience: &mut Patience,
        context: Option<&SinkContext>,
    ) -> Result<(), Failed> {
        let Sent::Unknown { number, trouble } = sent else { return Ok(()) };
        loop {
            match self.was_committed(number).await {
                Ok(true) => return Ok(()),
                Ok(false) if trouble == Trouble::Busy => return Err(Failed::Busy),
                Ok(false) => return Err(Failed::Target(trouble)),
                Err(Failed::Busy) if patience.wait(context).await => {}
                Err(Failed::Busy) => {
                    let words = "whether the last commit was made is not known; the next run asks the ledger";
                    return Err(Failed::Target(Trouble::Other(words.into())));
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    /// The error that ends the run, for the group that begins at `at`.
    fn error(&self, failed: Failed, at: Option<Position>) -> SinkError {
        let trouble = match failed {
            Failed::Sink(error) => return error,
            Failed::Busy => Trouble::Busy,
            Failed::Target(trouble) => trouble,
        };
        let path = self.settings.target.path().display();
        let goes_on = match at {
            Some(at) => format!("the run goes on at {at}"),
            None => "all records are committed, the run is completed then".into(),
        };
        SinkError::Target(format!("{path}: {trouble}; {goes_on}"))
    }
}

fn counts(tally: &Tally) -> [(&'static str, u64); 6] {
    let Tally { read, stored, updated, rejected, filtered, duplicate } = *tally;
    [
        ("read", read),
        ("stored", stored),
        ("updated", updated),
        ("rejected", rejected),
        ("filtered", filtered),
        ("duplicate", duplicate),
    ]
}

/// Waits between tries, longer each time, until the time for it is over.
struct Patience {
    clock: Clock,
    limit: Duration,
    next: Duration,
    /// The run was told to stop meanwhile.
    stopped: bool,
}

impl Patience {
    /// Who tells a run to stop does not wait for a target that others hold.
    const AFTER_A_STOP: Duration = Duration::from_secs(2);

    fn new(limit: Duration) -> Patience {
        let next = Duration::from_millis(20);
        Patience { clock: Clock::start(), limit, next, stopped: false }
    }

    /// Waits; false, without waiting, if the time for it is over.
    async fn wait(&mut self, context: Option<&SinkContext>) -> bool {
        let left = self.limit.saturating_sub(self.clock.elapsed());
        if left.is_zero() {
            return false;
        }
        let wait = tokio::time::sleep(self.next.min(left));
        self.next = (self.next * 2).min(Duration::from_secs(1));
        match context {
            Some(context) if !self.stopped => tokio::select! {
                biased;
                () = context.stopping() => {
                    self.stopped = true;
                    self.limit = self.limit.min(self.clock.elapsed() + Self::AFTER_A_STOP);
                }
                () = context.paused(wait) => {}
            },
            Some(context) => context.paused(wait).await,
            None => wait.await,
        }
        true
    }
}

impl<T: Row + Send + Sync + 'static> SqlSink<T> {
    async fn commit_group(
        &mut self,
        group: &Group<T>,
        context: Option<&SinkContext>,
    ) -> Result<Committed, SinkError> {
        let mut patience = Patience::new(self.settings.retry_for);
        loop {
            let tried = match self.write(group, context).await {
                Ok((committed, sent)) => {
                    self.settle(sent, &mut patience, context).await.map(|()| committed)
                }
                Err(failed) => Err(failed),
            };
            match tried {
                Ok(committed) => {
                    self.total.add(&committed.tally);
                    self.has_tried = !group.tried.is_empty();
                    return Ok(committed);
                }
                Err(Failed::Busy) if patience.wait(context).await => {}
                Err(Failed::Busy) if patience.stopped => return Err(SinkError::Stopped),
                Err(failed) => return Err(self.error(failed, Some(group.start))),
            }
        }
    }
}

impl<T: Row + Send + Sync + 'static> Sink<T> for SqlSink<T> {
    async fn commit(
        &mut self,
        group: Group<T>,
        context: &SinkContext,
    ) -> Result<Committed, SinkError> {
        self.commit_group(&group, Some(context)).await
    }

    /// Judges and completes the run as a whole, over all its attempts.
    async fn complete(&mut self, context: &SinkContext) -> Result<(), SinkError> {
        self.settings.max_errors.judge_at_end(&self.total)?;
        let mut patience = Patience::new(self.settings.retry_for);
        loop {
            let tried = match self.finish().await {
                Ok(sent) => self.settle(sent, &mut patience, Some(context)).await,
                Err(failed) => Err(failed),
            };
            match tried {
                Ok(()) => return Ok(()),
                Err(Failed::Busy) if patience.wait(Some(context)).await => {}
                Err(Failed::Busy) if patience.stopped => return Err(SinkError::Stopped),
                Err(failed) => return Err(self.error(failed, None)),
            }
        }
    }
}
