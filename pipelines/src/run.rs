//! `nightly-import run`: one import, from its first look at the input to the summary.
//!
//! ```text
//! settings, inputs, target --> lock --> ledger: new, go on, done, refused --> contracts first, if they are needed
//!        |                                           |                                 |
//!        v                                           v                                 v
//!  refused: nothing was created         the first records are tried                   run --> end of attempt
//! ```
//!
//! - Nothing is created before settings, inputs and target were found to be such that a run can begin. An older ledger is upgraded
//!   before it is asked what to do, and its answer may be to refuse.
//! - Whatever happens after the run has begun, its attempt is ended in the ledger with the exit code of the process.

mod inputs;
mod look;
mod reference;
mod refusals;
mod settings;
mod watch;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use gegendruck::{BuildError, End, Options, Pipeline, Report, RunError, SinkError, Tried};
use gegendruck_checkpoints::{
    Attempt, Decision, Done, Ledger, Lock, Process, ResumePoint, RunInfo, RunSpec, RunState,
    Target, Ticket,
};
use gegendruck_stages::csv::Dialect;
use gegendruck_stages::sql::{Create, SqlSink};
use jiff::{SignedDuration, Timestamp};

use crate::cli::{RunArgs, Settings};
use crate::dialect::formats;
use crate::exit::{Exit, Refused, shell_word};
use crate::imports::{Context, Import};
use crate::poison::Careful;
use crate::progress::{Level, Log};
use crate::signals::Signals;
use crate::summary::{RejectCount, Summary, counted, long_time};

pub(crate) use inputs::open_source;
pub use inputs::{csv_refused, empty, from_the_beginning, regular_files, sources};
pub use refusals::{refused, with_cause};
pub use settings::{identity, options, table, target};

pub(crate) use inputs::{Inputs, form};
pub(crate) use look::{FoundTarget, Looked, already_done, decide, left_out, look, look_at_target};
pub(crate) use refusals::lock_refused;
pub(crate) use settings::summary_can_be_written;

use inputs::named;
use look::missing_tables;
use reference::newest_contracts;
use refusals::sql_refused;
use settings::{conflict, max_errors};
use watch::{Watch, tell};

/// Runs an import and prints what it came to.
///
/// # Errors
/// It could not even begin.
pub async fn run<I: Import>(
    arguments: &RunArgs,
    settings: &Settings,
    log: &Log,
) -> Result<Exit, Refused> {
    summary_can_be_written(arguments)?;
    let mut summary = Summary::new(I::NAME, Timestamp::now());
    summary.inputs = named(&arguments.inputs);
    summary.table = table::<I>(arguments);
    let whole = AssertUnwindSafe(whole::<I>(arguments, settings, log, &mut summary));
    let ended = whole.catch_unwind().await.unwrap_or_else(|_| Err(Refused::internal()));
    let exit = exit_of(&ended, &mut summary);
    summary.ended(exit);
    log.close();
    let written = arguments.output.summary.as_ref().map_or(Ok(()), |path| summary.write(path));
    let begun = summary.run.is_some() && !summary.already_done;
    if begun {
        crate::print(&summary.to_string());
    }
    match (ended, written) {
        (Err(refused), written) if !begun => {
            tell_unwritten(log, written.err());
            Err(refused)
        }
        // What the schedulers read is missing: that must not pass for a success.
        (_, Err(unwritten)) if exit <= Exit::Rejects => Err(unwritten),
        (_, written) => {
            tell_unwritten(log, written.err());
            Ok(exit)
        }
    }
}

/// The exit code of what ended so; a refusal's words become the summary's message.
fn exit_of(ended: &Result<Exit, Refused>, summary: &mut Summary) -> Exit {
    match ended {
        Ok(exit) => *exit,
        Err(refused) => {
            summary.message = Some(refused.message.clone());
            refused.exit
        }
    }
}

fn tell_unwritten(log: &Log, unwritten: Option<Refused>) {
    if let Some(unwritten) = unwritten {
        log.line(Level::Error, &unwritten.message);
    }
}

/// All that stays the same for the imports that one command makes.
#[derive(Clone)]
struct Job<'a> {
    arguments: &'a RunArgs,
    settings: &'a Settings,
    log: &'a Log,
    dialect: Dialect,
    target: Target,
    process: Process,
    signals: Signals,
    /// What this process was asked for.
    command: String,
}

async fn whole<I: Import>(
    arguments: &RunArgs,
    settings: &Settings,
    log: &Log,
    summary: &mut Summary,
) -> Result<Exit, Refused> {
    // From here on a signal ends the run in order: nothing is left half created.
    let signals = Signals::listen()
        .map_err(|error| Refused::failed(format!("signals cannot be caught: {error}")))?;
    let target = target(arguments);
    let command =
        target.as_ref().map_or_else(|_| String::new(), |target| again(arguments, settings, target));
    let looked = unless_stopped(&signals, &command, look::<I>(arguments)).await?;
    let target = looked.target.clone().patient(arguments.retry_for);
    summary.inputs = named(&looked.inputs.paths);
    summary.target = format!("sqlite:{}", target.path().display());
    let process = Process::this(env!("CARGO_PKG_VERSION"));
    let take = || Lock::take(&target, &process).map_err(|error| lock_refused(&error));
    // Where no run was ever started, not even the lock is created before all that can be looked at was.
    let first = if target.lock_path().exists() { Some(take()?) } else { None };
    // If it cannot be done, the next look at the target says why.
    drop(target.roll_back().await);
    unless_stopped(&signals, &command, look_at_target::<I>(arguments, &looked)).await?;
    let mut lock = first.map_or_else(take, Ok)?;
    let new = !target.exists();
    let opening = async { Ledger::open(&target, I::NAME).await.map_err(refused) };
    let opening = told_of_waits(log, arguments.retry_for, opening);
    let mut ledger = unless_stopped(&signals, &command, opening).await?;
    let from: Vec<_> = summary.inputs.iter().map(|(path, _)| path.as_str()).collect();
    let note = if new { " (new database created)" } else { "" };
    log.line(
        Level::Info,
        &format!("{} -> {}{note}, table {}", from.join(", "), summary.target, summary.table),
    );
    let Looked { dialect, inputs, .. } = looked;
    for (path, opening) in &inputs.openings {
        let form = form(path, opening);
        let level = if form == "lines end with LF" { Level::Debug } else { Level::Info };
        log.line(level, &format!("{}: {form}", path.display()));
    }
    for (first, other) in &inputs.twins {
        log.line(Level::Info, &left_out(first, other));
    }
    let job = Job { arguments, settings, log, dialect, target, process, signals, command };
    let exit = job.import::<I>(inputs, &mut lock, &mut ledger, summary).await;
    drop(ledger.close().await);
    exit
}

/// What only reads, and may take long: given up when a signal comes.
async fn unless_stopped<T>(
    signals: &Signals,
    command: &str,
    reading: impl Future<Output = Result<T, Refused>>,
) -> Result<T, Refused> {
    let mut signals = signals.clone();
    tokio::select! {
        biased;
        () = signals.stop() => {
            let words = "stopped by a signal before this start stored anything; go on with";
            Err(Refused::new(Exit::Interrupted, format!("{words}: {command}")))
        }
        read = reading => read,
    }
}

/// What may wait for the database: the operator is told if it takes long.
async fn told_of_waits<T>(log: &Log, patience: Duration, waiting: impl Future<Output = T>) -> T {
    const LONG: Duration = Duration::from_secs(2);
    let mut waiting = std::pin::pin!(waiting);
    if let Ok(done) = tokio::time::timeout(LONG, &mut waiting).await {
        return done;
    }
    let words = "waiting for the database: somebody else holds it, or it is slow";
    let patience = SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX);
    log.line(Level::Warn, &format!("{words}; given up after {}", long_time(patience)));
    waiting.await
}

impl Job<'_> {
    /// One import, under the lock. Boxed, because an import may need another one first.
    fn import<'b, I: Import>(
        &'b self,
        looked: Inputs,
        lock: &'b mut Lock,
        ledger: &'b mut Ledger,
        summary: &'b mut Summary,
    ) -> LocalBoxFuture<'b, Result<Exit, Refused>> {
        Box::pin(async move {
            let Inputs { paths, header, .. } = looked;
            let deciding = decide::<I>(self.arguments, &self.dialect, ledger, &paths);
            let decision = unless_stopped(&self.signals, &self.command, deciding).await?;
            let inputs = match &decision {
                Decision::AlreadyDone(done) => {
                    summarize_done(done, ledger, summary).await;
                    return Ok(self.already_done(done));
                }
                Decision::New { inputs, skipped } => {
                    self.name_skipped(skipped);
                    inputs.clone()
                }
                Decision::GoOn(run) => {
                    self.name_skipped(&run.skipped);
                    run.inputs.clone()
                }
            };
            let before = self.contracts_first::<I>(&paths, lock, ledger).await?;
            if before > Exit::Rejects {
                return Ok(before);
            }
            let context = Context {
                target: self.target.clone(),
                formats: Arc::new(formats(&self.arguments.values)?),
                trace: self.arguments.trace_calls.clone(),
            };
            let mut settings = serde_json::to_value(self.settings).unwrap_or_default();
            if let Some(header) = header {
                settings["header"] = serde_json::json!({"value": header, "from": "input"});
            }
            let attempt = Attempt { process: self.process.clone(), settings };
            let beginning = self.begin_or_go_on::<I>(decision, &inputs, &attempt, ledger);
            let beginning = told_of_waits(self.log, self.arguments.retry_for, beginning);
            let (ticket, tried) = unless_stopped(&self.signals, &self.command, beginning).await?;
            summary.run = Some(ticket.run().into());
            self.log.set_run(ticket.run());
            drop(lock.name(ticket.run()));
            let ended = self.attempt::<I>(&inputs, tried, &context, &ticket, ledger, summary).await;
            let exit = exit_of(&ended, summary);
            Ok(self.end(exit, &ticket, ledger, summary).await)
        })
    }

    /// Begins a run with these inputs, or goes on with one, as was decided. Gives the attempts of records that are not settled.
    async fn begin_or_go_on<I: Import>(
        &self,
        decision: Decision,
        inputs: &[ResumePoint],
        attempt: &Attempt,
        ledger: &mut Ledger,
    ) -> Result<(Ticket, Vec<Tried>), Refused> {
        if let Decision::GoOn(run) = decision {
            let at = run.inputs.iter().find(|input| !input.complete).map(|input| input.at);
            let words = at.map_or("all input is committed".into(), |at| format!("at {at}"));
            self.log.line(Level::Info, &format!("going on with run {} {words}", run.run));
            run.accepted.iter().for_each(|accepted| self.log.line(Level::Warn, accepted));
            self.name_kept(&run.info);
            return ledger.go_on(&run, attempt).await.map_err(refused);
        }
        let contracts = if I::NEEDS_CONTRACTS { newest_contracts(ledger).await? } else { None };
        let spec = RunSpec {
            pipeline: identity::<I>(self.arguments),
            inputs: inputs.to_vec(),
            label: self.arguments.label.clone(),
            as_of: Some(self.arguments.as_of.clone().unwrap_or_else(today)),
            contracts_run: contracts.map(|run| run.run),
        };
        Ok((ledger.begin(&spec, attempt).await.map_err(refused)?, Vec::new()))
    }

    fn name_skipped(&self, skipped: &[Done]) {
        for done in skipped {
            self.log.line(
                Level::Info,
                &format!("{}: already imported by run {}", done.path.display(), done.run),
            );
        }
    }

    /// Names what a run keeps from its first start, where something else was given now.
    fn name_kept(&self, run: &RunInfo) {
        for (flag, given, kept) in [
            ("as-of", &self.arguments.as_of, &run.as_of),
            ("label", &self.arguments.label, &run.label),
        ] {
            if given.is_some() && given != kept {
                let kept =
                    kept.as_ref().map_or("that it has none".into(), |kept| format!("{kept:?}"));
                let words = format!("--{flag}: run {} keeps what it began with, {kept}", run.run);
                self.log.line(Level::Warn, &words);
            }
        }
    }

    fn already_done(&self, all: &[Done]) -> Exit {
        let mut worst = Exit::Complete;
        for done in all {
            let exit = Exit::from_code(i64::from(done.exit_code)).unwrap_or(Exit::Complete);
            let path = done.path.display();
            crate::print(&format!("{path}: already done by run {} ({exit})\n", done.run));
            let differences = &done.differences;
            if !differences.is_empty() {
                let words = differences.join(", ");
                self.log.line(
                    Level::Warn,
                    &format!("{path}: run {} had other settings: {words}", done.run),
                );
            }
            worst = worst.max(if done.other_path.is_some() { Exit::Complete } else { exit });
        }
        worst
    }

    /// Runs the pipeline from where the inputs are, and watches it.
    async fn attempt<I: Import>(
        &self,
        inputs: &[ResumePoint],
        tried: Vec<Tried>,
        context: &Context,
        ticket: &Ticket,
        ledger: &mut Ledger,
        summary: &mut Summary,
    ) -> Result<Exit, Refused> {
        let before = ledger.run(ticket.run()).await.map_err(refused)?;
        let sink = self.sink::<I>(ticket).await?;
        let (flags, empty) = (&self.arguments.dialect, empty(self.arguments));
        let source = open_source::<I>(sources(inputs), &self.dialect, flags, empty).await?;
        let mut options = Options { tried, ..options::<I>(self.arguments) };
        let log = self.log.clone();
        options.on_event = Arc::new(move |event| tell(&log, &event));
        let usage = |error: BuildError| Refused::usage(error.to_string());
        let careful =
            Careful::of(ledger, ticket, &self.target, self.arguments.reject_poison).await?;
        if let Some(careful) = &careful {
            let plan = crate::plan::stages::<I>(&options).map_err(usage)?;
            crate::poison::one_at_a_time(&mut options, &plan.stages);
            self.log.line(Level::Warn, &careful.words());
        }
        let source = crate::poison::Watched::new(source, careful);
        let runnable =
            I::stages(Pipeline::new(I::NAME).source(source), context).sink("store", sink);
        let plan = runnable.plan(&options).map_err(usage)?;
        self.log.line(Level::Info, &crate::plan::bound(&plan));
        let run = runnable.start(options).map_err(usage)?;
        let control = run.control();
        let watch = Watch::new(self, &before, ticket, control.clone());
        let outcome = watch.until(run.outcome()).await;
        if matches!(outcome.end, End::Stopped) {
            // Who stops a run does not wait for those who hold its database.
            ledger.hurry();
        }
        summary.report = Some(outcome.report.clone());
        summary.verdict = Some(outcome.report.verdict());
        summary.attempt = outcome.tally;
        if let Err(error) = ledger.keep_report(ticket, &outcome.report).await {
            let words = format!("the stall report could not be kept: {}", with_cause(&error));
            self.log.line(Level::Warn, &words);
        }
        let (exit, message) = exit(outcome.end, &outcome.report);
        summary.message = message;
        Ok(exit)
    }

    /// Opens what writes the rows, rejects and progress of a run. Creates its table if it is missing; the other tables when the
    /// run completes.
    async fn sink<I: Import>(&self, ticket: &Ticket) -> Result<SqlSink<I::Row>, Refused> {
        let create = if self.arguments.no_create { Create::Never } else { Create::IfMissing };
        let table = table::<I>(self.arguments);
        let mut sink = SqlSink::<I::Row>::builder(&self.target, ticket)
            .table(&table)
            .create(create)
            .on_conflict(conflict::<I>(self.arguments))
            .max_errors(max_errors(self.arguments)?)
            .retry_for(self.arguments.retry_for);
        let missing = missing_tables::<I>(self.arguments, &self.target).await?.into_iter();
        let others = missing.filter(|(_, name)| *name != table);
        let created = others.map(|(table, name)| table.sqlite_ddl(&name));
        for statement in created.chain(I::finish(&table)) {
            sink = sink.finish(statement);
        }
        sink.open().await.map_err(sql_refused)
    }

    /// Ends the attempt in the ledger and fills the summary with what the ledger says. A complete run with rejects says so in
    /// its exit code, whichever attempt they are from.
    async fn end(
        &self,
        exit: Exit,
        ticket: &Ticket,
        ledger: &mut Ledger,
        summary: &mut Summary,
    ) -> Exit {
        let info = ledger.run(ticket.run()).await;
        let rejected = info.as_ref().map_or(summary.attempt.rejected, |info| info.tally.rejected);
        let with_rejects = info
            .as_ref()
            .map_or(rejected > 0, |info| info.exit_code == Some(Exit::Rejects.code().into()));
        let exit = if exit == Exit::Complete && with_rejects { Exit::Rejects } else { exit };
        if exit == Exit::Rejects && rejected == 0 {
            let words = "contracts were rejected, and claims were judged without them; see nightly-import status";
            summary.message.get_or_insert(words.into());
        }
        let state = match exit {
            Exit::Complete | Exit::Rejects => RunState::Complete,
            Exit::Interrupted => RunState::Interrupted,
            Exit::Limit => RunState::Limit,
            _ => RunState::Failed,
        };
        if let Err(error) = ledger.end_attempt(ticket, state, i32::from(exit.code())).await {
            self.log.line(
                Level::Error,
                &format!("the end of this attempt could not be noted: {}", with_cause(&error)),
            );
        }
        if state != RunState::Complete {
            summary.go_on = Some(self.go_on(info.as_ref().ok(), ledger).await);
        }
        if let Ok(info) = info {
            fill(summary, &info, ledger).await;
        }
        if state == RunState::Complete && summary.total.read == 0 {
            let words = "warning: the input has no records";
            self.log.line(Level::Warn, "the input has no records");
            summary.message.get_or_insert(words.into());
        }
        summary.ended(exit);
        exit
    }

    /// The command that goes on with a run, as the ledger says it; if that cannot be read, the one that this process was given.
    async fn go_on(&self, run: Option<&RunInfo>, ledger: &mut Ledger) -> String {
        if let Some(run) = run
            && let Ok(attempts) = ledger.attempts(&run.run).await
        {
            return crate::status::go_on(run, &attempts, &self.target);
        }
        self.command.clone()
    }
}

/// What the way a run ended means for the exit code, and what to say about it.
fn exit(end: End, report: &Report) -> (Exit, Option<String>) {
    match end {
        End::Complete => (Exit::Complete, None),
        End::Stopped => (Exit::Interrupted, Some(stopped(report))),
        End::Ended(why) => (Exit::Limit, Some(why)),
        End::Failed(error) => {
            let exit = match &error {
                RunError::Sink(SinkError::Fenced(_)) => Exit::Held,
                RunError::Sink(SinkError::Limit(_)) => Exit::Limit,
                RunError::Sink(SinkError::Unbalanced(_)) | RunError::Unaccounted { .. } => {
                    Exit::Unbalanced
                }
                RunError::Panic(_) => Exit::Internal,
                _ => Exit::Failed,
            };
            (exit, Some(with_cause(&error)))
        }
    }
}

/// What a run that was told to stop has left undone of what it had read.
fn stopped(report: &Report) -> String {
    let first = report.stages.get(1);
    let read = first.map_or(0, |first| first.settled.records + first.held.records);
    match read.saturating_sub(report.tally.read) {
        0 => "stopped by a signal; all that was read is committed".into(),
        left => {
            let left = counted(left, "record");
            format!(
                "stopped by a signal; read and not committed: {left}, which the next run does again"
            )
        }
    }
}

/// The command that this process was given, with what came from the environment or the settings file, to be typed anywhere.
fn again(arguments: &RunArgs, settings: &Settings, target: &Target) -> String {
    let inputs = named(&arguments.inputs);
    let given = settings.0.iter().filter(|(_, setting)| setting.from != "default");
    crate::status::command(
        &arguments.pipeline,
        inputs.iter().map(|(path, _)| path.as_str()),
        target,
        given.map(|(name, setting)| (name.as_str(), setting.value.as_str())),
    )
}

fn today() -> String {
    jiff::Zoned::now().date().to_string()
}

/// What the ledger says of a run.
async fn fill(summary: &mut Summary, info: &RunInfo, ledger: &mut Ledger) {
    summary.total = info.tally;
    summary.attempts = info.attempts;
    summary.other_lines = info.lines();
    summary.lines =
        info.inputs.iter().map(|input| input.at.line.saturating_sub(input.start.line)).sum();
    if let Ok(rejects) = ledger.rejects_by_kind(&info.run).await {
        let counted =
            rejects.into_iter().map(|(column, kind, count)| RejectCount { column, kind, count });
        summary.rejects = counted.collect();
    }
    if !summary.rejects.is_empty() {
        let to = shell_word(&format!("sqlite:{}", ledger.target().path().display()));
        summary.export = Some(format!("nightly-import rejects export {} --to {to}", info.run));
    }
}

/// The run that had done all inputs before; of several, the last of them.
async fn summarize_done(done: &[Done], ledger: &mut Ledger, summary: &mut Summary) {
    let Some(run) = done.iter().map(|done| done.run.as_str()).max() else { return };
    summary.already_done = true;
    summary.run = Some(run.into());
    summary.message = Some(already_done(done));
    if let Ok(info) = ledger.run(run).await {
        fill(summary, &info, ledger).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use gegendruck::{Collect, Failure, Item, Records, StreamSource, call_fn};

    use super::*;

    /// What is said of a run of ten records that was told to stop while record 4 waits for another try, if it does.
    async fn stopped_while(waits: bool) -> (u64, String) {
        let ask = call_fn(move |record: &Item<u64>| {
            let answer = if waits && record.at.record == 4 {
                let retry_after = Some(Duration::from_secs(3_600));
                Err(Failure::Transient { message: "busy".into(), retry_after })
            } else {
                Ok(record.value)
            };
            async { answer }.boxed()
        });
        let source = StreamSource::new(futures::stream::iter(0..10));
        let pipeline = Pipeline::new("test").source(source).stage("ask", ask);
        let options = Options { batch: Records(1), ..Options::default() };
        let run = pipeline.sink("store", Collect::new()).start(options).expect("it can work");
        let control = run.control();
        tokio::time::sleep(Duration::from_secs(60)).await;
        control.stop();
        let outcome = run.outcome().await;
        (outcome.tally.read, stopped(&outcome.report))
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_another_try_is_not_said_to_be_committed() {
        let words =
            "stopped by a signal; read and not committed: 7 records, which the next run does again";
        assert_eq!(stopped_while(true).await, (3, words.into()));
        let words = "stopped by a signal; all that was read is committed";
        assert_eq!(stopped_while(false).await, (10, words.into()));
    }
}
