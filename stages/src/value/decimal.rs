//! Exact decimals at a declared scale, and the marks with which a file writes them.

use std::fmt;

use super::Fault;

/// A number of units of `10^-scale`: `1.50` at scale 2 is 150 units.
///
/// Scale belongs to the column, so two decimals are equal only at one scale.
///
/// ```
/// use gegendruck_stages::value::{Decimal, NumberFormat};
/// let amount = NumberFormat::POINT.decimal("+007.5", 12, 2)?;
/// assert_eq!(amount, Decimal::new(750, 2));
/// assert_eq!(amount.to_string(), "7.50");
/// # Ok::<(), gegendruck_stages::value::NumberFault>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    units: i64,
    scale: u8,
}

impl Decimal {
    /// The most digits that a column may declare: what every `i64` can hold.
    pub const MAX_PRECISION: u8 = 18;

    /// So many units of `10^-scale`.
    ///
    /// # Panics
    /// If `scale` is above [`Decimal::MAX_PRECISION`].
    pub const fn new(units: i64, scale: u8) -> Decimal {
        assert!(scale <= Decimal::MAX_PRECISION, "scale is at most 18");
        Decimal { units, scale }
    }

    /// The number in units of `10^-scale`, as it is stored.
    pub const fn units(self) -> i64 {
        self.units
    }

    /// How many digits follow the decimal mark.
    pub const fn scale(self) -> u8 {
        self.scale
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10u64.pow(self.scale.into());
        let magnitude = self.units.unsigned_abs();
        let sign = if self.units < 0 { "-" } else { "" };
        match usize::from(self.scale) {
            0 => write!(f, "{sign}{magnitude}"),
            width => write!(f, "{sign}{}.{:0width$}", magnitude / one, magnitude % one),
        }
    }
}

/// The marks with which a file writes numbers: `1234.56`, `1.234,56`.
///
/// What is read: an optional sign; digits, in which thousands may be marked; optionally the decimal mark and at least one digit.
/// The digits before the decimal mark may be missing. Thousands are marked everywhere or nowhere, and a marked number has no
/// leading zero, so that `0.123` in a file with `.` for thousands is refused and not read as 123. Exponents, `NaN`, `inf`,
/// blanks and digits of other scripts are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberFormat {
    decimal: u8,
    thousands: Option<u8>,
}

impl Default for NumberFormat {
    fn default() -> Self {
        NumberFormat::POINT
    }
}

impl NumberFormat {
    /// `1234.56`: a decimal point, thousands not marked.
    pub const POINT: NumberFormat = NumberFormat { decimal: b'.', thousands: None };

    /// Numbers with these marks.
    ///
    /// # Errors
    /// If a mark could be taken for a digit, a sign or the other mark, or is not ASCII.
    pub fn new(decimal: char, thousands: Option<char>) -> Result<NumberFormat, NumberFormatError> {
        if thousands == Some(decimal) {
            return Err(NumberFormatError::SameMark);
        }
        Ok(NumberFormat { decimal: mark(decimal)?, thousands: thousands.map(mark).transpose()? })
    }

    /// Reads a number with at most `scale` decimals that fits into `precision` digits at that scale.
    ///
    /// # Errors
    /// If the text is no such number.
    ///
    /// # Panics
    /// If `precision` is above [`Decimal::MAX_PRECISION`] or below `scale`.
    pub fn decimal(&self, text: &str, precision: u8, scale: u8) -> Result<Decimal, NumberFault> {
        assert!(
            scale <= precision && precision <= Decimal::MAX_PRECISION,
            "a column type was declared that has no numbers"
        );
        let (negative, magnitude) = self.units(text, scale)?;
        let magnitude = i64::try_from(magnitude).map_err(|_| NumberFault::Overflow)?;
        if magnitude >= 10i64.pow(precision.into()) {
            return Err(NumberFault::Overflow);
        }
        Ok(Decimal { units: if negative { -magnitude } else { magnitude }, scale })
    }

    /// Reads a whole number; thousands may be marked.
    ///
    /// # Errors
    /// If the text is no whole number, or none that fits into 64 bits.
    pub fn integer(&self, text: &str) -> Result<i64, NumberFault> {
        let (negative, magnitude) = self.units(text, 0)?;
        let integer = if negative {
            0i64.checked_sub_unsigned(magnitude)
        } else {
            0i64.checked_add_unsigned(magnitude)
        };
        integer.ok_or(NumberFault::Overflow)
    }

    /// Sign (true if negative) and magnitude in units of `10^-scale`.
    fn units(&self, text: &str, scale: u8) -> Result<(bool, u64), NumberFault> {
        if text.is_empty() {
            return Err(NumberFault::Empty);
        }
        if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
            return Err(NumberFault::StrayBlank);
        }
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let (whole, fraction) = match unsigned.iter().position(|&byte| byte == self.decimal) {
            Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
            None => (unsigned, None),
        };
        self.check_form(whole, fraction)?;
        let fraction = fraction.unwrap_or_default();
        if fraction.len() > usize::from(scale) {
            return Err(NumberFault::TooManyDecimals { found: fraction.len(), allowed: scale });
        }
        let padding = usize::from(scale) - fraction.len();
        let digits = whole.iter().filter(|byte| byte.is_ascii_digit()).chain(fraction);
        digits
            .chain(std::iter::repeat_n(&b'0', padding))
            .try_fold(0u64, |units, digit| {
                units.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
            })
            .map(|magnitude| (negative, magnitude))
            .ok_or(NumberFault::Overflow)
    }

    fn check_form(&self, whole: &[u8], fraction: Option<&[u8]>) -> Result<(), NumberFault> {
        let digit_or_thousands = |byte: &u8| byte.is_ascii_digit() || Some(*byte) == self.thousands;
        let whole_is_missing = whole.is_empty() && fraction.is_none();
        let fraction_is_digits = fraction
            .is_none_or(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
        if whole_is_missing || !fraction_is_digits || !whole.iter().all(digit_or_thousands) {
            return Err(NumberFault::NotANumber);
        }
        if whole.iter().all(u8::is_ascii_digit) || self.groups_are_whole(whole) {
            return Ok(());
        }
        Err(NumberFault::MisplacedThousands)
    }

    /// One to three digits without a leading zero, then groups of exactly three.
    fn groups_are_whole(&self, whole: &[u8]) -> bool {
        let mut groups = whole.split(|byte| Some(*byte) == self.thousands);
        let first = groups.next().unwrap_or_default();
        (1..=3).contains(&first.len()) && first[0] != b'0' && groups.all(|group| group.len() == 3)
    }
}

fn mark(mark: char) -> Result<u8, NumberFormatError> {
    match u8::try_from(mark) {
        Ok(byte)
            if byte == b' ' || (byte.is_ascii_punctuation() && byte != b'+' && byte != b'-') =>
        {
            Ok(byte)
        }
        _ => Err(NumberFormatError::BadMark(mark)),
    }
}

/// Marks with which no number can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumberFormatError {
    /// The decimal mark is the thousands mark.
    #[error("decimal mark and thousands mark are the same")]
    SameMark,
    /// The mark is a digit, a sign, a letter or not ASCII.
    #[error("{0:?} cannot be a mark in numbers, expected ASCII punctuation or a blank")]
    BadMark(char),
}

/// Why a text is not the number that its column declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumberFault {
    /// There is no text, and an empty text is not this file's way of saying "absent".
    #[error("found an empty field")]
    Empty,
    /// A blank before or after the number.
    #[error("found a blank before or after the number")]
    StrayBlank,
    /// Not a number as this file writes them.
    #[error("not a plain decimal number in the declared format")]
    NotANumber,
    /// Thousands marks that do not stand before groups of three digits.
    #[error("thousands marks do not divide the number into groups of three digits")]
    MisplacedThousands,
    /// More decimals than the column keeps.
    #[error("found {found} decimals, expected at most {allowed}")]
    TooManyDecimals {
        /// Digits after the decimal mark.
        found: usize,
        /// Scale of the column.
        allowed: u8,
    },
    /// More digits than the column holds.
    #[error("more digits than the column holds")]
    Overflow,
}

impl Fault for NumberFault {
    fn kind(&self) -> &'static str {
        match self {
            NumberFault::Empty => "empty",
            NumberFault::StrayBlank => "stray_blank",
            NumberFault::NotANumber => "not_a_number",
            NumberFault::MisplacedThousands => "misplaced_thousands",
            NumberFault::TooManyDecimals { .. } => "too_many_decimals",
            NumberFault::Overflow => "overflow",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `text` is read as at numeric(12,2): the plain text, or the kind of fault.
    #[track_caller]
    fn check(format: NumberFormat, cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            let found = match format.decimal(text, 12, 2) {
                Ok(decimal) => decimal.to_string(),
                Err(fault) => fault.kind().to_owned(),
            };
            assert_eq!(found, *expected, "for {text:?}");
        }
    }

    #[test]
    fn c32_point_numbers_are_taken_as_written_or_refused() {
        check(
            NumberFormat::POINT,
            &[
                ("+7", "7.00"),
                ("007", "7.00"),
                ("-0.00", "0.00"),
                (".5", "0.50"),
                ("-.5", "-0.50"),
                ("1.2", "1.20"),
                ("9999999999.99", "9999999999.99"),
                ("-9999999999.99", "-9999999999.99"),
                ("00000000000000000000000000001", "1.00"),
                ("1,5", "not_a_number"),
                ("1.234,56", "not_a_number"),
                ("1,213", "not_a_number"),
                ("10000000000", "overflow"),
                ("99999999999999999999", "overflow"),
                ("1e400", "not_a_number"),
                ("1e2", "not_a_number"),
                ("NaN", "not_a_number"),
                ("inf", "not_a_number"),
                ("-inf", "not_a_number"),
                (" 5", "stray_blank"),
                ("5 ", "stray_blank"),
                ("5\t", "stray_blank"),
                ("\u{a0}5", "stray_blank"),
                ("1 000", "not_a_number"),
                ("1.239", "too_many_decimals"),
                ("1.230", "too_many_decimals"),
                ("5.", "not_a_number"),
                (".", "not_a_number"),
                ("+", "not_a_number"),
                ("-", "not_a_number"),
                ("--1", "not_a_number"),
                ("+-1", "not_a_number"),
                ("1-", "not_a_number"),
                ("1.2.3", "not_a_number"),
                ("0x10", "not_a_number"),
                ("1_000", "not_a_number"),
                ("１２", "not_a_number"),
                ("\u{2212}5", "not_a_number"),
                ("", "empty"),
            ],
        );
    }

    #[test]
    fn c32_comma_numbers_with_points_for_thousands() {
        check(
            NumberFormat::new(',', Some('.')).unwrap(),
            &[
                ("1,5", "1.50"),
                ("1.234,56", "1234.56"),
                ("1234,56", "1234.56"),
                ("1.234", "1234.00"),
                ("1.234.567", "1234567.00"),
                ("-1.234,5", "-1234.50"),
                ("+7", "7.00"),
                ("007", "7.00"),
                ("-0,00", "0.00"),
                (",5", "0.50"),
                ("1,213", "too_many_decimals"),
                ("1.23", "misplaced_thousands"),
                ("1.23,4", "misplaced_thousands"),
                ("1234.567", "misplaced_thousands"),
                ("1..234", "misplaced_thousands"),
                ("1.234.", "misplaced_thousands"),
                (".234", "misplaced_thousands"),
                (".", "misplaced_thousands"),
                ("0.123", "misplaced_thousands"),
                ("1,234.56", "not_a_number"),
                ("5,", "not_a_number"),
                ("1e2", "not_a_number"),
                ("99.999.999.999.999.999.999", "overflow"),
            ],
        );
    }

    #[test]
    fn integers_use_all_64_bits() {
        let read = |text| NumberFormat::POINT.integer(text).map_err(|fault| fault.kind());
        assert_eq!(read("-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(read("9223372036854775807"), Ok(i64::MAX));
        assert_eq!(read("9223372036854775808"), Err("overflow"));
        assert_eq!(read("-9223372036854775809"), Err("overflow"));
        assert_eq!(read("5.0"), Err("too_many_decimals"));
    }

    #[test]
    fn marks_that_cannot_be_told_apart_are_refused() {
        assert_eq!(NumberFormat::new('.', Some('.')), Err(NumberFormatError::SameMark));
        for mark in ['0', '-', '+', 'e', '\u{2019}', '\n'] {
            assert_eq!(NumberFormat::new(mark, None), Err(NumberFormatError::BadMark(mark)));
        }
        assert!(NumberFormat::new('.', Some('\'')).is_ok());
        assert!(NumberFormat::new(',', Some(' ')).is_ok());
    }

    #[test]
    fn the_smallest_integer_prints() {
        assert_eq!(Decimal::new(i64::MIN, 0).to_string(), "-9223372036854775808");
        assert_eq!(Decimal::new(i64::MIN, 18).to_string(), "-9.223372036854775808");
        assert_eq!(Decimal::new(-5, 2).to_string(), "-0.05");
    }

    /// Reads like [`NumberFormat::POINT`], in 128 bits and without cleverness.
    fn model(text: &str, precision: u8, scale: u8) -> Option<i128> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = match unsigned.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None if unsigned.is_empty() => return None,
            None => (unsigned, ""),
        };
        let digits = format!("{whole}{fraction:0<width$}", width = usize::from(scale));
        if fraction.len() > usize::from(scale) || !digits.bytes().all(|byte| byte.is_ascii_digit())
        {
            return None;
        }
        let magnitude: i128 = digits.parse().ok()?;
        (magnitude < 10i128.pow(precision.into())).then_some(if negative {
            -magnitude
        } else {
            magnitude
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_as_itself(units in -(10i64.pow(18) - 1)..10i64.pow(18), scale in 0u8..=18) {
            let decimal = Decimal::new(units, scale);
            prop_assert_eq!(NumberFormat::POINT.decimal(&decimal.to_string(), 18, scale), Ok(decimal));
        }

        #[test]
        fn reading_agrees_with_a_model_in_128_bits(
            text in "[-+]?[0-9]{0,20}(\\.[0-9]{0,6})?|[-+.,0-9e ]{0,6}",
            precision in 6u8..=18,
            scale in 0u8..=6,
        ) {
            let found = NumberFormat::POINT.decimal(&text, precision, scale).ok().map(|decimal| i128::from(decimal.units()));
            prop_assert_eq!(found, model(&text, precision, scale));
        }

        #[test]
        fn any_text_is_read_or_refused_without_panic(text in ".{0,12}", thousands in proptest::option::of("[.' ]")) {
            let thousands = thousands.and_then(|mark| mark.chars().next());
            let _ = NumberFormat::new(',', thousands).unwrap().decimal(&text, 18, 4);
        }
    }
}
