//! Every decision of the service, as plain functions from values to values.
//!
//! Nothing here does IO, reads a clock, draws a random number or logs; this crate's `clippy.toml` bans
//! such calls. The other crates (the shells) read state, ask the kernel for a decision, and carry it out. So both
//! engines, a simulation and a replay decide the same way.

pub mod access;
pub mod change;
pub mod definition;
pub mod draw;
pub mod duration;
pub mod event;
pub mod exact;
pub mod execution;
pub mod expression;
pub mod ids;
pub mod job;
pub mod kind;
mod names;
pub mod orchestration;
pub mod queue;
pub mod run;
pub mod schedule;
pub mod signals;
pub mod storable;
pub mod trigger;
pub mod wait;
pub mod webhook;
pub mod workspace;

/// The version of this build's rules. An execution stores the version when it is enqueued. A build does not resume runs
/// with a newer version.
pub const SEMANTICS: i32 = 3;
