//! Tests of the engine against real listeners and stores.

mod outbound;
