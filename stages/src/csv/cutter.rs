//! The cutter: a splitter with a buffer and a position.
//!
//! ```text
//!                  +-------------------- buffer --------------------+
//!   read(2) --> spare(n)                                            |
//!               filled(n)  [ cut | record under way | not looked at | spare ]
//!                  +-----------^--------------------------------------+
//!                              position(): byte, record, line
//!   next() --> Record | Blank | Refused | Skipped | None: fill it, or say that the input has ended
//! ```
//!
//! - Its buffer has at most the limit for one record and what was filled in at once, rounded up, whatever the input is.
//! - The bytes of its items, one behind the other, are the input from where it began.
//! - Each record gets the position that a cutter would give it that began at the input's first record.

use gegendruck::{Position, Reason};

use super::decoder::RawRecord;
use super::opening::Opening;
use super::splitter::{Input, Splitter, Step, ValueForm};

/// Most bytes that are kept of a record that is over the limit for one.
pub const EXCERPT: usize = 4 * 1024;

/// The buffer grows by so many bytes, so that small reads do not copy a long record again and again.
const GRAIN: usize = 64 * 1024;

/// Cuts what is filled into it.
///
/// ```
/// use gegendruck_stages::csv::{Cutter, Dialect, Input, Item, Opening};
///
/// let bytes = b"id,amount\n1,5.00\n2\n3,7.00\n";
/// let opening = Opening::read(&Dialect::default(), &[], bytes, Input::Ended)?;
/// let mut cutter = Cutter::new(&opening, opening.start());
/// cutter.feed(&bytes[opening.start().byte as usize..]);
/// cutter.end();
///
/// let mut ids = Vec::new();
/// while let Some(item) = cutter.next() {
///     match item {
///         Item::Record(cut) => ids.push(cut.record.field(0).to_owned()),
///         Item::Refused(refused) => assert_eq!(refused.at.line, 3),
///         Item::Blank(_) | Item::Skipped(_) => {}
///     }
/// }
/// assert_eq!(ids, ["1", "3"]);
/// assert!(cutter.is_done());
/// # Ok::<(), gegendruck_stages::csv::OpenError>(())
/// ```
#[derive(Debug)]
pub struct Cutter {
    splitter: Splitter,
    buffer: Vec<u8>,
    /// First byte in the buffer that is not cut.
    start: usize,
    /// End of the bytes in the buffer that were filled in.
    end: usize,
    input: Input,
    /// Where the record under way begins.
    position: Position,
    /// Bytes of the record under way that were let go.
    skipped: u64,
    /// First bytes of the record under way, once some of it was let go.
    excerpt: Vec<u8>,
    max_record_bytes: u64,
}

/// What was cut. The `raw` bytes of all items, one behind the other, are the input.
#[derive(Debug)]
pub enum Item<'a> {
    /// A record.
    Record(CutRecord<'a>),
    /// A record that cannot be taken as it is written.
    Refused(CutRefused<'a>),
    /// A blank line: its bytes.
    Blank(&'a [u8]),
    /// Bytes of a record that is over the limit for one; a [`Refused`](Item::Refused) will follow.
    Skipped(&'a [u8]),
}

/// A record and where it is.
#[derive(Debug)]
pub struct CutRecord<'a> {
    /// Where it begins.
    pub at: Position,
    /// Its text and fields.
    pub record: RawRecord<'a>,
    /// How many lines it takes.
    pub lines: u64,
    /// Its source bytes, with the line end.
    pub raw: &'a [u8],
}

/// A refused record, where it is and why it was refused.
#[derive(Debug)]
pub struct CutRefused<'a> {
    /// Where it begins.
    pub at: Position,
    /// How long it is in bytes, without the line end.
    pub len: u64,
    /// How many lines it takes.
    pub lines: u64,
    /// Its source bytes without the line end; the first [`EXCERPT`] of them if it is over the limit for one record.
    pub bytes: &'a [u8],
    /// Why it was refused.
    pub reason: Box<Reason>,
    /// Its source bytes with the line end, but those that were skipped before.
    pub raw: &'a [u8],
}

impl Cutter {
    /// Starts at `position`, where a record begins: the opening's start, or where an earlier run stopped.
    pub fn new(opening: &Opening, position: Position) -> Cutter {
        Cutter {
            splitter: Splitter::new(opening),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            input: Input::Open,
            position,
            skipped: 0,
            excerpt: Vec::new(),
            max_record_bytes: opening.dialect().max_record_bytes().0,
        }
    }

    /// Where the first record begins that is not cut yet. While one is being skipped, where that one begins.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Bytes in the buffer that are not cut yet.
    pub fn held(&self) -> usize {
        self.end - self.start
    }

    /// Size of the buffer in bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity() + self.excerpt.capacity()
    }

    /// Whether the input has ended and is cut.
    pub fn is_done(&self) -> bool {
        self.input == Input::Ended && self.held() == 0
    }

    /// Room for at least `len` bytes, to be filled from its start and reported to [`filled`](Cutter::filled).
    ///
    /// Cut first: what is not cut is moved to make room.
    pub fn spare(&mut self, len: usize) -> &mut [u8] {
        if self.buffer.len() - self.end < len && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < len {
            let size = (self.end + len).next_multiple_of(GRAIN);
            self.buffer.reserve_exact(size - self.buffer.len());
            self.buffer.resize(size, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// The first `len` bytes of the room were filled.
    ///
    /// # Panics
    /// If there was not so much room.
    pub fn filled(&mut self, len: usize) {
        assert!(len <= self.buffer.len() - self.end, "more was filled than there was room");
        self.end += len;
    }

    /// Copies `bytes` in.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.spare(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// Says that no bytes follow.
    pub fn end(&mut self) {
        self.input = Input::Ended;
    }

    /// What comes next; `None` if that takes more bytes, or if the input has ended and is cut.
    #[expect(
        clippy::should_implement_trait,
        reason = "items borrow the buffer, which an iterator's cannot"
    )]
    pub fn next(&mut self) -> Option<Item<'_>> {
        let bytes = &self.buffer[self.start..self.end];
        let at = self.position;
        match self.splitter.next(bytes, self.input) {
            Step::Record { text, len, lines, form } => {
                self.start += len;
                self.position = after(at, len as u64, 1, lines);
                let record = RawRecord { text, ends: self.splitter.ends(), form };
                Some(Item::Record(CutRecord { at, record, lines, raw: &bytes[..len] }))
            }
            Step::Blank { len } => {
                self.start += len;
                self.position = after(at, len as u64, 0, 1);
                Some(Item::Blank(&bytes[..len]))
            }
            Step::Refused { len, content_len, lines, reason } => {
                self.start += len;
                let skipped = std::mem::take(&mut self.skipped);
                self.position = after(at, skipped + len as u64, 1, lines);
                let content = &bytes[..(content_len - skipped) as usize];
                let kept = if content_len <= self.max_record_bytes {
                    content
                } else {
                    if skipped == 0 {
                        self.excerpt.clear();
                    }
                    add_up_to(&mut self.excerpt, content, EXCERPT);
                    &self.excerpt
                };
                Some(Item::Refused(CutRefused {
                    at,
                    len: content_len,
                    lines,
                    bytes: kept,
                    reason,
                    raw: &bytes[..len],
                }))
            }
            Step::Skip { len } => {
                self.start += len;
                if self.skipped == 0 {
                    self.excerpt.clear();
                }
                self.skipped += len as u64;
                add_up_to(&mut self.excerpt, &bytes[..len], EXCERPT);
                Some(Item::Skipped(&bytes[..len]))
            }
            Step::More | Step::End => None,
        }
    }
}

/// The position so many bytes, records and lines after `at`.
fn after(at: Position, bytes: u64, records: u64, lines: u64) -> Position {
    Position {
        input: at.input,
        byte: at.byte + bytes,
        record: at.record + records,
        line: at.line + lines,
    }
}

/// Adds bytes until there are `most`.
fn add_up_to(excerpt: &mut Vec<u8>, bytes: &[u8], most: usize) {
    let room = most - excerpt.len();
    excerpt.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

impl CutRecord<'_> {
    /// Whether a value is not what is written.
    pub fn is_repaired(&self) -> bool {
        self.record.form == ValueForm::Repaired
    }
}
