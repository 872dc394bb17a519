//! Defining a pipeline, and running it.
//!
//! ```text
//! Pipeline::new -> source -> stage ... -> sink -> Runnable --start(options)--> Run
//!                                                                  |            |
//!             settings checked, links made from the end backwards -+            +-- control: stop, abort, workers, report
//! ```
//!
//! Links are made from the sink towards the source, because that is the way demand goes: a link needs the limit of the one
//! behind it. Nothing is started before all settings have been found to work together.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::clock::{Clock, Moment};
use crate::link::{Link, Window};
use crate::meter::{Ending, Meter, State};
use crate::report::{Percentiles, Report, StageKind};
use crate::sink::{CommitState, Feeder, Grouping, HandedOut, Sink, SinkContext, SinkEnd};
use crate::source::{Needs, Source, drive};
use crate::stage::{
    Buffer, Crew, InOrder, Leaving, Outlet, Retire, Settings, Stage, StageInfo, StartWorker, Stop,
    check,
};
use crate::sync::Mutex;
use crate::tried::{Tried, TriedRecords};
use crate::{Amount, BuildError, Bytes, Reason, Records, RunError, Tally, stage};

/// Something worth telling an operator while the run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A stage panicked on a record, or on one of several records from there on.
    Panicked {
        /// The stage.
        stage: Arc<str>,
        /// The first record of the call.
        at: crate::Position,
    },
    /// A stage holds: the service behind it is down.
    Held {
        /// The stage.
        stage: Arc<str>,
        /// What the service said.
        message: String,
    },
    /// A stage that held goes on.
    Resumed {
        /// The stage.
        stage: Arc<str>,
    },
    /// Nothing has moved for a while; who waits for whom.
    Stalled(String),
}

/// Takes a run's events. Called from its tasks: must not block.
pub type EventHandler = Arc<dyn Fn(Event) + Send + Sync>;

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

type Connect<T> = Box<dyn FnOnce(&mut Wiring, Arc<Link<T>>) + Send>;

/// A pipeline being defined, whose records are `T` here.
#[must_use]
pub struct Pipeline<T> {
    name: String,
    stages: Vec<Planned>,
    connect: Connect<T>,
}

impl Pipeline<()> {
    /// A pipeline by this name; [`Unfed::source`] comes next.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(name: impl Into<String>) -> Unfed {
        Unfed { name: name.into() }
    }
}

/// A pipeline without a source.
#[must_use]
pub struct Unfed {
    name: String,
}

impl Unfed {
    /// Where the records come from. The stage is called `read`.
    pub fn source<S: Source>(self, source: S) -> Pipeline<S::Item> {
        let connect: Connect<S::Item> = Box::new(move |wiring, link| wiring.source(source, link));
        let planned =
            Planned { name: "read".into(), kind: StageKind::Source, settings: Settings::default() };
        Pipeline { name: self.name, stages: vec![planned], connect }
    }
}

impl<T: Send + 'static> Pipeline<T> {
    /// Adds a stage.
    pub fn stage<S: Stage<T>>(mut self, name: impl Into<String>, stage: S) -> Pipeline<S::Out> {
        let name = name.into();
        let settings = stage.settings().clone();
        self.stages.push(Planned { name: name.clone(), kind: settings.kind(), settings });
        let before = self.connect;
        let connect: Connect<S::Out> = Box::new(move |wiring, output| {
            let input = wiring.stage(&name, stage, output);
            before(wiring, input);
        });
        Pipeline { name: self.name, stages: self.stages, connect }
    }

    /// Adds a stage that turns each value into another.
    pub fn map<Out: Send + 'static>(
        self,
        name: impl Into<String>,
        function: impl Fn(T) -> Out + Send + Sync + 'static,
    ) -> Pipeline<Out> {
        self.stage(name, stage::map(function))
    }

    /// Adds a stage that turns each value into another or says why its record is refused.
    pub fn try_map<Out: Send + 'static>(
        self,
        name: impl Into<String>,
        function: impl Fn(&T) -> Result<Out, Reason> + Send + Sync + 'static,
    ) -> Pipeline<Out> {
        self.stage(name, stage::try_map(function))
    }

    /// Adds a stage that drops, under the given reason, the values for which `keep` is false.
    pub fn filter(
        self,
        name: impl Into<String>,
        reason: &'static str,
        keep: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Pipeline<T> {
        self.stage(name, stage::filter(reason, keep))
    }

    /// Adds a stage that turns each value into at most `at_most` others.
    pub fn flat_map<Out: Send + 'static, Many: IntoIterator<Item = Out> + 'static>(
        self,
        name: impl Into<String>,
        at_most: usize,
        function: impl Fn(T) -> Many + Send + Sync + 'static,
    ) -> Pipeline<Out> {
        self.stage(name, stage::flat_map(at_most, function))
    }

    /// Where the records end.
    pub fn sink<S: Sink<T>>(mut self, name: impl Into<String>, sink: S) -> Runnable<S> {
        let name = name.into();
        let settings = Settings {
            buffer: Buffer::Records(Records(20_000)),
            request: Records(1_000),
            ..Settings::default()
        };
        self.stages.push(Planned { name: name.clone(), kind: StageKind::Sink, settings });
        let before = self.connect;
        let connect = Box::new(move |wiring: &mut Wiring| {
            let (input, task) = wiring.sink(&name, sink);
            before(wiring, input);
            task
        });
        Runnable { name: self.name, stages: self.stages, grouping: Grouping::default(), connect }
    }
}

/// Makes the links of a whole pipeline, and gives the task of its sink.
type ConnectSink<S> = Box<dyn FnOnce(&mut Wiring) -> SinkTask<S> + Send>;

type SinkTask<S> = BoxFuture<'static, (S, Result<SinkEnd, RunError>)>;

/// A whole pipeline, ready to run.
#[must_use]
pub struct Runnable<S> {
    name: String,
    stages: Vec<Planned>,
    grouping: Grouping,
    connect: ConnectSink<S>,
}

impl<S: Send + 'static> Runnable<S> {
    /// When a group closes.
    pub fn grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// When a group closes in a run with these options: a lower bound on memory lowers it too, unless the options say both.
    fn grouping_for(&self, options: &Options) -> Grouping {
        let most = options.memory.unwrap_or(Bytes(u64::MAX));
        let lowered = Grouping { bytes: self.grouping.bytes.min(most), ..self.grouping };
        options.grouping.unwrap_or(lowered)
    }

    /// The stages with the settings that they would run with, and the most that can be in flight.
    ///
    /// # Errors
    /// Options that name no stage, and settings that cannot work together.
    pub fn plan(&self, options: &Options) -> Result<Plan, BuildError> {
        let stages = with_options(&self.stages, options)?;
        let grouping = self.grouping_for(options);
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
        Ok(Plan { pipeline: self.name.clone(), stages, grouping, batch, in_flight, at_most })
    }

    /// Starts the run.
    ///
    /// # Errors
    /// As [`Runnable::plan`]; nothing has been started then.
    pub fn start(self, options: Options) -> Result<Run<S>, BuildError> {
        let plan = self.plan(&options)?;
        let clock = Clock::start();
        let (stop, stopping) = watch::channel(None);
        let commits = Arc::new(Mutex::new(CommitState::default()));
        let mut settings: BTreeMap<_, _> =
            plan.stages.iter().map(|stage| (stage.name.clone(), stage.settings.clone())).collect();
        // What a source would hand out at a time if every buffer had room for it.
        settings.get_mut("read").expect("there is a source").request = options.batch;
        let mut wiring = Wiring {
            settings,
            clock,
            stop: Stop(stopping),
            on_event: options.on_event.clone(),
            grouping: plan.grouping,
            batch: plan.batch,
            commits: commits.clone(),
            stages: Vec::new(),
            handed_out: Arc::default(),
            needs: Arc::default(),
            tried: Arc::new(TriedRecords::new(options.tried)),
            source: None,
            freeze: None,
        };
        let sink = (self.connect)(&mut wiring);
        wiring.stages.reverse();
        let freeze = wiring.freeze.take().expect("a source was wired");
        let (abort, aborted) = watch::channel(false);
        let (commands, orders) = mpsc::channel(16);
        let infos: Vec<_> =
            wiring.stages.iter().map(|stage| (stage.kind, stage.info.clone())).collect();
        let shared =
            Arc::new(Shared { clock, stages: infos, commits, stop, freeze, abort, commands });
        let (done, outcome) = oneshot::channel();
        tokio::spawn(supervise(wiring, sink, shared.clone(), aborted, orders, done));
        Ok(Run { control: Control { shared }, outcome, ended: None })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// As [`Runnable::plan`]. How the run itself ended is in the [`Outcome`].
    ///
    /// # Cancel safety
    /// Dropped, the run goes on by itself; keep a [`Run`] to stop it.
    pub async fn run(self, options: Options) -> Result<Outcome<S>, BuildError> {
        Ok(self.start(options)?.outcome().await)
    }
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
    for (name, &claim) in &options.claim {
        let stage = find(&stages, name)?;
        stages[stage].settings.claim = Some(claim);
    }
    for (name, &rate) in &options.rate {
        let stage = find(&stages, name)?;
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

fn unknown_stage<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> BuildError {
    BuildError::UnknownStage { name: name.into(), known: known.collect::<Vec<_>>().join(", ") }
}

/// Source and sink have one worker.
fn one_worker(kind: StageKind, stage: &str, workers: usize) -> Result<(), BuildError> {
    match kind {
        StageKind::Source | StageKind::Sink if workers > 1 => {
            Err(BuildError::OneWorker { stage: stage.into(), found: workers })
        }
        _ => Ok(()),
    }
}

/// Makes links and tasks, from the sink towards the source.
pub(crate) struct Wiring {
    settings: BTreeMap<String, Settings>,
    clock: Clock,
    stop: Stop,
    on_event: EventHandler,
    grouping: Grouping,
    batch: Records,
    commits: Arc<Mutex<CommitState>>,
    stages: Vec<Wired>,
    handed_out: Arc<Mutex<HandedOut>>,
    needs: Arc<Needs>,
    tried: Arc<TriedRecords>,
    source: Option<BoxFuture<'static, Result<(), RunError>>>,
    freeze: Option<Box<dyn Fn() + Send + Sync>>,
}

/// A stage whose links are made.
struct Wired {
    kind: StageKind,
    info: Arc<StageInfo>,
    /// How workers are started, and what happens when they leave; `None` for source and sink.
    workers: Option<Workers>,
}

struct Workers {
    start: StartWorker,
    leaving: Arc<Leaving>,
    /// Those that have not been told to leave, oldest first.
    staying: Mutex<Vec<Retire>>,
}

impl Wiring {
    fn info<T: Send + 'static>(&self, name: &str, link: &Arc<Link<T>>) -> Arc<StageInfo> {
        let settings = self.settings[name].clone();
        let (gauged, resized) = (link.clone(), link.clone());
        let request = window(&settings).request;
        Arc::new(StageInfo {
            name: name.into(),
            workers: AtomicUsize::new(settings.workers),
            settings,
            meters: Mutex::new(Vec::new()),
            gauge: Box::new(move || gauged.gauge()),
            resize: Box::new(move |buffer| resized.set_window(Window { buffer, request })),
            on_event: self.on_event.clone(),
            rejected: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
            retried: AtomicU64::new(0),
        })
    }

    fn sink<T: Send + 'static, S: Sink<T>>(
        &mut self,
        name: &str,
        sink: S,
    ) -> (Arc<Link<T>>, SinkTask<S>) {
        let link = Link::new(window(&self.settings[name]), None);
        let info = self.info(name, &link);
        let meter = Arc::new(Meter::start(self.clock, State::NoInput));
        info.meters.lock().push(meter.clone());
        self.stages.push(Wired { kind: StageKind::Sink, info, workers: None });
        let feeder = Feeder {
            sink,
            link: link.clone(),
            context: SinkContext { meter, commits: self.commits.clone() },
            grouping: self.grouping,
            commits: self.commits.clone(),
            handed_out: self.handed_out.clone(),
            needs: self.needs.clone(),
            tried: self.tried.clone(),
        };
        (link, Box::pin(feeder.run()))
    }

    fn stage<In: Send + 'static, S: Stage<In>>(
        &mut self,
        name: &str,
        stage: S,
        output: Arc<Link<S::Out>>,
    ) -> Arc<Link<In>> {
        let settings = self.settings[name].clone();
        let input: Arc<Link<In>> = Link::new(window(&settings), Some(output.gauge().limit));
        output.set_upstream(input.clone());
        let info = self.info(name, &input);
        let in_order = settings.reorder.map(InOrder::new);
        let outlet = Outlet {
            stage: info.clone(),
            input: input.clone(),
            output: output.clone(),
            in_order,
            tried: self.tried.clone(),
        };
        let start = stage.crew(outlet, &settings);
        let halted = input.clone();
        let leaving = Arc::new(Leaving {
            active: AtomicUsize::new(0),
            close: Box::new(move || output.close()),
            halt: Box::new(move || halted.halt()),
        });
        let workers = Workers { start, leaving, staying: Mutex::new(Vec::new()) };
        self.stages.push(Wired { kind: settings.kind(), info, workers: Some(workers) });
        input
    }

    fn source<S: Source>(&mut self, source: S, link: Arc<Link<S::Item>>) {
        let info = self.info("read", &link);
        let meter = Arc::new(Meter::start(self.clock, State::Backpressured));
        info.meters.lock().push(meter.clone());
        self.stages.push(Wired { kind: StageKind::Source, info, workers: None });
        let mut stop = self.stop.clone();
        let frozen = link.clone();
        self.freeze = Some(Box::new(move || frozen.freeze()));
        let most = self.batch;
        let handed_out = self.handed_out.clone();
        let needs = self.needs.clone();
        self.source = Some(Box::pin(async move {
            let stopped = async move { stop.stopping().await };
            let _ending = Ending(meter.clone());
            let drive = drive(source, link.clone(), meter, most, needs, stopped);
            let end = AssertUnwindSafe(drive).catch_unwind().await;
            let end =
                end.unwrap_or_else(|_| Err(RunError::Panic("the source panicked in read".into())));
            *handed_out.lock() =
                HandedOut { amount: link.gauge().sent, all: matches!(end, Ok(true)) };
            link.close();
            end.map(|_| ())
        }));
    }
}

fn window(settings: &Settings) -> Window {
    let buffer = Amount::new(settings.buffer.most(), settings.buffer_bytes);
    let request =
        Amount { records: settings.request.0, bytes: (settings.buffer_bytes.0 / 4).max(1) };
    Window { buffer, request }
}

/// A run that is going on.
#[must_use]
pub struct Run<S> {
    control: Control,
    outcome: oneshot::Receiver<Outcome<S>>,
    /// What came out of `outcome`, if somebody polled for it.
    ended: Option<Outcome<S>>,
}

impl<S> Run<S> {
    /// A handle to stop it, to change it and to look at it.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Waits for its end.
    ///
    /// # Cancel safety
    /// Dropped, the run goes on by itself.
    pub async fn outcome(self) -> Outcome<S> {
        let Run { control, outcome, ended } = self;
        match ended {
            Some(outcome) => outcome,
            None => outcome.await.unwrap_or_else(|_| lost(&control)),
        }
    }

    /// Waits for its end without taking the outcome.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<&mut Outcome<S>> {
        if self.ended.is_none() {
            let outcome = std::task::ready!(Pin::new(&mut self.outcome).poll(cx));
            self.ended = Some(outcome.unwrap_or_else(|_| lost(&self.control)));
        }
        Poll::Ready(self.ended.as_mut().expect("it was just put there"))
    }
}

/// The outcome of a run whose own task came to nothing: its runtime was shut down, or it has a fault.
fn lost<S>(control: &Control) -> Outcome<S> {
    Outcome {
        end: End::Failed(RunError::Panic("the run's own task ended early".into())),
        tally: control.tally(),
        report: control.report(),
        sink: None,
    }
}

/// Stops, changes and inspects a run. Never queues behind data.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    stages: Vec<(StageKind, Arc<StageInfo>)>,
    commits: Arc<Mutex<CommitState>>,
    stop: watch::Sender<Option<Moment>>,
    freeze: Box<dyn Fn() + Send + Sync>,
    abort: watch::Sender<bool>,
    commands: mpsc::Sender<(String, usize)>,
}

impl Control {
    /// First signal: the source hands out no more; what is in flight settles and is committed, up to the first record that waits
    /// for a retry, for a service that is down, or for more than ten seconds for a token of a rate. That one and what comes after
    /// it are left to the next start.
    pub fn stop(&self) {
        (self.shared.freeze)();
        let now = self.shared.clock.now();
        self.shared.stop.send_if_modified(|at| at.is_none().then(|| *at = Some(now)).is_some());
    }

    /// Second signal: everything is dropped where it is. What is committed stays committed, whole groups only.
    pub fn abort(&self) {
        self.stop();
        self.shared.abort.send_replace(true);
    }

    /// Sets how many workers a stage has. New ones start at once; surplus ones leave after their current claim.
    ///
    /// # Errors
    /// The stage does not exist or cannot have that many.
    ///
    /// # Cancel safety
    /// Dropped, the stage's workers are changed or not.
    pub async fn workers(&self, stage: &str, workers: usize) -> Result<(), BuildError> {
        let stages = &self.shared.stages;
        let Some((kind, info)) = stages.iter().find(|(_, info)| &*info.name == stage) else {
            return Err(unknown_stage(stage, stages.iter().map(|(_, info)| &*info.name)));
        };
        one_worker(*kind, stage, workers)?;
        check(stage, &Settings { workers, ..info.settings.clone() })?;
        let _ = self.shared.commands.send((stage.to_string(), workers)).await;
        Ok(())
    }

    /// Where the time went up to now, open intervals included.
    pub fn report(&self) -> Report {
        self.read(Percentiles::With)
    }

    fn read(&self, percentiles: Percentiles) -> Report {
        let Shared { clock, stages, commits, .. } = &*self.shared;
        Report::read(*clock, stages, commits, percentiles)
    }

    /// Verdicts of the records committed so far by this run.
    pub fn tally(&self) -> Tally {
        self.shared.commits.lock().tally
    }
}

/// Starts all tasks, serves the control, and puts the outcome together.
async fn supervise<S: Send + 'static>(
    wiring: Wiring,
    sink: SinkTask<S>,
    shared: Arc<Shared>,
    mut aborted: watch::Receiver<bool>,
    mut orders: mpsc::Receiver<(String, usize)>,
    done: oneshot::Sender<Outcome<S>>,
) {
    let Wiring { stages, source, clock, stop, .. } = wiring;
    let failure = Arc::new(Mutex::new(None));
    let mut tasks: JoinSet<()> = JoinSet::new();
    let control = Control { shared: shared.clone() };
    let fail = {
        let (failure, control) = (failure.clone(), control.clone());
        move |error: RunError| {
            failure.lock().get_or_insert(error);
            control.stop();
        }
    };
    for wired in &stages {
        for _ in 0..wired.workers.as_ref().map_or(0, |_| wired.info.settings.workers) {
            start_worker(&mut tasks, wired, clock, &stop, &fail);
        }
    }
    let source = source.expect("a source was wired");
    let failing = fail.clone();
    tasks.spawn(async move {
        if let Err(error) = source.await {
            failing(error);
        }
    });
    let mut sink = tokio::spawn(sink);
    let mut watchdog = crate::watchdog::Watchdog::new(clock);
    let mut tick = tokio::time::interval(crate::watchdog::TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let ended = loop {
        tokio::select! {
            biased;
            () = async { drop(aborted.wait_for(|aborted| *aborted).await) } => {
                sink.abort();
                break sink.await;
            }
            ended = &mut sink => break ended,
            Some(joined) = tasks.join_next() => if let Err(error) = joined && error.is_panic() {
                // Not what it says: that may be a field's value.
                fail(RunError::Panic("a task of the run panicked outside the work on a record".into()));
                // Its link may never be closed now: nothing would end by itself.
                sink.abort();
                break sink.await;
            },
            Some((name, workers)) = orders.recv() => {
                if let Some(wired) = stages.iter().find(|wired| *wired.info.name == *name) {
                    resize(&mut tasks, wired, workers, clock, &stop, &fail);
                }
            }
            _ = tick.tick() => {
                let report = control.read(Percentiles::Without);
                size_buffers(&shared.stages, &report);
                if let Some(words) = watchdog.look(&report, clock) {
                    (shared.stages[0].1.on_event)(Event::Stalled(words));
                }
            }
        }
    };
    let report = control.report();
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    let stopping = shared.stop.borrow().is_some();
    let error = failure.lock().take();
    let (sink, end) = match ended {
        Err(join) if join.is_cancelled() => (None, error.map_or(End::Stopped, End::Failed)),
        Err(_) => (None, End::Failed(RunError::Panic("the sink's task panicked".into()))),
        Ok((sink, Err(error))) => (Some(sink), End::Failed(error)),
        Ok((sink, Ok(end))) => (Some(sink), how_it_ended(end, error, stopping)),
    };
    let tally = control.tally();
    let _ = done.send(Outcome { end, tally, report, sink });
}

fn how_it_ended(end: SinkEnd, error: Option<RunError>, stopping: bool) -> End {
    match (error, end) {
        (Some(error), _) => End::Failed(error),
        (None, SinkEnd::Completed) => End::Complete,
        (None, SinkEnd::Stopped(why)) => End::Ended(why),
        (None, _) if stopping => End::Stopped,
        (None, SinkEnd::Gap { missing, at }) => End::Failed(RunError::Unaccounted { missing, at }),
        (None, SinkEnd::Drained) => End::Stopped,
    }
}

fn start_worker(
    tasks: &mut JoinSet<()>,
    wired: &Wired,
    clock: Clock,
    stop: &Stop,
    fail: &(impl Fn(RunError) + Clone + Send + 'static),
) {
    let Some(workers) = &wired.workers else { return };
    let meter = Arc::new(Meter::start(clock, State::NoInput));
    wired.info.meters.lock().push(meter.clone());
    let retire = Retire::default();
    workers.staying.lock().push(retire.clone());
    let crew = Crew { meter: meter.clone(), retire, stop: stop.clone() };
    let work = (workers.start)(crew);
    let (leaving, fail, name) = (workers.leaving.clone(), fail.clone(), wired.info.name.clone());
    leaving.enter();
    let ending = Ending(meter);
    tasks.spawn(async move {
        let end = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
            Err(RunError::Panic(format!("{name} panicked outside the work on a record")))
        });
        if let Err(error) = end {
            fail(error);
            (leaving.halt)();
        }
        drop(ending);
        leaving.leave();
    });
}

/// Starts what is missing; those that are too many, the newest, are told to leave after their current claim.
fn resize(
    tasks: &mut JoinSet<()>,
    wired: &Wired,
    wanted: usize,
    clock: Clock,
    stop: &Stop,
    fail: &(impl Fn(RunError) + Clone + Send + 'static),
) {
    let Some(workers) = &wired.workers else { return };
    // A stage whose last worker has left is over; nobody may be added then.
    if workers.leaving.active.load(Ordering::SeqCst) == 0 {
        return;
    }
    wired.info.workers.store(wanted, Ordering::Relaxed);
    let surplus = {
        let mut staying = workers.staying.lock();
        let keep = wanted.min(staying.len());
        staying.split_off(keep)
    };
    for retire in surplus {
        retire.say();
    }
    let missing = wanted - workers.staying.lock().len();
    for _ in 0..missing {
        start_worker(tasks, wired, clock, stop, fail);
    }
}

/// Buffers given as a time follow the measured rate.
fn size_buffers(stages: &[(StageKind, Arc<StageInfo>)], report: &Report) {
    for ((_, info), measured) in stages.iter().zip(&report.stages) {
        let Buffer::Time { time, most } = info.settings.buffer else { continue };
        let needed = (measured.per_second * time.as_secs_f64()).ceil() as u64;
        let least = info.settings.request.0.saturating_mul(2).min(most.0);
        let records = needed.clamp(least, most.0);
        (info.resize)(Amount { records, bytes: info.settings.buffer_bytes.0 });
    }
}

/// How a run ended.
#[derive(Debug)]
pub enum End {
    /// All input was read, and every record has its verdict.
    Complete,
    /// It was told to stop; what is committed stays, the rest is left to the next start.
    Stopped,
    /// The sink said that it must not go on.
    Ended(String),
    /// Something failed; what was done before is committed.
    Failed(RunError),
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome<S> {
    /// How it ended.
    pub end: End,
    /// Verdicts of all records committed by this run.
    pub tally: Tally,
    /// Where the time went.
    pub report: Report,
    /// The sink, unless the run was stopped at once.
    pub sink: Option<S>,
}
