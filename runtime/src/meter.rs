//! Where the time of a worker goes.
//!
//! ```text
//! worker --enter(state)--> [ state | since | totals ] <--read-- report, status file, watchdog
//! ```
//!
//! - A worker is at every instant in exactly one [`State`]; the totals of all states sum to its wall time.
//! - A reader folds in the interval that is still open, so a stall shows while it lasts.
//! - One change costs a look at the clock and one lock that hardly anybody else wants. Nothing is sampled: what is not looked
//!   at one by one is looked at together.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Moment};
use crate::sync::Mutex;

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Runs user code (inside a poll).
    Busy,
    /// Waits for an answer from outside (between polls).
    InCall,
    /// Has nothing to do: upstream was asked and has not delivered.
    NoInput,
    /// Is done, and downstream has not asked.
    Backpressured,
    /// Waits for a rate limit.
    Limited,
    /// Waits after errors: backoff, hold.
    Paused,
    /// Is done, and an earlier record is not.
    Reordering,
    /// Is in the sink's transaction.
    Committing,
}

impl State {
    /// All states, in the order of the report's columns.
    pub const ALL: [State; 8] = [
        State::Busy,
        State::InCall,
        State::NoInput,
        State::Backpressured,
        State::Limited,
        State::Paused,
        State::Reordering,
        State::Committing,
    ];

    /// The words for a reader.
    pub fn name(self) -> &'static str {
        match self {
            State::Busy => "busy",
            State::InCall => "in call",
            State::NoInput => "no input",
            State::Backpressured => "backpressured",
            State::Limited => "limited",
            State::Paused => "paused",
            State::Reordering => "reordering",
            State::Committing => "committing",
        }
    }
}

/// How long one worker, or all workers of a stage, were in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    nanos: [u64; 8],
}

impl Times {
    /// The time in one state.
    pub fn of(&self, state: State) -> Duration {
        Duration::from_nanos(self.nanos[state as usize])
    }

    /// The time in all states: the wall time of the workers, summed.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos.iter().sum())
    }

    /// The share of one state, 0.0 to 1.0; 0.0 if no time has passed.
    pub fn share(&self, state: State) -> f64 {
        let total: u64 = self.nanos.iter().sum();
        if total == 0 { 0.0 } else { self.nanos[state as usize] as f64 / total as f64 }
    }

    /// The time in which the worker served records: busy, in call, or committing.
    pub fn serving(&self) -> Duration {
        Duration::from_nanos(self.serving_nanos())
    }

    fn serving_nanos(&self) -> u64 {
        [State::Busy, State::InCall, State::Committing]
            .iter()
            .map(|s| self.nanos[*s as usize])
            .sum()
    }

    /// Adds another worker's times.
    pub fn add(&mut self, other: &Times) {
        for (mine, theirs) in self.nanos.iter_mut().zip(other.nanos) {
            *mine += theirs;
        }
    }

    /// The times since an `earlier` reading of the same workers.
    pub fn since(&self, earlier: &Times) -> Times {
        let mut nanos = self.nanos;
        for (mine, theirs) in nanos.iter_mut().zip(earlier.nanos) {
            *mine = mine.saturating_sub(theirs);
        }
        Times { nanos }
    }
}

/// The times of one worker, kept as it goes.
#[derive(Debug)]
pub struct Meter {
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    started: Moment,
    /// When the open interval began, or when the worker ended.
    since: Moment,
    ended: bool,
    times: Times,
    changes: u64,
    records: u64,
    claims: u64,
    serving_at_claim: u64,
    /// Service time per record in nanoseconds, two significant digits.
    service: Histogram<u64>,
}

/// What a meter says at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The time in each state, the open interval included.
    pub times: Times,
    /// The state now; `None` if the worker has ended.
    pub state: Option<State>,
    /// How long it has been in that state.
    pub open: Duration,
    /// Its wall time: from its beginning until now, or until it ended. The times in all states add up to it.
    pub lived: Duration,
    /// Records served.
    pub records: u64,
    /// Claims served.
    pub claims: u64,
    /// State changes: what the accounting itself cost, in units of one change.
    pub changes: u64,
}

const HOUR_IN_NANOS: u64 = 3_600_000_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HOUR_IN_NANOS, 2).expect("the bounds are constants that fit")
}

impl Meter {
    /// A meter of a worker that begins now, in `state`.
    pub fn start(clock: Clock, state: State) -> Meter {
        let started = clock.now();
        Meter {
            clock,
            inner: Mutex::new(Inner {
                state,
                started,
                since: started,
                ended: false,
                times: Times::default(),
                changes: 0,
                records: 0,
                claims: 0,
                serving_at_claim: 0,
                service: histogram(),
            }),
        }
    }

    /// The clock by which it measures.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The worker goes over into `state`.
    pub fn enter(&self, state: State) {
        self.enter_at(state, &Now::default());
    }

    /// [`Meter::enter`] for one of several workers to which the same thing happens: the first of them looks at the clock.
    pub(crate) fn enter_at(&self, state: State, now: &Now) {
        let mut inner = self.inner.lock();
        if inner.state != state {
            let now = *now.0.get_or_init(|| self.clock.now());
            inner.change(state, now);
        }
    }

    /// The worker has claimed records and begins to serve them. If it has been in that state since the last claim, the time
    /// goes on where that one ended, without another look at the clock.
    pub fn begin(&self, state: State) {
        let mut inner = self.inner.lock();
        if inner.state != state {
            inner.change(state, self.clock.now());
            inner.serving_at_claim = inner.times.serving_nanos();
        }
    }

    /// The worker is done with a claim that covered `records` of the source and worked on `worked_on` of them (the others had
    /// their verdict already): the serving time since [`Meter::begin`] goes to the service times. Says when that was.
    pub fn served(&self, records: u64, worked_on: u64) -> Moment {
        let mut inner = self.inner.lock();
        let now = self.clock.now();
        inner.serve(now, &Claims { number: 1, records, worked_on });
        now
    }

    /// [`Meter::served`] for a worker that computes, and goes from one claim to the next: see [`Streak`].
    pub(crate) fn streak(&self) -> Streak<'_> {
        Streak { meter: self, claims: Claims::default(), quick: false }
    }

    /// The sink is done with a transaction of `records`, and busy with its own work from now on. Its service times are those of
    /// whole transactions. Says when that was.
    pub fn committed(&self, records: u64) -> Moment {
        let mut inner = self.inner.lock();
        let now = self.clock.now();
        let served = inner.done(now, &Claims { number: 1, records, worked_on: 1 });
        inner.service.saturating_record(served);
        inner.change(State::Busy, now);
        now
    }

    /// The worker has ended; its times stand still from now on.
    pub fn end(&self) {
        let mut inner = self.inner.lock();
        inner.fold(self.clock.now());
        inner.ended = true;
    }

    /// What it says now.
    pub fn read(&self) -> Reading {
        let inner = self.inner.lock();
        let now = self.clock.now();
        let open = if inner.ended { Duration::ZERO } else { now.since(inner.since) };
        let mut times = inner.times;
        times.nanos[inner.state as usize] += open.as_nanos() as u64;
        let state = (!inner.ended).then_some(inner.state);
        Reading {
            times,
            state,
            open,
            lived: if inner.ended { inner.since } else { now }.since(inner.started),
            records: inner.records,
            claims: inner.claims,
            changes: inner.changes,
        }
    }

    /// Adds this worker's service times to `all`.
    pub fn add_service_to(&self, all: &mut Histogram<u64>) {
        let inner = self.inner.lock();
        all.add(&inner.service).expect("all histograms have the same bounds");
    }

    /// An empty histogram of service times, to add meters' to.
    pub fn no_service() -> Histogram<u64> {
        histogram()
    }
}

/// Ends a meter when its worker's task ends, in whatever way: its times stand still from then on.
pub(crate) struct Ending(pub(crate) Arc<Meter>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A look at the clock that several meters share; taken when the first of them needs it.
#[derive(Debug, Default)]
pub(crate) struct Now(OnceCell<Moment>);

/// Claims that were served, the records that they covered, and those of them that were worked on.
#[derive(Clone, Copy, Debug, Default)]
struct Claims {
    number: u64,
    records: u64,
    worked_on: u64,
}

/// Claims that a worker serves one right after the other. A look at the clock for each would cost more than moving a batch
/// does: those that take less than [`Streak::QUICK`] are timed several together. What takes longer, and what is followed by
/// another state, is timed by itself.
pub(crate) struct Streak<'a> {
    meter: &'a Meter,
    claims: Claims,
    /// So were the last ones that were timed.
    quick: bool,
}

impl Streak<'_> {
    const QUICK: Duration = Duration::from_micros(10);
    const TOGETHER: u64 = 8;

    /// A claim of `records` is done, and the next one begins.
    pub(crate) fn goes_on(&mut self, records: u64) {
        self.add(records);
        if !self.quick || self.claims.number == Self::TOGETHER {
            self.book(None);
        }
    }

    /// A claim of `records` is done, and no other begins: the worker goes over into another state, if it is known into which.
    pub(crate) fn ends(&mut self, records: u64, then: Option<State>) {
        self.add(records);
        self.book(then);
    }

    fn add(&mut self, records: u64) {
        self.claims.number += 1;
        self.claims.records += records;
        self.claims.worked_on += records;
    }

    fn book(&mut self, then: Option<State>) {
        let claims = std::mem::take(&mut self.claims);
        let mut inner = self.meter.inner.lock();
        let now = self.meter.clock.now();
        let served = inner.serve(now, &claims);
        if let Some(state) = then {
            inner.change(state, now);
        }
        self.quick = served < claims.number * Self::QUICK.as_nanos() as u64;
    }
}

impl Drop for Streak<'_> {
    fn drop(&mut self) {
        if self.claims.number > 0 {
            self.book(None);
        }
    }
}

impl Inner {
    /// Books claims with their service time, and says how long they were served: in nanoseconds, all together.
    fn serve(&mut self, now: Moment, claims: &Claims) -> u64 {
        let served = self.done(now, claims);
        if let Some(nanos) = served.checked_div(claims.worked_on) {
            self.service.saturating_record_n(nanos, claims.worked_on);
        }
        served
    }

    fn done(&mut self, now: Moment, claims: &Claims) -> u64 {
        self.fold(now);
        self.records += claims.records;
        self.claims += claims.number;
        let serving = self.times.serving_nanos();
        serving - std::mem::replace(&mut self.serving_at_claim, serving)
    }

    fn change(&mut self, state: State, now: Moment) {
        self.fold(now);
        self.state = state;
        self.changes += 1;
    }

    fn fold(&mut self, now: Moment) {
        // A shared look at the clock may be older than this worker's last change.
        if !self.ended && now > self.since {
            self.times.nanos[self.state as usize] += now.nanos_since(self.since);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    /// Claims of 100 records that take so many microseconds each, one right after the other, and then a wait; how many of
    /// them the meter knew of after each.
    async fn known_after_each(claims: &[u64]) -> (Vec<u64>, Reading, Histogram<u64>) {
        let meter = Meter::start(Clock::start(), State::NoInput);
        meter.begin(State::Busy);
        let mut streak = meter.streak();
        let mut known = Vec::new();
        for (n, takes) in claims.iter().enumerate() {
            tokio::time::advance(*takes as u32 * MICRO).await;
            if n + 1 < claims.len() {
                streak.goes_on(100);
            } else {
                streak.ends(100, Some(State::NoInput));
            }
            known.push(meter.read().claims);
        }
        drop(streak);
        let mut service = Meter::no_service();
        meter.add_service_to(&mut service);
        (known, meter.read(), service)
    }

    #[tokio::test(start_paused = true)]
    async fn quick_claims_are_timed_eight_together_and_none_is_left_out() {
        let (known, reading, service) = known_after_each(&[1; 20]).await;
        assert_eq!(known, [1, 1, 1, 1, 1, 1, 1, 1, 9, 9, 9, 9, 9, 9, 9, 9, 17, 17, 17, 20]);
        assert_eq!(reading.times.of(State::Busy), 20 * MICRO);
        assert_eq!(reading.state, Some(State::NoInput));
        assert_eq!((reading.records, service.len()), (2_000, 2_000));
        assert_eq!((service.min(), service.max()), (10, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn claims_that_take_long_are_timed_one_by_one() {
        let (known, reading, service) = known_after_each(&[10, 1, 20, 30, 5, 1]).await;
        assert_eq!(known, [1, 2, 2, 2, 2, 6], "a quick one was believed that more would follow");
        assert_eq!(reading.times.of(State::Busy), 67 * MICRO);
        assert_eq!(service.len(), 600);
        let (known, _, service) = known_after_each(&[10; 5]).await;
        assert_eq!(known, [1, 2, 3, 4, 5]);
        assert!(service.min() <= 100 && service.max() >= 100, "{service:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_timed_yet_is_booked_when_its_worker_is_dropped() {
        let meter = Meter::start(Clock::start(), State::Busy);
        let mut streak = meter.streak();
        for _ in 0..3 {
            streak.goes_on(7);
        }
        drop(streak);
        assert_eq!((meter.read().claims, meter.read().records), (3, 21));
    }
}
