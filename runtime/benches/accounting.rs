//! What the accounting costs: one change of state, and all of them as a share of a run's time.
//!
//! `cargo bench -p gegendruck --bench accounting`

use std::sync::Arc;
use std::time::Duration;

use gegendruck::{
    Call, Clock, Collect, Failure, Item, Meter, Options, Pipeline, Report, State, StreamSource,
    call,
};
use tokio::time::{Instant, sleep_until};

const ROUNDS: usize = 21;
const CHANGES: u32 = 1_000_000;

/// Nanoseconds for one change of state: lowest, median, highest of the rounds.
fn change() -> (f64, f64, f64) {
    let meter = Arc::new(Meter::start(Clock::start(), State::NoInput));
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for n in 0..CHANGES {
                meter.enter(if n % 2 == 0 { State::Busy } else { State::InCall });
            }
            start.elapsed().as_nanos() as f64 / f64::from(CHANGES)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[0], rounds[ROUNDS / 2], rounds[ROUNDS - 1])
}

fn share(name: &str, report: &Report, nanos: f64) {
    let changes: u64 = report.stages.iter().map(|stage| stage.changes).sum();
    let records = report.tally.read;
    let share = 100.0 * changes as f64 * nanos / report.wall.as_nanos() as f64;
    println!(
        "{name}: {changes} changes for {records} records in {:.3} s: {share:.3} % of the time",
        report.wall.as_secs_f64()
    );
}

struct TwoMillis;

impl Call<u64> for TwoMillis {
    type Out = u64;
    async fn call(&self, record: &Item<u64>) -> Result<u64, Failure> {
        sleep_until(Instant::now() + Duration::from_millis(1)).await;
        Ok(record.value)
    }
}

async fn story() -> Report {
    let score = call(TwoMillis).workers(8).buffer(1_000).request(100);
    Pipeline::new("story")
        .source(StreamSource::new(futures::stream::iter(0..8_000_u64)))
        .map("validate", |n| n)
        .stage("score", score)
        .sink("store", Collect::new())
        .run(Options::default())
        .await
        .expect("the settings work together")
        .report
}

async fn fast() -> Report {
    Pipeline::new("fast")
        .source(StreamSource::new(futures::stream::iter(0..5_000_000_u64)))
        .map("one", |n| n + 1)
        .map("two", |n| n * 2)
        .filter("three", "odd", |n| n % 2 == 0)
        .sink("store", Collect::new())
        .run(Options::default())
        .await
        .expect("the settings work together")
        .report
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let (low, median, high) = change();
    println!("one change of state: {median:.1} ns [{low:.1} .. {high:.1}]");
    for round in 1..=3 {
        share(&format!("story, round {round}"), &runtime.block_on(story()), median);
        share(&format!("fast pipeline, round {round}"), &runtime.block_on(fast()), median);
    }
}
