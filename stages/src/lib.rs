//! Sources, value types and sinks for gegendruck pipelines.
pub mod csv;
pub mod sql;
pub mod value;
