//! What can be sent to another task, and shared.

use gegendruck::{
    Batch, BuildError, Collect, Control, EndStream, Event, Failure, Item, Options, Outcome, Reject,
    Report, Run, RunError, Runnable, StreamSource,
};

fn send<T: Send>() {}
fn send_and_sync<T: Send + Sync>() {}

#[test]
fn public_types_are_send_and_those_that_are_looked_at_are_sync() {
    send::<Runnable<Collect<u64>>>();
    send::<Run<Collect<u64>>>();
    send::<Outcome<Collect<u64>>>();
    send::<EndStream<u64>>();
    send::<StreamSource<futures::stream::Empty<u64>>>();
    send_and_sync::<Control>();
    send_and_sync::<Options>();
    send_and_sync::<Batch<u64>>();
    send_and_sync::<Item<u64>>();
    send_and_sync::<Reject>();
    send_and_sync::<Report>();
    send_and_sync::<Event>();
    send_and_sync::<Failure>();
    send_and_sync::<(BuildError, RunError)>();
}
