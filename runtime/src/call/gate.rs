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
    /// When the last of the calls began that were answered well.
    up: Option<Moment>,
    /// The last record that was asked about for the first time failed, and none was answered well since.
    fresh_failed: bool,
}

/// A record that failed in passing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) key: u64,
    /// When it failed first, if it did before.
    pub(super) first: Option<Moment>,
    /// It would be given up.
    pub(super) last: bool,
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

    /// True unless the last answer about another record than `key` was a failure.
    fn others_fare_well(&self, key: u64) -> bool {
        let other =
            if self.last.is_some_and(|(last, _)| last == key) { self.before } else { self.last };
        other.is_none_or(|(_, well)| well)
    }

    /// Notes a failure in passing, and says whether it counts as an attempt: if the last other record was answered well, or if the
    /// service was seen to be up since this one failed first and no record has failed for the first time since then: where only
    /// those fail that have failed before, it is for them. A second record in a row is given up for the latter only: else all of
    /// them would go, one by one, while the service is down and few are on their way.
    pub(super) fn failed(&mut self, failed: Failed) -> bool {
        let Failed { key, first, last } = failed;
        self.fresh_failed |= first.is_none();
        let seen_up = first.is_some_and(|first| self.up.is_some_and(|began| began >= first))
            && !self.fresh_failed;
        let counts = seen_up || (self.others_fare_well(key) && !(last && self.gave_up));
        self.note(key, false);
        counts
    }

    /// Notes a good answer to a call that began at that moment. True if the gate was held; it is open now.
    pub(super) fn answered(&mut self, key: u64, began: Moment) -> bool {
        self.note(key, true);
        self.gave_up = false;
        self.fresh_failed = false;
        self.up = self.up.max(Some(began));
        self.held.take().is_some()
    }

    /// The record was given up: that it failed says nothing about the service any more.
    pub(super) fn give_up(&mut self, key: u64) {
        self.gave_up = true;
        self.before = self.before.filter(|(before, _)| *before != key);
        if self.last.is_some_and(|(last, _)| last == key) {
            self.last = self.before.take();
        }
    }

    fn note(&mut self, key: u64, well: bool) {
        if self.last.is_some_and(|(last, _)| last != key) {
            self.before = self.last;
        }
        self.last = Some((key, well));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Moment {
        Moment::default().plus(Duration::from_secs(n))
    }

    const RETRY: Retry = Retry {
        attempts: 3,
        backoff: Duration::from_secs(1),
        longest: Duration::from_secs(30),
        max_hold: Duration::from_secs(60),
    };

    #[test]
    fn hold_ends_with_the_run_after_the_longest_time_if_somebody_asks_all_along() {
        let mut gate = Gate::default();
        assert_eq!(gate.pass(second(0)), Ok(Pass::Open));
        assert_eq!(gate.hold(second(0), None, Pass::Open, &RETRY), Ok((second(1), true)));
        let mut until = second(1);
        let mut holds = 0;
        let gave_up = loop {
            assert_eq!(gate.pass(until), Ok(Pass::Probe), "due");
            assert_eq!(gate.pass(until), Err(None), "one probe at a time");
            match gate.hold(until, None, Pass::Probe, &RETRY) {
                Ok((next, begun)) => {
                    assert!(!begun && next > until);
                    until = next;
                }
                Err(gave_up) => break gave_up,
            }
            holds += 1;
        };
        assert_eq!(gave_up.waited, RETRY.max_hold);
        assert_eq!(holds, 5, "until 3, 7, 15, 31 and 60 seconds");
    }

    #[test]
    fn hold_that_nobody_waited_in_begins_anew() {
        let mut gate = Gate::default();
        gate.hold(second(0), None, Pass::Open, &RETRY).unwrap();
        assert_eq!(gate.pass(second(4_000)), Ok(Pass::Probe));
        let held = gate.hold(second(4_001), None, Pass::Probe, &RETRY);
        assert_eq!(held, Ok((second(4_002), false)));
    }

    #[test]
    fn calls_that_were_out_when_the_first_one_failed_make_no_wait_longer() {
        let mut gate = Gate::default();
        gate.hold(second(0), None, Pass::Open, &RETRY).unwrap();
        assert_eq!(gate.hold(second(0), None, Pass::Open, &RETRY), Ok((second(1), false)));
        let asked = Some(Duration::from_secs(9));
        assert_eq!(gate.hold(second(0), asked, Pass::Open, &RETRY), Ok((second(9), false)));
        assert!(gate.answered(1, second(0)) && !gate.is_held());
    }

    fn failed(key: u64, first: u64, last: bool) -> Failed {
        Failed { key, first: Some(second(first)), last }
    }

    #[test]
    fn second_record_in_a_row_may_not_be_given_up() {
        let mut gate = Gate::default();
        gate.answered(1, second(0));
        assert!(gate.failed(failed(2, 1, true)));
        gate.give_up(2);
        assert!(gate.failed(failed(3, 2, false)), "it is judged by the first");
        assert!(!gate.failed(failed(3, 2, true)));
        gate.answered(4, second(1));
        assert!(gate.failed(failed(3, 2, true)), "the last other one was answered well");
    }

    #[test]
    fn service_that_was_seen_up_since_a_record_failed_is_not_what_it_fails_for() {
        let mut gate = Gate::default();
        gate.answered(1, second(0));
        assert!(gate.failed(failed(2, 1, false)));
        assert!(!gate.failed(failed(3, 1, false)), "the last other one failed");
        // A call that was out before they failed says nothing.
        gate.answered(4, second(0));
        assert!(gate.failed(failed(2, 1, false)));
        assert!(!gate.failed(failed(3, 1, true)));
        gate.answered(5, second(2));
        for key in [2, 3, 2, 3] {
            assert!(gate.failed(failed(key, 1, true)));
            gate.give_up(key);
        }
        // One that never failed before does now: the service may have gone down meanwhile.
        gate.failed(Failed { first: None, ..failed(6, 3, false) });
        assert!(!gate.failed(failed(2, 1, true)));
    }
}
