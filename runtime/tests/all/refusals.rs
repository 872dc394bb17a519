//! Settings that cannot work are refused before anything runs, in one sentence that says what to do.

use gegendruck::{
    Buffer, Bytes, Call, Collect, Failure, Grouping, Item, Options, Pipeline, Records, Retry, call,
    flat_map, map,
};

use crate::support::Feed;

struct Same;

impl Call<u64> for Same {
    type Out = u64;
    async fn call(&self, record: &Item<u64>) -> Result<u64, Failure> {
        Ok(record.value)
    }
}

#[track_caller]
fn refused(options: Options, expected: &str) {
    let pipeline = Pipeline::new("p")
        .source(Feed::of(1))
        .stage("score", call(Same).ordered(8))
        .sink("store", Collect::new());
    assert_eq!(pipeline.plan(&options).unwrap_err().to_string(), expected);
    assert_eq!(
        pipeline.start(options).err().map(|error| error.to_string()).as_deref(),
        Some(expected)
    );
}

fn with<R>(change: impl FnOnce(&mut Options) -> R) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

#[test]
fn option_for_a_stage_that_there_is_not_names_those_that_there_are() {
    let expected = "no stage is called \"scor\"; this pipeline has read, score, store";
    refused(with(|o| o.workers.insert("scor".into(), 2)), expected);
    refused(with(|o| o.buffer.insert("scor".into(), Buffer::Records(Records(2)))), expected);
    refused(with(|o| o.request.insert("scor".into(), Records(2))), expected);
    refused(with(|o| o.claim.insert("scor".into(), 2)), expected);
    refused(with(|o| o.rate.insert("scor".into(), 2.0)), expected);
}

#[test]
fn setting_of_calls_for_a_stage_that_calls_nobody_is_refused() {
    let words = |what| {
        format!(
            "store: {what} is for stages that call somebody, and this one does not; leave it out"
        )
    };
    refused(with(|o| o.rate.insert("store".into(), 2.0)), &words("rate"));
    refused(with(|o| o.claim.insert("store".into(), 2)), &words("claim"));
}

#[test]
fn widths_of_zero_are_refused() {
    let zero = |stage: &str, what: &str| {
        format!("{stage}: {what} is 0; it must be at least 1, or nothing would ever move")
    };
    refused(with(|o| o.workers.insert("score".into(), 0)), &zero("score", "workers"));
    let none = Buffer::Records(Records(0));
    refused(with(|o| o.buffer.insert("score".into(), none)), &zero("score", "buffer"));
    refused(with(|o| o.request.insert("score".into(), Records(0))), &zero("score", "request"));
    refused(with(|o| o.claim.insert("score".into(), 0)), &zero("score", "claim"));
    for (rate, shown) in [(0.0, "0"), (-3.0, "-3"), (f64::NAN, "NaN")] {
        let words = format!("score: rate {shown} is not above 0; give one such as 0.5 or 200");
        refused(with(|o| o.rate.insert("score".into(), rate)), &words);
    }
    refused(with(|o| o.memory = Some(Bytes(0))), &zero("read", "buffer bytes"));
    refused(with(|o| o.batch = Records(0)), &zero("read", "batch"));
    let grouping = Grouping { records: Records(0), ..Grouping::default() };
    refused(with(|o| o.grouping = Some(grouping)), &zero("store", "batch-size"));
}

#[test]
fn workers_that_could_never_all_have_a_record_are_refused() {
    let expected = "score: workers 2001 is more than buffer 2000; lower the one or raise the other";
    refused(with(|o| o.workers.insert("score".into(), 2_001)), expected);
}

#[test]
fn settings_larger_than_what_must_hold_them_are_refused() {
    let large = |stage: &str, what: &str, found: u64, bound: &str, limit: u64| {
        format!(
            "{stage}: {what} {found} is more than {bound} {limit}; lower the one or raise the other"
        )
    };
    let request = with(|o| o.request.insert("score".into(), Records(3_000)));
    refused(request, &large("score", "request", 3_000, "buffer", 2_000));
    let claim = with(|o| o.claim.insert("score".into(), 3_000));
    refused(claim, &large("score", "claim", 3_000, "buffer", 2_000));
    let grouping = Grouping { records: Records(30_000), ..Grouping::default() };
    let group = with(|o| o.grouping = Some(grouping));
    refused(group, &large("store", "batch-size", 30_000, "buffer", 20_000));
    let buffer = Buffer::Records(Records(4_000));
    let store = with(|o| o.buffer.insert("store".into(), buffer));
    refused(store, &large("store", "batch-size", 5_000, "buffer", 4_000));
    let grouping = Grouping { bytes: Bytes::mib(32), ..Grouping::default() };
    let group = with(|o| o.grouping = Some(grouping));
    refused(group, &large("store", "batch-bytes", 32 << 20, "buffer bytes", 24 << 20));
    let workers = with(|o| o.workers.insert("read".into(), 2));
    let one = "read: found 2 workers; a source or a sink has one, the stages between can have more";
    refused(workers, one);
}

#[test]
fn definition_of_a_stage_is_checked_too() {
    let start = || Pipeline::new("p").source(Feed::of(1));
    let twice = start().map("a", |n| n).map("a", |n| n).sink("store", Collect::new());
    let words = "two stages are called \"a\"; give each a name of its own";
    assert_eq!(twice.plan(&Options::default()).unwrap_err().to_string(), words);
    let words = "a: workers 3 is more than reorder 2; lower the one or raise the other";
    let narrow = start().stage("a", map(|n| n).workers(3).ordered(2)).sink("store", Collect::new());
    assert_eq!(narrow.plan(&Options::default()).unwrap_err().to_string(), words);
    let words = "a: at_most is 0; it must be at least 1, or nothing would ever move";
    let nothing = start().stage("a", flat_map(0, |n| [n])).sink("store", Collect::new());
    assert_eq!(nothing.plan(&Options::default()).unwrap_err().to_string(), words);
    let words = "a: attempts is 0; it must be at least 1, or nothing would ever move";
    let never = Retry { attempts: 0, ..Retry::default() };
    let never = start().stage("a", call(Same).retry(never)).sink("store", Collect::new());
    assert_eq!(never.plan(&Options::default()).unwrap_err().to_string(), words);
}

#[test]
fn less_memory_lowers_every_bound_that_nobody_set() {
    let pipeline =
        Pipeline::new("p").source(Feed::of(1)).map("a", |n| n).sink("store", Collect::new());
    let plan = pipeline.plan(&with(|o| o.memory = Some(Bytes::mib(4)))).unwrap();
    assert!(plan.stages.iter().all(|stage| stage.settings.buffer_bytes == Bytes::mib(4)));
    assert_eq!(plan.grouping.bytes, Bytes::mib(4));
    assert_eq!((plan.in_flight.records, plan.in_flight.bytes), (20_000, 4 << 20));
}

#[test]
fn smaller_buffer_asks_in_smaller_steps_unless_told_otherwise() {
    let pipeline =
        Pipeline::new("p").source(Feed::of(1)).map("a", |n| n).sink("store", Collect::new());
    let small = with(|o| o.buffer.insert("a".into(), Buffer::Records(Records(100))));
    let plan = pipeline.plan(&small).unwrap();
    assert_eq!(plan.stages[1].settings.request, Records(25));
    assert_eq!(plan.batch, Records(100), "no batch is larger than a buffer");
}
