//! The runtime, seen from outside: what it hands out, to whom, in which order, and what becomes of failures.

mod accounting;
mod completeness;
mod control;
mod demand;
mod failures;
mod refusals;
mod story;
mod streams;
mod support;
mod truth;
mod types;
