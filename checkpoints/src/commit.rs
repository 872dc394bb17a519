//! The ledger's part of a sink's transaction. All of it runs on the sink's own connection, between its BEGIN and its COMMIT.
//!
//! ```text
//! BEGIN --> fence --> rows (the sink's) --> write_rejects --> write_tried --> write_progress --> COMMIT
//! BEGIN --> fence --> finishing statements (the sink's) --> complete --> COMMIT
//! ```
//!
//! - `fence` comes first: it locks the run's row, and a run that was taken over gets no further.
//! - `fence` counts the commit. If the outcome of a COMMIT is unknown, [`commits`] tells whether it was made.
//! - Progress only grows, and agrees with the counts in every transaction, or the transaction fails.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use gegendruck::{Checkpoint, Filtered, Reject, Tally, Tried};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::ledger::{database_error, int};
use crate::schema::NOW;
use crate::{LedgerError, fingerprint};

/// The right of one attempt to write its run, until another attempt takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) run: String,
    pub(crate) epoch: i64,
    pub(crate) path: Arc<Path>,
}

impl Ticket {
    /// The run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Which attempt of the run this is, from 1.
    pub fn attempt(&self) -> u64 {
        self.epoch.unsigned_abs()
    }

    fn failed(&self, doing: &'static str) -> impl Fn(sqlx::Error) -> LedgerError + use<> {
        let path = self.path.clone();
        move |source| database_error(path.to_path_buf(), doing, source)
    }

    /// Fails if another attempt has taken the run over.
    pub(crate) async fn check(&self, connection: &mut SqliteConnection) -> Result<(), LedgerError> {
        let epoch: Option<i64> =
            sqlx::query_scalar("SELECT epoch FROM gegendruck_runs WHERE run = ?")
                .bind(&self.run)
                .fetch_optional(&mut *connection)
                .await
                .map_err(self.failed("checking the fence"))?;
        if epoch == Some(self.epoch) { Ok(()) } else { Err(self.fenced(connection).await) }
    }

    /// The error that says who has the run now.
    async fn fenced(&self, connection: &mut SqliteConnection) -> LedgerError {
        let last: Result<Option<(String, i64, String)>, _> = sqlx::query_as(
            "SELECT host, pid, started FROM gegendruck_attempts WHERE run = ? ORDER BY attempt DESC LIMIT 1",
        )
        .bind(&self.run)
        .fetch_optional(connection)
        .await;
        match last {
            Ok(Some((host, pid, since))) => {
                LedgerError::Fenced { run: self.run.clone(), host, pid, since }
            }
            Ok(None) => LedgerError::UnknownRun { run: self.run.clone() },
            Err(error) => self.failed("checking the fence")(error),
        }
    }

    fn unbalanced(&self, what: String) -> LedgerError {
        LedgerError::Unbalanced { run: self.run.clone(), what }
    }
}

/// What a transaction settles.
#[derive(Clone, Copy, Debug)]
pub struct Settled<'a> {
    /// Verdicts of its records.
    pub tally: &'a Tally,
    /// Its records that were dropped on purpose.
    pub filtered: &'a Filtered,
    /// Where its inputs can go on after it.
    pub checkpoints: &'a [Checkpoint],
    /// Rows that it added to the table.
    pub added: u64,
}

/// Checks the fence, locks the run's row, and counts the commit. Gives the number of commits of the run, this one included.
///
/// # Errors
/// The run was taken over or is complete, or the database failed.
///
/// # Cancel safety
/// Part of a transaction: dropped, the transaction must be rolled back.
pub async fn fence(connection: &mut SqliteConnection, ticket: &Ticket) -> Result<u64, LedgerError> {
    let commits: Option<i64> = sqlx::query_scalar(
        "UPDATE gegendruck_runs SET commits = commits + 1 WHERE run = ? AND epoch = ? AND state = 'running' RETURNING commits",
    )
    .bind(&ticket.run)
    .bind(ticket.epoch)
    .fetch_optional(&mut *connection)
    .await
    .map_err(ticket.failed("checking the fence"))?;
    let Some(commits) = commits else { return Err(ticket.fenced(connection).await) };
    let update = format!(
        "UPDATE gegendruck_attempts SET commits = commits + 1, heartbeat = {NOW} WHERE run = ? AND attempt = ?"
    );
    sqlx::query(&update)
        .bind(&ticket.run)
        .bind(ticket.epoch)
        .execute(connection)
        .await
        .map_err(ticket.failed("counting the commit"))?;
    Ok(commits.unsigned_abs())
}

/// How many commits the run has. Checks the fence.
///
/// # Errors
/// The run was taken over, or the database failed.
///
/// # Cancel safety
/// Only reads.
pub async fn commits(
    connection: &mut SqliteConnection,
    ticket: &Ticket,
) -> Result<u64, LedgerError> {
    ticket.check(connection).await?;
    let commits: i64 = sqlx::query_scalar("SELECT commits FROM gegendruck_runs WHERE run = ?")
        .bind(&ticket.run)
        .fetch_one(connection)
        .await
        .map_err(ticket.failed("reading the commits"))?;
    Ok(commits.unsigned_abs())
}

/// Keeps dead letters.
///
/// # Errors
/// The database failed; a record that is kept already is such a failure.
///
/// # Cancel safety
/// Part of a transaction: dropped, the transaction must be rolled back.
pub async fn write_rejects(
    connection: &mut SqliteConnection,
    ticket: &Ticket,
    rejects: &[Reject],
) -> Result<(), LedgerError> {
    for reject in rejects {
        sqlx::query(
            "INSERT INTO gegendruck_rejects (run, input, record, line, byte, length, bytes, stage, kind, column_name, detail, \
             fault_byte, attempts, first_tried, last_tried, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open')",
        )
        .bind(&ticket.run)
        .bind(i64::from(reject.at.input))
        .bind(int(reject.at.record))
        .bind(int(reject.at.line))
        .bind(int(reject.at.byte))
        .bind(int(reject.len))
        .bind(&reject.bytes[..])
        .bind(reject.stage.as_ref())
        .bind(reject.reason.kind.as_ref())
        .bind(reject.reason.column.as_deref())
        .bind(reject.reason.detail.as_ref())
        .bind(reject.reason.byte.map(int))
        .bind(i64::from(reject.attempts))
        .bind(time(reject.first))
        .bind(time(reject.last))
        .execute(&mut *connection)
        .await
        .map_err(ticket.failed("keeping a reject"))?;
    }
    Ok(())
}

/// Keeps the attempts of records that failed in passing and are not settled, in place of those that were kept before.
///
/// # Errors
/// The database failed.
///
/// # Cancel safety
/// Part of a transaction: dropped, the transaction must be rolled back.
pub async fn write_tried(
    connection: &mut SqliteConnection,
    ticket: &Ticket,
    tried: &[Tried],
) -> Result<(), LedgerError> {
    let failed = ticket.failed("keeping attempts");
    sqlx::query("DELETE FROM gegendruck_tried WHERE run = ?")
        .bind(&ticket.run)
        .execute(&mut *connection)
        .await
        .map_err(&failed)?;
    for Tried { stage, at, tries } in tried {
        sqlx::query(
            "INSERT INTO gegendruck_tried (run, input, record, stage, attempts, first_tried, last_tried) \
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(&ticket.run)
        .bind(i64::from(at.input))
        .bind(int(at.record))
        .bind(stage.as_ref())
        .bind(i64::from(tries.attempts))
        .bind(time(tries.first))
        .bind(time(tries.last))
        .execute(&mut *connection)
        .await
        .map_err(&failed)?;
    }
    Ok(())
}

/// Whether attempts are kept of records that failed in passing.
///
/// # Errors
/// The database failed.
///
/// # Cancel safety
/// Only reads.
pub async fn has_tried(
    connection: &mut SqliteConnection,
    ticket: &Ticket,
) -> Result<bool, LedgerError> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM gegendruck_tried WHERE run = ?)")
        .bind(&ticket.run)
        .fetch_one(connection)
        .await
        .map_err(ticket.failed("reading attempts"))
}

/// Moves the progress on, and adds to the counts.
///
/// # Errors
/// Progress would go back, or would not agree with the counts, or the database failed.
///
/// # Cancel safety
/// Part of a transaction: dropped, the transaction must be rolled back.
pub async fn write_progress(
    connection: &mut SqliteConnection,
    ticket: &Ticket,
    settled: Settled<'_>,
) -> Result<(), LedgerError> {
    let failed = ticket.failed("writing progress");
    for checkpoint in settled.checkpoints {
        let Checkpoint { at, lines, .. } = checkpoint;
        let moved = sqlx::query(
            "UPDATE gegendruck_inputs SET byte = ?3, record = ?4, line = ?5, fingerprint = ?6, header_lines = ?7, \
             blank_lines = ?8, trailer_lines = ?9, complete = ?10, size = max(size, ?3) \
             WHERE run = ?1 AND input = ?2 AND byte <= ?3 AND record <= ?4 AND complete = 0",
        )
        .bind(&ticket.run)
        .bind(i64::from(at.input))
        .bind(int(at.byte))
        .bind(int(at.record))
        .bind(int(at.line))
        .bind(fingerprint::text(checkpoint.fingerprint))
        .bind(int(lines.header))
        .bind(int(lines.blank))
        .bind(int(lines.trailer))
        .bind(i64::from(checkpoint.complete))
        .execute(&mut *connection)
        .await
        .map_err(&failed)?;
        if moved.rows_affected() != 1 {
            return Err(ticket
                .unbalanced(format!("the progress of input {} would go back to {at}", at.input)));
        }
        if lines.repaired > 0 {
            sqlx::query(
                "INSERT INTO gegendruck_repaired (run, input, records) VALUES (?, ?, ?) \
                 ON CONFLICT (run, input) DO UPDATE SET records = excluded.records",
            )
            .bind(&ticket.run)
            .bind(i64::from(at.input))
            .bind(int(lines.repaired))
            .execute(&mut *connection)
            .await
            .map_err(&failed)?;
        }
    }
    for (reason, records) in settled.filtered.iter() {
        sqlx::query(
            "INSERT INTO gegendruck_filtered (run, reason, records) VALUES (?, ?, ?) \
             ON CONFLICT (run, reason) DO UPDATE SET records = records + excluded.records",
        )
        .bind(&ticket.run)
        .bind(reason)
        .bind(int(records))
        .execute(&mut *connection)
        .await
        .map_err(&failed)?;
    }
    let tally = settled.tally;
    let row = sqlx::query(
        "UPDATE gegendruck_runs SET read_records = read_records + ?, stored = stored + ?, updated = updated + ?, \
         rejected = rejected + ?, filtered = filtered + ?, duplicate = duplicate + ?, added = added + ? WHERE run = ? RETURNING read_records, \
         (SELECT sum(record - start_record) FROM gegendruck_inputs i WHERE i.run = gegendruck_runs.run) AS passed",
    )
    .bind(int(tally.read))
    .bind(int(tally.stored))
    .bind(int(tally.updated))
    .bind(int(tally.rejected))
    .bind(int(tally.filtered))
    .bind(int(tally.duplicate))
    .bind(int(settled.added))
    .bind(&ticket.run)
    .fetch_one(connection)
    .await
    .map_err(&failed)?;
    let read: i64 = row.try_get("read_records").map_err(&failed)?;
    let passed: Option<i64> = row.try_get("passed").map_err(&failed)?;
    if Some(read) != passed {
        let passed = passed.unwrap_or_default();
        return Err(ticket.unbalanced(format!(
            "{read} records were read, and the inputs' progress says {passed}"
        )));
    }
    Ok(())
}

/// Rows that the table must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedRows {
    /// The highest row number when the run began; `None` if new rows have no numbers of their own.
    pub floor: Option<i64>,
    /// Rows that were added since, by this run over all its attempts, and by others that were begun or gone on with meanwhile;
    /// without a floor, by this run.
    pub expected: u64,
}

/// Notes, in the run's first commit, the highest row number that the table had before it. Later it stays as it is.
///
/// # Errors
/// The database failed.
///
/// # Cancel safety
/// Part of a transaction: dropped, the transaction must be rolled back.
pub async fn note_floor(
    connection: &mut SqliteConnection,
    ticket: &Ticket,
    highest: i64,
) -> Result<(), LedgerError> {
    sqlx::query(
        "UPDATE gegendruck_runs SET floor = ?1, added_before = (SELECT sum(added) FROM gegendruck_runs o \
         WHERE o.table_name = gegendruck_runs.table_name COLLATE NOCASE) \
         WHERE run = ?2 AND epoch = ?3 AND floor IS NULL AND commits = 1",
    )
    .bind(highest)
    .bind(&ticket.run)
    .bind(ticket.epoch)
    .execute(connection)
    .await
    .map_err(ticket.failed("noting the table's rows"))?;
    Ok(())
}

/// The rows that the table must have gained since the run began.
///
/// # Errors
/// The database failed.
///
/// # Cancel safety
/// Only reads.
pub async fn added_rows(
    connection: &mut SqliteConnection,
    ticket: &Ticket,
) -> Result<AddedRows, LedgerError> {
    let (floor, expected): (Option<i64>, i64) = sqlx::query_as(
        "SELECT floor, CASE WHEN floor IS NULL THEN added ELSE \
         (SELECT sum(added) FROM gegendruck_runs o WHERE o.table_name = r.table_name COLLATE NOCASE) - added_before END \
         FROM gegendruck_runs r WHERE run = ?",
    )
    .bind(&ticket.run)
    .fetch_one(connection)
    .await
    .map_err(ticket.failed("reading the table's rows"))?;
    Ok(AddedRows { floor, expected: expected.unsigned_abs() })
}

/// Completes the run: checks that all inputs were read to their end and that all counts agree, and sets the exit code (0, or 1
/// if there are rejects, also if those are of the contracts that were imported for it: it is the first that uses them, in a
/// database that its pipeline has created). Gives the run's counts over all attempts.
///
/// # Errors
/// Something does not agree, or the database failed; the run is not complete then.
///
/// # Cancel safety
/// Part of a transaction: dropped, the transaction must be rolled back.
pub async fn complete(
    connection: &mut SqliteConnection,
    ticket: &Ticket,
) -> Result<Tally, LedgerError> {
    let failed = ticket.failed("completing the run");
    // A stream (no file has number 0) does not know its end beforehand; that it is over is why this is called.
    let open: Option<String> = sqlx::query_scalar(
        "SELECT path FROM gegendruck_inputs WHERE run = ? AND complete = 0 AND inode <> 0 ORDER BY input LIMIT 1",
    )
    .bind(&ticket.run)
    .fetch_optional(&mut *connection)
    .await
    .map_err(&failed)?;
    if let Some(path) = open {
        return Err(ticket.unbalanced(format!("{path} was not committed to its end")));
    }
    let tally = totals(connection, ticket).await?;
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM gegendruck_rejects WHERE run = ?")
        .bind(&ticket.run)
        .fetch_one(&mut *connection)
        .await
        .map_err(&failed)?;
    if !tally.balances() {
        return Err(ticket.unbalanced(format!("records read {tally}")));
    }
    let rejected = tally.rejected;
    if int(rejected) != kept {
        return Err(ticket
            .unbalanced(format!("{rejected} records were rejected, and {kept} rejects are kept")));
    }
    write_tried(connection, ticket, &[]).await?;
    let update = format!(
        "UPDATE gegendruck_runs AS r SET state = 'complete', finished = {NOW}, exit_code = min(1, rejected + coalesce(( \
         SELECT rejected FROM gegendruck_runs c JOIN gegendruck_target ON created_by = r.pipeline WHERE c.run = r.contracts_run \
         AND NOT EXISTS (SELECT 1 FROM gegendruck_runs o WHERE o.contracts_run = c.run AND o.number < r.number) \
         ), 0)) WHERE run = ?"
    );
    sqlx::query(&update).bind(&ticket.run).execute(connection).await.map_err(&failed)?;
    Ok(tally)
}

/// The run's counts over all attempts.
///
/// # Errors
/// There is no such run, or the database failed.
///
/// # Cancel safety
/// Only reads.
pub async fn totals(
    connection: &mut SqliteConnection,
    ticket: &Ticket,
) -> Result<Tally, LedgerError> {
    let failed = ticket.failed("reading the counts");
    let row = sqlx::query(
        "SELECT read_records, stored, updated, rejected, filtered, duplicate FROM gegendruck_runs WHERE run = ?",
    )
    .bind(&ticket.run)
    .fetch_one(connection)
    .await
    .map_err(&failed)?;
    crate::query::tally(&row).map_err(&failed)
}

fn time(time: SystemTime) -> String {
    let clamp = |_| jiff::Timestamp::UNIX_EPOCH;
    let time = jiff::Timestamp::try_from(time).unwrap_or_else(clamp);
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
