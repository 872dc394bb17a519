//! The line end of an input: that of most of its lines.
//!
//! ```text
//! "report of the day    <- skipped: tells nothing, and its quote means nothing
//! id,amount,text
//! 1,5.00,"two           <- a quoted field that is closed: its line ends are text
//! lines"
//! 2,5.00,"text          <- a quote that nothing in the sample closes. Was it never closed, or does a long field go on?
//! 3,5.00,text           <- most lines from there on have three fields: they are records, and their line ends count
//! 4,5.00,text
//! ```
//!
//! - A quote is judged as the splitter will judge it, as far as the sample tells: where text follows a closing quote, only the line
//!   of the opening one is lost.
//! - The time is linear in the sample. Only a quote that is one of an odd number in a row can be closed far away, and between
//!   the two there is no other such.

use memchr::memchr2;

use super::after_quoted;
use crate::csv::dialect::{Dialect, LineEnd, Multiline, Quotes};
use crate::csv::splitter::Input;

/// The line end of most lines of a sample, not counting those in quoted fields; LF if there is none.
pub(super) fn find_line_end(dialect: &Dialect, bytes: &[u8], input: Input) -> LineEnd {
    let records = after_lines(bytes, dialect.skip_lines());
    let found = most(&Scan::new(dialect, dialect.quote(), records, input).outside_quotes());
    // Where no line ends outside quotes, any line end is better than none.
    found
        .or_else(|| most(&Scan::new(dialect, None, bytes, input).outside_quotes()))
        .unwrap_or(LineEnd::Lf)
}

/// What comes after the first `count` lines, however these end.
fn after_lines(mut bytes: &[u8], count: u32) -> &[u8] {
    for _ in 0..count {
        let Some(at) = memchr2(b'\n', b'\r', bytes) else { return &[] };
        let rest = &bytes[at..];
        bytes = rest.strip_prefix(b"\r\n").unwrap_or(&rest[1..]);
    }
    bytes
}

/// The line end that most of these lines have; of equals, the more usual one.
fn most(lines: &[Line]) -> Option<LineEnd> {
    let count = |end| lines.iter().filter(|line| line.end == end).count();
    [LineEnd::Cr, LineEnd::CrLf, LineEnd::Lf]
        .into_iter()
        .filter(|&end| count(end) > 0)
        .max_by_key(|&end| count(end))
}

/// A line, or several that quoted fields join.
#[derive(Clone, Copy, Debug)]
struct Line {
    fields: usize,
    end: LineEnd,
}

/// A walk over the lines of a sample.
struct Scan<'a> {
    dialect: &'a Dialect,
    quote: Option<u8>,
    bytes: &'a [u8],
    input: Input,
    at: usize,
    /// Whether a quote was met that nothing closes.
    open: bool,
}

impl<'a> Scan<'a> {
    fn new(dialect: &'a Dialect, quote: Option<u8>, bytes: &'a [u8], input: Input) -> Scan<'a> {
        Scan { dialect, quote, bytes, input, at: 0, open: false }
    }

    /// The lines that do not end in a quoted field. Those from a quote on that nothing closes are among them if most have as many
    /// fields as those before, or if there are no others.
    fn outside_quotes(mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut certain = 0;
        while let Some(line) = self.next_line() {
            lines.push(line);
            if !self.open {
                certain = lines.len();
            }
        }
        // In a file of one column any text looks like a record; so does the line on which a long field begins.
        let fields = lines.iter().map(|line| line.fields).find(|&fields| fields > 1);
        let behind = lines.get(certain + 1..).unwrap_or_default();
        let alike = behind.iter().filter(|line| Some(line.fields) == fields).count();
        if certain > 0 && alike * 2 <= behind.len() {
            lines.truncate(certain);
        }
        lines
    }

    /// The next line; `None` if the sample ends first.
    fn next_line(&mut self) -> Option<Line> {
        let (mut quote, mut field_start, mut fields) = (self.quote, true, 1);
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            if field_start && quote == Some(byte) {
                field_start = false;
                match self.after_field(byte) {
                    Some(end) => self.at = end,
                    // The line is lost: quotes mean nothing in what is left of it.
                    None => quote = None,
                }
                continue;
            }
            field_start = byte == self.dialect.delimiter();
            fields += usize::from(field_start);
            if let Some(end) = self.end_of_line(byte) {
                return Some(Line { fields, end });
            }
        }
        None
    }

    /// The offset after the quoted field whose text comes next, if it is one.
    fn after_field(&mut self, quote: u8) -> Option<usize> {
        let Some(end) = after_quoted(self.bytes, self.at, quote) else {
            self.open = true;
            return None;
        };
        let one_line = memchr2(b'\n', b'\r', &self.bytes[self.at..end]).is_none();
        let is_field = match self.bytes.get(end) {
            Some(&next) if next != self.dialect.delimiter() && !matches!(next, b'\n' | b'\r') => {
                one_line && self.dialect.quotes() == Quotes::Lenient
            }
            _ => one_line || self.dialect.multiline() == Multiline::Allowed,
        };
        is_field.then_some(end)
    }

    /// The line end that `byte`, the one before the next, belongs to.
    fn end_of_line(&mut self, byte: u8) -> Option<LineEnd> {
        match (byte, self.bytes.get(self.at)) {
            (b'\n', _) => Some(LineEnd::Lf),
            (b'\r', Some(b'\n')) => {
                self.at += 1;
                Some(LineEnd::CrLf)
            }
            // What it is depends on the byte behind the sample.
            (b'\r', None) if self.input == Input::Open => None,
            (b'\r', _) => Some(LineEnd::Cr),
            _ => None,
        }
    }
}
