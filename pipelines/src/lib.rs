//! Imports defined on gegendruck, and everything behind `nightly-import` but the command line's first line.
//!
//! ```text
//! cli --> imports (claims, contracts) --> run --> runtime, CSV source, SQL sink, ledger
//!   |                                      |
//!   +--> plan, validate, status, rejects   +--> progress, signals, summary
//! ```

pub mod claims;
pub mod cli;
pub mod contracts;
pub mod dialect;
pub mod exit;
pub mod generate;
pub mod imports;
pub mod plan;
pub mod poison;
pub mod program;
pub mod progress;
pub mod rejects;
pub mod run;
pub mod signals;
pub mod status;
pub mod summary;
pub mod validate;

/// Prints to standard output. One that nobody reads any more does no harm.
pub fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}
