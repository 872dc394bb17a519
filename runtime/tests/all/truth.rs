//! Whether the report is true: pipelines of any speeds, whose bottleneck is known beforehand.

use std::time::Duration;

use futures::FutureExt;
use gegendruck::{
    Answers, Buffer, Bytes, Call, CallBatch, Committed, End, Failure, Group, Grouping, Item, Limit,
    Options, Pipeline, Records, Report, Retry, Sink, SinkContext, SinkError, Verdict, call,
    call_batch, call_fn,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tokio::time::sleep;

use crate::support::{Feed, Strict, finish, near};

/// The same ones each time: how near a prediction comes is a matter of the case. `PROPTEST_CASES` and `PROPTEST_RNG_SEED` try others.
fn cases() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 24;
    }
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config
}

const RECORDS: u64 = 6_000;
const BATCH: u64 = 50;

/// Takes so long for a record, more for some and less for others.
struct Takes {
    mean: Duration,
    uneven: bool,
}

impl Call<u64> for Takes {
    type Out = u64;
    async fn call(&self, record: &Item<u64>) -> Result<u64, Failure> {
        let millis = self.mean.as_millis() as u64;
        // One after the other a millisecond more and a millisecond less.
        let off = if !self.uneven { 1 } else { 2 * (record.value % 2) };
        sleep(Duration::from_millis(millis + off - 1)).await;
        Ok(record.value)
    }
}

#[derive(Clone, Debug)]
struct Called {
    workers: usize,
    millis: u64,
    ordered: bool,
    claim: usize,
    /// Records a second that it may call for.
    rate: Option<f64>,
}

impl Called {
    /// Records a second that its workers could do.
    fn workers_do(&self) -> f64 {
        1_000.0 * self.workers as f64 / self.millis as f64
    }

    /// Records a second, and by what it is limited.
    fn capacity(&self) -> (f64, Limit) {
        match self.rate {
            Some(rate) if rate < self.workers_do() => (rate, Limit::Rate),
            _ => (self.workers_do(), Limit::Concurrency),
        }
    }

    fn is_clearly_limited(&self) -> bool {
        self.rate.is_none_or(|rate| {
            let ratio = rate / self.workers_do();
            !(1.0 / 1.3..1.3).contains(&ratio)
        })
    }
}

#[derive(Clone, Debug)]
struct Speeds {
    /// Milliseconds for a hand-over of 50 records.
    reading: u64,
    first: Called,
    second: Called,
    /// Microseconds for a record in a transaction.
    storing: u64,
}

impl Speeds {
    /// The stages with what each could do alone, in records a second, and how it would be limited; the slowest first.
    fn by_capacity(&self) -> Vec<(&'static str, f64, Limit)> {
        let (first, second) = (self.first.capacity(), self.second.capacity());
        let mut stages = vec![
            ("read", 1_000.0 * BATCH as f64 / self.reading as f64, Limit::Source),
            ("first", first.0, first.1),
            ("second", second.0, second.1),
            ("store", 1e6 / self.storing as f64, Limit::Commit),
        ];
        stages.sort_by(|a, b| a.1.total_cmp(&b.1));
        stages
    }

    fn one_is_clearly_the_slowest(&self) -> bool {
        let stages = self.by_capacity();
        let clear = self.first.is_clearly_limited() && self.second.is_clearly_limited();
        clear && stages[0].1 * 1.3 < stages[1].1
    }

    async fn run(&self) -> Report {
        let mut feed = Feed::of(RECORDS);
        feed.takes = Duration::from_millis(self.reading);
        let seen = feed.seen.clone();
        let stage = |called: &Called| {
            let takes = Takes {
                mean: Duration::from_millis(called.millis),
                uneven: !called.ordered && called.claim == 1,
            };
            let stage = call(takes).workers(called.workers).claim(called.claim);
            // Room for requests, and for claims of one to three records to overtake each other: it is the speeds that count.
            let stage = stage.buffer(1_000).request(100);
            let stage = match called.rate {
                Some(rate) => stage.rate(rate),
                None => stage,
            };
            if called.ordered { stage.ordered(10 * called.workers) } else { stage }
        };
        let run = Pipeline::new("p")
            .source(feed)
            .stage("first", stage(&self.first))
            .stage("second", stage(&self.second))
            .sink("store", Strict::taking(Duration::from_micros(self.storing)))
            .grouping(Grouping { records: Records(BATCH), ..Grouping::default() })
            .start(Options { batch: Records(BATCH), ..Options::default() })
            .unwrap();
        let outcome = finish(run, &seen).await;
        assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
        outcome.report
    }
}

fn called() -> impl Strategy<Value = Called> {
    let rate = prop::option::of((20..=2_000_u32).prop_map(f64::from));
    (1..=6_usize, 1..=20_u64, any::<bool>(), 1..=3_usize, rate).prop_map(
        |(workers, millis, ordered, claim, rate)| Called { workers, millis, ordered, claim, rate },
    )
}

fn speeds() -> impl Strategy<Value = Speeds> {
    (1..=400_u64, called(), called(), 20..=8_000_u64)
        .prop_map(|(reading, first, second, storing)| Speeds { reading, first, second, storing })
        .prop_filter("one stage is clearly the slowest", Speeds::one_is_clearly_the_slowest)
}

async fn is_true(speeds: Speeds) {
    let report = speeds.run().await;
    let verdict = report.verdict();
    let (slowest, capacity, limit) = speeds.by_capacity()[0];
    assert_eq!(verdict.stage.as_deref(), Some(slowest), "{speeds:?}\n{report}");
    assert_eq!(verdict.limit, limit, "{speeds:?}\n{report}");
    near(RECORDS as f64 / report.wall.as_secs_f64(), capacity, 5.0);

    let mut more = speeds.clone();
    let stage = match slowest {
        "first" => &mut more.first,
        "second" => &mut more.second,
        _ => return,
    };
    let foreseen = match limit {
        Limit::Rate => {
            stage.rate = None;
            verdict.would_bring.expect("it says what no rate would bring")
        }
        _ => {
            stage.workers *= 2;
            Verdict::predict(&report, slowest, stage.workers).expect("it is one of its stages")
        }
    };
    let then = RECORDS as f64 / more.run().await.wall.as_secs_f64();
    // Two that are about as fast wait for each other now and then: together they are slower than either.
    near(foreseen, then, if more.one_is_clearly_the_slowest() { 5.0 } else { 20.0 });
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn slowest_stage_is_named_and_what_twice_its_workers_or_no_rate_bring_is_foreseen(speeds in speeds()) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(is_true(speeds));
    }
}

/// Every fourth record takes 20 ms, the others one.
struct Uneven;

impl Call<u64> for Uneven {
    type Out = u64;
    async fn call(&self, record: &Item<u64>) -> Result<u64, Failure> {
        sleep(Duration::from_millis(if record.value.is_multiple_of(4) { 20 } else { 1 })).await;
        Ok(record.value)
    }
}

async fn in_order(reorder: usize) -> Report {
    let feed = Feed::of(RECORDS);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", call(Uneven).workers(4).ordered(reorder))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    finish(run, &seen).await.report
}

#[tokio::test(start_paused = true)]
async fn waits_for_earlier_records_are_named_and_what_more_places_bring_is_foreseen() {
    let report = in_order(4).await;
    let verdict = report.verdict();
    assert_eq!(
        (verdict.stage.as_deref(), verdict.limit),
        (Some("score"), Limit::Order),
        "{report}"
    );
    let words = &verdict.words;
    assert!(words.starts_with("score, waits for earlier records "), "{words}");
    let then = in_order(400).await;
    let does = RECORDS as f64 / then.wall.as_secs_f64();
    near(verdict.would_bring.expect("it says what that brings"), does, 5.0);
    assert_eq!(then.verdict().limit, Limit::Concurrency, "{then}");
}

/// Waits so long before each transaction, as for a target that is busy.
struct Busy(Strict<u64>);

impl Sink<u64> for Busy {
    async fn commit(
        &mut self,
        group: Group<u64>,
        context: &SinkContext,
    ) -> Result<Committed, SinkError> {
        context.paused(sleep(Duration::from_millis(300))).await;
        self.0.commit(group, context).await
    }
}

#[tokio::test(start_paused = true)]
async fn target_that_is_busy_is_named_as_what_holds_up_the_sink() {
    let feed = Feed::of(RECORDS);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .map("validate", |n| n)
        .sink("store", Busy(Strict::taking(Duration::from_micros(500))))
        .grouping(Grouping { records: Records(600), ..Grouping::default() })
        .start(Options { batch: Records(BATCH), ..Options::default() })
        .unwrap();
    let report = finish(run, &seen).await.report;
    let verdict = report.verdict();
    assert_eq!((verdict.stage.as_deref(), verdict.limit), (Some("store"), Limit::Pause));
    let words = verdict.words;
    assert!(
        words.starts_with("store, paused after errors of the target 50 % of the time"),
        "{words}"
    );
    let step = "look at the target: it was busy or down; without these waits about 2,000/s";
    assert_eq!(verdict.next_step.as_deref(), Some(step));
}

/// A service behind a rate that is down for so long, from the fifth second on.
async fn outage(workers: usize, seconds: u64) -> Report {
    let start = tokio::time::Instant::now();
    let ask = call_fn(move |record: &Item<u64>| {
        let value = record.value;
        async move {
            sleep(Duration::from_millis(1)).await;
            if (5..5 + seconds).contains(&start.elapsed().as_secs()) {
                let retry_after = Some(Duration::from_secs(5));
                return Err(Failure::Transient { message: "503".into(), retry_after });
            }
            Ok(value)
        }
        .boxed()
    });
    let feed = Feed::of(2_000);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("ask", ask.workers(workers).rate(100.0))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    finish(run, &seen).await.report
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_down_is_not_called_short_of_a_rate() {
    for (workers, seconds) in [(1, 200), (2, 200), (4, 200), (4, 60)] {
        let report = outage(workers, seconds).await;
        let verdict = report.verdict();
        assert_eq!(
            (verdict.stage.as_deref(), verdict.limit),
            (Some("ask"), Limit::Pause),
            "{report}"
        );
        assert!(verdict.next_step.unwrap().starts_with("look at the service behind ask"));
    }
}

/// A sink whose transactions take `group` records out of a buffer of so many.
async fn grouped(group: u64, buffer: u64) -> Report {
    let mut feed = Feed::of(20 * RECORDS);
    feed.takes = Duration::from_millis(1);
    let seen = feed.seen.clone();
    let buffer = Buffer::Records(Records(buffer));
    let run = Pipeline::new("p")
        .source(feed)
        .map("validate", |n| n)
        .sink("store", Strict::taking(Duration::from_micros(40)))
        .grouping(Grouping { records: Records(group), ..Grouping::default() })
        .start(Options {
            batch: Records(BATCH),
            buffer: [("store".into(), buffer)].into(),
            ..Options::default()
        })
        .unwrap();
    finish(run, &seen).await.report
}

#[tokio::test(start_paused = true)]
async fn transactions_that_take_all_of_the_buffer_are_helped_by_a_larger_one() {
    let report = grouped(1_000, 1_000).await;
    let verdict = report.verdict();
    assert_eq!(
        (verdict.stage.as_deref(), verdict.limit),
        (Some("store"), Limit::Commit),
        "{report}"
    );
    let step = verdict.next_step.unwrap();
    assert!(
        step.starts_with("--buffer store=4000, about 25,000/s: a transaction of 1,000 "),
        "{step}"
    );
    let then = grouped(1_000, 4_000).await;
    let does = 20.0 * RECORDS as f64 / then.wall.as_secs_f64();
    near(verdict.would_bring.unwrap(), does, 5.0);
    assert!(does > 1.3 * 20.0 * RECORDS as f64 / report.wall.as_secs_f64());
    let step = then.verdict().next_step.unwrap();
    assert!(step.starts_with("a faster target, or a larger --batch-size. "), "{step}");
}

/// Works and then makes durable for so long, in each transaction.
struct Durable {
    sink: Strict<u64>,
    works: u64,
    syncs: u64,
}

impl Sink<u64> for Durable {
    async fn commit(
        &mut self,
        group: Group<u64>,
        context: &SinkContext,
    ) -> Result<Committed, SinkError> {
        sleep(Duration::from_millis(self.works)).await;
        context.made_durable(sleep(Duration::from_millis(self.syncs))).await;
        self.sink.commit(group, context).await
    }
}

#[tokio::test(start_paused = true)]
async fn whether_a_faster_disk_would_help_is_told_from_what_transactions_take() {
    for (works, syncs, share, step) in [
        (20, 80, "80 %", "a faster disk for the target, or a larger --batch-size. "),
        (80, 20, "20 %", "fewer indexes on the target's table, or a faster processor: "),
    ] {
        let feed = Feed::of(RECORDS);
        let seen = feed.seen.clone();
        let run = Pipeline::new("p")
            .source(feed)
            .map("validate", |n| n)
            .sink("store", Durable { sink: Strict::new(), works, syncs })
            .grouping(Grouping { records: Records(BATCH), ..Grouping::default() })
            .start(Options { batch: Records(BATCH), ..Options::default() })
            .unwrap();
        let verdict = finish(run, &seen).await.report.verdict();
        assert_eq!((verdict.stage.as_deref(), verdict.limit), (Some("store"), Limit::Commit));
        let words = format!("100 ms to 100 ms each, {share} of that to make them durable.");
        assert!(verdict.words.contains(&words), "{}", verdict.words);
        let next = verdict.next_step.unwrap();
        assert!(next.starts_with(step), "{next}");
    }
}

/// Four tenths of a real second of work for so many threads, in records of a millisecond.
fn computes(workers: usize) -> Report {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(workers + 1).enable_time().build().unwrap().block_on(async {
        let feed = Feed::of(400 * workers as u64);
        let seen = feed.seen.clone();
        let spin = |n: u64| {
            let start = tokio::time::Instant::now();
            while start.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
            n
        };
        let run = Pipeline::new("p")
            .source(feed)
            .stage("work", gegendruck::map(spin).workers(workers))
            .sink("store", Strict::new())
            .start(Options { batch: Records(10), ..Options::default() })
            .unwrap();
        finish(run, &seen).await.report
    })
}

#[test]
fn work_on_all_cores_is_told_from_work_on_one() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let verdict = computes(cores).verdict();
    assert_eq!((verdict.stage.as_deref(), verdict.limit), (Some("work"), Limit::OwnWork));
    let words = format!(
        "it computes on all {cores} cores; only less work in work or more cores would help"
    );
    assert_eq!(verdict.next_step.as_deref(), Some(&*words));
    if cores > 1 {
        let report = computes(1);
        let verdict = report.verdict();
        assert_eq!((verdict.stage.as_deref(), verdict.limit), (Some("work"), Limit::OwnWork));
        let step = verdict.next_step.unwrap();
        assert!(step.starts_with("--workers work=2, about "), "{step}");
        assert!(step.ends_with("/s, if a core is free for it"), "{step}");
        near(verdict.would_bring.unwrap(), 2.0 * report.stages[1].per_second, 15.0);
    }
}

/// A small buffer before a stage, and a source that takes as long for a little as for much.
#[derive(Clone, Debug)]
struct Small {
    reading: u64,
    workers: usize,
    millis: u64,
    buffer: u64,
    request: u64,
}

impl Small {
    async fn run(&self, buffer: Option<u64>, request: Option<u64>) -> Report {
        let mut feed = Feed::of(RECORDS);
        feed.takes = Duration::from_millis(self.reading);
        let seen = feed.seen.clone();
        let takes = Takes { mean: Duration::from_millis(self.millis), uneven: true };
        let score = call(takes).workers(self.workers).buffer(self.buffer).request(self.request);
        let buffer = buffer.map(|n| ("score".to_string(), Buffer::Records(Records(n))));
        let request = request.map(|n| ("score".to_string(), Records(n)));
        let run = Pipeline::new("p")
            .source(feed)
            .stage("score", score)
            .sink("store", Strict::new())
            .start(Options {
                buffer: buffer.into_iter().collect(),
                request: request.into_iter().collect(),
                ..Options::default()
            })
            .unwrap();
        let outcome = finish(run, &seen).await;
        assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
        outcome.report
    }
}

fn small() -> impl Strategy<Value = Small> {
    (1..=40_u64, 1..=8_usize, 1..=5_u64, 20..=400_u64, 1..=100_u64)
        .prop_map(|(reading, workers, millis, buffer, percent)| Small {
            reading,
            workers,
            millis,
            buffer,
            // More than a hand-over of 256 is read in two parts, whatever the buffer.
            request: (buffer * percent / 100).clamp(1, 256),
        })
        .prop_filter("a place for each worker", |small| small.workers as u64 <= small.buffer)
}

async fn helps(small: Small) {
    let report = small.run(None, None).await;
    let does = RECORDS as f64 / report.wall.as_secs_f64();
    let could = 1_000.0 * small.workers as f64 / small.millis as f64;
    let verdict = report.verdict();
    let step = verdict.next_step.unwrap_or_default();
    let number = |option: &str| {
        let rest = step.split_once(option)?.1;
        rest.split([' ', ',']).next()?.parse().ok()
    };
    let then = match number("--buffer score=") {
        None => {
            assert!(
                does > 0.65 * could,
                "{does} of {could} a second, and no buffer is named: {small:?}\n{report}"
            );
            return;
        }
        buffer => small.run(buffer, number("--request score=")).await,
    };
    let then = RECORDS as f64 / then.wall.as_secs_f64();
    match (verdict.limit, verdict.would_bring) {
        (Limit::Buffer, Some(brings)) if step.contains("at least") => {
            assert!(then > 0.95 * brings, "{then} for {brings}: {small:?}\n{report}");
        }
        (Limit::Buffer, Some(brings)) => near(brings, then, 10.0),
        (limit, _) => {
            assert_eq!(limit, Limit::Source);
            assert!(then > 1.05 * does, "{then} after {does}: {small:?}\n{report}");
        }
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn larger_buffer_that_is_advised_brings_what_is_said(small in small()) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(helps(small));
    }
}

/// Takes so long, whatever it is asked about.
struct Constant(Duration);

impl CallBatch<u64> for Constant {
    type Out = u64;
    async fn call_batch(&self, records: &[Item<u64>]) -> Answers<u64> {
        sleep(self.0).await;
        Ok(records.iter().map(|item| Ok(item.value)).collect())
    }
}

/// One stage of 5 ms a record, and behind it calls of 60 ms for up to 100.
async fn kept_up(rules: usize) -> Report {
    let feed = Feed::of(3_000);
    let seen = feed.seen.clone();
    let rule = call(Takes { mean: Duration::from_millis(5), uneven: false }).workers(rules);
    let run = Pipeline::new("p")
        .source(feed)
        .stage("rule", rule)
        .stage("score", call_batch(Constant(Duration::from_millis(60))).claim(100))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    finish(run, &seen).await.report
}

#[tokio::test(start_paused = true)]
async fn stage_that_keeps_up_with_calls_about_less_than_they_may_be_is_not_the_bottleneck() {
    let report = kept_up(1).await;
    let verdict = report.verdict();
    assert_eq!(verdict.stage.as_deref(), Some("rule"), "{report}");
    let does = 3_000.0 / kept_up(2).await.wall.as_secs_f64();
    near(verdict.would_bring.expect("it says what one more brings"), does, 5.0);
}

/// Fails in passing on every second record, once.
#[tokio::test(start_paused = true)]
async fn calls_that_are_made_again_are_not_records_that_are_done() {
    let run = async |workers: usize| {
        let tried = std::sync::Mutex::new(std::collections::HashSet::new());
        let score = call_fn(move |record: &Item<u64>| {
            let value = record.value;
            let fails = value.is_multiple_of(2) && tried.lock().unwrap().insert(value);
            async move {
                sleep(Duration::from_millis(10)).await;
                if fails { Err(Failure::transient("once")) } else { Ok(value) }
            }
            .boxed()
        });
        let feed = Feed::of(3_000);
        let seen = feed.seen.clone();
        let retry = Retry { backoff: Duration::from_millis(1), ..Retry::default() };
        let run = Pipeline::new("p")
            .source(feed)
            .stage("score", score.workers(workers).retry(retry))
            .sink("store", Strict::new())
            .start(Options::default())
            .unwrap();
        finish(run, &seen).await.report
    };
    let report = run(2).await;
    let score = report.stage("score").unwrap();
    assert_eq!((score.records, score.asked), (3_000, 4_500), "{report}");
    near(score.per_second, 3_000.0 / report.wall.as_secs_f64(), 1.0);
    let does = 3_000.0 / run(4).await.wall.as_secs_f64();
    near(Verdict::predict(&report, "score", 4).unwrap(), does, 5.0);
}

/// One in ten goes on to be called about, at most 200 times a second.
#[tokio::test(start_paused = true)]
async fn rate_of_calls_is_no_rate_of_records_that_a_filter_has_thinned() {
    let run = async |workers: usize| {
        let feed = Feed::of(10_000);
        let seen = feed.seen.clone();
        let slow = call(Takes { mean: Duration::from_millis(1), uneven: false });
        let score = call(Takes { mean: Duration::from_millis(1), uneven: false });
        let run = Pipeline::new("p")
            .source(feed)
            .stage("slow", slow.workers(workers))
            .filter("thin", "left_out", |n: &u64| n.is_multiple_of(10))
            .stage("score", score.workers(4).rate(200.0))
            .sink("store", Strict::new())
            .start(Options::default())
            .unwrap();
        finish(run, &seen).await.report
    };
    let report = run(1).await;
    let verdict = report.verdict();
    assert_eq!(verdict.stage.as_deref(), Some("slow"), "{report}");
    let does = 10_000.0 / run(2).await.wall.as_secs_f64();
    near(verdict.would_bring.unwrap(), does, 5.0);
}

/// Twenty times as large as a stage in the middle may hold, each tenth record.
#[tokio::test(start_paused = true)]
async fn record_too_large_for_the_middle_of_the_chain_does_not_wait_for_the_commit_interval() {
    let mut feed = Feed::of(100);
    feed.len = |n| if n.is_multiple_of(10) { 5_000 } else { 10 };
    let seen = feed.seen.clone();
    let score = call(Takes { mean: Duration::from_millis(1), uneven: false });
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", score.buffer_bytes(Bytes(1_000)))
        .sink("store", Strict::new())
        .start(Options::default())
        .unwrap();
    let report = finish(run, &seen).await.report;
    assert!(report.wall < Duration::from_millis(500), "{report}");
}

/// Each hundredth record takes 500 ms, the others 10.
async fn overtaken(buffer: u64) -> Report {
    let score = call_fn(|record: &Item<u64>| {
        let value = record.value;
        let takes = if value.is_multiple_of(100) { 500 } else { 10 };
        async move {
            sleep(Duration::from_millis(takes)).await;
            Ok(value)
        }
        .boxed()
    });
    let feed = Feed::of(5_000);
    let seen = feed.seen.clone();
    let run = Pipeline::new("p")
        .source(feed)
        .stage("score", score.workers(8))
        .sink("store", Strict::new())
        .grouping(Grouping { records: Records(10), ..Grouping::default() })
        .start(Options {
            buffer: [("store".to_string(), Buffer::Records(Records(buffer)))].into(),
            ..Options::default()
        })
        .unwrap();
    finish(run, &seen).await.report
}

#[tokio::test(start_paused = true)]
async fn records_that_overtake_one_that_takes_long_are_helped_by_a_larger_buffer_of_the_sink() {
    let report = overtaken(40).await;
    let verdict = report.verdict();
    assert_eq!(
        (verdict.stage.as_deref(), verdict.limit),
        (Some("store"), Limit::Buffer),
        "{report}"
    );
    assert!(verdict.next_step.unwrap().starts_with("--buffer store=160, up to "), "{report}");
    let more = overtaken(160).await;
    assert!(more.wall.as_secs_f64() < 0.7 * report.wall.as_secs_f64(), "{report}\n{more}");
    let plenty = overtaken(4_000).await;
    assert_eq!(plenty.verdict().stage.as_deref(), Some("score"), "{plenty}");
}
