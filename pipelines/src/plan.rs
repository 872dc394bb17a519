//! `nightly-import plan`: what a run would be, without writing anything.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gegendruck::{Buffer, Pipeline, Plan, StreamSource, thousands};
use gegendruck_checkpoints::{Decision, LockError, Target, Trouble};

use crate::cli::{RunArgs, Settings};
use crate::exit::{Exit, Refused};
use crate::imports::{Context, Import};
use crate::run::{
    FoundTarget, Inputs, decide, left_out, lock_refused, look, look_at_target,
    summary_can_be_written, table,
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

/// Checks inputs and target as a run does, and prints stages, bounds and settings. Writes nothing.
///
/// # Errors
/// What would keep a run from starting.
pub async fn plan<I: Import>(arguments: &RunArgs, settings: &Settings) -> Result<Exit, Refused> {
    summary_can_be_written(arguments)?;
    let looked = look::<I>(arguments).await?;
    let target = &looked.target;
    may_be_locked(target)?;
    let FoundTarget { ledger, missing, contracts } =
        look_at_target::<I>(arguments, &looked).await?;
    let what = match ledger {
        None if target.exists() => "a ledger would be created".into(),
        None => "a new database would be created".into(),
        Some(mut ledger) => {
            let paths = &looked.inputs.paths;
            let decision = decide::<I>(arguments, &looked.dialect, &mut ledger, paths).await?;
            if !matches!(decision, Decision::AlreadyDone(_)) && !may_write(target.path()) {
                let words = format!("{}: {}", target.path().display(), Trouble::ReadOnly);
                return Err(Refused::usage(words));
            }
            match decision {
                Decision::New { .. } => "a new run would begin".into(),
                Decision::GoOn(run) => format!("run {} would go on", run.run),
                Decision::AlreadyDone(done) => {
                    let runs: BTreeSet<&str> = done.iter().map(|done| done.run.as_str()).collect();
                    let runs: Vec<_> = runs.into_iter().collect();
                    format!("already done by run {}", runs.join(", "))
                }
            }
        }
    };
    let mut text = describe_inputs(&looked.inputs);
    let shown = target.path().display();
    text.push_str(&format!("target  sqlite:{shown}, table {}: {what}\n", table::<I>(arguments)));
    if !missing.is_empty() {
        text.push_str(&format!("tables  would be created: {}\n", missing.join(", ")));
    }
    if let Some(contracts) = contracts {
        text.push_str(&format!("before  {} would be imported first\n", contracts.display()));
    }
    text.push_str(&describe(&looked.plan));
    for (name, setting) in settings.0.iter().filter(|(_, setting)| setting.from != "default") {
        text.push_str(&format!("setting {name} = {} (from {})\n", setting.value, setting.from));
    }
    crate::print(&text);
    Ok(Exit::Complete)
}

/// Refuses a target that a run may not lock.
fn may_be_locked(target: &Target) -> Result<(), Refused> {
    let path = target.lock_path();
    let folder = target.path().parent().unwrap_or(Path::new("/"));
    if may_write(if path.exists() { &path } else { folder }) {
        return Ok(());
    }
    let source = std::io::Error::from_raw_os_error(PERMISSION_DENIED);
    Err(lock_refused(&LockError::File { path, source }))
}

/// `EACCES`.
const PERMISSION_DENIED: i32 = 13;

/// False if this user may not write there, as far as owner and mode tell: nothing is tried. Which others this user's groups
/// allow is not known here; they get the benefit of the doubt.
fn may_write(path: &Path) -> bool {
    let (Ok(this), Ok(found)) = (std::fs::metadata("/proc/self"), std::fs::metadata(path)) else {
        return true;
    };
    let bits = if this.uid() == found.uid() { 0o200 } else { 0o022 };
    this.uid() == 0 || found.mode() & bits != 0
}

fn describe_inputs(inputs: &Inputs) -> String {
    let mut text = String::new();
    for path in &inputs.paths {
        let shown = path.display();
        let Some((_, opening)) = inputs.openings.iter().find(|(opened, _)| opened == path) else {
            text.push_str(&format!("input   {shown}: empty\n"));
            continue;
        };
        let bytes = std::fs::metadata(path).map(|metadata| metadata.len()).unwrap_or(0);
        let bom = if opening.has_bom() { ", byte order mark" } else { "" };
        let columns = opening.header().names().len();
        let line_end = opening.line_end();
        text.push_str(&format!(
            "input   {shown}: {} bytes, {columns} columns, lines end with {line_end}{bom}\n",
            thousands(bytes)
        ));
    }
    for (first, other) in &inputs.twins {
        text.push_str(&format!("input   {}\n", left_out(first, other)));
    }
    text
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
