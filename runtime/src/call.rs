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
//! - A record that earlier starts of the run tried is alone from its first call on, and its attempts are counted on.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Notify;

use crate::batch::{Batch, Item};
use crate::clock::Moment;
use crate::link::Share;
use crate::meter::{Meter, State};
use crate::stage::{Crew, Outlet, Place, Settings};
use crate::sync::Mutex;
use crate::timed::timed;
use crate::transform::panic_reason;
use crate::tried::Tries;
use crate::verdict::{Made, Verdicts};
use crate::{Amount, Event, Failure, Reason, RunError};

/// A function of one record that may have to wait for its answer.
///
/// Closures that return a boxed future are calls too: see [`call_fn`](crate::call_fn).
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

struct Parked<In> {
    due: Moment,
    work: Work<In>,
}

/// What a worker may have to come back for although the input is over.
struct Shelf<In> {
    parked: Vec<Parked<In>>,
    /// Workers that have work, or are about to claim some: it may be parked yet.
    hands: usize,
    /// Idle workers that wait for what is parked: no more than there is parked.
    pausing: usize,
    /// The input is over.
    over: bool,
}

/// A worker that may park work, until it is dropped.
struct Hand<'a, In> {
    shelf: &'a Mutex<Shelf<In>>,
    changed: &'a Notify,
}

impl<In> Drop for Hand<'_, In> {
    fn drop(&mut self) {
        let last = {
            let mut shelf = self.shelf.lock();
            shelf.hands -= 1;
            // While something is parked, those who wait for it have a timer.
            shelf.hands == 0 && shelf.over && shelf.parked.is_empty()
        };
        if last {
            self.changed.notify_waiters();
        }
    }
}

/// An idle worker that waits for parked work, until it is dropped.
struct Pausing<'a, In>(&'a Mutex<Shelf<In>>);

impl<In> Drop for Pausing<'_, In> {
    fn drop(&mut self) {
        self.0.lock().pausing -= 1;
    }
}

/// The workers of a calling stage share this.
pub(crate) struct Pool<In, C: CallBatch<In>> {
    call: C,
    outlet: Outlet<In, C::Out>,
    claim: usize,
    retry: Retry,
    rate: Mutex<Rate>,
    shelf: Mutex<Shelf<In>>,
    gate: Mutex<Gate>,
    changed: Notify,
}

/// A token rate: calls for at most so many records a second, evenly spaced.
#[derive(Debug)]
struct Rate {
    per_second: Option<f64>,
    next: Moment,
}

/// How far calls may lag behind their even spacing and catch up: timers are no finer than a millisecond.
const CATCH_UP: Duration = Duration::from_millis(10);

impl Rate {
    fn new(per_second: Option<f64>) -> Rate {
        Rate { per_second, next: Moment::default() }
    }

    /// Takes tokens for `records`; says when they are due, if that is not now.
    fn take(&mut self, now: Moment, records: usize) -> Option<Moment> {
        let per_second = self.per_second?;
        let due = self.next.max(now.minus(CATCH_UP));
        let spacing = Duration::try_from_secs_f64(records as f64 / per_second);
        self.next = due.plus(spacing.unwrap_or(Duration::MAX));
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

/// How a call goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Open,
    /// Alone, to see whether the service is back.
    Probe,
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

    /// The record was given up: that it failed says nothing about the service any more.
    fn forget(&mut self, key: u64) {
        self.before = self.before.filter(|(before, _)| *before != key);
        if self.last.is_some_and(|(last, _)| last == key) {
            self.last = self.before.take();
        }
    }

    fn answered(&mut self, key: u64, well: bool) {
        if self.last.is_some_and(|(last, _)| last != key) {
            self.before = self.last;
        }
        self.last = Some((key, well));
    }
}

impl<In: Send + Sync + 'static, C: CallBatch<In>> Pool<In, C> {
    pub(crate) fn new(call: C, outlet: Outlet<In, C::Out>, settings: &Settings) -> Self {
        Pool {
            call,
            outlet,
            claim: settings.claim.unwrap_or(1),
            retry: settings.retry,
            rate: Mutex::new(Rate::new(settings.rate)),
            shelf: Mutex::new(Shelf { parked: Vec::new(), hands: 0, pausing: 0, over: false }),
            gate: Mutex::new(Gate::default()),
            changed: Notify::new(),
        }
    }

    /// One worker, until there is no more work, it is retired, or the run fails.
    pub(crate) async fn work(self: Arc<Self>, mut crew: Crew) -> Result<(), RunError> {
        while let Some((work, _hand)) = self.next(&mut crew).await {
            if work.batch.is_empty() {
                let (_, rest) = work.batch.take_items();
                self.outlet.emit(rest, work.place);
                continue;
            }
            let Some(pass) = self.pass_gate(&mut crew).await else { break };
            let due = self.rate.lock().take(crew.meter.clock().now(), work.batch.len());
            if let Some(due) = due {
                crew.meter.enter(State::Limited);
                tokio::select! {
                    biased;
                    () = self.sleep_until(&crew.meter, Some(due)) => {}
                    () = crew.stop.too_late_for(due) => break,
                }
            }
            self.serve(work, pass, &crew).await?;
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    }

    /// The next work: records that are due again, else fresh ones. `None` when this worker is to end.
    ///
    /// While the stage holds, fresh records go first: whether the service is back is better asked with a record that has not
    /// failed yet.
    async fn next(&self, crew: &mut Crew) -> Option<(Work<In>, Hand<'_, In>)> {
        loop {
            let changed = self.changed.notified();
            let hand = self.hand();
            if self.gate.lock().held.is_some()
                && let Some(Some(work)) = self.fresh(None).now_or_never()
            {
                return Some((work, hand));
            }
            let (again, next_due) = self.take_due(crew.meter.clock().now());
            if let Some(work) = again {
                return Some((work, hand));
            }
            let pausing = self.pausing();
            if pausing.is_some() {
                crew.meter.enter(State::Paused);
            }
            let idle = pausing.is_none().then_some(&crew.meter);
            let due = self.sleep_until(&crew.meter, next_due);
            tokio::select! {
                biased;
                () = crew.retire.retired() => return None,
                () = crew.stop.stopping(), if next_due.is_some() => return None,
                work = self.fresh(idle) => match work {
                    Some(work) => return Some((work, hand)),
                    None => self.shelf.lock().over = true,
                },
                () = due => continue,
                () = changed => continue,
            }
            drop((hand, pausing));
            if !self.wait_for_parked(crew).await {
                return None;
            }
        }
    }

    /// The input is over. True when parked work may be due, false when none is left or this worker is to end.
    async fn wait_for_parked(&self, crew: &mut Crew) -> bool {
        let changed = self.changed.notified();
        let next_due = {
            let shelf = self.shelf.lock();
            if shelf.parked.is_empty() && shelf.hands == 0 {
                return false;
            }
            shelf.parked.iter().map(|parked| parked.due).min()
        };
        let pausing = self.pausing();
        crew.meter.enter(if pausing.is_some() { State::Paused } else { State::NoInput });
        tokio::select! {
            biased;
            () = crew.retire.retired() => false,
            () = crew.stop.stopping() => false,
            () = self.sleep_until(&crew.meter, next_due) => true,
            () = changed => true,
        }
    }

    async fn sleep_until(&self, meter: &Meter, due: Option<Moment>) {
        match due {
            Some(due) => tokio::time::sleep_until(meter.clock().instant(due)).await,
            None => std::future::pending().await,
        }
    }

    /// Makes this idle worker one of those that wait for parked work, if there are not enough of them.
    fn pausing(&self) -> Option<Pausing<'_, In>> {
        let mut shelf = self.shelf.lock();
        if shelf.pausing >= shelf.parked.len() {
            return None;
        }
        shelf.pausing += 1;
        Some(Pausing(&self.shelf))
    }

    fn hand(&self) -> Hand<'_, In> {
        self.shelf.lock().hands += 1;
        Hand { shelf: &self.shelf, changed: &self.changed }
    }

    async fn fresh(&self, meter: Option<&Arc<Meter>>) -> Option<Work<In>> {
        let (batch, place) = self.outlet.claim(Share::Records(self.claim), meter).await?;
        Some(self.tried_apart(Work { batch, tries: None, place }))
    }

    /// Cuts records out that earlier starts of the run tried: gives the first part, and parks the others, due at once.
    fn tried_apart(&self, work: Work<In>) -> Work<In> {
        let Outlet { stage, tried, .. } = &self.outlet;
        let Work { mut batch, place, .. } = work;
        let mut parts = Vec::new();
        for (record, tries) in tried.before(&stage.name, batch.span()) {
            let before = batch.items().take_while(|item| item.at.record < record).count();
            if batch.items().nth(before).is_none_or(|item| item.at.record != record) {
                continue;
            }
            if before > 0 {
                let batch = batch.split_head(before);
                parts.push(Work { batch, tries: None, place: place.clone() });
            }
            let batch = cut(&mut batch, 1);
            parts.push(Work { batch, tries: Some(tries), place: place.clone() });
        }
        if parts.is_empty() || batch.amount() != Amount::ZERO {
            parts.push(Work { batch, tries: None, place });
        }
        let mut parts = parts.into_iter();
        let first = parts.next().expect("there is at least one part");
        for part in parts {
            self.park(Moment::default(), part);
        }
        first
    }

    fn take_due(&self, now: Moment) -> (Option<Work<In>>, Option<Moment>) {
        let parked = &mut self.shelf.lock().parked;
        let first = parked
            .iter()
            .enumerate()
            .min_by_key(|(_, parked)| (parked.due, parked.work.batch.first()));
        match first {
            None => (None, None),
            Some((_, first)) if first.due > now => (None, Some(first.due)),
            Some((index, _)) => (Some(parked.swap_remove(index).work), None),
        }
    }

    fn park(&self, due: Moment, mut work: Work<In>) {
        work.batch.detach();
        self.shelf.lock().parked.push(Parked { due, work });
        self.changed.notify_waiters();
    }

    /// Waits while the stage holds, and says how a call may go out; `None` when the run stops meanwhile.
    async fn pass_gate(&self, crew: &mut Crew) -> Option<Pass> {
        loop {
            let changed = self.changed.notified();
            let until = {
                let mut gate = self.gate.lock();
                let Some(hold) = &mut gate.held else { return Some(Pass::Open) };
                if hold.until <= crew.meter.clock().now() && !hold.probing {
                    hold.probing = true;
                    return Some(Pass::Probe);
                }
                (!hold.probing).then_some(hold.until)
            };
            crew.meter.enter(State::Paused);
            tokio::select! {
                biased;
                () = crew.stop.stopping() => return None,
                () = changed => {}
                () = self.sleep_until(&crew.meter, until) => {}
            }
        }
    }

    async fn serve(&self, mut work: Work<In>, pass: Pass, crew: &Crew) -> Result<(), RunError> {
        let records = work.batch.amount().records;
        let asked_about = work.batch.records_with_items();
        let tries = work.tries.take().unwrap_or_else(|| Tries::begun(SystemTime::now()));
        crew.meter.begin(State::Busy);
        let call = async { self.call.call_batch(work.batch.slice()).await };
        let answer = timed(&crew.meter, AssertUnwindSafe(call).catch_unwind()).await;
        crew.meter.served(records, asked_about);
        match answer {
            Ok(Ok(answers)) if answers.len() == work.batch.len() => {
                self.judge(work, tries, answers, pass, crew)
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
                self.judge(work, tries, answers, pass, crew)
            }
            Err(_panic) => {
                self.outlet.stage.panicked(work.batch.span().start);
                self.panicked(work, tries, crew);
                self.release(pass);
                Ok(())
            }
        }
    }

    fn fatal(&self, message: String) -> RunError {
        RunError::Fatal { stage: self.outlet.stage.name.to_string(), message }
    }

    /// The call panicked: an attempt of the record that was alone in it; of several, each is tried alone.
    fn panicked(&self, work: Work<In>, mut tries: Tries, crew: &Crew) {
        if !is_alone(&work.batch) {
            return self.one_by_one(work, tries, crew);
        }
        tries.again();
        self.note(&work.batch, tries);
        if tries.attempts >= self.retry.attempts {
            self.refuse(work.batch, tries, panic_reason(), work.place);
        } else {
            let due = crew.meter.clock().now().plus(self.retry.wait(tries.attempts));
            self.park(due, Work { tries: Some(tries), ..work });
        }
    }

    /// Parks each record by itself, due at once.
    fn one_by_one(&self, work: Work<In>, tries: Tries, crew: &Crew) {
        let now = crew.meter.clock().now();
        let Work { mut batch, place, .. } = work;
        while !batch.is_empty() {
            let batch = cut(&mut batch, 1);
            self.park(now, Work { batch, tries: Some(tries), place: place.clone() });
        }
    }

    /// A probe came to nothing that says anything about the service: another one may go.
    fn release(&self, pass: Pass) {
        if pass == Pass::Probe {
            if let Some(hold) = &mut self.gate.lock().held {
                hold.probing = false;
            }
            self.changed.notify_waiters();
        }
    }

    /// Keeps an attempt of a record that was alone in its call.
    fn note(&self, batch: &Batch<In>, tries: Tries) {
        if let Some(item) = batch.items().next() {
            self.outlet.tried.note(&self.outlet.stage.name, item.at, tries);
        }
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
        mut answers: Vec<Result<C::Out, Failure>>,
        pass: Pass,
        crew: &Crew,
    ) -> Result<(), RunError> {
        if let Some(Err(Failure::Fatal(message))) =
            answers.iter().find(|answer| matches!(answer, Err(Failure::Fatal(_))))
        {
            return Err(self.fatal(message.clone()));
        }
        let Work { mut batch, place, .. } = work;
        one_answer_a_record(&batch, &mut answers);
        if !answers.iter().any(is_transient) {
            self.gate.lock().answered(batch.first(), true);
            self.open_gate();
            tries.again();
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
        if answers.iter().all(is_transient) {
            return self.try_again(Work { batch, tries: None, place }, tries, answers, pass, crew);
        }
        // Some were answered and some were not: runs of the one and the other kind go their own ways.
        while !answers.is_empty() {
            let failing = is_transient(&answers[0]);
            let run = answers.iter().take_while(|answer| is_transient(answer) == failing).count();
            let rest = answers.split_off(run);
            let answers = std::mem::replace(&mut answers, rest);
            let part = if run < batch.len() { batch.split_head(run) } else { batch.take() };
            let work = Work { batch: part, tries: None, place: place.clone() };
            self.judge(work, tries, answers, pass, crew)?;
        }
        Ok(())
    }

    /// All of `work` failed in passing: it waits for its next attempt, or the stage holds.
    fn try_again(
        &self,
        work: Work<In>,
        mut tries: Tries,
        answers: Vec<Result<C::Out, Failure>>,
        pass: Pass,
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
            let until = self.hold(&work, now, retry_after, &message, pass)?;
            self.park(until, Work { tries: Some(tries), ..work });
            return Ok(());
        }
        tries.again();
        if is_alone(&work.batch) {
            self.note(&work.batch, tries);
        }
        if tries.attempts < self.retry.attempts {
            let due =
                now.plus(retry_after.unwrap_or_default().max(self.retry.wait(tries.attempts)));
            self.park(due, Work { tries: Some(tries), ..work });
        } else if is_alone(&work.batch) {
            let reason = Reason::record("gave_up")
                .detail(format!("{} attempts failed: {message}", tries.attempts));
            self.gate.lock().forget(key);
            self.refuse(work.batch, tries, reason, work.place);
        } else {
            self.one_by_one(work, Tries { attempts: 0, ..tries }, crew);
        }
        self.release(pass);
        Ok(())
    }

    /// The service is down: nothing goes out until the returned moment. Only a probe that failed makes the wait longer; calls
    /// that were out already when the first one failed do not.
    fn hold(
        &self,
        work: &Work<In>,
        now: Moment,
        retry_after: Option<Duration>,
        message: &str,
        pass: Pass,
    ) -> Result<Moment, RunError> {
        let mut gate = self.gate.lock();
        let before = gate.held;
        let since = before.map_or(now, |hold| hold.since);
        if now.since(since) >= self.retry.max_hold {
            let waited = now.since(since).as_secs_f64();
            let last = work.batch.span().start;
            let words = format!(
                "the service did not come back within {waited:.0} s: {message}; last asked about {last}"
            );
            return Err(self.fatal(words));
        }
        let asked = now.plus(retry_after.unwrap_or_default());
        let hold = match before {
            Some(hold) if pass == Pass::Open => Hold { until: hold.until.max(asked), ..hold },
            _ => {
                let failures = before.map_or(0, |hold| hold.failures) + 1;
                let until =
                    if retry_after.is_some() { asked } else { now.plus(self.retry.wait(failures)) };
                Hold { since, until, failures, probing: false }
            }
        };
        let until = hold.until.min(since.plus(self.retry.max_hold));
        gate.held = Some(Hold { until, ..hold });
        drop(gate);
        if before.is_none() {
            let stage = self.outlet.stage.name.clone();
            self.outlet.stage.event(Event::Held { stage, message: message.into() });
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

fn is_alone<In>(batch: &Batch<In>) -> bool {
    batch.items_in(1) == batch.len()
}

/// Cuts the first `records` records off, all of the batch if it has no more.
fn cut<In>(batch: &mut Batch<In>, records: usize) -> Batch<In> {
    let values = batch.items_in(records);
    if values < batch.len() { batch.split_head(values) } else { batch.take() }
}

fn is_transient<Out>(answer: &Result<Out, Failure>) -> bool {
    matches!(answer, Err(Failure::Transient { .. }))
}

/// Makes the answers for the values of one record agree: one refused refuses the record, else one failed in passing fails it.
fn one_answer_a_record<In, Out>(batch: &Batch<In>, answers: &mut [Result<Out, Failure>]) {
    let mut rest = answers;
    let mut at = 0;
    while !rest.is_empty() {
        let count = batch.items_after(at);
        let (record, others) = rest.split_at_mut(count);
        let refused = record.iter().find(|answer| matches!(answer, Err(Failure::Reject(_))));
        let failed = record.iter().find(|answer| is_transient(answer));
        if count > 1
            && let Some(Err(failure)) = refused.or(failed)
        {
            let failure = failure.clone();
            record.iter_mut().for_each(|answer| *answer = Err(failure.clone()));
        }
        (rest, at) = (others, at + count);
    }
}
