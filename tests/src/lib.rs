//! Whole pipelines under demand, failure and restart: see `all.rs`.
