//! Every decision of the service, as plain functions from values to values.
//!
//! Nothing here does IO, knows the time, draws a random number or logs; `clippy.toml` beside this
//! crate bans what could. Shells read state, ask here, and carry out the answer, so that two
//! engines, a simulation and a replay all agree.

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
pub mod orchestration;
pub mod queue;
pub mod run;
pub mod schedule;
pub mod signals;
pub mod wait;
pub mod webhook;
pub mod workspace;

/// The number of this build's rules. An execution notes it at enqueue; a build takes no run of a newer one.
pub const SEMANTICS: i32 = 3;
