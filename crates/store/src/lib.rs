//! An in-memory multi-version store that follows a log row by row.
