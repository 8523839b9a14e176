//! Tests of the Temporal engine: against a real Temporal, a real database and real listeners.
//!
//! The scenarios are those of the crate `engine`: the same file, run here by another host.

mod activities;
#[path = "../../../engine/tests/it/conformance.rs"]
mod conformance;
mod host;
mod long;
mod replay;
mod runs;
mod visibility;
#[path = "../../../engine/tests/it/world.rs"]
#[expect(dead_code, reason = "the embedded engine's tests use more of it")]
mod world;
