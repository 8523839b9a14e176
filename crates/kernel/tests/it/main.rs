//! The kernel, tested from outside: tables, properties, and a simulation of everything around it.

mod breaker;
mod draw;
mod explain;
mod lifecycle;
mod queue;
mod run;
mod signals;
mod simulation;
