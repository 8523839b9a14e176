//! Benchmarks and the chaos harness. Each prints its figures, with the machine and the settings behind them.

pub mod admission;
pub mod chaos;
pub mod cluster;
pub mod dispatch;
pub mod events;
pub mod expressions;
pub mod long;
mod measure;
pub mod memory;
mod page;
pub mod peers;
pub mod random;
pub mod receiver;
pub mod report;
pub mod retention;
pub mod scale;
pub mod service;
pub mod temporal;
