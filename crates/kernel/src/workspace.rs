//! What a workspace may use.
//!
//! Invariants
//! - The database's `tier` table is what is enforced; these are the values it is seeded with.
//!
//! Not here: counting what is in use (`store`, under the shard's lock).

/// A tier as it is seeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    pub name: &'static str,
    /// How many executions may hold a slot at once.
    pub max_running: i32,
    /// How many executions may wait, unless the workspace or the settings say otherwise.
    pub max_backlog: i32,
}

/// The tiers every installation starts with.
pub const SEEDED: [Tier; 3] = [
    Tier { name: "FREE", max_running: 1, max_backlog: 10_000 },
    Tier { name: "PRO", max_running: 5, max_backlog: 100_000 },
    Tier { name: "ENTERPRISE", max_running: 20, max_backlog: 1_000_000 },
];
