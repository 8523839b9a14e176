//! Says what the table of signals lists.
//!
//! Not here: the table (`kernel::signals`), where it goes (`app`).

use kernel::signals::{Event, Level};

/// The level of an event, as the log knows it.
pub const fn level(event: &Event) -> tracing::Level {
    match event.level {
        Level::Error => tracing::Level::ERROR,
        Level::Warn => tracing::Level::WARN,
        Level::Info => tracing::Level::INFO,
        Level::Debug => tracing::Level::DEBUG,
    }
}

/// Logs an event of the table with its fields: `say!(events::AT_CAPACITY, workspace_id = %id, …)`.
/// What fills the gap of a message comes behind a semicolon: `say!(events::PROCESSING; n, …)`.
#[macro_export]
macro_rules! say {
    ($event:expr, $($fields:tt)*) => {
        ::tracing::event!($crate::signals::level(&$event), message = $event.message, $($fields)*)
    };
    ($event:expr; $gap:expr, $($fields:tt)*) => {
        ::tracing::event!($crate::signals::level(&$event), message = %$event.filled($gap), $($fields)*)
    };
}
