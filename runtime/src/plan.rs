//! Plans: the stages of a run with the settings that they would run with, found to work together, and the bounds that follow.
//!
//! ```text
//! definition + options --> every bound non-zero, and large enough for what passes through it --> plan | why not
//! ```
//!
//! - Nothing is started before there is a plan: settings that cannot work are refused, never found out by a run that hangs.
//! - A plan's bound on what is in flight is the sink's buffer, which is the last link's, and holds at every instant.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::report::StageKind;
use crate::run::EventHandler;
use crate::stage::{Buffer, Settings};
use crate::tried::Tried;
use crate::{Amount, BuildError, Bytes, Grouping, Records};

/// What can be set for one run, over what the pipeline's definition says.
#[derive(Clone)]
pub struct Options {
    /// Workers, by stage.
    pub workers: BTreeMap<String, usize>,
    /// Buffers, by stage.
    pub buffer: BTreeMap<String, Buffer>,
    /// Requests, by stage.
    pub request: BTreeMap<String, Records>,
    /// Claims, by stage.
    pub claim: BTreeMap<String, usize>,
    /// Records a second, by stage.
    pub rate: BTreeMap<String, f64>,
    /// Source bytes in flight, all stages together.
    pub memory: Option<Bytes>,
    /// Most records in one batch of the source (default 256).
    pub batch: Records,
    /// When a group closes; `None`: as the sink's definition says.
    pub grouping: Option<Grouping>,
    /// Takes the run's events.
    pub on_event: EventHandler,
    /// Records that earlier starts of the run tried and left unsettled: see [`Group::tried`](crate::Group::tried).
    pub tried: Vec<Tried>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: BTreeMap::new(),
            buffer: BTreeMap::new(),
            request: BTreeMap::new(),
            claim: BTreeMap::new(),
            rate: BTreeMap::new(),
            memory: None,
            batch: Records(256),
            grouping: None,
            on_event: Arc::new(|_| {}),
            tried: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("workers", &self.workers)
            .field("buffer", &self.buffer)
            .finish_non_exhaustive()
    }
}

/// One stage in a plan: its name and the settings it would run with.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The stage.
    pub name: String,
    /// What it is.
    pub kind: StageKind,
    /// Its settings.
    pub settings: Settings,
}

/// What a run would be: its stages, and the bounds that hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The pipeline.
    pub pipeline: String,
    /// The stages in the order of the flow.
    pub stages: Vec<Planned>,
    /// When a group closes.
    pub grouping: Grouping,
    /// Most records in one batch of the source.
    pub batch: Records,
    /// Most source records and bytes that are read and not committed, at every instant.
    pub in_flight: Amount,
    /// Values that one record can become, all stages together.
    pub at_most: usize,
}

impl Plan {
    /// The plan of a pipeline for a run with these options.
    pub(crate) fn of(
        name: &str,
        stages: &[Planned],
        grouping: Grouping,
        options: &Options,
    ) -> Result<Plan, BuildError> {
        let stages = with_options(stages, options)?;
        let grouping = grouping_for(grouping, options);
        let sink = stages.last().expect("a runnable pipeline has a sink");
        let (buffer, buffer_bytes) = (sink.settings.buffer.most(), sink.settings.buffer_bytes);
        let zeros = [
            (&stages[0].name, "batch", options.batch.0),
            (&sink.name, "batch-size", grouping.records.0),
            (&sink.name, "batch-bytes", grouping.bytes.0),
        ];
        if let Some((stage, what, _)) = zeros.iter().find(|(_, _, value)| *value == 0) {
            return Err(BuildError::Zero { stage: stage.to_string(), what });
        }
        let bounds = [
            ("batch-size", grouping.records.0, "buffer", buffer.0),
            ("batch-bytes", grouping.bytes.0, "buffer bytes", buffer_bytes.0),
        ];
        if let Some(&(what, found, bound, limit)) = bounds.iter().find(|b| b.1 > b.3) {
            let stage = sink.name.clone();
            return Err(BuildError::TooLarge { stage, what, found, bound, limit });
        }
        let batch = stages
            .iter()
            .skip(1)
            .map(|stage| stage.settings.buffer.most())
            .fold(options.batch.min(grouping.records), Records::min);
        let at_most = stages.iter().map(|stage| stage.settings.at_most).product();
        let in_flight = Amount::new(buffer, buffer_bytes);
        Ok(Plan { pipeline: name.into(), stages, grouping, batch, in_flight, at_most })
    }
}

/// When a group closes: a lower bound on memory lowers it too, unless the options say both.
fn grouping_for(grouping: Grouping, options: &Options) -> Grouping {
    let most = options.memory.unwrap_or(Bytes(u64::MAX));
    let lowered = Grouping { bytes: grouping.bytes.min(most), ..grouping };
    options.grouping.unwrap_or(lowered)
}

/// Applies the options to the settings, and checks that all of it works together.
fn with_options(stages: &[Planned], options: &Options) -> Result<Vec<Planned>, BuildError> {
    let mut stages = stages.to_vec();
    for (index, stage) in stages.iter().enumerate() {
        if stages[..index].iter().any(|other| other.name == stage.name) {
            return Err(BuildError::SameName { name: stage.name.clone() });
        }
    }
    let find = |stages: &[Planned], name: &str| {
        let found = stages.iter().position(|stage| stage.name == name);
        found.ok_or_else(|| unknown_stage(name, stages.iter().map(|stage| stage.name.as_str())))
    };
    for (name, &workers) in &options.workers {
        let stage = find(&stages, name)?;
        let kind = stages[stage].kind;
        one_worker(kind, name, workers)?;
        stages[stage].settings.workers = workers;
        if let Some(reorder) = &mut stages[stage].settings.reorder {
            *reorder = (*reorder).max(workers);
        }
    }
    for (name, &request) in &options.request {
        let stage = find(&stages, name)?;
        stages[stage].settings.request = request;
    }
    for (name, &buffer) in &options.buffer {
        let stage = find(&stages, name)?;
        let settings = &mut stages[stage].settings;
        let before = std::mem::replace(&mut settings.buffer, buffer).most();
        if buffer.most() < before && !options.request.contains_key(name) {
            settings.request = Records(settings.request.0.min((buffer.most().0 / 4).max(1)));
        }
    }
    let calling = |stages: &[Planned], name: &str, what| {
        let stage = find(stages, name)?;
        match stages[stage].kind {
            StageKind::Call => Ok(stage),
            _ => Err(BuildError::CallsNobody { stage: name.into(), what }),
        }
    };
    for (name, &claim) in &options.claim {
        let stage = calling(&stages, name, "claim")?;
        stages[stage].settings.claim = Some(claim);
    }
    for (name, &rate) in &options.rate {
        let stage = calling(&stages, name, "rate")?;
        stages[stage].settings.rate = Some(rate);
    }
    for stage in &mut stages {
        if let Some(memory) = options.memory {
            stage.settings.buffer_bytes = stage.settings.buffer_bytes.min(memory);
        }
        check(&stage.name, &stage.settings)?;
    }
    Ok(stages)
}

pub(crate) fn unknown_stage<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> BuildError {
    BuildError::UnknownStage { name: name.into(), known: known.collect::<Vec<_>>().join(", ") }
}

/// Source and sink have one worker.
pub(crate) fn one_worker(kind: StageKind, stage: &str, workers: usize) -> Result<(), BuildError> {
    match kind {
        StageKind::Source | StageKind::Sink if workers > 1 => {
            Err(BuildError::OneWorker { stage: stage.into(), found: workers })
        }
        _ => Ok(()),
    }
}

/// Widths and bounds that work together, or why not.
pub(crate) fn check(name: &str, settings: &Settings) -> Result<(), BuildError> {
    use BuildError::{TooLarge, Zero};
    let stage = || name.to_string();
    let nonzero = [
        ("workers", settings.workers as u64),
        ("buffer", settings.buffer.most().0),
        ("buffer bytes", settings.buffer_bytes.0),
        ("request", settings.request.0),
        ("claim", settings.claim.unwrap_or(1) as u64),
        ("reorder", settings.reorder.unwrap_or(1) as u64),
        ("at_most", settings.at_most as u64),
        ("attempts", u64::from(settings.retry.attempts)),
    ];
    for (what, value) in nonzero {
        if value == 0 {
            return Err(Zero { stage: stage(), what });
        }
    }
    let too_large =
        |what, found, bound, limit| TooLarge { stage: stage(), what, found, bound, limit };
    let buffer = settings.buffer.most().0;
    if settings.request.0 > buffer {
        return Err(too_large("request", settings.request.0, "buffer", buffer));
    }
    if settings.workers as u64 > buffer {
        return Err(too_large("workers", settings.workers as u64, "buffer", buffer));
    }
    if let Some(claim) = settings.claim
        && claim as u64 > buffer
    {
        return Err(too_large("claim", claim as u64, "buffer", buffer));
    }
    if let Some(reorder) = settings.reorder
        && settings.workers > reorder
    {
        return Err(too_large("workers", settings.workers as u64, "reorder", reorder as u64));
    }
    if let Some(rate) = settings.rate
        && (rate.is_nan() || rate <= 0.0)
    {
        return Err(BuildError::Rate { stage: stage(), found: rate.to_string() });
    }
    Ok(())
}
