//! The statements, one a file under `sql/`, included as text and prepared by a test.

/// The text of `sql/<table>/<verb>.sql`.
macro_rules! sql {
    ($path:literal) => {
        crate::release::text(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql")))
    };
}
pub(crate) use sql;
