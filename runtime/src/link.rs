//! Links: the bounded path between two stages.
//!
//! ```text
//!           room          ceiling            ceiling
//!          <-----          <-----             <-----
//! [source] ------ link 0 ------> [stage] ------ link 1 ------> [sink]
//!   sent ------^    | limit, buffer, request     ^-- sent         |
//!                   ^------- settled ------------+                v
//!                                                  settled = committed
//! ```
//!
//! Demand is an absolute limit, as QUIC's MAX_DATA (RFC 9000, section 4.1): a running total of source records and source
//! bytes that may have been handed out, not a number of credits. For each link, at every instant,
//!
//! ```text
//! settled <= sent <= limit <= ceiling        limit <= settled + buffer
//! ```
//!
//! where the ceiling is the limit of the receiver's own output link. The source hands out only what link 0 allows, so
//!
//! - what the source handed out minus what is settled behind *any* link never exceeds that link's buffer;
//! - a stage in the middle never finds its output full: sending neither waits nor fails.
//!
//! The limit is raised when at least `request` can be added, when all that was granted is used and settled, or when it is the
//! ceiling that held it: what was asked for further down is passed on as it is. Records are asked for in whole requests, so that
//! the source need not read odd bits between them. Limits and ceilings only grow, so a raise that
//! comes late, twice or out of order does no harm, and no lock is held while one is passed on.
//! A record larger than the byte limit is admitted when nothing else is in flight in the whole chain.
//!
//! The receiving end is the shared queue of a stage's workers: whoever is idle claims. A link neither drops nor reorders,
//! and has no clock: waiting belongs to the stage. It is a mutex around plain fields.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use crate::clock::Moment;
use crate::meter::{Meter, Now, State};
use crate::source::Waiting;
use crate::sync::{Mutex, MutexGuard};
use crate::{Amount, Batch, Bytes, Records};

/// No limit from further down: the last link's ceiling.
const OPEN: Amount = Amount { records: u64::MAX, bytes: u64::MAX };

/// The end of a link that learns how much more its stage may be sent.
pub(crate) trait Upstream: Send + Sync {
    /// The limit of the stage's output link is now at least this.
    fn raise_ceiling(&self, ceiling: Amount, now: &Now);
    /// All that was handed out up to here has left the chain at its end.
    fn drained(&self, settled: Amount);
}

/// How much may be on its way behind a link, and how it asks for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Most that is handed out by the source and not settled behind the link.
    pub buffer: Amount,
    /// Ask again when this much can be added.
    pub request: Amount,
}

/// The bounded path between two stages.
pub struct Link<T> {
    inner: Mutex<Inner<T>>,
    upstream: OnceLock<Arc<dyn Upstream>>,
}

struct Inner<T> {
    queue: VecDeque<Batch<T>>,
    /// Claims served; a batch is numbered by its claim.
    claims: u64,
    window: Window,
    sent: Amount,
    settled: Amount,
    limit: Amount,
    ceiling: Amount,
    /// All before this has left the chain at its end; only link 0 needs it.
    drained: Amount,
    last: bool,
    frozen: bool,
    closed: bool,
    halted: bool,
    most: Amount,
    waiting: VecDeque<Idle>,
    next_waiting: u64,
    source: Option<Waker>,
}

/// A worker that waits for records.
struct Idle {
    id: u64,
    waker: Waker,
    meter: Option<Arc<Meter>>,
    /// What the meter was told.
    state: State,
}

/// What has changed, and is to be passed on to the stage before once the link is unlocked.
#[derive(Clone, Copy)]
struct News {
    /// The limit.
    raised: bool,
    /// All that was handed out has left the chain at its end.
    drained: bool,
}

/// What a link holds at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gauge {
    /// Handed into the link since the run began.
    pub sent: Amount,
    /// Settled behind the link since the run began.
    pub settled: Amount,
    /// May have been handed out by the source, as far as this link is concerned.
    pub limit: Amount,
    /// The limit of the receiver's output link; `u64::MAX` if it has none.
    pub ceiling: Amount,
    /// Most that may be on its way behind the link.
    pub buffer: Amount,
    /// Most that was on its way behind the link (sent and not settled).
    pub most: Amount,
    /// When the oldest record that no worker has claimed yet was read.
    pub oldest: Option<Moment>,
}

/// Room that the source may fill: nothing is taken until it is filled, so dropping it loses nothing.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// At most so many records.
    pub records: Records,
    /// At most so many source bytes.
    pub bytes: Bytes,
}

impl<T> Link<T> {
    /// A link whose receiver has an output link with this limit; `None` if its receiver is the end.
    pub(crate) fn new(window: Window, ceiling: Option<Amount>) -> Arc<Link<T>> {
        let open = ceiling.unwrap_or(OPEN);
        Arc::new(Link {
            inner: Mutex::new(Inner {
                queue: VecDeque::new(),
                claims: 0,
                window,
                sent: Amount::ZERO,
                settled: Amount::ZERO,
                limit: window.buffer.min(open),
                ceiling: open,
                drained: Amount::ZERO,
                last: ceiling.is_none(),
                frozen: false,
                closed: false,
                halted: false,
                most: Amount::ZERO,
                waiting: VecDeque::new(),
                next_waiting: 0,
                source: None,
            }),
            upstream: OnceLock::new(),
        })
    }

    /// Names the link whose receiver sends into this one.
    pub(crate) fn set_upstream(&self, upstream: Arc<dyn Upstream>) {
        let known = self.upstream.set(upstream);
        debug_assert!(known.is_ok(), "a link has one sender");
    }

    /// What it holds now.
    pub fn gauge(&self) -> Gauge {
        let inner = self.inner.lock();
        Gauge {
            sent: inner.sent,
            settled: inner.settled,
            limit: inner.limit,
            ceiling: inner.ceiling,
            buffer: inner.window.buffer,
            most: inner.most,
            oldest: inner.queue.front().map(Batch::read_at),
        }
    }

    /// Waits until the source may hand out records of together at least `need` bytes, and says how many.
    /// `None` when it may hand out no more at all. Only the source calls this, and only link 0 is asked.
    ///
    /// `meter` is backpressured while it waits, and stays as it is if there is room.
    ///
    /// # Cancel safety
    /// Nothing is taken; a dropped wait loses nothing.
    pub(crate) async fn reserve(&self, need: Bytes, meter: Option<&Meter>) -> Option<Room> {
        std::future::poll_fn(|cx| self.poll_reserve(cx, need, meter)).await
    }

    fn poll_reserve(
        &self,
        cx: &mut Context<'_>,
        need: Bytes,
        meter: Option<&Meter>,
    ) -> Poll<Option<Room>> {
        let mut inner = self.inner.lock();
        if inner.frozen {
            return Poll::Ready(None);
        }
        if let Some(room) = inner.room(need) {
            return Poll::Ready(Some(room));
        }
        inner.source = Some(cx.waker().clone());
        if let Some(meter) = meter {
            meter.enter(State::Backpressured);
        }
        Poll::Pending
    }

    /// The source may hand out nothing more: [`Link::reserve`] gives `None` from now on.
    pub(crate) fn freeze(&self) {
        let mut inner = self.inner.lock();
        inner.frozen = true;
        wake(inner.source.take());
    }

    /// Hands a batch over. Never waits: its records were asked for.
    pub(crate) fn send(&self, batch: Batch<T>) {
        let mut inner = self.inner.lock();
        inner.sent += batch.amount();
        // A record over the byte limit comes alone; what came before it may be settled a moment later.
        debug_assert!(
            batch.amount().records <= 1 || inner.sent.fits(inner.limit),
            "{:?} sent, {:?} asked for",
            inner.sent,
            inner.limit
        );
        let held = inner.sent - inner.settled;
        inner.most = inner.most.max(held);
        inner.queue.push_back(batch);
        let next = inner.take_waiting();
        inner.judge_waiting(&Now::default());
        drop(inner);
        wake(next);
    }

    /// Records that were sent have their verdict or were handed on: their places are free again.
    pub(crate) fn settle(&self, amount: Amount) {
        let mut inner = self.inner.lock();
        let news = inner.settle(amount);
        self.pass_on(inner, news, &Now::default());
    }

    /// [`Link::settle`], and the next records for the same worker if there are any: under one lock, so that a worker goes from
    /// one batch to the next without a wait. Otherwise the state of a worker that waits for them.
    pub(crate) fn settle_and_claim(&self, amount: Amount, most: Share) -> Result<Batch<T>, State> {
        let mut inner = self.inner.lock();
        let news = inner.settle(amount);
        let batch = inner.take(most);
        let claimed = batch.ok_or_else(|| inner.waiting_state());
        let next = inner.take_waiting();
        self.pass_on(inner, news, &Now::default());
        wake(next);
        claimed
    }

    /// Sets how much may be on its way from now on. What is already asked for stays asked for.
    pub(crate) fn set_window(&self, window: Window) {
        let mut inner = self.inner.lock();
        inner.window = window;
        let raised = inner.raise();
        self.pass_on(inner, News { raised, drained: false }, &Now::default());
    }

    fn pass_on(&self, mut inner: MutexGuard<'_, Inner<T>>, news: News, now: &Now) {
        let (limit, drained) = (inner.limit, inner.drained);
        let any = news.raised || news.drained;
        // The source may have seen the chain drained before the last place behind its own link was free.
        let source = if any || inner.settled == inner.sent { inner.source.take() } else { None };
        drop(inner);
        wake(source);
        if !any {
            return;
        }
        if let Some(upstream) = self.upstream.get() {
            if news.raised {
                upstream.raise_ceiling(limit, now);
            }
            if news.drained {
                upstream.drained(drained);
            }
        }
    }

    /// Claims the next records for one call: at most `most` of them, fewer if fewer are there; `None` when there will be no
    /// more. Batches without items are handed out as they are.
    ///
    /// `meter` is kept in the state that is true while the worker waits: no input, or backpressured.
    ///
    /// # Cancel safety
    /// A dropped claim has taken nothing; if it had been woken, the next worker is.
    pub(crate) fn claim<'a>(&'a self, most: Share, meter: Option<&'a Arc<Meter>>) -> Claim<'a, T> {
        Claim { link: self, most, meter, id: None }
    }

    /// No more will be sent: claims give `None` when the queue is empty.
    pub(crate) fn close(&self) {
        self.end(|inner| inner.closed = true);
    }

    /// No more may be claimed: claims give `None` from now on, and what is in the queue stays unsettled.
    pub(crate) fn halt(&self) {
        self.end(|inner| inner.halted = true);
    }

    fn end(&self, how: impl FnOnce(&mut Inner<T>)) {
        let mut inner = self.inner.lock();
        how(&mut inner);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        for worker in waiting {
            worker.waker.wake();
        }
    }

    /// True if all that can come has been sent and claimed, so that waiting longer brings nothing by itself: what was asked for is
    /// used up, or all that was handed out is here and the record behind it does not fit into the chain.
    pub(crate) fn is_exhausted(&self, next: Option<Waiting>) -> bool {
        let inner = self.inner.lock();
        let left = inner.limit.saturating_sub(inner.sent);
        let used_up = left.records == 0 || left.bytes == 0;
        let waits =
            next.is_some_and(|next| left.bytes < next.bytes.0 || inner.sent.records >= next.behind);
        inner.queue.is_empty() && (inner.closed || used_up || waits)
    }
}

impl<T: Send> Upstream for Link<T> {
    fn raise_ceiling(&self, ceiling: Amount, now: &Now) {
        let mut inner = self.inner.lock();
        inner.ceiling = inner.ceiling.max(ceiling);
        let raised = inner.raise();
        inner.judge_waiting(now);
        self.pass_on(inner, News { raised, drained: false }, now);
    }

    fn drained(&self, settled: Amount) {
        let mut inner = self.inner.lock();
        inner.drained = inner.drained.max(settled);
        self.pass_on(inner, News { raised: false, drained: true }, &Now::default());
    }
}

impl<T> Inner<T> {
    fn room(&self, need: Bytes) -> Option<Room> {
        let left = self.limit.saturating_sub(self.sent);
        if left.records == 0 || left.bytes == 0 {
            return None;
        }
        if need.0 <= left.bytes {
            return Some(Room { records: Records(left.records), bytes: Bytes(left.bytes) });
        }
        let nothing_in_flight = self.drained == self.sent && self.settled == self.sent;
        nothing_in_flight.then_some(Room { records: Records(1), bytes: need })
    }

    /// Frees the places, and says what is to be passed on.
    fn settle(&mut self, amount: Amount) -> News {
        self.settled += amount;
        debug_assert!(
            self.settled.fits(self.sent),
            "{:?} settled, {:?} sent",
            self.settled,
            self.sent
        );
        let drained = self.last && self.settled == self.sent;
        if drained {
            self.drained = self.settled;
        }
        News { raised: self.raise(), drained }
    }

    /// Raises the limit if it is time to: see the top of the file.
    fn raise(&mut self) -> bool {
        let request = self.window.request;
        // Whole requests: odd bits that are asked for would be read in odd bits (the silly window of RFC 813).
        let records = self.settled.records / request.records * request.records;
        let own = Amount { records, ..self.settled } + self.window.buffer;
        let may = own.min(self.ceiling).max(self.limit);
        let gain = may - self.limit;
        let worth_it = gain.records >= request.records || gain.bytes >= request.bytes;
        let passed_on = (gain.records > 0 && may.records == self.ceiling.records)
            || (gain.bytes > 0 && may.bytes == self.ceiling.bytes);
        let used = self.limit.records <= self.sent.records || self.limit.bytes <= self.sent.bytes;
        let all_used = used && self.settled == self.sent;
        let raised = gain != Amount::ZERO && (worth_it || passed_on || all_used);
        if raised {
            self.limit = may;
        }
        raised
    }

    /// True if `limit` leaves no room for another record of the usual size.
    fn is_used_up(&self, limit: Amount) -> bool {
        let usual = self.sent.bytes.checked_div(self.sent.records).unwrap_or(0).max(1);
        let left = limit.saturating_sub(self.sent);
        left.records == 0 || left.bytes < usual
    }

    /// Why a worker waits: downstream has not asked, or upstream has not delivered.
    fn waiting_state(&self) -> State {
        if self.is_used_up(self.ceiling) { State::Backpressured } else { State::NoInput }
    }

    fn judge_waiting(&mut self, now: &Now) {
        if self.waiting.is_empty() {
            return;
        }
        let state = self.waiting_state();
        for worker in self.waiting.iter_mut().filter(|worker| worker.state != state) {
            worker.state = state;
            if let Some(meter) = &worker.meter {
                meter.enter_at(state, now);
            }
        }
    }

    /// Takes the worker to be woken, if there is something to claim.
    fn take_waiting(&mut self) -> Option<Waker> {
        let something = !self.queue.is_empty() && !self.halted;
        if something { self.waiting.pop_front().map(|worker| worker.waker) } else { None }
    }

    fn take(&mut self, most: Share) -> Option<Batch<T>> {
        if self.halted {
            return None;
        }
        let mut batch = self.next(most)?;
        batch.claimed(self.claims);
        self.claims += 1;
        Some(batch)
    }

    fn next(&mut self, most: Share) -> Option<Batch<T>> {
        let mut batch = self.queue.pop_front()?;
        let Share::Records(most) = most else { return Some(batch) };
        let cut = batch.items_in(most);
        if cut < batch.len() {
            let head = batch.split_head(cut);
            self.queue.push_front(batch);
            return Some(head);
        }
        while let Some(next) = self.queue.front() {
            // Refused records count too: a joined part is no larger than a call, also if hardly anything is left to call for.
            let records = batch.amount().records + next.amount().records;
            let values = batch.len() + next.len();
            if records > most as u64 || values > most || !batch.continues_with(next) {
                break;
            }
            let next = self.queue.pop_front().expect("it is there");
            batch.join(next);
        }
        Some(batch)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// How much one claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// The next batch, whatever its size.
    Batch,
    /// At most so many records; parts are cut off and joined to that end.
    Records(usize),
}

/// A wait for records: see [`Link::claim`].
pub(crate) struct Claim<'a, T> {
    link: &'a Link<T>,
    most: Share,
    meter: Option<&'a Arc<Meter>>,
    /// The entry in the list of those waiting, once there is one.
    id: Option<u64>,
}

impl<T> Future for Claim<'_, T> {
    type Output = Option<Batch<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut inner = this.link.inner.lock();
        let batch = inner.take(this.most);
        let over = inner.halted || (inner.closed && inner.queue.is_empty());
        if batch.is_some() || over {
            if let Some(id) = this.id.take() {
                inner.waiting.retain(|worker| worker.id != id);
            }
            let next = inner.take_waiting();
            drop(inner);
            wake(next);
            return Poll::Ready(batch);
        }
        let id = match this.id {
            Some(id) => id,
            None => {
                let id = inner.next_waiting;
                inner.next_waiting += 1;
                this.id = Some(id);
                id
            }
        };
        match inner.waiting.iter_mut().find(|worker| worker.id == id) {
            Some(worker) => worker.waker.clone_from(cx.waker()),
            None => {
                let (meter, state) = (this.meter.cloned(), inner.waiting_state());
                if let Some(meter) = &meter {
                    meter.enter(state);
                }
                inner.waiting.push_back(Idle { id, waker: cx.waker().clone(), meter, state });
            }
        }
        Poll::Pending
    }
}

impl<T> Drop for Claim<'_, T> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut inner = self.link.inner.lock();
        let before = inner.waiting.len();
        inner.waiting.retain(|worker| worker.id != id);
        let was_woken = inner.waiting.len() == before;
        let next = if was_woken { inner.take_waiting() } else { None };
        drop(inner);
        wake(next);
    }
}

impl<T> std::fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.gauge().fmt(f)
    }
}

#[cfg(all(test, gegendruck_model))]
mod model;
