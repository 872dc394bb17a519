//! Looking after a run while it goes on: signals, progress, the status file, events.

use std::collections::VecDeque;
use std::time::Duration;

use gegendruck::{Control, Event, Report};
use gegendruck_checkpoints::{RunInfo, RunState, Status, StatusFile, Ticket};
use jiff::Timestamp;

use super::{Job, with_cause};
use crate::progress::{Level, Log, Progress};
use crate::signals::Signal;

/// Looks after a run while it goes on: signals, progress, the status file.
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
        let mut told = tokio::time::Instant::now();
        loop {
            tokio::select! {
                biased;
                outcome = &mut outcome => {
                    self.write_status(RunState::Running).await;
                    return outcome;
                }
                signal = signals.next() => match signal {
                    Signal::Stop(2..) => {
                        self.job.log.line(Level::Warn, "second signal: stopping at once");
                        self.control.abort();
                    }
                    Signal::Stop(_) => {
                        self.job.log.line(Level::Info, "signal: finishing what is in flight");
                        self.control.stop();
                    }
                    Signal::Report => {
                        let report = self.control.report();
                        for line in report.to_string().lines() {
                            self.job.log.line(Level::Info, line);
                        }
                    }
                },
                _ = tick.tick() => {
                    self.write_status(RunState::Running).await;
                    let report = self.control.report();
                    let progress = self.progress(&report);
                    self.job.log.draw(&report, &progress);
                    if !self.job.log.draws() && told.elapsed() >= self.job.log.interval() {
                        told = tokio::time::Instant::now();
                        self.job.log.line(Level::Info, &progress.words());
                    }
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

    async fn write_status(&mut self, state: RunState) {
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
            state,
            host: self.job.process.host.clone(),
            pid: self.job.process.pid,
            since: self.since.to_string(),
            written: Timestamp::now().to_string(),
            committed: report.committed,
            last_commit: self.last_commit.map(|at| at.to_string()),
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
