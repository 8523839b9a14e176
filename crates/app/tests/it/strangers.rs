//! Clients that mean no good: what they choose becomes no label, holds no connection for long and stops no thread.

mod labels;
mod patterns;
mod slow;
