//! Signals: SIGTERM, SIGINT and SIGHUP stop, SIGUSR1 asks for the report.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// To stop: how often that was asked. From the second time on, at once.
    Stop(u32),
    /// To print the stall report.
    Report,
}

/// Signals that came since this was cloned from the first one.
#[derive(Clone)]
pub struct Signals {
    stops: watch::Receiver<u32>,
    reports: watch::Receiver<u32>,
}

impl Signals {
    /// Catches signals from now on. What came before was not for us.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn listen() -> io::Result<Signals> {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let (stop, stops) = watch::channel(0);
        for kind in kinds {
            count(kind, stop.clone())?;
        }
        let (report, reports) = watch::channel(0);
        count(SignalKind::user_defined1(), report)?;
        Ok(Signals { stops, reports })
    }

    /// Returns when somebody has asked to stop.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub async fn stop(&mut self) {
        if self.stops.wait_for(|stops| *stops > 0).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The next signal. One that came while nobody waited is not lost.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            biased;
            Ok(()) = self.stops.changed() => Signal::Stop(*self.stops.borrow_and_update()),
            Ok(()) = self.reports.changed() => Signal::Report,
            else => std::future::pending().await,
        }
    }
}

fn count(kind: SignalKind, to: watch::Sender<u32>) -> io::Result<()> {
    let mut signals = signal(kind)?;
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            to.send_modify(|count| *count += 1);
        }
    });
    Ok(())
}
