//! The contracts that claims are scored against: at hand, imported first, or asked for; the same for all of a run.

use std::path::{Path, PathBuf};

use gegendruck::thousands;
use gegendruck_checkpoints::{
    Accept, Ledger, Lock, Refusal, RunInfo, RunState, Target, quoted, trouble,
};
use gegendruck_stages::sql::{TableState, check_table};
use gegendruck_stages::value::Row;
use jiff::Timestamp;
use sqlx::Connection;

use super::inputs::{look_at_inputs, named};
use super::refusals::{look_up_refused, sql_refused};
use super::{Job, refused, table};
use crate::cli::RunArgs;
use crate::contracts::{Contract, Contracts};
use crate::exit::{Exit, Refused, shell_word};
use crate::imports::Import;
use crate::progress::Level;
use crate::status::go_on;
use crate::summary::Summary;

/// The contracts that lie beside the inputs, if an import needs them and they are there.
pub(super) fn beside(inputs: &[PathBuf]) -> PathBuf {
    inputs.first().and_then(|path| path.parent()).unwrap_or(Path::new("")).join("contracts.csv")
}

/// The last complete run into the table that claims are judged by. Contracts in other tables are none.
pub(super) async fn newest_contracts(ledger: &mut Ledger) -> Result<Option<RunInfo>, Refused> {
    ledger.completed(Contracts::NAME, Contract::TABLE.name).await.map_err(refused)
}

fn is_of_contracts(run: &RunInfo) -> bool {
    run.pipeline.pipeline == Contracts::NAME
        && run.pipeline.table.eq_ignore_ascii_case(Contract::TABLE.name)
}

/// True if the contracts are in the target; false if they can be imported first, because the database is the program's own.
pub(super) async fn contracts_at_hand<I: Import>(
    ledger: &mut Ledger,
    inputs: &[PathBuf],
) -> Result<bool, Refused> {
    if !I::NEEDS_CONTRACTS || newest_contracts(ledger).await?.is_some() {
        return Ok(true);
    }
    let (_, created_by) = ledger.identity().await.map_err(refused)?;
    if created_by.as_deref() == Some(I::NAME) && beside(inputs).exists() {
        return Ok(false);
    }
    Err(no_contracts::<I>(ledger.target(), inputs))
}

/// Refuses contracts of which some are from a later run that is not complete.
pub(super) async fn no_half_contracts<I: Import>(ledger: &mut Ledger) -> Result<(), Refused> {
    let runs = ledger.runs().await.map_err(refused)?;
    let mut latest = runs.iter().filter(|run| is_of_contracts(run));
    let half = latest.find(|run| run.state == RunState::Complete || run.tally.stored > 0);
    let Some(half) = half.filter(|run| run.state != RunState::Complete) else { return Ok(()) };
    let attempts = ledger.attempts(&half.run).await.map_err(refused)?;
    Err(Refused::usage(format!(
        "{} needs contracts, and only some of those of run {} are in the table; go on with it first: {}",
        I::NAME,
        half.run,
        go_on(half, &attempts, ledger.target())
    )))
}

/// Refuses to judge by contracts that are gone: a table that is missing or empty although complete runs have stored rows in it.
/// Every claim would look as if it had no contract.
pub(super) async fn contracts_are_there(ledger: &mut Ledger) -> Result<(), Refused> {
    let table = Contract::TABLE;
    let runs = ledger.runs().await.map_err(refused)?;
    let stored = runs.into_iter().find(|run| {
        is_of_contracts(run) && run.state == RunState::Complete && run.tally.stored > 0
    });
    let Some(RunInfo { run, tally, .. }) = stored else { return Ok(()) };
    let (name, stored) = (table.name.to_string(), tally.stored);
    let target = ledger.target();
    if check_table(target, &table, &name).await.map_err(sql_refused)? == TableState::Missing {
        let missing = Refusal::TableMissing { run, table: name, stored };
        return Err(look_up_refused(missing.into()));
    }
    if is_empty(target, &name).await.map_err(|error| {
        Refused::failed(format!("{}: table {name}: {}", target.path().display(), trouble(&error)))
    })? {
        return Err(look_up_refused(Refusal::TableEmpty { run, table: name, stored }.into()));
    }
    Ok(())
}

async fn is_empty(target: &Target, table: &str) -> Result<bool, sqlx::Error> {
    let mut connection = target.connect_to_read().await?;
    let query = format!("SELECT NOT EXISTS (SELECT 1 FROM {})", quoted(table));
    let is_empty = sqlx::query_scalar(&query).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(is_empty)
}

/// Refuses to judge the rest of a run by other contracts than its beginning, unless the operator has accepted that: then it
/// gives what was accepted.
pub(super) async fn same_contracts(
    run: &RunInfo,
    accept: Accept,
    ledger: &mut Ledger,
) -> Result<Option<String>, Refused> {
    let now = newest_contracts(ledger).await?;
    let (Some(began), Some(now)) = (&run.contracts_run, now) else { return Ok(None) };
    if *began == now.run {
        return Ok(None);
    }
    let words = format!(
        "run {} began with the contracts of run {began}, and run {} has imported others since",
        run.run, now.run
    );
    if !accept.changed {
        let remedy = "--accept-changed judges the rest by those";
        return Err(Refused::new(Exit::Mismatch, format!("{words}; {remedy}")));
    }
    Ok(Some(format!("{words}; the rest is judged by those: accepted")))
}

pub(super) fn no_contracts<I: Import>(target: &Target, inputs: &[PathBuf]) -> Refused {
    let (to, beside, table) = (target.path().display(), beside(inputs), Contract::TABLE.name);
    let why = if beside.exists() {
        String::new()
    } else {
        format!(" and there is no {}", beside.display())
    };
    Refused::usage(format!(
        "{} needs contracts, and none were imported into table {table} of {to}{why}; import them first: nightly-import run {} {} --to {}",
        I::NAME,
        Contracts::NAME,
        shell_word(&beside.to_string_lossy()),
        shell_word(&target.url())
    ))
}

/// The flags that are not taken over by a run that imports the contracts: they are those of the other import's table and stages.
const OF_THE_OTHER: [&str; 8] = [
    "table",
    "on-conflict",
    "trace-calls",
    "workers",
    "buffer",
    "request",
    "rate",
    "ignore-columns",
];

/// The arguments of a run that imports the contracts beside `inputs` before another import that needs them.
pub(super) fn for_contracts(arguments: &RunArgs, inputs: &[PathBuf]) -> RunArgs {
    let mut arguments = RunArgs {
        inputs: vec![beside(inputs)],
        table: None,
        on_conflict: None,
        trace_calls: None,
        workers: Vec::new(),
        buffer: Vec::new(),
        request: Vec::new(),
        rate: Vec::new(),
        ..arguments.clone()
    };
    arguments.dialect.ignore_columns.clear();
    arguments
}

impl Job<'_> {
    /// Imports the contracts beside the input if they are needed, are not there yet, and this database is the program's own.
    /// Gives the exit code of that.
    pub(super) async fn contracts_first<I: Import>(
        &self,
        paths: &[PathBuf],
        lock: &mut Lock,
        ledger: &mut Ledger,
    ) -> Result<Exit, Refused> {
        if contracts_at_hand::<I>(ledger, paths).await? {
            return Ok(Exit::Complete);
        }
        let beside = beside(paths);
        let to = self.target.path().display();
        self.log.line(Level::Info, &format!("contracts first: importing {}", beside.display()));
        let arguments = for_contracts(self.arguments, paths);
        let looked = look_at_inputs::<Contracts>(&arguments, &self.dialect).await?;
        let settings = self.settings.without(&OF_THE_OTHER);
        let job = Job { arguments: &arguments, settings: &settings, ..self.clone() };
        let mut summary = Summary::new(Contracts::NAME, Timestamp::now());
        summary.inputs = named(&arguments.inputs);
        summary.target = format!("sqlite:{to}");
        summary.table = table::<Contracts>(&arguments);
        let exit = job.import::<Contracts>(looked, lock, ledger, &mut summary).await?;
        self.log.set_run("");
        summary.ended(exit);
        let run = summary.run.clone().unwrap_or_default();
        let total = summary.total;
        let words = format!(
            "contracts: run {run} read {} and stored {}: {exit}",
            thousands(total.read),
            thousands(total.stored)
        );
        self.log.line(Level::Info, &words);
        if exit > Exit::Rejects {
            // Not only the contracts: all that was asked for.
            summary.go_on = summary.go_on.map(|_| self.command.clone());
            crate::print(&summary.to_string());
        }
        Ok(exit)
    }
}
