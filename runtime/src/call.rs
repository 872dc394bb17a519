//! Stages that ask somebody else: `call` and `call_batch`, with competing consumers, retries, a hold and a rate.
//!
//! ```text
//!              +--> worker --> hold -> token -> call --+--> done, rejected --> output link
//! input link --+--> worker                             |
//!   (shared)   +--> worker                             +--> transient: parked until due
//!                     ^---------- before fresh records ---------+
//! ```
//!
//! - A worker claims when it is idle. Records that are tried again go before fresh ones and keep the place they have.
//! - A call borrows its records, so that a retry still has them. A parked record copies out its source bytes.
//! - An attempt is a call that was answered by an error or a panic. It counts only while the last *other* record was answered
//!   well; otherwise the service as a whole is down, and the stage holds: overload makes no dead letters.
//! - After a hold one call goes out as a probe; the others follow when it was answered well.
//! - A panic counts against its record only. If several records shared the call, each is tried alone, so that it is named.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::batch::{Batch, Item, Tries};
use crate::clock::Moment;
use crate::link::Share;
use crate::meter::{Meter, State};
use crate::stage::{Crew, Outlet};
use crate::sync::Mutex;
use crate::timed::timed;
use crate::transform::panicked;
use crate::verdict::{Made, Verdicts};
use crate::{Event, Failure, Reason, RunError};

/// A function of one record that may have to wait for its answer.
///
/// Closures that return a boxed future are calls: `|record: &Item<In>| async move { … }.boxed()`.
pub trait Call<In>: Send + Sync + 'static {
    /// What the answer becomes.
    type Out: Send + 'static;

    /// Asks about one record. May be asked again about the same one.
    ///
    /// # Cancel safety
    /// Dropped only when the run is stopped at once; the record is then not committed and will be asked about again.
    fn call(&self, record: &Item<In>) -> impl Future<Output = Result<Self::Out, Failure>> + Send;
}

/// A function of a slice of records, answered in one go.
pub trait CallBatch<In>: Send + Sync + 'static {
    /// What the answer for one record becomes.
    type Out: Send + 'static;

    /// Asks about records: one result each, in their order, or one failure for all of them.
    ///
    /// # Cancel safety
    /// As [`Call::call`].
    fn call_batch(&self, records: &[Item<In>]) -> impl Future<Output = Answers<Self::Out>> + Send;
}

/// One result for each record of a call, or one failure for all.
pub type Answers<Out> = Result<Vec<Result<Out, Failure>>, Failure>;

impl<In, Out, F> Call<In> for F
where
    F: for<'a> Fn(&'a Item<In>) -> BoxFuture<'a, Result<Out, Failure>> + Send + Sync + 'static,
    Out: Send + 'static,
{
    type Out = Out;
    fn call(&self, record: &Item<In>) -> impl Future<Output = Result<Out, Failure>> + Send {
        self(record)
    }
}

/// A [`Call`] that is given one record at a time.
pub struct One<C>(pub(crate) C);

impl<In: Sync + 'static, C: Call<In>> CallBatch<In> for One<C> {
    type Out = C::Out;
    async fn call_batch(&self, records: &[Item<In>]) -> Answers<C::Out> {
        let mut answers = Vec::with_capacity(records.len());
        for record in records {
            answers.push(self.0.call(record).await);
        }
        Ok(answers)
    }
}

/// How often and how long a record is tried again, and how long the stage waits for a service that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts after which a record becomes a dead letter.
    pub attempts: u32,
    /// Wait after the first failed attempt; doubled after each further one.
    pub backoff: Duration,
    /// Longest wait between two attempts.
    pub longest: Duration,
    /// How long the stage holds before it gives up and the run ends.
    pub max_hold: Duration,
}

impl Default for Retry {
    /// 3 attempts, 100 ms doubling to 30 s, 60 minutes.
    fn default() -> Retry {
        Retry {
            attempts: 3,
            backoff: Duration::from_millis(100),
            longest: Duration::from_secs(30),
            max_hold: Duration::from_secs(3600),
        }
    }
}

impl Retry {
    fn wait(&self, failed: u32) -> Duration {
        self.backoff.saturating_mul(1 << failed.saturating_sub(1).min(20)).min(self.longest)
    }
}

/// Work in a worker's hand.
struct Work<In> {
    batch: Batch<In>,
    tries: Option<Tries>,
    place: Option<Place>,
}

/// A place in the reorder buffer, given back when the last part that shares it is out.
pub(crate) type Place = Arc<OwnedSemaphorePermit>;

struct Parked<In> {
    due: Moment,
    work: Work<In>,
}

/// The workers of a calling stage share this.
pub(crate) struct Pool<In, C: CallBatch<In>> {
    pub(crate) call: C,
    pub(crate) outlet: Outlet<In, C::Out>,
    pub(crate) claim: usize,
    pub(crate) places: Option<Arc<Semaphore>>,
    pub(crate) retry: Retry,
    pub(crate) rate: Mutex<Rate>,
    parked: Mutex<Vec<Parked<In>>>,
    gate: Mutex<Gate>,
    changed: Notify,
}

/// A token rate: calls for at most so many records a second, evenly spaced.
#[derive(Debug)]
pub(crate) struct Rate {
    pub(crate) per_second: Option<f64>,
    next: Moment,
}

impl Rate {
    pub(crate) fn new(per_second: Option<f64>) -> Rate {
        Rate { per_second, next: Moment::default() }
    }

    /// Takes tokens for `records`; says when they are due.
    fn take(&mut self, now: Moment, records: usize) -> Option<Moment> {
        let per_second = self.per_second?;
        let due = self.next.max(now);
        self.next = due.plus(Duration::from_secs_f64(records as f64 / per_second));
        (due > now).then_some(due)
    }
}

/// Whether calls may go out, and what the last answers were.
#[derive(Debug, Default)]
struct Gate {
    held: Option<Hold>,
    /// The record answered last, and whether well.
    last: Option<(u64, bool)>,
    /// The same for the last answer that was about another record than `last`.
    before: Option<(u64, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    since: Moment,
    until: Moment,
    failures: u32,
    probing: bool,
}

impl Gate {
    /// True unless the last answer about another record than `key` was a failure.
    fn others_fare_well(&self, key: u64) -> bool {
        let other =
            if self.last.is_some_and(|(last, _)| last == key) { self.before } else { self.last };
        other.is_none_or(|(_, well)| well)
    }

    fn answered(&mut self, key: u64, well: bool) {
        if self.last.is_some_and(|(last, _)| last != key) {
            self.before = self.last;
        }
        self.last = Some((key, well));
    }
}

impl<In: Send + Sync + 'static, C: CallBatch<In>> Pool<In, C> {
    pub(crate) fn new(
        call: C,
        outlet: Outlet<In, C::Out>,
        claim: usize,
        places: Option<usize>,
        retry: Retry,
        rate: Option<f64>,
    ) -> Self {
        Pool {
            call,
            outlet,
            claim,
            places: places.map(|places| Arc::new(Semaphore::new(places))),
            retry,
            rate: Mutex::new(Rate::new(rate)),
            parked: Mutex::new(Vec::new()),
            gate: Mutex::new(Gate::default()),
            changed: Notify::new(),
        }
    }

    /// One worker, until there is no more work, it is retired, or the run fails.
    pub(crate) async fn work(self: Arc<Self>, mut crew: Crew) -> Result<(), RunError> {
        while let Some(work) = self.next(&mut crew).await {
            if work.batch.is_empty() {
                let (_, rest) = work.batch.take_items();
                self.outlet.emit(rest, work.place);
                continue;
            }
            if !self.pass_gate(&mut crew).await {
                break;
            }
            let due = self.rate.lock().take(crew.meter.clock().now(), work.batch.len());
            if let Some(due) = due {
                crew.meter.enter(State::Limited);
                tokio::time::sleep_until(crew.meter.clock().instant(due)).await;
            }
            self.serve(work, &crew).await?;
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    }

    /// The next work: records that are due again, else fresh ones. `None` when this worker is to end.
    async fn next(&self, crew: &mut Crew) -> Option<Work<In>> {
        loop {
            let changed = self.changed.notified();
            let now = crew.meter.clock().now();
            let (again, next_due) = self.take_due(now);
            if again.is_some() {
                return again;
            }
            let fresh = async {
                if next_due.is_some() {
                    crew.meter.enter(State::Paused);
                }
                self.fresh(&crew.meter, next_due.is_none()).await
            };
            let due = async {
                match next_due {
                    Some(due) => tokio::time::sleep_until(crew.meter.clock().instant(due)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = crew.retire.retired() => return None,
                () = crew.stop.stopping(), if next_due.is_some() => return None,
                work = fresh => match work {
                    Some(work) => return Some(work),
                    None if self.parked.lock().is_empty() => return None,
                    None => {}
                },
                () = due => continue,
                () = changed => continue,
            }
            // The input is over; what is parked is not.
            let wait = self.parked.lock().iter().map(|parked| parked.due).min();
            let Some(due) = wait else { continue };
            crew.meter.enter(State::Paused);
            tokio::select! {
                () = crew.stop.stopping() => return None,
                () = tokio::time::sleep_until(crew.meter.clock().instant(due)) => {}
            }
        }
    }

    async fn fresh(&self, meter: &Arc<Meter>, idle: bool) -> Option<Work<In>> {
        let place = match &self.places {
            None => None,
            Some(places) => Some(Arc::new(self.place(places, meter).await?)),
        };
        let batch =
            self.outlet.input.claim(Share::Records(self.claim), idle.then_some(meter)).await?;
        Some(Work { batch, tries: None, place })
    }

    async fn place(&self, places: &Arc<Semaphore>, meter: &Meter) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = places.clone().try_acquire_owned() {
            return Some(place);
        }
        meter.enter(State::Reordering);
        places.clone().acquire_owned().await.ok()
    }

    fn take_due(&self, now: Moment) -> (Option<Work<In>>, Option<Moment>) {
        let mut parked = self.parked.lock();
        let Some((index, first)) = parked.iter().enumerate().min_by_key(|(_, parked)| parked.due)
        else {
            return (None, None);
        };
        if first.due > now {
            return (None, Some(first.due));
        }
        (Some(parked.swap_remove(index).work), None)
    }

    fn park(&self, due: Moment, mut work: Work<In>) {
        work.batch.detach();
        self.parked.lock().push(Parked { due, work });
        self.changed.notify_waiters();
    }

    /// Waits while the stage holds. True when a call may go out, false when the run stops meanwhile.
    async fn pass_gate(&self, crew: &mut Crew) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let until = {
                let mut gate = self.gate.lock();
                let Some(hold) = &mut gate.held else { return true };
                if hold.until <= crew.meter.clock().now() && !hold.probing {
                    hold.probing = true;
                    return true;
                }
                (!hold.probing).then_some(hold.until)
            };
            crew.meter.enter(State::Paused);
            let over = async {
                match until {
                    Some(until) => {
                        tokio::time::sleep_until(crew.meter.clock().instant(until)).await
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = crew.stop.stopping() => return false,
                () = changed => {}
                () = over => {}
            }
        }
    }

    async fn serve(&self, mut work: Work<In>, crew: &Crew) -> Result<(), RunError> {
        let records = work.batch.amount().records;
        let started = work.tries.is_none().then(SystemTime::now);
        crew.meter.begin(State::Busy);
        let call = self.call.call_batch(work.batch.slice());
        let answer = timed(&crew.meter, std::panic::AssertUnwindSafe(call).catch_unwind()).await;
        crew.meter.served(records);
        let tries = work.tries.take().unwrap_or_else(|| {
            let now = started.unwrap_or_else(SystemTime::now);
            Tries { attempts: 0, first: now, last: now }
        });
        match answer {
            Ok(Ok(answers)) if answers.len() == work.batch.len() => {
                self.judge(work, tries, answers, crew)
            }
            Ok(Ok(answers)) => {
                let message = format!(
                    "the call was given {} records and answered {}",
                    work.batch.len(),
                    answers.len()
                );
                Err(self.fatal(message))
            }
            Ok(Err(Failure::Fatal(message))) => Err(self.fatal(message)),
            Ok(Err(failure)) => {
                let answers = (0..work.batch.len()).map(|_| Err(failure.clone())).collect();
                self.judge(work, tries, answers, crew)
            }
            Err(_panic) => {
                self.outlet.stage.event(Event::Panicked {
                    stage: self.outlet.stage.name.clone(),
                    at: work.batch.span().start,
                });
                self.after_panic(work, tries, crew);
                Ok(())
            }
        }
    }

    fn fatal(&self, message: String) -> RunError {
        RunError::Fatal { stage: self.outlet.stage.name.to_string(), message }
    }

    /// Several records shared the call: each is tried alone. One was alone: the attempt is its own.
    fn after_panic(&self, work: Work<In>, mut tries: Tries, crew: &Crew) {
        let now = crew.meter.clock().now();
        let Work { mut batch, place, .. } = work;
        if batch.items_in(1) == batch.len() {
            tries.again();
            if tries.attempts >= self.retry.attempts {
                self.refuse(batch, tries, panicked(), place);
            } else {
                let due = now.plus(self.retry.wait(tries.attempts));
                self.park(due, Work { batch, tries: Some(tries), place });
            }
            self.open_gate();
            return;
        }
        while !batch.is_empty() {
            let count = batch.items_in(1);
            let one = if count < batch.len() { batch.split_head(count) } else { batch.take() };
            self.park(now, Work { batch: one, tries: Some(tries), place: place.clone() });
        }
        self.open_gate();
    }

    fn refuse(&self, batch: Batch<In>, tries: Tries, reason: Reason, place: Option<Place>) {
        let (items, rest) = batch.take_items();
        let mut verdicts = Verdicts::new(&self.outlet.stage.name, rest, 0, Some(tries));
        for item in items {
            verdicts.record(item.at, item.len);
            verdicts.made(Made::Rejected(reason.clone()));
        }
        self.finish(verdicts, place);
    }

    fn finish(&self, verdicts: Verdicts<'_, C::Out>, place: Option<Place>) {
        let (batch, rejected, filtered) = verdicts.finish();
        self.outlet.stage.count(rejected, filtered);
        self.outlet.emit(batch, place);
    }

    /// Gives each record its verdict; what has to be tried again is cut out and parked.
    fn judge(
        &self,
        work: Work<In>,
        mut tries: Tries,
        answers: Vec<Result<C::Out, Failure>>,
        crew: &Crew,
    ) -> Result<(), RunError> {
        if let Some(Err(Failure::Fatal(message))) =
            answers.iter().find(|answer| matches!(answer, Err(Failure::Fatal(_))))
        {
            return Err(self.fatal(message.clone()));
        }
        let Work { mut batch, place, .. } = work;
        let key = batch.first();
        let fails = |answers: &[Result<C::Out, Failure>]| {
            answers.iter().any(|a| matches!(a, Err(Failure::Transient { .. })))
        };
        if !fails(&answers) {
            self.gate.lock().answered(key, true);
            self.open_gate();
            if tries.attempts == 0 {
                tries.again();
            }
            let (items, rest) = batch.take_items();
            let mut verdicts =
                Verdicts::new(&self.outlet.stage.name, rest, items.len(), Some(tries));
            for (item, answer) in items.into_iter().zip(answers) {
                verdicts.record(item.at, item.len);
                verdicts.made(match answer {
                    Ok(out) => Made::One(out),
                    Err(Failure::Reject(reason)) => Made::Rejected(reason),
                    Err(other) => unreachable!("{other:?} was handled above"),
                });
            }
            self.finish(verdicts, place);
            return Ok(());
        }
        if answers.iter().all(|answer| matches!(answer, Err(Failure::Transient { .. }))) {
            return self.try_again(Work { batch, tries: None, place }, tries, answers, crew);
        }
        // Some were answered and some were not: runs of the one and the other kind go their own ways.
        let mut answers = answers.into_iter();
        while !batch.is_empty() {
            let mut run: Vec<_> = answers.by_ref().take(batch.items_in(1)).collect();
            let failing = fails(&run);
            loop {
                let next = batch.items_after(run.len());
                if next == 0 || fails(&answers.as_slice()[..next]) != failing {
                    break;
                }
                run.extend(answers.by_ref().take(next));
            }
            let part =
                if run.len() < batch.len() { batch.split_head(run.len()) } else { batch.take() };
            if failing {
                run.iter_mut().for_each(|answer| {
                    if !matches!(answer, Err(Failure::Transient { .. })) {
                        *answer =
                            Err(Failure::transient("another value of the same record failed"));
                    }
                });
            }
            self.judge(Work { batch: part, tries: None, place: place.clone() }, tries, run, crew)?;
        }
        Ok(())
    }

    /// All of `work` failed in passing: it waits for its next attempt, or the stage holds.
    fn try_again(
        &self,
        work: Work<In>,
        mut tries: Tries,
        answers: Vec<Result<C::Out, Failure>>,
        crew: &Crew,
    ) -> Result<(), RunError> {
        let (message, retry_after) = answers
            .into_iter()
            .find_map(|answer| match answer {
                Err(Failure::Transient { message, retry_after }) => Some((message, retry_after)),
                _ => None,
            })
            .unwrap_or_default();
        let key = work.batch.first();
        let now = crew.meter.clock().now();
        let counts = {
            let mut gate = self.gate.lock();
            let counts = gate.others_fare_well(key);
            gate.answered(key, false);
            counts
        };
        self.outlet.stage.retried();
        if !counts {
            let until = self.hold(now, retry_after, &message)?;
            self.park(until, Work { tries: Some(tries), ..work });
            return Ok(());
        }
        tries.again();
        if tries.attempts < self.retry.attempts {
            let due =
                now.plus(retry_after.unwrap_or_default().max(self.retry.wait(tries.attempts)));
            self.park(due, Work { tries: Some(tries), ..work });
        } else if work.batch.items_in(1) == work.batch.len() {
            let reason = Reason::record("gave_up")
                .detail(format!("{} attempts failed: {message}", tries.attempts));
            self.refuse(work.batch, tries, reason, work.place);
        } else {
            self.after_panic(work, Tries { attempts: 0, ..tries }, crew);
        }
        self.open_gate();
        Ok(())
    }

    /// The service is down: nothing goes out until the returned moment.
    fn hold(
        &self,
        now: Moment,
        retry_after: Option<Duration>,
        message: &str,
    ) -> Result<Moment, RunError> {
        let mut gate = self.gate.lock();
        let (since, failures) = gate.held.map_or((now, 0), |hold| (hold.since, hold.failures));
        if now.since(since) >= self.retry.max_hold {
            let waited = now.since(since).as_secs();
            return Err(
                self.fatal(format!("the service did not come back within {waited} s: {message}"))
            );
        }
        let until = now.plus(retry_after.unwrap_or_else(|| self.retry.wait(failures + 1)));
        gate.held = Some(Hold { since, until, failures: failures + 1, probing: false });
        drop(gate);
        if failures == 0 {
            self.outlet.stage.event(Event::Held {
                stage: self.outlet.stage.name.clone(),
                message: message.into(),
            });
        }
        self.changed.notify_waiters();
        Ok(until)
    }

    fn open_gate(&self) {
        let held = self.gate.lock().held.take();
        if held.is_some() {
            self.outlet.stage.event(Event::Resumed { stage: self.outlet.stage.name.clone() });
            self.changed.notify_waiters();
        }
    }
}
