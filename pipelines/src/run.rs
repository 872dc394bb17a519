//! `nightly-import run`: one import, from its first look at the input to the summary.
//!
//! ```text
//! settings, inputs, target --> lock --> ledger: new, go on, done, refused --> contracts first, if they are needed
//!        |                                           |                                 |
//!        v                                           v                                 v
//!  refused: nothing was created         the first records are tried                   run --> end of attempt
//! ```
//!
//! - Nothing is created before settings, inputs and target were found to be such that a run can begin.
//! - Whatever happens after the run has begun, its attempt is ended in the ledger with the exit code of the process.

mod inputs;
mod reference;
mod refusals;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use gegendruck::{End, Grouping, Options, Outcome, Pipeline, Records, RunError, SinkError};
use gegendruck_checkpoints::{
    Accept, Attempt, Decision, Done, Ledger, LedgerError, Lock, PipelineIdentity, Process,
    ResumePoint, RunInfo, RunState, Target, Ticket,
};
use gegendruck_stages::csv::{CsvInput, CsvSource, Dialect, FromFields};
use gegendruck_stages::sql::{
    Conflict, Create, MaxErrors, MaxErrorsError, SqlError, SqlSink, TableState, check_table,
};
use gegendruck_stages::value::Row;
use jiff::Timestamp;

use crate::cli::{IfDone, OnConflict, RunArgs, Settings};
use crate::dialect::{describe_dialect, describe_mapping, dialect, formats};
use crate::exit::{Exit, Refused, shell_word};
use crate::imports::{Context, Import};
use crate::poison::Careful;
use crate::progress::{Level, Log};
use crate::signals::Signals;
use crate::summary::{RejectCount, Summary};

pub use inputs::{csv_refused, empty, from_the_beginning, regular_files, sources};
pub use refusals::{refused, with_cause};

use inputs::{Inputs, look_at_inputs, shown, size};
use reference::{beside, contracts_at_hand, for_contracts, no_contracts};
use refusals::{lock_refused, look_up_refused, sql_refused};
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
    let mut summary = Summary::new(I::NAME, Timestamp::now());
    let ended = whole::<I>(arguments, settings, log, &mut summary).await;
    let exit = match &ended {
        Ok(exit) => *exit,
        Err(refused) => {
            summary.message = Some(refused.message.clone());
            refused.exit
        }
    };
    summary.ended(exit);
    log.close();
    let written = arguments.output.summary.as_ref().map_or(Ok(()), |path| summary.write(path));
    if summary.run.is_some() {
        crate::print(&summary.to_string());
    }
    match (ended, written) {
        (Err(refused), written) if summary.run.is_none() => {
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

fn tell_unwritten(log: &Log, unwritten: Option<Refused>) {
    if let Some(unwritten) = unwritten {
        log.line(Level::Error, &unwritten.message);
    }
}

/// All that stays the same for the imports that one command makes.
struct Job<'a> {
    arguments: &'a RunArgs,
    settings: &'a Settings,
    log: &'a Log,
    dialect: Dialect,
    target: Target,
    process: Process,
    signals: Signals,
}

async fn whole<I: Import>(
    arguments: &RunArgs,
    settings: &Settings,
    log: &Log,
    summary: &mut Summary,
) -> Result<Exit, Refused> {
    let dialect = dialect(&arguments.dialect)?;
    settings_work::<I>(arguments)?;
    let inputs = look_at_inputs::<I>(arguments, &dialect).await?;
    summary.inputs = inputs.paths.iter().map(|path| (shown(path), size(path))).collect();
    let target = target(arguments)?;
    summary.target = format!("sqlite:{}", target.path().display());
    summary.table = table::<I>(arguments);
    // From here on a signal ends the run in order: nothing is left half created.
    let signals = Signals::listen()
        .map_err(|error| Refused::failed(format!("signals cannot be caught: {error}")))?;
    let process = Process::this(env!("CARGO_PKG_VERSION"));
    let take = || Lock::take(&target, &process).map_err(|error| lock_refused(&error));
    // Where no run was ever started, not even the lock is created before all that can be looked at was.
    let first = if target.lock_path().exists() { Some(take()?) } else { None };
    look_at_target::<I>(arguments, &dialect, &target, &inputs.paths).await?;
    let mut lock = first.map_or_else(take, Ok)?;
    let new = !target.exists();
    let mut ledger = Ledger::open(&target, I::NAME).await.map_err(refused)?;
    let from: Vec<_> = inputs.paths.iter().map(|path| shown(path)).collect();
    let note = if new { " (new database created)" } else { "" };
    log.line(
        Level::Info,
        &format!("{} -> {}{note}, table {}", from.join(", "), summary.target, summary.table),
    );
    let job = Job { arguments, settings, log, dialect, target, process, signals };
    let exit = job.import::<I>(inputs, &mut lock, &mut ledger, summary).await;
    drop(ledger.close().await);
    exit
}

/// Refuses settings that cannot work, each alone or together.
fn settings_work<I: Import>(arguments: &RunArgs) -> Result<(), Refused> {
    formats(&arguments.values)?;
    max_errors(arguments)?;
    if let Some(text) = &arguments.as_of
        && text.parse::<jiff::civil::Date>().is_err()
    {
        return Err(Refused::usage(format!(
            "--as-of {text}: is no date; give one such as 2026-11-30"
        )));
    }
    crate::plan::stages::<I>(&options::<I>(arguments))
        .map(drop)
        .map_err(|error| Refused::usage(error.to_string()))
}

fn max_errors(arguments: &RunArgs) -> Result<MaxErrors, Refused> {
    let Some(text) = &arguments.max_errors else { return Ok(MaxErrors::default()) };
    text.parse().map_err(|error: MaxErrorsError| Refused::usage(format!("--max-errors: {error}")))
}

/// Refuses a target into which no run can be begun. Only reads.
async fn look_at_target<I: Import>(
    arguments: &RunArgs,
    dialect: &Dialect,
    target: &Target,
    inputs: &[PathBuf],
) -> Result<(), Refused> {
    let name = table::<I>(arguments);
    let state = check_table(target, &I::Row::TABLE, &name).await.map_err(sql_refused)?;
    if arguments.no_create && state == TableState::Missing {
        let (path, table) = (target.path().to_path_buf(), name);
        return Err(sql_refused(SqlError::NoTable { path, table }));
    }
    let ledger = match Ledger::read(target).await {
        Ok(ledger) => Some(ledger),
        Err(LedgerError::Missing { path }) if arguments.no_create => {
            let path = path.display();
            let what = "no ledger is in it, and --no-create forbids to create one; see nightly-import ledger ddl";
            return Err(Refused::usage(format!("{path}: {what}")));
        }
        Err(LedgerError::Missing { .. }) => None,
        Err(error) => return Err(refused(error)),
    };
    if let Some(mut ledger) = ledger {
        let looked = contracts_at_hand::<I>(&mut ledger, inputs).await;
        drop(ledger.close().await);
        return looked.map(drop);
    }
    let ours = Ledger::is_bare(target).await.map_err(refused)?;
    if I::NEEDS_CONTRACTS && !(ours && beside(inputs).exists()) {
        return Err(no_contracts::<I>(target, inputs));
    }
    if I::NEEDS_CONTRACTS {
        look_at_inputs::<crate::contracts::Contracts>(
            &for_contracts(arguments, beside(inputs)),
            dialect,
        )
        .await?;
    }
    let points = inputs.iter().zip(0..);
    let sources =
        points.map(|(path, index)| CsvInput { path: path.clone(), start: None, index }).collect();
    try_first::<I>(sources, dialect, arguments).await
}

/// Tries the first records without target or service: a file of which most are refused is the wrong file, unless the operator
/// has said how many may be.
async fn try_first<I: Import>(
    sources: Vec<CsvInput>,
    dialect: &Dialect,
    arguments: &RunArgs,
) -> Result<(), Refused> {
    const TRIED: u64 = 1_000;
    if arguments.max_errors.is_some() {
        return Ok(());
    }
    let formats = Arc::new(formats(&arguments.values)?);
    let (read, rejected, example) =
        crate::validate::first_records::<I>(sources, dialect, arguments, formats, TRIED).await?;
    if rejected * 2 <= read || read < 10 {
        return Ok(());
    }
    let example = example.map_or(String::new(), |example| format!(", the first: {example}"));
    Err(Refused::new(
        Exit::Limit,
        format!(
            "{rejected} of the first {read} records would be rejected{example}; this looks like the wrong file, nothing was \
             written; nightly-import validate {} shows all faults, and --max-errors imports it all the same",
            I::NAME
        ),
    ))
}

/// The target that the arguments name.
///
/// # Errors
/// It is none, or is missing and may not be created.
pub fn target(arguments: &RunArgs) -> Result<Target, Refused> {
    let target =
        Target::parse(&arguments.target.to).map_err(|error| Refused::usage(error.to_string()))?;
    if arguments.no_create && !target.exists() {
        let path = target.path().display();
        return Err(Refused::usage(format!(
            "{path}: there is no such database, and --no-create forbids to create it"
        )));
    }
    Ok(target)
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

fn conflict<I: Import>(arguments: &RunArgs) -> Conflict {
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
            let Inputs { paths, header } = looked;
            let identity = identity::<I>(self.arguments);
            let accept = Accept {
                grown: self.arguments.accept_grown,
                changed: self.arguments.accept_changed,
            };
            // Looking up only reads, and may take long: it hashes what earlier runs have committed of the inputs.
            let mut signals = self.signals.clone();
            let decision = tokio::select! {
                biased;
                () = signals.stop() => {
                    let words = "stopped by a signal before anything was done; go on with";
                    return Err(Refused::new(Exit::Interrupted, format!("{words}: {}", command_line())));
                }
                decision = ledger.look_up(&identity, &paths, accept) => decision.map_err(look_up_refused)?,
            };
            let inputs = match &decision {
                Decision::AlreadyDone(done) => {
                    let exit = self.already_done(done)?;
                    if let Some(done) = done.first()
                        && let Ok(info) = ledger.run(&done.run).await
                    {
                        fill(summary, &info);
                        summary.message = Some(format!("already done by run {}", done.run));
                    }
                    return Ok(exit);
                }
                Decision::New { inputs, skipped } => {
                    if self.arguments.if_done == IfDone::Fail
                        && let Some((done, other)) = known_elsewhere(skipped)
                    {
                        return Err(known(done, other));
                    }
                    self.name_skipped(skipped);
                    inputs.clone()
                }
                Decision::GoOn(run) => {
                    self.name_skipped(&run.skipped);
                    run.inputs.clone()
                }
            };
            if let Decision::New { inputs, .. } = &decision {
                try_first::<I>(sources(inputs), &self.dialect, self.arguments).await?;
            }
            let before = self.contracts_first::<I>(&paths, lock, ledger).await?;
            if before > Exit::Rejects {
                return Ok(before);
            }
            let contracts_run = match I::NEEDS_CONTRACTS {
                true => ledger
                    .completed(crate::contracts::Contracts::NAME)
                    .await
                    .map_err(refused)?
                    .map(|run| run.run),
                false => None,
            };
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
            let ticket = match decision {
                Decision::GoOn(run) => {
                    self.same_contracts(
                        &run.run,
                        run.info.contracts_run.as_deref(),
                        contracts_run.as_deref(),
                        ledger,
                    )
                    .await?;
                    let at = run.inputs.iter().find(|input| !input.complete).map(|input| input.at);
                    let words = at.map_or("all input is committed".into(), |at| format!("at {at}"));
                    self.log.line(Level::Info, &format!("going on with run {} {words}", run.run));
                    run.accepted.iter().for_each(|accepted| self.log.line(Level::Warn, accepted));
                    ledger.go_on(&run, &attempt).await.map_err(refused)?
                }
                _ => {
                    let as_of = self.arguments.as_of.clone().unwrap_or_else(today);
                    let spec = gegendruck_checkpoints::RunSpec {
                        pipeline: identity.clone(),
                        inputs: inputs.clone(),
                        label: self.arguments.label.clone(),
                        as_of: Some(as_of),
                        contracts_run,
                    };
                    ledger.begin(&spec, &attempt).await.map_err(refused)?
                }
            };
            summary.run = Some(ticket.run().into());
            self.log.set_run(ticket.run());
            drop(lock.name(ticket.run()));
            let ended =
                self.attempt::<I>(&inputs, &identity, &context, &ticket, ledger, summary).await;
            let exit = match &ended {
                Ok(exit) => *exit,
                Err(refused) => {
                    summary.message = Some(refused.message.clone());
                    refused.exit
                }
            };
            let exit = self.end(exit, &ticket, ledger, summary).await;
            if exit == Exit::Complete && before == Exit::Rejects {
                let words = "contracts were rejected, and claims were judged without them; see nightly-import status";
                summary.message.get_or_insert(words.into());
                return Ok(before);
            }
            Ok(exit)
        })
    }

    fn name_skipped(&self, skipped: &[Done]) {
        for done in skipped {
            self.log.line(
                Level::Info,
                &format!("{}: already imported by run {}", done.path.display(), done.run),
            );
        }
    }

    fn already_done(&self, all: &[Done]) -> Result<Exit, Refused> {
        let mut worst = Exit::Complete;
        for done in all {
            let exit = Exit::from_code(i64::from(done.exit_code)).unwrap_or(Exit::Complete);
            let path = done.path.display();
            match &done.other_path {
                Some(other) if self.arguments.if_done == IfDone::Fail => {
                    return Err(known(done, other));
                }
                _ => crate::print(&format!("{path}: already done by run {} ({exit})\n", done.run)),
            }
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
        Ok(worst)
    }

    /// Runs the pipeline from where the inputs are, and watches it.
    async fn attempt<I: Import>(
        &self,
        inputs: &[ResumePoint],
        identity: &PipelineIdentity,
        context: &Context,
        ticket: &Ticket,
        ledger: &mut Ledger,
        summary: &mut Summary,
    ) -> Result<Exit, Refused> {
        let before = ledger.run(ticket.run()).await.map_err(refused)?;
        let create = if self.arguments.no_create { Create::Never } else { Create::IfMissing };
        let mut sink = SqlSink::<I::Row>::builder(&self.target, ticket)
            .table(&identity.table)
            .create(create)
            .on_conflict(conflict::<I>(self.arguments))
            .max_errors(max_errors(self.arguments)?)
            .retry_for(self.arguments.retry_for);
        for statement in I::finish(&identity.table) {
            sink = sink.finish(statement);
        }
        let sink = sink.open().await.map_err(sql_refused)?;
        let ignored = &self.arguments.dialect.ignore_columns;
        let source = CsvSource::<I::Raw>::open(
            sources(inputs),
            &self.dialect,
            ignored,
            empty(self.arguments),
        )
        .await
        .map_err(|error| csv_refused(&error))?;
        let mut options = options::<I>(self.arguments);
        let log = self.log.clone();
        options.on_event = Arc::new(move |event| tell(&log, &event));
        let careful =
            Careful::of(ledger, ticket, &self.target, self.arguments.reject_poison).await?;
        if let Some(careful) = &careful {
            let plan = crate::plan::stages::<I>(&options)
                .map_err(|error| Refused::usage(error.to_string()))?;
            careful.slow_down(&mut options, &plan.stages);
            self.log.line(Level::Warn, &careful.words());
        }
        let source = crate::poison::Watched::new(source, careful);
        let runnable =
            I::stages(Pipeline::new(I::NAME).source(source), context).sink("store", sink);
        let run = runnable.start(options).map_err(|error| Refused::usage(error.to_string()))?;
        let control = run.control();
        let watch = Watch::new(self, &before, ticket, control.clone());
        let outcome = watch.until(run.outcome()).await;
        summary.report = Some(outcome.report.clone());
        summary.verdict = Some(outcome.report.verdict());
        summary.attempt = outcome.tally;
        if let Err(error) = ledger.keep_report(ticket, &outcome.report).await {
            let words = format!("the stall report could not be kept: {}", with_cause(&error));
            self.log.line(Level::Warn, &words);
        }
        Ok(self.exit(outcome, summary))
    }

    /// What the way a run ended means for the exit code, and what to say about it.
    fn exit<S>(&self, outcome: Outcome<S>, summary: &mut Summary) -> Exit {
        let (exit, message) = match outcome.end {
            End::Complete => (Exit::Complete, None),
            End::Stopped => (
                Exit::Interrupted,
                Some("stopped by a signal; what was in flight is committed".to_string()),
            ),
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
        };
        summary.message = message;
        exit
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
        let exit = if exit == Exit::Complete && rejected > 0 { Exit::Rejects } else { exit };
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
        if let Ok(info) = info {
            fill(summary, &info);
        }
        if let Ok(rejects) = ledger.rejects_by_kind(ticket.run()).await {
            let counted = rejects.into_iter().map(|(column, kind, count)| RejectCount {
                column,
                kind,
                count,
            });
            summary.rejects = counted.collect();
        }
        let to = shell_word(&format!("sqlite:{}", self.target.path().display()));
        if !summary.rejects.is_empty() {
            summary.export =
                Some(format!("nightly-import rejects export {} --to {to}", ticket.run()));
        }
        if state == RunState::Complete && summary.total.read == 0 {
            let words = "warning: the input has no records";
            self.log.line(Level::Warn, "the input has no records");
            summary.message.get_or_insert(words.into());
        }
        if state != RunState::Complete {
            summary.go_on = Some(command_line());
        }
        summary.ended(exit);
        exit
    }
}

/// The first input whose content was imported under another name, and that name.
fn known_elsewhere(all: &[Done]) -> Option<(&Done, &Path)> {
    all.iter().find_map(|done| done.other_path.as_deref().map(|other| (done, other)))
}

fn known(done: &Done, other: &Path) -> Refused {
    let (path, other) = (done.path.display(), other.display());
    let message = format!(
        "{path}: the same content was already imported by run {} as {other}; --if-done ok takes that for done",
        done.run
    );
    Refused::new(Exit::Known, message)
}

/// The command that this process was started with, to be typed again.
fn command_line() -> String {
    let arguments = std::env::args_os().skip(1);
    let rest: Vec<_> = arguments.map(|argument| shell_word(&argument.to_string_lossy())).collect();
    format!("nightly-import {}", rest.join(" "))
}

fn today() -> String {
    jiff::Zoned::now().date().to_string()
}

fn fill(summary: &mut Summary, info: &RunInfo) {
    summary.total = info.tally;
    summary.attempts = info.attempts;
    summary.other_lines = info.lines();
    summary.lines = info.inputs.iter().map(|input| input.at.line - 1).sum();
}
