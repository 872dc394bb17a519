//! The story: thousands of records read at once, a service that takes two milliseconds for one, and a report that is true.

use std::sync::Mutex;
use std::time::Duration;

use gegendruck::{
    Buffer, Call, End, Failure, Item, Limit, Options, Outcome, Pipeline, Records, State, Verdict,
    call,
};
use tokio::time::{Instant, sleep_until};

use crate::support::{Feed, Strict, finish, near};

const RECORDS: u64 = 20_000;
const MS: Duration = Duration::from_millis(1);

/// Takes two milliseconds a record and worker, on average and whatever the timer's grain: a call is due two milliseconds
/// after the last one of the same worker was, or after it was claimed, less the grain.
#[derive(Default)]
struct Scorer {
    free: Mutex<Vec<Instant>>,
}

impl Call<u64> for Scorer {
    type Out = u64;
    async fn call(&self, record: &Item<u64>) -> Result<u64, Failure> {
        let claimed = Instant::now() - MS;
        let last = self.free.lock().unwrap().pop().unwrap_or(claimed);
        let due = last.max(claimed) + 2 * MS;
        sleep_until(due).await;
        self.free.lock().unwrap().push(due);
        Ok(record.value)
    }
}

struct Story {
    workers: usize,
    buffer: u64,
    /// How long the source takes for a request.
    reading: Duration,
    /// How long the sink takes for a record.
    storing: Duration,
}

impl Default for Story {
    fn default() -> Story {
        Story { workers: 4, buffer: 1_000, reading: Duration::ZERO, storing: Duration::ZERO }
    }
}

async fn tell(story: Story) -> Outcome<Strict<u64>> {
    let mut feed = Feed::of(RECORDS);
    feed.takes = story.reading;
    let seen = feed.seen.clone();
    let score = call(Scorer::default()).workers(story.workers).buffer(story.buffer).request(100);
    let run = Pipeline::new("claims")
        .source(feed)
        .map("validate", |n| n)
        .stage("score", score)
        .sink("store", Strict::taking(story.storing))
        .start(Options::default())
        .unwrap();
    let outcome = finish(run, &seen).await;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    assert_eq!(outcome.tally.stored, RECORDS);
    outcome
}

#[tokio::test(start_paused = true)]
async fn four_workers_take_a_quarter_of_the_time_and_the_report_foresees_it() {
    let mut foreseen: Option<f64> = None;
    for workers in [1, 2, 4, 8] {
        let outcome = tell(Story { workers, ..Story::default() }).await;
        let report = &outcome.report;
        near(report.wall.as_secs_f64(), RECORDS as f64 * 0.002 / workers as f64, 2.0);
        let verdict = report.verdict();
        assert_eq!((verdict.stage.as_deref(), verdict.limit), (Some("score"), Limit::Concurrency));
        assert!(verdict.margin > 0.9, "{}", verdict.margin);
        let does = RECORDS as f64 / report.wall.as_secs_f64();
        if let Some(foreseen) = foreseen {
            near(foreseen, does, 5.0);
        }
        foreseen = Verdict::predict(report, "score", 2 * workers);
        let score = report.stage("score").unwrap();
        assert!(score.times.share(State::InCall) > 0.98, "{report}");
        assert_eq!(score.most.records, 1_000, "never more, and always enough");
    }
}

#[tokio::test(start_paused = true)]
async fn report_of_the_story_reads_as_promised() {
    let report = tell(Story::default()).await.report;
    let expected = "\
stage     workers   busy  in call  no input  backpr.  limited  paused  reorder  commit    in/s   p50/p99 a record   queue max/limit  oldest
read            1      -        -         -    100 %        -       -        -       -   2,000   0 / 0 ns                         -       -
validate        1      -        -         -    100 %        -       -        -       -   2,000   0 / 0 ns               1,000/2,000       -
score           4      -    100 %         -        -        -       -        -       -   2,000   2.0 / 2.0 ms           1,000/1,000       -
store           1      -        -     100 %        -        -       -        -       -   2,000   commit 0/0 ns         2,004/20,000       -
bottleneck: score, always in call. 4 workers at 2.0 ms a record = 2,000/s. read and validate are backpressured, as intended; store is without input.
next step:  --workers score=5, about 2,500/s, if the service has room";
    assert_eq!(report.to_string(), expected, "\n{report}\n");
}

#[tokio::test(start_paused = true)]
async fn too_small_a_buffer_shows_as_time_without_input_and_the_report_says_why() {
    let story = Story { workers: 8, buffer: 100, reading: 10 * MS, ..Story::default() };
    let report = tell(story).await.report;
    let without = 100.0 * report.stage("score").unwrap().times.share(State::NoInput);
    assert!((28.0..=34.0).contains(&without), "{without} %\n{report}");
    let verdict = report.verdict();
    assert_eq!((verdict.stage.as_deref(), verdict.limit), (Some("score"), Limit::Buffer));
    let words = verdict.words;
    assert!(words.contains("Its buffer of 100 is used up before the next request"), "{words}");
    assert!(words.contains("10 ms later"), "{words}");
    let step = verdict.next_step.unwrap();
    assert!(step.starts_with("--buffer score=200, about 4,"), "{step}");

    let story = Story { workers: 8, buffer: 200, reading: 10 * MS, ..Story::default() };
    let does = RECORDS as f64 / tell(story).await.report.wall.as_secs_f64();
    near(verdict.would_bring.unwrap(), does, 5.0);
}

#[tokio::test(start_paused = true)]
async fn slow_sink_is_named() {
    let report = tell(Story { storing: MS, ..Story::default() }).await.report;
    let verdict = report.verdict();
    assert_eq!((verdict.stage.as_deref(), verdict.limit), (Some("store"), Limit::Commit));
    assert!(verdict.words.starts_with("store, target-bound: in transactions"), "{}", verdict.words);
}

#[tokio::test(start_paused = true)]
async fn slow_file_is_named() {
    let report = tell(Story { reading: 400 * MS, ..Story::default() }).await.report;
    let verdict = report.verdict();
    assert_eq!((verdict.stage.as_deref(), verdict.limit), (Some("read"), Limit::Source));
    assert!(verdict.words.starts_with("read, source-bound: reading"), "{}", verdict.words);
}

#[tokio::test(start_paused = true)]
async fn too_little_was_seen_to_tell() {
    let feed = Feed::of(3);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p").source(feed).sink("store", Strict::<u64>::new());
    let options = Options {
        buffer: [("store".into(), Buffer::Records(Records(5_000)))].into(),
        ..Options::default()
    };
    let report = finish(run.start(options).unwrap(), &seen).await.report;
    assert_eq!(report.verdict().words, "not enough data to tell");
}
