//! The story on the real clock: 20,000 records, a service that takes two milliseconds for one, one to eight workers.
//!
//! `cargo run --release -p gegendruck --example story`
//!
//! A call is due two milliseconds after the last one of the same worker was, or after it was claimed, whichever is later, less
//! the grain of the timer. So a worker does 500 a second, unless something keeps it waiting: the runtime, or a machine whose
//! timers are later than their grain. The second column is the same calls in plain loops, to tell the two apart.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{Stream, stream};
use gegendruck::{
    Call, Collect, End, Failure, Item, Options, Outcome, Pipeline, StreamSource, Verdict, call,
};
use tokio::time::{Instant, sleep, sleep_until};

const RECORDS: u64 = 20_000;
/// tokio rounds a deadline up to its next tick of a millisecond, and the wait for that tick up to a millisecond again.
const GRAIN: Duration = Duration::from_millis(2);
const SERVICE: Duration = Duration::from_millis(2);

#[derive(Default)]
struct Scorer {
    /// When the calls of the workers that are idle now were due.
    last: Mutex<Vec<Instant>>,
}

impl Scorer {
    async fn score(&self) {
        let claimed = Instant::now() - GRAIN;
        let last = self.last.lock().expect("no holder panics").pop().unwrap_or(claimed);
        let due = last.max(claimed) + SERVICE;
        sleep_until(due).await;
        self.last.lock().expect("no holder panics").push(due);
    }
}

impl Call<u64> for Scorer {
    type Out = u64;
    async fn call(&self, record: &Item<u64>) -> Result<u64, Failure> {
        self.score().await;
        Ok(record.value)
    }
}

/// The calls alone: as many loops as workers, each with its share of the records.
async fn bare(workers: usize) -> Duration {
    let (scorer, start) = (Arc::new(Scorer::default()), Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let scorer = scorer.clone();
        tasks.spawn(async move {
            for _ in 0..RECORDS / workers as u64 {
                scorer.score().await;
            }
        });
    }
    tasks.join_all().await;
    start.elapsed()
}

/// Numbers that come at once, or a hundred at a time with a wait before each hundred.
fn numbers(wait: Duration) -> impl Stream<Item = u64> + Send + Unpin {
    Box::pin(stream::unfold(0, move |n| async move {
        if !wait.is_zero() && n % 100 == 0 {
            sleep(wait).await;
        }
        (n < RECORDS).then_some((n, n + 1))
    }))
}

async fn tell(
    workers: usize,
    buffer: u64,
    wait: Duration,
) -> Result<Outcome<Collect<u64>>, Box<dyn Error>> {
    let score = call(Scorer::default()).workers(workers).buffer(buffer).request(100);
    let outcome = Pipeline::new("claims")
        .source(StreamSource::new(numbers(wait)))
        .map("validate", |n| n)
        .stage("score", score)
        .sink("store", Collect::new())
        .run(Options::default())
        .await?;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    Ok(outcome)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "workers   expected   plain loops         pipeline            foreseen by the run before"
    );
    let mut foreseen: Option<f64> = None;
    let mut last = None;
    for workers in [1, 2, 4, 8] {
        let report = tell(workers, 1_000, Duration::ZERO).await?.report;
        let wall = report.wall.as_secs_f64();
        let expected = RECORDS as f64 * SERVICE.as_secs_f64() / workers as f64;
        let off = |found: f64, expected: f64| 100.0 * (found / expected - 1.0);
        let foreseen_words = foreseen.map_or(String::new(), |rate| {
            format!("{rate:.0}/s, {:+.2} % off", off(rate, RECORDS as f64 / wall))
        });
        let alone = bare(workers).await.as_secs_f64();
        println!(
            "{workers:>7}   {expected:>6.3} s   {alone:>6.3} s {:+6.2} %   {wall:>6.3} s {:+6.2} %   {foreseen_words}",
            off(alone, expected),
            off(wall, expected)
        );
        foreseen = Verdict::predict(&report, "score", 2 * workers);
        last = Some(report);
    }
    if let Some(report) = last {
        println!("\n{report}");
    }
    let report = tell(8, 100, Duration::from_millis(10)).await?.report;
    println!(
        "\na buffer of 100 for 8 workers, and a source that needs 10 ms for a request:\n{report}"
    );
    Ok(())
}
