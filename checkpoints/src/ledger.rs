//! The ledger: opened, checked, and what a run writes in it outside the transactions of its sink.
//!
//! ```text
//! begin -----> running --complete (sink)--> complete
//!                ^  |
//!         go on  |  '--end--> interrupted, failed, limit
//!                |                    |
//!                +--------------------+      a process that died leaves its run "running", and its attempt open
//! ```
//!
//! - Every write is one transaction, which checks the fence where a run writes.
//! - A connection whose transaction was left in the middle is closed and never used again.
//! - Nothing is written before the ledger was checked as a whole.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gegendruck::{Position, Report};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Row};

use crate::look_up::ResumePoint;
use crate::schema::{TABLES, VERSION};
use crate::{
    Fingerprint, GoOn, InputFile, LedgerError, PipelineIdentity, Process, RunState, Target, TargetError, Ticket, Trouble,
    fingerprint, trouble,
};

/// The database's clock, as the ledger writes it.
pub(crate) const NOW: &str = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";

/// How often the ledger asks for a lock that somebody else holds, half a second each.
const TRIES: u32 = 20;

/// The ledger of one target.
pub struct Ledger {
    target: Target,
    connection: Option<SqliteConnection>,
    created: bool,
}

/// What a new run is.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// What it does with its inputs.
    pub pipeline: PipelineIdentity,
    /// What it reads, from where on.
    pub inputs: Vec<ResumePoint>,
    /// The operator's name for it.
    pub label: Option<String>,
    /// The date for rules; kept over attempts.
    pub as_of: Option<String>,
    /// The run of the reference data that it uses.
    pub contracts_run: Option<String>,
}

/// Who makes an attempt, and how.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Who.
    pub process: Process,
    /// The settings and where each came from, as JSON.
    pub settings: serde_json::Value,
}

/// The record that an attempt in record-by-record mode was working on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where it begins.
    pub at: Position,
    /// How many attempts in a row have marked it.
    pub starts: u64,
}

impl Ledger {
    /// Opens the ledger of `target` for writing. Creates the database and the tables where they are missing; `pipeline` is
    /// noted as the one that created the database.
    ///
    /// Hold the target's [`Lock`](crate::Lock) before.
    ///
    /// # Errors
    /// The database cannot be opened or created, or is damaged. Nothing was changed then.
    ///
    /// # Cancel safety
    /// A dropped future leaves an empty database or a whole ledger.
    pub async fn open(target: &Target, pipeline: &str) -> Result<Ledger, LedgerError> {
        let path = target.path().to_path_buf();
        let empty = target.exists() && target.path().metadata().is_ok_and(|file| file.len() == 0);
        if empty && target.status_path().exists() {
            let what = format!(
                "the file is empty, although a run has written {}; to begin anew, remove both",
                target.status_path().display()
            );
            return Err(LedgerError::Damaged { path, what });
        }
        let created = target.create_if_missing().map_err(|error| LedgerError::Target(Box::new(error)))?;
        let mut ledger = Ledger { target: target.clone(), connection: None, created: created || empty };
        let missing = ledger.missing_tables().await?;
        if missing.len() == TABLES.len() {
            ledger.create(pipeline).await?;
        } else if let Some(table) = missing.first() {
            return Err(ledger.damaged(format!("table {table} is missing")));
        }
        ledger.check_version().await?;
        ledger.check().await?;
        Ok(ledger)
    }

    /// Opens the ledger of `target` for reading only; creates and checks nothing.
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
        let mut ledger = Ledger { target: target.clone(), connection: None, created: false };
        let connection = target.connect_to_read().await.map_err(ledger.failed("opening the database"))?;
        ledger.connection = Some(connection);
        let missing = ledger.missing_tables().await?;
        if missing.len() == TABLES.len() {
            return Err(LedgerError::Missing { path: target.path().into() });
        }
        if let Some(table) = missing.first() {
            return Err(ledger.damaged(format!("table {table} is missing")));
        }
        ledger.check_version().await?;
        Ok(ledger)
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
            Some(connection) => connection.close().await.map_err(self.failed("closing the database")),
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
    async fn transaction(&mut self) -> Result<SqliteConnection, LedgerError> {
        self.connection().await?;
        for _ in 1..TRIES {
            match self.try_transaction().await {
                Err(LedgerError::Database { trouble: Trouble::Busy, .. }) => {}
                outcome => return outcome,
            }
            self.connection().await?;
            // SQLite has waited already; this lets others run where it does not wait.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.try_transaction().await
    }

    async fn try_transaction(&mut self) -> Result<SqliteConnection, LedgerError> {
        let failed = self.failed("beginning a transaction");
        let Some(mut connection) = self.connection.take() else {
            return Err(failed(sqlx::Error::WorkerCrashed));
        };
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.map_err(failed)?;
        Ok(connection)
    }

    async fn commit(&mut self, mut connection: SqliteConnection) -> Result<(), LedgerError> {
        sqlx::query("COMMIT").execute(&mut connection).await.map_err(self.failed("committing"))?;
        self.connection = Some(connection);
        Ok(())
    }

    pub(crate) fn failed(&self, doing: &'static str) -> impl Fn(sqlx::Error) -> LedgerError + use<> {
        let path = self.target.path().to_path_buf();
        move |source| database_error(path.clone(), doing, source)
    }

    pub(crate) fn damaged(&self, what: impl Into<String>) -> LedgerError {
        LedgerError::Damaged { path: self.target.path().into(), what: what.into() }
    }

    async fn missing_tables(&mut self) -> Result<Vec<&'static str>, LedgerError> {
        let failed = self.failed("reading the schema");
        let connection = self.connection().await?;
        let found: Vec<String> = sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table'")
            .fetch_all(connection)
            .await
            .map_err(failed)?;
        let missing = TABLES.iter().map(|table| table.name);
        Ok(missing.filter(|name| !found.iter().any(|found| found == name)).collect())
    }

    async fn create(&mut self, pipeline: &str) -> Result<(), LedgerError> {
        let created_by = self.created.then_some(pipeline);
        let failed = self.failed("creating the ledger");
        let mut connection = self.transaction().await?;
        for table in TABLES {
            sqlx::raw_sql(table.ddl).execute(&mut connection).await.map_err(&failed)?;
        }
        let insert = format!(
            "INSERT INTO gegendruck_target (one, target, version, created, created_by, runs) \
             VALUES (1, lower(hex(randomblob(16))), ?, {NOW}, ?, 0)"
        );
        sqlx::query(&insert)
            .bind(VERSION)
            .bind(created_by)
            .execute(&mut connection)
            .await
            .map_err(&failed)?;
        self.commit(connection).await
    }

    async fn check_version(&mut self) -> Result<(), LedgerError> {
        let failed = self.failed("reading the ledger");
        let connection = self.connection().await?;
        let version: Option<i64> = sqlx::query_scalar("SELECT version FROM gegendruck_target")
            .fetch_optional(connection)
            .await
            .map_err(failed)?;
        match version {
            Some(VERSION) => Ok(()),
            Some(found) => {
                let path = self.target.path().into();
                Err(LedgerError::Version { path, found, expected: VERSION })
            }
            None => Err(self.damaged("the row of gegendruck_target is missing")),
        }
    }

    /// Looks for what cannot be true, in all runs.
    async fn check(&mut self) -> Result<(), LedgerError> {
        let failed = self.failed("checking the ledger");
        for (query, what) in CHECKS {
            let connection = self.connection().await?;
            let found: Option<SqliteRow> = sqlx::query(query).fetch_optional(connection).await.map_err(&failed)?;
            if let Some(row) = found {
                let example: String = row.try_get(0).map_err(&failed)?;
                return Err(self.damaged(format!("{what} ({example})")));
            }
        }
        let connection = self.connection().await?;
        let texts: Vec<(String, i64, i64, String)> =
            sqlx::query_as("SELECT run, input, byte, fingerprint FROM gegendruck_inputs")
                .fetch_all(connection)
                .await
                .map_err(&failed)?;
        for (run, input, byte, text) in texts {
            let empty = Fingerprint::new().value();
            match fingerprint::parse(&text) {
                Some(value) if byte > 0 || value == empty => {}
                _ => return Err(self.damaged(format!("the fingerprint of input {input} of run {run} is none"))),
            }
        }
        Ok(())
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

    /// Begins a run.
    ///
    /// # Errors
    /// The ledger cannot be written; there is no run then.
    ///
    /// # Cancel safety
    /// Dropped, the run has begun or not; [`Ledger::look_up`] finds it.
    pub async fn begin(&mut self, spec: &RunSpec, attempt: &Attempt) -> Result<Ticket, LedgerError> {
        let failed = self.failed("beginning a run");
        let created = i64::from(self.created);
        let mut connection = self.transaction().await?;
        let number: i64 = sqlx::query_scalar("UPDATE gegendruck_target SET runs = runs + 1 RETURNING runs")
            .fetch_one(&mut connection)
            .await
            .map_err(&failed)?;
        let run = name_of_a_run(&mut connection).await.map_err(&failed)?;
        let insert = format!(
            "INSERT INTO gegendruck_runs (run, number, pipeline, rules, table_name, dialect, mapping, conflict, label, as_of, \
             contracts_run, created_target, state, epoch, commits, started, read_records, stored, updated, rejected, filtered, \
             duplicate) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', 1, 0, {NOW}, 0, 0, 0, 0, 0, 0)"
        );
        let pipeline = &spec.pipeline;
        sqlx::query(&insert)
            .bind(&run)
            .bind(number)
            .bind(&pipeline.pipeline)
            .bind(i64::from(pipeline.rules))
            .bind(&pipeline.table)
            .bind(&pipeline.dialect)
            .bind(&pipeline.mapping)
            .bind(&pipeline.conflict)
            .bind(&spec.label)
            .bind(&spec.as_of)
            .bind(&spec.contracts_run)
            .bind(created)
            .execute(&mut connection)
            .await
            .map_err(&failed)?;
        insert_attempt(&mut connection, &run, 1, attempt).await.map_err(&failed)?;
        for input in &spec.inputs {
            write_input(&mut connection, &run, input).await.map_err(&failed)?;
        }
        self.commit(connection).await?;
        Ok(self.ticket(run, 1))
    }

    /// Goes on with a run that ended before it was complete. From here on no earlier attempt can write.
    ///
    /// # Errors
    /// The ledger cannot be written, or the run is complete by now.
    ///
    /// # Cancel safety
    /// Dropped, the run was taken over or not; either way it can be gone on with.
    pub async fn go_on(&mut self, run: &GoOn, attempt: &Attempt) -> Result<Ticket, LedgerError> {
        let failed = self.failed("going on with a run");
        let unknown = LedgerError::UnknownRun { run: run.run.clone() };
        let mut connection = self.transaction().await?;
        let pipeline = &run.pipeline;
        let epoch: Option<i64> = sqlx::query_scalar(
            "UPDATE gegendruck_runs SET epoch = epoch + 1, state = 'running', finished = NULL, exit_code = NULL, rules = ?, \
             table_name = ?, dialect = ?, mapping = ?, conflict = ? WHERE run = ? AND state <> 'complete' RETURNING epoch",
        )
        .bind(i64::from(pipeline.rules))
        .bind(&pipeline.table)
        .bind(&pipeline.dialect)
        .bind(&pipeline.mapping)
        .bind(&pipeline.conflict)
        .bind(&run.run)
        .fetch_optional(&mut connection)
        .await
        .map_err(&failed)?;
        let epoch = epoch.ok_or(unknown)?;
        insert_attempt(&mut connection, &run.run, epoch, attempt).await.map_err(&failed)?;
        for input in &run.inputs {
            write_input(&mut connection, &run.run, input).await.map_err(&failed)?;
        }
        for change in &run.accepted {
            insert_audit(&mut connection, &attempt.process.user, Some(&run.run), change)
                .await
                .map_err(&failed)?;
        }
        self.commit(connection).await?;
        Ok(self.ticket(run.run.clone(), epoch))
    }

    fn ticket(&self, run: String, epoch: i64) -> Ticket {
        Ticket { run, epoch, path: Arc::from(self.target.path()) }
    }

    /// Says that this attempt is alive.
    ///
    /// # Errors
    /// The run was taken over, or the ledger cannot be written.
    ///
    /// # Cancel safety
    /// Dropped, it was said or not.
    pub async fn heartbeat(&mut self, ticket: &Ticket) -> Result<(), LedgerError> {
        let failed = self.failed("writing a heartbeat");
        let mut connection = self.transaction().await?;
        ticket.check(&mut connection).await?;
        let update = format!("UPDATE gegendruck_attempts SET heartbeat = {NOW} WHERE run = ? AND attempt = ?");
        sqlx::query(&update)
            .bind(&ticket.run)
            .bind(ticket.epoch)
            .execute(&mut connection)
            .await
            .map_err(failed)?;
        self.commit(connection).await
    }

    /// Ends this attempt in order: the run's state, and the exit code that the process will have.
    ///
    /// A run that its sink has completed stays complete, with the exit code that it was completed with: the process may have been
    /// told to stop in that very moment.
    ///
    /// # Errors
    /// The run was taken over, or the ledger cannot be written.
    ///
    /// # Cancel safety
    /// Dropped, the attempt has ended or looks as if its process had died.
    pub async fn end_attempt(&mut self, ticket: &Ticket, state: RunState, exit_code: i32) -> Result<(), LedgerError> {
        let failed = self.failed("ending an attempt");
        let mut connection = self.transaction().await?;
        ticket.check(&mut connection).await?;
        sqlx::query(
            "UPDATE gegendruck_runs SET state = ?, exit_code = ? WHERE run = ? AND state <> 'complete'",
        )
        .bind(state.as_str())
        .bind(exit_code)
        .bind(&ticket.run)
        .execute(&mut connection)
        .await
        .map_err(&failed)?;
        let update =
            format!("UPDATE gegendruck_attempts SET ended = {NOW}, exit_code = ? WHERE run = ? AND attempt = ?");
        sqlx::query(&update)
            .bind(exit_code)
            .bind(&ticket.run)
            .bind(ticket.epoch)
            .execute(&mut connection)
            .await
            .map_err(&failed)?;
        self.commit(connection).await
    }

    /// How many attempts before this one died in a row without a commit.
    ///
    /// An attempt that ended in order did not die; it neither counts nor ends the row.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn deaths_in_a_row(&mut self, ticket: &Ticket) -> Result<u64, LedgerError> {
        let failed = self.failed("reading the attempts");
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM gegendruck_attempts WHERE run = ?1 AND attempt < ?2 AND ended IS NULL AND attempt > \
             (SELECT coalesce(max(attempt), 0) FROM gegendruck_attempts WHERE run = ?1 AND attempt < ?2 AND commits > 0)",
        )
        .bind(&ticket.run)
        .bind(ticket.epoch)
        .fetch_one(self.connection().await?)
        .await
        .map_err(failed)?;
        Ok(count.unsigned_abs())
    }

    /// Marks durably that the record at `at` is being worked on, and says how many attempts in a row have marked it.
    ///
    /// # Errors
    /// The run was taken over, or the ledger cannot be written.
    ///
    /// # Cancel safety
    /// Dropped, the mark is there or not.
    pub async fn mark(&mut self, ticket: &Ticket, at: Position) -> Result<u64, LedgerError> {
        let failed = self.failed("marking a record");
        let mut connection = self.transaction().await?;
        ticket.check(&mut connection).await?;
        let upsert = format!(
            "INSERT INTO gegendruck_marks (run, input, byte, record, line, starts, attempt, at) VALUES (?, ?, ?, ?, ?, 1, ?, {NOW}) \
             ON CONFLICT (run) DO UPDATE SET starts = CASE WHEN (input, byte) <> (excluded.input, excluded.byte) THEN 1 \
             ELSE starts + (attempt <> excluded.attempt) END, input = excluded.input, byte = excluded.byte, \
             record = excluded.record, line = excluded.line, attempt = excluded.attempt, at = excluded.at RETURNING starts"
        );
        let starts: i64 = sqlx::query_scalar(&upsert)
            .bind(&ticket.run)
            .bind(i64::from(at.input))
            .bind(int(at.byte))
            .bind(int(at.record))
            .bind(int(at.line))
            .bind(ticket.epoch)
            .fetch_one(&mut connection)
            .await
            .map_err(failed)?;
        self.commit(connection).await?;
        Ok(starts.unsigned_abs())
    }

    /// Takes the mark away.
    ///
    /// # Errors
    /// The run was taken over, or the ledger cannot be written.
    ///
    /// # Cancel safety
    /// Dropped, the mark is gone or not.
    pub async fn unmark(&mut self, ticket: &Ticket) -> Result<(), LedgerError> {
        let failed = self.failed("taking a mark away");
        let mut connection = self.transaction().await?;
        ticket.check(&mut connection).await?;
        sqlx::query("DELETE FROM gegendruck_marks WHERE run = ?")
            .bind(&ticket.run)
            .execute(&mut connection)
            .await
            .map_err(failed)?;
        self.commit(connection).await
    }

    /// The record that was marked last, if its mark was not taken away.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn marked(&mut self, run: &str) -> Result<Option<Mark>, LedgerError> {
        let failed = self.failed("reading a mark");
        let row = sqlx::query("SELECT input, byte, record, line, starts FROM gegendruck_marks WHERE run = ?")
            .bind(run)
            .fetch_optional(self.connection().await?)
            .await
            .map_err(&failed)?;
        let Some(row) = row else { return Ok(None) };
        let at = position(&row, ["input", "byte", "record", "line"]).map_err(&failed)?;
        Ok(Some(Mark { at, starts: count(&row, "starts").map_err(&failed)? }))
    }

    /// Keeps where the time of this attempt went, in place of what it kept before.
    ///
    /// # Errors
    /// The run was taken over, or the ledger cannot be written.
    ///
    /// # Cancel safety
    /// Dropped, the former report or this one is kept.
    pub async fn keep_report(&mut self, ticket: &Ticket, report: &Report) -> Result<(), LedgerError> {
        let failed = self.failed("keeping a report");
        let text = serde_json::to_string(report).map_err(|error| failed(sqlx::Error::Encode(error.into())))?;
        let mut connection = self.transaction().await?;
        ticket.check(&mut connection).await?;
        let upsert = format!(
            "INSERT INTO gegendruck_reports (run, attempt, at, report) VALUES (?, ?, {NOW}, ?) \
             ON CONFLICT (run, attempt) DO UPDATE SET at = excluded.at, report = excluded.report"
        );
        sqlx::query(&upsert)
            .bind(&ticket.run)
            .bind(ticket.epoch)
            .bind(text)
            .execute(&mut connection)
            .await
            .map_err(failed)?;
        self.commit(connection).await
    }

    /// Notes what somebody decided.
    ///
    /// # Errors
    /// The ledger cannot be written.
    ///
    /// # Cancel safety
    /// Dropped, it is noted or not.
    pub async fn note(&mut self, who: &str, run: Option<&str>, what: &str) -> Result<(), LedgerError> {
        let failed = self.failed("writing the audit trail");
        let mut connection = self.transaction().await?;
        insert_audit(&mut connection, who, run, what).await.map_err(failed)?;
        self.commit(connection).await
    }
}

/// Queries that find nothing in a ledger that is as it was written, and what it means if they do.
const CHECKS: &[(&str, &str)] = &[
    (
        "SELECT (SELECT count(*) FROM gegendruck_runs) || ' of ' || runs FROM gegendruck_target \
         WHERE runs <> (SELECT count(*) FROM gegendruck_runs)",
        "runs are missing",
    ),
    (
        "SELECT run FROM gegendruck_inputs WHERE run NOT IN (SELECT run FROM gegendruck_runs) \
         UNION ALL SELECT run FROM gegendruck_attempts WHERE run NOT IN (SELECT run FROM gegendruck_runs) \
         UNION ALL SELECT run FROM (SELECT DISTINCT run FROM gegendruck_rejects) \
         WHERE run NOT IN (SELECT run FROM gegendruck_runs) LIMIT 1",
        "the row of a run is missing",
    ),
    (
        "SELECT run FROM gegendruck_runs r WHERE NOT EXISTS (SELECT 1 FROM gegendruck_inputs i WHERE i.run = r.run) LIMIT 1",
        "the progress of a run is missing",
    ),
    (
        "SELECT run FROM gegendruck_inputs GROUP BY run HAVING count(*) <> max(input) + 1 OR min(input) <> 0 LIMIT 1",
        "the progress of an input is missing",
    ),
    (
        "SELECT run FROM gegendruck_runs r WHERE epoch <> (SELECT count(*) FROM gegendruck_attempts a WHERE a.run = r.run) \
         OR commits <> (SELECT sum(commits) FROM gegendruck_attempts a WHERE a.run = r.run) LIMIT 1",
        "an attempt is missing",
    ),
    (
        "SELECT run FROM gegendruck_runs WHERE min(epoch, commits, read_records, stored, updated, rejected, filtered, \
         duplicate) < 0 UNION ALL SELECT run FROM gegendruck_inputs WHERE min(size, start_byte, start_record, start_line, byte, \
         record, line, header_lines, blank_lines, trailer_lines) < 0 LIMIT 1",
        "a number is negative",
    ),
    (
        "SELECT run FROM gegendruck_inputs WHERE byte > size LIMIT 1",
        "more is committed of an input than it has bytes",
    ),
    (
        "SELECT run FROM gegendruck_inputs WHERE byte < start_byte OR record < start_record OR line < start_line LIMIT 1",
        "an input is committed up to before its start",
    ),
    (
        "SELECT run FROM gegendruck_runs WHERE read_records <> stored + rejected + filtered + duplicate OR updated > stored LIMIT 1",
        "the counts of a run do not add up",
    ),
    (
        "SELECT run FROM gegendruck_runs r WHERE read_records <> \
         (SELECT sum(record - start_record) FROM gegendruck_inputs i WHERE i.run = r.run) LIMIT 1",
        "the counts of a run are not those of its inputs",
    ),
    (
        "SELECT run FROM gegendruck_runs r WHERE rejected <> (SELECT count(*) FROM gegendruck_rejects j WHERE j.run = r.run) LIMIT 1",
        "rejects are missing",
    ),
    (
        "SELECT run FROM gegendruck_runs r WHERE filtered <> \
         (SELECT coalesce(sum(records), 0) FROM gegendruck_filtered f WHERE f.run = r.run) LIMIT 1",
        "counts of filtered records are missing",
    ),
    (
        "SELECT one.run || ' and ' || other.run FROM gegendruck_inputs one \
         JOIN gegendruck_inputs other ON one.fingerprint = other.fingerprint AND one.byte = other.byte AND one.run < other.run \
         JOIN gegendruck_runs r ON r.run = one.run JOIN gegendruck_runs s ON s.run = other.run \
         WHERE one.record > one.start_record AND other.record > other.start_record AND r.state <> 'complete' \
         AND s.state <> 'complete' AND r.pipeline = s.pipeline AND r.table_name = s.table_name LIMIT 1",
        "two unfinished runs overlap in one input",
    ),
];

/// A name that no run has: the minute by the database's clock, and three digits drawn.
async fn name_of_a_run(connection: &mut SqliteConnection) -> Result<String, sqlx::Error> {
    loop {
        let name: String = sqlx::query_scalar(
            "SELECT strftime('%Y%m%d-%H%M', 'now', 'localtime') || '-' || substr(lower(hex(randomblob(2))), 1, 3)",
        )
        .fetch_one(&mut *connection)
        .await?;
        let taken: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM gegendruck_runs WHERE run = ?)")
            .bind(&name)
            .fetch_one(&mut *connection)
            .await?;
        if !taken {
            return Ok(name);
        }
    }
}

async fn insert_attempt(
    connection: &mut SqliteConnection,
    run: &str,
    number: i64,
    attempt: &Attempt,
) -> Result<(), sqlx::Error> {
    let insert = format!(
        "INSERT INTO gegendruck_attempts (run, attempt, started, heartbeat, commits, host, pid, user_name, version, settings) \
         VALUES (?, ?, {NOW}, {NOW}, 0, ?, ?, ?, ?, ?)"
    );
    let Attempt { process, settings } = attempt;
    sqlx::query(&insert)
        .bind(run)
        .bind(number)
        .bind(&process.host)
        .bind(i64::from(process.pid))
        .bind(&process.user)
        .bind(&process.version)
        .bind(settings.to_string())
        .execute(connection)
        .await?;
    Ok(())
}

/// Writes what is known of an input now, new or known before.
async fn write_input(connection: &mut SqliteConnection, run: &str, input: &ResumePoint) -> Result<(), sqlx::Error> {
    let ResumePoint { file, start, at, lines, .. } = input;
    let InputFile { device, inode, size, mtime, ctime, .. } = file;
    sqlx::query(
        "INSERT INTO gegendruck_inputs (run, input, path, device, inode, size, mtime, ctime, start_byte, start_record, start_line, \
         byte, record, line, fingerprint, header_lines, blank_lines, trailer_lines, complete) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (run, input) DO UPDATE SET path = excluded.path, device = excluded.device, inode = excluded.inode, \
         size = excluded.size, mtime = excluded.mtime, ctime = excluded.ctime, byte = excluded.byte, record = excluded.record, \
         line = excluded.line, fingerprint = excluded.fingerprint, header_lines = excluded.header_lines, \
         blank_lines = excluded.blank_lines, trailer_lines = excluded.trailer_lines, complete = excluded.complete",
    )
    .bind(run)
    .bind(i64::from(input.input))
    .bind(file.path.to_string_lossy())
    .bind(device.cast_signed())
    .bind(inode.cast_signed())
    .bind(int(*size))
    .bind(mtime)
    .bind(ctime)
    .bind(int(start.byte))
    .bind(int(start.record))
    .bind(int(start.line))
    .bind(int(at.byte))
    .bind(int(at.record))
    .bind(int(at.line))
    .bind(fingerprint::text(input.fingerprint.value()))
    .bind(int(lines.header))
    .bind(int(lines.blank))
    .bind(int(lines.trailer))
    .bind(i64::from(input.complete))
    .execute(connection)
    .await?;
    Ok(())
}

async fn insert_audit(
    connection: &mut SqliteConnection,
    who: &str,
    run: Option<&str>,
    what: &str,
) -> Result<(), sqlx::Error> {
    let insert = format!("INSERT INTO gegendruck_audit (at, who, run, what) VALUES ({NOW}, ?, ?, ?)");
    sqlx::query(&insert).bind(who).bind(run).bind(what).execute(connection).await?;
    Ok(())
}

pub(crate) fn database_error(path: PathBuf, doing: &'static str, source: sqlx::Error) -> LedgerError {
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
