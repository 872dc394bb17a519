//! CSV: from the bytes of a file to the values of its records.
//!
//! ```text
//!  first 64 KiB -> [Opening] line end, BOM, header -> Columns (which field is which column)
//!                      |                                 |
//!  bytes in blocks -> [Cutter] -> Record: text, ends -> [Decoder] -> Fields -> a row
//!                    buffer,   -> Refused: bytes, reason
//!                    position  -> Blank
//!                      |
//!                  [Splitter] where a record ends, and each of its fields
//! ```
//!
//! All of this is plain code without a runtime and without I/O; a source fills the cutter and hands on what it cuts.
//!
//! - **Nothing is lost or changed silently.** What is cut adds up to the input, byte for byte. A record that cannot be taken exactly
//!   as it is written is refused, with its place, the reason and its bytes.
//! - **A bad record never harms its neighbours.** After a quote that nothing closes, reading goes on at the next line that begins
//!   records of the right shape.
//! - **The result does not depend on blocks.** Nor on where reading began: from any record's position the rest is read the same.
//! - **Memory is bounded** by the limit for one record and one block, whatever the input is.
//!
//! The rules are RFC 4180, read strictly: a quote means something only as the first byte of a field, one kind of line end ends
//! records, every record has as many fields as the header, and all is UTF-8 without NULs. A blank line is one with nothing before its
//! line end. Absent on purpose: guessing delimiters, comments, escapes other than a doubled quote, trimming.

mod cutter;
mod decoder;
mod dialect;
mod fields;
mod header;
mod marks;
mod opening;
mod reading;
mod recovery;
mod source;
mod splitter;
#[cfg(test)]
mod tests;

pub use cutter::{CutRecord, CutRefused, Cutter, EXCERPT, Item};
pub use decoder::{Decoder, RawRecord};
pub use dialect::{
    Dialect, DialectBuilder, DialectError, HeaderLine, LineEnd, Multiline, Nul, Quotes,
    TrailingDelimiter,
};
pub use fields::{Fields, FromFields};
pub use header::{Columns, ColumnsError, Header};
pub use opening::{OpenError, Opening};
pub use source::{CsvError, CsvInput, CsvSource, Empty, Start};
pub use splitter::{Input, Splitter, Step, ValueForm};
