//! A claim as the file has it, and as it is once every column was judged. The rules are at [`Claim`].

use gegendruck::Reason;
use gegendruck_stages::csv::{Fields, FromFields};
use gegendruck_stages::value::{
    Currency, Date, Decimal, Fault, Faults, Formats, Missing, Packed, Timestamp,
};

use crate::contracts::{Line, MONEY_PRECISION, MONEY_SCALE, identifier};

const CAUSE_MAX: usize = 60;

/// A claim's fields, as the file has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawClaim(Packed<10>);

impl FromFields for RawClaim {
    const COLUMNS: &'static [&'static str] = &[
        "claim_id",
        "policy_id",
        "loss_date",
        "reported_at",
        "line_of_business",
        "cause",
        "postal_code",
        "amount",
        "currency",
        "description",
    ];

    fn from_fields(fields: &Fields<'_>) -> Self {
        RawClaim(Packed::from_fields(fields))
    }
}

/// A claim that keeps every rule of its columns.
///
/// | column | rule | kinds of reject |
/// |---|---|---|
/// | `claim_id` | the key: `C` and 4 to 12 digits | `missing`, `bad_identifier` |
/// | `policy_id` | `P` and 4 to 12 digits | `missing`, `bad_identifier` |
/// | `loss_date` | a day, not after the day on which `reported_at` was written | `missing`, `not_a_date`, `impossible_date`, `after_report` |
/// | `reported_at` | an instant with an offset, to the second | `missing`, and those of [`TimestampFault`] |
/// | `line_of_business` | one of [`Line`] | `missing`, `unknown_line` |
/// | `cause` | at most 60 characters | `missing`, `too_long`, `control_character` |
/// | `postal_code` | may be absent; 3 to 10 capital letters, digits, blanks, hyphens, not a blank or hyphen at an end | `bad_postal_code` |
/// | `amount` | above zero, at most two decimals, below ten thousand million | `missing`, `not_positive`, and those of [`NumberFault`] |
/// | `currency` | an active ISO 4217 code | `missing`, `unknown_currency` |
/// | `description` | may be absent; line breaks and tabs are the only control characters; as long as a record may be | `control_character` |
///
/// [`TimestampFault`]: gegendruck_stages::value::TimestampFault
/// [`NumberFault`]: gegendruck_stages::value::NumberFault
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// claim_id, policy_id, cause, postal_code, description; an absent one is empty.
    texts: Packed<5>,
    /// Whether there is a description, if only an empty one: another text may stand for "absent".
    has_description: bool,
    loss_date: Date,
    reported_at: Timestamp,
    line: Line,
    amount: Decimal,
    currency: Currency,
}

impl Claim {
    /// The claim, if its fields are written in the default formats and keep every rule.
    ///
    /// ```
    /// use gegendruck_pipelines::claims::{Claim, RawClaim};
    /// use gegendruck_stages::csv::{Fields, FromFields};
    /// let fields = ["C0001", "P0001", "2026-01-05", "2026-01-06T08:30:00+01:00", "motor", "hail", "", "1.239", "EUR", ""];
    /// let ends = fields.iter().scan(0, |end, field| { *end += field.len() as u32; Some(*end) }).collect::<Vec<u32>>();
    /// let raw = RawClaim::from_fields(&Fields::new(&fields.concat(), &ends));
    /// let reason = Claim::validate(&raw).unwrap_err();
    /// assert_eq!(reason.to_string(), "amount too_many_decimals: found 3 decimals, expected at most 2");
    /// ```
    ///
    /// # Errors
    /// The first fault in the order of columns.
    pub fn validate(raw: &RawClaim) -> Result<Claim, Reason> {
        Claim::validate_as(raw, &Formats::default())
    }

    /// The claim, if its fields are written in these formats and keep every rule.
    ///
    /// # Errors
    /// The first fault in the order of columns.
    pub fn validate_as(raw: &RawClaim, formats: &Formats) -> Result<Claim, Reason> {
        let mut faults = Faults::default();
        let claim = check(raw, formats, &mut faults);
        claim.ok_or_else(|| faults.into_first().expect("a claim is refused for a fault"))
    }

    /// Every fault of the fields in the default formats, in the order of columns.
    pub fn faults(raw: &RawClaim) -> Vec<Reason> {
        Claim::faults_as(raw, &Formats::default())
    }

    /// Every fault of the fields, in the order of columns; empty if [`Claim::validate_as`] takes them.
    pub fn faults_as(raw: &RawClaim, formats: &Formats) -> Vec<Reason> {
        let mut faults = Faults::default();
        check(raw, formats, &mut faults);
        faults.into_vec()
    }

    /// The key.
    pub fn claim_id(&self) -> &str {
        self.texts.get(0)
    }

    /// Key of the contract under which it was filed.
    pub fn policy_id(&self) -> &str {
        self.texts.get(1)
    }

    /// The day of the loss.
    pub fn loss_date(&self) -> &Date {
        &self.loss_date
    }

    /// When the loss was reported.
    pub fn reported_at(&self) -> &Timestamp {
        &self.reported_at
    }

    /// The kind of risk.
    pub fn line(&self) -> Line {
        self.line
    }

    /// What caused the loss.
    pub fn cause(&self) -> &str {
        self.texts.get(2)
    }

    /// Where the loss was.
    pub fn postal_code(&self) -> Option<&str> {
        Some(self.texts.get(3)).filter(|text| !text.is_empty())
    }

    /// What is claimed.
    pub fn amount(&self) -> Decimal {
        self.amount
    }

    /// Currency of the amount.
    pub fn currency(&self) -> Currency {
        self.currency
    }

    /// What happened, in the reporter's words.
    pub fn description(&self) -> Option<&str> {
        self.has_description.then(|| self.texts.get(4))
    }
}

/// Walks the columns in order; `None` if there was a fault.
fn check(raw: &RawClaim, formats: &Formats, faults: &mut Faults) -> Option<Claim> {
    let [
        claim_id,
        policy_id,
        loss_date,
        reported_at,
        line,
        cause,
        postal_code,
        amount,
        currency,
        description,
    ] = raw.0.all();
    let present = |text| formats.present(text).ok_or(Missing);

    let claim_id = faults
        .check("claim_id", present(claim_id))
        .and_then(|id| faults.check("claim_id", identifier(id, 'C')));
    let policy_id = faults
        .check("policy_id", present(policy_id))
        .and_then(|id| faults.check("policy_id", identifier(id, 'P')));
    let loss_date = faults
        .check("loss_date", present(loss_date))
        .and_then(|date| faults.check("loss_date", formats.date(date)));
    let reported_at = faults
        .check("reported_at", present(reported_at))
        .and_then(|time| faults.check("reported_at", formats.timestamp(time)));
    if let (Some(loss), Some(report)) = (loss_date, reported_at)
        && loss > report.written_on()
    {
        faults.push(
            "loss_date",
            ClaimFault::AfterReport { days: loss.days_since(report.written_on()) },
        );
    }
    let line = faults
        .check("line_of_business", present(line))
        .and_then(|line| faults.check("line_of_business", Line::parse(line)));
    let cause = faults
        .check("cause", present(cause))
        .and_then(|cause| faults.check("cause", cause_within_limits(cause)));
    let postal_code =
        optional(faults, "postal_code", formats.present(postal_code), postal_code_in_form);
    let amount = faults.check("amount", present(amount)).and_then(|amount| {
        faults.check("amount", formats.decimal(amount, MONEY_PRECISION, MONEY_SCALE))
    });
    if amount.is_some_and(|amount| amount.units() <= 0) {
        faults.push("amount", ClaimFault::NotPositive);
    }
    let currency = faults
        .check("currency", present(currency))
        .and_then(|currency| faults.check("currency", Currency::parse(currency)));
    let description = formats.present(description);
    let has_description = description.is_some();
    let description = optional(faults, "description", description, without_control_characters);

    if !faults.is_empty() {
        return None;
    }
    Some(Claim {
        texts: Packed::new([claim_id?, policy_id?, cause?, postal_code?, description?]),
        has_description,
        loss_date: loss_date?,
        reported_at: reported_at?,
        line: line?,
        amount: amount?,
        currency: currency?,
    })
}

/// The text if it keeps the rule, an empty one if it is absent.
fn optional<'a>(
    faults: &mut Faults,
    column: &'static str,
    text: Option<&'a str>,
    rule: impl FnOnce(&'a str) -> Result<&'a str, ClaimFault>,
) -> Option<&'a str> {
    text.map_or(Some(""), |text| faults.check(column, rule(text)))
}

fn cause_within_limits(text: &str) -> Result<&str, ClaimFault> {
    let found = text.chars().count();
    if found > CAUSE_MAX {
        return Err(ClaimFault::TooLong { found, allowed: CAUSE_MAX });
    }
    if text.chars().any(char::is_control) {
        return Err(ClaimFault::ControlCharacter);
    }
    Ok(text)
}

fn postal_code_in_form(text: &str) -> Result<&str, ClaimFault> {
    let is_separator = |byte: u8| byte == b' ' || byte == b'-';
    let bytes = text.as_bytes();
    let in_form = (3..=10).contains(&bytes.len())
        && bytes
            .iter()
            .all(|&byte| byte.is_ascii_digit() || byte.is_ascii_uppercase() || is_separator(byte))
        && ![bytes[0], bytes[bytes.len() - 1]].into_iter().any(is_separator);
    if in_form { Ok(text) } else { Err(ClaimFault::BadPostalCode) }
}

fn without_control_characters(text: &str) -> Result<&str, ClaimFault> {
    let is_refused =
        |character: char| character.is_control() && !matches!(character, '\n' | '\r' | '\t');
    if text.chars().any(is_refused) { Err(ClaimFault::ControlCharacter) } else { Ok(text) }
}

/// Why a claim's columns, each readable, make no claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimFault {
    /// The loss lies after its report.
    #[error("{days} days after the day of the report")]
    AfterReport {
        /// From the report to the loss.
        days: i64,
    },
    /// Nothing is claimed.
    #[error("expected an amount above zero")]
    NotPositive,
    /// More characters than the column holds.
    #[error("found {found} characters, expected at most {allowed}")]
    TooLong {
        /// Characters of the text.
        found: usize,
        /// Characters that the column holds.
        allowed: usize,
    },
    /// A control character that no text needs.
    #[error("found a control character")]
    ControlCharacter,
    /// Not in the form of a postal code.
    #[error("not a postal code, expected 3 to 10 capital letters, digits, blanks and hyphens")]
    BadPostalCode,
}

impl Fault for ClaimFault {
    fn kind(&self) -> &'static str {
        match self {
            ClaimFault::AfterReport { .. } => "after_report",
            ClaimFault::NotPositive => "not_positive",
            ClaimFault::TooLong { .. } => "too_long",
            ClaimFault::ControlCharacter => "control_character",
            ClaimFault::BadPostalCode => "bad_postal_code",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use gegendruck_stages::value::{DateFormats, NumberFormat};

    use super::*;

    const GOOD: [&str; 10] = [
        "C00000001",
        "P00000001",
        "2026-01-05",
        "2026-01-06T08:30:00+01:00",
        "motor",
        "hail",
        "10115",
        "1250.5",
        "EUR",
        "Hagel, Dach und Motorhaube verbeult",
    ];

    fn with(changes: &[(&str, &str)]) -> RawClaim {
        let mut fields = GOOD;
        for (column, text) in changes {
            fields[RawClaim::COLUMNS
                .iter()
                .position(|name| name == column)
                .expect("a column of claims")] = text;
        }
        RawClaim(Packed::new(fields))
    }

    /// The good claim with some columns replaced.
    pub(in crate::claims) fn claim(changes: &[(&str, &str)]) -> Claim {
        Claim::validate(&with(changes)).expect("the changed claim keeps the rules")
    }

    /// All faults of the good claim with some columns replaced, as `column kind`.
    #[track_caller]
    fn check(changes: &[(&str, &str)], expected: &[&str]) {
        let raw = with(changes);
        let faults = Claim::faults(&raw);
        let found: Vec<String> = faults
            .iter()
            .map(|fault| format!("{} {}", fault.column.as_deref().unwrap(), fault.kind))
            .collect();
        assert_eq!(found, expected, "for {changes:?}");
        assert_eq!(Claim::validate(&raw).err().as_ref(), faults.first());
        for (_, text) in changes.iter().filter(|(_, text)| text.len() > 3) {
            assert!(
                faults.iter().all(|fault| !fault.to_string().contains(text)),
                "a reason repeats {text:?}"
            );
        }
    }

    #[test]
    fn each_rule_has_its_reason() {
        check(&[], &[]);
        for column in [
            "claim_id",
            "policy_id",
            "loss_date",
            "reported_at",
            "line_of_business",
            "cause",
            "amount",
            "currency",
        ] {
            check(&[(column, "")], &[&format!("{column} missing")]);
        }
        check(&[("claim_id", "C001")], &["claim_id bad_identifier"]);
        check(&[("claim_id", "c00000001")], &["claim_id bad_identifier"]);
        check(&[("claim_id", "C0000000000001")], &["claim_id bad_identifier"]);
        check(&[("claim_id", "C0000 001")], &["claim_id bad_identifier"]);
        check(&[("policy_id", "C00000001")], &["policy_id bad_identifier"]);
        check(&[("policy_id", "P０００１")], &["policy_id bad_identifier"]);
        check(&[("loss_date", "05.01.2026")], &["loss_date not_a_date"]);
        check(&[("loss_date", "2026-02-30")], &["loss_date impossible_date"]);
        check(&[("loss_date", "2026-01-07")], &["loss_date after_report"]);
        check(&[("reported_at", "2026-01-06")], &["reported_at not_a_timestamp"]);
        check(&[("reported_at", "2026-01-06T08:30:00")], &["reported_at missing_offset"]);
        check(&[("reported_at", "2026-01-06T08:30:00.5Z")], &["reported_at too_many_decimals"]);
        check(&[("line_of_business", "Motor")], &["line_of_business unknown_line"]);
        check(&[("line_of_business", "motor|legal")], &["line_of_business unknown_line"]);
        check(&[("cause", &"ä".repeat(60))], &[]);
        check(&[("cause", &"a".repeat(61))], &["cause too_long"]);
        check(&[("cause", "a\nb")], &["cause control_character"]);
        for code in ["", "10115", "SW1A 1AA", "1234-567", "D02"] {
            check(&[("postal_code", code)], &[]);
        }
        for code in ["12", "12345678901", " 1011", "1011-", "10_15", "Köln1", "sw1a"] {
            check(&[("postal_code", code)], &["postal_code bad_postal_code"]);
        }
        check(&[("amount", "0.00")], &["amount not_positive"]);
        check(&[("amount", "-5")], &["amount not_positive"]);
        check(&[("amount", "1.239")], &["amount too_many_decimals"]);
        check(&[("amount", "1,5")], &["amount not_a_number"]);
        check(&[("amount", " 5")], &["amount stray_blank"]);
        check(&[("amount", "10000000000")], &["amount overflow"]);
        check(&[("currency", "DEM")], &["currency unknown_currency"]);
        check(&[("description", "")], &[]);
        check(&[("description", "two\r\nlines\tand a tab")], &[]);
        check(&[("description", "bell\u{7}")], &["description control_character"]);
    }

    #[test]
    fn c15_a_description_may_be_as_long_as_a_record() {
        check(&[("description", &"x".repeat(900 * 1024))], &[]);
    }

    #[test]
    fn all_faults_are_found_and_the_first_column_gives_the_reason() {
        check(
            &[
                ("currency", "?"),
                ("amount", "?"),
                ("loss_date", "2026-01-07"),
                ("line_of_business", "?"),
            ],
            &[
                "loss_date after_report",
                "line_of_business unknown_line",
                "amount not_a_number",
                "currency unknown_currency",
            ],
        );
    }

    #[test]
    fn a_loss_on_the_day_of_its_report_is_taken_in_the_writers_calendar() {
        check(&[("loss_date", "2026-01-06"), ("reported_at", "2026-01-06T00:10:00+01:00")], &[]);
        check(
            &[("loss_date", "2026-01-06"), ("reported_at", "2026-01-05T23:10:00Z")],
            &["loss_date after_report"],
        );
    }

    #[test]
    fn declared_formats_decide_what_is_read() {
        let formats = Formats {
            null: "NULL".into(),
            numbers: NumberFormat::new(',', Some('.')).unwrap(),
            dates: DateFormats::new(&["DD.MM.YYYY"]).unwrap(),
            ..Formats::default()
        };
        let changes = [
            ("loss_date", "05.01.2026"),
            ("reported_at", "06.01.2026 08:30:00Z"),
            ("amount", "1.250,50"),
            ("postal_code", "NULL"),
            ("description", "NULL"),
        ];
        let claim = Claim::validate_as(&with(&changes), &formats).unwrap();
        assert_eq!(
            (claim.loss_date().as_str(), claim.reported_at().as_str()),
            ("2026-01-05", "2026-01-06T08:30:00Z")
        );
        assert_eq!(
            (claim.amount().units(), claim.postal_code(), claim.description()),
            (125_050, None, None)
        );
        let reason = Claim::validate_as(&with(&[("claim_id", "NULL")]), &formats).unwrap_err();
        assert_eq!(reason.kind, "missing");
    }

    #[test]
    fn an_empty_field_is_a_text_where_another_text_stands_for_absent() {
        let formats = Formats { null: "NULL".into(), ..Formats::default() };
        let read = |column| Claim::validate_as(&with(&[(column, "")]), &formats);
        assert_eq!(read("description").unwrap().description(), Some(""));
        assert_eq!(read("cause").unwrap().cause(), "");
        for (column, kind) in [
            ("claim_id", "bad_identifier"),
            ("policy_id", "bad_identifier"),
            ("loss_date", "not_a_date"),
            ("reported_at", "not_a_timestamp"),
            ("line_of_business", "unknown_line"),
            ("postal_code", "bad_postal_code"),
            ("amount", "empty"),
            ("currency", "unknown_currency"),
        ] {
            assert_eq!(read(column).unwrap_err().to_string().split([' ', ':']).nth(1), Some(kind));
        }
    }
}
