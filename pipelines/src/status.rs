//! `nightly-import status` and `inspect`: the runs of a target, and where their time goes.

use std::io::Write;

use gegendruck::{Report, Tally, thousands};
use gegendruck_checkpoints::{
    AttemptInfo, Ledger, LedgerError, RunInfo, RunState, Status, StatusError, StatusFile, Target,
};
use gegendruck_stages::sql::MaxErrors;
use jiff::Timestamp;
use serde_json::json;

use crate::cli::{InspectArgs, StatusArgs, TargetArgs};
use crate::exit::{Exit, Refused, shell_word};
use crate::progress::Progress;
use crate::run::refused;
use crate::summary::counted;

/// The target of a command that only reads.
///
/// # Errors
/// The text names none.
pub fn target(arguments: &TargetArgs) -> Result<Target, Refused> {
    Target::parse(&arguments.to).map_err(|error| Refused::usage(error.to_string()))
}

/// The ledger of a target, for reading.
///
/// # Errors
/// There is none, or it cannot be read.
pub async fn ledger(target: &Target) -> Result<Ledger, Refused> {
    Ledger::read(target).await.map_err(refused)
}

/// A run by its name, or the last one.
///
/// # Errors
/// There is none.
pub async fn find(ledger: &mut Ledger, run: Option<&str>) -> Result<RunInfo, Refused> {
    match run {
        Some(run) => ledger.run(run).await.map_err(refused),
        None => {
            let missing = LedgerError::Missing { path: ledger.target().path().into() };
            ledger.latest_run().await.map_err(refused)?.ok_or_else(|| refused(missing))
        }
    }
}

/// The runs of a target, or one with its attempts.
///
/// # Errors
/// There is none, or the ledger cannot be read.
pub async fn status(arguments: &StatusArgs) -> Result<Exit, Refused> {
    let target = target(&arguments.target)?.leaving_nothing();
    let mut ledger = ledger(&target).await?;
    let live = live(&target).map(|status| status.run);
    let runs = match &arguments.run {
        Some(run) => vec![find(&mut ledger, Some(run)).await?],
        None => ledger.runs().await.map_err(refused)?,
    };
    let mut documents = Vec::new();
    let mut text = String::new();
    for run in &runs {
        let attempts = ledger.attempts(&run.run).await.map_err(refused)?;
        let filtered = ledger.filtered(&run.run).await.map_err(refused)?;
        let is_live = live.as_deref() == Some(run.run.as_str());
        if arguments.json {
            let mut document = serde_json::to_value(run).unwrap_or_default();
            document["live"] = json!(is_live);
            let reasons = filtered.iter();
            document["filtered"] = reasons
                .map(|(reason, records)| json!({"reason": reason, "records": records}))
                .collect();
            document["attempt_list"] = serde_json::to_value(&attempts).unwrap_or_default();
            let unfinished = run.state != RunState::Complete;
            document["go_on"] = json!(unfinished.then(|| go_on(run, &attempts, &target)));
            documents.push(document);
        } else if arguments.run.is_some() {
            text.push_str(&whole(run, &filtered, &attempts, is_live, &target));
        } else {
            text.push_str(&line(run, is_live));
        }
    }
    if arguments.json {
        text = format!("{:#}\n", json!({"schema": 1, "target": target.path(), "runs": documents}));
    } else if arguments.run.is_none() {
        let head = format!(
            "{:20} {:10} {:12} {:>8} {:>14} {:>12} {:>10}  input\n",
            "run", "pipeline", "state", "attempts", "read", "stored", "rejected"
        );
        text.insert_str(0, &head);
    }
    crate::print(&text);
    Ok(Exit::Complete)
}

fn state(run: &RunInfo, live: bool) -> String {
    match run.state {
        RunState::Running if live => "running".into(),
        RunState::Running => "died".into(),
        other => other.as_str().into(),
    }
}

fn line(run: &RunInfo, live: bool) -> String {
    let inputs: Vec<_> = run.inputs.iter().map(|input| input.path.as_str()).collect();
    format!(
        "{:20} {:10} {:12} {:>8} {:>14} {:>12} {:>10}  {}\n",
        run.run,
        run.pipeline.pipeline,
        state(run, live),
        run.attempts,
        thousands(run.tally.read),
        thousands(run.tally.stored),
        thousands(run.tally.rejected),
        inputs.join(" ")
    )
}

fn whole(
    run: &RunInfo,
    filtered: &[(String, u64)],
    attempts: &[AttemptInfo],
    live: bool,
    target: &Target,
) -> String {
    let mut text = format!(
        "run {}   {} into table {} of {}   {}\n",
        run.run,
        run.pipeline.pipeline,
        run.pipeline.table,
        target.path().display(),
        state(run, live)
    );
    if let Some(label) = &run.label {
        text.push_str(&format!("label {label}\n"));
    }
    if let Some(contracts) = &run.contracts_run {
        text.push_str(&format!("judged by the contracts of run {contracts}\n"));
    }
    for input in &run.inputs {
        let share =
            if input.size == 0 { 100.0 } else { 100.0 * input.at.byte as f64 / input.size as f64 };
        let done = if input.complete { ", complete" } else { "" };
        text.push_str(&format!(
            "input {}: committed up to byte {} of {} ({share:.0} %), next {}{done}\n",
            input.path,
            thousands(input.at.byte),
            thousands(input.size),
            input.at
        ));
    }
    text.push_str(&format!("read {}\n", run.tally));
    let repaired = run.lines().repaired;
    if repaired > 0 {
        text.push_str(&format!("repaired {}\n", thousands(repaired)));
    }
    for (reason, records) in filtered {
        text.push_str(&format!("filtered {reason} {}\n", thousands(*records)));
    }
    for attempt in attempts {
        let end = match (&attempt.ended, attempt.exit_code) {
            (Some(ended), Some(code)) => format!("ended {ended} with exit {code}"),
            (Some(ended), None) => format!("ended {ended}"),
            (None, _)
                if live && Some(attempt.attempt) == attempts.last().map(|last| last.attempt) =>
            {
                format!("running, last heard of at {}", attempt.heartbeat)
            }
            (None, _) => format!("died after {}", attempt.heartbeat),
        };
        text.push_str(&format!(
            "attempt {} from {} {end}; {}; {} pid {} as {}, version {}\n",
            attempt.attempt,
            attempt.started,
            counted(attempt.commits, "commit"),
            attempt.host,
            attempt.pid,
            attempt.user,
            attempt.version
        ));
    }
    if let Some(settings) = attempts.last().and_then(|attempt| attempt.settings.as_object()) {
        let given = settings
            .iter()
            .filter(|(_, setting)| !matches!(setting["from"].as_str(), Some("default" | "input")));
        for (name, setting) in given {
            let (value, from) = (&setting["value"], &setting["from"]);
            let (value, from) = (value.as_str().unwrap_or(""), from.as_str().unwrap_or(""));
            text.push_str(&format!("setting {name} = {value} (from {from})\n"));
        }
    }
    if run.state != RunState::Complete {
        let command = go_on(run, attempts, target);
        text.push_str(&format!("go on with: {command}\n"));
    }
    text
}

/// Flags that are about one attempt's output, not about what it does; and those that are written otherwise.
const OF_ONE_ATTEMPT: [&str; 8] =
    ["to", "config", "quiet", "verbose", "no-progress", "report-interval", "summary", "log-format"];

/// The command that goes on with a run that is not complete, as its last attempt was started; with a higher reject limit, if that
/// attempt has passed the one that it had. It needs neither the environment nor the settings file of that.
pub(crate) fn go_on(run: &RunInfo, attempts: &[AttemptInfo], target: &Target) -> String {
    const LIMIT: &str = "max-errors";
    let inputs = run.inputs.iter().map(|input| input.path.as_str());
    let last = attempts.last();
    let settings = last.and_then(|attempt| attempt.settings.as_object()).into_iter().flatten();
    let given = settings.filter_map(|(name, setting)| {
        let given = matches!(setting["from"].as_str()?, "flag" | "environment" | "file");
        given.then_some((name.as_str(), setting["value"].as_str()?))
    });
    let passed = last.filter(|last| last.exit_code == Some(Exit::Limit.code().into()));
    let needed = passed.and_then(|last| {
        let limit = last.settings[LIMIT]["value"].as_str().and_then(|limit| limit.parse().ok());
        limit_needed(limit.unwrap_or_default(), &run.tally)
    });
    let given = given.filter(|(name, _)| needed.is_none() || *name != LIMIT);
    let limit = needed.iter().map(|limit| (LIMIT, limit.as_str()));
    command(&run.pipeline.pipeline, inputs, target, given.chain(limit))
}

/// The least limit that lets a run go on which has passed another one: as many rejects as it has, or their share of what it has
/// read where a share was given. `None` if it has passed none: where most of the first records were rejected, nothing is committed.
fn limit_needed(limit: MaxErrors, tally: &Tally) -> Option<String> {
    const MILLION: u128 = 1_000_000;
    let Tally { read, rejected, .. } = *tally;
    match limit {
        MaxErrors::Share { per_million } => {
            let needed = (u128::from(rejected) * MILLION).div_ceil(u128::from(read.max(1)));
            (needed > per_million.into()).then(|| share(needed))
        }
        MaxErrors::Count(count) => (rejected > count).then(|| rejected.to_string()),
        MaxErrors::Default => (rejected > 0).then(|| rejected.to_string()),
    }
}

/// A share as `--max-errors` takes it: `0.55%`.
fn share(per_million: u128) -> String {
    let text = format!("{}.{:04}", per_million / 10_000, per_million % 10_000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A command that runs a pipeline with these settings, whatever folder or shell it is typed in.
pub(crate) fn command<'a>(
    pipeline: &str,
    inputs: impl Iterator<Item = &'a str>,
    target: &Target,
    given: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let known = crate::cli::definition();
    let run = known.find_subcommand("run").expect("there is such a command");
    let is_switch = |name: &str| {
        let is = |flag: &&clap::Arg| flag.get_long() == Some(name);
        run.get_arguments().find(is).is_some_and(|flag| !flag.get_action().takes_values())
    };
    let flags = given.filter(|(name, _)| !OF_ONE_ATTEMPT.contains(name)).filter_map(
        |(name, value)| match (is_switch(name), value) {
            (true, "false") => None,
            (true, _) => Some(format!("--{name}")),
            (false, _) => Some(shell_word(&format!("--{name}={value}"))),
        },
    );
    let to = format!("--to {}", shell_word(&target.url()));
    let words: Vec<_> = inputs.map(shell_word).chain([to]).chain(flags).collect();
    format!("nightly-import run {pipeline} {}", words.join(" "))
}

/// The status of the run whose process is alive on this machine, if there is one.
fn live(target: &Target) -> Option<Status> {
    let status = StatusFile::of(target).read().ok()?;
    let alive = std::path::Path::new("/proc").join(status.pid.to_string()).exists();
    (alive && status.state == RunState::Running && age(&status) < 30.0).then_some(status)
}

fn age(status: &Status) -> f64 {
    let written: Result<Timestamp, _> = status.written.parse();
    written.map_or(f64::INFINITY, |written| Timestamp::now().duration_since(written).as_secs_f64())
}

/// Where the time of a running or finished run goes.
///
/// # Errors
/// There is no such run, or its report cannot be read.
pub async fn inspect(arguments: &InspectArgs) -> Result<Exit, Refused> {
    let target = target(&arguments.target)?.leaving_nothing();
    loop {
        let live = live(&target)
            .filter(|status| arguments.run.as_ref().is_none_or(|run| *run == status.run));
        match &live {
            Some(status) if arguments.json => crate::print(&format!("{:#}\n", json!(status))),
            Some(status) => crate::print(&running(status)),
            None => return finished(arguments, &target).await,
        }
        if !arguments.watch {
            return Ok(Exit::Complete);
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        crate::print("\n");
    }
}

fn running(status: &Status) -> String {
    let progress = Progress {
        bytes: status.bytes,
        of: status.total_bytes,
        before: status.bytes_before,
        records: status.tally.read,
        records_now: status.report.as_ref().map_or(0, |report| report.tally.read),
        wall: status.report.as_ref().map_or_else(Default::default, |report| report.wall),
    };
    let last = status.last_commit.as_deref().unwrap_or("none yet");
    let mut text = format!(
        "RUNNING {} run {} on {} pid {} since {}; figures {} ({:.0} s old); last commit {last}\n{}\n",
        status.pipeline,
        status.run,
        status.host,
        status.pid,
        status.since,
        status.written,
        age(status),
        progress.words()
    );
    if let Some(report) = &status.recent {
        text.push_str(&format!("the last {:.0} s:\n{report}\n", report.wall.as_secs_f64()));
    }
    if let Some(report) = &status.report {
        text.push_str(&format!("the whole run, {:.0} s:\n{report}\n", report.wall.as_secs_f64()));
    }
    for note in &status.notes {
        text.push_str(&format!("now: {note}\n"));
    }
    text.push_str(
        "Nothing is lost if it is stopped: the next run goes on behind the last commit.\n",
    );
    text
}

/// What a run that died has left behind: the figures that it wrote last.
fn last_figures(arguments: &InspectArgs, target: &Target, run: &RunInfo) -> Result<Exit, Refused> {
    let left = StatusFile::of(target).read().ok().filter(|status| status.run == run.run);
    let Some(status) = left else {
        let why = "its process died, and another run has replaced its figures";
        return Err(Refused::usage(format!("run {} has left no report: {why}", run.run)));
    };
    if arguments.json {
        crate::print(&format!("{:#}\n", json!(status)));
    } else {
        let report = status.report.map_or(String::new(), |report| format!("{report}\n"));
        crate::print(&format!(
            "run {} died; its last figures, of {}:\n{report}",
            run.run, status.written
        ));
    }
    Ok(Exit::Complete)
}

async fn finished(arguments: &InspectArgs, target: &Target) -> Result<Exit, Refused> {
    let mut ledger = ledger(target).await?;
    let run = find(&mut ledger, arguments.run.as_deref()).await?;
    let stored = ledger.report(&run.run).await.map_err(refused)?;
    let Some(stored) = stored else { return last_figures(arguments, target, &run) };
    let report: &Report = &stored.report;
    if arguments.json {
        let document = json!({"schema": 1, "run": run, "attempt": stored.attempt, "report": report, "verdict": report.verdict()});
        crate::print(&format!("{document:#}\n"));
    } else {
        let words = state(&run, false);
        crate::print(&format!(
            "run {}   {words}, attempt {}, {:.1} s\n{report}\n",
            run.run,
            stored.attempt,
            report.wall.as_secs_f64()
        ));
    }
    if let Err(error @ StatusError::Damaged { .. }) = StatusFile::of(target).read() {
        // A standard error that nobody reads does no harm.
        drop(writeln!(std::io::stderr().lock(), "nightly-import: {error}"));
    }
    Ok(Exit::Complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_a_run_needs_is_the_least_that_lets_it_go_on() {
        let tally = |read, rejected| Tally { read, rejected, ..Tally::default() };
        for (limit, read, rejected, needed) in [
            ("5", 10, 6, Some("6")),
            ("5", 10, 5, None),
            ("0.5%", 10_000, 51, Some("0.51%")),
            ("0.5%", 3_000, 16, Some("0.5334%")),
            ("10%", 7, 7, Some("100%")),
            ("0%", 2_000_000, 1, Some("0.0001%")),
            ("0.5%", 10_000, 50, None),
            ("0.5%", 0, 0, None),
            ("", 5_000, 101, Some("101")),
            ("", 0, 0, None),
        ] {
            let given: MaxErrors = limit.parse().unwrap_or_default();
            let found = limit_needed(given, &tally(read, rejected));
            assert_eq!(found.as_deref(), needed, "{limit} of {read}");
            if let Some(MaxErrors::Share { per_million }) = found.and_then(|text| text.parse().ok())
            {
                let allowed = |share: u32| read * u64::from(share) / 1_000_000;
                assert!(allowed(per_million) >= rejected && allowed(per_million - 1) < rejected);
            }
        }
    }
}
