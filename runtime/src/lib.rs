//! Gegendruck: a demand-driven pipeline runtime for batch import.
mod amount;
mod position;
mod reject;

pub use amount::{Amount, Bytes, Records};
pub use position::{Position, Span};
pub use reject::{Reason, Reject};
