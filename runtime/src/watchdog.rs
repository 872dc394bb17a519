//! Says who waits for whom when nothing has moved for a while.

use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::report::{Report, StageReport};
use crate::{Amount, State};

/// How often it looks.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// How long nothing may move before it speaks, and between two times that it does.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Watchdog {
    moved: Moment,
    settled: Vec<Amount>,
}

impl Watchdog {
    pub(crate) fn new(clock: Clock) -> Watchdog {
        Watchdog { moved: clock.now(), settled: Vec::new() }
    }

    /// The words to say, if nothing was settled on any link for a while.
    pub(crate) fn look(&mut self, report: &Report, clock: Clock) -> Option<String> {
        let settled: Vec<_> = report.stages.iter().map(|stage| stage.settled).collect();
        let now = clock.now();
        // What waits for tokens of a rate will have them.
        let limited = report.stages.iter().flat_map(|stage| &stage.now);
        let limited = limited.into_iter().any(|(state, _)| *state == State::Limited);
        if settled != self.settled || limited {
            self.settled = settled;
            self.moved = now;
            return None;
        }
        if now.since(self.moved) < PATIENCE {
            return None;
        }
        self.moved = now;
        Some(who_waits(&report.stages))
    }
}

/// One phrase a stage: what most of its workers are in, and since when.
pub(crate) fn who_waits(stages: &[StageReport]) -> String {
    let phrase = |stage: &StageReport| {
        let Some((state, open)) = stage.now.iter().copied().max_by_key(|(_, open)| *open) else {
            return format!("{} has ended", stage.name);
        };
        let why = match state {
            State::NoInput => "waits for input",
            State::Backpressured => "waits to be asked",
            State::Reordering => "waits for an earlier record",
            State::InCall => "waits for an answer",
            other => other.name(),
        };
        format!("{} {why} (for {:.0} s)", stage.name, open.as_secs_f64())
    };
    stages.iter().map(phrase).collect::<Vec<_>>().join(", ")
}
