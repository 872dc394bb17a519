//! Which stage is the bottleneck, why, and what would help.
//!
//! The reasoning, in order:
//!
//! 1. Too little was seen: say so.
//! 2. A stage is *saturated* if its workers are nearly never without input and nearly never backpressured. The most saturated
//!    one, of several the first, is the bottleneck; its upstream is backpressured and its downstream has no input, as intended.
//!    Why it is saturated is what its workers wait for (tokens of a rate, the end of a pause, an earlier record), if that costs as
//!    much as one more worker for every four would bring; otherwise what they do most of that time.
//! 3. If no stage is saturated, but one is without input while the source is backpressured, the two wait for each other in
//!    turn: the buffer between them is used up before the next request is answered. Or a stage is backpressured while all behind
//!    it are without input: the sink holds what has overtaken a record that takes long.
//!
//! What more workers would bring: `min(rate, workers / service time)` of the stage, and no more than what any other stage could
//! do if it never waited (its records per second of serving time, times its workers). A stage that is saturated only a part of
//! the time makes only that part shorter.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Report, StageKind, StageReport, number, thousands, time};
use crate::meter::State;

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
    /// The buffer before the stage is used up before the next request is answered; or, of a sink, it is full of what has overtaken
    /// an earlier record.
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
/// Stages that are saturated alike differ by less.
const ALIKE: f64 = 0.02;
/// A stage above this share is saturated without doubt.
const SATURATED: f64 = 0.9;

pub(super) fn verdict(report: &Report) -> Verdict {
    let stages = &report.stages;
    let saturation = |index: usize| stages[index].saturation(report.wall);
    let seen = stages.iter().map(|stage| stage.claims).max().unwrap_or(0);
    let most = (0..stages.len()).map(saturation).fold(0.0, f64::max);
    // One that holds up another makes it wait: of two that hardly ever wait the later one only keeps up, with calls about less.
    let first = (0..stages.len()).find(|index| saturation(*index) > most - ALIKE);
    let Some(index) = first else { return not_enough() };
    if report.wall < LEAST_WALL || seen < LEAST_CLAIMS {
        return not_enough();
    }
    let stage = &stages[index];
    let next =
        (0..stages.len()).filter(|other| *other != index).map(saturation).fold(0.0, f64::max);
    let margin = (saturation(index) - next).max(0.0);
    if saturation(index) < SATURATED
        && let Some(verdict) = starved(report, margin).or_else(|| held_back(report, margin))
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

/// What all stages could do together if `index` could do `then` records a second and nobody ever waited.
fn throughput(report: &Report, index: usize, then: f64) -> f64 {
    let of = |(other, stage): (usize, &StageReport)| {
        if other == index { then } else { stage.capacity(stage.workers) }
    };
    report.stages.iter().enumerate().map(of).fold(f64::INFINITY, f64::min)
}

/// The same, if the stages go on to wait for each other as they did: where `index` does not hold up the others all the time, only
/// the part of the time in which it does gets shorter.
fn gained(report: &Report, index: usize, then: f64) -> f64 {
    let stage = &report.stages[index];
    let shorter = 1.0 - stage.capacity(stage.workers) / then;
    let rest = 1.0 - (stage.saturation(report.wall) / SATURATED).min(1.0) * shorter;
    throughput(report, index, then).min(stage.per_second / rest.max(1e-9))
}

impl Verdict {
    /// Records a second that `report`'s run would do with `workers` in the stage called `name`.
    pub fn predict(report: &Report, name: &str, workers: usize) -> Option<f64> {
        let index = report.stages.iter().position(|stage| stage.name == name)?;
        Some(gained(report, index, report.stages[index].capacity(workers)))
    }
}

/// What would help, and how many records a second it would bring, if that can be told.
type NextStep = (Option<String>, Option<f64>);

fn advice(report: &Report, index: usize, limit: Limit) -> NextStep {
    let stage = &report.stages[index];
    let name = &stage.name;
    let about = |brings| format!("about {}/s", number(brings));
    let (words, brings) = match limit {
        Limit::Concurrency => {
            let more = stage.workers + stage.workers.div_ceil(4);
            let brings = gained(report, index, stage.capacity(more));
            let about = about(brings);
            (format!("--workers {name}={more}, {about}, if the service has room"), brings)
        }
        Limit::Rate => {
            let unlimited = StageReport { rate: None, ..stage.clone() }.capacity(stage.workers);
            let brings = gained(report, index, unlimited);
            (format!("a higher --rate for {name}; without one {}", about(brings)), brings)
        }
        Limit::Pause => {
            let whose = match stage.kind {
                StageKind::Sink => "target: it was busy or down".into(),
                _ => format!("service behind {name}; it failed {} calls", stage.retried),
            };
            let brings = throughput(report, index, stage.capacity(stage.workers));
            (format!("look at the {whose}; without these waits {}", about(brings)), brings)
        }
        Limit::Order => {
            let brings = throughput(report, index, stage.capacity(stage.workers));
            let about = about(brings);
            (format!("a larger reorder for {name}, or unordered output; {about}"), brings)
        }
        Limit::OwnWork => return one_more_worker(report, index),
        Limit::Commit => return faster_sink(report, index),
        Limit::Source => {
            let could = throughput(report, index, f64::INFINITY);
            return (Some(faster_source(&report.stages, could)), None);
        }
        Limit::Buffer | Limit::NotEnoughData => return (None, None),
    };
    (Some(words), Some(brings))
}

/// What would help a stage that computes all the time: one worker more, if there is a core for it.
fn one_more_worker(report: &Report, index: usize) -> NextStep {
    let stage = &report.stages[index];
    let name = &stage.name;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let computing = report.computing();
    if stage.workers >= cores || computing > 0.9 * cores as f64 {
        let words = format!(
            "it computes on all {cores} cores; only less work in {name} or more cores would help"
        );
        return (Some(words), None);
    }
    let more = stage.workers + 1;
    let on_all_cores = stage.per_second * cores as f64 / computing;
    let brings = gained(report, index, stage.capacity(more)).min(on_all_cores);
    let about = number(brings);
    let words = format!("--workers {name}={more}, about {about}/s, if a core is free for it");
    (Some(words), Some(brings))
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

/// A sink that is without input although its buffer is full and a stage before it is backpressured: what is there waits for an
/// earlier record, which some worker takes long for.
fn held_back(report: &Report, margin: f64) -> Option<Verdict> {
    let (sink, before) = report.stages.split_last()?;
    let idle = sink.times.share(State::NoInput);
    let full = sink.most.records >= sink.buffer.records;
    let waits = |stage: &&StageReport| stage.times.share(State::Backpressured) >= NOTABLE;
    let index = before.iter().rposition(|stage| waits(&stage) && stage.kind == StageKind::Call)?;
    let stage = &before[index];
    let behind_is_idle =
        before[index + 1..].iter().all(|stage| stage.times.share(State::NoInput) > 0.5);
    if idle < 0.5 || !full || !behind_is_idle {
        return None;
    }
    let buffer = 4 * sink.buffer.records;
    let up_to = number(throughput(report, index, stage.capacity(stage.workers)));
    let words = format!(
        "the buffer of {}: full although it is without input {:.0} % of the time and {} is backpressured {:.0} %: \
         what it holds waits for an earlier record, which {} takes long for.",
        sink.name,
        100.0 * idle,
        stage.name,
        100.0 * stage.times.share(State::Backpressured),
        stage.name,
    );
    Some(Verdict {
        stage: Some(sink.name.clone()),
        limit: Limit::Buffer,
        margin,
        words,
        next_step: Some(format!("--buffer {}={buffer}, up to {up_to}/s", sink.name)),
        would_bring: None,
    })
}

/// What would help a sink that is in transactions most of the time.
fn faster_sink(report: &Report, index: usize) -> NextStep {
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
