//! Attempts of a record are counted over restarts: a real file, a real SQLite, and a service that fails on one record.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gegendruck::{
    Call, Committed, End, Failure, Group, Grouping, Item, Options, Pipeline, Records, Retry, Run,
    Sink, SinkContext, SinkError, call,
};
use gegendruck_checkpoints::{
    Accept, Attempt, Decision, Ledger, PipelineIdentity, Process, RunSpec, Target,
};
use gegendruck_pipelines::run::sources;
use gegendruck_stages::csv::{CsvSource, Dialect, Empty, Fields, FromFields};
use gegendruck_stages::sql::SqlSink;
use gegendruck_stages::value::{Column, ColumnType, Row, Table, Value};
use sqlx::Row as _;
use tokio::sync::Notify;
use tokio::time::timeout;

struct Meter(String);

impl FromFields for Meter {
    const COLUMNS: &'static [&'static str] = &["meter"];
    fn from_fields(fields: &Fields<'_>) -> Self {
        Meter(fields.get(0).into())
    }
}

impl Row for Meter {
    const TABLE: Table = Table {
        name: "meters",
        columns: &[Column::required("meter", ColumnType::Text)],
        key: &["meter"],
    };
    fn values<'a>(&'a self, out: &mut Vec<Value<'a>>) {
        out.push(self.0.as_str().into());
    }
}

/// Fails on meter 250. Meter 100 is answered when 250 was asked about: what is committed from there on comes after an attempt.
#[derive(Clone, Default)]
struct Service {
    asked: Arc<AtomicU32>,
    failed: Arc<Notify>,
}

impl Call<Meter> for Service {
    type Out = Meter;
    async fn call(&self, record: &Item<Meter>) -> Result<Meter, Failure> {
        match record.value.0.as_str() {
            "m250" => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                self.failed.notify_one();
                return Err(Failure::transient("503"));
            }
            "m100" => self.failed.notified().await,
            _ => {}
        }
        Ok(Meter(record.value.0.clone()))
    }
}

/// Says when it has committed.
struct Telling {
    sink: SqlSink<Meter>,
    committed: Arc<Notify>,
}

impl Sink<Meter> for Telling {
    async fn commit(
        &mut self,
        group: Group<Meter>,
        context: &SinkContext,
    ) -> Result<Committed, SinkError> {
        let committed = self.sink.commit(group, context).await;
        self.committed.notify_one();
        committed
    }

    async fn complete(&mut self, context: &SinkContext) -> Result<(), SinkError> {
        self.sink.complete(context).await
    }
}

struct World {
    folder: tempfile::TempDir,
    target: Target,
    committed: Arc<Notify>,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = (1..=400).map(|n| format!("m{n}\n")).collect();
        std::fs::write(folder.path().join("meters.csv"), format!("meter\n{lines}")).unwrap();
        let target = Target::parse(folder.path().join("m.db").to_str().unwrap()).unwrap();
        World { folder, target, committed: Arc::default() }
    }

    async fn start(&self, service: Service, claim: usize, backoff: Duration) -> Run<Telling> {
        let mut ledger = Ledger::open(&self.target, "meters").await.unwrap();
        let pipeline = PipelineIdentity {
            pipeline: "meters".into(),
            rules: 1,
            table: "meters".into(),
            dialect: String::new(),
            mapping: String::new(),
            conflict: "error".into(),
        };
        let path = self.folder.path().canonicalize().unwrap().join("meters.csv");
        let decision = ledger.look_up(&pipeline, &[path], Accept::default()).await.unwrap();
        let attempt = Attempt { process: Process::this("1"), settings: serde_json::json!({}) };
        let (inputs, ticket, tried) = match decision {
            Decision::New { inputs, .. } => {
                let spec = RunSpec {
                    pipeline,
                    inputs: inputs.clone(),
                    label: None,
                    as_of: None,
                    contracts_run: None,
                };
                (inputs, ledger.begin(&spec, &attempt).await.unwrap(), vec![])
            }
            Decision::GoOn(run) => {
                let (ticket, tried) = ledger.go_on(&run, &attempt).await.unwrap();
                (run.inputs.clone(), ticket, tried)
            }
            Decision::AlreadyDone(done) => panic!("{done:?}"),
        };
        let inputs = sources(&inputs);
        let source = CsvSource::<Meter>::open(inputs, &Dialect::default(), &[], Empty::Refused)
            .await
            .unwrap();
        let retry = Retry { backoff, longest: backoff, ..Retry::default() };
        let sink = SqlSink::<Meter>::builder(&self.target, &ticket).open().await.unwrap();
        let sink = Telling { sink, committed: self.committed.clone() };
        Pipeline::new("meters")
            .source(source)
            .stage("ask", call(service).claim(claim).workers(2).retry(retry))
            .sink("store", sink)
            .grouping(Grouping { records: Records(10), ..Grouping::default() })
            .start(Options { batch: Records(10), tried, ..Options::default() })
            .unwrap()
    }

    /// Record, attempts, and when it was first tried, as the ledger has it.
    async fn tried(&self) -> Option<(i64, i64, String)> {
        let mut connection = self.target.connect().await.unwrap();
        sqlx::query_as("SELECT record, attempts, first_tried FROM gegendruck_tried")
            .fetch_optional(&mut connection)
            .await
            .unwrap()
    }
}

async fn counted_on(claim: usize) {
    let world = World::new();
    let service = Service::default();
    let run = world.start(service.clone(), claim, Duration::from_secs(3_600)).await;
    while world.tried().await.is_none() {
        world.committed.notified().await;
    }
    run.control().abort();
    assert!(matches!(run.outcome().await.end, End::Stopped));
    assert_eq!(service.asked.load(Ordering::SeqCst), 1);
    let (record, attempts, first) = world.tried().await.unwrap();
    assert_eq!((record, attempts), (250, 1));

    let service = Service::default();
    let run = world.start(service.clone(), claim, Duration::from_millis(1)).await;
    let outcome = run.outcome().await;
    assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
    assert_eq!(service.asked.load(Ordering::SeqCst), 2, "three attempts, one of them before");
    assert_eq!(world.tried().await, None);
    let mut connection = world.target.connect().await.unwrap();
    let reject = sqlx::query("SELECT record, kind, attempts, first_tried FROM gegendruck_rejects")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let (record, attempts): (i64, i64) = (reject.get("record"), reject.get("attempts"));
    assert_eq!((record, reject.get("kind"), attempts), (250, "gave_up", 3));
    assert_eq!(reject.get::<String, _>("first_tried"), first);
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM meters").fetch_one(&mut connection).await.unwrap();
    assert_eq!(rows, 399);
}

#[tokio::test]
async fn record_that_failed_before_a_crash_has_only_the_rest_of_its_attempts_after_it() {
    for claim in [1, 7] {
        timeout(Duration::from_secs(60), counted_on(claim)).await.expect("it does not hang");
    }
}
