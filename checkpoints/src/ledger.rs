//! The ledger: opened, checked, and locked for one transaction at a time.
//!
//! ```text
//! open: database there? -- tables there? -- version -- checks --> ledger
//!          |                  |               |
//!       created            created, unless    older: upgraded, after the checks
//!                          a run has written here before
//! ```
//!
//! - A connection whose transaction was left in the middle is closed and never used again.
//! - Nothing is written before the ledger was checked as a whole.

use std::path::PathBuf;
use std::time::Duration;

use gegendruck::{Clock, Position};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Row};

use crate::schema::{Definition, TABLES, VERSION, first_row, upgrade};
use crate::target::PATIENCE;
use crate::{LedgerError, Target, TargetError, Trouble, trouble};

/// The ledger of one target.
pub struct Ledger {
    target: Target,
    connection: Option<SqliteConnection>,
    created: bool,
    /// Of its tables.
    version: i64,
    /// It was looked at as a whole, and nothing was found that cannot be true.
    pub(crate) checked: bool,
    /// How long a run's attempt waits for the database to say something of itself.
    pub(crate) patience: Duration,
}

impl Ledger {
    /// Opens the ledger of `target` for writing. Creates the database and the tables where they are missing, and upgrades those of
    /// an older version; `pipeline` is noted as the one that created the database.
    ///
    /// Hold the target's [`Lock`](crate::Lock) before.
    ///
    /// # Errors
    /// The database cannot be opened or created, is damaged, or has a ledger that this program does not know or may not upgrade.
    /// Nothing was changed then.
    ///
    /// # Cancel safety
    /// A dropped future leaves an empty database or a whole ledger.
    pub async fn open(target: &Target, pipeline: &str) -> Result<Ledger, LedgerError> {
        let empty = target.exists() && target.path().metadata().is_ok_and(|file| file.len() == 0);
        if empty && target.status_path().exists() {
            return Err(lost(target, "the file is empty"));
        }
        let created =
            target.create_if_missing().map_err(|error| LedgerError::Target(Box::new(error)))?;
        let mut ledger = Ledger { created: created || empty, ..Ledger::closed(target) };
        ledger.version = match ledger.version().await? {
            Some(version) => version,
            None => {
                if !created {
                    ledger.not_lost()?;
                }
                // A process may have died between creating the file and the tables.
                ledger.created = ledger.created || !ledger.has_tables().await?;
                ledger.create(pipeline).await?;
                VERSION
            }
        };
        ledger.check().await?;
        if ledger.is_older() {
            ledger.upgrade(ledger.version).await?;
            ledger.version = VERSION;
        }
        Ok(ledger)
    }

    /// Opens the ledger of `target` for writing, as it is: creates, upgrades and checks nothing.
    ///
    /// # Errors
    /// There is no database or no ledger, or it cannot be read.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing open.
    pub async fn open_existing(target: &Target) -> Result<Ledger, LedgerError> {
        let missing = || LedgerError::Missing { path: target.path().into() };
        if !target.exists() {
            return Err(missing());
        }
        let mut ledger = Ledger::closed(target);
        let version = ledger.version().await?.ok_or_else(missing)?;
        Ok(Ledger { version, ..ledger })
    }

    /// Opens the ledger of `target`, which may be an older one, for reading only; creates nothing, and checks it only when it is to
    /// decide something.
    ///
    /// # Errors
    /// There is no database or no ledger, or it cannot be read.
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing open.
    pub async fn read(target: &Target) -> Result<Ledger, LedgerError> {
        if !target.exists() {
            return Err(LedgerError::Missing { path: target.path().into() });
        }
        let mut ledger = Ledger::to_read(target).await?;
        match ledger.version().await? {
            Some(version) => Ok(Ledger { version, ..ledger }),
            None => {
                ledger.not_lost()?;
                Err(LedgerError::Missing { path: target.path().into() })
            }
        }
    }

    /// True if there is no database, or one without any table: what is opened then is the program's own.
    ///
    /// # Errors
    /// It cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn is_bare(target: &Target) -> Result<bool, LedgerError> {
        if !target.path().metadata().is_ok_and(|file| file.len() > 0) {
            return Ok(true);
        }
        Ledger::to_read(target).await?.has_tables().await.map(|has| !has)
    }

    fn closed(target: &Target) -> Ledger {
        Ledger {
            target: target.clone(),
            connection: None,
            created: false,
            version: VERSION,
            checked: false,
            patience: PATIENCE,
        }
    }

    async fn to_read(target: &Target) -> Result<Ledger, LedgerError> {
        let closed = Ledger::closed(target);
        let connection =
            target.connect_to_read().await.map_err(closed.failed("opening the database"))?;
        Ok(Ledger { connection: Some(connection), ..closed })
    }

    /// What a run says of itself from now on waits for a second at most, while others write the database.
    pub fn hurry(&mut self) {
        self.patience = Duration::from_secs(1);
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// True if opening it created the database.
    pub fn created(&self) -> bool {
        self.created
    }

    /// Closes the connection.
    ///
    /// # Errors
    /// The database says so.
    ///
    /// # Cancel safety
    /// A dropped future closes it all the same.
    pub async fn close(mut self) -> Result<(), LedgerError> {
        match self.connection.take() {
            Some(connection) => {
                connection.close().await.map_err(self.failed("closing the database"))
            }
            None => Ok(()),
        }
    }

    /// A connection that is in no transaction.
    pub(crate) async fn connection(&mut self) -> Result<&mut SqliteConnection, LedgerError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.target.connect().await.map_err(self.failed("opening the database"))?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Begins a transaction that may write. Dropped without [`Ledger::commit`], it is rolled back.
    pub(crate) async fn transaction(&mut self) -> Result<SqliteConnection, LedgerError> {
        self.transaction_within(self.target.patience()).await
    }

    /// The same, for somebody who is less patient.
    pub(crate) async fn transaction_within(
        &mut self,
        patience: Duration,
    ) -> Result<SqliteConnection, LedgerError> {
        let clock = Clock::start();
        loop {
            let begun = match self.connection().await {
                Ok(_) => self.try_transaction().await,
                Err(failed) => Err(failed),
            };
            match begun {
                Err(LedgerError::Database { trouble: Trouble::Busy, .. })
                    if clock.elapsed() < patience => {}
                outcome => return outcome,
            }
            // SQLite has waited already; this lets others run where it does not wait.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn try_transaction(&mut self) -> Result<SqliteConnection, LedgerError> {
        let failed = self.failed("beginning a transaction");
        let Some(mut connection) = self.connection.take() else {
            return Err(failed(sqlx::Error::WorkerCrashed));
        };
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.map_err(failed)?;
        Ok(connection)
    }

    pub(crate) async fn commit(
        &mut self,
        mut connection: SqliteConnection,
    ) -> Result<(), LedgerError> {
        sqlx::query("COMMIT").execute(&mut connection).await.map_err(self.failed("committing"))?;
        self.connection = Some(connection);
        Ok(())
    }

    pub(crate) fn failed(
        &self,
        doing: &'static str,
    ) -> impl Fn(sqlx::Error) -> LedgerError + use<> {
        let path = self.target.path().to_path_buf();
        move |source| database_error(path.clone(), doing, source)
    }

    pub(crate) fn damaged(&self, what: impl Into<String>) -> LedgerError {
        LedgerError::Damaged { path: self.target.path().into(), what: what.into() }
    }

    fn other_version(&self, found: i64, remedy: impl Into<String>) -> LedgerError {
        let path = self.target.path().into();
        LedgerError::Version { path, found, expected: VERSION, remedy: remedy.into() }
    }

    /// The statement that gives the inputs of one run.
    pub(crate) fn inputs_of_a_run(&self) -> &'static str {
        if self.version >= 3 {
            "SELECT i.*, coalesce(records, 0) AS repaired FROM gegendruck_inputs i \
             LEFT JOIN gegendruck_repaired r ON r.run = i.run AND r.input = i.input WHERE i.run = ? ORDER BY i.input"
        } else {
            "SELECT *, 0 AS repaired FROM gegendruck_inputs WHERE run = ? ORDER BY input"
        }
    }

    /// True if a run would upgrade its tables.
    pub fn is_older(&self) -> bool {
        self.version < VERSION
    }

    async fn has_tables(&mut self) -> Result<bool, LedgerError> {
        let failed = self.failed("reading the schema");
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM sqlite_schema)")
            .fetch_one(self.connection().await?)
            .await
            .map_err(failed)
    }

    /// Fails if there was a ledger: one that is lost is not one that never was.
    fn not_lost(&self) -> Result<(), LedgerError> {
        if self.target.status_path().exists() {
            return Err(lost(&self.target, "all its tables are missing"));
        }
        Ok(())
    }

    /// The version of the tables, all of which are there; `None` if none of any version is.
    async fn version(&mut self) -> Result<Option<i64>, LedgerError> {
        let missing = self.missing_tables().await?;
        if missing.len() == TABLES.len() {
            return Ok(None);
        }
        let version = match missing.first() {
            // The table that says the version.
            Some(table) if table.name == TABLES[0].name => VERSION,
            _ => self.stored_version().await?,
        };
        let lacks = |missing: Vec<&'static Definition>| {
            missing.into_iter().find(|table| table.since <= version)
        };
        // An upgrade may have come between the two looks: the tables were there then before the version was raised.
        match lacks(missing).and(lacks(self.missing_tables().await?)) {
            Some(table) => Err(self.damaged(format!("table {} is missing", table.name))),
            None => Ok(Some(version)),
        }
    }

    async fn missing_tables(&mut self) -> Result<Vec<&'static Definition>, LedgerError> {
        let failed = self.failed("reading the schema");
        missing_in(self.connection().await?).await.map_err(failed)
    }

    /// The version that the ledger says it has, if this program knows it.
    async fn stored_version(&mut self) -> Result<i64, LedgerError> {
        let failed = self.failed("reading the ledger");
        let version: Option<i64> = sqlx::query_scalar("SELECT version FROM gegendruck_target")
            .fetch_optional(self.connection().await?)
            .await
            .map_err(failed)?;
        match version {
            Some(version @ 1..=VERSION) => Ok(version),
            Some(found) if found > VERSION => {
                Err(self.other_version(found, "use the program that wrote it, or a later one"))
            }
            Some(none) => Err(self.damaged(format!("{none} is no version"))),
            None => Err(self.damaged("the row of gegendruck_target is missing")),
        }
    }

    async fn create(&mut self, pipeline: &str) -> Result<(), LedgerError> {
        let created_by = self.created.then_some(pipeline);
        let failed = self.failed("creating the ledger");
        let mut connection = self.transaction().await?;
        for table in TABLES {
            sqlx::raw_sql(table.ddl).execute(&mut connection).await.map_err(&failed)?;
        }
        sqlx::query(&first_row("?"))
            .bind(created_by)
            .execute(&mut connection)
            .await
            .map_err(&failed)?;
        self.commit(connection).await
    }

    /// Makes the tables those of today's version.
    async fn upgrade(&mut self, version: i64) -> Result<(), LedgerError> {
        let failed = self.failed("upgrading the ledger");
        let mut connection = self.transaction().await?;
        let not_upgraded = |why: &dyn std::fmt::Display| {
            let words = format!(
                "it was not upgraded: {why}; let somebody who may create tables run the statements for that in what \
                 nightly-import ledger ddl prints"
            );
            self.other_version(version, words)
        };
        let upgraded = sqlx::raw_sql(&upgrade(version)).execute(&mut connection).await;
        upgraded.map_err(|source| match trouble(&source) {
            trouble @ (Trouble::ReadOnly | Trouble::Other(_)) => not_upgraded(&trouble),
            _ => failed(source),
        })?;
        // A view of that name would do for the statements.
        if let Some(table) = missing_in(&mut connection).await.map_err(&failed)?.first() {
            return Err(not_upgraded(&format!("{} is no table", table.name)));
        }
        self.commit(connection).await
    }

    /// The target's identifier, and the pipeline whose run created the database, if one did.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn identity(&mut self) -> Result<(String, Option<String>), LedgerError> {
        let failed = self.failed("reading the ledger");
        sqlx::query_as("SELECT target, created_by FROM gegendruck_target")
            .fetch_one(self.connection().await?)
            .await
            .map_err(failed)
    }
}

fn lost(target: &Target, what: &str) -> LedgerError {
    let status = target.status_path();
    let what = format!(
        "{what}, although a run has written {}; to begin anew, remove both",
        status.display()
    );
    LedgerError::Damaged { path: target.path().into(), what }
}

pub(crate) fn database_error(
    path: PathBuf,
    doing: &'static str,
    source: sqlx::Error,
) -> LedgerError {
    LedgerError::Database { path, doing, trouble: trouble(&source), source }
}

impl From<TargetError> for LedgerError {
    fn from(error: TargetError) -> LedgerError {
        LedgerError::Target(Box::new(error))
    }
}

/// A count or offset as the database keeps it. Those of real inputs are far below 2^63.
pub(crate) fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A count or offset of a row that was checked to hold no negative ones.
pub(crate) fn count(row: &SqliteRow, column: &str) -> Result<u64, sqlx::Error> {
    row.try_get::<i64, _>(column).map(|count| u64::try_from(count).unwrap_or_default())
}

/// The position in four columns of a row: input, byte, record, line.
pub(crate) fn position(row: &SqliteRow, columns: [&str; 4]) -> Result<Position, sqlx::Error> {
    let [input, byte, record, line] = columns;
    Ok(Position {
        input: u32::try_from(count(row, input)?).unwrap_or(u32::MAX),
        byte: count(row, byte)?,
        record: count(row, record)?,
        line: count(row, line)?,
    })
}

async fn missing_in(
    connection: &mut SqliteConnection,
) -> Result<Vec<&'static Definition>, sqlx::Error> {
    let found: Vec<String> =
        sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table'")
            .fetch_all(connection)
            .await?;
    Ok(TABLES.iter().filter(|table| !found.iter().any(|found| found == table.name)).collect())
}
