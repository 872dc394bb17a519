//! Imports defined on gegendruck.
