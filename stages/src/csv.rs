//! CSV input.
mod fields;
pub use fields::{Fields, FromFields};
