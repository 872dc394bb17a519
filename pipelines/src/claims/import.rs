//! The import `claims`: validate, score against the contracts, store; twins are found when the run completes.

use gegendruck::{Pipeline, Reason, call_batch};
use gegendruck_checkpoints::quoted;
use gegendruck_stages::value::{Column, ColumnType, Formats, Table};

use super::scorer::Scorer;
use super::{Claim, RULES_VERSION, RawClaim, ScoredClaim};
use crate::cli::OnConflict;
use crate::contracts::MONEY;
use crate::imports::{Context, Import};

/// Claims, scored against their contracts.
pub struct Claims;

const TWINS: Table = Table {
    name: "claims_twins",
    columns: &[
        Column::required("policy_id", ColumnType::Text),
        Column::required("loss_date", ColumnType::Date),
        Column::required("amount", MONEY),
        Column::required("claim_id", ColumnType::Text),
        Column::required("members", ColumnType::Integer),
    ],
    key: &["claim_id"],
};

impl Import for Claims {
    const NAME: &'static str = "claims";
    const ABOUT: &'static str =
        "insurance claims, validated, scored against their contracts, stored";
    const RULES: u32 = RULES_VERSION;
    const ON_CONFLICT: OnConflict = OnConflict::Error;
    const NEEDS_CONTRACTS: bool = true;
    type Raw = RawClaim;
    type Row = ScoredClaim;

    fn stages(source: Pipeline<RawClaim>, context: &Context) -> Pipeline<ScoredClaim> {
        let formats = context.formats.clone();
        let scorer = Scorer::new(context.target.clone(), context.trace.clone());
        source
            .try_map("validate", move |raw| Claim::validate_as(raw, &formats))
            .stage("score", call_batch(scorer).claim(100).workers(2).buffer(2_000).request(500))
    }

    fn faults(raw: &RawClaim, formats: &Formats) -> Vec<Reason> {
        Claim::faults_as(raw, formats)
    }

    fn more_tables(table: &str) -> Vec<(Table, String)> {
        vec![(TWINS, twins(table))]
    }

    /// Claims with the same policy, loss date and amount: every member of such a group is listed.
    fn finish(table: &str) -> Vec<String> {
        let (table, twins) = (quoted(table), quoted(&twins(table)));
        vec![
            format!("DELETE FROM {twins}"),
            format!(
                "INSERT INTO {twins} (policy_id, loss_date, amount, claim_id, members) \
                 SELECT policy_id, loss_date, amount, claim_id, members FROM {table} \
                 JOIN (SELECT policy_id, loss_date, amount, count(*) AS members FROM {table} \
                 GROUP BY policy_id, loss_date, amount HAVING count(*) > 1) USING (policy_id, loss_date, amount)"
            ),
        ]
    }
}

fn twins(table: &str) -> String {
    format!("{table}_twins")
}
