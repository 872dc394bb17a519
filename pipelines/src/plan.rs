//! `nightly-import plan`: what a run would be, without writing anything.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gegendruck::{Amount, Buffer, Bytes, Grouping, Pipeline, Plan, Records, StreamSource};
use gegendruck_checkpoints::{Decision, Ledger, LockError, Target, Trouble};

use crate::cli::{RunArgs, Settings};
use crate::exit::{Exit, Refused};
use crate::imports::{Context, Import};
use crate::run::{
    FoundTarget, Inputs, already_done, decide, form, left_out, lock_refused, look, look_at_target,
    summary_can_be_written, table,
};
use crate::summary::counted;

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
    let mut looked = look::<I>(arguments).await?;
    looked.target = looked.target.leaving_nothing();
    let target = &looked.target;
    may_be_locked(target)?;
    let FoundTarget { ledger, missing, contracts } =
        look_at_target::<I>(arguments, &looked).await?;
    let older = ledger.as_ref().is_some_and(Ledger::is_older);
    let decision = match ledger {
        None => None,
        Some(mut ledger) => {
            let paths = &looked.inputs.paths;
            Some(decide::<I>(arguments, &looked.dialect, &mut ledger, paths).await?)
        }
    };
    if !matches!(decision, Some(Decision::AlreadyDone(_))) {
        may_be_written(target)?;
    }
    let what = match decision {
        None if target.exists() => "a ledger would be created".into(),
        None => "a new database would be created".into(),
        Some(Decision::New { .. }) => "a new run would begin".into(),
        Some(Decision::GoOn(run)) => format!("run {} would go on", run.run),
        Some(Decision::AlreadyDone(done)) => already_done(&done),
    };
    let mut text = describe_inputs(&looked.inputs);
    let shown = target.path().display();
    text.push_str(&format!("target  sqlite:{shown}, table {}: {what}\n", table::<I>(arguments)));
    if !missing.is_empty() {
        text.push_str(&format!("tables  would be created: {}\n", missing.join(", ")));
    }
    if older {
        text.push_str("ledger  is of an older version and would be upgraded\n");
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

/// Refuses a database that is there and may not be written, or not have SQLite's own files beside it.
fn may_be_written(target: &Target) -> Result<(), Refused> {
    let folder = target.path().parent().unwrap_or(Path::new("/"));
    if may_write(target.path()) && may_write(folder) {
        return Ok(());
    }
    Err(Refused::usage(format!("{}: {}", target.path().display(), Trouble::ReadOnly)))
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
        let columns = opening.header().names().len();
        text.push_str(&format!(
            "input   {shown}: {}, {columns} columns, {}\n",
            counted(bytes, "byte"),
            form(path, opening)
        ));
    }
    for (first, other) in &inputs.twins {
        text.push_str(&format!("input   {}\n", left_out(first, other)));
    }
    text
}

/// Stages and bounds for a reader.
fn describe(plan: &Plan) -> String {
    let mut text = String::from("stage       workers  claim    buffer, most             request\n");
    for stage in &plan.stages {
        let settings = &stage.settings;
        let claim = settings.claim.map_or("batch".into(), |claim| claim.to_string());
        let buffer = match settings.buffer {
            Buffer::Records(most) => format!("{} or {}", records(most), settings.buffer_bytes),
            Buffer::Time { time, most } => {
                let time = if time.is_zero() { "0 s".into() } else { gegendruck::time(time) };
                let most = records(most);
                format!("{time}, at most {most} or {}", settings.buffer_bytes)
            }
        };
        if stage.kind == gegendruck::StageKind::Source {
            text.push_str(&format!(
                "{:10}  {:>7}  at most {} in one batch\n",
                stage.name,
                1,
                records(plan.batch)
            ));
        } else {
            text.push_str(&format!(
                "{:10}  {:>7}  {claim:>5}    {buffer:24} {}\n",
                stage.name, settings.workers, settings.request.0
            ));
        }
    }
    let Grouping { records: most, bytes, interval } = plan.grouping;
    let wait = if interval.is_zero() {
        "or as soon as nothing more has come".into()
    } else {
        format!("at the latest after {}", gegendruck::time(interval))
    };
    text.push_str(&format!("commit  every {} or {bytes}, {wait}\n", records(most)));
    text.push_str(&format!("bound   {}\n", bound(plan)));
    text
}

/// The most that a run has read and not committed, at every instant.
pub(crate) fn bound(plan: &Plan) -> String {
    let Amount { records, bytes } = plan.in_flight;
    let records = counted(records, "record");
    format!("never more than {records} and {} read and not committed", Bytes(bytes))
}

fn records(records: Records) -> String {
    counted(records.0, "record")
}
