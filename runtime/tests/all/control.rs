//! Stopping, stopping at once, letting go of a run, and changing its workers while it runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gegendruck::{
    BuildError, Call, Collect, Committed, Control, End, Event, Failure, Group, Grouping, Item,
    Options, Pipeline, Records, Retry, Run, Sink, SinkContext, SinkError, call,
};
use tokio::time::{Instant, sleep};

use crate::support::{Feed, Strict, finish};

const MS: Duration = Duration::from_millis(1);

/// Takes ten milliseconds a record; fails in passing where it is told to.
#[derive(Clone)]
struct Scorer {
    fails: fn(u64) -> bool,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

fn scorer(fails: fn(u64) -> bool) -> Scorer {
    Scorer { fails, running: Arc::default(), most: Arc::default() }
}

impl Call<u64> for Scorer {
    type Out = u64;
    async fn call(&self, record: &Item<u64>) -> Result<u64, Failure> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        sleep(10 * MS).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        if (self.fails)(record.value) { Err(Failure::transient("down")) } else { Ok(record.value) }
    }
}

fn start(feed: Feed, scorer: Scorer, workers: usize, sink: Strict<u64>) -> Run<Strict<u64>> {
    Pipeline::new("p")
        .source(feed)
        .stage("score", call(scorer).workers(workers).buffer(40).request(10))
        .sink("store", sink)
        .grouping(Grouping { records: Records(10), ..Grouping::default() })
        .start(Options { batch: Records(10), ..Options::default() })
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn stopped_run_settles_and_commits_what_was_handed_out() {
    let feed = Feed::of(1_000);
    let (seen, sink) = (feed.seen.clone(), Strict::new());
    let run = start(feed, scorer(|_| false), 4, sink.clone());
    seen.control.set(run.control()).ok();
    sleep(205 * MS).await;
    let handed_out = seen.handed_out().records;
    run.control().stop();
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Stopped), "{:?}", outcome.end);
    assert_eq!(seen.handed_out().records, handed_out, "nothing more was read");
    assert_eq!(sink.kept.values(), (0..handed_out).collect::<Vec<_>>());
    assert!(!sink.kept.completed());
    assert!((100..=140).contains(&handed_out), "{handed_out}");
}

#[tokio::test(start_paused = true)]
async fn run_stopped_at_once_leaves_whole_groups_from_the_beginning() {
    let feed = Feed::of(1_000);
    let (seen, sink) = (feed.seen.clone(), Strict::new());
    let run = start(feed, scorer(|_| false), 4, sink.clone());
    sleep(205 * MS).await;
    run.control().abort();
    let before = Instant::now();
    let outcome = finish(run, &seen).await;
    assert!(before.elapsed() < MS, "at once");
    assert!(matches!(outcome.end, End::Stopped), "{:?}", outcome.end);
    assert!(outcome.sink.is_none());
    let kept = sink.kept.values();
    assert_eq!(kept, (0..kept.len() as u64).collect::<Vec<_>>());
    assert!(kept.len().is_multiple_of(10) && kept.len() as u64 == outcome.tally.stored);
}

#[tokio::test(start_paused = true)]
async fn abort_after_a_stop_does_not_wait_for_what_is_in_flight() {
    let feed = Feed::of(1_000);
    let (seen, sink) = (feed.seen.clone(), Strict::taking(Duration::from_secs(60)));
    let run = start(feed, scorer(|_| false), 4, sink.clone());
    sleep(205 * MS).await;
    run.control().stop();
    sleep(50 * MS).await;
    run.control().abort();
    let before = Instant::now();
    let outcome = finish(run, &seen).await;
    assert!(before.elapsed() < MS, "at once, in the middle of a transaction");
    assert_eq!(outcome.tally.stored, sink.kept.values().len() as u64);
}

async fn stop_while_waiting_after_errors(fails: fn(u64) -> bool) {
    let feed = Feed::of(1_000);
    let (seen, sink) = (feed.seen.clone(), Strict::new());
    let retry = Retry { backoff: Duration::from_secs(30), ..Retry::default() };
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", call(scorer(fails)).workers(2).retry(retry))
        .sink("store", sink.clone())
        .grouping(Grouping { records: Records(10), ..Grouping::default() })
        .start(Options { batch: Records(10), ..Options::default() })
        .unwrap();
    sleep(Duration::from_secs(15)).await;
    run.control().stop();
    let before = Instant::now();
    let outcome = finish(run, &seen).await;
    assert!(before.elapsed() <= 10 * MS, "{:?}", before.elapsed());
    assert!(
        matches!(outcome.end, End::Stopped),
        "a missing record is no success: {:?}",
        outcome.end
    );
    let kept = sink.kept.values();
    assert_eq!(kept, (0..kept.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn stop_in_a_hold_ends_at_once() {
    stop_while_waiting_after_errors(|n| n >= 25).await;
}

#[tokio::test(start_paused = true)]
async fn stop_in_the_backoff_of_a_single_record_ends_at_once() {
    stop_while_waiting_after_errors(|n| n == 990).await;
    stop_while_waiting_after_errors(|n| n == 999).await;
}

#[tokio::test(start_paused = true)]
async fn dropped_run_goes_on_by_itself() {
    let feed = Feed::of(100);
    let sink = Strict::new();
    let run = start(feed, scorer(|_| false), 4, sink.clone());
    let control = run.control();
    drop(run);
    sleep(Duration::from_secs(10)).await;
    assert!(sink.kept.completed());
    assert_eq!(control.tally().stored, 100);
}

#[tokio::test(start_paused = true)]
async fn dropped_outcome_and_control_leave_the_run_alone() {
    let sink = Strict::new();
    let run = start(Feed::of(100), scorer(|_| false), 4, sink.clone());
    drop(run.control());
    assert!(tokio::time::timeout(50 * MS, run.outcome()).await.is_err());
    sleep(Duration::from_secs(10)).await;
    assert!(sink.kept.completed());
}

#[tokio::test(start_paused = true)]
async fn sink_can_end_the_run_after_a_commit() {
    struct Enough(Collect<u64>);
    impl Sink<u64> for Enough {
        async fn commit(
            &mut self,
            group: Group<u64>,
            context: &SinkContext,
        ) -> Result<Committed, SinkError> {
            let committed = self.0.commit(group, context).await?;
            let stop = (self.0.values().len() >= 50).then(|| "too many rejects".to_string());
            Ok(Committed { stop, ..committed })
        }
    }
    let feed = Feed::of(1_000);
    let (seen, kept) = (feed.seen.clone(), Collect::new());
    let run = Pipeline::new("p")
        .source(feed)
        .sink("store", Enough(kept.clone()))
        .grouping(Grouping { records: Records(10), ..Grouping::default() })
        .start(Options { batch: Records(10), ..Options::default() })
        .unwrap();
    let outcome = finish(run, &seen).await;
    let End::Ended(why) = &outcome.end else { panic!("{:?}", outcome.end) };
    assert_eq!(why, "too many rejects");
    assert_eq!((outcome.tally.stored, kept.values().len()), (50, 50));
}

#[tokio::test(start_paused = true)]
async fn worker_added_takes_its_share_and_worker_retired_takes_no_record_with_it() {
    let feed = Feed::of(2_000);
    let (seen, sink, scorer) = (feed.seen.clone(), Strict::new(), scorer(|_| false));
    let run = start(feed, scorer.clone(), 1, sink.clone());
    let control = run.control();
    let running = || scorer.running.load(Ordering::SeqCst);
    sleep(105 * MS).await;
    assert_eq!(running(), 1);
    control.workers("score", 6).await.unwrap();
    sleep(20 * MS).await;
    assert_eq!(running(), 6);
    control.workers("score", 2).await.unwrap();
    sleep(20 * MS).await;
    assert_eq!(running(), 2);
    assert_eq!(control.report().stage("score").unwrap().workers, 2);
    // Down and up again within one claim: those who were told to leave still do, and others come.
    control.workers("score", 1).await.unwrap();
    control.workers("score", 5).await.unwrap();
    sleep(30 * MS).await;
    assert_eq!(running(), 5);
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    assert_eq!(sink.kept.values(), (0..2_000).collect::<Vec<_>>());
    assert_eq!(outcome.report.stage("score").unwrap().workers, 5);
    assert_eq!(scorer.most.load(Ordering::SeqCst), 6);
}

#[tokio::test(start_paused = true)]
async fn worker_retired_in_the_last_call_leaves_its_retry_to_the_others() {
    // The input is over, nothing is parked, and the newest worker is in a call that will fail: the other must wait for it.
    #[derive(Clone)]
    struct LastFails(Arc<Mutex<u32>>);
    impl Call<u64> for LastFails {
        type Out = u64;
        async fn call(&self, record: &Item<u64>) -> Result<u64, Failure> {
            sleep(if record.value == 1 { 100 * MS } else { MS }).await;
            let mut times = self.0.lock().unwrap();
            *times += u32::from(record.value == 1);
            if record.value == 1 && *times == 1 {
                Err(Failure::transient("503"))
            } else {
                Ok(record.value)
            }
        }
    }
    let feed = Feed::of(2);
    let (seen, sink, times) = (feed.seen.clone(), Strict::new(), Arc::default());
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", call(LastFails(Arc::clone(&times))).workers(2))
        .sink("store", sink.clone())
        .start(Options::default())
        .unwrap();
    sleep(50 * MS).await;
    run.control().workers("score", 1).await.unwrap();
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    assert_eq!((sink.kept.values(), *times.lock().unwrap()), (vec![0, 1], 2));
}

#[tokio::test(start_paused = true)]
async fn workers_can_only_be_changed_to_what_can_work() {
    let run = start(Feed::of(100), scorer(|_| false), 2, Strict::new());
    let control: Control = run.control();
    let refused = |result: Result<(), BuildError>| result.unwrap_err().to_string();
    let words = "no stage is called \"scroe\"; this pipeline has read, score, store";
    assert_eq!(refused(control.workers("scroe", 2).await), words);
    let words = "score: workers is 0; it must be at least 1, or nothing would ever move";
    assert_eq!(refused(control.workers("score", 0).await), words);
    let words =
        "store: found 2 workers; a source or a sink has one, the stages between can have more";
    assert_eq!(refused(control.workers("store", 2).await), words);
    assert!(control.workers("read", 1).await.is_ok());
    assert_eq!(run.outcome().await.tally.stored, 100);
}

#[tokio::test(start_paused = true)]
async fn watchdog_says_who_waits_for_whom_when_nothing_moves() {
    struct Never;
    impl Call<u64> for Never {
        type Out = u64;
        async fn call(&self, _: &Item<u64>) -> Result<u64, Failure> {
            std::future::pending().await
        }
    }
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = said.clone();
    let options = Options {
        on_event: Arc::new(move |event| heard.lock().unwrap().push(event)),
        ..Options::default()
    };
    let run = Pipeline::new("p")
        .source(Feed::of(1_000))
        .map("same", |n| n)
        .stage("score", call(Never).buffer(100).request(10))
        .sink("store", Strict::new())
        .start(options)
        .unwrap();
    sleep(Duration::from_millis(10_300)).await;
    let Some(Event::Stalled(words)) = said.lock().unwrap().first().cloned() else {
        panic!("silent")
    };
    let expected = "read waits to be asked (for 10 s), same waits to be asked (for 10 s), \
                    score waits for an answer (for 10 s), store waits for input (for 10 s)";
    assert_eq!(words, expected);
    run.control().abort();
    assert!(matches!(run.outcome().await.end, End::Stopped));
}
