//! When a call may go out: the tokens of a rate, and the hold on a service that is down.
//!
//! ```text
//!          a failure, and the last other record failed too
//!  open ---------------------------------------------------> held until ...
//!   ^                                                         |      ^
//!   | answered well                                       due |      | failed: a longer wait
//!   +----------------------------- probe: one call alone <----+------+
//! ```
//!
//! - Only a probe that fails makes the wait longer; calls that were out already when the first one failed do not.
//! - A hold ends in an answer or, after [`Retry::max_hold`], with the run.

use std::time::Duration;

use super::Retry;
use crate::clock::Moment;

/// A token rate: calls for at most so many records a second, evenly spaced.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: Option<f64>,
    next: Moment,
}

/// How far calls may lag behind their even spacing and catch up: timers are no finer than a millisecond.
const CATCH_UP: Duration = Duration::from_millis(10);

impl Rate {
    pub(super) fn new(per_second: Option<f64>) -> Rate {
        Rate { per_second, next: Moment::default() }
    }

    /// Takes tokens for `records`; says when they are due, if that is not now.
    pub(super) fn take(&mut self, now: Moment, records: usize) -> Option<Moment> {
        let per_second = self.per_second?;
        let due = self.next.max(now.minus(CATCH_UP));
        let spacing = Duration::try_from_secs_f64(records as f64 / per_second);
        self.next = due.plus(spacing.unwrap_or(Duration::MAX));
        (due > now).then_some(due)
    }
}

/// Whether calls may go out, and what the last answers were.
#[derive(Debug, Default)]
pub(super) struct Gate {
    held: Option<Hold>,
    /// The record answered last, and whether well.
    last: Option<(u64, bool)>,
    /// The same for the last answer that was about another record than `last`.
    before: Option<(u64, bool)>,
    /// A record was given up, and none was answered well since.
    gave_up: bool,
}

/// How a call goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Open,
    /// Alone, to see whether the service is back.
    Probe,
}

/// A service did not come back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GaveUp {
    pub(super) waited: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    since: Moment,
    until: Moment,
    failures: u32,
    probing: bool,
}

impl Hold {
    /// So long after a hold is over, somebody who had waited for its end would have asked.
    const UNHEARD: Duration = Duration::from_secs(1);
}

impl Gate {
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// How a call may go out now; else until when it waits, `None` if until the probe that is out is answered.
    pub(super) fn pass(&mut self, now: Moment) -> Result<Pass, Option<Moment>> {
        match &mut self.held {
            None => Ok(Pass::Open),
            Some(hold) if hold.probing => Err(None),
            Some(hold) if hold.until > now => Err(Some(hold.until)),
            Some(hold) => {
                // Nobody was waiting for the service meanwhile.
                if now.since(hold.until) > Hold::UNHEARD {
                    *hold = Hold { since: now, failures: 0, ..*hold };
                }
                hold.probing = true;
                Ok(Pass::Probe)
            }
        }
    }

    /// A call that went out by `pass` failed, and the service is down: nothing goes out until the returned moment. True if the
    /// hold begins with it.
    pub(super) fn hold(
        &mut self,
        now: Moment,
        retry_after: Option<Duration>,
        pass: Pass,
        retry: &Retry,
    ) -> Result<(Moment, bool), GaveUp> {
        let before = self.held;
        let since = before.map_or(now, |hold| hold.since);
        let waited = now.since(since);
        if waited >= retry.max_hold {
            return Err(GaveUp { waited });
        }
        let asked = now.plus(retry_after.unwrap_or_default());
        let hold = match before {
            Some(hold) if pass == Pass::Open => Hold { until: hold.until.max(asked), ..hold },
            _ => {
                let failures = before.map_or(0, |hold| hold.failures) + 1;
                let until =
                    if retry_after.is_some() { asked } else { now.plus(retry.wait(failures)) };
                Hold { since, until, failures, probing: false }
            }
        };
        let until = hold.until.min(since.plus(retry.max_hold));
        self.held = Some(Hold { until, ..hold });
        Ok((until, before.is_none()))
    }

    /// The probe came to nothing that says anything about the service: another one may go.
    pub(super) fn release(&mut self) {
        if let Some(hold) = &mut self.held {
            hold.probing = false;
        }
    }

    /// The service has answered. True if the gate was held.
    pub(super) fn open(&mut self) -> bool {
        self.held.take().is_some()
    }

    /// True unless the last answer about another record than `key` was a failure.
    pub(super) fn others_fare_well(&self, key: u64) -> bool {
        let other =
            if self.last.is_some_and(|(last, _)| last == key) { self.before } else { self.last };
        other.is_none_or(|(_, well)| well)
    }

    /// True if a record that has failed for the last time may be given up. A second one in a row may not before another was
    /// answered well: so it would go with all of them, one by one, while the service is down and few are on their way.
    pub(super) fn may_give_up(&self) -> bool {
        !self.gave_up
    }

    /// The record was given up: that it failed says nothing about the service any more.
    pub(super) fn give_up(&mut self, key: u64) {
        self.gave_up = true;
        self.before = self.before.filter(|(before, _)| *before != key);
        if self.last.is_some_and(|(last, _)| last == key) {
            self.last = self.before.take();
        }
    }

    pub(super) fn answered(&mut self, key: u64, well: bool) {
        if self.last.is_some_and(|(last, _)| last != key) {
            self.before = self.last;
        }
        self.last = Some((key, well));
        self.gave_up &= !well;
    }
}
