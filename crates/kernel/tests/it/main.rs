//! The kernel, tested from outside: tables, properties, and a simulation of everything around it.

mod breaker;
mod definitions;
mod explain;
mod lifecycle;
mod queue;
mod run;
mod schema;
mod signals;
mod simulation;
