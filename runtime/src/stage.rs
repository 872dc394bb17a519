//! Stages: a named step, its settings, and the workers that compete for its input.
//!
//! ```text
//!                +-> worker 0 --+
//! input link ----+-> worker 1 --+--> outlet (in order, if asked for) --> output link
//!   (queue)      +-> worker 2 --+         |
//!        ^                                | settle: only when handed on
//!        +--------------------------------+
//! ```
//!
//! - Workers are spawned tasks. Nobody owns input before claiming it, so no worker idles while another holds unstarted records.
//! - A worker can be retired between two claims; it never takes records with it.
//! - The output link is closed by the last worker to leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::batch::{Batch, Order};
use crate::call::{CallBatch, One, Pool, Retry};
use crate::clock::Moment;
use crate::link::{Gauge, Link, Share};
use crate::meter::{Meter, State};
use crate::order::Sorter;
use crate::report::StageKind;
use crate::sync::Mutex;
use crate::transform::{Filter, FlatMap, HandOn, Map, Transform, TryMap};
use crate::tried::TriedRecords;
use crate::{
    Amount, Bytes, Event, EventHandler, Failure, Item, Position, Reason, Records, RunError,
};

/// How much may be on its way behind a stage's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// So many source records.
    Records(Records),
    /// What is done in this time, by the measured rate (Little's law), between twice the request and the given most.
    Time {
        /// The time.
        time: Duration,
        /// Never more than so many.
        most: Records,
    },
}

impl Buffer {
    /// The most it can ever be.
    pub fn most(self) -> Records {
        match self {
            Buffer::Records(records) | Buffer::Time { most: records, .. } => records,
        }
    }
}

/// Everything about a stage that can be set. Names a stage's knobs in one place: the builder, the options of a run, and the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Competing workers.
    pub workers: usize,
    /// Most source records on their way behind the stage's input.
    pub buffer: Buffer,
    /// Most source bytes on their way behind the stage's input.
    pub buffer_bytes: Bytes,
    /// Ask for more when so many records can be added.
    pub request: Records,
    /// Records that one call gets; `None` where the stage takes whole batches.
    pub claim: Option<usize>,
    /// A call is answered about all of its records at once, not about one after the other.
    pub at_once: bool,
    /// Claims that may be running or wait for an earlier one, if the output keeps the order of the input.
    pub reorder: Option<usize>,
    /// Records a second that calls may go out for.
    pub rate: Option<f64>,
    /// Values that one record can become here.
    pub at_most: usize,
    /// What is done about failures in passing.
    pub retry: Retry,
}

impl Settings {
    /// What a stage between source and sink is.
    pub(crate) fn kind(&self) -> StageKind {
        if self.claim.is_some() { StageKind::Call } else { StageKind::Transform }
    }
}

impl Default for Settings {
    /// 1 worker, 2,000 records or 24 MiB, asked for in 500s, order not kept, no rate.
    fn default() -> Settings {
        Settings {
            workers: 1,
            buffer: Buffer::Records(Records(2_000)),
            buffer_bytes: Bytes::mib(24),
            request: Records(500),
            claim: None,
            at_once: false,
            reorder: None,
            rate: None,
            at_most: 1,
            retry: Retry::default(),
        }
    }
}

/// A step of a pipeline: takes values of one type, gives values of another.
///
/// Stages are made by the functions of this module: what a step of one's own does is a function, a [`Call`](crate::Call) or a
/// [`CallBatch`](crate::CallBatch) that is given to one of them. Demand, order, verdicts and accounting stay in here, so that no
/// stage can get them wrong.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stage that takes `{In}`",
    label = "the stage before hands on `{In}`",
    note = "build stages with `map`, `try_map`, `filter`, `flat_map`, `call` or `call_batch`"
)]
pub trait Stage<In: Send + 'static>: Send + 'static {
    /// What the stage hands on.
    type Out: Send + 'static;

    /// Its settings, to be changed by the options of a run before it starts.
    fn settings(&self) -> &Settings;

    /// Makes the function that starts one worker. Called once, after all settings are known.
    fn crew(self, outlet: Outlet<In, Self::Out>, settings: &Settings) -> StartWorker;
}

/// Starts one worker of a stage.
pub type StartWorker = Box<dyn Fn(Crew) -> BoxFuture<'static, Result<(), RunError>> + Send + Sync>;

/// A stage being defined. What it does is fixed by the function that made it; the methods set its knobs.
#[derive(Clone, Debug)]
#[must_use]
pub struct StageBuilder<Does> {
    does: Does,
    settings: Settings,
}

impl<Does> StageBuilder<Does> {
    fn new(does: Does) -> Self {
        StageBuilder { does, settings: Settings::default() }
    }

    /// Competing workers (default 1).
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// Most source records on their way behind the stage's input (default 2,000).
    pub fn buffer(mut self, records: u64) -> Self {
        self.settings.buffer = Buffer::Records(Records(records));
        self
    }

    /// A buffer given as the time that it bridges, never more than `most` records.
    pub fn buffer_time(mut self, time: Duration, most: u64) -> Self {
        self.settings.buffer = Buffer::Time { time, most: Records(most) };
        self
    }

    /// Most source bytes on their way behind the stage's input (default 24 MiB).
    pub fn buffer_bytes(mut self, bytes: Bytes) -> Self {
        self.settings.buffer_bytes = bytes;
        self
    }

    /// Ask for more when so many records can be added (default 500).
    pub fn request(mut self, records: u64) -> Self {
        self.settings.request = Records(records);
        self
    }

    /// Hands results on in the order in which they were claimed, that is, in which the stage before handed them on; at most
    /// `reorder` claims are running or wait for an earlier one.
    pub fn ordered(mut self, reorder: usize) -> Self {
        self.settings.reorder = Some(reorder);
        self
    }

    /// Hands results on as they come (the default). A sink that needs the order of the file restores it.
    pub fn unordered(mut self) -> Self {
        self.settings.reorder = None;
        self
    }
}

/// What a computing stage does.
#[derive(Clone, Debug)]
pub struct Transforms<F>(F);

/// What a calling stage does.
#[derive(Clone, Debug)]
pub struct Calls<C>(C);

impl<C> StageBuilder<Calls<C>> {
    /// Records that one call gets (default 1).
    pub fn claim(mut self, records: usize) -> Self {
        self.settings.claim = Some(records);
        self
    }

    /// Records a second that calls may go out for (default: no limit).
    pub fn rate(mut self, per_second: f64) -> Self {
        self.settings.rate = Some(per_second);
        self
    }

    /// What is done about failures in passing.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.settings.retry = retry;
        self
    }
}

/// A stage that asks about one record at a time.
pub fn call<C>(call: C) -> StageBuilder<Calls<One<C>>> {
    StageBuilder::new(Calls(One(call))).claim(1)
}

/// As [`call`], of a closure that returns a boxed future.
///
/// ```
/// use futures::FutureExt;
/// use gegendruck::{Item, call_fn};
///
/// let score = call_fn(|record: &Item<u64>| async move { Ok(record.value * 2) }.boxed()).workers(4);
/// ```
pub fn call_fn<In, Out, F>(call: F) -> StageBuilder<Calls<One<F>>>
where
    F: for<'a> Fn(&'a Item<In>) -> BoxFuture<'a, Result<Out, Failure>> + Send + Sync + 'static,
{
    StageBuilder::new(Calls(One(call))).claim(1)
}

/// A stage that asks about slices of records.
pub fn call_batch<C>(call: C) -> StageBuilder<Calls<C>> {
    let mut stage = StageBuilder::new(Calls(call)).claim(1);
    stage.settings.at_once = true;
    stage
}

/// A stage that turns each value into another.
pub fn map<In, Out, F: Fn(In) -> Out>(function: F) -> StageBuilder<Transforms<Map<F>>> {
    StageBuilder::new(Transforms(Map(function)))
}

/// A stage that turns each value into another or says why its record is refused.
pub fn try_map<In, Out, F: Fn(&In) -> Result<Out, Reason>>(
    function: F,
) -> StageBuilder<Transforms<TryMap<F>>> {
    StageBuilder::new(Transforms(TryMap(function)))
}

/// A stage that hands batches on as they are: a buffer between two stages, and nothing else.
pub fn hand_on() -> StageBuilder<Transforms<HandOn>> {
    StageBuilder::new(Transforms(HandOn))
}

/// A stage that drops, under the given reason, the values for which `keep` is false.
pub fn filter<In, F: Fn(&In) -> bool>(
    reason: &'static str,
    keep: F,
) -> StageBuilder<Transforms<Filter<F>>> {
    StageBuilder::new(Transforms(Filter(reason, keep)))
}

/// A stage that turns each value into at most `at_most` others. A record that becomes more is refused.
pub fn flat_map<In, Out, Many: IntoIterator<Item = Out>, F: Fn(In) -> Many>(
    at_most: usize,
    function: F,
) -> StageBuilder<Transforms<FlatMap<F>>> {
    let mut stage = StageBuilder::new(Transforms(FlatMap { at_most, function }));
    stage.settings.at_most = at_most;
    stage
}

impl<In: Send + 'static, F: Transform<In>> Stage<In> for StageBuilder<Transforms<F>> {
    type Out = F::Out;

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn crew(self, outlet: Outlet<In, F::Out>, _: &Settings) -> StartWorker {
        let Transforms(function) = self.does;
        let shared = Arc::new((function, outlet));
        Box::new(move |crew| Box::pin(transform(shared.clone(), crew)))
    }
}

/// One worker of a stage that computes, until there is no more input or it is retired.
async fn transform<In: Send + 'static, F: Transform<In>>(
    shared: Arc<(F, Outlet<In, F::Out>)>,
    crew: Crew,
) -> Result<(), RunError> {
    let (function, outlet) = &*shared;
    let mut streak = crew.meter.streak();
    // The batch that was there when the one before it was handed on: the worker is busy all the time.
    let mut next = None;
    loop {
        let (batch, place) = match next.take() {
            Some(batch) => (batch, None),
            None if crew.retire.is_retired() => break,
            None => {
                let claimed = tokio::select! {
                    biased;
                    () = crew.retire.retired() => None,
                    claimed = outlet.claim(Share::Batch, Some(&crew.meter)) => claimed,
                };
                let Some(claimed) = claimed else { break };
                crew.meter.begin(State::Busy);
                claimed
            }
        };
        let amount = batch.amount();
        let (batch, rejected, filtered) = function.apply(&outlet.stage, batch);
        outlet.stage.count(rejected, filtered);
        if outlet.in_order.is_some() || crew.retire.is_retired() {
            outlet.emit(batch, place);
            streak.ends(amount.records, None);
        } else {
            outlet.output.send(batch);
            match outlet.input.settle_and_claim(amount, Share::Batch) {
                Ok(batch) => {
                    streak.goes_on(amount.records);
                    next = Some(batch);
                }
                Err(waits) => streak.ends(amount.records, Some(waits)),
            }
        }
        tokio::task::coop::consume_budget().await;
    }
    Ok(())
}

impl<In: Send + Sync + 'static, C: CallBatch<In>> Stage<In> for StageBuilder<Calls<C>> {
    type Out = C::Out;

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn crew(self, outlet: Outlet<In, C::Out>, settings: &Settings) -> StartWorker {
        let Calls(call) = self.does;
        let pool = Arc::new(Pool::new(call, outlet, settings));
        Box::new(move |crew| Box::pin(pool.clone().work(crew)))
    }
}

/// What a worker is given.
pub struct Crew {
    pub(crate) meter: Arc<Meter>,
    pub(crate) retire: Retire,
    pub(crate) stop: Stop,
}

/// Tells a worker when it is one too many. Once said, it stays said.
#[derive(Clone, Default)]
pub(crate) struct Retire(Arc<Retirement>);

#[derive(Default)]
struct Retirement {
    said: AtomicBool,
    /// The one worker that it is said to.
    worker: AtomicWaker,
}

impl Retire {
    pub(crate) fn say(&self) {
        self.0.said.store(true, Ordering::SeqCst);
        self.0.worker.wake();
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.0.said.load(Ordering::SeqCst)
    }

    /// Waits until it is said. Dropped, it has changed nothing.
    pub(crate) async fn retired(&self) {
        std::future::poll_fn(|cx| {
            self.0.worker.register(cx.waker());
            if self.is_retired() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Tells when the run is to stop: nothing new is begun, what is in flight settles.
#[derive(Clone, Debug)]
pub(crate) struct Stop(pub(crate) watch::Receiver<Option<Moment>>);

impl Stop {
    pub(crate) async fn stopping(&mut self) {
        self.stopped_at().await;
    }

    /// Waits for a stop after which `due` is too late.
    pub(crate) async fn too_late_for(&mut self, due: Moment) {
        if due <= self.stopped_at().await.plus(SETTLE_FOR) {
            std::future::pending::<()>().await;
        }
    }

    async fn stopped_at(&mut self) -> Moment {
        match self.0.wait_for(Option::is_some).await.map(|at| *at) {
            Ok(Some(at)) => at,
            _ => std::future::pending().await,
        }
    }
}

/// How long after a stop tokens of a rate are still waited for.
const SETTLE_FOR: Duration = Duration::from_secs(10);

/// What is known of a stage while it runs, shared by its workers and its readers.
pub struct StageInfo {
    pub(crate) name: Arc<str>,
    pub(crate) settings: Settings,
    pub(crate) meters: Mutex<Vec<Arc<Meter>>>,
    /// How many workers it is to have: as its settings say, until somebody changes it.
    pub(crate) workers: AtomicUsize,
    pub(crate) gauge: Box<dyn Fn() -> Gauge + Send + Sync>,
    /// Makes the input link's buffer another size, for buffers given as a time.
    pub(crate) resize: Box<dyn Fn(Amount) + Send + Sync>,
    pub(crate) on_event: EventHandler,
    pub(crate) rejected: AtomicU64,
    pub(crate) filtered: AtomicU64,
    pub(crate) retried: AtomicU64,
    /// Values that calls went out for, again and again if they were.
    pub(crate) asked: AtomicU64,
}

impl StageInfo {
    pub(crate) fn count(&self, rejected: u64, filtered: u64) {
        if rejected > 0 {
            self.rejected.fetch_add(rejected, Ordering::Relaxed);
        }
        if filtered > 0 {
            self.filtered.fetch_add(filtered, Ordering::Relaxed);
        }
    }

    pub(crate) fn asked(&self, values: u64) {
        self.asked.fetch_add(values, Ordering::Relaxed);
    }

    pub(crate) fn retried(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    /// The stage panicked on the record at `at`, or on one of several from there on.
    pub(crate) fn panicked(&self, at: Position) {
        self.event(Event::Panicked { stage: self.name.clone(), at });
    }

    pub(crate) fn event(&self, event: Event) {
        (self.on_event)(event);
    }
}

/// Where a stage's workers take from and hand on to.
pub struct Outlet<In, Out> {
    pub(crate) stage: Arc<StageInfo>,
    pub(crate) input: Arc<Link<In>>,
    pub(crate) output: Arc<Link<Out>>,
    pub(crate) in_order: Option<InOrder<Out>>,
    pub(crate) tried: Arc<TriedRecords>,
}

/// What an ordered stage needs besides.
pub(crate) struct InOrder<Out> {
    places: Arc<Semaphore>,
    sorter: Mutex<Sorter<Out, Option<Place>>>,
}

impl<Out> InOrder<Out> {
    pub(crate) fn new(reorder: usize) -> InOrder<Out> {
        let places = Arc::new(Semaphore::new(reorder));
        InOrder { places, sorter: Mutex::new(Sorter::new(Order::Claims)) }
    }
}

/// A place in the reorder buffer, given back when the last part that shares it is out.
pub(crate) type Place = Arc<OwnedSemaphorePermit>;

impl<In, Out> Outlet<In, Out> {
    /// Claims what is next; in an ordered stage, with a place in the reorder buffer, which is reserved before.
    ///
    /// # Cancel safety
    /// As [`Link::claim`]; a place is given back.
    pub(crate) async fn claim(
        &self,
        share: Share,
        meter: Option<&Arc<Meter>>,
    ) -> Option<(Batch<In>, Option<Place>)> {
        let place = match &self.in_order {
            None => None,
            Some(InOrder { places, .. }) => match places.clone().try_acquire_owned() {
                Ok(place) => Some(Arc::new(place)),
                Err(_) => {
                    if let Some(meter) = meter {
                        meter.enter(State::Reordering);
                    }
                    Some(Arc::new(places.clone().acquire_owned().await.ok()?))
                }
            },
        };
        Some((self.input.claim(share, meter).await?, place))
    }

    /// Hands a batch on, and frees its places behind the input: at once, or when everything before it is out.
    pub(crate) fn emit(&self, batch: Batch<Out>, place: Option<Place>) {
        let Some(InOrder { sorter, .. }) = &self.in_order else { return self.pass(batch) };
        let mut sorter = sorter.lock();
        sorter.push(batch, place);
        while let Some((batch, place)) = sorter.pop() {
            self.pass(batch);
            drop(place);
        }
    }

    fn pass(&self, batch: Batch<Out>) {
        let amount = batch.amount();
        self.output.send(batch);
        self.input.settle(amount);
    }
}

/// Closes the output link when the last worker has left.
pub(crate) struct Leaving {
    pub(crate) active: AtomicUsize,
    pub(crate) close: Box<dyn Fn() + Send + Sync>,
    pub(crate) halt: Box<dyn Fn() + Send + Sync>,
}

impl Leaving {
    pub(crate) fn enter(&self) {
        self.active.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        if self.active.fetch_sub(1, Ordering::SeqCst) == 1 {
            (self.close)();
        }
    }
}
