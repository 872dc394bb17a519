//! The workers of a stage that asks somebody else: competing consumers, retries, a hold and a rate.
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
//!   well, or if the service was seen to be up since the record failed first; otherwise the service as a whole is down, and the
//!   stage holds: overload makes no dead letters. Nor are two records in a row given up before the service was seen to be up.
//! - After a hold one call goes out as a probe; the others follow when it was answered well.
//! - A panic counts against its record only. If several records shared the call, each is tried alone, so that it is named.
//! - A record that earlier starts of the run tried is alone from its first call on, and its attempts are counted on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use tokio::sync::Notify;

use super::gate::{Failed, Gate, GaveUp, Pass, Rate};
use super::{CallBatch, Retry};
use crate::batch::Batch;
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

/// Work in a worker's hand.
struct Work<In> {
    batch: Batch<In>,
    tries: Option<Tries>,
    /// When it failed in passing first, in this run.
    failed: Option<Moment>,
    place: Option<Place>,
}

struct Parked<In> {
    due: Moment,
    work: Work<In>,
}

/// A call that went out: how, and when.
#[derive(Clone, Copy, Debug)]
struct Asked {
    pass: Pass,
    began: Moment,
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
            // What a stop keeps from being asked about goes back: whoever still works knows then that it is not all done.
            let Some(pass) = self.pass_gate(&mut crew).await else {
                self.park(Moment::default(), work);
                break;
            };
            let due = self.rate.lock().take(crew.meter.clock().now(), work.batch.len());
            if let Some(due) = due {
                crew.meter.enter(State::Limited);
                tokio::select! {
                    biased;
                    () = self.sleep_until(&crew.meter, Some(due)) => {}
                    () = crew.stop.too_late_for(due) => {
                        self.park(due, work);
                        self.release(pass);
                        break;
                    }
                }
            }
            self.outlet.stage.asked(work.batch.len() as u64);
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
            if self.gate.lock().is_held()
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
        Some(self.tried_apart(Work { batch, tries: None, failed: None, place }))
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
                parts.push(Work { batch, tries: None, failed: None, place: place.clone() });
            }
            let batch = cut(&mut batch, 1);
            parts.push(Work { batch, tries: Some(tries), failed: None, place: place.clone() });
        }
        if parts.is_empty() || batch.amount() != Amount::ZERO {
            parts.push(Work { batch, tries: None, failed: None, place });
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
            let until = match self.gate.lock().pass(crew.meter.clock().now()) {
                Ok(pass) => return Some(pass),
                Err(until) => until,
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
        let asked = Asked { pass, began: crew.meter.clock().now() };
        let call = async { self.call.call_batch(work.batch.slice()).await };
        let answer = timed(&crew.meter, AssertUnwindSafe(call).catch_unwind()).await;
        crew.meter.served(records, asked_about);
        match answer {
            Ok(Ok(answers)) if answers.len() == work.batch.len() => {
                self.judge(work, tries, answers, asked, crew)
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
                self.judge(work, tries, answers, asked, crew)
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
        let Work { mut batch, failed, place, .. } = work;
        while !batch.is_empty() {
            let batch = cut(&mut batch, 1);
            self.park(now, Work { batch, tries: Some(tries), failed, place: place.clone() });
        }
    }

    /// A probe came to nothing that says anything about the service: another one may go.
    fn release(&self, pass: Pass) {
        if pass == Pass::Probe {
            self.gate.lock().release();
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
        call: Asked,
        crew: &Crew,
    ) -> Result<(), RunError> {
        if let Some(Err(Failure::Fatal(message))) =
            answers.iter().find(|answer| matches!(answer, Err(Failure::Fatal(_))))
        {
            return Err(self.fatal(message.clone()));
        }
        let Work { mut batch, failed, place, .. } = work;
        one_answer_a_record(&batch, &mut answers);
        if !answers.iter().any(is_transient) {
            self.answered(batch.first(), call.began);
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
            let work = Work { batch, tries: None, failed, place };
            return self.try_again(work, tries, answers, call.pass, crew);
        }
        // Some were answered and some were not: runs of the one and the other kind go their own ways.
        while !answers.is_empty() {
            let failing = is_transient(&answers[0]);
            let run = answers.iter().take_while(|answer| is_transient(answer) == failing).count();
            let rest = answers.split_off(run);
            let answers = std::mem::replace(&mut answers, rest);
            let part = if run < batch.len() { batch.split_head(run) } else { batch.take() };
            let work = Work { batch: part, tries: None, failed, place: place.clone() };
            self.judge(work, tries, answers, call, crew)?;
        }
        Ok(())
    }

    /// All of `work` failed in passing: it waits for its next attempt, or the stage holds.
    fn try_again(
        &self,
        mut work: Work<In>,
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
        let first = work.failed;
        work.failed = first.or(Some(now));
        let last = is_alone(&work.batch) && tries.attempts + 1 >= self.retry.attempts;
        let counts = self.gate.lock().failed(Failed { key, first, last });
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
            self.gate.lock().give_up(key);
            self.refuse(work.batch, tries, reason, work.place);
        } else {
            self.one_by_one(work, Tries { attempts: 0, ..tries }, crew);
        }
        self.release(pass);
        Ok(())
    }

    /// The service is down: nothing goes out until the returned moment.
    fn hold(
        &self,
        work: &Work<In>,
        now: Moment,
        retry_after: Option<Duration>,
        message: &str,
        pass: Pass,
    ) -> Result<Moment, RunError> {
        let held = self.gate.lock().hold(now, retry_after, pass, &self.retry);
        let (until, begun) = held.map_err(|GaveUp { waited }| {
            let waited = waited.as_secs_f64();
            let last = work.batch.span().start;
            self.fatal(format!(
                "the service did not come back within {waited:.0} s: {message}; last asked about {last}"
            ))
        })?;
        if begun {
            let stage = self.outlet.stage.name.clone();
            self.outlet.stage.event(Event::Held { stage, message: message.into() });
        }
        self.changed.notify_waiters();
        Ok(until)
    }

    fn answered(&self, key: u64, began: Moment) {
        let was_held = self.gate.lock().answered(key, began);
        if was_held {
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
