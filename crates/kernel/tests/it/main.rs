//! The kernel, tested from outside: tables, properties, and a simulation of everything around it.

mod lifecycle;
mod run;
mod simulation;
