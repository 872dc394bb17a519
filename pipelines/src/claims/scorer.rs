//! Scoring as a stage: looks contracts up in the target, once for all claims of a call, and applies the rules.

use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use gegendruck::{Answers, CallBatch, Failure, Item};
use gegendruck_checkpoints::{Target, Trouble, trouble};
use gegendruck_stages::value::{ColumnType, Row as _, Value};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Row, ValueRef};
use tokio::sync::Mutex;

use super::{Claim, ScoredClaim, score};
use crate::contracts::Contract;
use crate::outputs::Kind;

/// Scores claims against the contracts in a target.
///
/// Each call takes a connection out of a small stock and puts it back when it was answered, so that there are as many as calls
/// that run at once, and one that failed is not used again.
pub struct Scorer {
    target: Target,
    idle: Mutex<Vec<SqliteConnection>>,
    query: String,
    trace: Option<PathBuf>,
    traced: OnceLock<Result<File, String>>,
}

impl Scorer {
    /// A scorer for this target. `trace`: a file that takes a line for every claim that is scored: stage and record number.
    pub fn new(target: Target, trace: Option<PathBuf>) -> Scorer {
        let columns: Vec<_> =
            Contract::TABLE.columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
        let query = format!(
            "SELECT {} FROM \"{}\" WHERE policy_id IN (SELECT value FROM json_each(?))",
            columns.join(", "),
            Contract::TABLE.name
        );
        Scorer { target, idle: Mutex::default(), query, trace, traced: OnceLock::new() }
    }

    async fn contracts(
        &self,
        claims: &[Item<Claim>],
    ) -> Result<HashMap<Box<str>, Contract>, Failure> {
        let policies: BTreeSet<&str> = claims.iter().map(|claim| claim.policy_id()).collect();
        let list =
            serde_json::to_string(&policies).map_err(|error| Failure::Fatal(error.to_string()))?;
        let idle = self.idle.lock().await.pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.target.connect_to_read().await.map_err(failed)?,
        };
        let rows =
            sqlx::query(&self.query).bind(list).fetch_all(&mut connection).await.map_err(failed)?;
        self.idle.lock().await.push(connection);
        let mut contracts = HashMap::with_capacity(rows.len());
        for row in &rows {
            let contract = contract(row)?;
            contracts.insert(contract.policy_id.clone(), contract);
        }
        Ok(contracts)
    }

    /// One line a claim, written before it is scored, in one piece: it is there even if the process dies right after.
    fn trace(&self, claims: &[Item<Claim>]) -> Result<(), Failure> {
        let Some(path) = &self.trace else { return Ok(()) };
        let open = || {
            Kind::Trace.may_be_at(path)?;
            OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(path)
                .map_err(|error| error.to_string())
        };
        let lines: String =
            claims.iter().map(|claim| format!("score {}\n", claim.at.record)).collect();
        let written = match self.traced.get_or_init(open) {
            Ok(file) => (&*file).write_all(lines.as_bytes()).map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        written.map_err(|error| {
            Failure::Fatal(format!("{}: the trace cannot be written: {error}", path.display()))
        })
    }
}

impl CallBatch<Claim> for Scorer {
    type Out = ScoredClaim;

    async fn call_batch(&self, claims: &[Item<Claim>]) -> Answers<ScoredClaim> {
        self.trace(claims)?;
        let contracts = self.contracts(claims).await?;
        let judged = claims.iter().map(|claim| {
            let judged = score(claim, contracts.get(claim.policy_id()));
            Ok(ScoredClaim::new(claim.value.clone(), &judged))
        });
        Ok(judged.collect())
    }
}

fn failed(error: sqlx::Error) -> Failure {
    match trouble(&error) {
        Trouble::Busy => Failure::transient("the target is held by somebody else"),
        trouble => Failure::Fatal(format!("contracts cannot be looked up: {trouble}")),
    }
}

fn contract(row: &SqliteRow) -> Result<Contract, Failure> {
    let mut values = Vec::with_capacity(Contract::TABLE.columns.len());
    for (index, column) in Contract::TABLE.columns.iter().enumerate() {
        let raw = row.try_get_raw(index).map_err(failed)?;
        values.push(match column.ty {
            _ if raw.is_null() => Value::Null,
            ColumnType::Integer | ColumnType::Decimal { .. } => {
                Value::Integer(row.try_get(index).map_err(failed)?)
            }
            ColumnType::Text | ColumnType::Date | ColumnType::Timestamp => {
                Value::from(row.try_get::<&str, _>(index).map_err(failed)?)
            }
        });
    }
    Contract::from_values(&values)
        .map_err(|error| Failure::Fatal(format!("table contracts: {error}")))
}
