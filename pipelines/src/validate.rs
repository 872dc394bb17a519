//! `nightly-import validate`: every fault that the first stages find, without target or service.
//!
//! It reads through the same source, link by link, as a run does; only the sink is another one: it counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use gegendruck::{
    Committed, End, Group, Options, Pipeline, Position, Reason, Records, Room, Sink, SinkContext,
    SinkError, Source, SourceError, Tally, thousands,
};
use gegendruck_stages::csv::{CsvInput, Dialect, Empty};
use gegendruck_stages::value::Formats;
use serde_json::json;

use crate::cli::{RunArgs, ValidateArgs};
use crate::dialect::{dialect, formats};
use crate::exit::{Exit, Refused};
use crate::imports::Import;
use crate::run::{empty, from_the_beginning, open_source, regular_files};

/// Positions that are shown of each kind.
const EXAMPLES: usize = 3;

/// One kind of fault.
#[derive(Clone, Debug, Default)]
struct Kind {
    count: u64,
    examples: Vec<(Position, Option<u64>)>,
}

/// Counts faults by column and kind.
#[derive(Default)]
struct Counting {
    records: u64,
    faulty: u64,
    first: Option<(Position, Reason)>,
    kinds: BTreeMap<(Option<String>, String), Kind>,
}

impl Counting {
    fn fault(&mut self, at: Position, reason: Reason) {
        let kind = self
            .kinds
            .entry((reason.column.as_deref().map(Into::into), reason.kind.to_string()))
            .or_default();
        kind.count += 1;
        if kind.examples.len() < EXAMPLES {
            kind.examples.push((at, reason.byte));
        }
        if self.first.as_ref().is_none_or(|(first, _)| at < *first) {
            self.first = Some((at, reason));
        }
    }
}

impl Sink<Vec<Reason>> for Counting {
    async fn commit(
        &mut self,
        group: Group<Vec<Reason>>,
        _: &SinkContext,
    ) -> Result<Committed, SinkError> {
        let tally = Tally {
            read: group.amount.records,
            stored: group.records_with_items(),
            rejected: group.rejects.len() as u64,
            ..Tally::default()
        };
        self.records += tally.read;
        for reject in group.rejects {
            self.faulty += 1;
            self.fault(reject.at, reject.reason);
        }
        for item in group.items {
            self.faulty += u64::from(!item.value.is_empty());
            for reason in item.value {
                self.fault(item.at, reason);
            }
        }
        Ok(Committed { tally, stop: None })
    }
}

async fn count<I: Import>(
    source: impl Source<Item = I::Raw>,
    formats: Arc<Formats>,
) -> Result<Counting, Refused> {
    let outcome = Pipeline::new(I::NAME)
        .source(source)
        .map("validate", move |raw: I::Raw| I::faults(&raw, &formats))
        .sink("count", Counting::default())
        .run(Options::default())
        .await
        .map_err(|error| Refused::usage(error.to_string()))?;
    match (outcome.end, outcome.sink) {
        (End::Complete, Some(counted)) => Ok(counted),
        (End::Failed(error), _) => Err(Refused::failed(crate::run::with_cause(&error))),
        (end, _) => Err(Refused::new(Exit::Internal, format!("validation ended early: {end:?}"))),
    }
}

/// Prints every kind of fault with how often it occurs and where it occurs first.
///
/// # Errors
/// The input cannot be read.
pub async fn validate<I: Import>(arguments: &ValidateArgs) -> Result<Exit, Refused> {
    let dialect = dialect(&arguments.dialect)?;
    let formats = Arc::new(formats(&arguments.values)?);
    let paths = regular_files(&arguments.inputs)?;
    let inputs = from_the_beginning(&paths);
    let source = open_source::<I>(inputs, &dialect, &arguments.dialect, Empty::Allowed).await?;
    let counted = count::<I>(source, formats).await?;
    let file = |at: &Position| paths[at.input as usize].display().to_string();
    if arguments.json {
        let kinds: Vec<_> = counted
            .kinds
            .iter()
            .map(|((column, kind), found)| {
                let examples: Vec<_> = found
                    .examples
                    .iter()
                    .map(|(at, byte)| json!({"file": file(at), "record": at.record, "line": at.line, "byte": at.byte + byte.unwrap_or(0)}))
                    .collect();
                json!({"column": column, "kind": kind, "count": found.count, "examples": examples})
            })
            .collect();
        let document = json!({"schema": 1, "records": counted.records, "faulty": counted.faulty, "faults": kinds});
        crate::print(&format!("{document:#}\n"));
    } else {
        let mut text = format!(
            "{}, {} without a fault, {} with at least one\n",
            crate::summary::counted(counted.records, "record"),
            thousands(counted.records - counted.faulty),
            thousands(counted.faulty)
        );
        let mut kinds: Vec<_> = counted.kinds.iter().collect();
        kinds.sort_by_key(|(_, found)| std::cmp::Reverse(found.count));
        for ((column, kind), found) in kinds {
            let column = column.as_deref().unwrap_or("-");
            let at = |(at, _): &(Position, Option<u64>)| match paths.len() {
                1 => format!("line {}", at.line),
                _ => format!("{} line {}", file(at), at.line),
            };
            let examples = found.examples.iter().map(at).collect::<Vec<_>>().join(", ");
            text.push_str(&format!(
                "{:>9}  {column:18} {kind:24} {examples}\n",
                thousands(found.count)
            ));
        }
        crate::print(&text);
    }
    Ok(if counted.faulty == 0 { Exit::Complete } else { Exit::Rejects })
}

/// Tries the first `most` records of the inputs: how many were read, how many are faulty, and the first fault.
///
/// # Errors
/// The input cannot be read.
pub async fn first_records<I: Import>(
    inputs: Vec<CsvInput>,
    dialect: &Dialect,
    arguments: &RunArgs,
    formats: Arc<Formats>,
    most: u64,
) -> Result<(u64, u64, Option<String>), Refused> {
    let source = open_source::<I>(inputs, dialect, &arguments.dialect, empty(arguments)).await?;
    let counted = count::<I>(First { source, left: most }, formats).await?;
    Ok((
        counted.records,
        counted.faulty,
        counted.first.map(|(at, reason)| format!("{at}: {reason}")),
    ))
}

/// The first records of a source.
struct First<S> {
    source: S,
    left: u64,
}

impl<S: Source> Source for First<S> {
    type Item = S::Item;

    async fn read(&mut self, room: Room) -> Result<gegendruck::Read<S::Item>, SourceError> {
        if self.left == 0 {
            return Ok(gegendruck::Read::End);
        }
        let room = Room { records: Records(room.records.0.min(self.left)), ..room };
        let read = self.source.read(room).await?;
        if let gegendruck::Read::Batch(batch) = &read {
            self.left -= batch.amount().records;
        }
        Ok(read)
    }
}
