//! Which release this is, where its functions are, and by which rules it claims.
//!
//! The texts under `sql/` and `functions/` name the schema as it is written here: a test compares them, and `sed`
//! brings them to the next release. A release gets the next number when a function of the one before has changed.
//!
//! Invariants
//! - A release's functions are dropped a day after the last heartbeat of a process that uses them, and not before.
//! - A process that finds its own missing puts them in place again and registers anew.
//!
//! Not here: putting functions in place (`migrate`).

#[cfg(feature = "test-release")]
mod played;

use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::sql::sql;
use crate::{Error, Store};

#[cfg(feature = "test-release")]
pub use played::play;
#[cfg(feature = "test-release")]
pub(crate) use played::{is_next, number, protocol, text};

/// This release.
pub const NUMBER: i32 = 1;

/// The schema of the functions that only processes of this release call.
pub const SCHEMA: &str = "forebay_r1";

/// The number of the claim's rules: locks, stages, and what is counted. A claim with another number than the database's
/// is refused.
pub const PROTOCOL: i32 = 1;

/// The release that this process is of.
#[cfg(not(feature = "test-release"))]
pub(crate) const fn number() -> i32 {
    NUMBER
}

/// The protocol that this process claims by.
#[cfg(not(feature = "test-release"))]
pub(crate) const fn protocol() -> i32 {
    PROTOCOL
}

/// A text that names the functions of this release.
#[cfg(not(feature = "test-release"))]
pub(crate) const fn text(text: &'static str) -> &'static str {
    text
}

/// For how long nobody must have used the functions of a release before they are dropped.
const UNUSED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Does this error say that the functions of this release are gone?
pub(crate) fn is_missing(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION))
}

impl Store {
    /// Drops the functions of older releases that nobody uses; answers which.
    pub async fn drop_unused_releases(&self) -> Result<Vec<i32>, Error> {
        let rows = self.query(sql!("release/drop_unused"), &[&number(), &UNUSED_AFTER.as_secs_f64()]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}
