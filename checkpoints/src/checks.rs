//! Checks: what cannot be true of a ledger that only this program has written.
//!
//! - They look at all runs, and run before anything is decided or written.
//! - What they find is refused with an example, and left as it is.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::{Fingerprint, Ledger, LedgerError, fingerprint};

impl Ledger {
    /// Looks for what cannot be true, in all runs. Once is enough.
    pub(crate) async fn check(&mut self) -> Result<(), LedgerError> {
        if self.checked {
            return Ok(());
        }
        let failed = self.failed("checking the ledger");
        for (query, what) in CHECKS {
            let connection = self.connection().await?;
            let found: Option<SqliteRow> =
                sqlx::query(query).fetch_optional(connection).await.map_err(&failed)?;
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
                _ => {
                    return Err(self.damaged(format!(
                        "the fingerprint of input {input} of run {run} is none"
                    )));
                }
            }
        }
        self.checked = true;
        Ok(())
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
         AND s.state <> 'complete' AND r.pipeline = s.pipeline AND r.table_name = s.table_name COLLATE NOCASE LIMIT 1",
        "two unfinished runs overlap in one input",
    ),
];
