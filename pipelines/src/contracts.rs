//! Contracts: the reference data that claims are scored against.
//!
//! ```text
//!  contracts.csv --> RawContract --validate--> Contract --Row--> table contracts
//!                                    |                                |
//!                                    v                                v
//!                                 rejects             Contract::from_values, for scoring
//! ```
//!
//! | column | rule |
//! |---|---|
//! | `policy_id` | the key: `P` and 4 to 12 digits |
//! | `lines_of_business` | lines that are covered, each once, joined by `\|`: `household\|liability` |
//! | `valid_from` | first day of cover |
//! | `valid_to` | last day of cover, not before the first; absent while the contract is open |
//! | `sum_insured` | most that is paid for one loss, above zero, two decimals |
//! | `deductible` | what the holder bears of each loss, not below zero, two decimals |
//! | `currency` | of both amounts |
//!
//! The holder is absent on purpose: no rule needs a person's data.

mod import;

use std::fmt;

use gegendruck::Reason;
use gegendruck_stages::csv::{Fields, FromFields};
use gegendruck_stages::value::{
    Column, ColumnType, Currency, Date, Decimal, Fault, Faults, Formats, Missing, Packed, Row,
    Table, Value,
};

pub use import::Contracts;

/// Money in claims and contracts: up to 9,999,999,999.99.
pub const MONEY: ColumnType =
    ColumnType::Decimal { precision: MONEY_PRECISION, scale: MONEY_SCALE };
pub(crate) const MONEY_PRECISION: u8 = 12;
pub(crate) const MONEY_SCALE: u8 = 2;

/// A contract's fields, as the file has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawContract(Packed<7>);

impl FromFields for RawContract {
    const COLUMNS: &'static [&'static str] = &[
        "policy_id",
        "lines_of_business",
        "valid_from",
        "valid_to",
        "sum_insured",
        "deductible",
        "currency",
    ];

    fn from_fields(fields: &Fields<'_>) -> Self {
        RawContract(Packed::from_fields(fields))
    }
}

/// A contract that keeps every rule of [the table](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// The key.
    pub policy_id: Box<str>,
    /// What is covered.
    pub lines: Lines,
    /// First day of cover.
    pub valid_from: Date,
    /// Last day of cover; `None` while the contract is open.
    pub valid_to: Option<Date>,
    /// Most that is paid for one loss.
    pub sum_insured: Decimal,
    /// What the holder bears of each loss.
    pub deductible: Decimal,
    /// Currency of both amounts.
    pub currency: Currency,
}

impl Contract {
    /// The contract, if its fields are written in the default formats and keep every rule.
    ///
    /// # Errors
    /// The first fault in the order of columns.
    pub fn validate(raw: &RawContract) -> Result<Contract, Reason> {
        Contract::validate_as(raw, &Formats::default())
    }

    /// The contract, if its fields are written in these formats and keep every rule.
    ///
    /// # Errors
    /// The first fault in the order of columns.
    pub fn validate_as(raw: &RawContract, formats: &Formats) -> Result<Contract, Reason> {
        let mut faults = Faults::default();
        let contract = check(raw, formats, &mut faults);
        contract.ok_or_else(|| faults.into_first().expect("a contract is refused for a fault"))
    }

    /// Every fault of the fields, in the order of columns; empty if [`Contract::validate_as`] takes them.
    pub fn faults_as(raw: &RawContract, formats: &Formats) -> Vec<Reason> {
        let mut faults = Faults::default();
        check(raw, formats, &mut faults);
        faults.into_vec()
    }

    /// The contract that a row of the table holds: what [`Row::values`] gave, in the same order.
    ///
    /// # Errors
    /// If the row is not one that this crate has written.
    pub fn from_values(values: &[Value<'_>]) -> Result<Contract, ForeignRow> {
        let [policy_id, lines, valid_from, valid_to, sum_insured, deductible, currency] = values
        else {
            return Err(ForeignRow { column: "policy_id" });
        };
        let valid_to = match valid_to {
            Value::Null => None,
            date => Some(stored("valid_to", date, stored_date)?),
        };
        Ok(Contract {
            policy_id: stored("policy_id", policy_id, stored_text)?.into(),
            lines: stored("lines_of_business", lines, |value| {
                Lines::parse(stored_text(value)?).ok()
            })?,
            valid_from: stored("valid_from", valid_from, stored_date)?,
            valid_to,
            sum_insured: stored("sum_insured", sum_insured, stored_money)?,
            deductible: stored("deductible", deductible, stored_money)?,
            currency: stored("currency", currency, |value| {
                Currency::parse(stored_text(value)?).ok()
            })?,
        })
    }
}

/// Walks the columns in order; `None` if there was a fault.
fn check(raw: &RawContract, formats: &Formats, faults: &mut Faults) -> Option<Contract> {
    let [policy_id, lines, valid_from, valid_to, sum_insured, deductible, currency] = raw.0.all();
    let present = |text| formats.present(text).ok_or(Missing);
    let money = |text| formats.decimal(text, MONEY_PRECISION, MONEY_SCALE);

    let policy_id = faults
        .check("policy_id", present(policy_id))
        .and_then(|id| faults.check("policy_id", identifier(id, 'P')));
    let lines = faults
        .check("lines_of_business", present(lines))
        .and_then(|lines| faults.check("lines_of_business", Lines::parse(lines)));
    let valid_from = faults
        .check("valid_from", present(valid_from))
        .and_then(|date| faults.check("valid_from", formats.date(date)));
    let valid_to = match formats.present(valid_to) {
        None => Some(None),
        Some(date) => faults.check("valid_to", formats.date(date)).map(Some),
    };
    if let (Some(from), Some(Some(to))) = (valid_from, valid_to)
        && to < from
    {
        faults.push("valid_to", ContractFault::BeforeStart { days: from.days_since(to) });
    }
    let sum_insured = faults
        .check("sum_insured", present(sum_insured))
        .and_then(|sum| faults.check("sum_insured", money(sum)));
    if sum_insured.is_some_and(|sum| sum.units() <= 0) {
        faults.push("sum_insured", ContractFault::NotPositive);
    }
    let deductible = faults
        .check("deductible", present(deductible))
        .and_then(|deductible| faults.check("deductible", money(deductible)));
    if deductible.is_some_and(|deductible| deductible.units() < 0) {
        faults.push("deductible", ContractFault::Negative);
    }
    let currency = faults
        .check("currency", present(currency))
        .and_then(|currency| faults.check("currency", Currency::parse(currency)));

    if !faults.is_empty() {
        return None;
    }
    Some(Contract {
        policy_id: policy_id?.into(),
        lines: lines?,
        valid_from: valid_from?,
        valid_to: valid_to?,
        sum_insured: sum_insured?,
        deductible: deductible?,
        currency: currency?,
    })
}

impl Row for Contract {
    const TABLE: Table = Table {
        name: "contracts",
        columns: &[
            Column::required("policy_id", ColumnType::Text),
            Column::required("lines_of_business", ColumnType::Text),
            Column::required("valid_from", ColumnType::Date),
            Column::nullable("valid_to", ColumnType::Date),
            Column::required("sum_insured", MONEY),
            Column::required("deductible", MONEY),
            Column::required("currency", ColumnType::Text),
        ],
        key: &["policy_id"],
    };

    fn values<'a>(&'a self, out: &mut Vec<Value<'a>>) {
        out.extend([
            Value::from(&*self.policy_id),
            Value::Text(self.lines.to_string().into()),
            Value::from(self.valid_from.as_str()),
            Value::from(self.valid_to.as_ref().map(Date::as_str)),
            Value::from(self.sum_insured),
            Value::from(self.deductible),
            Value::from(self.currency.code()),
        ]);
    }
}

/// A row of the contracts table that no contract can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of a stored contract holds what no import has written")]
pub struct ForeignRow {
    /// The first column at fault.
    pub column: &'static str,
}

fn stored<'a, T>(
    column: &'static str,
    value: &'a Value<'a>,
    read: impl FnOnce(&'a Value<'a>) -> Option<T>,
) -> Result<T, ForeignRow> {
    read(value).ok_or(ForeignRow { column })
}

fn stored_text<'a>(value: &'a Value<'a>) -> Option<&'a str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn stored_date(value: &Value<'_>) -> Option<Date> {
    Date::from_iso(stored_text(value)?).ok()
}

fn stored_money(value: &Value<'_>) -> Option<Decimal> {
    if let Value::Integer(units) = value { Some(Decimal::new(*units, MONEY_SCALE)) } else { None }
}

/// A line of business: a kind of risk that can be insured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// Harm to the holder's own body.
    Accident,
    /// The house.
    Building,
    /// What is in the house.
    Household,
    /// Costs of a lawsuit.
    Legal,
    /// Harm done to others.
    Liability,
    /// Vehicles.
    Motor,
    /// Journeys.
    Travel,
}

impl Line {
    /// All lines, in alphabetical order.
    pub const ALL: [Line; 7] = [
        Line::Accident,
        Line::Building,
        Line::Household,
        Line::Legal,
        Line::Liability,
        Line::Motor,
        Line::Travel,
    ];

    /// The line of that name, in small letters.
    ///
    /// # Errors
    /// If there is no such line.
    pub fn parse(name: &str) -> Result<Line, LineFault> {
        Line::ALL.into_iter().find(|line| line.name() == name).ok_or(LineFault::UnknownLine)
    }

    /// The line's name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Line::Accident => "accident",
            Line::Building => "building",
            Line::Household => "household",
            Line::Legal => "legal",
            Line::Liability => "liability",
            Line::Motor => "motor",
            Line::Travel => "travel",
        }
    }
}

/// A set of lines of business, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lines(u8);

impl Lines {
    /// Stands between two names.
    pub const SEPARATOR: char = '|';

    /// Reads `household|liability`, in any order.
    ///
    /// # Errors
    /// If a name is unknown or stands there twice.
    pub fn parse(names: &str) -> Result<Lines, LineFault> {
        let mut lines = Lines(0);
        for name in names.split(Lines::SEPARATOR) {
            let line = Line::parse(name)?;
            if lines.contains(line) {
                return Err(LineFault::RepeatedLine);
            }
            lines.0 |= 1 << line as u8;
        }
        Ok(lines)
    }

    /// True if the line is covered.
    pub fn contains(self, line: Line) -> bool {
        self.0 & (1 << line as u8) != 0
    }
}

impl From<Line> for Lines {
    fn from(line: Line) -> Self {
        Lines(1 << line as u8)
    }
}

impl fmt::Display for Lines {
    /// The names in alphabetical order, joined by `|`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut mark = "";
        for line in Line::ALL.into_iter().filter(|&line| self.contains(line)) {
            write!(f, "{mark}{}", line.name())?;
            mark = "|";
        }
        Ok(())
    }
}

/// Why a text names no line of business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineFault {
    /// There is no line of that name.
    #[error(
        "not a line of business, expected accident, building, household, legal, liability, motor or travel"
    )]
    UnknownLine,
    /// One line stands in the list twice.
    #[error("one line of business stands in the list twice")]
    RepeatedLine,
}

impl Fault for LineFault {
    fn kind(&self) -> &'static str {
        match self {
            LineFault::UnknownLine => "unknown_line",
            LineFault::RepeatedLine => "repeated_line",
        }
    }
}

/// An identifier is not its letter followed by 4 to 12 digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an identifier, expected {prefix} and 4 to 12 digits")]
pub struct IdentifierFault {
    /// The letter with which such identifiers begin.
    pub prefix: char,
}

impl Fault for IdentifierFault {
    fn kind(&self) -> &'static str {
        "bad_identifier"
    }
}

/// The identifier, if it is `prefix` followed by 4 to 12 digits.
pub(crate) fn identifier(text: &str, prefix: char) -> Result<&str, IdentifierFault> {
    let digits = text.strip_prefix(prefix).unwrap_or_default();
    let well_formed =
        (4..=12).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if well_formed { Ok(text) } else { Err(IdentifierFault { prefix }) }
}

/// Why a contract's columns, each readable, make no contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractFault {
    /// Cover ends before it begins.
    #[error("{days} days before valid_from")]
    BeforeStart {
        /// From the end to the beginning.
        days: i64,
    },
    /// Nothing is insured.
    #[error("expected an amount above zero")]
    NotPositive,
    /// The deductible is below zero.
    #[error("expected zero or an amount above zero")]
    Negative,
}

impl Fault for ContractFault {
    fn kind(&self) -> &'static str {
        match self {
            ContractFault::BeforeStart { .. } => "before_start",
            ContractFault::NotPositive => "not_positive",
            ContractFault::Negative => "negative",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [&str; 7] =
        ["P0001", "household|liability", "2025-01-01", "2025-12-31", "50000", "150.5", "EUR"];

    fn raw(fields: [&str; 7]) -> RawContract {
        RawContract(Packed::new(fields))
    }

    /// All faults of the good contract with some columns replaced, as `column kind`.
    #[track_caller]
    fn check(changes: &[(usize, &str)], expected: &[&str]) {
        let mut fields = GOOD;
        for &(column, text) in changes {
            fields[column] = text;
        }
        let faults = Contract::faults_as(&raw(fields), &Formats::default());
        let found: Vec<String> = faults
            .iter()
            .map(|fault| format!("{} {}", fault.column.as_deref().unwrap(), fault.kind))
            .collect();
        assert_eq!(found, expected, "for {changes:?}");
        assert_eq!(Contract::validate(&raw(fields)).err().as_ref(), faults.first());
    }

    #[test]
    fn each_rule_has_its_reason() {
        check(&[], &[]);
        check(&[(3, "")], &[]);
        check(&[(3, "2025-01-01")], &[]);
        check(&[(5, "0")], &[]);
        check(&[(0, "")], &["policy_id missing"]);
        check(&[(0, "C0001")], &["policy_id bad_identifier"]);
        check(&[(1, "")], &["lines_of_business missing"]);
        check(&[(1, "pets")], &["lines_of_business unknown_line"]);
        check(&[(1, "motor|")], &["lines_of_business unknown_line"]);
        check(&[(1, "motor|motor")], &["lines_of_business repeated_line"]);
        check(&[(2, "")], &["valid_from missing"]);
        check(&[(2, "01.01.2025")], &["valid_from not_a_date"]);
        check(&[(3, "2025-02-29")], &["valid_to impossible_date"]);
        check(&[(3, "2024-12-31")], &["valid_to before_start"]);
        check(&[(4, "")], &["sum_insured missing"]);
        check(&[(4, "0.00")], &["sum_insured not_positive"]);
        check(&[(4, "10000000000")], &["sum_insured overflow"]);
        check(&[(5, "")], &["deductible missing"]);
        check(&[(5, "-1")], &["deductible negative"]);
        check(&[(5, "1.505")], &["deductible too_many_decimals"]);
        check(&[(6, "")], &["currency missing"]);
        check(&[(6, "DEM")], &["currency unknown_currency"]);
    }

    #[test]
    fn faults_come_in_the_order_of_columns() {
        check(
            &[(6, "?"), (0, "?"), (3, "?")],
            &["policy_id bad_identifier", "valid_to not_a_date", "currency unknown_currency"],
        );
    }

    #[test]
    fn a_stored_contract_reads_as_itself() {
        for valid_to in ["2025-12-31", ""] {
            let mut fields = GOOD;
            fields[3] = valid_to;
            let contract = Contract::validate(&raw(fields)).unwrap();
            let mut values = Vec::new();
            contract.values(&mut values);
            assert_eq!(values.len(), Contract::TABLE.columns.len());
            assert_eq!(Contract::from_values(&values), Ok(contract.clone()));
        }
    }

    #[test]
    fn a_row_that_no_import_has_written_is_refused() {
        let contract = Contract::validate(&raw(GOOD)).unwrap();
        for (index, column) in
            Contract::TABLE.columns.iter().enumerate().filter(|(_, column)| !column.nullable)
        {
            let mut values = Vec::new();
            contract.values(&mut values);
            values[index] = Value::Null;
            assert_eq!(Contract::from_values(&values), Err(ForeignRow { column: column.name }));
        }
        assert!(Contract::from_values(&[]).is_err());
    }

    #[test]
    fn the_table_has_the_columns_of_the_file() {
        let columns: Vec<&str> = Contract::TABLE.columns.iter().map(|column| column.name).collect();
        assert_eq!(columns, RawContract::COLUMNS);
    }

    #[test]
    fn lines_print_in_one_order() {
        assert_eq!(Lines::parse("travel|accident").unwrap().to_string(), "accident|travel");
        assert!(Line::ALL.into_iter().all(|line| Line::parse(line.name()) == Ok(line)));
        assert!(Line::ALL.into_iter().all(|line| Lines::from(line).to_string() == line.name()));
    }
}
