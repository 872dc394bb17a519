//! The opening of an input: encoding, line end and header, told from its first bytes before any record is read.

use gegendruck::{Bytes, Position};
use memchr::{memchr, memchr2};

use super::dialect::{Dialect, HeaderLine, LineEnd, TrailingDelimiter};
use super::header::Header;
use super::splitter::Input;

mod line_end;

use line_end::find_line_end;

/// The UTF-8 byte order mark.
pub(crate) const BOM: &[u8] = b"\xEF\xBB\xBF";

/// What the first bytes of an input say, and where its first record begins.
///
/// ```
/// use gegendruck_stages::csv::{Dialect, Input, LineEnd, Opening};
/// let opening = Opening::read(&Dialect::default(), &[], b"id,amount\r\n1,5.00\r\n", Input::Ended)?;
/// assert_eq!(opening.line_end(), LineEnd::CrLf);
/// assert_eq!(opening.start().byte, 11);
/// # Ok::<(), gegendruck_stages::csv::OpenError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    dialect: Dialect,
    line_end: LineEnd,
    header: Header,
    has_bom: bool,
    blank_lines: u64,
    start: Position,
}

impl Opening {
    /// How many bytes of an input are looked at.
    pub const SAMPLE: Bytes = Bytes(64 * 1024);

    /// Reads the opening of an input from its first bytes: all of an ended input, or at least [`Opening::SAMPLE`]. What lies
    /// behind that many bytes changes nothing.
    ///
    /// `declared` are the names of the columns if the dialect has no header line; else they are not used.
    ///
    /// # Errors
    /// If the input is empty, is UTF-16, or has a header that cannot be read.
    pub fn read(
        dialect: &Dialect,
        declared: &[&str],
        bytes: &[u8],
        input: Input,
    ) -> Result<Opening, OpenError> {
        let (bytes, input) = match bytes.get(..Self::SAMPLE.0 as usize) {
            Some(first) if first.len() < bytes.len() => (first, Input::Open),
            _ => (bytes, input),
        };
        if let Some(found) = utf16(bytes) {
            return Err(OpenError::Utf16 { found });
        }
        let has_bom = bytes.starts_with(BOM);
        let bom_len = if has_bom { BOM.len() } else { 0 };
        if bytes.len() == bom_len {
            return Err(OpenError::Empty);
        }
        let line_end =
            dialect.line_end().unwrap_or_else(|| find_line_end(dialect, &bytes[bom_len..], input));
        let mut lines = Lines { bytes, byte: bom_len, line: 1, line_end, input };
        for _ in 0..dialect.skip_lines() {
            lines.next()?.ok_or(OpenError::NoHeader)?;
        }
        let mut blank_lines = 0;
        let header = match dialect.header() {
            HeaderLine::Absent => Header::declared(declared),
            HeaderLine::Present => loop {
                let start = lines.byte;
                match lines.next()? {
                    None => return Err(OpenError::NoHeader),
                    Some([]) => blank_lines += 1,
                    Some(line) => break read_header(dialect, line, lines.line - 1, start as u64)?,
                }
            },
        };
        let start = Position { input: 0, byte: lines.byte as u64, record: 1, line: lines.line };
        Ok(Opening { dialect: dialect.clone(), line_end, header, has_bom, blank_lines, start })
    }

    /// The dialect that it was read by.
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// The line end, declared or found.
    pub fn line_end(&self) -> LineEnd {
        self.line_end
    }

    /// The columns.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the input begins with a byte order mark.
    pub fn has_bom(&self) -> bool {
        self.has_bom
    }

    /// Blank lines before the header.
    pub fn blank_lines(&self) -> u64 {
        self.blank_lines
    }

    /// Where the first record begins, in input 0.
    pub fn start(&self) -> Position {
        self.start
    }
}

/// Why an input cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The input has no bytes, or only a byte order mark.
    #[error("input is empty")]
    Empty,
    /// The input is UTF-16.
    #[error(
        "input is UTF-16 ({found}), expected UTF-8: convert it, for example with iconv -f UTF-16 -t UTF-8"
    )]
    Utf16 {
        /// By what it was recognised.
        found: &'static str,
    },
    /// There are only blank or skipped lines.
    #[error("input has no header line: add one, or pass --no-header")]
    NoHeader,
    /// The header line does not end within the sample.
    #[error(
        "header does not end within the first {}: check --delimiter, and that the input is CSV",
        Opening::SAMPLE
    )]
    HeaderTooLong,
    /// A quote that opens a name is not closed on the header's line.
    #[error(
        "header (line {line}): quote at byte {byte} is not closed on this line: remove it or close it"
    )]
    UnclosedQuote {
        /// The header's line, from 1.
        line: u64,
        /// The quote's place in the input.
        byte: u64,
    },
    /// A quote is neither the first byte of a name nor the last.
    #[error("header (line {line}): stray quote at byte {byte}: remove it, or quote the whole name")]
    StrayQuote {
        /// The header's line, from 1.
        line: u64,
        /// The quote's place in the input.
        byte: u64,
    },
    /// The header holds a NUL.
    #[error(
        "header (line {line}): NUL at byte {byte}: remove it, and check that the input is CSV in UTF-8"
    )]
    Nul {
        /// The header's line, from 1.
        line: u64,
        /// The NUL's place in the input.
        byte: u64,
    },
    /// The header begins with a byte order mark that is not the input's first bytes.
    #[error(
        "header (line {line}): stray byte order mark at byte {byte}: remove it; concatenated file?"
    )]
    StrayBom {
        /// The header's line, from 1.
        line: u64,
        /// The mark's place in the input.
        byte: u64,
    },
    /// The header is not UTF-8.
    #[error("header (line {line}): byte {byte} is not UTF-8: convert the input to UTF-8")]
    Utf8 {
        /// The header's line, from 1.
        line: u64,
        /// The first bad byte's place in the input.
        byte: u64,
    },
    /// The header's last name is empty: its line ends with a delimiter.
    #[error(
        "header (line {line}): line ends with a delimiter: if every line does, pass --trailing-delimiter"
    )]
    TrailingDelimiter {
        /// The header's line, from 1.
        line: u64,
    },
    /// A name is empty.
    #[error("header (line {line}): column {column} has no name: name it")]
    EmptyName {
        /// The header's line, from 1.
        line: u64,
        /// The column's place, from 1.
        column: usize,
    },
}

/// Tells UTF-16 by its byte order mark, or by a NUL in every second byte of the first KiB (give or take a quarter of
/// them, for text beyond Latin-1).
fn utf16(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xFF, 0xFE, ..] => return Some("byte order mark FF FE"),
        [0xFE, 0xFF, ..] => return Some("byte order mark FE FF"),
        _ => {}
    }
    let (pairs, _) = bytes[..bytes.len().min(1024)].as_chunks::<2>();
    let mostly = |nuls: usize| nuls > 0 && nuls >= pairs.len() - pairs.len() / 4;
    if mostly(pairs.iter().filter(|pair| pair[1] == 0).count()) {
        return Some("every second byte is NUL, little endian without byte order mark");
    }
    if mostly(pairs.iter().filter(|pair| pair[0] == 0).count()) {
        return Some("every second byte is NUL, big endian without byte order mark");
    }
    None
}

/// The offset after the quote that closes the field whose text begins at `at`.
fn after_quoted(bytes: &[u8], mut at: usize, quote: u8) -> Option<usize> {
    loop {
        at += memchr(quote, &bytes[at..])? + 1;
        if bytes.get(at) != Some(&quote) {
            return Some(at);
        }
        at += 1;
    }
}

/// The lines of a sample, whatever they hold.
struct Lines<'a> {
    bytes: &'a [u8],
    byte: usize,
    line: u64,
    line_end: LineEnd,
    input: Input,
}

impl<'a> Lines<'a> {
    /// The next line without its line end, which may be another than the input's: a header cannot become a reject.
    fn next(&mut self) -> Result<Option<&'a [u8]>, OpenError> {
        let rest = &self.bytes[self.byte..];
        if rest.is_empty() && self.input == Input::Ended {
            return Ok(None);
        }
        let found = match self.line_end {
            LineEnd::Cr => memchr2(b'\r', b'\n', rest),
            LineEnd::Lf | LineEnd::CrLf => memchr(b'\n', rest),
        };
        let (content, len) = match (found, self.input) {
            (None, Input::Open) => return Err(OpenError::HeaderTooLong),
            (None, Input::Ended) => (rest.len(), rest.len()),
            (Some(at), _) if rest[at] == b'\r' && rest.get(at + 1) == Some(&b'\n') => (at, at + 2),
            (Some(at), _) => (at, at + 1),
        };
        self.byte += len;
        self.line += 1;
        let line = &rest[..content];
        Ok(Some(if len == content { line } else { line.strip_suffix(b"\r").unwrap_or(line) }))
    }
}

/// The names in a header line that begins at byte `start` of the input.
fn read_header(
    dialect: &Dialect,
    line: &[u8],
    number: u64,
    start: u64,
) -> Result<Header, OpenError> {
    let byte = |at: usize| start + at as u64;
    if line.starts_with(BOM) {
        return Err(OpenError::StrayBom { line: number, byte: byte(0) });
    }
    if let Some(at) = memchr(b'\0', line) {
        return Err(OpenError::Nul { line: number, byte: byte(at) });
    }
    let text = std::str::from_utf8(line)
        .map_err(|error| OpenError::Utf8 { line: number, byte: byte(error.valid_up_to()) })?;
    let mut names = Vec::new();
    let mut at = 0;
    loop {
        let name = match dialect.quote() {
            Some(quote) if line.get(at) == Some(&quote) => {
                let end = after_quoted(line, at + 1, quote)
                    .ok_or(OpenError::UnclosedQuote { line: number, byte: byte(at) })?;
                if line.get(end).is_some_and(|&next| next != dialect.delimiter()) {
                    return Err(OpenError::StrayQuote { line: number, byte: byte(end - 1) });
                }
                let quote = char::from(quote);
                let name =
                    text[at + 1..end - 1].replace(&format!("{quote}{quote}"), &quote.to_string());
                at = end;
                name
            }
            quote => {
                let end =
                    memchr(dialect.delimiter(), &line[at..]).map_or(line.len(), |found| at + found);
                if let Some(found) = quote.and_then(|quote| memchr(quote, &line[at..end])) {
                    return Err(OpenError::StrayQuote { line: number, byte: byte(at + found) });
                }
                let name = text[at..end].to_owned();
                at = end;
                name
            }
        };
        names.push(name.into_boxed_str());
        if at == line.len() {
            break;
        }
        at += 1;
    }
    let trailing = names.len() > 1 && names.last().is_some_and(|name| name.is_empty());
    match dialect.trailing_delimiter() {
        TrailingDelimiter::Present if trailing => drop(names.pop()),
        TrailingDelimiter::Absent if trailing => {
            return Err(OpenError::TrailingDelimiter { line: number });
        }
        _ => {}
    }
    if let Some(column) = names.iter().position(|name| name.is_empty()) {
        return Err(OpenError::EmptyName { line: number, column: column + 1 });
    }
    Ok(Header::from_line(names, line))
}
