//! The rules: what speaks against paying a claim, in points that add up. Their table is at [`score`].

use std::fmt;

use gegendruck_stages::value::Decimal;

use super::Claim;
use crate::contracts::{Contract, MONEY_SCALE};

/// Version of the rules. A run goes on only under the version that it began with, so any change of points, limits or texts
/// raises it.
pub const RULES_VERSION: u32 = 1;

const REFUSE_FROM: u16 = 1000;
const REVIEW_FROM: u16 = 300;
const DAYS_TO_REPORT: i64 = 30;
const POINTS_A_LATE_DAY: i64 = 5;
const LATE_REPORT_MAX: i64 = 600;

/// What the rules say about a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score {
    /// Points against paying, 0 to 1000.
    pub score: u16,
    /// What follows from the points.
    pub decision: Decision,
    /// The rules that gave points: cover, line, amount, report.
    pub reasons: Vec<ScoreReason>,
    /// What would be paid; `None` if it cannot be known.
    pub payable: Option<Decimal>,
}

/// What is done with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Pay what is payable.
    Accept,
    /// A claims handler decides.
    Review,
    /// Pay nothing.
    Refuse,
}

impl Decision {
    /// The decision's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Decision::Accept => "accept",
            Decision::Review => "review",
            Decision::Refuse => "refuse",
        }
    }
}

/// A rule that gave points, with the fact that it judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScoreReason {
    /// There is no contract of that policy.
    NoContract,
    /// The loss lies so many days before cover begins.
    BeforeCover(i64),
    /// The loss lies so many days after cover ended.
    AfterCover(i64),
    /// The contract does not cover the line of business.
    LineNotCovered,
    /// The amount is not in the contract's currency.
    OtherCurrency,
    /// The amount is not above the deductible.
    BelowDeductible,
    /// The amount less the deductible is above the sum insured.
    AboveSumInsured,
    /// Reported so many days after the loss.
    LateReport(i64),
}

impl ScoreReason {
    /// The rule's name.
    pub fn name(self) -> &'static str {
        match self {
            ScoreReason::NoContract => "no_contract",
            ScoreReason::BeforeCover(_) => "before_cover",
            ScoreReason::AfterCover(_) => "after_cover",
            ScoreReason::LineNotCovered => "line_not_covered",
            ScoreReason::OtherCurrency => "other_currency",
            ScoreReason::BelowDeductible => "below_deductible",
            ScoreReason::AboveSumInsured => "above_sum_insured",
            ScoreReason::LateReport(_) => "late_report",
        }
    }

    /// The points that it gives.
    pub fn points(self) -> u16 {
        match self {
            ScoreReason::BeforeCover(_)
            | ScoreReason::AfterCover(_)
            | ScoreReason::LineNotCovered
            | ScoreReason::BelowDeductible => REFUSE_FROM,
            ScoreReason::NoContract => 500,
            ScoreReason::OtherCurrency => 400,
            ScoreReason::AboveSumInsured => 300,
            ScoreReason::LateReport(days) => {
                ((days - DAYS_TO_REPORT) * POINTS_A_LATE_DAY).clamp(0, LATE_REPORT_MAX) as u16
            }
        }
    }
}

impl fmt::Display for ScoreReason {
    /// `late_report +130 (56 days after the loss)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} +{}", self.name(), self.points())?;
        let unit = |days: i64| if days == 1 { "day" } else { "days" };
        match *self {
            ScoreReason::BeforeCover(days) => {
                write!(f, " ({days} {} before the first day)", unit(days))
            }
            ScoreReason::AfterCover(days) => {
                write!(f, " ({days} {} after the last day)", unit(days))
            }
            ScoreReason::LateReport(days) => write!(f, " ({days} days after the loss)"),
            _ => Ok(()),
        }
    }
}

/// Applies the rules to a claim and the contract of its policy, if there is one.
///
/// | reason | points | when |
/// |---|---|---|
/// | `before_cover` | 1000 | the loss lies before the contract's first day |
/// | `after_cover` | 1000 | the loss lies after its last day |
/// | `line_not_covered` | 1000 | the contract does not cover the claim's line of business |
/// | `below_deductible` | 1000 | the amount is not above the deductible: nothing is payable |
/// | `no_contract` | 500 | there is no contract of that policy: a mistyped number is likelier than fraud, so somebody looks |
/// | `other_currency` | 400 | the amount is not in the contract's currency, so deductible and sum insured say nothing about it |
/// | `above_sum_insured` | 300 | the amount less the deductible is above the sum insured: only that is payable |
/// | `late_report` | 5 a day, at most 600 | reported more than 30 days after the loss, for each day beyond |
///
/// The score is the sum of the points. A claim is refused at 1000, reviewed from 300 and accepted below. Only a rule of 1000
/// points refuses: without one the sum ends at 999, since several doubts are no proof.
///
/// Payable is the amount less the deductible, at most the sum insured; nothing if the claim is refused; unknown without a
/// contract in the claim's currency.
pub fn score(claim: &Claim, contract: Option<&Contract>) -> Score {
    let mut reasons = Vec::new();
    let payable = match contract {
        Some(contract) => {
            judge_cover(claim, contract, &mut reasons);
            judge_amount(claim, contract, &mut reasons)
        }
        None => {
            reasons.push(ScoreReason::NoContract);
            None
        }
    };
    let days_to_report = claim.reported_at().written_on().days_since(*claim.loss_date());
    if days_to_report > DAYS_TO_REPORT {
        reasons.push(ScoreReason::LateReport(days_to_report));
    }

    let refused = reasons.iter().any(|reason| reason.points() == REFUSE_FROM);
    let points: u16 = reasons.iter().map(|reason| reason.points()).sum();
    let score = if refused { REFUSE_FROM } else { points.min(REFUSE_FROM - 1) };
    let decision = match score {
        REFUSE_FROM.. => Decision::Refuse,
        REVIEW_FROM.. => Decision::Review,
        _ => Decision::Accept,
    };
    let payable = if refused { payable.map(|_| Decimal::new(0, MONEY_SCALE)) } else { payable };
    Score { score, decision, reasons, payable }
}

fn judge_cover(claim: &Claim, contract: &Contract, reasons: &mut Vec<ScoreReason>) {
    let loss = *claim.loss_date();
    if loss < contract.valid_from {
        reasons.push(ScoreReason::BeforeCover(contract.valid_from.days_since(loss)));
    }
    if let Some(last) = contract.valid_to.filter(|last| loss > *last) {
        reasons.push(ScoreReason::AfterCover(loss.days_since(last)));
    }
    if !contract.lines.contains(claim.line()) {
        reasons.push(ScoreReason::LineNotCovered);
    }
}

/// What is payable, were the claim covered; `None` in another currency.
fn judge_amount(
    claim: &Claim,
    contract: &Contract,
    reasons: &mut Vec<ScoreReason>,
) -> Option<Decimal> {
    if claim.currency() != contract.currency {
        reasons.push(ScoreReason::OtherCurrency);
        return None;
    }
    let (insured, beyond_deductible) =
        (contract.sum_insured.units(), claim.amount().units() - contract.deductible.units());
    if beyond_deductible <= 0 {
        reasons.push(ScoreReason::BelowDeductible);
    }
    if beyond_deductible > insured {
        reasons.push(ScoreReason::AboveSumInsured);
    }
    Some(Decimal::new(beyond_deductible.clamp(0, insured), MONEY_SCALE))
}

#[cfg(test)]
pub(super) mod tests {
    use gegendruck_stages::value::{Currency, Date};

    use super::super::record::tests::claim;
    use super::*;
    use crate::contracts::Lines;

    /// Motor cover in 2025 and 2026, 100.00 to 5,000.00 EUR.
    pub(in crate::claims) fn contract() -> Contract {
        Contract {
            policy_id: "P00000001".into(),
            lines: Lines::parse("motor|legal").unwrap(),
            valid_from: Date::from_iso("2025-01-01").unwrap(),
            valid_to: Date::from_iso("2026-12-31").ok(),
            sum_insured: Decimal::new(500_000, 2),
            deductible: Decimal::new(10_000, 2),
            currency: Currency::parse("EUR").unwrap(),
        }
    }

    /// Scores the good claim of `record` with some columns replaced: `score decision payable: reasons`.
    #[track_caller]
    fn check(changes: &[(&str, &str)], contract: Option<Contract>, expected: &str) {
        let score = score(&claim(changes), contract.as_ref());
        let payable = score.payable.map_or("unknown".to_owned(), |payable| payable.to_string());
        let reasons: Vec<String> = score.reasons.iter().map(ToString::to_string).collect();
        let found =
            format!("{} {} {payable}: {}", score.score, score.decision.name(), reasons.join("; "));
        assert_eq!(found, expected, "for {changes:?}");
    }

    fn report(day: &'static str) -> [(&'static str, &'static str); 2] {
        [("loss_date", "2026-01-01"), ("reported_at", day)]
    }

    #[test]
    fn a_claim_within_its_contract_is_accepted() {
        check(&[], Some(contract()), "0 accept 1150.50: ");
        check(&[("line_of_business", "legal")], Some(contract()), "0 accept 1150.50: ");
        check(&[], Some(Contract { valid_to: None, ..contract() }), "0 accept 1150.50: ");
    }

    #[test]
    fn no_contract_is_reviewed() {
        check(&[], None, "500 review unknown: no_contract +500");
    }

    #[test]
    fn cover_holds_on_its_first_and_last_day() {
        let cover = |from: &str, to: &str| {
            let (valid_from, valid_to) = (Date::from_iso(from).unwrap(), Date::from_iso(to).ok());
            Some(Contract { valid_from, valid_to, ..contract() })
        };
        check(&[], cover("2026-01-05", "2026-01-05"), "0 accept 1150.50: ");
        check(
            &[],
            cover("2026-01-06", "2026-12-31"),
            "1000 refuse 0.00: before_cover +1000 (1 day before the first day)",
        );
        check(
            &[],
            cover("2025-01-01", "2026-01-03"),
            "1000 refuse 0.00: after_cover +1000 (2 days after the last day)",
        );
    }

    #[test]
    fn a_line_that_is_not_covered_is_refused() {
        check(
            &[("line_of_business", "travel")],
            Some(contract()),
            "1000 refuse 0.00: line_not_covered +1000",
        );
    }

    #[test]
    fn the_deductible_is_taken_off_and_a_claim_below_it_is_refused() {
        check(&[("amount", "100.01")], Some(contract()), "0 accept 0.01: ");
        check(
            &[("amount", "100.00")],
            Some(contract()),
            "1000 refuse 0.00: below_deductible +1000",
        );
        check(&[("amount", "0.01")], Some(contract()), "1000 refuse 0.00: below_deductible +1000");
    }

    #[test]
    fn no_more_than_the_sum_insured_is_payable() {
        check(&[("amount", "5100.00")], Some(contract()), "0 accept 5000.00: ");
        check(
            &[("amount", "5100.01")],
            Some(contract()),
            "300 review 5000.00: above_sum_insured +300",
        );
    }

    #[test]
    fn another_currency_is_reviewed_and_not_compared() {
        check(
            &[("currency", "JPY"), ("amount", "9000000")],
            Some(contract()),
            "400 review unknown: other_currency +400",
        );
    }

    #[test]
    fn a_late_report_costs_points_by_the_day() {
        let contract = || Some(contract());
        check(&report("2026-01-31T12:00:00+01:00"), contract(), "0 accept 1150.50: ");
        check(
            &report("2026-02-01T12:00:00+01:00"),
            contract(),
            "5 accept 1150.50: late_report +5 (31 days after the loss)",
        );
        check(
            &report("2026-03-31T12:00:00+02:00"),
            contract(),
            "295 accept 1150.50: late_report +295 (89 days after the loss)",
        );
        check(
            &report("2026-04-01T12:00:00+02:00"),
            contract(),
            "300 review 1150.50: late_report +300 (90 days after the loss)",
        );
        check(
            &report("2036-01-01T12:00:00+01:00"),
            contract(),
            "600 review 1150.50: late_report +600 (3652 days after the loss)",
        );
    }

    #[test]
    fn several_doubts_do_not_refuse_and_all_reasons_are_named() {
        check(
            &report("2036-01-01T12:00:00+01:00"),
            None,
            "999 review unknown: no_contract +500; late_report +600 (3652 days after the loss)",
        );
        check(
            &[("line_of_business", "travel"), ("amount", "5100.01"), ("loss_date", "2024-12-31")],
            Some(contract()),
            "1000 refuse 0.00: before_cover +1000 (1 day before the first day); line_not_covered +1000; \
             above_sum_insured +300; late_report +600 (371 days after the loss)",
        );
    }
}
