//! Includes the statements as text. Each is a file under `sql/`, and a test prepares every file.

/// The text of `sql/<table>/<verb>.sql`.
macro_rules! sql {
    ($path:literal) => {
        crate::release::text(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql")))
    };
}
pub(crate) use sql;
