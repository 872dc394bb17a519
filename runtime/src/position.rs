//! Where a record lies in its source.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a record begins: input, byte, record number and line, so that a gap can be numbered again.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// Index of the input among the inputs of the run, from 0.
    pub input: u32,
    /// First byte of the record in its input, from 0; a byte order mark and the header count.
    pub byte: u64,
    /// Number of the record in its input, from 1; header and blank lines do not count.
    pub record: u64,
    /// Line on which the record begins, from 1; every line counts.
    pub line: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} (line {}, byte {})", self.record, self.line, self.byte)
    }
}

/// A half-open range of positions in one input. Adjacent spans share a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The first record's position.
    pub start: Position,
    /// The position of the record that follows the last one (there need not be one).
    pub end: Position,
}

impl Span {
    /// How many records the span covers.
    pub fn records(&self) -> u64 {
        self.end.record - self.start.record
    }

    /// How many source bytes the span covers, blank lines included.
    pub fn bytes(&self) -> u64 {
        self.end.byte - self.start.byte
    }
}
