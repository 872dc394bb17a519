//! What one stage boundary costs a record: the slope between one and five of them, against tokio's channel.
//!
//! `cargo bench -p gegendruck --bench boundary`, and `-- "hand on"` for those with that in their name only
//!
//! Batches of 256 records of 64 bytes, with positions, verdict counts and accounting on. A boundary is a stage with a link
//! before it: it hands batches on as they are, looks at each record (a filter that keeps everything), or moves each into a new
//! value (`map`). tokio's boundary is a task that takes the same batches from one channel and puts them into the next, as they
//! are or after the same look. Each channel holds as many batches as a link may, the links as many as that all together. Rounds
//! alternate; given are medians, with the middle half of all rounds.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use gegendruck::{
    Checkpoint, Committed, Group, Grouping, Item, Lines, Options, Pipeline, Position, Read,
    Records, Room, Sink, SinkContext, SinkError, Source, SourceBatch, SourceError, Span, Tally,
};
use tokio::time::Instant;

type Record = [u8; 64];

const BATCH: u64 = 256;
const BATCHES: u64 = 4_096;
const RECORDS: u64 = BATCH * BATCHES;
const WINDOW: u64 = 2_048;
/// What a link asks for at a time: a quarter of its buffer, as by default.
const REQUEST: u64 = WINDOW / 4;
const ROUNDS: usize = 31;

fn position(n: u64) -> Position {
    Position { input: 0, byte: 65 * n, record: n + 1, line: n + 2 }
}

/// Vectors that came through and can be filled again: what the allocator makes of memory that is freed on another thread is
/// not what is measured.
static CAME_THROUGH: Mutex<Vec<Vec<Item<Record>>>> = Mutex::new(Vec::new());

fn items(from: u64) -> Vec<Item<Record>> {
    let mut items = CAME_THROUGH.lock().expect("no panic").pop().unwrap_or_default();
    items.clear();
    items.extend((from..from + BATCH).map(|n| Item {
        at: position(n),
        len: 64,
        value: [n as u8; 64],
    }));
    items
}

fn came_through(items: Vec<Item<Record>>) {
    CAME_THROUGH.lock().expect("no panic").push(black_box(items));
}

struct Numbers(u64);

impl Source for Numbers {
    type Item = Record;
    async fn read(&mut self, room: Room) -> Result<Read<Record>, SourceError> {
        assert!(room.records.0 >= BATCH, "asked for in whole batches");
        if self.0 == RECORDS {
            return Ok(Read::End);
        }
        let (start, items) = (position(self.0), items(self.0));
        self.0 += BATCH;
        let at = position(self.0);
        let lines = Lines::default();
        let checkpoint = Checkpoint { at, fingerprint: 0, lines, complete: self.0 == RECORDS };
        let span = Span { start, end: at };
        Ok(Read::Batch(SourceBatch { span, items, rejects: vec![], block: None, checkpoint }))
    }
}

struct Discard;

impl Sink<Record> for Discard {
    async fn commit(
        &mut self,
        group: Group<Record>,
        _: &SinkContext,
    ) -> Result<Committed, SinkError> {
        let records = group.amount.records;
        came_through(group.items);
        Ok(Committed {
            tally: Tally { read: records, stored: records, ..Tally::default() },
            stop: None,
        })
    }
}

#[derive(Clone, Copy)]
enum Boundary {
    HandOn,
    Pass,
    Map,
}

async fn links(boundaries: usize, boundary: Boundary) -> Duration {
    use gegendruck::{Buffer, filter, hand_on, map};
    let window = Buffer::Records(Records(WINDOW));
    let mut pipeline = Pipeline::new("boundaries").source(Numbers(0));
    for n in 0..boundaries {
        let name = format!("stage{n}");
        pipeline = match boundary {
            Boundary::HandOn => pipeline.stage(name, hand_on().buffer(WINDOW).request(REQUEST)),
            Boundary::Pass => {
                let pass = filter("none", |record: &Record| record[63] == record[0]);
                pipeline.stage(name, pass.buffer(WINDOW).request(REQUEST))
            }
            Boundary::Map => {
                pipeline.stage(name, map(|record: Record| record).buffer(WINDOW).request(REQUEST))
            }
        };
    }
    let runnable = pipeline
        .sink("store", Discard)
        .grouping(Grouping { records: Records(BATCH), ..Grouping::default() });
    let options = Options {
        batch: Records(BATCH),
        buffer: [("store".to_string(), window)].into(),
        request: [("store".to_string(), Records(REQUEST))].into(),
        ..Options::default()
    };
    let start = Instant::now();
    let outcome = runnable.run(options).await.expect("the settings work together");
    let took = start.elapsed();
    assert_eq!(outcome.tally.stored, RECORDS, "{:?}", outcome.end);
    took
}

fn looked_at(items: &[Item<Record>]) -> bool {
    items.iter().all(|item| item.value[63] == item.value[0])
}

async fn channels(boundaries: usize, look: bool) -> Duration {
    use tokio::sync::mpsc::channel;
    type Batch = (Span, Vec<Item<Record>>);
    let start = Instant::now();
    let (first, mut last) = channel::<Batch>((WINDOW / BATCH) as usize);
    let mut tasks = vec![tokio::spawn(async move {
        for n in 0..BATCHES {
            let span = Span { start: position(n * BATCH), end: position((n + 1) * BATCH) };
            first.send((span, items(n * BATCH))).await.expect("somebody takes it");
        }
    })];
    for _ in 0..boundaries {
        let (sender, receiver) = channel((WINDOW / BATCH) as usize);
        let mut before = std::mem::replace(&mut last, receiver);
        tasks.push(tokio::spawn(async move {
            while let Some(batch) = before.recv().await {
                assert!(!look || looked_at(&batch.1));
                sender.send(batch).await.expect("somebody takes it");
            }
        }));
    }
    let records = tokio::spawn(async move {
        let mut records = 0;
        while let Some((span, items)) = last.recv().await {
            records += span.records();
            came_through(items);
        }
        records
    });
    assert_eq!(records.await.expect("it does not panic"), RECORDS);
    for task in tasks {
        task.await.expect("it does not panic");
    }
    start.elapsed()
}

const LABELS: [&str; 5] =
    ["links, hand on", "mpsc, hand on", "links, look", "mpsc, look", "links, map"];

fn quartiles(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    (at(0.25), at(0.5), at(0.75))
}

fn measure(name: &str, runtime: &tokio::runtime::Runtime, only: &str) {
    let mut slopes = [const { Vec::new() }; 5];
    let mut whole = [const { Vec::new() }; 5];
    for round in 0..ROUNDS + 2 {
        for (which, slopes) in slopes.iter_mut().enumerate() {
            if !LABELS[which].contains(only) {
                continue;
            }
            let run = |boundaries| {
                let took = runtime.block_on(async move {
                    let run = async move {
                        match which {
                            0 => links(boundaries, Boundary::HandOn).await,
                            1 => channels(boundaries, false).await,
                            2 => links(boundaries, Boundary::Pass).await,
                            3 => channels(boundaries, true).await,
                            _ => links(boundaries, Boundary::Map).await,
                        }
                    };
                    tokio::spawn(run).await.expect("it does not panic")
                });
                took.as_nanos() as f64 / RECORDS as f64
            };
            let (five, one) = if round % 2 == 0 {
                (run(5), run(1))
            } else {
                let one = run(1);
                (run(5), one)
            };
            if round >= 2 {
                slopes.push((five - one) / 4.0);
                whole[which].push(one);
            }
        }
    }
    println!("{name}: ns a record and boundary (and for the whole run with one boundary)");
    for (label, (slopes, whole)) in LABELS.iter().zip(slopes.into_iter().zip(whole)) {
        if slopes.is_empty() {
            continue;
        }
        let (low, median, high) = quartiles(slopes);
        let (_, whole, _) = quartiles(whole);
        println!("  {label:14} {median:6.2}  [{low:5.2} .. {high:5.2}]   ({whole:5.1})");
    }
}

fn main() {
    // Cargo adds `--bench`.
    let only = std::env::args().skip(1).find(|arg| arg != "--bench").unwrap_or_default();
    let mut several = tokio::runtime::Builder::new_multi_thread();
    let mut one = tokio::runtime::Builder::new_current_thread();
    measure(
        "2 threads",
        &several.worker_threads(2).enable_time().build().expect("a runtime"),
        &only,
    );
    measure("1 thread", &one.enable_time().build().expect("a runtime"), &only);
}
