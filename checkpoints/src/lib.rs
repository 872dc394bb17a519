//! Progress, rejects and reports, kept in the target database.
