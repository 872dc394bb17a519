//! Whole pipelines under demand, failure and restart.
