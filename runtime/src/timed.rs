//! A future whose polls are busy time and whose waits are calls.

use std::future::Future;
use std::pin::pin;

use crate::meter::{Meter, State};

/// Runs `future` with the meter on [`State::Busy`] inside its polls and on [`State::InCall`] between them.
///
/// # Cancel safety
/// That of `future`; the meter stays in the state it was in.
pub(crate) async fn timed<F: Future>(meter: &Meter, future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        meter.enter(State::Busy);
        let poll = future.as_mut().poll(cx);
        if poll.is_pending() {
            meter.enter(State::InCall);
        }
        poll
    })
    .await
}
