//! What a run would begin with: settings, inputs, target, and what the ledger says. Shared by `run` and `plan`; only reads.
//!
//! ```text
//! look: settings, inputs --> look_at_target: tables, ledger, contracts --> decide: new, go on, done, or refused
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gegendruck::Plan;
use gegendruck_checkpoints::{Accept, Decision, Done, Ledger, LedgerError, Target};
use gegendruck_stages::csv::{CsvInput, Dialect};
use gegendruck_stages::sql::{TableState, check_table};
use gegendruck_stages::value::Table;

use super::inputs::{Inputs, from_the_beginning, look_at_inputs, sources};
use super::reference::{
    beside, contracts_are_there, contracts_at_hand, for_contracts, no_contracts, no_half_contracts,
    same_contracts,
};
use super::refusals::{look_up_refused, refused, sql_refused};
use super::settings::{forbidden, identity, settings_work, table, target};
use crate::cli::{IfDone, RunArgs};
use crate::contracts::Contracts;
use crate::dialect::{dialect, formats};
use crate::exit::{Exit, Refused};
use crate::imports::{Import, tables};

/// What settings, inputs and target were found to be before the ledger is asked.
pub(crate) struct Looked {
    pub(crate) dialect: Dialect,
    pub(crate) plan: Plan,
    pub(crate) inputs: Inputs,
    pub(crate) target: Target,
}

/// Refuses settings and inputs that no run can begin with. Only reads.
pub(crate) async fn look<I: Import>(arguments: &RunArgs) -> Result<Looked, Refused> {
    let dialect = dialect(&arguments.dialect)?;
    let plan = settings_work::<I>(arguments)?;
    let inputs = look_at_inputs::<I>(arguments, &dialect).await?;
    let target = target(arguments)?;
    Ok(Looked { dialect, plan, inputs, target })
}

/// What the target was found to be.
pub(crate) struct FoundTarget {
    /// Its ledger, for reading, if it has one.
    pub(crate) ledger: Option<Ledger>,
    /// The tables that would be created.
    pub(crate) missing: Vec<String>,
    /// The contracts that would be imported first.
    pub(crate) contracts: Option<PathBuf>,
}

/// Refuses a target into which no run can be begun. Only reads.
pub(crate) async fn look_at_target<I: Import>(
    arguments: &RunArgs,
    looked: &Looked,
) -> Result<FoundTarget, Refused> {
    let Looked { dialect, inputs, target, .. } = looked;
    let missing = missing_tables::<I>(arguments, target).await?;
    let mut ledger = match Ledger::read(target).await {
        Ok(ledger) => Some(ledger),
        Err(LedgerError::Missing { .. }) => None,
        Err(error) => return Err(refused(error)),
    };
    let lacks = match &ledger {
        None => Some(("there is no ledger in it", "create")),
        Some(ledger) if ledger.is_older() => Some(("its ledger is of an older version", "upgrade")),
        Some(_) => None,
    };
    if let Some((lacks, change)) = lacks.filter(|_| arguments.no_create) {
        return Err(forbidden(target, lacks, change));
    }
    let paths = &inputs.paths;
    let at_hand = match &mut ledger {
        Some(ledger) => contracts_at_hand::<I>(ledger, paths).await?,
        None if I::NEEDS_CONTRACTS => {
            let ours = Ledger::is_bare(target).await.map_err(refused)?;
            if !ours || !beside(paths).exists() {
                return Err(no_contracts::<I>(target, paths));
            }
            false
        }
        None => true,
    };
    if !at_hand {
        let arguments = for_contracts(arguments, paths);
        missing_tables::<Contracts>(&arguments, target).await?;
        look_at_inputs::<Contracts>(&arguments, dialect).await?;
    }
    if ledger.is_none() {
        try_first::<I>(from_the_beginning(paths), dialect, arguments).await?;
    }
    let missing = missing.into_iter().map(|(_, name)| name).collect();
    Ok(FoundTarget { ledger, missing, contracts: (!at_hand).then(|| beside(paths)) })
}

/// The tables that are missing, with their names; refused if they may not be created, or if others do not fit. Only reads.
pub(super) async fn missing_tables<I: Import>(
    arguments: &RunArgs,
    target: &Target,
) -> Result<Vec<(Table, String)>, Refused> {
    let mut missing = Vec::new();
    for (table, name) in tables::<I>(&self::table::<I>(arguments)) {
        if check_table(target, &table, &name).await.map_err(sql_refused)? == TableState::Missing {
            missing.push((table, name));
        }
    }
    match missing.first() {
        Some((_, name)) if arguments.no_create => {
            Err(forbidden(target, &format!("there is no table {name}"), "create"))
        }
        _ => Ok(missing),
    }
}

/// What is to be done with the inputs, by the ledger; refused if no run may begin or go on with them. Only reads.
pub(crate) async fn decide<I: Import>(
    arguments: &RunArgs,
    dialect: &Dialect,
    ledger: &mut Ledger,
    paths: &[PathBuf],
) -> Result<Decision, Refused> {
    let accept = Accept { grown: arguments.accept_grown, changed: arguments.accept_changed };
    let looked_up = ledger.look_up(&identity::<I>(arguments), paths, accept).await;
    let mut decision = looked_up.map_err(look_up_refused)?;
    let done = match &decision {
        Decision::AlreadyDone(done) => done,
        Decision::New { skipped, .. } => skipped,
        Decision::GoOn(run) => &run.skipped,
    };
    if arguments.if_done == IfDone::Fail {
        refuse_known(done)?;
    }
    match &mut decision {
        Decision::AlreadyDone(_) => return Ok(decision),
        Decision::New { inputs, .. } => {
            try_first::<I>(sources(inputs), dialect, arguments).await?;
        }
        Decision::GoOn(run) => {
            run.accepted.extend(same_contracts(&run.info, accept, ledger).await?);
        }
    }
    if I::NEEDS_CONTRACTS && contracts_at_hand::<I>(ledger, paths).await? {
        no_half_contracts::<I>(ledger).await?;
        contracts_are_there(ledger).await?;
    }
    Ok(decision)
}

/// Refuses an input whose content was imported under another name.
fn refuse_known(all: &[Done]) -> Result<(), Refused> {
    let known = all.iter().find_map(|done| Some((done, done.other_path.as_deref()?)));
    let Some((done, other)) = known else { return Ok(()) };
    let (path, other) = (done.path.display(), other.display());
    let message = format!(
        "{path}: the same content was already imported by run {} as {other}; --if-done ok takes that for done",
        done.run
    );
    Err(Refused::new(Exit::Known, message))
}

/// Says which runs had done all inputs before.
pub(crate) fn already_done(all: &[Done]) -> String {
    let runs: BTreeSet<&str> = all.iter().map(|done| done.run.as_str()).collect();
    let plural = if runs.len() == 1 { "" } else { "s" };
    format!("already done by run{plural} {}", Vec::from_iter(runs).join(", "))
}

/// Says that an input is left out for its content.
pub(crate) fn left_out(first: &Path, other: &Path) -> String {
    format!("{}: has the same content as {}: taken once", other.display(), first.display())
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
