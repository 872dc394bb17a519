//! Looking after a run while it goes on: signals, progress, the status file, heartbeats, events.

use std::collections::VecDeque;
use std::time::Duration;

use gegendruck::{Control, Event, Report};
use gegendruck_checkpoints::{
    Ledger, LedgerError, RunInfo, RunState, Status, StatusFile, Target, Ticket, Trouble,
};
use jiff::Timestamp;

use super::{Job, with_cause};
use crate::progress::{Level, Log, Progress};
use crate::signals::Signal;

/// Looks after a run while it goes on.
pub(super) struct Watch<'a> {
    job: &'a Job<'a>,
    before: &'a RunInfo,
    ticket: &'a Ticket,
    control: Control,
    file: StatusFile,
    since: Timestamp,
    last_commit: Option<Timestamp>,
    commits: u64,
    history: VecDeque<Report>,
}

/// Reports kept for the figures of the last minute, one a second.
const MINUTE: usize = 60;

impl<'a> Watch<'a> {
    pub(super) fn new(
        job: &'a Job<'a>,
        before: &'a RunInfo,
        ticket: &'a Ticket,
        control: Control,
    ) -> Watch<'a> {
        Watch {
            job,
            before,
            ticket,
            control,
            file: StatusFile::of(&job.target),
            since: Timestamp::now(),
            last_commit: None,
            commits: 0,
            history: VecDeque::new(),
        }
    }

    pub(super) async fn until<O>(mut self, outcome: impl Future<Output = O>) -> O {
        let mut outcome = std::pin::pin!(outcome);
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut signals = self.job.signals.clone();
        let log = self.job.log;
        // What is redrawn is there at once, a line has something to tell first.
        let mut told = (!log.draws()).then(tokio::time::Instant::now);
        let (control, target) = (self.control.clone(), &self.job.target);
        let commits = move || control.report().commits;
        let mut beats = true;
        let mut heart = std::pin::pin!(heartbeats(target, self.ticket, commits, log));
        loop {
            tokio::select! {
                biased;
                outcome = &mut outcome => {
                    self.write_status().await;
                    return outcome;
                }
                signal = signals.next() => match signal {
                    Signal::Stop(2..) => {
                        log.line(Level::Warn, "second signal: stopping at once");
                        self.control.abort();
                    }
                    Signal::Stop(_) => {
                        let words = "signal: nothing more is read, and what can be finished now is committed";
                        log.line(Level::Info, &format!("{words}; a second signal stops at once"));
                        self.control.stop();
                    }
                    Signal::Report => {
                        let report = self.control.report();
                        for line in report.to_string().lines() {
                            log.line(Level::Info, line);
                        }
                    }
                },
                _ = tick.tick() => {
                    self.write_status().await;
                    let due = |interval| told.is_none_or(|told| told.elapsed() >= interval);
                    if log.interval().is_some_and(due) {
                        told = Some(tokio::time::Instant::now());
                        let report = self.control.report();
                        log.progress(&report, &self.progress(&report));
                    }
                }
                taken_over = &mut heart, if beats => {
                    beats = false;
                    log.line(Level::Warn, &with_cause(&taken_over));
                }
            }
        }
    }

    fn progress(&self, report: &Report) -> Progress {
        let of = self.before.inputs.iter().map(|input| input.size).sum();
        let before: u64 = self.before.inputs.iter().map(|input| input.at.byte).sum();
        let bytes = match report.committed {
            None => before,
            Some(at) => {
                let inputs = self.before.inputs.iter().zip(0u32..);
                inputs
                    .map(|(input, index)| match index.cmp(&at.input) {
                        std::cmp::Ordering::Less => input.size,
                        std::cmp::Ordering::Equal => at.byte,
                        std::cmp::Ordering::Greater => input.at.byte,
                    })
                    .sum()
            }
        };
        let records_now = report.tally.read;
        Progress {
            bytes,
            of,
            before,
            records: self.before.tally.read + records_now,
            records_now,
            wall: report.wall,
        }
    }

    async fn write_status(&mut self) {
        let report = self.control.report();
        if report.commits > self.commits {
            self.commits = report.commits;
            let ago = report.since_commit.unwrap_or_default();
            self.last_commit = Timestamp::now().checked_sub(ago).ok();
        }
        let recent = self.history.front().map(|earlier| report.since(earlier));
        let progress = self.progress(&report);
        let mut tally = self.before.tally;
        tally.add(&report.tally);
        let status = Status {
            run: self.ticket.run().into(),
            pipeline: self.before.pipeline.pipeline.clone(),
            state: RunState::Running,
            host: self.job.process.host.clone(),
            pid: self.job.process.pid,
            since: format!("{:.0}", self.since),
            written: format!("{:.3}", Timestamp::now()),
            committed: report.committed,
            last_commit: self.last_commit.map(|at| format!("{at:.3}")),
            tally,
            bytes: progress.bytes,
            bytes_before: progress.before,
            total_bytes: progress.of,
            report: Some(report.clone()),
            recent,
            notes: vec![report.who_waits()],
        };
        self.history.push_back(report);
        if self.history.len() > MINUTE {
            self.history.pop_front();
        }
        let file = self.file.clone();
        let written = tokio::task::spawn_blocking(move || file.write(&status)).await;
        if let Ok(Err(error)) = written {
            self.job.log.line_of_kind(Level::Warn, "status file", &with_cause(&error));
        }
    }
}

/// Time without a commit after which the attempt says itself that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Says in the ledger that the attempt is alive while no commit does. Ends when the run was taken over, and says so. A ledger that
/// cannot be written is no reason to end a run: its next commit finds that out. A database that has gone is not created anew: SQLite
/// goes on writing the one that it has open, wherever that is, and an operator is told once.
///
/// # Cancel safety
/// A dropped future leaves nothing open.
async fn heartbeats(
    target: &Target,
    ticket: &Ticket,
    commits: impl Fn() -> u64,
    log: &Log,
) -> LedgerError {
    let mut ledger = None;
    let mut before = commits();
    let mut gone = false;
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        let was_gone = std::mem::replace(&mut gone, !target.exists());
        if gone && !was_gone {
            tell_gone(target, log);
        }
        if gone {
            continue;
        }
        let now = commits();
        if std::mem::replace(&mut before, now) != now {
            continue;
        }
        let beat = async {
            let mut open = match ledger.take() {
                Some(open) => open,
                None => Ledger::open_existing(target).await?,
            };
            open.heartbeat(ticket).await?;
            Ok::<_, LedgerError>(open)
        };
        match beat.await {
            Ok(open) => ledger = Some(open),
            Err(taken_over @ LedgerError::Fenced { .. }) => return taken_over,
            // It has gone since it was looked for: the next beat finds that out.
            Err(LedgerError::Missing { .. }) => {}
            // The run's own transaction may be a long one.
            Err(LedgerError::Database { trouble: Trouble::Busy, .. }) => {}
            Err(error) => {
                let words = format!("heartbeat: {}", with_cause(&error));
                log.line_of_kind(Level::Warn, "heartbeat", &words);
            }
        }
    }
}

/// Heard with `--quiet` too: whoever has moved the database must put it back.
fn tell_gone(target: &Target, log: &Log) {
    let path = target.path().display();
    let words = "is no longer there, although this run writes it: it was moved or removed";
    let remedy = "stop the run, put the database back with its -wal file, and start again";
    log.line_of_kind(Level::Error, TARGET_GONE, &format!("{path}: {words}; {remedy}"));
}

const TARGET_GONE: &str = "target gone";

pub(super) fn tell(log: &Log, event: &Event) {
    match event {
        Event::Panicked { stage, at } => {
            log.line_of_kind(
                Level::Error,
                &format!("{stage} panicked"),
                &format!("{stage}: panicked, near {at}"),
            );
        }
        Event::Held { stage, message } => {
            log.line(Level::Warn, &format!("{stage}: paused: {message}"))
        }
        Event::Resumed { stage } => log.line(Level::Info, &format!("{stage}: goes on")),
        Event::Stalled(words) => log.line(Level::Warn, &format!("nothing moves: {words}")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use gegendruck_checkpoints::{
        Attempt, InputFile, PipelineIdentity, Process, ResumePoint, RunSpec,
    };
    use sqlx::Executor;

    use super::*;
    use crate::cli::{LogFormat, OutputArgs};

    struct Begun {
        _folder: tempfile::TempDir,
        target: Target,
        ticket: Ticket,
        ledger: Ledger,
        log: Log,
    }

    impl Begun {
        /// A run whose attempt was last heard of long ago.
        async fn new() -> Begun {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let target = Target::parse(&folder.path().join("a.db").display().to_string());
            let target = target.expect("a target");
            let mut ledger = Ledger::open(&target, "test").await.expect("a ledger");
            let text = String::new;
            let spec = RunSpec {
                pipeline: PipelineIdentity {
                    pipeline: "test".into(),
                    rules: 1,
                    table: text(),
                    dialect: text(),
                    mapping: text(),
                    conflict: text(),
                },
                inputs: vec![ResumePoint::begin(0, InputFile::stream("test"))],
                label: None,
                as_of: None,
                contracts_run: None,
            };
            let attempt = Attempt { process: Process::this("1"), settings: serde_json::json!({}) };
            let ticket = ledger.begin(&spec, &attempt).await.expect("a run");
            let log = Log::new(&OutputArgs {
                report_interval: None,
                log_format: LogFormat::Text,
                verbose: false,
                quiet: true,
                no_progress: true,
                summary: None,
            });
            let begun = Begun { _folder: folder, target, ticket, ledger, log };
            begun.execute("UPDATE gegendruck_attempts SET heartbeat = 'long ago'").await;
            begun
        }

        async fn execute(&self, sql: &str) {
            let mut connection = self.target.connect().await.expect("the database opens");
            connection.execute(sql).await.expect("the statement runs");
        }

        async fn heartbeat(&mut self) -> String {
            let attempts = self.ledger.attempts(self.ticket.run()).await.expect("the attempts");
            attempts[0].heartbeat.clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_commits_nothing_says_that_it_is_alive() {
        let mut begun = Begun::new().await;
        let (target, ticket, log) = (begun.target.clone(), begun.ticket.clone(), begun.log.clone());
        let heart = heartbeats(&target, &ticket, || 7, &log);
        let beats = async { while begun.heartbeat().await == "long ago" {} };
        tokio::select! {
            taken_over = heart => panic!("{taken_over}"),
            () = beats => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_has_gone_is_told_once_and_is_not_created_anew() {
        let begun = Begun::new().await;
        std::fs::remove_file(begun.target.path()).expect("the database is there");
        let heart = heartbeats(&begun.target, &begun.ticket, || 7, &begun.log);
        let beats = tokio::time::timeout(20 * HEARTBEAT, heart).await;
        assert!(beats.is_err(), "it goes on");
        assert!(!begun.target.exists());
        assert_eq!(begun.log.count_of(TARGET_GONE), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_commits_says_nothing_else() {
        let mut begun = Begun::new().await;
        let commits = Cell::new(0);
        let committed = tokio::sync::Notify::new();
        let commit = || {
            commits.set(commits.get() + 1);
            if commits.get() == 100 {
                committed.notify_one();
            }
            commits.get()
        };
        tokio::select! {
            taken_over = heartbeats(&begun.target, &begun.ticket, commit, &begun.log) => panic!("{taken_over}"),
            () = committed.notified() => {}
        }
        assert_eq!(begun.heartbeat().await, "long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_was_taken_over_stops_saying_that_it_is_alive() {
        let mut begun = Begun::new().await;
        begun
            .execute(
                "UPDATE gegendruck_runs SET epoch = 2; INSERT INTO gegendruck_attempts SELECT run, 2, started, \
                 heartbeat, ended, exit_code, commits, 'etl04', pid, user_name, version, settings FROM gegendruck_attempts",
            )
            .await;
        let taken_over = heartbeats(&begun.target, &begun.ticket, || 7, &begun.log).await;
        assert!(taken_over.to_string().contains("was taken over by pid"), "{taken_over}");
        assert!(taken_over.to_string().contains("on etl04"), "{taken_over}");
        assert_eq!(begun.heartbeat().await, "long ago");
    }
}
