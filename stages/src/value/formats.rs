//! How one file writes its values.

use super::{
    Date, DateFault, DateFormats, Decimal, NumberFault, NumberFormat, Timestamp, TimestampFault,
    TimestampFormat,
};

/// How one file writes its values. Declared once for a run, and part of what a resumed run must agree with.
///
/// The default: an empty field is absent, `1234.56`, `2026-01-05`, `2026-01-05T08:30:00Z`.
#[derive(Clone, Debug, Default)]
pub struct Formats {
    /// The text that stands for "absent".
    pub null: Box<str>,
    /// Marks in numbers.
    pub numbers: NumberFormat,
    /// Formats of dates, in timestamps too.
    pub dates: DateFormats,
    /// Zone and precision of timestamps.
    pub timestamps: TimestampFormat,
}

impl Formats {
    /// The text, or `None` if it stands for "absent".
    pub fn present<'a>(&self, text: &'a str) -> Option<&'a str> {
        (*text != *self.null).then_some(text)
    }

    /// Reads a decimal: [`NumberFormat::decimal`].
    ///
    /// # Errors
    /// If the text is no such number.
    pub fn decimal(&self, text: &str, precision: u8, scale: u8) -> Result<Decimal, NumberFault> {
        self.numbers.decimal(text, precision, scale)
    }

    /// Reads a date: [`DateFormats::parse`].
    ///
    /// # Errors
    /// If the text is no date.
    pub fn date(&self, text: &str) -> Result<Date, DateFault> {
        self.dates.parse(text)
    }

    /// Reads an instant: [`TimestampFormat::parse`].
    ///
    /// # Errors
    /// If the text is no instant.
    pub fn timestamp(&self, text: &str) -> Result<Timestamp, TimestampFault> {
        self.timestamps.parse(text, &self.dates)
    }
}
