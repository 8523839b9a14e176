//! Tests the kernel through its public functions: with tables, with properties, and with a simulation of the whole
//! service.

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
mod page;
mod queue;
mod run;
mod schedule;
mod schema;
mod signals;
mod simulation;
