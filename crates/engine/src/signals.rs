//! Logs the events that the kernel's table of signals lists.
//!
//! Not here: the table (`kernel::signals`), where log lines go (`app`).

use kernel::signals::{Event, Level};

/// The log level of an event.
pub const fn level(event: &Event) -> tracing::Level {
    match event.level {
        Level::Error => tracing::Level::ERROR,
        Level::Warn => tracing::Level::WARN,
        Level::Info => tracing::Level::INFO,
        Level::Debug => tracing::Level::DEBUG,
    }
}

/// Logs an event of the table with its fields: `log_event!(events::AT_CAPACITY, workspace_id = %id, …)`.
/// A value for the message's placeholder follows a semicolon: `log_event!(events::PROCESSING; n, …)`.
#[macro_export]
macro_rules! log_event {
    ($event:expr, $($fields:tt)*) => {
        ::tracing::event!($crate::signals::level(&$event), message = $event.message, $($fields)*)
    };
    ($event:expr; $value:expr, $($fields:tt)*) => {
        ::tracing::event!($crate::signals::level(&$event), message = %$event.message_with($value), $($fields)*)
    };
}
