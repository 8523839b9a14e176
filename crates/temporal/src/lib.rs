//! Runs executions on Temporal: the second engine, for as many machines as it takes.
//!
//!     start ──▶ workflow: begin ──▶ kernel::orchestration ──▶ steps and nodes as activities ──▶ complete
//!
//! Invariants
//! - Only here is the Temporal SDK; nothing else is built again when it changes.
//! - The workflow is `kernel::orchestration` and activities: no rule, no clock, no IO of its own.
//! - The rows are the truth. Temporal's history knows which nodes settled and how, never what they
//!   produced, and every activity may be repeated.
//! - Every write is fenced: by the engine's own run as the owner, by its epoch, and by the node's own fence.
//!
//! Not here: what a node does (`engine::nodes`), what its failure means (`kernel::run::failure`), SQL (`store`).

mod activities;
mod answer;
mod attributes;
mod bare;
mod client;
mod codec;
mod connection;
mod message;
mod questions;
mod retry;
mod settings;
mod start;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;
mod workflow;

pub use bare::Bare;
pub use client::Temporal;
pub use settings::{Invalid, Keys, Settings, Tls};
pub use worker::{Hands, Worker};

/// The name that executions note.
pub const NAME: &str = "temporal";
/// The type of the one workflow there is.
pub const WORKFLOW: &str = "WorkflowOrchestration";
