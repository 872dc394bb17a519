//! Whole pipelines and the real program under demand, failure and restart.
//!
//! The program is the release build, as an operator runs it: `tests/run` builds it first, and [`program`] builds it if it is
//! missing. Tests whose names begin with `long` do their long form when `GEGENDRUCK_LONG` is set (`tests/run --long`), and a
//! short one otherwise.

#[cfg(test)]
mod claims;
#[cfg(test)]
mod program;

#[cfg(test)]
mod attempts;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod outputs;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod rejects;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod summary;
#[cfg(test)]
mod usage;
