//! Streams at both ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use gegendruck::{Collect, End, Ended, Options, Pipeline, Position, Reason, StreamSource};
use tokio::time::sleep;

use crate::support::check;

#[tokio::test(start_paused = true)]
async fn any_stream_is_a_source_and_what_is_ready_travels_together() {
    let ticks = stream::unfold(0_u64, |n| async move {
        if n % 4 == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        (n < 100).then_some((n, n + 1))
    });
    let sink = Collect::new();
    let run = Pipeline::new("p")
        .source(StreamSource::new(Box::pin(ticks)))
        .map("twice", |n| 2 * n)
        .sink("collect", sink.clone())
        .start(Options::default())
        .unwrap();
    let outcome = run.outcome().await;
    check(&outcome);
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    assert_eq!(sink.values(), (0..100).map(|n| 2 * n).collect::<Vec<_>>());
    assert_eq!(outcome.report.stage("read").unwrap().claims, 25, "four at a time");
}

#[tokio::test]
async fn stream_is_not_polled_again_behind_its_end() {
    // `unfold` panics then; its end is seen while the values before it are taken, and once more when more is asked for.
    let numbers = stream::unfold(0_u64, |n| async move { (n < 10).then_some((n, n + 1)) });
    let sink = Collect::new();
    let run = Pipeline::new("p")
        .source(StreamSource::new(Box::pin(numbers)))
        .sink("collect", sink.clone())
        .start(Options::default())
        .unwrap();
    let outcome = run.outcome().await;
    check(&outcome);
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    assert_eq!(sink.values().len(), 10);
}

#[tokio::test]
async fn stream_taken_up_again_is_numbered_from_where_it_was() {
    let sink = Collect::new();
    let at = Position { input: 0, byte: 40, record: 41, line: 41 };
    let source = StreamSource::starting_at(stream::iter(["a", "b"]), at);
    let run = Pipeline::new("p").source(source).sink("collect", sink.clone());
    run.run(Options::default()).await.unwrap();
    assert_eq!(sink.items()[1].at, Position { input: 0, byte: 41, record: 42, line: 42 });
}

#[tokio::test(start_paused = true)]
async fn end_as_a_stream_takes_only_what_is_polled_and_the_source_reads_no_further_than_the_buffer()
{
    for buffer in [1, 3, 50] {
        let read = Arc::new(AtomicU64::new(0));
        let counted = read.clone();
        let numbers = stream::iter(0..100_u64).inspect(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let mut end = Pipeline::new("p")
            .source(StreamSource::new(numbers))
            .try_map("odd", |n| if n % 2 == 1 { Err(Reason::record("odd")) } else { Ok(*n) })
            .into_stream(buffer, Options::default())
            .unwrap();
        for taken in 0..100 {
            sleep(Duration::from_secs(2)).await;
            let read = read.load(Ordering::SeqCst);
            assert!(read <= taken + buffer, "buffer {buffer}: {read} read, {taken} taken");
            match end.next().await.expect("there are 100") {
                Ended::Value(item) => assert_eq!((item.value, taken % 2), (taken, 0)),
                Ended::Rejected(reject) => {
                    assert_eq!((reject.at.record, taken % 2), (taken + 1, 1))
                }
            }
        }
        assert!(end.next().await.is_none());
        let outcome = end.into_run().unwrap().outcome().await;
        check(&outcome);
        assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_at_the_end_ends_the_run() {
    let mut end = Pipeline::new("p")
        .source(StreamSource::new(stream::iter(0..)))
        .map("same", |n: u64| n)
        .into_stream(10, Options::default())
        .unwrap();
    let control = end.run().unwrap().control();
    assert!(end.next().await.is_some());
    drop(end);
    sleep(Duration::from_secs(5)).await;
    let now: Vec<_> = control.report().stages.into_iter().flat_map(|stage| stage.now).collect();
    assert!(now.is_empty(), "{now:?}");
}
