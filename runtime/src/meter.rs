//! Where the time of a worker goes.
//!
//! ```text
//! worker --enter(state)--> [ state | since | totals ] <--read-- report, status file, watchdog
//! ```
//!
//! - A worker is at every instant in exactly one [`State`]; the totals of all states sum to its wall time.
//! - A reader folds in the interval that is still open, so a stall shows while it lasts.
//! - One change costs a reading of the clock and one lock that hardly anybody else wants. Nothing is sampled.

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
        self.of(State::Busy) + self.of(State::InCall) + self.of(State::Committing)
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
    serving_at_claim: Duration,
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
                serving_at_claim: Duration::ZERO,
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
        let mut inner = self.inner.lock();
        if inner.state != state {
            inner.fold(self.clock.now());
            inner.state = state;
            inner.changes += 1;
        }
    }

    /// The worker has claimed records and begins to serve them. If it has been in that state since the last claim, the time
    /// goes on where that one ended, without another look at the clock.
    pub fn begin(&self, state: State) {
        let mut inner = self.inner.lock();
        if inner.state != state {
            inner.fold(self.clock.now());
            inner.state = state;
            inner.changes += 1;
            inner.serving_at_claim = inner.times.serving();
        }
    }

    /// The worker is done with a claim that covered `records` of the source and worked on `worked_on` of them (the others had
    /// their verdict already): the serving time since [`Meter::begin`] goes to the service times.
    pub fn served(&self, records: u64, worked_on: u64) {
        let mut inner = self.inner.lock();
        let served = inner.claim_done(self.clock.now(), records);
        if let Some(nanos) = (served.as_nanos() as u64).checked_div(worked_on) {
            inner.service.saturating_record_n(nanos, worked_on);
        }
    }

    /// The sink is done with a transaction of `records`: its service times are those of whole transactions.
    pub fn committed(&self, records: u64) {
        let mut inner = self.inner.lock();
        let served = inner.claim_done(self.clock.now(), records);
        inner.service.saturating_record(served.as_nanos() as u64);
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

impl Inner {
    /// Books a claim, and says how long it was served.
    fn claim_done(&mut self, now: Moment, records: u64) -> Duration {
        self.fold(now);
        self.records += records;
        self.claims += 1;
        let serving = self.times.serving();
        let before = std::mem::replace(&mut self.serving_at_claim, serving);
        serving - before
    }

    fn fold(&mut self, now: Moment) {
        if !self.ended {
            self.times.nanos[self.state as usize] += now.since(self.since).as_nanos() as u64;
            self.since = now;
        }
    }
}
