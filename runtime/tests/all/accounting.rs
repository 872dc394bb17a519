//! Where the time goes: scripted runs, in which each state must come out as the script itself measured it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use gegendruck::{
    Call, Collect, Committed, End, Failure, Group, Grouping, Item, Limit, Options, Outcome,
    Pipeline, Records, Report, Retry, Sink, SinkContext, SinkError, State, StreamSource, call,
    call_fn,
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Feed, Strict, check, finish, near};

const MS: Duration = Duration::from_millis(1);

/// Asserts the time in each state, in milliseconds; states that are not named must be empty.
#[track_caller]
fn spent(report: &Report, stage: &str, expected: &[(State, u64)]) {
    let times = report.stage(stage).expect("the stage is there").times;
    let found: Vec<_> = State::ALL
        .into_iter()
        .map(|state| (state, times.of(state).as_millis() as u64))
        .filter(|(_, millis)| *millis > 0)
        .collect();
    assert_eq!(found, expected, "{stage}");
}

/// Takes so long for the record with this number.
struct Takes(fn(u64) -> Duration);

impl Call<u64> for Takes {
    type Out = u64;
    async fn call(&self, record: &Item<u64>) -> Result<u64, Failure> {
        sleep((self.0)(record.value)).await;
        Ok(record.value)
    }
}

fn tens() -> Grouping {
    Grouping { records: Records(10), ..Grouping::default() }
}

#[tokio::test(start_paused = true)]
async fn reading_calling_and_committing_in_turn() {
    // Ten requests of ten: 50 ms to read, 20 ms to score, and only then the next one; committed meanwhile, 10 ms each.
    let mut feed = Feed::of(100);
    feed.takes = 50 * MS;
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", call(Takes(|_| 2 * MS)).buffer(10).request(10))
        .sink("store", Strict::taking(MS))
        .grouping(tens())
        .start(Options::default())
        .unwrap();
    let report = finish(run, &seen).await.report;
    // The last request finds the end, and takes as long as any other.
    spent(&report, "read", &[(State::InCall, 11 * 50), (State::Backpressured, 10 * 20)]);
    spent(&report, "score", &[(State::InCall, 10 * 20), (State::NoInput, 11 * 50)]);
    spent(&report, "store", &[(State::NoInput, 750 - 10 * 10), (State::Committing, 10 * 10)]);
}

#[tokio::test(start_paused = true)]
async fn stage_before_a_slow_one_is_backpressured() {
    let feed = Feed::of(100);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .map("check", |n| n)
        .stage("score", call(Takes(|_| 10 * MS)).buffer(10).request(5))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let report = finish(run, &seen).await.report;
    // Ten are asked for at once, then five for every five done; what is asked for after 95 of them finds the end.
    spent(&report, "read", &[(State::Backpressured, 950)]);
    spent(&report, "check", &[(State::Backpressured, 950)]);
    spent(&report, "score", &[(State::InCall, 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn waits_for_the_rate_are_limited() {
    let feed = Feed::of(50);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", call(Takes(|_| 2 * MS)).rate(100.0))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let report = finish(run, &seen).await.report;
    spent(&report, "score", &[(State::InCall, 50 * 2), (State::Limited, 49 * 8)]);
    assert_eq!(report.verdict().limit, Limit::Rate);
}

#[tokio::test(start_paused = true)]
async fn rate_is_kept_although_timers_are_coarse() {
    let feed = Feed::of(5_000);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", call(Takes(|_| Duration::ZERO)).rate(2_500.0))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let report = finish(run, &seen).await.report;
    near(report.wall.as_secs_f64(), 2.0, 1.0);
}

#[tokio::test(start_paused = true)]
async fn waits_after_errors_are_paused() {
    let report = one_record_fails_twice(1).await;
    spent(&report, "score", &[(State::InCall, 7 * 2), (State::Paused, 100 + 200)]);
    assert_eq!(report.verdict().limit, Limit::Pause);
}

#[tokio::test(start_paused = true)]
async fn no_more_workers_are_paused_than_there_are_records_to_try_again() {
    let report = one_record_fails_twice(4).await;
    let (in_call, paused, wall) = (7 * 2, 100 + 200, 3 * 2 + 2 + 100 + 200);
    let no_input = 4 * wall - in_call - paused;
    let expected = [(State::InCall, in_call), (State::NoInput, no_input), (State::Paused, paused)];
    spent(&report, "score", &expected);
}

/// Five records of 2 ms each; the last fails at first, and is tried again after 100 ms and after 200 ms.
async fn one_record_fails_twice(workers: usize) -> Report {
    let failed = Arc::new(AtomicU64::new(0));
    let score = call_fn(move |record: &Item<u64>| {
        let fails = record.value == 4 && failed.fetch_add(1, Ordering::SeqCst) < 2;
        let value = record.value;
        async move {
            sleep(2 * MS).await;
            if fails { Err(Failure::transient("503")) } else { Ok(value) }
        }
        .boxed()
    });
    let feed = Feed::of(5);
    let seen = feed.seen.clone();
    let retry = Retry { backoff: 100 * MS, ..Retry::default() };
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", score.workers(workers).retry(retry))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    finish(run, &seen).await.report
}

#[tokio::test(start_paused = true)]
async fn waits_for_an_earlier_record_are_reordering() {
    // The first of 4 takes 100 ms, the others 10; two may be running or wait, so one worker waits for 90 ms.
    let feed = Feed::of(4);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage(
            "score",
            call(Takes(|n| if n == 0 { 100 * MS } else { 10 * MS })).workers(2).ordered(2),
        )
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let report = finish(run, &seen).await.report;
    spent(&report, "score", &[(State::InCall, 100 + 3 * 10), (State::Reordering, 90)]);
}

#[tokio::test(start_paused = true)]
async fn sink_that_waits_after_an_error_of_the_target_is_paused() {
    struct Retries(Collect<u64>);
    impl Sink<u64> for Retries {
        async fn commit(
            &mut self,
            group: Group<u64>,
            context: &SinkContext,
        ) -> Result<Committed, SinkError> {
            sleep(20 * MS).await;
            context.paused(sleep(30 * MS)).await;
            self.0.commit(group, context).await
        }
    }
    let feed = Feed::of(100);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .sink("store", Retries(Collect::new()))
        .grouping(tens())
        .start(Options { batch: Records(10), ..Options::default() })
        .unwrap();
    let report = finish(run, &seen).await.report;
    spent(&report, "store", &[(State::Paused, 300), (State::Committing, 200)]);
    assert_eq!(
        report.stage("store").unwrap().p50.as_millis(),
        20,
        "of a transaction, without the pause"
    );
}

#[tokio::test(start_paused = true)]
async fn open_stall_shows_while_it_lasts() {
    let mut feed = Feed::of(2_000);
    feed.takes = MS;
    let seen = feed.seen.clone();
    let hour = Duration::from_secs(3_600);
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", call(Takes(|_| MS)).workers(2).buffer(100).request(50))
        .sink("store", Strict::taking(hour))
        .grouping(tens())
        .start(Options {
            buffer: [("store".into(), gegendruck::Buffer::Records(Records(100)))].into(),
            batch: Records(10),
            ..Options::default()
        })
        .unwrap();
    let control = run.control();
    seen.control.set(control.clone()).ok();
    sleep(10_000 * MS).await;
    let report = control.report();
    let store = report.stage("store").unwrap();
    // The first ten were there after 1 ms to read them and 5 rounds of two calls.
    assert_eq!(store.now, [(State::Committing, 9_994 * MS)]);
    assert_eq!(store.times.of(State::Committing), 9_994 * MS);
    let score = report.stage("score").unwrap();
    assert!(score.now.iter().all(|(state, _)| *state == State::Backpressured), "{:?}", score.now);
    assert!(score.times.share(State::Backpressured) > 0.99);
    assert_eq!(score.oldest, None, "all that may be there was claimed");
    assert_eq!(store.oldest.unwrap().as_secs(), 9);
    let lately = control.report().since(&report);
    assert_eq!((lately.wall, lately.verdict().limit), (Duration::ZERO, Limit::NotEnoughData));
    sleep(10_000 * MS).await;
    let lately = control.report().since(&report);
    assert_eq!(lately.stage("store").unwrap().times.share(State::Committing), 1.0);
    control.abort();
    check(&run.outcome().await);
}

#[tokio::test(start_paused = true)]
async fn c35_slow_consumer_starves_no_call_and_is_named_although_a_stage_was_done_early() {
    // 12 records, 50 ms each, four at a time, a writer that needs 300 ms a record, a client that gives up after 100 ms.
    let late = Arc::new(AtomicU64::new(0));
    let timeouts = late.clone();
    let score = call_fn(move |record: &Item<u64>| {
        let (value, timeouts) = (record.value, timeouts.clone());
        async move {
            if timeout(100 * MS, sleep(50 * MS)).await.is_err() {
                timeouts.fetch_add(1, Ordering::SeqCst);
            }
            Ok(value)
        }
        .boxed()
    });
    let run = Pipeline::new("c35")
        .source(StreamSource::new(futures::stream::iter(0..12)))
        .stage("score", score.workers(4))
        .sink("store", Strict::taking(300 * MS))
        .grouping(Grouping { records: Records(1), ..Grouping::default() })
        .start(Options { batch: Records(1), ..Options::default() })
        .unwrap();
    let outcome = run.outcome().await;
    check(&outcome);
    assert!(matches!(outcome.end, End::Complete));
    assert_eq!(late.load(Ordering::SeqCst), 0, "no client timed out");
    assert_eq!(outcome.report.wall, 50 * MS + 12 * 300 * MS);
    let score = outcome.report.stage("score").unwrap();
    assert!(
        (50..=60).contains(&score.p50.as_millis()) && (50..=60).contains(&score.p99.as_millis())
    );
    let verdict = outcome.report.verdict();
    assert_eq!((verdict.stage.as_deref(), verdict.limit), (Some("store"), Limit::Commit));
    assert!(verdict.words.starts_with("store, target-bound: "), "{}", verdict.words);
}

#[tokio::test(start_paused = true)]
async fn service_time_is_that_of_the_records_asked_about_not_of_those_that_ended_before() {
    let feed = Feed::of(200);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .filter("every_tenth", "other", |n| n % 10 == 0)
        .stage("score", call(Takes(|_| 50 * MS)))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let report = finish(run, &seen).await.report;
    let score = report.stage("score").unwrap();
    assert_eq!((score.p50.as_millis(), score.records, score.claims), (50, 200, 20));
}

/// Keeps a core busy, and says for how long it did.
fn spin(at_least: Duration) -> Duration {
    let start = Instant::now();
    while start.elapsed() < at_least {
        std::hint::spin_loop();
    }
    start.elapsed()
}

#[tokio::test]
async fn work_is_busy_and_answers_from_outside_are_in_call() {
    // On a real clock a thread may lose its core between the script's look at the clock and the meter's; a fault would show in
    // every try.
    let mut tries = Vec::new();
    while tries.len() < 10 {
        let off = farthest_off().await;
        if off <= 2.0 {
            return;
        }
        tries.push(off);
    }
    panic!("percent off: {tries:?}");
}

/// By how many percent the state that is farthest off differs from what the script measured.
async fn farthest_off() -> f64 {
    let (worked, waited) =
        (Arc::new(Mutex::new(Duration::ZERO)), Arc::new(Mutex::new(Duration::ZERO)));
    let (mapped, work, wait) =
        (Arc::new(Mutex::new(Duration::ZERO)), worked.clone(), waited.clone());
    let map = mapped.clone();
    let score = call_fn(move |record: &Item<u64>| {
        let (value, work, wait) = (record.value, work.clone(), wait.clone());
        async move {
            let start = Instant::now();
            spin(2 * MS);
            let answer = tokio::task::spawn_blocking(|| spin(3 * MS));
            let asked = Instant::now();
            answer.await.unwrap();
            let answered = Instant::now();
            *work.lock().unwrap() += asked - start;
            *wait.lock().unwrap() += answered - asked;
            Ok(value)
        }
        .boxed()
    });
    let feed = Feed::of(60);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .map("check", move |n| {
            *map.lock().unwrap() += spin(MS);
            n
        })
        .stage("score", score)
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let outcome: Outcome<_> = finish(run, &seen).await;
    let spent = |stage, state| outcome.report.stage(stage).unwrap().times.of(state).as_secs_f64();
    [
        ("check", State::Busy, mapped),
        ("score", State::Busy, worked),
        ("score", State::InCall, waited),
    ]
    .into_iter()
    .map(|(stage, state, measured)| {
        let expected = measured.lock().unwrap().as_secs_f64();
        100.0 * (spent(stage, state) - expected).abs() / expected
    })
    .fold(0.0, f64::max)
}
