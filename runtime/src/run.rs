//! Runs: the tasks of a pipeline from their start to the outcome, and the handle that stops and changes them.
//!
//! ```text
//! control --stop, abort, workers--> supervise --starts--> source, workers, sink
//!    ^                                  |  ^                      |
//!    +------- report, tally             |  +---- ended, failed ---+
//!                                       +--> outcome
//! ```
//!
//! - Control never queues behind data: it goes by signals of its own, and by what links keep under their lock.
//! - The first failure is the run's; everything in flight settles after it as after a stop.
//! - A run that is dropped goes on by itself.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures::FutureExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::clock::{Clock, Moment};
use crate::meter::{Ending, Meter, State};
use crate::pipeline::ConnectSink;
use crate::plan::{Options, Plan, check, one_worker, unknown_stage};
use crate::report::{Percentiles, Report, StageKind};
use crate::sink::{CommitState, SinkEnd};
use crate::stage::{Buffer, Crew, Retire, Settings, StageInfo, Stop};
use crate::sync::Mutex;
use crate::tried::TriedRecords;
use crate::wiring::{SinkTask, Wired, Wiring};
use crate::{Amount, BuildError, RunError, SinkError, Tally};

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

/// A run that is going on.
#[must_use]
pub struct Run<S> {
    control: Control,
    outcome: oneshot::Receiver<Outcome<S>>,
    /// What came out of `outcome`, if somebody polled for it.
    ended: Option<Outcome<S>>,
}

impl<S: Send + 'static> Run<S> {
    /// Wires the pipeline, and starts its tasks.
    pub(crate) fn start(plan: Plan, connect: ConnectSink<S>, options: Options) -> Run<S> {
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
        let sink = connect(&mut wiring);
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
        Run { control: Control { shared }, outcome, ended: None }
    }
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
        Ok((sink, Err(RunError::Sink(SinkError::Stopped)))) => {
            (Some(sink), error.map_or(End::Stopped, End::Failed))
        }
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
