//! Counts and sizes that cannot pass for each other.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A number of source records.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Records(pub u64);

/// A number of source bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n * 1024 * 1024)
    }
}

impl fmt::Display for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} record{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 10 << 20 || (n > 0 && n.is_multiple_of(1 << 20)) => {
                write!(f, "{} MiB", n >> 20)
            }
            n if n >= 10 << 10 => write!(f, "{} KiB", n >> 10),
            n => write!(f, "{n} bytes"),
        }
    }
}

/// Source records and source bytes: the two units in which demand is counted, side by side.
///
/// A running total on the axis of a run ("so much was handed out"), or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Amount {
    /// Source records.
    pub records: u64,
    /// Source bytes.
    pub bytes: u64,
}

impl Amount {
    /// Nothing.
    pub const ZERO: Amount = Amount { records: 0, bytes: 0 };

    /// So many records and bytes.
    pub const fn new(records: Records, bytes: Bytes) -> Amount {
        Amount { records: records.0, bytes: bytes.0 }
    }

    /// True if neither unit of `self` is above that of `other`.
    pub fn fits(self, other: Amount) -> bool {
        self.records <= other.records && self.bytes <= other.bytes
    }

    /// The smaller of each unit.
    pub fn min(self, other: Amount) -> Amount {
        Amount { records: self.records.min(other.records), bytes: self.bytes.min(other.bytes) }
    }

    /// The larger of each unit.
    pub fn max(self, other: Amount) -> Amount {
        Amount { records: self.records.max(other.records), bytes: self.bytes.max(other.bytes) }
    }

    /// `self - other` in each unit, zero where `other` is larger.
    pub fn saturating_sub(self, other: Amount) -> Amount {
        Amount {
            records: self.records.saturating_sub(other.records),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl Add for Amount {
    type Output = Amount;
    fn add(self, other: Amount) -> Amount {
        Amount { records: self.records + other.records, bytes: self.bytes + other.bytes }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        *self = *self + other;
    }
}

impl Sub for Amount {
    type Output = Amount;
    fn sub(self, other: Amount) -> Amount {
        Amount { records: self.records - other.records, bytes: self.bytes - other.bytes }
    }
}
