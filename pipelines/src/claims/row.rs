//! A scored claim as a row of the target table.

use std::fmt::Write as _;

use gegendruck_stages::value::{Column, ColumnType, Decimal, Row, Table, Value};

use super::{Claim, Decision, Score};
use crate::contracts::MONEY;

/// A claim with what the rules said about it: a row of `claims`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoredClaim {
    claim: Claim,
    score: u16,
    decision: Decision,
    reasons: String,
    payable: Option<Decimal>,
}

impl ScoredClaim {
    /// The claim and its score. The reasons become one text, `above_sum_insured +300; late_report +5 (31 days after the loss)`.
    pub fn new(claim: Claim, score: &Score) -> ScoredClaim {
        let mut reasons = String::new();
        for reason in &score.reasons {
            let separator = if reasons.is_empty() { "" } else { "; " };
            let _ = write!(reasons, "{separator}{reason}");
        }
        ScoredClaim {
            claim,
            score: score.score,
            decision: score.decision,
            reasons,
            payable: score.payable,
        }
    }

    /// The claim.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// What is done with it.
    pub fn decision(&self) -> Decision {
        self.decision
    }
}

impl Row for ScoredClaim {
    const TABLE: Table = Table {
        name: "claims",
        columns: &[
            Column::required("claim_id", ColumnType::Text),
            Column::required("policy_id", ColumnType::Text),
            Column::required("loss_date", ColumnType::Date),
            Column::required("reported_at", ColumnType::Timestamp),
            Column::required("line_of_business", ColumnType::Text),
            Column::required("cause", ColumnType::Text),
            Column::nullable("postal_code", ColumnType::Text),
            Column::required("amount", MONEY),
            Column::required("currency", ColumnType::Text),
            Column::nullable("description", ColumnType::Text),
            Column::required("score", ColumnType::Integer),
            Column::required("decision", ColumnType::Text),
            Column::required("reasons", ColumnType::Text),
            Column::nullable("payable", MONEY),
        ],
        key: &["claim_id"],
    };

    fn values<'a>(&'a self, out: &mut Vec<Value<'a>>) {
        let claim = &self.claim;
        out.extend([
            Value::from(claim.claim_id()),
            Value::from(claim.policy_id()),
            Value::from(claim.loss_date().as_str()),
            Value::from(claim.reported_at().as_str()),
            Value::from(claim.line().name()),
            Value::from(claim.cause()),
            Value::from(claim.postal_code()),
            Value::from(claim.amount()),
            Value::from(claim.currency().code()),
            Value::from(claim.description()),
            Value::from(i64::from(self.score)),
            Value::from(self.decision.name()),
            Value::from(&*self.reasons),
            Value::from(self.payable),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use gegendruck_stages::csv::FromFields;

    use super::super::record::tests::claim;
    use super::super::score::tests::contract;
    use super::super::{RawClaim, score};
    use super::*;

    /// The values of a row, as text.
    fn row(scored: &ScoredClaim) -> Vec<String> {
        let mut values = Vec::new();
        scored.values(&mut values);
        let is_owned = |value: &Value<'_>| matches!(value, Value::Text(Cow::Owned(_)));
        assert!(!values.iter().any(is_owned), "a row lends its texts");
        let text = |value: Value<'_>| match value {
            Value::Null => "NULL".to_owned(),
            Value::Integer(integer) => integer.to_string(),
            Value::Text(text) => text.into_owned(),
        };
        values.into_iter().map(text).collect()
    }

    #[test]
    fn a_row_has_a_value_for_each_column_in_order() {
        let claim = claim(&[("amount", "5100.01"), ("description", "")]);
        let score = score(&claim, Some(&contract()));
        let expected = [
            "C00000001",
            "P00000001",
            "2026-01-05",
            "2026-01-06T07:30:00Z",
            "motor",
            "hail",
            "10115",
            "510001",
            "EUR",
            "NULL",
            "300",
            "review",
            "above_sum_insured +300",
            "500000",
        ];
        assert_eq!(row(&ScoredClaim::new(claim, &score)), expected);
        assert_eq!(expected.len(), ScoredClaim::TABLE.columns.len());
    }

    #[test]
    fn without_a_contract_nothing_is_known_to_be_payable() {
        let claim = claim(&[("postal_code", "")]);
        let row = row(&ScoredClaim::new(claim.clone(), &score(&claim, None)));
        assert_eq!(
            (row[6].as_str(), row[12].as_str(), row[13].as_str()),
            ("NULL", "no_contract +500", "NULL")
        );
    }

    #[test]
    fn the_table_begins_with_the_columns_of_the_file() {
        let columns: Vec<&str> =
            ScoredClaim::TABLE.columns.iter().map(|column| column.name).collect();
        assert!(columns.starts_with(RawClaim::COLUMNS));
    }
}
