//! What the meters and links say, put together: where the time went, stage by stage.
//!
//! ```text
//! meters, links, commits --read--> Report --+--> bottleneck: which stage, why, and what would help
//!                                           +--> text: the table of stages for a reader
//! ```
//!
//! A report is plain numbers of one moment, open intervals included; all that is concluded from it is concluded from those.

mod bottleneck;
mod text;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::bottleneck::{Limit, Verdict};
pub use self::text::{number, thousands, time};
use crate::clock::Clock;
use crate::meter::{Meter, State, Times};
use crate::sink::CommitState;
use crate::stage::StageInfo;
use crate::sync::Mutex;
use crate::{Amount, Position, Tally};

/// What a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageKind {
    /// Where records come from.
    Source,
    /// Computes.
    Transform,
    /// Asks somebody else.
    Call,
    /// Where records end.
    Sink,
}

/// Where the time of one stage went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageReport {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: StageKind,
    /// Workers that it has now, or had at the end.
    pub workers: usize,
    /// Time in each state, all workers summed.
    pub times: Times,
    /// Wall time of its workers, summed; the times in all states add up to it.
    pub lived: Duration,
    /// Wall time of the worker that lived longest: shorter than the run's if the stage was done early.
    pub longest: Duration,
    /// Share of serving time of the busiest and of the least busy worker, 0.0 to 1.0.
    pub skew: (f64, f64),
    /// Source records that it is done with: those of a stage in the middle are settled behind its input.
    pub records: u64,
    /// Claims (for a sink: transactions) served.
    pub claims: u64,
    /// Source records served a second, over the wall time of the run.
    pub per_second: f64,
    /// Service time of a record (for a sink: of a transaction), median.
    pub p50: Duration,
    /// The same, 99th percentile.
    pub p99: Duration,
    /// Records rejected here.
    pub rejected: u64,
    /// Records dropped here.
    pub filtered: u64,
    /// Calls that are or were to be made again.
    pub retried: u64,
    /// Settled behind its input since the run began.
    pub settled: Amount,
    /// On its way behind its input now.
    pub held: Amount,
    /// Most that was on its way behind its input.
    pub most: Amount,
    /// Most that may be.
    pub buffer: Amount,
    /// The size of its requests; of a source, most records of one hand-over if there is room for them.
    pub request: u64,
    /// Age of the oldest record that waits to be claimed.
    pub oldest: Option<Duration>,
    /// Values that a second's calls may be about, if that is limited.
    pub rate: Option<f64>,
    /// Most records that one call can be answered about at once; `None` if it calls nobody, or about one after the other.
    #[serde(default)]
    pub claim: Option<u64>,
    /// Values that calls were about, those that were made again included.
    #[serde(default)]
    pub asked: u64,
    /// What each running worker is in now, and for how long.
    pub now: Vec<(State, Duration)>,
    /// Changes of state: the accounting's own work.
    pub changes: u64,
}

impl StageReport {
    /// Serving time of one record by one worker.
    pub fn service(&self) -> Duration {
        self.times
            .serving()
            .checked_div(u32::try_from(self.records).unwrap_or(u32::MAX))
            .unwrap_or_default()
    }

    /// Records a second that `workers` could do if they never waited for anybody. Calls that were not full for lack of records are
    /// taken to last as long when they are.
    pub fn capacity(&self, workers: usize) -> f64 {
        let serving = self.times.serving().as_secs_f64();
        if self.records == 0 || serving == 0.0 {
            return f64::INFINITY;
        }
        let by_workers = self.records as f64 * workers as f64 / (serving * self.fill());
        self.by_rate().map_or(by_workers, |by_rate| by_workers.min(by_rate))
    }

    /// Records a second that its rate allows.
    fn by_rate(&self) -> Option<f64> {
        let per_value = self.records as f64 / self.asked.max(1) as f64;
        self.rate.map(|rate| if self.asked == 0 { rate } else { rate * per_value })
    }

    /// How full its calls were, of what one may be about, if there was never much to call about: 0.0 to 1.0.
    fn fill(&self) -> f64 {
        let was_behind = 2 * self.most.records >= self.buffer.records;
        match self.claim {
            Some(claim) if self.claims > 0 && self.asked > 0 && !was_behind => {
                (self.asked as f64 / (self.claims * claim) as f64).min(1.0)
            }
            _ => 1.0,
        }
    }

    /// Share of the run's time in which it waited neither for input nor to be asked. A stage that was done early waited for
    /// nobody while it lived, but does not hold up the rest.
    fn saturation(&self, wall: Duration) -> f64 {
        if self.times.total().is_zero() || wall.is_zero() {
            return 0.0;
        }
        let waited = self.times.share(State::NoInput) + self.times.share(State::Backpressured);
        let lived = (self.longest.as_secs_f64() / wall.as_secs_f64()).min(1.0);
        (1.0 - waited) * lived
    }
}

/// Where the time of a run went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Time since the run began.
    pub wall: Duration,
    /// The stages, in the order of the flow.
    pub stages: Vec<StageReport>,
    /// Verdicts of the records committed.
    pub tally: Tally,
    /// Transactions committed.
    pub commits: u64,
    /// How far the commits are.
    pub committed: Option<Position>,
    /// Time since the last commit.
    pub since_commit: Option<Duration>,
    /// How much of the time in transactions the target took to make them durable; `None` if its sink does not tell.
    #[serde(default)]
    pub durable: Option<Duration>,
}

impl Report {
    pub(crate) fn read(
        clock: Clock,
        stages: &[(StageKind, Arc<StageInfo>)],
        commits: &Mutex<CommitState>,
        percentiles: Percentiles,
    ) -> Report {
        let now = clock.now();
        let wall = now.since(Default::default());
        let commits = *commits.lock();
        Report {
            wall,
            stages: stages
                .iter()
                .map(|(kind, info)| read_stage(*kind, info, clock, wall, percentiles))
                .collect(),
            tally: commits.tally,
            commits: commits.commits,
            committed: commits.at,
            since_commit: commits.when.map(|when| now.since(when)),
            durable: commits.durable,
        }
    }

    /// The same run over the time since an `earlier` report. Percentiles and maxima stay those of the whole run.
    pub fn since(&self, earlier: &Report) -> Report {
        let mut report = self.clone();
        report.wall = self.wall.saturating_sub(earlier.wall);
        let durable =
            |durable: Duration| durable.saturating_sub(earlier.durable.unwrap_or_default());
        report.durable = self.durable.map(durable);
        for (stage, before) in report.stages.iter_mut().zip(&earlier.stages) {
            stage.times = stage.times.since(&before.times);
            stage.lived = stage.lived.saturating_sub(before.lived);
            stage.longest = stage.longest.saturating_sub(before.longest);
            stage.records -= before.records;
            stage.claims -= before.claims;
            stage.asked -= before.asked;
            stage.retried -= before.retried;
            stage.rejected -= before.rejected;
            stage.filtered -= before.filtered;
            stage.changes -= before.changes;
            stage.settled = stage.settled - before.settled;
            stage.per_second = per_second(stage.records, report.wall);
        }
        report
    }

    /// The stage of that name.
    pub fn stage(&self, name: &str) -> Option<&StageReport> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// How many cores the stages' own work kept busy, on average.
    fn computing(&self) -> f64 {
        let busy = |stage: &StageReport| stage.times.of(State::Busy).as_secs_f64();
        self.stages.iter().map(busy).sum::<f64>() / self.wall.as_secs_f64()
    }

    /// How much of the time in transactions went into making them durable.
    fn durable_share(&self) -> Option<f64> {
        let committing = self.stages.last()?.times.of(State::Committing).as_secs_f64();
        self.durable.filter(|_| committing > 0.0).map(|durable| durable.as_secs_f64() / committing)
    }

    /// Which stage is the bottleneck, why, and what would help.
    pub fn verdict(&self) -> Verdict {
        bottleneck::verdict(self)
    }

    /// Who waits for whom, in one line.
    pub fn who_waits(&self) -> String {
        crate::watchdog::who_waits(&self.stages)
    }
}

fn per_second(records: u64, wall: Duration) -> f64 {
    if wall.is_zero() { 0.0 } else { records as f64 / wall.as_secs_f64() }
}

/// Whether a report is to have percentiles: they cost more to read than all the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Percentiles {
    With,
    Without,
}

fn read_stage(
    kind: StageKind,
    info: &StageInfo,
    clock: Clock,
    wall: Duration,
    percentiles: Percentiles,
) -> StageReport {
    let gauge = (info.gauge)();
    let mut times = Times::default();
    let (mut lived, mut longest) = (Duration::ZERO, Duration::ZERO);
    let (mut records, mut claims, mut changes) = (0, 0, 0);
    let mut now = Vec::new();
    let mut service = (percentiles == Percentiles::With).then(Meter::no_service);
    let mut skew: Option<(f64, f64)> = None;
    let asked = info.asked.load(Ordering::Relaxed);
    let meters = info.meters.lock().clone();
    for meter in &meters {
        let reading = meter.read();
        times.add(&reading.times);
        lived += reading.lived;
        longest = longest.max(reading.lived);
        records += reading.records;
        claims += reading.claims;
        changes += reading.changes;
        now.extend(reading.state.map(|state| (state, reading.open)));
        if let Some(service) = &mut service {
            meter.add_service_to(service);
        }
        let share =
            reading.times.serving().as_secs_f64() / reading.times.total().as_secs_f64().max(1e-9);
        let (most, least) = skew.unwrap_or((share, share));
        skew = Some((most.max(share), least.min(share)));
    }
    let percentile = |quantile| {
        let nanos = service.as_ref().map_or(0, |all| all.value_at_quantile(quantile));
        Duration::from_nanos(nanos)
    };
    let workers = if now.is_empty() { info.workers.load(Ordering::Relaxed) } else { now.len() };
    // What a worker has in hand may be done twice, or not be worked on at all: what is settled is done.
    let records = match kind {
        StageKind::Transform | StageKind::Call => gauge.settled.records,
        StageKind::Source | StageKind::Sink => records,
    };
    // What a source has on its way is what its own link holds; it has no input.
    StageReport {
        name: info.name.to_string(),
        kind,
        workers,
        times,
        lived,
        longest,
        skew: skew.unwrap_or_default(),
        records,
        claims,
        per_second: per_second(records, wall),
        p50: percentile(0.5),
        p99: percentile(0.99),
        rejected: info.rejected.load(Ordering::Relaxed),
        filtered: info.filtered.load(Ordering::Relaxed),
        retried: info.retried.load(Ordering::Relaxed),
        settled: gauge.settled,
        held: gauge.sent - gauge.settled,
        most: gauge.most,
        buffer: gauge.buffer,
        request: info.settings.request.0,
        oldest: gauge.oldest.map(|read_at| clock.now().since(read_at)),
        rate: info.settings.rate,
        claim: info.settings.claim.filter(|_| info.settings.at_once).map(|claim| claim as u64),
        asked,
        now,
        changes,
    }
}
