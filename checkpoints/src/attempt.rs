//! Attempts: what a run writes in the ledger outside the transactions of its sink.
//!
//! ```text
//! begin -----> running --complete (sink)--> complete
//!                ^  |
//!         go on  |  '--end--> interrupted, failed, limit
//!                |                    |
//!                +--------------------+      a process that died leaves its run "running", and its attempt open
//! ```
//!
//! - Every write is one transaction, which checks the fence: an attempt whose run was taken over writes nothing.
//! - The number of an attempt is the epoch of its run while it is the one that may write.

use std::sync::Arc;
use std::time::SystemTime;

use gegendruck::{Position, Report, Tried, Tries};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::ledger::{count, int, position};
use crate::query::wrong;
use crate::schema::NOW;
use crate::{
    GoOn, InputFile, Ledger, LedgerError, PipelineIdentity, Process, ResumePoint, RunState, Ticket,
    fingerprint,
};

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
    /// Begins a run.
    ///
    /// # Errors
    /// The ledger cannot be written; there is no run then.
    ///
    /// # Cancel safety
    /// Dropped, the run has begun or not; [`Ledger::look_up`] finds it.
    pub async fn begin(
        &mut self,
        spec: &RunSpec,
        attempt: &Attempt,
    ) -> Result<Ticket, LedgerError> {
        let failed = self.failed("beginning a run");
        let created = i64::from(self.created());
        let mut connection = self.transaction().await?;
        let number: i64 =
            sqlx::query_scalar("UPDATE gegendruck_target SET runs = runs + 1 RETURNING runs")
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
    /// Gives its records that earlier attempts of the run have tried and not settled, too. Their positions have no byte and no line.
    ///
    /// # Errors
    /// The ledger cannot be written, or the run is complete by now.
    ///
    /// # Cancel safety
    /// Dropped, the run was taken over or not; either way it can be gone on with.
    pub async fn go_on(
        &mut self,
        run: &GoOn,
        attempt: &Attempt,
    ) -> Result<(Ticket, Vec<Tried>), LedgerError> {
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
        let tried = read_tried(&mut connection, &run.run).await.map_err(&failed)?;
        self.commit(connection).await?;
        Ok((self.ticket(run.run.clone(), epoch), tried))
    }

    fn ticket(&self, run: String, epoch: i64) -> Ticket {
        Ticket { run, epoch, path: Arc::from(self.target().path()) }
    }

    /// A transaction of an attempt that was not taken over.
    async fn transaction_of(&mut self, ticket: &Ticket) -> Result<SqliteConnection, LedgerError> {
        let mut connection = self.transaction_within(self.patience).await?;
        ticket.check(&mut connection).await?;
        Ok(connection)
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
        let mut connection = self.transaction_of(ticket).await?;
        let update = format!(
            "UPDATE gegendruck_attempts SET heartbeat = {NOW} WHERE run = ? AND attempt = ?"
        );
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
    pub async fn end_attempt(
        &mut self,
        ticket: &Ticket,
        state: RunState,
        exit_code: i32,
    ) -> Result<(), LedgerError> {
        let failed = self.failed("ending an attempt");
        let mut connection = self.transaction_of(ticket).await?;
        sqlx::query(
            "UPDATE gegendruck_runs SET state = ?, exit_code = ? WHERE run = ? AND state <> 'complete'",
        )
        .bind(state.as_str())
        .bind(exit_code)
        .bind(&ticket.run)
        .execute(&mut connection)
        .await
        .map_err(&failed)?;
        let update = format!(
            "UPDATE gegendruck_attempts SET ended = {NOW}, exit_code = ? WHERE run = ? AND attempt = ?"
        );
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
        let mut connection = self.transaction_of(ticket).await?;
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
        let mut connection = self.transaction_of(ticket).await?;
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
        let row = sqlx::query(
            "SELECT input, byte, record, line, starts FROM gegendruck_marks WHERE run = ?",
        )
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
    pub async fn keep_report(
        &mut self,
        ticket: &Ticket,
        report: &Report,
    ) -> Result<(), LedgerError> {
        let failed = self.failed("keeping a report");
        let text = serde_json::to_string(report)
            .map_err(|error| failed(sqlx::Error::Encode(error.into())))?;
        let mut connection = self.transaction_of(ticket).await?;
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
    pub async fn note(
        &mut self,
        who: &str,
        run: Option<&str>,
        what: &str,
    ) -> Result<(), LedgerError> {
        let failed = self.failed("writing the audit trail");
        let mut connection = self.transaction().await?;
        insert_audit(&mut connection, who, run, what).await.map_err(failed)?;
        self.commit(connection).await
    }
}

/// A name that no run has: the minute by the database's clock, and three digits drawn.
async fn name_of_a_run(connection: &mut SqliteConnection) -> Result<String, sqlx::Error> {
    loop {
        let name: String = sqlx::query_scalar(
            "SELECT strftime('%Y%m%d-%H%M', 'now', 'localtime') || '-' || substr(lower(hex(randomblob(2))), 1, 3)",
        )
        .fetch_one(&mut *connection)
        .await?;
        let taken: bool =
            sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM gegendruck_runs WHERE run = ?)")
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

async fn read_tried(
    connection: &mut SqliteConnection,
    run: &str,
) -> Result<Vec<Tried>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT input, 0 AS byte, record, 0 AS line, stage, attempts, first_tried, last_tried FROM gegendruck_tried \
         WHERE run = ? ORDER BY input, record, stage",
    )
    .bind(run)
    .fetch_all(connection)
    .await?;
    rows.iter().map(tried).collect()
}

fn tried(row: &SqliteRow) -> Result<Tried, sqlx::Error> {
    let time = |column| {
        let text: String = row.try_get(column)?;
        let time =
            text.parse::<jiff::Timestamp>().map_err(|error| wrong(column, error.to_string()));
        time.map(SystemTime::from)
    };
    Ok(Tried {
        stage: row.try_get::<String, _>("stage")?.into(),
        at: position(row, ["input", "byte", "record", "line"])?,
        tries: Tries {
            attempts: u32::try_from(count(row, "attempts")?).unwrap_or(u32::MAX),
            first: time("first_tried")?,
            last: time("last_tried")?,
        },
    })
}

/// Writes what is known of an input now, new or known before.
async fn write_input(
    connection: &mut SqliteConnection,
    run: &str,
    input: &ResumePoint,
) -> Result<(), sqlx::Error> {
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
    let insert =
        format!("INSERT INTO gegendruck_audit (at, who, run, what) VALUES ({NOW}, ?, ?, ?)");
    sqlx::query(&insert).bind(who).bind(run).bind(what).execute(connection).await?;
    Ok(())
}
