//! How an input is written: its special bytes, what it may contain, and how long one record may be.

use std::fmt;

use gegendruck::Bytes;

/// The byte or bytes that end a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineEnd {
    /// A line feed.
    Lf,
    /// A carriage return and a line feed.
    CrLf,
    /// A carriage return.
    Cr,
}

impl LineEnd {
    /// The bytes themselves.
    pub fn as_bytes(self) -> &'static [u8] {
        match self {
            LineEnd::Lf => b"\n",
            LineEnd::CrLf => b"\r\n",
            LineEnd::Cr => b"\r",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            LineEnd::Lf => "LF",
            LineEnd::CrLf => "CRLF",
            LineEnd::Cr => "CR",
        }
    }

    /// The last byte: what lines are counted by, inside quotes too.
    pub(crate) fn last_byte(self) -> u8 {
        match self {
            LineEnd::Lf | LineEnd::CrLf => b'\n',
            LineEnd::Cr => b'\r',
        }
    }

    /// `line`, which may end with this line end or with its last byte, without it.
    pub(crate) fn strip(self, line: &[u8]) -> &[u8] {
        let Some((&last, rest)) = line.split_last() else { return line };
        match self {
            _ if last != self.last_byte() => line,
            LineEnd::CrLf => rest.strip_suffix(b"\r").unwrap_or(rest),
            LineEnd::Lf | LineEnd::Cr => rest,
        }
    }
}

impl fmt::Display for LineEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether the first line names the columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HeaderLine {
    /// The first line names them.
    #[default]
    Present,
    /// The first line is a record; the columns are those that were declared, in that order.
    Absent,
}

/// What happens to text between a closing quote and the next delimiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Quotes {
    /// The record is refused.
    #[default]
    Strict,
    /// It becomes part of the value, and the record counts as repaired. Not after a quoted field with a line end in it:
    /// there the quote that closed it is as likely to be one that should have opened another.
    Lenient,
}

/// Whether a quoted field may hold line ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Multiline {
    /// It may.
    #[default]
    Allowed,
    /// It may not: a quote that is open at the end of a line was never closed.
    Refused,
}

/// What happens to a record with a NUL in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Nul {
    /// The record is refused.
    #[default]
    Reject,
    /// The NULs are taken out of the values, after quotes were read, and the record counts as repaired.
    Strip,
}

/// Whether each record ends with a delimiter that begins no field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TrailingDelimiter {
    /// It does not: a delimiter at the end begins one more, empty field.
    #[default]
    Absent,
    /// It does; the header may.
    Present,
}

/// How an input is written. Made by [`Dialect::builder`]; cannot be changed afterwards.
///
/// ```
/// use gegendruck_stages::csv::{Dialect, Quotes};
/// let dialect = Dialect::builder().delimiter(b';').quotes(Quotes::Lenient).build()?;
/// assert_eq!(dialect.delimiter(), b';');
/// assert!(Dialect::builder().delimiter(b'"').build().is_err());
/// # Ok::<(), gegendruck_stages::csv::DialectError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialect {
    delimiter: u8,
    quote: Option<u8>,
    line_end: Option<LineEnd>,
    header: HeaderLine,
    quotes: Quotes,
    multiline: Multiline,
    nul: Nul,
    trailing_delimiter: TrailingDelimiter,
    skip_lines: u32,
    max_record_bytes: Bytes,
    max_record_lines: u32,
}

impl Default for Dialect {
    /// RFC 4180 with a header, read strictly; the line end is told from the input; a record has at most 1 MiB and 1,000 lines.
    fn default() -> Self {
        Dialect {
            delimiter: b',',
            quote: Some(b'"'),
            line_end: None,
            header: HeaderLine::default(),
            quotes: Quotes::default(),
            multiline: Multiline::default(),
            nul: Nul::default(),
            trailing_delimiter: TrailingDelimiter::default(),
            skip_lines: 0,
            max_record_bytes: Bytes::mib(1),
            max_record_lines: 1_000,
        }
    }
}

impl Dialect {
    /// The highest limit on the bytes of one record. Field ends are kept as 32-bit numbers.
    pub const MAX_RECORD_BYTES: Bytes = Bytes::mib(1024);

    /// Starts from the default dialect.
    pub fn builder() -> DialectBuilder {
        DialectBuilder { dialect: Dialect::default() }
    }

    /// The byte between two fields.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// The byte that opens and closes a quoted field, if there are quoted fields.
    pub fn quote(&self) -> Option<u8> {
        self.quote
    }

    /// The line end, if it was declared.
    pub fn line_end(&self) -> Option<LineEnd> {
        self.line_end
    }

    /// Whether the first line names the columns.
    pub fn header(&self) -> HeaderLine {
        self.header
    }

    /// What happens to text after a closing quote.
    pub fn quotes(&self) -> Quotes {
        self.quotes
    }

    /// Whether a quoted field may hold line ends.
    pub fn multiline(&self) -> Multiline {
        self.multiline
    }

    /// What happens to a record with a NUL in it.
    pub fn nul(&self) -> Nul {
        self.nul
    }

    /// Whether each record ends with a delimiter.
    pub fn trailing_delimiter(&self) -> TrailingDelimiter {
        self.trailing_delimiter
    }

    /// Lines before the header that are no part of the data.
    pub fn skip_lines(&self) -> u32 {
        self.skip_lines
    }

    /// Most bytes of one record, without its line end.
    pub fn max_record_bytes(&self) -> Bytes {
        self.max_record_bytes
    }

    /// Most lines of one record.
    pub fn max_record_lines(&self) -> u32 {
        self.max_record_lines
    }
}

/// Options of a [`Dialect`], checked together by [`build`](DialectBuilder::build).
#[derive(Clone, Debug)]
#[must_use]
pub struct DialectBuilder {
    dialect: Dialect,
}

impl DialectBuilder {
    /// The byte between two fields. Default: a comma.
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.dialect.delimiter = delimiter;
        self
    }

    /// The byte that opens and closes a quoted field, or `None` if no byte does. Default: `"`.
    pub fn quote(mut self, quote: Option<u8>) -> Self {
        self.dialect.quote = quote;
        self
    }

    /// Declares the line end. Default: told from the first 64 KiB of the input.
    pub fn line_end(mut self, line_end: LineEnd) -> Self {
        self.dialect.line_end = Some(line_end);
        self
    }

    /// Whether the first line names the columns. Default: it does.
    pub fn header(mut self, header: HeaderLine) -> Self {
        self.dialect.header = header;
        self
    }

    /// What happens to text after a closing quote. Default: the record is refused.
    pub fn quotes(mut self, quotes: Quotes) -> Self {
        self.dialect.quotes = quotes;
        self
    }

    /// Whether a quoted field may hold line ends. Default: it may.
    pub fn multiline(mut self, multiline: Multiline) -> Self {
        self.dialect.multiline = multiline;
        self
    }

    /// What happens to a record with a NUL in it. Default: it is refused.
    pub fn nul(mut self, nul: Nul) -> Self {
        self.dialect.nul = nul;
        self
    }

    /// Whether each record ends with a delimiter. Default: it does not.
    pub fn trailing_delimiter(mut self, trailing_delimiter: TrailingDelimiter) -> Self {
        self.dialect.trailing_delimiter = trailing_delimiter;
        self
    }

    /// Lines before the header that are no part of the data. Default: none.
    pub fn skip_lines(mut self, lines: u32) -> Self {
        self.dialect.skip_lines = lines;
        self
    }

    /// Most bytes of one record, without its line end. Default: 1 MiB.
    pub fn max_record_bytes(mut self, bytes: Bytes) -> Self {
        self.dialect.max_record_bytes = bytes;
        self
    }

    /// Most lines of one record. Default: 1,000.
    pub fn max_record_lines(mut self, lines: u32) -> Self {
        self.dialect.max_record_lines = lines;
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    /// If two of them contradict each other, or a byte or a limit cannot serve.
    pub fn build(self) -> Result<Dialect, DialectError> {
        let dialect = self.dialect;
        let special = |byte: u8| matches!(byte, b'\0' | b'\r' | b'\n') || !byte.is_ascii();
        if special(dialect.delimiter) {
            return Err(DialectError::Delimiter { found: dialect.delimiter });
        }
        if let Some(quote) = dialect.quote {
            if special(quote) {
                return Err(DialectError::Quote { found: quote });
            }
            if quote == dialect.delimiter {
                return Err(DialectError::Same { found: quote });
            }
        }
        if !(Bytes(1)..=Dialect::MAX_RECORD_BYTES).contains(&dialect.max_record_bytes) {
            return Err(DialectError::RecordBytes { found: dialect.max_record_bytes });
        }
        if dialect.max_record_lines == 0 {
            return Err(DialectError::RecordLines);
        }
        Ok(dialect)
    }
}

/// Why options make no dialect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialectError {
    /// The delimiter is a line end, a NUL or no ASCII character.
    #[error(
        "delimiter is byte {found:#04x}, expected an ASCII character that is no line end: pass --delimiter"
    )]
    Delimiter {
        /// The byte.
        found: u8,
    },
    /// The quote is a line end, a NUL or no ASCII character.
    #[error(
        "quote is byte {found:#04x}, expected an ASCII character that is no line end: pass --quote"
    )]
    Quote {
        /// The byte.
        found: u8,
    },
    /// Delimiter and quote are one byte.
    #[error("delimiter and quote are both {:?}: pass another --delimiter or --quote", *found as char)]
    Same {
        /// The byte.
        found: u8,
    },
    /// The limit on a record's bytes is zero, or more than field ends can express.
    #[error(
        "limit for one record is {found}, expected 1 byte to {}: pass --max-record-bytes",
        Dialect::MAX_RECORD_BYTES
    )]
    RecordBytes {
        /// The limit.
        found: Bytes,
    },
    /// The limit on a record's lines is zero.
    #[error("limit for one record is 0 lines, expected at least 1")]
    RecordLines,
}
