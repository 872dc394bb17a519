//! A small import: lines `key,value` of a file, as groups, into table `entries`.
//!
//! `!…` is rejected, `#…` is left out, `a|b,1` becomes a row for each key.

use std::fmt::Write as _;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use gegendruck::{
    Amount, Block, Checkpoint, Filtered, Group, Item, Lines, Position, Reason, Reject, Sink,
};
use gegendruck_checkpoints::{
    Accept, Attempt, Decision, Fingerprint, Ledger, PipelineIdentity, Process, ResumePoint,
    RunSpec, RunState, Target, Ticket,
};
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use crate::sql::{Conflict, MaxErrors, SqlSink};
use crate::value::{Column, ColumnType, Row, Table, Value};

pub(crate) const ENTRIES: Table = Table {
    name: "entries",
    columns: &[
        Column::required("key", ColumnType::Text),
        Column::nullable("value", ColumnType::Integer),
    ],
    key: &["key"],
};

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    key: String,
    value: i64,
}

impl Row for Entry {
    const TABLE: Table = ENTRIES;

    fn values<'a>(&'a self, out: &mut Vec<Value<'a>>) {
        out.push(Value::from(self.key.as_str()));
        out.push(Value::from(self.value));
    }
}

/// Makes the sink's connections fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Steps of SQLite's machine that are left before the one that fails.
    steps: Option<Arc<AtomicI64>>,
    once: bool,
    loses_answers: bool,
}

impl Faults {
    /// The step after so many fails, and with `once` only that one.
    pub(crate) fn after(steps: i64, once: bool) -> Faults {
        let steps = Some(Arc::new(AtomicI64::new(steps)));
        Faults { steps, once, loses_answers: false }
    }

    /// Every commit is made, and its answer is lost.
    pub(crate) fn lost_answers() -> Faults {
        Faults { loses_answers: true, ..Faults::default() }
    }

    pub(crate) fn fired(&self) -> bool {
        self.steps.as_ref().is_some_and(|left| left.load(Ordering::SeqCst) <= 0)
    }

    pub(crate) fn loses_answer(&self) -> bool {
        self.loses_answers
    }

    pub(crate) async fn install(&self, mut connection: SqliteConnection) -> SqliteConnection {
        if let Some(left) = self.steps.clone() {
            let once = self.once;
            let go_on = move || {
                let left = left.fetch_sub(1, Ordering::SeqCst);
                if once { left != 1 } else { left > 1 }
            };
            connection.lock_handle().await.unwrap().set_progress_handler(1, go_on);
        }
        connection
    }
}

/// How an import is made.
#[derive(Clone)]
pub(crate) struct Import {
    pub(crate) batch: usize,
    pub(crate) conflict: Conflict,
    pub(crate) max_errors: MaxErrors,
    pub(crate) max_pages: Option<u32>,
    pub(crate) retry_for: Option<Duration>,
    pub(crate) finish: Option<&'static str>,
    pub(crate) faults: Faults,
    /// The import is dropped after the sink was polled so often.
    pub(crate) polls: Option<u32>,
    /// The import stops after so many groups.
    pub(crate) stop_after: Option<usize>,
}

impl Default for Import {
    fn default() -> Import {
        Import {
            batch: 5_000,
            conflict: Conflict::Error,
            max_errors: MaxErrors::Default,
            max_pages: None,
            retry_for: None,
            finish: None,
            faults: Faults::default(),
            polls: None,
            stop_after: None,
        }
    }
}

/// An input and a target in a folder of their own.
pub(crate) struct World {
    folder: tempfile::TempDir,
    pub(crate) input: PathBuf,
    pub(crate) target: Target,
    /// The name by which imports write it.
    pub(crate) table: &'static str,
}

pub(crate) fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// So many lines with different keys, longer ones than the tests' own.
pub(crate) fn lines(count: usize) -> String {
    (1..=count).fold(String::new(), |mut text, n| {
        writeln!(text, "k{n:05},{n}").unwrap();
        text
    })
}

pub(crate) fn attempt() -> Attempt {
    Attempt { process: Process::this("test"), settings: serde_json::json!({"batch": 1}) }
}

impl World {
    pub(crate) fn new(input: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("input.csv");
        std::fs::write(&path, input).unwrap();
        let target = Target::parse(folder.path().join("entries.db").to_str().unwrap()).unwrap();
        World { folder, input: path, target, table: "entries" }
    }

    pub(crate) fn pipeline(&self, conflict: Conflict) -> PipelineIdentity {
        PipelineIdentity {
            pipeline: "entries".into(),
            rules: 1,
            table: self.table.into(),
            dialect: "plain".into(),
            mapping: "key value".into(),
            conflict: conflict.as_str().into(),
        }
    }

    pub(crate) async fn connect(&self) -> SqliteConnection {
        drop(
            std::fs::OpenOptions::new().append(true).create(true).open(self.target.path()).unwrap(),
        );
        self.target.connect().await.unwrap()
    }

    pub(crate) async fn execute(&self, sql: &str) {
        sqlx::raw_sql(sql).execute(&mut self.connect().await).await.unwrap();
    }

    fn with_pages(&self, max_pages: Option<u32>) -> Target {
        let options = max_pages.map_or(String::new(), |pages| format!("?max_page_count={pages}"));
        Target::parse(&format!("sqlite:{}{options}", self.target.path().display())).unwrap()
    }

    /// Begins a run, or goes on with it.
    pub(crate) async fn begin(
        &self,
        conflict: Conflict,
        changed: bool,
    ) -> (Ledger, Ticket, Vec<ResumePoint>) {
        let mut ledger = Ledger::open(&self.target, "entries").await.unwrap();
        let pipeline = self.pipeline(conflict);
        let accept = Accept { grown: false, changed };
        match ledger.look_up(&pipeline, std::slice::from_ref(&self.input), accept).await.unwrap() {
            Decision::New { inputs, .. } => {
                let spec =
                    RunSpec { pipeline, inputs, label: None, as_of: None, contracts_run: None };
                let ticket = ledger.begin(&spec, &attempt()).await.unwrap();
                (ledger, ticket, spec.inputs)
            }
            Decision::GoOn(go_on) => {
                let (ticket, _) = ledger.go_on(&go_on, &attempt()).await.unwrap();
                (ledger, ticket, go_on.inputs)
            }
            Decision::AlreadyDone(done) => panic!("{done:?}"),
        }
    }

    pub(crate) async fn sink(&self, ticket: &Ticket, import: &Import) -> SqlSink<Entry> {
        self.try_sink(ticket, import).await.unwrap()
    }

    async fn try_sink(&self, ticket: &Ticket, import: &Import) -> Result<SqlSink<Entry>, String> {
        let mut builder = SqlSink::builder(&self.with_pages(import.max_pages), ticket)
            .table(self.table)
            .on_conflict(import.conflict)
            .max_errors(import.max_errors)
            .retry_for(import.retry_for.unwrap_or(Duration::from_secs(10)));
        if let Some(statements) = import.finish {
            builder = builder.finish(statements);
        }
        builder.faults = import.faults.clone();
        builder.open().await.map_err(|error| error.to_string())
    }

    /// One attempt, from look-up to completion.
    pub(crate) async fn import(&self, import: Import) -> Result<(), String> {
        let (mut ledger, ticket, points) = self.begin(import.conflict, false).await;
        let outcome = self.attempt(&ticket, &points, &import).await;
        let (state, code) = match outcome {
            Ok(()) => (RunState::Complete, 0),
            Err(_) => (RunState::Failed, 4),
        };
        if outcome.is_err() {
            ledger.end_attempt(&ticket, state, code).await.unwrap();
        }
        outcome
    }

    async fn attempt(
        &self,
        ticket: &Ticket,
        points: &[ResumePoint],
        import: &Import,
    ) -> Result<(), String> {
        let mut sink = self.try_sink(ticket, import).await?;
        let work = async {
            if points[0].complete {
                return sink.complete(&Default::default()).await.map_err(|error| error.to_string());
            }
            for (index, group) in self.groups(&points[0], import.batch).into_iter().enumerate() {
                if import.stop_after == Some(index) {
                    return Err("stopped".into());
                }
                let committed =
                    sink.commit_group(&group, None).await.map_err(|error| error.to_string())?;
                assert!(committed.tally.balances());
                assert_eq!(committed.tally.read, group.amount.records);
                if let Some(stop) = committed.stop {
                    return Err(stop);
                }
            }
            sink.complete(&Default::default()).await.map_err(|error| error.to_string())
        };
        let mut left = import.polls.unwrap_or(u32::MAX);
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(Err("dropped".into()));
            }
            left -= 1;
            work.as_mut().poll(context)
        })
        .await
    }

    /// What is left of the input, in groups of so many records.
    pub(crate) fn groups(&self, point: &ResumePoint, batch: usize) -> Vec<Group<Entry>> {
        let bytes = std::fs::read(&self.input).unwrap();
        let mut fingerprint = Fingerprint::new();
        fingerprint.update(&bytes[..point.at.byte as usize]);
        let mut at = point.at;
        let rest = &bytes[at.byte as usize..];
        let all: Vec<&[u8]> = rest.split_inclusive(|byte| *byte == b'\n').collect();
        let mut groups = Vec::new();
        for lines in all.chunks(batch) {
            let mut group = empty(at);
            let start = at;
            for line in lines {
                take(&mut group, at, line);
                fingerprint.update(line);
                at = Position {
                    byte: at.byte + line.len() as u64,
                    record: at.record + 1,
                    line: at.line + 1,
                    ..at
                };
            }
            let block = &bytes[start.byte as usize..at.byte as usize];
            group.blocks.push((at.input, Block::new(start.byte, block.into())));
            group.amount =
                Amount { records: at.record - start.record, bytes: at.byte - start.byte };
            let complete = at.byte == bytes.len() as u64;
            let fingerprint = fingerprint.value();
            group.checkpoints.push(Checkpoint {
                at,
                fingerprint,
                lines: Lines::default(),
                complete,
            });
            groups.push(group);
        }
        groups
    }

    /// Records that the ledger says are committed.
    pub(crate) async fn committed(&self) -> u64 {
        let count: i64 = sqlx::query_scalar("SELECT read_records FROM gegendruck_runs")
            .fetch_one(&mut self.connect().await)
            .await
            .unwrap();
        count.unsigned_abs()
    }

    /// The table, ordered by key; empty if there is none.
    pub(crate) async fn rows(&self) -> String {
        let rows: Vec<(String, i64)> =
            sqlx::query_as("SELECT key, value FROM entries ORDER BY key")
                .fetch_all(&mut self.connect().await)
                .await
                .unwrap_or_default();
        rows.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// Rows, rejects and counts, without what differs between equal runs.
    pub(crate) async fn dump(&self) -> String {
        let rejects = sqlx::query(
            "SELECT record, kind, bytes FROM gegendruck_rejects ORDER BY input, record",
        )
        .fetch_all(&mut self.connect().await)
        .await
        .unwrap();
        let rejects: Vec<String> = rejects
            .iter()
            .map(|row| {
                let (record, kind): (i64, String) = (row.get("record"), row.get("kind"));
                let bytes: Vec<u8> = row.get("bytes");
                format!("{record} {kind} `{}`", String::from_utf8_lossy(&bytes))
            })
            .collect();
        let mut ledger = Ledger::open(&self.target, "entries").await.unwrap();
        let run = ledger.latest_run().await.unwrap().unwrap();
        let tally = run.tally;
        let counts = format!(
            "read {} = stored {} (updated {}) + rejected {} + filtered {} + duplicate {}; {}",
            tally.read,
            tally.stored,
            tally.updated,
            tally.rejected,
            tally.filtered,
            tally.duplicate,
            run.state.as_str()
        );
        let exit = run.exit_code.map_or(String::new(), |code| format!(", exit {code}"));
        assert!(self.folder.path().exists());
        format!("{}\n{}\n{counts}{exit}", self.rows().await, rejects.join("\n"))
    }
}

fn empty(start: Position) -> Group<Entry> {
    Group {
        items: Vec::new(),
        rejects: Vec::new(),
        filtered: Filtered::default(),
        amount: Amount::ZERO,
        checkpoints: Vec::new(),
        start,
        blocks: Vec::new(),
        tried: Vec::new(),
    }
}

fn take(group: &mut Group<Entry>, at: Position, line: &[u8]) {
    let text = std::str::from_utf8(line).unwrap().trim_end_matches('\n');
    let len = text.len() as u32;
    if text.starts_with('!') {
        let now = SystemTime::now();
        let bytes = text.as_bytes().into();
        let (stage, reason) = ("validate".into(), Reason::record("bad"));
        group.rejects.push(Reject {
            at,
            len: len.into(),
            bytes,
            stage,
            reason,
            attempts: 1,
            first: now,
            last: now,
        });
    } else if text.starts_with('#') {
        group.filtered.add("left_out", 1);
    } else {
        let (keys, value) = text.split_once(',').unwrap();
        let value = value.parse().unwrap();
        for key in keys.split('|') {
            group.items.push(Item { at, len, value: Entry { key: key.into(), value } });
        }
    }
}
