//! Which release this is, where its functions are, and by which rules it claims.
//!
//! The texts under `sql/` and `functions/` name the schema as it is written here: a test compares them, and `sed`
//! brings them to the next release. A release gets the next number when a function of the one before has changed.
//!
//! Invariants
//! - A release's functions are dropped a day after the last heartbeat of a process that uses them, and not before.
//! - A process that finds its own missing puts them in place again and registers anew.
//! - The protocol is raised only while no process of an older release lives, with every shard locked.
//!
//! Not here: putting functions in place (`migrate`).

#[cfg(feature = "test-release")]
mod played;

use std::cmp::Ordering;
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

/// Compares a process's protocol with the database's.
pub(crate) fn compared(ours: i32, theirs: i32) -> Protocol {
    match ours.cmp(&theirs) {
        Ordering::Equal => Protocol::Same,
        Ordering::Greater => Protocol::Ahead { ours, theirs },
        Ordering::Less => Protocol::Behind { ours, theirs },
    }
}

/// Does this error say that the functions of this release are gone?
pub(crate) fn is_missing(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION))
}

/// What a claim is refused with whose protocol is not the database's (functions/claim.sql).
const OTHER_PROTOCOL: &str = "FB001";

/// Was a claim refused because it goes by another protocol than the database's?
pub fn is_other_protocol(error: &Error) -> bool {
    matches!(error, Error::Statement(source) if source.code().is_some_and(|code| code.code() == OTHER_PROTOCOL))
}

/// Whether this process's claims are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// It claims by the rules of the database.
    Same,
    /// It is of a newer release than the rules: it waits until the protocol is raised.
    Ahead { ours: i32, theirs: i32 },
    /// It is of an older release than the rules: its claims are refused.
    Behind { ours: i32, theirs: i32 },
}

/// What came of an attempt to raise the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raise {
    /// It is as high as this release's.
    Raised,
    /// These processes of older releases live.
    Older(String),
    /// Claims were under way; to be tried again.
    Busy,
}

impl Store {
    /// How this process's protocol compares with the database's.
    pub async fn protocol(&self) -> Result<Protocol, Error> {
        let theirs: i32 = self.one(sql!("release/protocol"), &[]).await?.try_get(0)?;
        Ok(compared(protocol(), theirs))
    }

    /// Raises the database's protocol to this release's, unless a process of an older one lives.
    pub async fn raise_protocol(&self, dead_after: Duration) -> Result<Raise, Error> {
        let asked =
            self.one(sql!("release/raise_protocol"), &[&protocol(), &number(), &dead_after.as_secs_f64()]).await;
        match asked {
            Ok(row) => Ok(row.try_get::<_, Option<String>>(0)?.map_or(Raise::Raised, Raise::Older)),
            Err(error) if error.is_lock_timeout() => Ok(Raise::Busy),
            Err(error) => Err(error),
        }
    }

    /// Drops the functions of older releases that nobody uses; answers which.
    pub async fn drop_unused_releases(&self) -> Result<Vec<i32>, Error> {
        let rows = self.query(sql!("release/drop_unused"), &[&number(), &UNUSED_AFTER.as_secs_f64()]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{NUMBER, SCHEMA};

    /// What is dropped as unused is found by the number, and what is in use by the schema.
    #[test]
    fn the_schema_is_named_for_the_number() {
        assert_eq!(SCHEMA, format!("forebay_r{NUMBER}"));
    }
}
