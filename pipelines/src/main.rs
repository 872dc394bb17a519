//! `nightly-import`.
fn main() {}
