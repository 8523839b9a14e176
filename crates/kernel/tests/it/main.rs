//! The kernel, tested from outside: tables, properties, and a simulation of everything around it.

mod attacks;
mod breaker;
mod definitions;
mod draw;
mod explain;
mod expression_attacks;
mod expression_memory;
mod expression_page;
mod expressions;
mod lifecycle;
mod orchestration;
mod queue;
mod run;
mod schedule;
mod schema;
mod signals;
mod simulation;
