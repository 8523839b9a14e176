//! Every decision of the service, as plain functions from values to values.
//!
//! Nothing here does IO, knows the time, draws a random number or logs; `clippy.toml` beside this
//! crate bans what could. Shells read state, ask here, and carry out the answer, so that two
//! engines, a simulation and a replay all agree.

pub mod access;
pub mod ask;
pub mod breaker;
pub mod crash;
pub mod definition;
pub mod diff;
pub mod draw;
pub mod duration;
pub mod each;
pub mod event;
pub mod exact;
pub mod execution;
pub mod explain;
pub mod expression;
pub mod failure;
mod fields;
pub mod generation;
pub mod idempotency;
pub mod ids;
pub mod inputs;
pub mod kind;
pub mod node;
pub mod parse;
mod pattern;
pub mod plan;
pub mod problem;
pub mod queue;
pub mod realtime;
pub mod reconcile;
pub mod rerun;
pub mod rest;
pub mod ring;
pub mod run;
pub mod schedule;
pub mod secret;
pub mod signals;
pub mod source;
pub mod template;
pub mod tier;
pub mod trace;
pub mod webhook;

/// The number of this build's rules. An execution notes it at enqueue; a build takes no run of a newer one.
pub const SEMANTICS: i32 = 3;
