//! Runs executions on Temporal: the second engine, for any number of machines.
//!
//!     start ──▶ workflow: begin ──▶ kernel::orchestration ──▶ steps and nodes as activities ──▶ complete
//!
//! Invariants
//! - Only this crate uses the Temporal SDK, so nothing else is rebuilt when it changes.
//! - The workflow is `kernel::orchestration` plus activities. It has no rules, no clock and no IO of its own.
//! - The rows are authoritative. Temporal's history records which nodes settled and how, never their outputs. Every
//!   activity may be repeated.
//! - Every write is fenced by the Temporal run as owner, by its epoch, and by the node's own fence.
//!
//! Not here: what a node does (`engine::nodes`), what its failure means (`kernel::run::failure`), SQL (`store`).

mod activities;
mod answer;
mod client;
mod codec;
mod connection;
mod message;
mod queries;
mod retry;
mod search_attributes;
mod settings;
mod start;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;
mod workflow;
mod workflow_starter;

pub use client::Temporal;
pub use settings::{InvalidKey, PayloadKeys, TemporalSettings, Tls};
pub use worker::{Worker, WorkerSetup};
pub use workflow_starter::WorkflowStarter;

/// The engine's name, stored on each execution it runs.
pub const NAME: &str = "temporal";
/// The type name of the only workflow.
pub const WORKFLOW: &str = "WorkflowOrchestration";
