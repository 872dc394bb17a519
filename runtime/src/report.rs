//! What the meters and links say, put together: where the time went, which stage is the bottleneck, and what would help.
//!
//! The reasoning, in order:
//!
//! 1. Too little was seen: say so.
//! 2. A stage is *saturated* if its workers are nearly never without input and nearly never backpressured. The most saturated
//!    one is the bottleneck; its upstream is backpressured and its downstream has no input, as intended. Why it is saturated is
//!    what its workers wait for (tokens of a rate, the end of a pause, an earlier record), if that costs as much as one more
//!    worker for every four would bring; otherwise what they do most of that time.
//! 3. If no stage is saturated, but one is without input while the source is backpressured, the two wait for each other in
//!    turn: the buffer between them is used up before the next request is answered.
//!
//! What more workers would bring: `min(rate, workers / service time)` of the stage, and no more than what any other stage could
//! do if it never waited (its records per second of serving time, times its workers).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
    /// Source records served.
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
    /// Records a second that it may call for, if that is limited.
    pub rate: Option<f64>,
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

    /// Records a second that `workers` could do if they never waited for anybody.
    pub fn capacity(&self, workers: usize) -> f64 {
        let serving = self.times.serving().as_secs_f64();
        if self.records == 0 || serving == 0.0 {
            return f64::INFINITY;
        }
        let by_workers = self.records as f64 * workers as f64 / serving;
        self.rate.map_or(by_workers, |rate| by_workers.min(rate))
    }

    /// Share of the run's time in which it waited neither for input nor to be asked. A stage that was done early waited for
    /// nobody while it lived, but does not hold up the rest.
    fn saturation(&self, wall: Duration) -> f64 {
        if self.times.total().is_zero() || wall.is_zero() {
            return 0.0;
        }
        let waited = self.times.share(State::NoInput) + self.times.share(State::Backpressured);
        (1.0 - waited) * (self.longest.as_secs_f64() / wall.as_secs_f64()).min(1.0)
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
        verdict(self)
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
        now,
        changes,
    }
}

/// What limits a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The stage's own work: its workers compute all the time.
    OwnWork,
    /// Its workers wait for answers all the time: there are too few of them.
    Concurrency,
    /// The rate that it may call with.
    Rate,
    /// Waits after errors.
    Pause,
    /// An earlier record that is not done.
    Order,
    /// Transactions: target-bound.
    Commit,
    /// The source delivers no faster: source-bound.
    Source,
    /// The buffer before the stage is used up before the next request is answered.
    Buffer,
    /// Too little was seen to tell.
    NotEnoughData,
}

/// The bottleneck, why it is one, and what would help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The stage; `None` if too little was seen.
    pub stage: Option<String>,
    /// Why it is limited.
    pub limit: Limit,
    /// How much more saturated it is than the next stage, as a share of the time.
    pub margin: f64,
    /// One or two sentences for the operator.
    pub words: String,
    /// What would help, as a command-line option where there is one, and what it would bring.
    pub next_step: Option<String>,
    /// Records a second that the next step would bring.
    pub would_bring: Option<f64>,
}

/// Less than this was not worth judging.
const LEAST_WALL: Duration = Duration::from_millis(200);
const LEAST_CLAIMS: u64 = 5;
/// From this share of the time on, a state is worth naming.
const NOTABLE: f64 = 0.05;
/// A wait of this share costs a stage as much as one more worker for every four would bring.
const WORTH_A_WORKER: f64 = 0.2;
/// A stage above this share is saturated without doubt.
const SATURATED: f64 = 0.9;

fn verdict(report: &Report) -> Verdict {
    let stages = &report.stages;
    let saturation = |index: usize| stages[index].saturation(report.wall);
    let seen = stages.iter().map(|stage| stage.claims).max().unwrap_or(0);
    let most = (0..stages.len()).max_by(|a, b| saturation(*a).total_cmp(&saturation(*b)));
    let Some(index) = most else { return not_enough() };
    if report.wall < LEAST_WALL || seen < LEAST_CLAIMS {
        return not_enough();
    }
    let stage = &stages[index];
    let next =
        (0..stages.len()).filter(|other| *other != index).map(saturation).fold(0.0, f64::max);
    let margin = (saturation(index) - next).max(0.0);
    if saturation(index) < SATURATED
        && let Some(verdict) = starved(report, margin)
    {
        return verdict;
    }
    let limit = why(stage);
    let described = describe(stage, limit, report.durable_share());
    let words = format!("{}, {described}. {}", stage.name, neighbours(stages, index));
    let (next_step, would_bring) = advice(report, index, limit);
    Verdict {
        stage: Some(stage.name.clone()),
        limit,
        margin,
        words: words.trim_end().into(),
        next_step,
        would_bring,
    }
}

fn not_enough() -> Verdict {
    Verdict {
        stage: None,
        limit: Limit::NotEnoughData,
        margin: 0.0,
        words: "not enough data to tell".into(),
        next_step: None,
        would_bring: None,
    }
}

/// What limits a saturated stage: what its workers wait for, if that is worth naming, else what they do most of the time.
fn why(stage: &StageReport) -> Limit {
    let most = |limits: &[(State, Limit)]| {
        let most = limits.iter().max_by_key(|(state, _)| stage.times.of(*state));
        most.map_or((0.0, Limit::NotEnoughData), |(state, limit)| {
            (stage.times.share(*state), *limit)
        })
    };
    let serves = [
        (State::Busy, Limit::OwnWork),
        (State::InCall, Limit::Concurrency),
        (State::Committing, Limit::Commit),
    ];
    let waits = [(State::Paused, Limit::Pause), (State::Reordering, Limit::Order)];
    let limited = stage.times.share(State::Limited);
    match (stage.kind, most(&serves).1, most(&waits)) {
        (StageKind::Source, ..) => Limit::Source,
        // Workers that wait for tokens at all are too many for their rate: more of them would bring nothing. But a service that
        // is down is not helped by a higher one.
        (_, _, (share, _)) if limited >= NOTABLE.max(share) => Limit::Rate,
        (_, _, (share, limit)) if share >= WORTH_A_WORKER => limit,
        (StageKind::Sink, ..) => Limit::Commit,
        (_, serves, _) => serves,
    }
}

fn describe(stage: &StageReport, limit: Limit, durable: Option<f64>) -> String {
    let percent = |state| format!("{:.0} % of the time", 100.0 * stage.times.share(state));
    let workers =
        if stage.workers == 1 { "1 worker".into() } else { format!("{} workers", stage.workers) };
    let pace = format!(
        "{workers} at {} a record = {}/s",
        time(stage.service()),
        number(stage.capacity(stage.workers))
    );
    match limit {
        Limit::Concurrency if stage.times.share(State::InCall) > 0.95 => {
            format!("always in call. {pace}")
        }
        Limit::Concurrency => format!("in call {}. {pace}", percent(State::InCall)),
        Limit::OwnWork => format!("busy with its own work {}. {pace}", percent(State::Busy)),
        Limit::Rate => format!(
            "held to its rate of {}/s {}",
            number(stage.rate.unwrap_or(0.0)),
            percent(State::Limited)
        ),
        Limit::Pause if stage.kind == StageKind::Sink => {
            format!("paused after errors of the target {}", percent(State::Paused))
        }
        Limit::Pause => format!(
            "paused after errors {}; {} calls were to be made again",
            percent(State::Paused),
            stage.retried
        ),
        Limit::Order => format!("waits for earlier records {}", percent(State::Reordering)),
        Limit::Commit => {
            let share =
                100.0 * (stage.times.share(State::Committing) + stage.times.share(State::Busy));
            let durable = durable.map_or(String::new(), |share| {
                format!(", {:.0} % of that to make them durable", 100.0 * share)
            });
            format!(
                "target-bound: in transactions {share:.0} % of the time, {} to {} each{durable}",
                time(stage.p50),
                time(stage.p99)
            )
        }
        Limit::Source => {
            let share = 100.0 * (1.0 - stage.times.share(State::Backpressured));
            format!("source-bound: reading {share:.0} % of the time")
        }
        Limit::Buffer | Limit::NotEnoughData => String::new(),
    }
}

fn neighbours(stages: &[StageReport], index: usize) -> String {
    let names = |range: &[StageReport], state: State| -> Vec<String> {
        range
            .iter()
            .filter(|stage| stage.times.share(state) > 0.5)
            .map(|stage| stage.name.clone())
            .collect()
    };
    let before = names(&stages[..index], State::Backpressured);
    let after = names(&stages[index + 1..], State::NoInput);
    let verb = |names: &[String]| if names.len() == 1 { "is" } else { "are" };
    let mut words = Vec::new();
    if !before.is_empty() {
        words.push(format!("{} {} backpressured, as intended", list(&before), verb(&before)));
    }
    if !after.is_empty() {
        words.push(format!("{} {} without input", list(&after), verb(&after)));
    }
    if words.is_empty() { String::new() } else { format!("{}.", words.join("; ")) }
}

fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// What all stages could do together if `index` could do `then` records a second.
fn throughput(report: &Report, index: usize, then: f64) -> f64 {
    let of = |(other, stage): (usize, &StageReport)| {
        if other == index { then } else { stage.capacity(stage.workers) }
    };
    report.stages.iter().enumerate().map(of).fold(f64::INFINITY, f64::min)
}

impl Verdict {
    /// Records a second that `report`'s run would do with `workers` in the stage called `name`.
    pub fn predict(report: &Report, name: &str, workers: usize) -> Option<f64> {
        let index = report.stages.iter().position(|stage| stage.name == name)?;
        Some(throughput(report, index, report.stages[index].capacity(workers)))
    }
}

fn advice(report: &Report, index: usize, limit: Limit) -> (Option<String>, Option<f64>) {
    let stage = &report.stages[index];
    let without_waits = throughput(report, index, stage.capacity(stage.workers));
    match limit {
        Limit::Concurrency => {
            let more = stage.workers + stage.workers.div_ceil(4);
            let brings = throughput(report, index, stage.capacity(more));
            let about = number(brings);
            let words = format!(
                "--workers {}={more}, about {about}/s, if the service has room",
                stage.name
            );
            (Some(words), Some(brings))
        }
        Limit::OwnWork => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let computing = report.computing();
            if stage.workers >= cores || computing > 0.9 * cores as f64 {
                let words = format!(
                    "it computes on all {cores} cores; only less work in {} or more cores would help",
                    stage.name
                );
                return (Some(words), None);
            }
            let more = stage.workers + 1;
            let on_all_cores = stage.per_second * cores as f64 / computing;
            let brings = throughput(report, index, stage.capacity(more)).min(on_all_cores);
            let about = number(brings);
            let words = format!(
                "--workers {}={more}, about {about}/s, if a core is free for it",
                stage.name
            );
            (Some(words), Some(brings))
        }
        Limit::Rate => {
            let unlimited = StageReport { rate: None, ..stage.clone() }.capacity(stage.workers);
            let brings = throughput(report, index, unlimited);
            let words = format!(
                "a higher --rate for {}; without one about {}/s",
                stage.name,
                number(brings)
            );
            (Some(words), Some(brings))
        }
        Limit::Pause if stage.kind == StageKind::Sink => {
            let words = format!(
                "look at the target: it was busy or down; without these waits about {}/s",
                number(without_waits)
            );
            (Some(words), Some(without_waits))
        }
        Limit::Pause => {
            let words = format!(
                "look at the service behind {}; it failed {} calls; without these waits about {}/s",
                stage.name,
                stage.retried,
                number(without_waits)
            );
            (Some(words), Some(without_waits))
        }
        Limit::Order => {
            let words = format!(
                "a larger reorder for {}, or unordered output; about {}/s",
                stage.name,
                number(without_waits)
            );
            (Some(words), Some(without_waits))
        }
        Limit::Commit => faster_sink(report, index),
        Limit::Source => {
            let could = throughput(report, index, f64::INFINITY);
            (Some(faster_source(&report.stages, could)), None)
        }
        Limit::Buffer | Limit::NotEnoughData => (None, None),
    }
}

/// A stage that is without input while the source is backpressured: the two wait for each other in turn.
fn starved(report: &Report, margin: f64) -> Option<Verdict> {
    let stages = &report.stages;
    let (source, sink) = (stages.first()?, stages.last()?);
    let blocked = source.times.share(State::Backpressured);
    let saturation = |index: &usize| stages[*index].saturation(report.wall);
    let index = (1..stages.len() - 1).max_by(|a, b| saturation(a).total_cmp(&saturation(b)))?;
    let stage = &stages[index];
    let starved = stage.times.share(State::NoInput);
    // A sink that is as busy holds up the stage itself.
    let held_up = sink.saturation(report.wall) > saturation(&index) - NOTABLE;
    let small = stage.most.records >= stage.buffer.records / 2;
    if blocked < NOTABLE || starved < NOTABLE || held_up || !small {
        return None;
    }
    let (alone, reads) = (stage.capacity(stage.workers), source.capacity(1));
    let brings = throughput(report, index, alone);
    // A source that takes as long for a little as for much does more with more room.
    let about = if reads < alone && reads <= brings { "at least" } else { "about" };
    let latency = source.times.serving().as_secs_f64() / source.claims.max(1) as f64;
    // What is asked for, what is done until it comes, and what is in the workers' hands meanwhile.
    let in_hand = stage.workers as f64 * stage.records as f64 / stage.claims.max(1) as f64;
    let needed = stage.request as f64 + brings * latency + in_hand;
    let buffer = (needed / stage.request as f64).ceil().max(2.0) as u64 * stage.request;
    if buffer <= stage.buffer.records {
        return None;
    }
    let words = format!(
        "the buffer of {name}: without input {:.0} % of the time although {} is backpressured {:.0} %. \
         Its buffer of {} is used up before the next request of {} is answered, {} later.",
        100.0 * starved,
        source.name,
        100.0 * blocked,
        stage.buffer.records,
        stage.request,
        time(Duration::from_secs_f64(latency)),
        name = stage.name,
    );
    Some(Verdict {
        stage: Some(stage.name.clone()),
        limit: Limit::Buffer,
        margin,
        words,
        next_step: Some(format!("--buffer {}={buffer}, {about} {}/s", stage.name, number(brings))),
        would_bring: Some(brings),
    })
}

/// What would help a sink that is in transactions most of the time.
fn faster_sink(report: &Report, index: usize) -> (Option<String>, Option<f64>) {
    let stage = &report.stages[index];
    let records = stage.records / stage.claims.max(1);
    let bytes = stage.settled.bytes / stage.claims.max(1);
    let takes_all = 2 * records > stage.buffer.records;
    let takes_all_bytes = 2 * bytes > stage.buffer.bytes;
    if stage.times.share(State::NoInput) >= WORTH_A_WORKER && (takes_all || takes_all_bytes) {
        let brings = throughput(report, index, stage.capacity(1));
        let option = match takes_all {
            true => format!("--buffer {}={}", stage.name, 4 * records),
            false => format!("--memory {}M", (4 * bytes).div_ceil(1 << 20)),
        };
        let words = format!(
            "{option}, about {}/s: a transaction of {} records takes most of the buffer, and nothing is made ready beside it",
            number(brings),
            thousands(records)
        );
        return (Some(words), Some(brings));
    }
    let larger = if takes_all || takes_all_bytes { "" } else { ", or a larger --batch-size" };
    let faster = match report.durable_share() {
        Some(share) if share >= 0.5 => format!("a faster disk for the target{larger}"),
        Some(_) => "fewer indexes on the target's table, or a faster processor: its disk is not what it waits for".into(),
        None => format!("a faster target{larger}"),
    };
    let could = number(throughput(report, index, f64::INFINITY));
    (Some(format!("{faster}. The stages before it could do {could}/s")), None)
}

/// What would help a source that reads all the time, if the stages behind it could do so many records a second.
fn faster_source(stages: &[StageReport], could: f64) -> String {
    let (source, rest) = stages.split_first().expect("a pipeline has a source");
    let faster = format!(
        "a faster disk or network for the input. The stages behind it could do {}/s",
        number(could)
    );
    let at_a_time = source.records / source.claims.max(1);
    let room = 2 * source.request;
    let small = |stage: &&StageReport| {
        stage.buffer.records < room
            && stage.request <= source.request
            && 4 * at_a_time < 3 * source.request
            && could > (1.0 + WORTH_A_WORKER) * source.per_second
    };
    match rest.iter().min_by_key(|stage| stage.buffer.records).filter(small) {
        Some(StageReport { name, .. }) => format!(
            "--buffer {name}={room} --request {name}={}, if a read takes as long for a little as for much: it is asked for \
             {at_a_time} records at a time on average; otherwise {faster}",
            source.request
        ),
        None => faster,
    }
}

/// A number for a reader: thousands separated, no decimals from ten on.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "any number".into();
    }
    if value < 10.0 {
        return format!("{value:.1}");
    }
    thousands(value.round() as u64)
}

/// A count for a reader, thousands separated by commas.
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A short time for a reader: two figures and a unit.
pub fn time(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    let (value, unit) = match nanos {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    if value < 10.0 && unit != "ns" {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// Two times for a reader, in the unit of the longer one.
fn pair(short: Duration, long: Duration, between: &str) -> String {
    let (scale, unit) = match long.as_nanos() {
        0..100 => (1e9, "ns"),
        100..1_000_000 => (1e6, "us"),
        1_000_000..1_000_000_000 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    let figure = |time: Duration| match time.as_secs_f64() * scale {
        value if value < 10.0 && unit != "ns" => format!("{value:.1}"),
        value => format!("{value:.0}"),
    };
    format!("{}{between}{} {unit}", figure(short), figure(long))
}

/// The table of stages, and under it the bottleneck and the next step.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.stages.iter().map(|stage| stage.name.len()).max().unwrap_or(0).max(8);
        writeln!(
            f,
            "{:width$}  workers   busy  in call  no input  backpr.  limited  paused  reorder  commit    in/s   p50/p99 a record   queue max/limit  oldest",
            "stage"
        )?;
        for stage in &self.stages {
            let share = |state: State| match 100.0 * stage.times.share(state) {
                0.0 => "-".to_string(),
                percent => format!("{percent:.0} %"),
            };
            let service = match stage.kind {
                StageKind::Sink => format!("commit {}", pair(stage.p50, stage.p99, "/")),
                _ => pair(stage.p50, stage.p99, " / "),
            };
            let queue = match stage.kind {
                StageKind::Source => "-".to_string(),
                _ => {
                    format!("{}/{}", thousands(stage.most.records), thousands(stage.buffer.records))
                }
            };
            let oldest = match stage.oldest {
                Some(age) if stage.kind != StageKind::Source => {
                    format!("{:.1} s", age.as_secs_f64())
                }
                _ => "-".to_string(),
            };
            writeln!(
                f,
                "{:width$}  {:>7} {:>6} {:>8} {:>9} {:>8} {:>8} {:>7} {:>8} {:>7} {:>7}   {:16}   {:>15}  {:>6}",
                stage.name,
                stage.workers,
                share(State::Busy),
                share(State::InCall),
                share(State::NoInput),
                share(State::Backpressured),
                share(State::Limited),
                share(State::Paused),
                share(State::Reordering),
                share(State::Committing),
                number(stage.per_second),
                service,
                queue,
                oldest,
            )?;
        }
        let verdict = self.verdict();
        write!(f, "bottleneck: {}", verdict.words)?;
        if let Some(next) = &verdict.next_step {
            write!(f, "\nnext step:  {next}")?;
        }
        Ok(())
    }
}
