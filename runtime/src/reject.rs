//! Dead letters: records that the run could not take, and why.

use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::Position;

/// Why a record was refused. Holds no field value: what was wrong, and in which column.
///
/// ```
/// use gegendruck::Reason;
/// let reason = Reason::column("amount", "too_many_decimals").detail("3 decimals, 2 allowed");
/// assert_eq!(reason.to_string(), "amount too_many_decimals: 3 decimals, 2 allowed");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reason {
    /// The kind of fault in `snake_case`: the key by which rejects are counted.
    pub kind: Cow<'static, str>,
    /// The column at fault, if it is one column's.
    pub column: Option<Cow<'static, str>>,
    /// What was found and what was expected, without field values; empty if `kind` says it all.
    pub detail: Cow<'static, str>,
    /// Offset of the fault in bytes from the start of the record, if it has a place.
    pub byte: Option<u64>,
}

impl Reason {
    /// A fault of the record as a whole.
    pub fn record(kind: impl Into<Cow<'static, str>>) -> Reason {
        Reason { kind: kind.into(), column: None, detail: Cow::Borrowed(""), byte: None }
    }

    /// A fault of one column.
    pub fn column(
        column: impl Into<Cow<'static, str>>,
        kind: impl Into<Cow<'static, str>>,
    ) -> Reason {
        Reason { column: Some(column.into()), ..Reason::record(kind) }
    }

    /// Says what was found and expected. Must not hold a field's value.
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Reason {
        self.detail = detail.into();
        self
    }

    /// Says where in the record the fault lies, in bytes from the record's start.
    pub fn at_byte(mut self, byte: u64) -> Reason {
        self.byte = Some(byte);
        self
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(column) = &self.column {
            write!(f, "{column} ")?;
        }
        f.write_str(&self.kind)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// A dead letter: the source bytes of a record, where they were, which stage refused it, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Where the record begins.
    pub at: Position,
    /// Length of the record in source bytes. `bytes` is shorter only if the record was over the limit for one.
    pub len: u64,
    /// The untouched source bytes, without the line end.
    pub bytes: Box<[u8]>,
    /// Name of the stage that refused it.
    pub stage: Cow<'static, str>,
    /// Why.
    pub reason: Reason,
    /// How many times it was tried (1 where nothing is retried).
    pub attempts: u32,
    /// When it was first tried.
    pub first: SystemTime,
    /// When it was last tried.
    pub last: SystemTime,
}
