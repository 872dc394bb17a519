//! Values, typed once: what a field's text means, and how the target stores it.
//!
//! ```text
//!             Formats: how this file writes numbers, dates, times, "absent"
//!                 |
//!  field's text --+--> Decimal | Date | Timestamp | Currency --> Row::values --> Value --> target
//!                 |                                                 ^
//!                 +--> a fault --> Faults --> Reason                +-- Table: names, types, key
//! ```
//!
//! - A text is taken exactly as it is written or not at all: nothing is rounded, trimmed, guessed or repaired.
//! - What a text means depends on the declared format and on nothing else: not on the rows before it, the clock or the locale.
//! - Equal values have equal texts in the target: dates and times are stored in one canonical ISO form.
//! - No fault holds a field's value, so a message can be logged.
//!
//! Floating point is absent on purpose.

mod currency;
mod date;
mod decimal;
mod fault;
mod formats;
mod packed;
mod table;
mod timestamp;

pub use currency::{Currency, CurrencyFault};
pub use date::{Date, DateFault, DateFormatError, DateFormats};
pub use decimal::{Decimal, NumberFault, NumberFormat, NumberFormatError};
pub use fault::{Fault, Faults, Missing};
pub use formats::Formats;
pub use packed::Packed;
pub use table::{Column, ColumnType, Row, Table, Value};
pub use timestamp::{Dst, Timestamp, TimestampFault, TimestampFormat};
