//! `nightly-import plan`: what a run would be, without writing anything.

use gegendruck::{Buffer, Pipeline, Plan, StreamSource, thousands};
use gegendruck_checkpoints::{Accept, Decision, Ledger, LedgerError, Target};
use gegendruck_stages::csv::CsvSource;
use gegendruck_stages::sql::check_table;
use gegendruck_stages::value::Row;

use crate::cli::RunArgs;
use crate::dialect::{dialect, formats};
use crate::exit::{Exit, Refused};
use crate::imports::{Context, Import};
use crate::run::{
    csv_refused, empty, from_the_beginning, identity, options, refused, regular_files, table,
    target,
};

/// The stages of an import with the settings that they would run with.
///
/// # Errors
/// Settings that cannot work.
pub fn stages<I: Import>(options: &gegendruck::Options) -> Result<Plan, gegendruck::BuildError> {
    let nothing = futures::stream::empty::<I::Raw>();
    let target = Target::parse("sqlite:plan.db").expect("the path is valid");
    let context = Context { target, formats: Default::default(), trace: None };
    let pipeline = I::stages(Pipeline::new(I::NAME).source(StreamSource::new(nothing)), &context);
    pipeline.sink("store", Unused::<I::Row>(std::marker::PhantomData)).plan(options)
}

/// A sink that is never given anything.
struct Unused<T>(std::marker::PhantomData<fn() -> T>);

impl<T: Send + 'static> gegendruck::Sink<T> for Unused<T> {
    async fn commit(
        &mut self,
        _: gegendruck::Group<T>,
        _: &gegendruck::SinkContext,
    ) -> Result<gegendruck::Committed, gegendruck::SinkError> {
        Err(gegendruck::SinkError::Target("a plan stores nothing".into()))
    }
}

/// The names of an import's stages.
pub fn stage_names<I: Import>() -> Vec<String> {
    let plan = stages::<I>(&gegendruck::Options::default());
    plan.map(|plan| plan.stages.into_iter().map(|stage| stage.name).collect()).unwrap_or_default()
}

/// Checks inputs and target and prints stages and bounds. Writes nothing.
///
/// # Errors
/// What would keep a run from starting.
pub async fn plan<I: Import>(arguments: &RunArgs) -> Result<Exit, Refused> {
    let dialect = dialect(&arguments.dialect)?;
    formats(&arguments.values)?;
    let plan =
        stages::<I>(&options::<I>(arguments)).map_err(|error| Refused::usage(error.to_string()))?;
    let paths = regular_files(&arguments.inputs)?;
    let inputs = from_the_beginning(&paths);
    let ignored = &arguments.dialect.ignore_columns;
    let source = CsvSource::<I::Raw>::open(inputs, &dialect, ignored, empty(arguments))
        .await
        .map_err(|error| csv_refused(&error))?;
    let target = target(arguments)?;
    let mut text = String::new();
    for (path, opening) in source.openings() {
        let bytes = std::fs::metadata(path).map(|metadata| metadata.len()).unwrap_or(0);
        let bom = if opening.has_bom() { ", byte order mark" } else { "" };
        let columns = opening.header().names().len();
        let line_end = opening.line_end();
        text.push_str(&format!(
            "input   {}: {} bytes, {columns} columns, lines end with {line_end}{bom}\n",
            path.display(),
            thousands(bytes)
        ));
    }
    text.push_str(&look_at_target::<I>(arguments, &target, &paths).await?);
    text.push_str(&describe(&plan));
    crate::print(&text);
    Ok(Exit::Complete)
}

async fn look_at_target<I: Import>(
    arguments: &RunArgs,
    target: &Target,
    paths: &[std::path::PathBuf],
) -> Result<String, Refused> {
    let name = table::<I>(arguments);
    let shown = target.path().display();
    let mut ledger = match Ledger::read(target).await {
        Ok(ledger) => ledger,
        Err(LedgerError::Missing { .. }) => {
            let folder = target.path().parent().unwrap_or(std::path::Path::new("/"));
            let writable = std::fs::metadata(folder)
                .map(|metadata| !metadata.permissions().readonly())
                .unwrap_or(false);
            if !writable {
                return Err(Refused::usage(format!(
                    "{}: may not be written; nothing can be created there",
                    folder.display()
                )));
            }
            return Ok(format!("target  sqlite:{shown}: new, table {name} would be created\n"));
        }
        Err(error) => return Err(refused(error)),
    };
    check_table(target, &I::Row::TABLE, &name)
        .await
        .map_err(|error| Refused::usage(error.to_string()))?;
    let accept = Accept { grown: arguments.accept_grown, changed: arguments.accept_changed };
    let decision = ledger.look_up(&identity::<I>(arguments), paths, accept).await;
    let what = match decision {
        Ok(Decision::New { .. }) => "a new run would begin".to_string(),
        Ok(Decision::GoOn(run)) => format!("run {} would go on", run.run),
        Ok(Decision::AlreadyDone(done)) => {
            let run = done.first().map_or("an earlier run", |done| done.run.as_str());
            format!("already done by {run}")
        }
        Err(error) => return Err(Refused::new(Exit::Mismatch, error.to_string())),
    };
    Ok(format!("target  sqlite:{shown}, table {name}: {what}\n"))
}

/// Stages and bounds for a reader.
fn describe(plan: &Plan) -> String {
    let mut text = String::from("stage       workers  claim    buffer, most         request\n");
    for stage in &plan.stages {
        let settings = &stage.settings;
        let claim = settings.claim.map_or("batch".into(), |claim| claim.to_string());
        let buffer = match settings.buffer {
            Buffer::Records(records) => format!("{} or {}", records, settings.buffer_bytes),
            Buffer::Time { time, most } => {
                format!("{time:?}, at most {most} or {}", settings.buffer_bytes)
            }
        };
        if stage.kind == gegendruck::StageKind::Source {
            text.push_str(&format!(
                "{:10}  {:>7}  at most {} in one batch\n",
                stage.name, 1, plan.batch
            ));
        } else {
            text.push_str(&format!(
                "{:10}  {:>7}  {claim:>5}    {buffer:20} {}\n",
                stage.name, settings.workers, settings.request.0
            ));
        }
    }
    let bound = plan.in_flight;
    text.push_str(&format!(
        "commit  every {} or {}, at the latest after {:?}\n",
        plan.grouping.records, plan.grouping.bytes, plan.grouping.interval
    ));
    text.push_str(&format!(
        "bound   never more than {} records and {} read and not committed\n",
        thousands(bound.records),
        gegendruck::Bytes(bound.bytes)
    ));
    text
}
