//! Leases: the exclusive right of one process to do something for a time. Stored in the table of the ShedLock library.
//!
//! Invariants
//! - The table has that library's layout, so programs in any language that use it exclude each other.
//! - Only the database's clock is read, in UTC.
//! - Only the holder of a lease extends or releases it, and only before it expires. A process that finds the lease held
//!   by another process skips the work.
//! - If the holder is a Forebay process that is known to be dead, its lease may be taken before it expires. No other
//!   lease may.
//!
//! Not here: what a lease is for (`server::process::lease`). Nothing that must be exact relies on one.

use std::time::Duration;

use tokio_postgres::{Client, Row};

use crate::queue::claim::LivenessRule;
use crate::sql::sql;
use crate::{Error, Store};

/// A lease: its name, and how long it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub name: &'static str,
    /// The lease expires after this time, in case its holder dies.
    pub at_most: Duration,
    /// The lease stays held for at least this time, even if it is released earlier.
    pub at_least: Duration,
}

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    pub name: String,
    /// The holder is a process of this installation; false: another program.
    pub is_forebay: bool,
    /// The holder is known to be dead.
    pub dead: bool,
}

/// The columns and the key that the table must have.
const LAYOUT: &str = "\
locked_at timestamp without time zone not null
locked_by character varying(255) not null
lock_until timestamp without time zone not null
name character varying(64) not null
key name";

impl Store {
    /// Acquires a lease; false if another process holds it.
    pub async fn lock(&self, lease: Lease, holder: &str) -> Result<bool, Error> {
        let rows = self.query(sql!("shedlock/lock"), &[&lease.name, &holder, &lease.at_most.as_secs_f64()]).await?;
        Ok(!rows.is_empty())
    }

    /// Takes a lease whose holder is a Forebay process that is known to be dead. False if the holder is alive or is
    /// another program.
    pub async fn take_over_lease(&self, lease: Lease, holder: &str, rule: LivenessRule) -> Result<bool, Error> {
        let (at_most, dead_after) = (lease.at_most.as_secs_f64(), rule.dead_after.as_secs_f64());
        let sql = sql!("shedlock/lock_of_dead");
        let rows = self.query(sql, &[&lease.name, &holder, &at_most, &dead_after, &rule.steady]).await?;
        Ok(!rows.is_empty())
    }

    /// Which process holds a lease now; None if the lease is free.
    pub async fn lease_holder(&self, lease: Lease, dead_after: Duration) -> Result<Option<LeaseHolder>, Error> {
        let rows = self.query(sql!("shedlock/holder"), &[&lease.name, &dead_after.as_secs_f64()]).await?;
        let held = |row: &Row| {
            Ok(LeaseHolder {
                name: row.try_get("locked_by")?,
                is_forebay: row.try_get("is_forebay")?,
                dead: row.try_get("dead")?,
            })
        };
        rows.first().map(held).transpose()
    }

    /// Extends a lease by its full time; false if it was lost.
    pub async fn extend(&self, lease: Lease, holder: &str) -> Result<bool, Error> {
        let rows = self.query(sql!("shedlock/extend"), &[&lease.name, &holder, &lease.at_most.as_secs_f64()]).await?;
        Ok(!rows.is_empty())
    }

    /// Releases a lease; false if it was lost before.
    pub async fn unlock(&self, lease: Lease, holder: &str) -> Result<bool, Error> {
        let rows = self.query(sql!("shedlock/unlock"), &[&lease.name, &holder, &lease.at_least.as_secs_f64()]).await?;
        Ok(!rows.is_empty())
    }
}

/// How the layout of an existing table differs from the required one; None if there is no table, or no difference.
pub(crate) async fn layout_difference(client: &Client) -> Result<Option<String>, Error> {
    let found: Option<String> = client.query_one(sql!("shedlock/layout"), &[]).await?.try_get(0)?;
    let sorted = |layout: &str| {
        let mut lines: Vec<String> = layout.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    Ok(found.filter(|found| sorted(found) != sorted(LAYOUT)))
}
