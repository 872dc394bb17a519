//! Faults of single columns on their way to a reject.

use std::error::Error;

use gegendruck::Reason;

/// Why a column cannot be taken as it is written. Its message holds no field value.
pub trait Fault: Error {
    /// The kind by which rejects are counted, in `snake_case`. Operators filter on it: it never changes.
    fn kind(&self) -> &'static str;

    /// The reason for a reject: this fault, in that column.
    fn reason(&self, column: &'static str) -> Reason {
        Reason::column(column, self.kind()).detail(self.to_string())
    }
}

/// A required column is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no value, expected one")]
pub struct Missing;

impl Fault for Missing {
    fn kind(&self) -> &'static str {
        "missing"
    }
}

/// The faults of one record, in the order in which they were met.
///
/// A rule set walks the columns in order and goes on after a fault; so the first fault is the reject's reason and all of them
/// are what an operator asks `validate` for. A record without a fault costs no allocation.
///
/// ```
/// use gegendruck_stages::value::{Faults, NumberFormat};
/// let mut faults = Faults::default();
/// let amount = faults.check("amount", NumberFormat::POINT.decimal("1.239", 12, 2));
/// assert_eq!(amount, None);
/// assert_eq!(faults.into_vec()[0].to_string(), "amount too_many_decimals: found 3 decimals, expected at most 2");
/// ```
#[derive(Debug, Default)]
pub struct Faults(Vec<Reason>);

impl Faults {
    /// The value, or `None` and one more fault of that column.
    pub fn check<T, F: Fault>(&mut self, column: &'static str, result: Result<T, F>) -> Option<T> {
        result.map_err(|fault| self.push(column, fault)).ok()
    }

    /// One more fault of that column.
    pub fn push(&mut self, column: &'static str, fault: impl Fault) {
        self.0.push(fault.reason(column));
    }

    /// True if no fault was met.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fault that was met first.
    pub fn into_first(self) -> Option<Reason> {
        self.0.into_iter().next()
    }

    /// All faults, in the order in which they were met.
    pub fn into_vec(self) -> Vec<Reason> {
        self.0
    }
}
