//! Where reading goes on after a quote that was never closed.
//!
//! ```text
//! 7,2026-01-03,"text            <- opens a quote; the next one is 1,000 lines or 1 MiB away, or nowhere
//! 8,2026-01-04,text             <- from here three records in a row have three fields: reading goes on here
//! 9,2026-01-05,text
//! 10,2026-01-06,text
//! ```
//!
//! A line is scanned twice: as one that begins a record, and as one that begins inside a quoted field. From the last line up,
//! these two answers tell for every line where the record that begins there ends and how many fields it has.
//!
//! - The time is linear in the window, whatever it holds.
//! - The answer depends on the window only, which the caller cuts at a place that does not depend on its buffers.

use memchr::memchr;

use super::dialect::{LineEnd, Quotes};

/// How many records in a row must look right, unless the window has fewer lines, or the input ends behind them.
const EVIDENCE: u32 = 3;

/// Finds the line on which a record begins that an unclosed quote would swallow. Keeps its memory from one use to the next.
#[derive(Debug)]
pub(crate) struct Recovery {
    delimiter: u8,
    quote: Option<u8>,
    quotes: Quotes,
    line_end: LineEnd,
    starts: Vec<usize>,
    lines: Vec<Line>,
}

/// A place at which reading can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    /// Its offset in the window.
    pub(crate) at: usize,
    /// How many lines of the window lie before it.
    pub(crate) lines: u64,
}

/// Whether the last line of a window, if it has no line end, is a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// It may go on behind the window: it is no evidence.
    Cut,
    /// It ends with the window, and so does the last record.
    Complete,
}

/// What is known of a line and of what follows it.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// The rest of a record whose quoted field is open where the line begins.
    in_quotes: Option<Rest>,
    /// How many records with the right number of fields follow each other from here, up to [`EVIDENCE`].
    run: u32,
    /// Whether that run ends at the end of a complete window.
    reaches_end: bool,
}

/// The rest of a record.
#[derive(Clone, Copy, Debug)]
struct Rest {
    fields: usize,
    /// Index of the line after it.
    next: usize,
}

impl Recovery {
    pub(crate) fn new(
        delimiter: u8,
        quote: Option<u8>,
        quotes: Quotes,
        line_end: LineEnd,
    ) -> Recovery {
        Recovery { delimiter, quote, quotes, line_end, starts: Vec::new(), lines: Vec::new() }
    }

    /// The first line after that at `second_line` or at it, from which on records have `fields` fields.
    pub(crate) fn find(
        &mut self,
        window: &[u8],
        second_line: usize,
        fields: usize,
        end: Window,
    ) -> Option<Resume> {
        let end_of_lines = self.find_lines(window, second_line, end);
        let count = self.starts.len();
        let needed = EVIDENCE.min(count as u32);
        self.lines.clear();
        self.lines.resize(count + 1, Line::default());
        self.lines[count].reaches_end = end == Window::Complete;
        let mut found = None;
        for index in (0..count).rev() {
            let line_end = self.starts.get(index + 1).copied().unwrap_or(end_of_lines);
            let line = self.line_end.strip(&window[self.starts[index]..line_end]);
            let judged = self.judge(line, index, fields);
            let enough = judged.run >= needed || (judged.reaches_end && judged.run > 0);
            self.lines[index] = judged;
            if enough {
                found = Some(Resume { at: self.starts[index], lines: 1 + index as u64 });
            }
        }
        found
    }

    /// Notes where the lines from `second_line` on begin; returns where the last one ends.
    fn find_lines(&mut self, window: &[u8], second_line: usize, end: Window) -> usize {
        self.starts.clear();
        let mut start = second_line;
        for at in memchr::memchr_iter(self.line_end.last_byte(), &window[second_line..]) {
            self.starts.push(start);
            start = second_line + at + 1;
        }
        if end == Window::Complete && start < window.len() {
            self.starts.push(start);
            start = window.len();
        }
        start
    }

    /// Judges a line by those after it, which have been judged.
    fn judge(&self, line: &[u8], index: usize, fields: usize) -> Line {
        let next = self.lines[index + 1];
        let in_quotes = self.rest(line, State::InQuotes, index);
        if line.is_empty() {
            return Line { in_quotes, ..next };
        }
        match self.rest(line, State::FieldStart, index) {
            Some(record) if record.fields == fields => {
                let after = self.lines[record.next];
                Line { in_quotes, run: EVIDENCE.min(after.run + 1), reaches_end: after.reaches_end }
            }
            _ => Line { in_quotes, run: 0, reaches_end: false },
        }
    }

    /// How the record goes on from the start of line `index` to its end, if it has one.
    fn rest(&self, line: &[u8], state: State, index: usize) -> Option<Rest> {
        match self.scan(line, state)? {
            (fields, State::FieldStart) => Some(Rest { fields, next: index + 1 }),
            (fields, State::InQuotes) => {
                let rest = self.lines[index + 1].in_quotes?;
                Some(Rest { fields: fields - 1 + rest.fields, next: rest.next })
            }
        }
    }

    /// How many fields a line has, counting an open one, and the state at its end; `None` if text follows a closing quote.
    fn scan(&self, line: &[u8], mut state: State) -> Option<(usize, State)> {
        let mut rest = line;
        let mut fields = 1;
        loop {
            if state == State::FieldStart {
                if self.quote.is_some() && rest.first().copied() == self.quote {
                    rest = &rest[1..];
                } else {
                    match memchr(self.delimiter, rest) {
                        Some(at) => rest = &rest[at + 1..],
                        None => return Some((fields, State::FieldStart)),
                    }
                    fields += 1;
                    continue;
                }
            }
            // In quotes.
            let quote = self.quote?;
            let Some(at) = memchr(quote, rest) else { return Some((fields, State::InQuotes)) };
            rest = &rest[at + 1..];
            state = match rest.first() {
                None => return Some((fields, State::FieldStart)),
                Some(&next) if next == quote => State::InQuotes,
                Some(&next) if next == self.delimiter => {
                    fields += 1;
                    State::FieldStart
                }
                Some(_) if self.quotes == Quotes::Lenient => match memchr(self.delimiter, rest) {
                    Some(at) => {
                        rest = &rest[at..];
                        fields += 1;
                        State::FieldStart
                    }
                    None => return Some((fields, State::FieldStart)),
                },
                Some(_) => return None,
            };
            rest = &rest[1..];
        }
    }
}

/// Where a line begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    FieldStart,
    InQuotes,
}
