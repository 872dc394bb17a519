//! Instants, written with an offset or as the local time of a declared zone.

use std::fmt;

use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, civil};

use super::date::{read_digits, write_digits};
use super::{Date, DateFault, DateFormats, Fault};

/// `YYYY-MM-DDTHH:MM:SS` without `Z`.
const SECONDS_WIDTH: usize = 19;
/// The longest text: nine digits of a second, their point and `Z`.
const TEXT_WIDTH: usize = SECONDS_WIDTH + 1 + 9 + 1;

/// An instant with its canonical text: ISO 8601 in UTC, `2026-01-05T08:30:00Z`.
///
/// All texts of one column have one width, so they sort as the instants do.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timestamp {
    written_on: Date,
    text: [u8; TEXT_WIDTH],
    width: u8,
}

impl Timestamp {
    fn new(utc: civil::DateTime, written_on: Date, digits: u8) -> Option<Timestamp> {
        let mut text = *b"0000-00-00T00:00:00.000000000Z";
        text[..10].copy_from_slice(Date::from_civil(utc.date())?.as_str().as_bytes());
        write_digits(&mut text[11..13], utc.hour().unsigned_abs().into());
        write_digits(&mut text[14..16], utc.minute().unsigned_abs().into());
        write_digits(&mut text[17..19], utc.second().unsigned_abs().into());
        write_digits(&mut text[20..29], utc.subsec_nanosecond().unsigned_abs().into());
        let fraction = if digits == 0 { 0 } else { 1 + usize::from(digits) };
        let width = SECONDS_WIDTH + fraction + 1;
        text[width - 1] = b'Z';
        // Nothing behind the text, so that equal instants compare as equal.
        text[width..].fill(0);
        Some(Timestamp { written_on, text, width: width as u8 })
    }

    /// The instant in UTC, `2026-01-05T08:30:00Z`.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.text[..usize::from(self.width)])
            .expect("a timestamp is written in ASCII")
    }

    /// The day that the file wrote, in the offset or zone that it was written in: the writer's calendar.
    pub fn written_on(&self) -> Date {
        self.written_on
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (written on {})", self.as_str(), self.written_on)
    }
}

/// Which instant a local time means that the zone's clocks skipped or showed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dst {
    /// The earlier of the two that it can mean.
    Earlier,
    /// The later of the two.
    Later,
}

/// How a file writes instants: a date in one of its formats, `T` or a blank, `HH:MM:SS`, then `Z` or an offset `+HH:MM`.
#[derive(Clone, Debug, Default)]
pub struct TimestampFormat {
    /// The zone of times without an offset. Without one they are faults.
    pub zone: Option<TimeZone>,
    /// What to take a skipped or doubled local time for. Without it they are faults.
    pub dst: Option<Dst>,
    /// Digits of a second that are kept, 0 to 9. A time with more is a fault, never rounded.
    pub fraction_digits: u8,
}

impl TimestampFormat {
    /// Reads an instant whose date is in one of `dates`.
    ///
    /// # Errors
    /// If the text is no instant.
    ///
    /// # Panics
    /// If `fraction_digits` is above 9.
    pub fn parse(&self, text: &str, dates: &DateFormats) -> Result<Timestamp, TimestampFault> {
        assert!(self.fraction_digits <= 9, "a second has at most nine digits");
        let (date, rest) = text.split_once(['T', ' ']).ok_or(TimestampFault::NotATimestamp)?;
        let date = dates.parse(date)?;
        let (time, offset) = self.time(rest.as_bytes())?;
        let local = date.civil().to_datetime(time);
        let offset = match offset {
            Some(offset) => offset,
            None => self.offset_in_zone(local)?,
        };
        // By the calendar: the instants of `jiff::Timestamp` end 26 hours before the year 9999 does.
        local
            .checked_sub(SignedDuration::from_secs(offset.seconds().into()))
            .ok()
            .and_then(|utc| Timestamp::new(utc, date, self.fraction_digits))
            .ok_or(TimestampFault::OutOfRange)
    }

    fn time(&self, text: &[u8]) -> Result<(civil::Time, Option<Offset>), TimestampFault> {
        let (clock, rest) = text.split_first_chunk::<8>().ok_or(TimestampFault::NotATimestamp)?;
        let [hour, minute, second] = match clock {
            [h1, h2, b':', m1, m2, b':', s1, s2] => {
                [[*h1, *h2], [*m1, *m2], [*s1, *s2]].map(two_digits)
            }
            _ => return Err(TimestampFault::NotATimestamp),
        };
        let (nanosecond, offset) = self.fraction(rest)?;
        let offset = read_offset(offset)?;
        let time = civil::Time::new(
            hour.ok_or(TimestampFault::NotATimestamp)?,
            minute.ok_or(TimestampFault::NotATimestamp)?,
            second.ok_or(TimestampFault::NotATimestamp)?,
            nanosecond,
        );
        Ok((time.map_err(|_| TimestampFault::ImpossibleTime)?, offset))
    }

    /// The nanoseconds of `.123`, if the text begins so, and what follows.
    fn fraction<'a>(&self, text: &'a [u8]) -> Result<(i32, &'a [u8]), TimestampFault> {
        let Some(digits) = text.strip_prefix(b".") else { return Ok((0, text)) };
        let found = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = digits.split_at(found);
        if found == 0 {
            return Err(TimestampFault::NotATimestamp);
        }
        if found > usize::from(self.fraction_digits) {
            return Err(TimestampFault::TooManyDecimals { found, allowed: self.fraction_digits });
        }
        let mut nanoseconds = *b"000000000";
        nanoseconds[..found].copy_from_slice(digits);
        let nanoseconds = read_digits(&nanoseconds).and_then(|number| i32::try_from(number).ok());
        Ok((nanoseconds.expect("nine digits fit into an i32"), rest))
    }

    fn offset_in_zone(&self, local: civil::DateTime) -> Result<Offset, TimestampFault> {
        let zone = self.zone.as_ref().ok_or(TimestampFault::MissingOffset)?;
        match (zone.to_ambiguous_timestamp(local).offset(), self.dst) {
            (AmbiguousOffset::Unambiguous { offset }, _) => Ok(offset),
            // The greater of the two offsets gives the earlier instant.
            (AmbiguousOffset::Gap { after, .. }, Some(Dst::Earlier)) => Ok(after),
            (AmbiguousOffset::Gap { before, .. }, Some(Dst::Later)) => Ok(before),
            (AmbiguousOffset::Fold { before, .. }, Some(Dst::Earlier)) => Ok(before),
            (AmbiguousOffset::Fold { after, .. }, Some(Dst::Later)) => Ok(after),
            (AmbiguousOffset::Gap { .. }, None) => Err(TimestampFault::NonexistentLocalTime),
            (AmbiguousOffset::Fold { .. }, None) => Err(TimestampFault::DoubledLocalTime),
        }
    }
}

fn two_digits(digits: [u8; 2]) -> Option<i8> {
    read_digits(&digits).map(|number| number as i8)
}

/// `Z`, `+HH:MM`, `-HH:MM`, or nothing.
fn read_offset(text: &[u8]) -> Result<Option<Offset>, TimestampFault> {
    let (sign, hours, minutes) = match *text {
        [] => return Ok(None),
        [b'Z'] => return Ok(Some(Offset::UTC)),
        [b'+', h1, h2, b':', m1, m2] => (1, two_digits([h1, h2]), two_digits([m1, m2])),
        [b'-', h1, h2, b':', m1, m2] => (-1, two_digits([h1, h2]), two_digits([m1, m2])),
        _ => return Err(TimestampFault::NotATimestamp),
    };
    let (Some(hours @ 0..24), Some(minutes @ 0..60)) = (hours, minutes) else {
        return Err(TimestampFault::NotATimestamp);
    };
    let seconds = sign * (i32::from(hours) * 3_600 + i32::from(minutes) * 60);
    Offset::from_seconds(seconds).map(Some).map_err(|_| TimestampFault::NotATimestamp)
}

/// Why a text is no instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimestampFault {
    /// The text is not a date in a declared format, a time and an offset.
    #[error("not written as a date in a declared format, T, HH:MM:SS, and Z or an offset")]
    NotATimestamp,
    /// The calendar has no such day.
    #[error("no such day in the calendar")]
    ImpossibleDate,
    /// The clock has no such time.
    #[error("no such time of day")]
    ImpossibleTime,
    /// A local time, and no zone is declared.
    #[error("no offset, and no zone is declared")]
    MissingOffset,
    /// The zone's clocks skipped this time.
    #[error("no such local time, the clocks skipped it")]
    NonexistentLocalTime,
    /// The zone's clocks showed this time twice.
    #[error("the clocks showed this local time twice")]
    DoubledLocalTime,
    /// More digits of a second than are kept.
    #[error("found {found} digits of a second, expected at most {allowed}")]
    TooManyDecimals {
        /// Digits after the point.
        found: usize,
        /// Digits that are kept.
        allowed: u8,
    },
    /// In UTC, the instant is before the year 1 or after the year 9999.
    #[error("in UTC not in the years 1 to 9999")]
    OutOfRange,
}

impl From<DateFault> for TimestampFault {
    fn from(fault: DateFault) -> Self {
        match fault {
            DateFault::NotADate => TimestampFault::NotATimestamp,
            DateFault::ImpossibleDate => TimestampFault::ImpossibleDate,
        }
    }
}

impl Fault for TimestampFault {
    fn kind(&self) -> &'static str {
        match self {
            TimestampFault::NotATimestamp => "not_a_timestamp",
            TimestampFault::ImpossibleDate => "impossible_date",
            TimestampFault::ImpossibleTime => "impossible_time",
            TimestampFault::MissingOffset => "missing_offset",
            TimestampFault::NonexistentLocalTime => "nonexistent_local_time",
            TimestampFault::DoubledLocalTime => "doubled_local_time",
            TimestampFault::TooManyDecimals { .. } => "too_many_decimals",
            TimestampFault::OutOfRange => "out_of_range",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Berlin's rules, as a POSIX string: the test needs no zone database.
    fn berlin(dst: Option<Dst>) -> TimestampFormat {
        TimestampFormat {
            zone: Some(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()),
            dst,
            fraction_digits: 0,
        }
    }

    /// What `text` is read as: the canonical text, or the kind of fault.
    #[track_caller]
    fn check(format: &TimestampFormat, cases: &[(&str, &str)]) {
        let dates = DateFormats::new(&["YYYY-MM-DD", "DD.MM.YYYY"]).unwrap();
        for (text, expected) in cases {
            let found = match format.parse(text, &dates) {
                Ok(timestamp) => timestamp.to_string(),
                Err(fault) => fault.kind().to_owned(),
            };
            assert_eq!(found, *expected, "for {text:?}");
        }
    }

    #[test]
    fn instants_with_an_offset_become_utc() {
        check(
            &TimestampFormat::default(),
            &[
                ("2026-01-05T09:30:00+01:00", "2026-01-05T08:30:00Z"),
                ("2026-01-05T09:30:00Z", "2026-01-05T09:30:00Z"),
                ("2026-01-05 09:30:00-00:00", "2026-01-05T09:30:00Z"),
                ("05.01.2026 00:30:00+05:45", "2026-01-04T18:45:00Z"),
                ("2026-01-05T09:30:00", "missing_offset"),
                ("2026-02-30T09:30:00Z", "impossible_date"),
                ("2026-01-05T24:00:00Z", "impossible_time"),
                ("2026-01-05T09:60:00Z", "impossible_time"),
                ("2016-12-31T23:59:60Z", "impossible_time"),
                ("2026-01-05T09:30:00.5Z", "too_many_decimals"),
                ("2026-01-05", "not_a_timestamp"),
                ("2026-01-05T", "not_a_timestamp"),
                ("2026-01-05T09:30Z", "not_a_timestamp"),
                ("2026-01-05T9:30:00Z", "not_a_timestamp"),
                ("2026-01-05t09:30:00Z", "not_a_timestamp"),
                ("2026-01-05T09:30:00z", "not_a_timestamp"),
                ("2026-01-05T09:30:00 Z", "not_a_timestamp"),
                ("2026-01-05T09:30:00.Z", "not_a_timestamp"),
                ("2026-01-05T09:30:00+01", "not_a_timestamp"),
                ("2026-01-05T09:30:00+0100", "not_a_timestamp"),
                ("2026-01-05T09:30:00+24:00", "not_a_timestamp"),
                ("2026-01-05T09:30:00+01:60", "not_a_timestamp"),
                ("2026-01-05T0a:30:00Z", "not_a_timestamp"),
                (" 2026-01-05T09:30:00Z", "not_a_timestamp"),
                ("2026-01-05  09:30:00Z", "not_a_timestamp"),
                ("", "not_a_timestamp"),
            ],
        );
    }

    #[test]
    fn every_instant_of_the_years_1_to_9999_is_taken_and_no_other() {
        let cases = [
            ("9999-12-30T22:00:00Z", "9999-12-30T22:00:00Z"),
            ("9999-12-31T12:00:00Z", "9999-12-31T12:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("9999-12-31T23:59:59+14:00", "9999-12-31T09:59:59Z"),
            ("9999-12-31T22:59:59-01:00", "9999-12-31T23:59:59Z"),
            ("9999-12-31T23:00:00-01:00", "out_of_range"),
            ("9999-12-31T23:59:59-14:00", "out_of_range"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("0001-01-01T00:00:00-14:00", "0001-01-01T14:00:00Z"),
            ("0001-01-01T01:00:00+01:00", "0001-01-01T00:00:00Z"),
            ("0001-01-01T00:59:59+01:00", "out_of_range"),
            ("0001-01-01T00:00:00+23:59", "out_of_range"),
        ];
        check(&TimestampFormat::default(), &cases);
        check(
            &berlin(None),
            &[
                ("9999-12-31T23:59:59", "9999-12-31T22:59:59Z"),
                ("0001-01-01T01:00:00", "0001-01-01T00:00:00Z"),
                ("0001-01-01T00:59:59", "out_of_range"),
            ],
        );
        let format = TimestampFormat { fraction_digits: 9, ..TimestampFormat::default() };
        let last = "9999-12-31T23:59:59.999999999Z";
        check(&format, &[(last, last)]);
        assert_eq!(
            TimestampFault::OutOfRange.to_string(),
            "in UTC not in the years 1 to 9999",
            "the year that the file wrote may be one of them"
        );
    }

    #[test]
    fn local_times_need_a_zone_and_exist_once() {
        let cases = [
            ("2026-01-05T09:30:00", ["2026-01-05T08:30:00Z"; 3]),
            ("2026-07-05T09:30:00", ["2026-07-05T07:30:00Z"; 3]),
            ("2026-07-05T09:30:00+00:00", ["2026-07-05T09:30:00Z"; 3]),
            ("2026-03-29T01:59:59", ["2026-03-29T00:59:59Z"; 3]),
            (
                "2026-03-29T02:30:00",
                ["nonexistent_local_time", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"],
            ),
            ("2026-03-29T03:00:00", ["2026-03-29T01:00:00Z"; 3]),
            (
                "2026-10-25T02:30:00",
                ["doubled_local_time", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"],
            ),
        ];
        for (policy, dst) in [None, Some(Dst::Earlier), Some(Dst::Later)].into_iter().enumerate() {
            check(&berlin(dst), &cases.map(|(text, expected)| (text, expected[policy])));
        }
    }

    #[test]
    fn kept_digits_of_a_second_have_one_width() {
        let format = TimestampFormat { fraction_digits: 3, ..TimestampFormat::default() };
        check(
            &format,
            &[
                ("2026-01-05T09:30:00Z", "2026-01-05T09:30:00.000Z"),
                ("2026-01-05T09:30:00.5Z", "2026-01-05T09:30:00.500Z"),
                ("2026-01-05T09:30:00.123+01:00", "2026-01-05T08:30:00.123Z"),
                ("2026-01-05T09:30:00.1234Z", "too_many_decimals"),
            ],
        );
        let format = TimestampFormat { fraction_digits: 9, ..TimestampFormat::default() };
        check(&format, &[("2026-01-05T09:30:00.123456789Z", "2026-01-05T09:30:00.123456789Z")]);
    }

    #[test]
    fn the_day_stays_the_one_that_was_written() {
        let timestamp = TimestampFormat::default()
            .parse("2026-01-05T00:30:00+01:00", &DateFormats::default())
            .unwrap();
        assert_eq!(timestamp.as_str(), "2026-01-04T23:30:00Z");
        assert_eq!(timestamp.written_on().as_str(), "2026-01-05");
    }
}
