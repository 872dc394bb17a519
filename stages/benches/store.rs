//! How fast rows of 16 columns are stored in SQLite, from a stream through a pipeline of nothing but source and sink.
//!
//! ```text
//! cargo bench -p gegendruck-stages --bench store [-- ROWS]
//! ```
//!
//! - Rows have 16 columns, some 200 bytes and a text key that ascends; every commit is synchronized to the disk.
//! - `new` stores into an empty table; `one in 100` repeats the key of a row before it in every hundredth row, which is a reject;
//!   `all again` gives every key a second time, to be skipped.
//! - Printed are rows a second of each round, the shares of the sink's time, and the size of the database.

use std::time::Duration;

use gegendruck::{End, Options, Pipeline, State, StreamSource};
use gegendruck_checkpoints::{
    Attempt, InputFile, Ledger, PipelineIdentity, Process, ResumePoint, RunSpec, Target,
};
use gegendruck_stages::sql::{Conflict, MaxErrors, SqlSink};
use gegendruck_stages::value::{Column, ColumnType, Row, Table, Value};

const ROUNDS: usize = 5;

const fn text(name: &'static str) -> Column {
    Column::required(name, ColumnType::Text)
}

const TABLE: Table = Table {
    name: "claims",
    columns: &[
        text("claim_id"),
        text("policy_id"),
        Column::required("loss_date", ColumnType::Date),
        Column::required("reported_at", ColumnType::Timestamp),
        text("line_of_business"),
        text("cause"),
        Column::nullable("postal_code", ColumnType::Text),
        Column::required("amount", ColumnType::Decimal { precision: 12, scale: 2 }),
        text("currency"),
        Column::nullable("description", ColumnType::Text),
        Column::required("score", ColumnType::Integer),
        text("decision"),
        Column::nullable("reasons", ColumnType::Text),
        Column::nullable("sum_insured", ColumnType::Integer),
        Column::nullable("deductible", ColumnType::Integer),
        Column::required("days", ColumnType::Integer),
    ],
    key: &["claim_id"],
};

struct Claim {
    id: String,
    policy: String,
    description: String,
    n: i64,
}

impl Claim {
    fn new(n: i64) -> Claim {
        Claim {
            id: format!("C{n:09}"),
            policy: format!("P{:06}", n % 100_000),
            description: format!(
                "water from the flat above, ceiling and floor of the kitchen, {n}"
            ),
            n,
        }
    }
}

impl Row for Claim {
    const TABLE: Table = TABLE;

    fn values<'a>(&'a self, out: &mut Vec<Value<'a>>) {
        out.extend([
            Value::from(self.id.as_str()),
            self.policy.as_str().into(),
            "2026-11-30".into(),
            "2026-11-30T01:00:03Z".into(),
            "household".into(),
            "water".into(),
            "10115".into(),
            (self.n * 7).into(),
            "EUR".into(),
            self.description.as_str().into(),
            (self.n % 1_001).into(),
            "review".into(),
            "late_report sum_insured".into(),
            5_000_000.into(),
            Value::Null,
            (self.n % 90).into(),
        ]);
    }
}

fn main() {
    let rows = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(500_000);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    for round in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder can be created");
        let path = folder.path().join("claims.db");
        let target =
            Target::parse(path.to_str().expect("the path is a text")).expect("it is a target");
        for (name, conflict, id) in [
            ("new", Conflict::Error, (|n| n) as fn(i64) -> i64),
            ("one in 100", Conflict::Error, |n| {
                1_000_000_000 + if n % 100 == 0 { n - 1 } else { n }
            }),
            ("all again", Conflict::Skip, |n| n),
        ] {
            let (wall, committing) = runtime.block_on(run(&target, conflict, rows, id));
            let per_second = rows as f64 / wall.as_secs_f64();
            let size = path.metadata().map_or(0, |file| file.len()) >> 20;
            println!(
                "round {round}  {name:<10}  {per_second:>9.0} rows/s  committing {committing:.0} %  {size} MiB"
            );
        }
    }
}

async fn run(
    target: &Target,
    conflict: Conflict,
    rows: i64,
    id: fn(i64) -> i64,
) -> (Duration, f64) {
    let mut ledger = Ledger::open(target, "claims").await.expect("the ledger can be opened");
    let pipeline = PipelineIdentity {
        pipeline: "claims".into(),
        rules: 1,
        table: "claims".into(),
        dialect: String::new(),
        mapping: String::new(),
        conflict: conflict.as_str().into(),
    };
    let inputs = vec![ResumePoint::begin(0, InputFile::stream("claims"))];
    let spec = RunSpec { pipeline, inputs, label: None, as_of: None, contracts_run: None };
    let attempt = Attempt { process: Process::this("bench"), settings: serde_json::json!({}) };
    let ticket = ledger.begin(&spec, &attempt).await.expect("a run can begin");
    let sink = SqlSink::builder(target, &ticket)
        .on_conflict(conflict)
        .max_errors(MaxErrors::Count(u64::MAX))
        .open()
        .await
        .expect("the sink can be opened");
    let claims = futures::stream::iter((1..=rows).map(move |n| Claim::new(id(n))));
    let outcome = Pipeline::new("claims")
        .source(StreamSource::new(claims))
        .sink("store", sink)
        .run(Options::default())
        .await
        .expect("the pipeline can be built");
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    let store = outcome.report.stage("store").expect("the sink is a stage");
    (outcome.report.wall, 100.0 * store.times.share(State::Committing))
}
