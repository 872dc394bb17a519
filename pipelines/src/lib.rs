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
pub mod files;
pub mod generate;
pub mod imports;
pub mod outputs;
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

/// Standard output. Once nobody reads it any more, what is written is dropped.
#[derive(Debug, Default)]
pub struct Output {
    closed: bool,
}

impl std::io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.closed {
            return Ok(bytes.len());
        }
        match std::io::stdout().lock().write(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(bytes.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.closed { Ok(()) } else { std::io::stdout().lock().flush() }
    }
}

/// Prints to standard output. One that nobody reads any more does no harm.
pub fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
