//! Time, taken in one place so that a test can hold it still.

use std::time::Duration;

use tokio::time::Instant;

/// A clock that begins with the run. It is tokio's clock: a paused tokio runtime pauses it too.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

/// A point in time of one run: nanoseconds since its [`Clock`] began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Now.
    pub fn now(&self) -> Moment {
        Moment(self.start.elapsed().as_nanos() as u64)
    }

    /// The time since it began.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The tokio instant of a moment, for timers.
    pub fn instant(&self, moment: Moment) -> Instant {
        self.start + Duration::from_nanos(moment.0)
    }
}

impl Moment {
    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn nanos_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `after` later.
    pub fn plus(self, after: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The moment `before` earlier, or the clock's beginning.
    pub fn minus(self, before: Duration) -> Moment {
        Moment(self.0.saturating_sub(u64::try_from(before.as_nanos()).unwrap_or(u64::MAX)))
    }
}
