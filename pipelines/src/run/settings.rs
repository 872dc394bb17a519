//! What the settings of a run mean, and which cannot work.

use std::path::{Path, PathBuf};

use gegendruck::{Grouping, Options, Plan, Planned, Records, StageKind};
use gegendruck_checkpoints::{PipelineIdentity, Target};
use gegendruck_stages::csv::FromFields;
use gegendruck_stages::sql::{Conflict, MaxErrors, MaxErrorsError};
use gegendruck_stages::value::Row;

use crate::cli::{OnConflict, RunArgs};
use crate::dialect::{describe_dialect, describe_mapping, formats};
use crate::exit::Refused;
use crate::imports::Import;
use crate::outputs::{Kind, is_same, refuse_clash};
use crate::summary::Summary;

/// Refuses settings that cannot work, each alone or together, and those that would do nothing.
pub(super) fn settings_work<I: Import>(arguments: &RunArgs) -> Result<Plan, Refused> {
    formats(&arguments.values)?;
    max_errors(arguments)?;
    can_be_a_table(&table::<I>(arguments))?;
    if arguments.output.quiet && arguments.output.verbose {
        return Err(Refused::usage("--quiet and --verbose contradict each other; leave one out"));
    }
    if let Some(text) = &arguments.as_of
        && text.parse::<jiff::civil::Date>().is_err()
    {
        return Err(Refused::usage(format!(
            "--as-of {text}: is no date; give one such as 2026-11-30"
        )));
    }
    let plan = |options: &Options| {
        crate::plan::stages::<I>(options).map_err(|error| Refused::usage(error.to_string()))
    };
    let mut options = options::<I>(arguments);
    let rates = std::mem::take(&mut options.rate);
    let stages = plan(&options)?.stages;
    let is = |kind: StageKind| move |stage: &&Planned| stage.kind == kind;
    let calling: Vec<_> =
        stages.iter().filter(is(StageKind::Call)).map(|stage| stage.name.as_str()).collect();
    if let Some((stage, _)) =
        arguments.rate.iter().find(|(stage, _)| !calling.contains(&stage.as_str()))
    {
        let known = match calling.as_slice() {
            [] => format!("no stage of {} does", I::NAME),
            some => format!("give it for {}", some.join(", ")),
        };
        return Err(Refused::usage(format!(
            "--rate {stage}: {stage} calls nobody, so there is nothing to limit; {known}"
        )));
    }
    if arguments.trace_calls.is_some() && calling.is_empty() {
        return Err(Refused::usage(format!(
            "--trace-calls: no stage of {} calls anybody; leave it out",
            I::NAME
        )));
    }
    trace_can_be_written(arguments)?;
    let source = stages.iter().find(is(StageKind::Source)).map(|stage| stage.name.as_str());
    let buffered = arguments.buffer.iter().map(|(stage, _)| ("buffer", stage));
    let requested = arguments.request.iter().map(|(stage, _)| ("request", stage));
    if let Some((flag, stage)) =
        buffered.chain(requested).find(|(_, stage)| source == Some(stage.as_str()))
    {
        return Err(Refused::usage(format!(
            "--{flag} {stage}: {stage} has no input; give it for a stage behind it"
        )));
    }
    plan(&Options { rate: rates, ..options })
}

/// Refuses names that SQLite keeps for itself, and those of the ledger's tables.
fn can_be_a_table(name: &str) -> Result<(), Refused> {
    let what = if name.trim().is_empty() {
        "is no name"
    } else if ["sqlite_", "gegendruck_"]
        .iter()
        .any(|kept| name.get(..kept.len()).is_some_and(|start| start.eq_ignore_ascii_case(kept)))
    {
        "is kept for tables of SQLite and of the ledger"
    } else {
        return Ok(());
    };
    Err(Refused::usage(format!("--table {name:?}: {what}; name another table")))
}

/// Refuses a path for the summary before there is one to write.
pub(crate) fn summary_can_be_written(arguments: &RunArgs) -> Result<(), Refused> {
    let Some(path) = arguments.output.summary.as_deref() else { return Ok(()) };
    is_no_other_file("--summary", path, arguments)?;
    if let Some(trace) = arguments.trace_calls.as_deref().filter(|trace| is_same(path, trace)) {
        let (path, trace) = (path.display(), trace.display());
        let words = format!("--summary {path} and --trace-calls {trace} name one file; name two");
        return Err(Refused::usage(words));
    }
    Summary::can_be_at(path)
}

/// Refuses a path for the trace that is something else.
fn trace_can_be_written(arguments: &RunArgs) -> Result<(), Refused> {
    const FLAG: &str = "--trace-calls";
    let Some(path) = arguments.trace_calls.as_deref() else { return Ok(()) };
    is_no_other_file(FLAG, path, arguments)?;
    let refused = |what| Refused::usage(format!("{FLAG} {}: {what}", path.display()));
    Kind::Trace.may_be_at(path).map_err(refused)
}

/// Refuses to write to what a run with these arguments reads, or to its target.
fn is_no_other_file(flag: &str, path: &Path, arguments: &RunArgs) -> Result<(), Refused> {
    // A target that is none is refused by itself.
    let target = Target::parse(&arguments.target.to).ok();
    let inputs = arguments.inputs.iter().map(PathBuf::as_path);
    refuse_clash(flag, path, inputs, target.as_ref())
}

pub(super) fn max_errors(arguments: &RunArgs) -> Result<MaxErrors, Refused> {
    let Some(text) = &arguments.max_errors else { return Ok(MaxErrors::default()) };
    text.parse().map_err(|error: MaxErrorsError| Refused::usage(format!("--max-errors: {error}")))
}

/// The target that the arguments name.
///
/// # Errors
/// It is none, or is missing and may not be created.
pub fn target(arguments: &RunArgs) -> Result<Target, Refused> {
    let target =
        Target::parse(&arguments.target.to).map_err(|error| Refused::usage(error.to_string()))?;
    if arguments.no_create && !target.exists() {
        return Err(forbidden(&target, "there is no such database", "create"));
    }
    Ok(target)
}

/// Refuses what `--no-create` forbids: to create or upgrade what the target lacks.
pub(super) fn forbidden(target: &Target, lacks: &str, change: &str) -> Refused {
    let path = target.path().display();
    Refused::usage(format!(
        "{path}: {lacks}, and --no-create forbids to {change} it; nightly-import ledger ddl prints the tables for somebody who may"
    ))
}

/// The table that rows go to.
pub fn table<I: Import>(arguments: &RunArgs) -> String {
    arguments.table.clone().unwrap_or_else(|| I::Row::TABLE.name.to_string())
}

/// What an import does with its inputs, as far as a run that is gone on with must agree with it.
pub fn identity<I: Import>(arguments: &RunArgs) -> PipelineIdentity {
    PipelineIdentity {
        pipeline: I::NAME.into(),
        rules: I::RULES,
        table: table::<I>(arguments),
        dialect: describe_dialect(&arguments.dialect),
        mapping: describe_mapping(I::Raw::COLUMNS, &arguments.dialect, &arguments.values),
        conflict: conflict::<I>(arguments).as_str().into(),
    }
}

pub(super) fn conflict<I: Import>(arguments: &RunArgs) -> Conflict {
    match arguments.on_conflict.unwrap_or(I::ON_CONFLICT) {
        OnConflict::Error => Conflict::Error,
        OnConflict::Skip => Conflict::Skip,
        OnConflict::Update => Conflict::Update,
    }
}

/// The settings of the runtime that the arguments describe.
///
/// A transaction ends where the source handed out a batch's end, and a call that takes parts of several batches joins them. So
/// that no transaction is larger than was asked for, its size is a multiple of the source's batches, and no call takes more.
pub fn options<I: Import>(arguments: &RunArgs) -> Options {
    let Options { batch, .. } = Options::default();
    let parts = arguments.batch_size.div_ceil(batch.0).max(1);
    let batch = Records((arguments.batch_size / parts).max(1));
    let mut options = Options {
        batch,
        workers: arguments.workers.iter().cloned().collect(),
        buffer: arguments.buffer.iter().cloned().collect(),
        request: arguments.request.iter().map(|(stage, n)| (stage.clone(), Records(*n))).collect(),
        rate: arguments.rate.iter().cloned().collect(),
        memory: Some(arguments.memory),
        grouping: Some(Grouping {
            records: Records(arguments.batch_size),
            bytes: gegendruck::Bytes(arguments.batch_bytes.0.min(arguments.memory.0)),
            interval: arguments.commit_interval,
        }),
        ..Options::default()
    };
    let stages = crate::plan::stages::<I>(&options).map(|plan| plan.stages).unwrap_or_default();
    for stage in stages {
        let most = usize::try_from(arguments.batch_size).unwrap_or(usize::MAX).max(1);
        if stage.settings.claim.is_some_and(|claim| claim > most) {
            options.claim.insert(stage.name, most);
        }
    }
    options
}
