//! Demand: nothing is handed out that was not asked for, anywhere in the chain, in records and in bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use gegendruck::{
    Amount, Buffer, Bytes, Call, Collect, End, Failure, Grouping, Item, Options, Pipeline, Reason,
    Records, StreamSource, call, call_fn, hand_on, map, try_map,
};
use proptest::prelude::*;
use tokio::time::sleep;

use crate::support::{Feed, Strict, finish};

/// A scorer that counts what it was given, and takes as long as it is told.
#[derive(Clone, Default)]
struct Scorer {
    scored: Arc<AtomicU64>,
    takes: Duration,
}

impl Call<u64> for Scorer {
    type Out = u64;
    async fn call(&self, record: &Item<u64>) -> Result<u64, Failure> {
        sleep(self.takes).await;
        self.scored.fetch_add(1, Ordering::SeqCst);
        Ok(record.value)
    }
}

/// A grouping that closes at every checkpoint.
fn at_once() -> Grouping {
    Grouping { records: Records(1), ..Grouping::default() }
}

#[tokio::test(start_paused = true)]
async fn source_reads_exactly_what_was_asked_for() {
    let feed = Feed::of(1_000);
    let seen = feed.seen.clone();
    let score = call(Scorer { takes: Duration::from_millis(1), ..Scorer::default() });
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", score.buffer(200).request(50))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    let first_and_then_requests: Vec<u64> =
        std::iter::once(200).chain(std::iter::repeat_n(50, 16)).collect();
    assert_eq!(seen.given_records(), first_and_then_requests);
    assert_eq!(outcome.report.stage("score").unwrap().most.records, 200);
}

#[tokio::test(start_paused = true)]
async fn sink_that_asks_for_three_records_is_sent_no_more() {
    let feed = Feed::of(100);
    let seen = feed.seen.clone();
    let options = Options {
        buffer: [("store".to_string(), Buffer::Records(Records(3)))].into(),
        request: [("store".to_string(), Records(3))].into(),
        ..Options::default()
    };
    let run = Pipeline::new("p")
        .source(feed)
        .map("same", |n| n)
        .sink("store", Strict::taking(Duration::from_secs(1)))
        .grouping(Grouping { records: Records(3), ..Grouping::default() })
        .start(options)
        .unwrap();
    let control = run.control();
    seen.control.set(control.clone()).ok();
    sleep(Duration::from_millis(2_999)).await;
    assert_eq!(seen.given_records(), [3], "the first three are not committed yet");
    sleep(Duration::from_millis(2)).await;
    assert_eq!(seen.given_records(), [3, 3], "they are now");
    let outcome = finish(run, &seen).await;
    assert_eq!(outcome.tally.stored, 100);
    assert_eq!(outcome.report.stage("store").unwrap().most.records, 3);
}

#[tokio::test(start_paused = true)]
async fn record_over_the_byte_limit_is_admitted_alone() {
    let mut feed = Feed::of(9);
    feed.len = |n| if n % 3 == 1 { 5_000 } else { 10 };
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("a", map(|n| n).buffer_bytes(Bytes(100)))
        .stage("b", map(|n| n).buffer_bytes(Bytes(60)))
        .sink("store", Strict::<u64>::new())
        .start(Options::default())
        .unwrap();
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    assert_eq!(outcome.tally.stored, 9);
    let alone = Amount::new(Records(1), Bytes(5_000));
    let given = seen.given.lock().unwrap().clone();
    assert_eq!(given.iter().filter(|amount| **amount == alone).count(), 3, "{given:?}");
    assert!(given.iter().all(|amount| *amount == alone || amount.bytes <= 60), "{given:?}");
}

#[tokio::test(start_paused = true)]
async fn rejected_and_filtered_records_keep_their_place_until_their_batch_is_handed_on() {
    let feed = Feed::of(400);
    let seen = feed.seen.clone();
    let (entered, leave) = (Arc::new(AtomicU64::new(0)), Duration::from_secs(1));
    let counted = entered.clone();
    let options = Options {
        buffer: [("store".to_string(), Buffer::Records(Records(100)))].into(),
        ..Options::default()
    };
    let run = Pipeline::new("p")
        .source(feed)
        .filter("odd", "odd", |n| n % 2 == 0)
        .try_map("fours", move |n| {
            counted.fetch_add(1, Ordering::SeqCst);
            if n % 4 == 0 { Err(Reason::record("four")) } else { Ok(*n) }
        })
        .sink("store", Strict::taking(leave))
        .grouping(Grouping { records: Records(100), ..Grouping::default() })
        .start(options)
        .unwrap();
    sleep(Duration::from_secs(99)).await;
    assert_eq!(seen.handed_out().records, 100, "75 of them have their verdict, none is committed");
    assert_eq!(entered.load(Ordering::SeqCst), 50);
    let outcome = finish(run, &seen).await;
    let tally = outcome.tally;
    assert_eq!((tally.stored, tally.rejected, tally.filtered), (100, 100, 200));
}

#[tokio::test(start_paused = true)]
async fn buffer_given_as_a_time_follows_the_measured_rate() {
    let feed = Feed::of(4_000);
    let seen = feed.seen.clone();
    let scorer = Scorer { takes: Duration::from_millis(10), ..Scorer::default() };
    let score = call(scorer).request(10).buffer_time(Duration::from_secs(1), 2_000);
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", score)
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let control = run.control();
    sleep(Duration::from_secs(25)).await;
    let stage = control.report().stage("score").unwrap().clone();
    assert!((99..=101).contains(&stage.buffer.records), "100/s for 1 s: {:?}", stage.buffer);
    assert!(stage.held.records <= 101, "what was held before the rate was known is gone");
    assert_eq!(finish(run, &seen).await.tally.stored, 4_000);
}

#[tokio::test(start_paused = true)]
async fn narrow_buffer_far_down_does_not_make_the_stages_before_it_run_dry() {
    // `first` asks in 500s, but the link behind it grants 10 at a time: those must reach the source at once.
    let feed = Feed::of(2_000);
    let seen = feed.seen.clone();
    let slow = |ms| Scorer { takes: Duration::from_millis(ms), ..Scorer::default() };
    let run = Pipeline::new("p")
        .source(feed)
        .stage("first", call(slow(4)).workers(4).buffer(2_000).request(500))
        .stage("second", call(slow(2)).workers(2).buffer(100).request(10))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let outcome = finish(run, &seen).await;
    let wall = outcome.report.wall.as_secs_f64();
    assert!(wall < 2.1, "2,000 records at 1 ms each took {wall} s");
}

#[derive(Clone, Debug)]
struct Widths {
    records: u64,
    workers: usize,
    buffers: [u64; 3],
    requests: [u64; 3],
    bytes: [u64; 3],
    batch: u64,
    longest: u64,
    ordered: bool,
    takes: u64,
}

fn widths() -> impl Strategy<Value = Widths> {
    let buffer = || 1..60_u64;
    let bytes = || 20..2_000_u64;
    (
        (1..300_u64, 1..6_usize, 1..40_u64, 0..4_u64, any::<bool>(), 0..3_u64),
        [buffer(), buffer(), buffer()],
        [buffer(), buffer(), buffer()],
        [bytes(), bytes(), bytes()],
    )
        .prop_map(
            |((records, workers, batch, longest, ordered, takes), buffers, requests, bytes)| {
                let requests = std::array::from_fn(|n| requests[n].min(buffers[n]));
                Widths {
                    records,
                    workers,
                    buffers,
                    requests,
                    bytes,
                    batch,
                    longest,
                    ordered,
                    takes,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The feed itself asserts, at every hand-over, that no link's buffer is exceeded.
    #[test]
    fn never_more_in_flight_behind_any_link_than_its_buffer(widths in widths()) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(any_widths(widths));
    }
}

async fn any_widths(widths: Widths) {
    let mut feed = Feed::of(widths.records);
    // Mostly short records, now and then one that is over every byte limit.
    feed.len = match widths.longest {
        0 => |n| 1 + n % 13,
        1 => |n| if n % 17 == 3 { 900 } else { 5 },
        2 => |n| if n % 5 == 0 { 2_500 } else { 19 },
        _ => |_| 10,
    };
    feed.blank_every = 4;
    feed.refuse_every = 11;
    let seen = feed.seen.clone();
    let sink = Strict::taking(Duration::from_micros(100 * widths.takes));
    let kept = sink.kept.clone();
    let takes = widths.takes;
    let workers = widths.workers.min(widths.buffers[1] as usize);
    let score = call_fn(move |record: &Item<u64>| {
        let (takes, value) =
            (Duration::from_millis((record.value * 7) % (takes + 1)), record.value);
        async move {
            sleep(takes).await;
            Ok::<_, Failure>(value)
        }
        .boxed()
    })
    .workers(workers);
    let score = if widths.ordered { score.ordered(workers + 1) } else { score };
    let options = Options { batch: Records(widths.batch), ..Options::default() };
    let store = Buffer::Records(Records(widths.buffers[2]));
    let run = Pipeline::new("p")
        .source(feed)
        .stage(
            "check",
            try_map(|n: &u64| if n % 7 == 3 { Err(Reason::record("seven")) } else { Ok(*n) })
                .buffer(widths.buffers[0])
                .request(widths.requests[0])
                .buffer_bytes(Bytes(widths.bytes[0])),
        )
        .filter("fives", "five", |n| n % 5 != 1)
        .stage(
            "score",
            score
                .buffer(widths.buffers[1])
                .request(widths.requests[1])
                .buffer_bytes(Bytes(widths.bytes[1])),
        )
        .flat_map("twice", 2, |n| (0..1 + n % 2).map(move |_| n))
        .sink("store", sink)
        .grouping(Grouping { bytes: Bytes(widths.bytes[2]), ..at_once() })
        .start(Options {
            buffer: [("store".into(), store)].into(),
            request: [("store".into(), Records(widths.requests[2]))].into(),
            ..options
        })
        .unwrap();
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    let expected: Vec<u64> = (0..widths.records)
        .filter(|n| n % 11 != 0 && n % 7 != 3 && n % 5 != 1)
        .flat_map(|n| (0..1 + n % 2).map(move |_| n))
        .collect();
    assert_eq!(kept.values(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_only_hands_on_buffers_and_changes_nothing() {
    let sink = Collect::new();
    let outcome = Pipeline::new("numbers")
        .source(StreamSource::new(futures::stream::iter(0..1_000)))
        .stage("wait", hand_on().buffer(100).request(10))
        .filter("even", "odd", |n| n % 2 == 0)
        .sink("collect", sink.clone())
        .run(Options::default())
        .await
        .expect("the settings work together");
    assert_eq!(sink.values(), (0..1_000).step_by(2).collect::<Vec<_>>());
    let wait = outcome.report.stage("wait").expect("it has a report");
    assert!(wait.most.records <= 100, "{:?}", wait.most);
    assert_eq!((outcome.tally.stored, outcome.tally.filtered), (500, 500));
}

#[tokio::test(start_paused = true)]
async fn claims_that_lie_across_hand_overs_leave_the_sink_its_checkpoints() {
    // Hand-overs of 5 come out of `first` one record at a time; `second` claims them by twos and threes, so that most ends of
    // hand-overs lie within a claim. The sink has room for 40: without checkpoints in between it could never commit.
    for claim in [2, 3, 7] {
        let mut feed = Feed::of(1_000);
        feed.most = 5;
        let (seen, sink) = (feed.seen.clone(), Strict::new());
        let first = Scorer::default();
        let second = Scorer { takes: Duration::from_millis(1), ..Scorer::default() };
        let run = Pipeline::new("p")
            .source(feed)
            .stage("first", call(first).buffer(30).request(5))
            .stage("second", call(second).claim(claim).buffer(30).request(5))
            .sink("store", sink.clone())
            .grouping(Grouping { records: Records(10), ..Grouping::default() })
            .start(Options {
                buffer: [("store".into(), Buffer::Records(Records(40)))].into(),
                ..Options::default()
            })
            .unwrap();
        let outcome = finish(run, &seen).await;
        assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
        let groups: Vec<_> = sink.groups.lock().unwrap().iter().map(|g| g.records).collect();
        assert!(groups.iter().all(|records| *records <= 10), "{groups:?}");
    }
}
