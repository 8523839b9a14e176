//! Leases: the right, for a time, to be the only one doing a thing, in the table of the ShedLock library.
//!
//! Invariants
//! - The table's layout is that library's; programs in any language that use it exclude each other.
//! - Only the database's clock is read, in UTC.
//! - Only its holder extends or gives back a lease, and only while it lasts; taken means skip.
//! - The lease of a process of ours that is known to be dead may be taken before it is over. Nobody else's is.
//!
//! Not here: what a lease is for (`server::process::lease`). Nothing that must be exact relies on one.

use std::time::Duration;

use tokio_postgres::{Client, Row};

use crate::queue::claim::Silence;
use crate::sql::sql;
use crate::{Error, Store};

/// A lease by its name, and the times it is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub name: &'static str,
    /// It is over by itself after this, should its holder die.
    pub at_most: Duration,
    /// It stays taken for so long after it was taken, though it is given back sooner.
    pub at_least: Duration,
}

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBy {
    pub name: String,
    /// A process of this installation; anything else is another program.
    pub ours: bool,
    /// It is known to be dead.
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
    /// Takes a lease; false if it is taken.
    pub async fn lock(&self, lease: Lease, holder: &str) -> Result<bool, Error> {
        let rows = self.query(sql!("shedlock/lock"), &[&lease.name, &holder, &lease.at_most.as_secs_f64()]).await?;
        Ok(!rows.is_empty())
    }

    /// Takes a lease whose holder is a process that is known to be dead; false if it lives, or is none of ours.
    pub async fn lock_of_dead(&self, lease: Lease, holder: &str, silence: Silence) -> Result<bool, Error> {
        let (at_most, dead_after) = (lease.at_most.as_secs_f64(), silence.dead_after.as_secs_f64());
        let sql = sql!("shedlock/lock_of_dead");
        let rows = self.query(sql, &[&lease.name, &holder, &at_most, &dead_after, &silence.steady]).await?;
        Ok(!rows.is_empty())
    }

    /// Who holds a lease now, if anybody does.
    pub async fn lease_holder(&self, lease: Lease, dead_after: Duration) -> Result<Option<HeldBy>, Error> {
        let rows = self.query(sql!("shedlock/holder"), &[&lease.name, &dead_after.as_secs_f64()]).await?;
        let held = |row: &Row| {
            Ok(HeldBy { name: row.try_get("locked_by")?, ours: row.try_get("ours")?, dead: row.try_get("dead")? })
        };
        rows.first().map(held).transpose()
    }

    /// Keeps a lease for its time again; false if it was lost.
    pub async fn extend(&self, lease: Lease, holder: &str) -> Result<bool, Error> {
        let rows = self.query(sql!("shedlock/extend"), &[&lease.name, &holder, &lease.at_most.as_secs_f64()]).await?;
        Ok(!rows.is_empty())
    }

    /// Gives a lease back; false if it was lost before.
    pub async fn unlock(&self, lease: Lease, holder: &str) -> Result<bool, Error> {
        let rows = self.query(sql!("shedlock/unlock"), &[&lease.name, &holder, &lease.at_least.as_secs_f64()]).await?;
        Ok(!rows.is_empty())
    }
}

/// What is wrong with a table that another program made; nothing if there is none or it fits.
pub(crate) async fn misfit(client: &Client) -> Result<Option<String>, Error> {
    let found: Option<String> = client.query_one(sql!("shedlock/layout"), &[]).await?.try_get(0)?;
    let sorted = |layout: &str| {
        let mut lines: Vec<String> = layout.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    Ok(found.filter(|found| sorted(found) != sorted(LAYOUT)))
}
