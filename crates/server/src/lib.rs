//! The service: HTTP in front, background loops behind, both over one store and one engine.
//!
//! Invariants
//! - Only here is the HTTP framework, and every background loop.
//! - Loops share a shape: woken by a timer or a bare hint; look, decide, do; safe to run twice;
//!   stopped between passes; no loop dies of an error.
//!
//! Not here: arguments and environment (`app`), decisions (`kernel`), SQL (`store`).

mod asks;
mod breaker;
mod calls;
pub mod config;
mod connection;
mod deadlines;
mod dispatcher;
mod feed;
mod heartbeat;
mod hints;
pub mod http;
mod lease;
mod orphans;
mod pass;
mod places;
mod processes;
mod projector;
mod promoter;
mod reconciler;
mod recorder;
mod retention;
mod role;
mod root_keys;
mod sampler;
mod schedules;
pub mod secrets;
mod start;
mod starter;
mod statistics;
mod strays;
mod takeover;
mod waiters;
mod waker;
mod watcher;
mod webhooks;
pub mod wire;

pub use role::Role;
pub use start::{Options, Server, StartError};
