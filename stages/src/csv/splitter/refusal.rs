//! Why a record is refused, and which bytes that costs.

use std::borrow::Cow;

use gegendruck::Reason;
use memchr::memchr;

use super::{Fault, Splitter, Step, ValueForm};
use crate::csv::dialect::{LineEnd, Nul, TrailingDelimiter};
use crate::csv::opening::BOM;
use crate::csv::recovery::Window;

/// What a record looks like whose file was put together from several.
const CONCATENATED: &str = "concatenated file?";

impl Splitter {
    /// Ends a record that is blank, or may have to be refused. The reasons are asked for in a fixed order.
    #[cold]
    pub(super) fn end_unsound<'i>(
        &mut self,
        bytes: &'i [u8],
        content: usize,
        next: usize,
        found: LineEnd,
    ) -> Step<'i> {
        let line = &bytes[..content];
        if content == 0 && self.scan.dropped == 0 {
            self.begin_next(next);
            return Step::Blank { len: next };
        }
        let right_fields =
            self.scan.fields + 1 == self.form.fields && self.ends_as_declared(content);
        let reason = if let Some(reason) = self.fault_of_form(content, found) {
            reason
        } else if line.starts_with(BOM) {
            Reason::record("stray_bom").at_byte(0).detail(CONCATENATED)
        } else {
            if !right_fields && let Some(step) = self.recover(&bytes[..next], Window::Complete) {
                return step;
            }
            match self.fault_of_text(line) {
                Some(reason) => reason,
                None if !right_fields => self.field_count(content),
                None if *line == *self.header.line() => {
                    Reason::record("repeated_header").detail(CONCATENATED)
                }
                None => {
                    let text = std::str::from_utf8(line).expect("text without a fault is UTF-8");
                    let lines = self.scan.newlines + 1;
                    self.begin_next(next);
                    return Step::Record { text, len: next, lines, form: ValueForm::Repaired };
                }
            }
        };
        let content_len = self.scan.dropped + content as u64;
        let lines = self.scan.newlines + 1;
        self.begin_next(next);
        Step::Refused { len: next, content_len, lines, reason: Box::new(reason) }
    }

    fn fault_of_form(&self, content: usize, found: LineEnd) -> Option<Reason> {
        let len = self.scan.dropped + content as u64;
        let max = self.form.max_bytes;
        let fault = match self.scan.fault {
            Some(fault) => fault,
            None if len > max as u64 => Fault::TooLong,
            None if found != self.form.line_end => {
                Fault::LineEnd { at: content, found: found.name() }
            }
            None => return None,
        };
        Some(match fault {
            Fault::TooLong if len > max as u64 => Reason::record("record_too_long")
                .detail(format!("found {len} bytes, at most {max} allowed")),
            Fault::TooLong => {
                let (lines, max) = (self.scan.newlines + 1, self.form.max_lines);
                Reason::record("record_too_long")
                    .detail(format!("found {lines} lines, at most {max} allowed"))
            }
            Fault::TextAfterQuote { at, field } => {
                self.reason(field, "text_after_quote", at as u64)
            }
            Fault::LineEnd { at, found } => Reason::record("line_end")
                .at_byte(at as u64)
                .detail(format!("found {found}, expected {}", self.form.line_end)),
        })
    }

    fn fault_of_text(&self, line: &[u8]) -> Option<Reason> {
        if self.form.nul == Nul::Reject
            && let Some(at) = memchr(b'\0', line)
        {
            return Some(self.reason(self.field_at(at), "nul_byte", at as u64));
        }
        let at = std::str::from_utf8(line).err()?.valid_up_to();
        let bad = line[at];
        let reason = self.reason(self.field_at(at), "invalid_utf8", at as u64);
        Some(reason.detail(format!("byte {bad:#04x} is not UTF-8 here")))
    }

    fn field_count(&self, content: usize) -> Reason {
        let (found, expected) = (self.scan.fields + 1, self.header.names().len());
        let one_empty_more = found == expected + 1
            && self.ends.last().is_some_and(|&end| end as usize + 1 == content);
        Reason::record("field_count").detail(match self.form.trailing_delimiter {
            TrailingDelimiter::Present => {
                format!("found {}, expected {expected} and a trailing delimiter", fields(found))
            }
            TrailingDelimiter::Absent if one_empty_more => {
                format!(
                    "found {}, expected {expected}; the last one is empty: trailing delimiter?",
                    fields(found)
                )
            }
            TrailingDelimiter::Absent => format!("found {}, expected {expected}", fields(found)),
        })
    }

    /// Which field the byte at `at` of a record that has ended is in.
    fn field_at(&self, at: usize) -> usize {
        let known = &self.ends[..self.ends.len().min(self.scan.fields + 1)];
        known.partition_point(|&end| (end as usize) < at)
    }

    /// A reason with the name of the column, if the field has one.
    pub(super) fn reason(&self, field: usize, kind: &'static str, at: u64) -> Reason {
        let column = self.header.names().get(field).map(|name| Cow::Owned(name.to_string()));
        Reason { column, ..Reason::record(kind).at_byte(at) }
    }

    pub(super) fn unclosed_quote(&self, detail: &'static str) -> Reason {
        let (at, field) = self.scan.opened;
        self.reason(field, "unclosed_quote", at as u64).detail(detail)
    }

    /// Refuses the record's first `lines` lines, `len` bytes. What follows is read afresh.
    pub(super) fn refuse_lines<'i>(
        &mut self,
        bytes: &'i [u8],
        len: usize,
        lines: u64,
        reason: Reason,
    ) -> Step<'i> {
        let scan = std::mem::take(&mut self.scan);
        self.marks.restart();
        let content_len = scan.dropped + self.form.line_end.strip(&bytes[..len]).len() as u64;
        Step::Refused { len, content_len, lines, reason: Box::new(reason) }
    }
}

fn fields(count: usize) -> String {
    if count == 1 { "1 field".to_owned() } else { format!("{count} fields") }
}
