//! What the ledger tells its readers: runs, attempts, inputs, rejects, reports, decisions.

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use gegendruck::{Lines, Position, Report, Tally};
use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::ledger::{count, position};
use crate::{Ledger, LedgerError, PipelineIdentity};

/// What a run is doing, or how its last attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It runs, or its process died.
    Running,
    /// It was told to stop, and everything that was in flight is committed.
    Interrupted,
    /// It could not go on.
    Failed,
    /// Too many records were rejected.
    Limit,
    /// All input is committed.
    Complete,
}

impl RunState {
    /// The word for it in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Running => "running",
            RunState::Interrupted => "interrupted",
            RunState::Failed => "failed",
            RunState::Limit => "limit",
            RunState::Complete => "complete",
        }
    }

    fn parse(word: &str) -> Option<RunState> {
        use RunState::*;
        [Running, Interrupted, Failed, Limit, Complete]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// A run, over all its attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunInfo {
    /// Its name.
    pub run: String,
    /// What it does.
    pub pipeline: PipelineIdentity,
    /// The operator's name for it.
    pub label: Option<String>,
    /// The date for rules.
    pub as_of: Option<String>,
    /// The run of the reference data that it uses.
    pub contracts_run: Option<String>,
    /// True if it created the database.
    pub created_target: bool,
    /// Its state.
    pub state: RunState,
    /// How many attempts were made.
    pub attempts: u64,
    /// Transactions committed.
    pub commits: u64,
    /// When it began.
    pub started: String,
    /// When it was complete.
    pub finished: Option<String>,
    /// Exit code of the last attempt, if that ended in order.
    pub exit_code: Option<i32>,
    /// Verdicts of its records.
    pub tally: Tally,
    /// Its inputs, in the order in which they are read.
    pub inputs: Vec<InputInfo>,
}

impl RunInfo {
    /// What else was counted of all inputs.
    pub fn lines(&self) -> Lines {
        self.inputs.iter().fold(Lines::default(), |sum, input| Lines {
            header: sum.header + input.lines.header,
            blank: sum.blank + input.lines.blank,
            trailer: sum.trailer + input.lines.trailer,
            repaired: sum.repaired + input.lines.repaired,
        })
    }
}

/// An input of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputInfo {
    /// Where it was when it was last looked at.
    pub path: String,
    /// Its size then, in bytes.
    pub size: u64,
    /// Where this run began in it.
    pub start: Position,
    /// Up to where all its records are committed.
    pub at: Position,
    /// What else was counted of it up to there.
    pub lines: Lines,
    /// True if all of it is committed.
    pub complete: bool,
}

/// An attempt of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptInfo {
    /// Its number, from 1.
    pub attempt: u64,
    /// When it began.
    pub started: String,
    /// When it last said that it was alive.
    pub heartbeat: String,
    /// When it ended; `None` if it runs or its process died.
    pub ended: Option<String>,
    /// The process's exit code, if it ended in order.
    pub exit_code: Option<i32>,
    /// Transactions committed.
    pub commits: u64,
    /// The machine.
    pub host: String,
    /// The process there.
    pub pid: u32,
    /// Who ran it.
    pub user: String,
    /// The version of the binary.
    pub version: String,
    /// Settings, and where each came from.
    pub settings: serde_json::Value,
}

/// What became of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectState {
    /// Nothing yet.
    Open,
    /// It was repaired and imported.
    Replayed,
    /// Somebody decided that it is not needed.
    Discarded,
}

/// A dead letter as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RejectInfo {
    /// Its identifier in this target.
    pub reject: i64,
    /// The run that rejected it.
    pub run: String,
    /// Where the record begins.
    pub at: Position,
    /// Source bytes of the record.
    pub len: u64,
    /// The untouched bytes, shorter if the record was over the limit; `None` if they were purged.
    #[serde(skip)]
    pub bytes: Option<Vec<u8>>,
    /// The stage that rejected it.
    pub stage: String,
    /// The kind of fault.
    pub kind: String,
    /// The column at fault.
    pub column: Option<String>,
    /// What was found and expected.
    pub detail: String,
    /// Offset of the fault from the record's start.
    pub fault_byte: Option<u64>,
    /// How many times it was tried.
    pub attempts: u64,
    /// When it was first tried.
    pub first: String,
    /// When it was last tried.
    pub last: String,
    /// What became of it.
    pub state: RejectState,
}

/// A report that an attempt left.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptReport {
    /// The attempt.
    pub attempt: u64,
    /// When it was written.
    pub at: String,
    /// The report.
    pub report: Report,
}

/// What somebody decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// When.
    pub at: String,
    /// Who.
    pub who: String,
    /// About which run.
    pub run: Option<String>,
    /// What.
    pub what: String,
}

impl Ledger {
    /// All runs, the newest first.
    ///
    /// # Errors
    /// The ledger cannot be read, or holds what cannot be true.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn runs(&mut self) -> Result<Vec<RunInfo>, LedgerError> {
        let failed = self.failed("reading the runs");
        let rows = sqlx::query("SELECT * FROM gegendruck_runs ORDER BY number DESC")
            .fetch_all(self.connection().await?)
            .await
            .map_err(&failed)?;
        let mut runs = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut run = run_info(row).map_err(&failed)?;
            run.inputs = self.inputs(&run.run).await?;
            runs.push(run);
        }
        Ok(runs)
    }

    /// One run.
    ///
    /// # Errors
    /// There is no such run, or the ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn run(&mut self, run: &str) -> Result<RunInfo, LedgerError> {
        let failed = self.failed("reading a run");
        let row = sqlx::query("SELECT * FROM gegendruck_runs WHERE run = ?")
            .bind(run)
            .fetch_optional(self.connection().await?)
            .await
            .map_err(&failed)?
            .ok_or_else(|| LedgerError::UnknownRun { run: run.into() })?;
        let mut info = run_info(&row).map_err(&failed)?;
        info.inputs = self.inputs(run).await?;
        Ok(info)
    }

    /// The newest run, if there is one.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn latest_run(&mut self) -> Result<Option<RunInfo>, LedgerError> {
        self.newest(None).await
    }

    /// The newest complete run of a pipeline into a table, if there is one.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn completed(
        &mut self,
        pipeline: &str,
        table: &str,
    ) -> Result<Option<RunInfo>, LedgerError> {
        self.newest(Some((pipeline, table))).await
    }

    /// The newest run, or the newest complete one of a pipeline into a table.
    async fn newest(
        &mut self,
        complete_of: Option<(&str, &str)>,
    ) -> Result<Option<RunInfo>, LedgerError> {
        let failed = self.failed("reading the runs");
        let run: Option<String> = sqlx::query_scalar(
            "SELECT run FROM gegendruck_runs \
             WHERE ?1 IS NULL OR (pipeline = ?1 AND table_name = ?2 COLLATE NOCASE AND state = 'complete') \
             ORDER BY number DESC LIMIT 1",
        )
        .bind(complete_of.map(|(pipeline, _)| pipeline))
        .bind(complete_of.map(|(_, table)| table))
        .fetch_optional(self.connection().await?)
        .await
        .map_err(failed)?;
        match run {
            Some(run) => self.run(&run).await.map(Some),
            None => Ok(None),
        }
    }

    /// A run's attempts, the first one first.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn attempts(&mut self, run: &str) -> Result<Vec<AttemptInfo>, LedgerError> {
        let failed = self.failed("reading the attempts");
        let rows = sqlx::query("SELECT * FROM gegendruck_attempts WHERE run = ? ORDER BY attempt")
            .bind(run)
            .fetch_all(self.connection().await?)
            .await
            .map_err(&failed)?;
        rows.iter().map(|row| attempt_info(row).map_err(&failed)).collect()
    }

    /// A run's records that were dropped on purpose, by reason.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn filtered(&mut self, run: &str) -> Result<Vec<(String, u64)>, LedgerError> {
        let failed = self.failed("reading the filtered");
        let rows: Vec<(String, i64)> = sqlx::query_as(
            "SELECT reason, records FROM gegendruck_filtered WHERE run = ? ORDER BY reason",
        )
        .bind(run)
        .fetch_all(self.connection().await?)
        .await
        .map_err(failed)?;
        Ok(rows.into_iter().map(|(reason, records)| (reason, records.unsigned_abs())).collect())
    }

    /// How many of a run's rejects there are by column and kind, the most frequent first.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn rejects_by_kind(
        &mut self,
        run: &str,
    ) -> Result<Vec<(Option<String>, String, u64)>, LedgerError> {
        let failed = self.failed("reading the rejects");
        let rows: Vec<(Option<String>, String, i64)> = sqlx::query_as(
            "SELECT column_name, kind, count(*) AS n FROM gegendruck_rejects WHERE run = ? \
             GROUP BY column_name, kind ORDER BY n DESC, column_name, kind",
        )
        .bind(run)
        .fetch_all(self.connection().await?)
        .await
        .map_err(failed)?;
        Ok(rows.into_iter().map(|(column, kind, n)| (column, kind, n.unsigned_abs())).collect())
    }

    /// A run's rejects in the order of the source, one at a time; all runs' if `run` is `None`.
    ///
    /// # Errors
    /// Its items fail if the ledger cannot be read.
    pub async fn rejects(
        &mut self,
        run: Option<&str>,
    ) -> Result<BoxStream<'_, Result<RejectInfo, LedgerError>>, LedgerError> {
        let failed = self.failed("reading the rejects");
        let run = run.map(str::to_string);
        let rows = sqlx::query(
            "SELECT j.* FROM gegendruck_rejects j JOIN gegendruck_runs r USING (run) WHERE ?1 IS NULL OR run = ?1 \
             ORDER BY r.number, input, record",
        )
        .bind(run)
        .fetch(self.connection().await?);
        Ok(rows.map(move |row| row.and_then(|row| reject_info(&row)).map_err(&failed)).boxed())
    }

    /// One reject.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn reject(&mut self, reject: i64) -> Result<Option<RejectInfo>, LedgerError> {
        let failed = self.failed("reading a reject");
        let row = sqlx::query("SELECT * FROM gegendruck_rejects WHERE reject = ?")
            .bind(reject)
            .fetch_optional(self.connection().await?)
            .await
            .map_err(&failed)?;
        row.map(|row| reject_info(&row).map_err(&failed)).transpose()
    }

    /// The report of a run's last attempt that left one.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn report(&mut self, run: &str) -> Result<Option<KeptReport>, LedgerError> {
        let failed = self.failed("reading a report");
        let row: Option<(i64, String, String)> = sqlx::query_as(
            "SELECT attempt, at, report FROM gegendruck_reports WHERE run = ? ORDER BY attempt DESC LIMIT 1",
        )
        .bind(run)
        .fetch_optional(self.connection().await?)
        .await
        .map_err(failed)?;
        let Some((attempt, at, text)) = row else { return Ok(None) };
        let report = serde_json::from_str(&text)
            .map_err(|error| self.damaged(format!("the report of run {run} is none: {error}")))?;
        Ok(Some(KeptReport { attempt: attempt.unsigned_abs(), at, report }))
    }

    /// What was decided, the newest last; about one run, or about all.
    ///
    /// # Errors
    /// The ledger cannot be read.
    ///
    /// # Cancel safety
    /// Only reads.
    pub async fn audit(&mut self, run: Option<&str>) -> Result<Vec<AuditEntry>, LedgerError> {
        let failed = self.failed("reading the audit trail");
        let rows: Vec<(String, String, Option<String>, String)> = sqlx::query_as(
            "SELECT at, who, run, what FROM gegendruck_audit WHERE ?1 IS NULL OR run = ?1 ORDER BY entry",
        )
        .bind(run)
        .fetch_all(self.connection().await?)
        .await
        .map_err(failed)?;
        Ok(rows.into_iter().map(|(at, who, run, what)| AuditEntry { at, who, run, what }).collect())
    }

    pub(crate) async fn inputs(&mut self, run: &str) -> Result<Vec<InputInfo>, LedgerError> {
        let failed = self.failed("reading the inputs");
        let inputs: Result<Vec<InputInfo>, sqlx::Error> = sqlx::query(self.inputs_of_a_run())
            .bind(run)
            .fetch(self.connection().await?)
            .and_then(async |row| input_info(&row))
            .try_collect()
            .await;
        inputs.map_err(failed)
    }
}

pub(crate) fn wrong(column: &str, words: impl Into<String>) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.into(), source: words.into().into() }
}

pub(crate) fn tally(row: &SqliteRow) -> Result<Tally, sqlx::Error> {
    Ok(Tally {
        read: count(row, "read_records")?,
        stored: count(row, "stored")?,
        updated: count(row, "updated")?,
        rejected: count(row, "rejected")?,
        filtered: count(row, "filtered")?,
        duplicate: count(row, "duplicate")?,
    })
}

pub(crate) fn run_info(row: &SqliteRow) -> Result<RunInfo, sqlx::Error> {
    let state: String = row.try_get("state")?;
    let rules = u32::try_from(count(row, "rules")?).map_err(|_| wrong("rules", "is no version"))?;
    Ok(RunInfo {
        run: row.try_get("run")?,
        pipeline: PipelineIdentity {
            pipeline: row.try_get("pipeline")?,
            rules,
            table: row.try_get("table_name")?,
            dialect: row.try_get("dialect")?,
            mapping: row.try_get("mapping")?,
            conflict: row.try_get("conflict")?,
        },
        label: row.try_get("label")?,
        as_of: row.try_get("as_of")?,
        contracts_run: row.try_get("contracts_run")?,
        created_target: row.try_get::<i64, _>("created_target")? != 0,
        state: RunState::parse(&state).ok_or_else(|| wrong("state", "is no state of a run"))?,
        attempts: count(row, "epoch")?,
        commits: count(row, "commits")?,
        started: row.try_get("started")?,
        finished: row.try_get("finished")?,
        exit_code: row.try_get("exit_code")?,
        tally: tally(row)?,
        inputs: Vec::new(),
    })
}

fn input_info(row: &SqliteRow) -> Result<InputInfo, sqlx::Error> {
    Ok(InputInfo {
        path: row.try_get("path")?,
        size: count(row, "size")?,
        start: position(row, ["input", "start_byte", "start_record", "start_line"])?,
        at: position(row, ["input", "byte", "record", "line"])?,
        lines: lines(row)?,
        complete: row.try_get::<i64, _>("complete")? != 0,
    })
}

pub(crate) fn lines(row: &SqliteRow) -> Result<Lines, sqlx::Error> {
    Ok(Lines {
        header: count(row, "header_lines")?,
        blank: count(row, "blank_lines")?,
        trailer: count(row, "trailer_lines")?,
        repaired: count(row, "repaired")?,
    })
}

fn attempt_info(row: &SqliteRow) -> Result<AttemptInfo, sqlx::Error> {
    let settings: String = row.try_get("settings")?;
    Ok(AttemptInfo {
        attempt: count(row, "attempt")?,
        started: row.try_get("started")?,
        heartbeat: row.try_get("heartbeat")?,
        ended: row.try_get("ended")?,
        exit_code: row.try_get("exit_code")?,
        commits: count(row, "commits")?,
        host: row.try_get("host")?,
        pid: row
            .try_get::<i64, _>("pid")?
            .try_into()
            .map_err(|_| wrong("pid", "is no process id"))?,
        user: row.try_get("user_name")?,
        version: row.try_get("version")?,
        settings: serde_json::from_str(&settings)
            .map_err(|error| wrong("settings", error.to_string()))?,
    })
}

fn reject_info(row: &SqliteRow) -> Result<RejectInfo, sqlx::Error> {
    let state: String = row.try_get("state")?;
    Ok(RejectInfo {
        reject: row.try_get("reject")?,
        run: row.try_get("run")?,
        at: position(row, ["input", "byte", "record", "line"])?,
        len: count(row, "length")?,
        bytes: row.try_get("bytes")?,
        stage: row.try_get("stage")?,
        kind: row.try_get("kind")?,
        column: row.try_get("column_name")?,
        detail: row.try_get("detail")?,
        fault_byte: row.try_get::<Option<i64>, _>("fault_byte")?.map(i64::unsigned_abs),
        attempts: count(row, "attempts")?,
        first: row.try_get("first_tried")?,
        last: row.try_get("last_tried")?,
        state: match state.as_str() {
            "open" => RejectState::Open,
            "replayed" => RejectState::Replayed,
            "discarded" => RejectState::Discarded,
            _ => return Err(wrong("state", "is no state of a reject")),
        },
    })
}
