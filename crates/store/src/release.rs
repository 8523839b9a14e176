//! Which release this is, and where its functions are.
//!
//! The texts under `sql/` and `functions/` name the schema as it is written here: a test compares them, and `sed` brings
//! them to the next release. A release gets the next number when a function of the one before has changed.

/// The schema of the functions that only processes of this release call.
pub const SCHEMA: &str = "forebay_r1";
