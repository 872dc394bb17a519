//! Dates by the calendar, in declared formats of fixed width.

use std::cmp::Ordering;
use std::fmt;

use jiff::civil;

use super::Fault;

/// A day of the years 1 to 9999, with its ISO text at hand: it is printed once, when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Date {
    civil: civil::Date,
    text: [u8; 10],
}

impl Date {
    /// That day; `None` before the year 1.
    pub fn from_civil(civil: civil::Date) -> Option<Date> {
        let year = u64::try_from(civil.year()).ok().filter(|&year| year > 0)?;
        let mut text = *b"0000-00-00";
        write_digits(&mut text[0..4], year);
        write_digits(&mut text[5..7], civil.month().unsigned_abs().into());
        write_digits(&mut text[8..10], civil.day().unsigned_abs().into());
        Some(Date { civil, text })
    }

    /// Reads `YYYY-MM-DD`.
    ///
    /// # Errors
    /// If the text is no date in that form.
    pub fn from_iso(text: &str) -> Result<Date, DateFault> {
        read(&ISO, text).unwrap_or(Err(DateFault::NotADate))
    }

    /// The day, for calendar arithmetic.
    pub fn civil(self) -> civil::Date {
        self.civil
    }

    /// The day as `YYYY-MM-DD`.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.text).expect("a date is written in ASCII")
    }

    /// Days from `earlier` to this day; negative if it is the later one.
    pub fn days_since(self, earlier: Date) -> i64 {
        self.civil.duration_since(earlier.civil).as_hours() / 24
    }
}

impl Ord for Date {
    fn cmp(&self, other: &Self) -> Ordering {
        self.civil.cmp(&other.civil)
    }
}

impl PartialOrd for Date {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Writes `number` in decimal over the whole of `place`, with leading zeros.
pub(super) fn write_digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The number that ASCII digits write; `None` if one of them is no digit.
pub(super) fn read_digits(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0u32, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0'))
    })
}

/// The formats in which a file may write dates: one, or several that no text can belong to two of.
///
/// A format is written `DD.MM.YYYY` or `%d.%m.%Y`: a year of four digits, a month and a day of two, each once, and
/// punctuation. It fixes the width, so blanks, missing zeros and years of two digits are refused.
///
/// ```
/// use gegendruck_stages::value::DateFormats;
/// let formats = DateFormats::new(&["YYYY-MM-DD", "DD.MM.YYYY"])?;
/// assert_eq!(formats.parse("24.12.2026")?.as_str(), "2026-12-24");
/// assert!(DateFormats::new(&["DD/MM/YYYY", "MM/DD/YYYY"]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DateFormats(Box<[Pattern]>);

impl Default for DateFormats {
    /// ISO 8601: `YYYY-MM-DD`.
    fn default() -> Self {
        DateFormats(Box::new([Pattern(Box::new(ISO))]))
    }
}

impl DateFormats {
    /// These formats.
    ///
    /// # Errors
    /// If there is none, if one of them does not fix a day, or if one text could be read by two of them as different days.
    pub fn new(formats: &[&str]) -> Result<DateFormats, DateFormatError> {
        let patterns: Vec<Pattern> =
            formats.iter().map(|format| Pattern::new(format)).collect::<Result<_, _>>()?;
        if patterns.is_empty() {
            return Err(DateFormatError::None);
        }
        for (at, pattern) in patterns.iter().enumerate() {
            if let Some(other) =
                patterns[..at].iter().position(|other| other.is_mistaken_for(pattern))
            {
                return Err(DateFormatError::Ambiguous {
                    first: formats[other].into(),
                    second: formats[at].into(),
                });
            }
        }
        Ok(DateFormats(patterns.into()))
    }

    /// Reads a date.
    ///
    /// # Errors
    /// If the text is in none of the formats, or names a day that the calendar does not have.
    pub fn parse(&self, text: &str) -> Result<Date, DateFault> {
        self.0.iter().find_map(|pattern| read(&pattern.0, text)).unwrap_or(Err(DateFault::NotADate))
    }
}

/// What one byte of a date's text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Year,
    Month,
    Day,
    Literal(u8),
}

use Part::{Day, Literal, Month, Year};

const ISO: [Part; 10] =
    [Year, Year, Year, Year, Literal(b'-'), Month, Month, Literal(b'-'), Day, Day];

/// One format, byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern(Box<[Part]>);

impl Pattern {
    fn new(format: &str) -> Result<Pattern, DateFormatError> {
        const TOKENS: [(&str, &[Part]); 7] = [
            ("YYYY", &[Year; 4]),
            ("MM", &[Month; 2]),
            ("DD", &[Day; 2]),
            ("%Y", &[Year; 4]),
            ("%m", &[Month; 2]),
            ("%d", &[Day; 2]),
            ("%F", &ISO),
        ];
        let bad = || DateFormatError::Format(format.into());
        let mut parts = Vec::new();
        let mut rest = format;
        while let Some(&byte) = rest.as_bytes().first() {
            if let Some((token, meaning)) = TOKENS.iter().find(|(token, _)| rest.starts_with(token))
            {
                parts.extend_from_slice(meaning);
                rest = &rest[token.len()..];
            } else if byte.is_ascii_punctuation() && byte != b'%' {
                parts.push(Literal(byte));
                rest = &rest[1..];
            } else {
                return Err(bad());
            }
        }
        let width_of = |part| parts.iter().filter(|&&other| other == part).count();
        let fixes_a_day = width_of(Year) == 4 && width_of(Month) == 2 && width_of(Day) == 2;
        if fixes_a_day { Ok(Pattern(parts.into())) } else { Err(bad()) }
    }

    /// True if a text could be in both formats and name two days: digits and literals stand in the same places, but the
    /// digits mean something else. For each such pair there is a text, because months and days up to 12 can be swapped and
    /// every number of four digits above 0000 is a year.
    fn is_mistaken_for(&self, other: &Pattern) -> bool {
        let same_shape = self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|(a, b)| match (a, b) {
                (Literal(a), Literal(b)) => a == b,
                (Literal(_), _) | (_, Literal(_)) => false,
                _ => true,
            });
        same_shape && self != other
    }
}

/// The date that `text` writes in this format; `None` if it is not in this format.
fn read(format: &[Part], text: &str) -> Option<Result<Date, DateFault>> {
    if text.len() != format.len() {
        return None;
    }
    let (mut year, mut month, mut day) = (0i16, 0i8, 0i8);
    for (part, byte) in format.iter().zip(text.bytes()) {
        if let Literal(literal) = part {
            if *literal != byte {
                return None;
            }
            continue;
        }
        if !byte.is_ascii_digit() {
            return None;
        }
        let digit = byte - b'0';
        match part {
            Year => year = year * 10 + i16::from(digit),
            Month => month = month * 10 + digit as i8,
            _ => day = day * 10 + digit as i8,
        }
    }
    let date = civil::Date::new(year, month, day).ok().and_then(Date::from_civil);
    Some(date.ok_or(DateFault::ImpossibleDate))
}

/// Formats by which dates cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DateFormatError {
    /// The list is empty.
    #[error("no date format, expected at least one")]
    None,
    /// The format does not fix a day, or has something else in it.
    #[error(
        "date format {0:?}, expected YYYY, MM and DD (or %Y, %m and %d), each once, with punctuation"
    )]
    Format(Box<str>),
    /// One text could be read by both as different days.
    #[error("date formats {first:?} and {second:?} can read one text as two different days")]
    Ambiguous {
        /// The format that came first in the list.
        first: Box<str>,
        /// The other one.
        second: Box<str>,
    },
}

/// Why a text is no date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DateFault {
    /// The text is in none of the declared formats.
    #[error("not written in a declared date format")]
    NotADate,
    /// The calendar has no such day.
    #[error("no such day in the calendar")]
    ImpossibleDate,
}

impl Fault for DateFault {
    fn kind(&self) -> &'static str {
        match self {
            DateFault::NotADate => "not_a_date",
            DateFault::ImpossibleDate => "impossible_date",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `text` is read as: the ISO text, or the kind of fault.
    #[track_caller]
    fn check(formats: &[&str], cases: &[(&str, &str)]) {
        let formats = DateFormats::new(formats).unwrap();
        for (text, expected) in cases {
            let found = match formats.parse(text) {
                Ok(date) => date.to_string(),
                Err(fault) => fault.kind().to_owned(),
            };
            assert_eq!(found, *expected, "for {text:?}");
        }
    }

    #[test]
    fn iso_dates_are_read_strictly() {
        check(
            &["YYYY-MM-DD"],
            &[
                ("2026-01-31", "2026-01-31"),
                ("0001-01-01", "0001-01-01"),
                ("9999-12-31", "9999-12-31"),
                ("2024-02-29", "2024-02-29"),
                ("2000-02-29", "2000-02-29"),
                ("2026-02-29", "impossible_date"),
                ("1900-02-29", "impossible_date"),
                ("2026-04-31", "impossible_date"),
                ("2026-00-10", "impossible_date"),
                ("2026-13-10", "impossible_date"),
                ("2026-10-00", "impossible_date"),
                ("2026-99-99", "impossible_date"),
                ("0000-01-01", "impossible_date"),
                ("2026-1-31", "not_a_date"),
                ("26-01-31", "not_a_date"),
                ("2026/01/31", "not_a_date"),
                ("20260131", "not_a_date"),
                (" 2026-01-31", "not_a_date"),
                ("2026-01-31 ", "not_a_date"),
                ("2026- 1-31", "not_a_date"),
                ("-026-01-31", "not_a_date"),
                ("+026-01-31", "not_a_date"),
                ("2026-01-31T00:00:00", "not_a_date"),
                ("２026-01-3", "not_a_date"),
                ("", "not_a_date"),
            ],
        );
    }

    #[test]
    fn formats_can_be_written_in_both_ways() {
        for format in ["DD.MM.YYYY", "%d.%m.%Y"] {
            check(
                &[format],
                &[
                    ("24.12.2026", "2026-12-24"),
                    ("2026-12-24", "not_a_date"),
                    ("1.2.2026", "not_a_date"),
                ],
            );
        }
        check(&["%F"], &[("2026-12-24", "2026-12-24")]);
        check(&["YYYYMMDD"], &[("20261224", "2026-12-24"), ("20261324", "impossible_date")]);
        check(&["MM/DD/YYYY"], &[("12/24/2026", "2026-12-24"), ("24/12/2026", "impossible_date")]);
    }

    #[test]
    fn formats_of_other_shapes_can_be_listed_together() {
        check(
            &["YYYY-MM-DD", "DD.MM.YYYY", "DDMMYYYY"],
            &[
                ("2026-12-24", "2026-12-24"),
                ("24.12.2026", "2026-12-24"),
                ("24122026", "2026-12-24"),
            ],
        );
        check(&["YYYY-MM-DD", "%F"], &[("2026-12-24", "2026-12-24")]);
    }

    #[test]
    fn formats_that_do_not_fix_a_day_are_refused() {
        for format in [
            "",
            "YYYY-MM",
            "YY-MM-DD",
            "%y-%m-%d",
            "YYYY-MM-DD-DD",
            "YYYY-MM-DDT",
            "YYYY MM DD",
            "D.M.YYYY",
            "%Y-%m-%d %H",
            "%%F",
            "ÄYYYYMMDD",
        ] {
            assert_eq!(DateFormats::new(&[format]), Err(DateFormatError::Format(format.into())));
        }
        assert_eq!(DateFormats::new(&[]), Err(DateFormatError::None));
    }

    #[test]
    fn an_ambiguous_list_is_refused_and_names_the_two() {
        let error = DateFormats::new(&["YYYY-MM-DD", "DD/MM/YYYY", "MM/DD/YYYY"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"date formats "DD/MM/YYYY" and "MM/DD/YYYY" can read one text as two different days"#
        );
    }

    #[test]
    fn exactly_the_pairs_that_share_a_text_are_refused() {
        let tokens = ["YYYY", "MM", "DD"];
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let joined = |marks: [&str; 2]| {
            orders.map(|[a, b, c]| [tokens[a], marks[0], tokens[b], marks[1], tokens[c]].concat())
        };
        let formats = [["", ""], ["-", "-"], ["", "."], [".", ""]].map(joined).concat();
        // These days write every two digits as a month, a day and half of a year.
        let days: Vec<Date> = (1..=12)
            .flat_map(|year| {
                (1..=12).flat_map(move |month| (1..=12).map(move |day| (year, month, day)))
            })
            .filter_map(|(year, month, day)| {
                Date::from_civil(civil::date(year * 100 + year, month, day))
            })
            .collect();
        for first in &formats {
            for second in &formats {
                let (one, other) =
                    (DateFormats::new(&[first]).unwrap(), DateFormats::new(&[second]).unwrap());
                let shared = days.iter().any(|day| {
                    let text = print(first, *day);
                    matches!((one.parse(&text), other.parse(&text)), (Ok(a), Ok(b)) if a != b)
                });
                assert_eq!(
                    DateFormats::new(&[first, second]).is_err(),
                    shared,
                    "{first} and {second}"
                );
            }
        }
    }

    fn print(format: &str, date: Date) -> String {
        let iso = date.as_str();
        format.replace("YYYY", &iso[0..4]).replace("MM", &iso[5..7]).replace("DD", &iso[8..10])
    }

    #[test]
    fn days_are_counted_over_leap_years_and_centuries() {
        let date = |text| Date::from_iso(text).unwrap();
        assert_eq!(date("2024-03-01").days_since(date("2024-02-28")), 2);
        assert_eq!(date("2024-02-28").days_since(date("2024-03-01")), -2);
        assert_eq!(date("9999-12-31").days_since(date("0001-01-01")), 3_652_058);
        assert!(date("0999-12-31") < date("1000-01-01"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn every_day_reads_as_itself_in_every_format(days_since_1970 in -719_162i64..=2_932_896, format in 0usize..4) {
            let days = jiff::SignedDuration::from_hours(days_since_1970 * 24);
            let civil = civil::date(1970, 1, 1).checked_add(days).unwrap();
            let date = Date::from_civil(civil).unwrap();
            prop_assert_eq!(date.to_string(), civil.to_string());
            let format = ["YYYY-MM-DD", "DD.MM.YYYY", "YYYYMMDD", "MM/DD/YYYY"][format];
            prop_assert_eq!(DateFormats::new(&[format]).unwrap().parse(&print(format, date)), Ok(date));
        }

        #[test]
        fn reading_agrees_with_the_calendar(year in 0i16..=9999, month in 0i8..=19, day in 0i8..=39) {
            let found = Date::from_iso(&format!("{year:04}-{month:02}-{day:02}"));
            let expected = civil::Date::new(year, month, day).ok().filter(|_| year > 0);
            prop_assert_eq!(found.ok().map(Date::civil), expected);
        }
    }
}
