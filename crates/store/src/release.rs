//! Which release this is, which schema holds its functions, and which claim protocol it uses.
//!
//! The texts under `sql/` and `functions/` contain the schema's name literally. A test checks that they all contain the
//! same name, and for the next release `sed` replaces it. A release gets the next number when a function of the
//! previous release has changed.
//!
//! Invariants
//! - A release's functions are dropped a day after the last heartbeat of a process that uses them, not before.
//! - A process that finds its functions missing creates them again and registers under a new id.
//! - The protocol is raised only while no process of an older release is alive, and with every shard locked.
//!
//! Not here: creating functions (`migrate`).

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

/// The number of this release.
pub const NUMBER: i32 = 1;

/// The schema of the functions that only processes of this release call.
pub const SCHEMA: &str = "forebay_r1";

/// The version of the claim's rules: locks, stages, and what is counted. If a claim uses another version than the
/// database, it is refused.
pub const PROTOCOL: i32 = 1;

/// The release of this process.
#[cfg(not(feature = "test-release"))]
pub(crate) const fn number() -> i32 {
    NUMBER
}

/// The protocol of this process's claims.
#[cfg(not(feature = "test-release"))]
pub(crate) const fn protocol() -> i32 {
    PROTOCOL
}

/// Returns an SQL text with the schema name of this release.
#[cfg(not(feature = "test-release"))]
pub(crate) const fn text(text: &'static str) -> &'static str {
    text
}

/// How long a release must be unused before its functions are dropped.
const UNUSED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Compares a process's protocol with the database's.
pub(crate) fn compare_protocols(ours: i32, theirs: i32) -> Protocol {
    match ours.cmp(&theirs) {
        Ordering::Equal => Protocol::Same,
        Ordering::Greater => Protocol::Ahead { ours, theirs },
        Ordering::Less => Protocol::Behind { ours, theirs },
    }
}

/// Does this error mean that the functions of this release were dropped?
pub(crate) fn is_missing(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION))
}

/// The SQLSTATE of a claim whose protocol is not the database's (functions/claim.sql).
const OTHER_PROTOCOL: &str = "FB001";

/// Was a claim refused because its protocol is not the database's?
pub fn is_other_protocol(error: &Error) -> bool {
    matches!(error, Error::Statement(source) if source.code().is_some_and(|code| code.code() == OTHER_PROTOCOL))
}

/// Whether the database accepts this process's claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The protocols are equal.
    Same,
    /// This process's release is newer: it waits until the protocol is raised.
    Ahead { ours: i32, theirs: i32 },
    /// This process's release is older: its claims are refused.
    Behind { ours: i32, theirs: i32 },
}

/// The result of an attempt to raise the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RaiseOutcome {
    /// The database's protocol is at least this release's.
    Raised,
    /// Not raised: these processes of older releases are alive.
    Older(String),
    /// Not raised: claims were in progress. The caller tries again later.
    Busy,
}

impl Store {
    /// How this process's protocol compares with the database's.
    pub async fn protocol(&self) -> Result<Protocol, Error> {
        let theirs: i32 = self.one(sql!("release/protocol"), &[]).await?.try_get(0)?;
        Ok(compare_protocols(protocol(), theirs))
    }

    /// Raises the database's protocol to this release's, unless a process of an older release is alive.
    pub async fn raise_protocol(&self, dead_after: Duration) -> Result<RaiseOutcome, Error> {
        let answer =
            self.one(sql!("release/raise_protocol"), &[&protocol(), &number(), &dead_after.as_secs_f64()]).await;
        match answer {
            Ok(row) => Ok(row.try_get::<_, Option<String>>(0)?.map_or(RaiseOutcome::Raised, RaiseOutcome::Older)),
            Err(error) if error.is_lock_timeout() => Ok(RaiseOutcome::Busy),
            Err(error) => Err(error),
        }
    }

    /// Drops the functions of unused older releases. Returns their numbers.
    pub async fn drop_unused_releases(&self) -> Result<Vec<i32>, Error> {
        let rows = self.query(sql!("release/drop_unused"), &[&number(), &UNUSED_AFTER.as_secs_f64()]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{NUMBER, SCHEMA};

    /// Unused releases are found by number, and processes use the schema: the two must agree.
    #[test]
    fn the_schema_is_named_for_the_number() {
        assert_eq!(SCHEMA, format!("forebay_r{NUMBER}"));
    }
}
