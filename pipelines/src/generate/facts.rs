//! What is in each generated contract and claim, as pure functions of seed and number.
//!
//! Claims are losses of the year 2025. Most keep every rule of the scoring; a few per cent break one, so that every rule and
//! every decision occurs.

use jiff::civil::{self, Weekday};

use super::rng::{Rng, Subject};
use super::words::CAUSES;
use crate::contracts::Line;

/// A day as days from 2022-01-01 on.
pub(super) type Day = u64;

const DAYS: usize = 9 * 365 + 2;
const START_OF_2025: Day = 1_096;
const START_OF_JULY_2025: Day = 1_277;
const START_OF_2026: Day = 1_461;

/// The days that occur, as they are written.
pub(super) struct Calendar(Vec<CalendarDay>);

struct CalendarDay {
    text: [u8; 10],
    /// Central Europe's offset during the day, from 7 o'clock on.
    offset: &'static [u8; 6],
}

impl Calendar {
    pub(super) fn new() -> Calendar {
        let first = civil::date(2022, 1, 1);
        let days = first.series(jiff::Span::new().days(1)).take(DAYS);
        Calendar(days.map(CalendarDay::new).collect())
    }

    pub(super) fn text(&self, day: Day) -> &[u8; 10] {
        &self.0[day as usize].text
    }

    pub(super) fn offset(&self, day: Day) -> &'static [u8; 6] {
        self.0[day as usize].offset
    }
}

impl CalendarDay {
    fn new(date: civil::Date) -> CalendarDay {
        let last_sunday = |month| {
            let last = civil::date(date.year(), month, 31);
            last.nth_weekday_of_month(-1, Weekday::Sunday).expect("every month has a last Sunday")
        };
        let is_summer = last_sunday(3) <= date && date < last_sunday(10);
        let text =
            date.to_string().into_bytes().try_into().expect("an ISO date has ten characters");
        CalendarDay { text, offset: if is_summer { b"+02:00" } else { b"+01:00" } }
    }
}

/// A generated contract.
pub(super) struct ContractFacts {
    pub(super) line: Line,
    pub(super) second_line: Option<Line>,
    pub(super) valid_from: Day,
    pub(super) valid_to: Option<Day>,
    /// In cents, like all amounts here.
    pub(super) sum_insured: u64,
    pub(super) deductible: u64,
    pub(super) currency: &'static str,
}

impl ContractFacts {
    /// Contract `number`, from 1.
    pub(super) fn of(seed: u64, number: u64) -> ContractFacts {
        let mut rng = Rng::of(seed, Subject::Contract, number);
        let line = any_line(&mut rng);
        let second_line =
            Some(any_line(&mut rng)).filter(|second| *second != line && rng.chance(250_000));
        let valid_from = rng.below(START_OF_JULY_2025);
        let valid_to = rng.chance(400_000).then(|| {
            let years = (START_OF_JULY_2025 - valid_from).div_ceil(365) + rng.below(2);
            valid_from + years * 365 - 1
        });
        let thousands = match line {
            Line::Accident | Line::Household => 20 + rng.below(81),
            Line::Building => 150 + rng.below(651),
            Line::Legal | Line::Travel => 5 + rng.below(46),
            Line::Liability => 1_000 * (1 + rng.below(10)),
            Line::Motor => 15 + rng.below(86),
        };
        let deductible = rng.pick(&[0, 0, 150, 150, 300, 500, 1_000]) * 100;
        ContractFacts {
            line,
            second_line,
            valid_from,
            valid_to,
            sum_insured: thousands * 100_000,
            deductible,
            currency: any_currency(&mut rng),
        }
    }
}

/// A generated claim, but its number, report and description.
pub(super) struct ClaimFacts {
    pub(super) policy: u64,
    pub(super) has_contract: bool,
    pub(super) loss: Day,
    pub(super) line: Line,
    pub(super) cause: &'static str,
    /// Empty if it is not known.
    pub(super) postal_code: PostalCode,
    pub(super) amount: u64,
    pub(super) currency: &'static str,
}

/// Number and how many digits it is written with.
pub(super) type PostalCode = (u64, usize);

impl ClaimFacts {
    /// The claim in row `row`, from 0; without a contract in `orphans` of a million cases.
    pub(super) fn of(seed: u64, row: u64, contracts: u64, orphans: u64) -> ClaimFacts {
        let mut rng = Rng::of(seed, Subject::Claim, row);
        let has_contract = !rng.chance(orphans);
        let policy = 1 + rng.below(contracts);
        // The contract of an orphan exists nowhere but here: its number lies behind all those in the file.
        let policy = if has_contract { policy } else { contracts + policy };
        let contract = ContractFacts::of(seed, policy);
        let line = if rng.chance(15_000) { any_line(&mut rng) } else { contract.line };
        let currency = if rng.chance(5_000) { any_currency(&mut rng) } else { contract.currency };
        ClaimFacts {
            policy,
            has_contract,
            loss: loss(&mut rng, &contract),
            line,
            cause: rng.pick(CAUSES[line as usize]).name,
            postal_code: postal_code(&mut rng, currency),
            amount: amount(&mut rng, &contract),
            currency,
        }
    }
}

/// When and how many days after the loss a claim was reported: day, and second of that day between 7 and 22 o'clock.
pub(super) fn report(seed: u64, row: u64, loss: Day) -> (Day, u64) {
    let mut rng = Rng::of(seed, Subject::Report, row);
    let widest = 1 + rng.below(25);
    let delay = if rng.chance(40_000) { 31 + rng.below(200) } else { rng.below(widest) };
    (loss + delay, 7 * 3_600 + rng.below(15 * 3_600))
}

/// A day of 2025 within the contract, or now and then one shortly before or after it.
fn loss(rng: &mut Rng, contract: &ContractFacts) -> Day {
    let first = contract.valid_from.max(START_OF_2025);
    let end = contract.valid_to.map_or(START_OF_2026, |last| START_OF_2026.min(last + 1));
    let is_outside = rng.chance(80_000);
    let days = rng.below(30);
    if is_outside && contract.valid_from > START_OF_2025 {
        return first - 1 - days;
    }
    if is_outside && end < START_OF_2026 {
        return end + days;
    }
    first + rng.below(end - first)
}

/// Mostly some hundreds, seldom near the sum insured or above it.
fn amount(rng: &mut Rng, contract: &ContractFacts) -> u64 {
    if rng.chance(10_000) {
        let percent = 40 + rng.below(90);
        return contract.sum_insured / 100 * percent + rng.below(100);
    }
    let widest = 1 + rng.below(900_000);
    let above = 1 + rng.below(widest);
    if rng.chance(970_000) { contract.deductible + above } else { above }
}

fn postal_code(rng: &mut Rng, currency: &str) -> PostalCode {
    match currency {
        _ if rng.chance(20_000) => (0, 0),
        "CHF" => (1_000 + rng.below(9_000), 4),
        _ => (1_000 + rng.below(99_000), 5),
    }
}

fn any_line(rng: &mut Rng) -> Line {
    match rng.below(100) {
        0..40 => Line::Motor,
        40..60 => Line::Household,
        60..75 => Line::Building,
        75..87 => Line::Liability,
        87..93 => Line::Travel,
        93..97 => Line::Accident,
        _ => Line::Legal,
    }
}

fn any_currency(rng: &mut Rng) -> &'static str {
    match rng.below(100) {
        0..90 => "EUR",
        90..96 => "CHF",
        96..98 => "PLN",
        98 => "CZK",
        _ => "DKK",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_knows_its_days_and_when_clocks_change() {
        let calendar = Calendar::new();
        let text = |day| str::from_utf8(calendar.text(day)).unwrap();
        assert_eq!(
            [0, START_OF_2025, START_OF_JULY_2025, START_OF_2026].map(text),
            ["2022-01-01", "2025-01-01", "2025-07-01", "2026-01-01"]
        );
        assert_eq!(text(DAYS as u64 - 1), "2030-12-31");
        let day = |month, day| {
            let date = civil::date(2025, month, day);
            date.duration_since(civil::date(2022, 1, 1)).as_hours() as u64 / 24
        };
        let days = [day(3, 29), day(3, 30), day(10, 25), day(10, 26)];
        assert_eq!(
            days.map(|day| calendar.offset(day)),
            [b"+01:00", b"+02:00", b"+02:00", b"+01:00"]
        );
    }
}
