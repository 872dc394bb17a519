//! The import `claims`: validate, score against the contracts, store; twins are found when the run completes.

use gegendruck::{Pipeline, Reason, call_batch};
use gegendruck_stages::value::Formats;

use super::scorer::Scorer;
use super::{Claim, RULES_VERSION, RawClaim, ScoredClaim};
use crate::cli::OnConflict;
use crate::imports::{Context, Import};

/// Claims, scored against their contracts.
pub struct Claims;

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

    /// Claims with the same policy, loss date and amount: every member of such a group is listed.
    fn finish(table: &str) -> Vec<String> {
        let table = table.replace('"', "\"\"");
        vec![
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}_twins\" (policy_id TEXT NOT NULL, loss_date TEXT NOT NULL, \
                 amount INTEGER NOT NULL, claim_id TEXT NOT NULL PRIMARY KEY, members INTEGER NOT NULL) STRICT"
            ),
            format!("DELETE FROM \"{table}_twins\""),
            format!(
                "INSERT INTO \"{table}_twins\" SELECT policy_id, loss_date, amount, claim_id, members FROM \"{table}\" \
                 JOIN (SELECT policy_id, loss_date, amount, count(*) AS members FROM \"{table}\" \
                 GROUP BY policy_id, loss_date, amount HAVING count(*) > 1) USING (policy_id, loss_date, amount)"
            ),
        ]
    }
}
