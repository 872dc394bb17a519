//! The splitter: where each record of an input ends, and each of its fields.
//!
//! ```text
//!    +------------------- delimiter; text, if lenient -------------------+
//!    v                                                                   |
//!  [unquoted] -- quote, as first byte --> [in quotes] -- quote --> [after quote]
//!    |   ^                                 |   ^   ^                 |    |
//!    +---+ delimiter             line end  +---+   +------ quote ----+    | text
//!                                                                         v
//!  a line end outside quotes ends the record                       [to line end]
//! ```
//!
//! - The caller gives all bytes from the start of the record that is not cut yet. The splitter remembers how far it looked (see
//!   [marks](super::marks)), so that a byte is looked at once, however the bytes arrive. Two things look again at what they already
//!   saw, both bounded by the limits for one record: text after the closing quote of a field of several lines, and
//!   [recovery](super::recovery).
//! - What it decides depends on the bytes only, never on how they were cut: each limit is tied to an offset in the record.
//! - The lengths of its steps add up to the input: no byte is in two steps or in none.
//! - It asks for more bytes only while there are no more than the limit for one record and a line end; beyond that, it lets
//!   bytes go.

use std::sync::Arc;

use gegendruck::Reason;
use memchr::{memchr, memchr2, memchr3};

use super::dialect::{Dialect, LineEnd, Multiline, Nul, Quotes, TrailingDelimiter};
use super::header::Header;
use super::marks::Marks;
use super::opening::{BOM, Opening};
use super::recovery::{Recovery, Window};

mod refusal;

/// Whether bytes can follow those at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// They can.
    Open,
    /// There are no more.
    Ended,
}

/// Cuts an input into records. Has no buffer and no position: [`Cutter`](super::Cutter) adds these.
#[derive(Debug)]
pub struct Splitter {
    form: Form,
    header: Arc<Header>,
    scan: Scan,
    marks: Marks,
    /// Where each field of the current record ends; fields beyond those expected are only counted.
    ends: Box<[u32]>,
    recovery: Recovery,
}

/// What the splitter found at the start of the bytes given to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'i> {
    /// A record with the fields that were expected; their ends are in [`Splitter::ends`] until the next step.
    Record {
        /// Its text, without the line end.
        text: &'i str,
        /// How many bytes it takes, with its line end.
        len: usize,
        /// How many lines it takes.
        lines: u64,
        /// Whether its values are not simply what lies between the delimiters.
        form: ValueForm,
    },
    /// A line with nothing before its line end.
    Blank {
        /// How many bytes it takes.
        len: usize,
    },
    /// A record that cannot be taken as it is written.
    Refused {
        /// How many of the bytes it takes.
        len: usize,
        /// How long it is, without its line end and with all bytes that were let go.
        content_len: u64,
        /// How many lines it takes.
        lines: u64,
        /// Why; boxed, so that the steps of sound records stay small.
        reason: Box<Reason>,
    },
    /// The first `len` bytes belong to a record that is over the limit and will be refused; they are needed no more.
    Skip {
        /// How many bytes the caller may let go.
        len: usize,
    },
    /// The record does not end in the bytes at hand: give them again, with more behind them.
    More,
    /// The input has ended, and so has its last record.
    End,
}

/// Whether values are what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueForm {
    /// Each value is what lies between two delimiters.
    Plain,
    /// There are quoted fields.
    Quoted,
    /// A value is not what the record's form calls for: text was glued on, or a NUL is taken out.
    Repaired,
}

/// The dialect as the scan needs it.
#[derive(Debug)]
struct Form {
    delimiter: u8,
    quote: Option<u8>,
    line_end: LineEnd,
    /// By what byte lines are counted in quotes.
    newline: u8,
    quotes: Quotes,
    multiline: Multiline,
    nul: Nul,
    trailing_delimiter: TrailingDelimiter,
    max_bytes: usize,
    max_lines: u64,
    /// How many fields a record has, with the empty one behind a trailing delimiter.
    fields: usize,
}

/// What is known of the record under way. Offsets are from its first byte, or from the first one that was not let go.
#[derive(Clone, Debug, Default)]
struct Scan {
    state: State,
    /// Where the field under way begins; in [`State::AfterQuote`], the offset after its closing quote.
    field_start: usize,
    /// How many fields have ended.
    fields: usize,
    /// Whether a field is quoted.
    quoted: bool,
    /// Whether text was glued on behind a closing quote.
    glued: bool,
    /// Whether there is a NUL.
    nul: bool,
    /// The record is known to be over the limit, and its bytes can be let go.
    over: bool,
    /// Line ends in quotes.
    newlines: u64,
    /// Where the second line begins, if there is one.
    second_line: usize,
    /// Offset and field of the quote that was open at the end of the first line, or else of the last one.
    opened: (usize, usize),
    /// Why the record will be refused, if that is known.
    fault: Option<Fault>,
    /// Bytes of it that were let go.
    dropped: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// At the start of a field, or in one that is not quoted.
    #[default]
    Unquoted,
    InQuotes,
    AfterQuote,
    /// The record is refused: its line ends it, whatever it holds.
    ToLineEnd,
}

/// A fault of the record's form. Offsets are from its first byte.
#[derive(Clone, Copy, Debug)]
enum Fault {
    TooLong,
    TextAfterQuote { at: usize, field: usize },
    LineEnd { at: usize, found: &'static str },
}

/// What a CR or LF outside quotes is.
enum Break {
    /// The record ends before it; the next one begins at `next`.
    End { next: usize, found: LineEnd },
    /// Part of the record's text, where it should not be.
    Stray,
    /// The next byte will tell.
    Unknown,
}

impl Splitter {
    /// Cuts inputs like the one that was opened.
    pub fn new(opening: &Opening) -> Splitter {
        Splitter::with(opening.dialect(), opening.line_end(), opening.header().clone())
    }

    fn with(dialect: &Dialect, line_end: LineEnd, header: Header) -> Splitter {
        let fields = match dialect.trailing_delimiter() {
            TrailingDelimiter::Absent => header.names().len(),
            TrailingDelimiter::Present => header.names().len() + 1,
        };
        let form = Form {
            delimiter: dialect.delimiter(),
            quote: dialect.quote(),
            line_end,
            newline: line_end.last_byte(),
            quotes: dialect.quotes(),
            multiline: dialect.multiline(),
            nul: dialect.nul(),
            trailing_delimiter: dialect.trailing_delimiter(),
            max_bytes: dialect.max_record_bytes().0 as usize,
            max_lines: u64::from(dialect.max_record_lines()),
            fields,
        };
        Splitter {
            recovery: Recovery::new(form.delimiter, form.quote, form.quotes, line_end),
            ends: vec![0; fields].into(),
            header: Arc::new(header),
            scan: Scan::default(),
            marks: Marks::new(form.delimiter, form.quote),
            form,
        }
    }

    /// Where each field of the record that was cut last ends in its text; each begins one byte after the one before it.
    pub fn ends(&self) -> &[u32] {
        &self.ends[..self.header.names().len()]
    }

    /// The columns.
    pub fn header(&self) -> &Arc<Header> {
        &self.header
    }

    /// Looks for the end of the record that begins at the first byte of `bytes`.
    ///
    /// After [`Step::More`] the same bytes come again, with more behind them or with the input ended; after any other step, what
    /// follows the bytes that it took.
    pub fn next<'i>(&mut self, bytes: &'i [u8], input: Input) -> Step<'i> {
        loop {
            let Some(at) = self.next_mark(bytes) else {
                return self.out_of_bytes(bytes, bytes.len(), input);
            };
            let byte = bytes[at];
            if self.scan.state == State::AfterQuote {
                let is_next = at == self.scan.field_start;
                if is_next && Some(byte) == self.form.quote {
                    self.scan.state = State::InQuotes;
                    continue;
                }
                if is_next && matches!(byte, b'\n' | b'\r') {
                    match self.line_break(bytes, at, input) {
                        Break::End { next, found } => {
                            return self.end_record(bytes, at, next, found);
                        }
                        Break::Unknown => return self.put_back(bytes, at),
                        Break::Stray => {}
                    }
                }
                if is_next && byte == self.form.delimiter {
                    self.scan.state = State::Unquoted;
                    self.end_field(at);
                    continue;
                }
                if let Some(step) = self.text_after_quote(bytes) {
                    return step;
                }
            }
            match self.scan.state {
                State::Unquoted if byte == self.form.delimiter => self.end_field(at),
                State::InQuotes => {
                    if let Some(step) = self.mark_in_quotes(bytes, at, byte) {
                        return step;
                    }
                }
                State::Unquoted if Some(byte) == self.form.quote => {
                    if at == self.scan.field_start {
                        self.open_quote(at);
                    }
                }
                State::Unquoted | State::ToLineEnd if matches!(byte, b'\n' | b'\r') => {
                    match self.line_break(bytes, at, input) {
                        Break::End { next, found } => {
                            return self.end_record(bytes, at, next, found);
                        }
                        Break::Unknown => return self.put_back(bytes, at),
                        Break::Stray => self.stray_cr(at),
                    }
                }
                _ => self.scan.nul |= byte == b'\0',
            }
        }
    }

    /// There is a mark at `at` in a quoted field.
    #[inline]
    fn mark_in_quotes<'i>(&mut self, bytes: &'i [u8], at: usize, byte: u8) -> Option<Step<'i>> {
        if Some(byte) == self.form.quote {
            if at >= self.form.max_bytes
                && let Some(step) = self.over_limit(bytes, self.form.max_bytes, Window::Cut)
            {
                return Some(step);
            }
            // The usual two need no state of their own: their marks come next.
            self.scan.state = match bytes.get(at + 1) {
                Some(&next) if next == self.form.delimiter || next == b'\n' => State::Unquoted,
                _ => State::AfterQuote,
            };
            self.scan.field_start = at + 1;
            return None;
        }
        if byte == self.form.newline {
            return self.newline_in_quotes(bytes, at);
        }
        self.scan.nul |= byte == b'\0';
        None
    }

    /// The next byte that may mean something here.
    #[inline]
    fn next_mark(&mut self, bytes: &[u8]) -> Option<usize> {
        let (form, scan) = (&self.form, &mut self.scan);
        self.marks.next(bytes, |rest| {
            let found = match scan.state {
                State::InQuotes => memchr2(form.quote?, form.newline, rest),
                State::Unquoted => memchr3(form.delimiter, b'\n', b'\r', rest),
                State::ToLineEnd => memchr2(b'\n', b'\r', rest),
                State::AfterQuote => Some(0),
            };
            scan.nul |= memchr(b'\0', &rest[..found.unwrap_or(rest.len())]).is_some();
            found
        })
    }

    /// What the CR or LF at `at`, outside quotes, is.
    #[inline]
    fn line_break(&self, bytes: &[u8], at: usize, input: Input) -> Break {
        if bytes[at] == b'\n' {
            return Break::End { next: at + 1, found: LineEnd::Lf };
        }
        match bytes.get(at + 1) {
            None if input == Input::Open => Break::Unknown,
            Some(b'\n') => Break::End { next: at + 2, found: LineEnd::CrLf },
            _ if self.form.line_end == LineEnd::Cr => {
                Break::End { next: at + 1, found: LineEnd::Cr }
            }
            _ => Break::Stray,
        }
    }

    /// The field ends before the delimiter at `at`.
    #[inline]
    fn end_field(&mut self, at: usize) {
        if let Some(end) = self.ends.get_mut(self.scan.fields) {
            *end = at as u32;
        }
        self.scan.fields += 1;
        self.scan.field_start = at + 1;
        if at >= self.form.max_bytes && !self.scan.over {
            self.refuse_rest_of_line(Fault::TooLong);
        }
    }

    /// A quote is the first byte of a field.
    #[inline]
    fn open_quote(&mut self, at: usize) {
        if at >= self.form.max_bytes && !self.scan.over {
            return self.refuse_rest_of_line(Fault::TooLong);
        }
        if self.scan.newlines == 0 && !self.scan.over {
            self.scan.opened = (at, self.scan.fields);
        }
        self.scan.quoted = true;
        self.scan.state = State::InQuotes;
    }

    /// A CR outside quotes ends no line.
    #[cold]
    fn stray_cr(&mut self, at: usize) {
        if at >= self.form.max_bytes && !self.scan.over {
            self.refuse_rest_of_line(Fault::TooLong);
        } else {
            self.scan.fault.get_or_insert(Fault::LineEnd { at, found: "a lone CR" });
        }
    }

    /// The record is refused, and ends with this line. The first fault that was met is the one that is told.
    #[cold]
    fn refuse_rest_of_line(&mut self, fault: Fault) {
        self.scan.fault.get_or_insert(fault);
        self.scan.state = State::ToLineEnd;
    }

    /// A line ends in quotes, with the byte at `at`.
    fn newline_in_quotes<'i>(&mut self, bytes: &'i [u8], at: usize) -> Option<Step<'i>> {
        if at >= self.form.max_bytes
            && let Some(step) = self.over_limit(bytes, self.form.max_bytes, Window::Cut)
        {
            return Some(step);
        }
        let at = at + 1;
        self.scan.newlines += 1;
        if self.scan.newlines == 1 {
            self.scan.second_line = at;
        }
        if self.form.multiline == Multiline::Refused {
            let reason = self.unclosed_quote("still open at the end of the line");
            return Some(self.refuse_lines(bytes, at, 1, reason));
        }
        if self.scan.newlines >= self.form.max_lines {
            self.over_limit(bytes, at, Window::Cut)
        } else {
            None
        }
    }

    /// A limit was passed in quotes. If lines of the window look like records, the quote was never closed; if not, this is a long
    /// record: it goes on until the quote is closed.
    #[cold]
    fn over_limit<'i>(&mut self, bytes: &'i [u8], window: usize, end: Window) -> Option<Step<'i>> {
        if self.scan.over {
            return None;
        }
        let step = self.recover(&bytes[..window], end);
        if step.is_none() {
            self.scan.over = true;
            self.scan.fault.get_or_insert(Fault::TooLong);
        }
        step
    }

    /// Refuses the lines before the first one from which on records are as expected, if there is one.
    fn recover<'i>(&mut self, window: &'i [u8], end: Window) -> Option<Step<'i>> {
        if self.scan.newlines == 0 {
            return None;
        }
        let resume = self.recovery.find(window, self.scan.second_line, self.form.fields, end)?;
        let reason = self.unclosed_quote("the lines after it are records");
        Some(self.refuse_lines(window, resume.at, resume.lines, reason))
    }

    /// Text follows a closing quote.
    #[cold]
    fn text_after_quote<'i>(&mut self, bytes: &'i [u8]) -> Option<Step<'i>> {
        let at = self.scan.field_start;
        if self.scan.over {
            // In a record that is over the limit, only a quote before a delimiter or a line end is believed.
            self.scan.state = State::InQuotes;
        } else if self.scan.newlines > 0 {
            let (opened, field) = self.scan.opened;
            let reason = self
                .reason(field, "text_after_quote", opened as u64)
                .detail("quoted field goes on over more lines and has text after its closing quote: unclosed quote?");
            return Some(self.refuse_lines(bytes, self.scan.second_line, 1, reason));
        } else if self.form.quotes == Quotes::Lenient {
            self.scan.glued = true;
            self.scan.state = State::Unquoted;
        } else {
            self.refuse_rest_of_line(Fault::TextAfterQuote { at, field: self.scan.fields });
        }
        None
    }

    /// All bytes at hand were looked at, or all but a CR that cannot be judged yet.
    #[cold]
    fn out_of_bytes<'i>(&mut self, bytes: &'i [u8], at: usize, input: Input) -> Step<'i> {
        if self.scan.state == State::AfterQuote
            && at > self.scan.field_start
            && let Some(step) = self.text_after_quote(bytes)
        {
            return step;
        }
        let max = self.form.max_bytes;
        if self.scan.state == State::InQuotes
            && at > max
            && let Some(step) = self.over_limit(bytes, max, Window::Cut)
        {
            return step;
        }
        if input == Input::Ended {
            return self.end_of_input(bytes);
        }
        if at > max && !self.scan.over {
            self.refuse_rest_of_line(Fault::TooLong);
            self.scan.over = true;
        }
        // With the longest line end behind it, a record of just the limit is not over it, and is kept whole.
        if !self.scan.over || (self.scan.dropped == 0 && at <= max + LineEnd::CrLf.as_bytes().len())
        {
            return Step::More;
        }
        // A line end is no content if the record ends with it.
        let line_end = bytes[..at]
            .iter()
            .rev()
            .take(2)
            .take_while(|byte| matches!(byte, b'\r' | b'\n'))
            .count();
        let len = at - line_end;
        if len == 0 {
            return Step::More;
        }
        self.marks.advance(len);
        self.scan.field_start = self.scan.field_start.wrapping_sub(len);
        self.scan.dropped += len as u64;
        Step::Skip { len }
    }

    /// What the CR at `at` is depends on the byte after it.
    #[cold]
    fn put_back<'i>(&mut self, bytes: &'i [u8], at: usize) -> Step<'i> {
        self.marks.put_back(at);
        self.out_of_bytes(bytes, at, Input::Open)
    }

    /// The input ends with `bytes`.
    fn end_of_input<'i>(&mut self, bytes: &'i [u8]) -> Step<'i> {
        let scan = &self.scan;
        match scan.state {
            State::Unquoted if bytes.is_empty() && scan.fields == 0 && scan.dropped == 0 => {
                Step::End
            }
            State::InQuotes => {
                if let Some(step) = self.over_limit(bytes, bytes.len(), Window::Complete) {
                    return step;
                }
                let ends_line = bytes.last() == Some(&self.form.newline);
                let lines = self.scan.newlines + u64::from(!ends_line);
                let reason = self.unclosed_quote("still open at the end of the input");
                self.refuse_lines(bytes, bytes.len(), lines, reason)
            }
            _ => self.end_record(bytes, bytes.len(), bytes.len(), self.form.line_end),
        }
    }

    /// A line ends before `content`, outside quotes, and with it the record.
    #[inline]
    fn end_record<'i>(
        &mut self,
        bytes: &'i [u8],
        content: usize,
        next: usize,
        found: LineEnd,
    ) -> Step<'i> {
        if let Some(end) = self.ends.get_mut(self.scan.fields) {
            *end = content as u32;
        }
        let sound = content > 0
            && self.scan.fault.is_none()
            && found == self.form.line_end
            && content <= self.form.max_bytes
            && self.scan.fields + 1 == self.form.fields
            && bytes[0] != BOM[0];
        if !sound {
            return self.end_unsound(bytes, content, next, found);
        }
        let line = &bytes[..content];
        let Ok(text) = simdutf8::basic::from_utf8(line) else {
            return self.end_unsound(bytes, content, next, found);
        };
        if self.scan.nul || *line == *self.header.line() || !self.ends_as_declared(content) {
            return self.end_unsound(bytes, content, next, found);
        }
        let form = match (self.scan.glued, self.scan.quoted) {
            (true, _) => ValueForm::Repaired,
            (false, true) => ValueForm::Quoted,
            (false, false) => ValueForm::Plain,
        };
        let lines = self.scan.newlines + 1;
        self.begin_next(next);
        Step::Record { text, len: next, lines, form }
    }

    /// The record takes `len` bytes; the next one begins behind them.
    #[inline]
    fn begin_next(&mut self, len: usize) {
        self.marks.advance(len);
        self.scan = Scan::default();
    }

    /// Whether the last of the fields is the empty one behind a trailing delimiter, if there should be one.
    fn ends_as_declared(&self, content: usize) -> bool {
        match self.form.trailing_delimiter {
            TrailingDelimiter::Absent => true,
            TrailingDelimiter::Present => match *self.ends {
                [.., last, _] => last as usize + 1 == content,
                _ => false,
            },
        }
    }
}
