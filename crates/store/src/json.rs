//! Reads JSON that other programs may have written with SQL. An integer beyond 64 bits becomes text with all its
//! digits; it is never rounded.
//!
//! Not here: how such an integer is found (`kernel::exact`).

use std::error::Error;

use serde_json::Value;
use tokio_postgres::types::{FromSql, Type, accepts};

/// The value of a JSON column.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Json(pub(crate) Value);

impl<'a> FromSql<'a> for Json {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Json, Box<dyn Error + Sync + Send>> {
        // PostgreSQL puts a format version before each jsonb value.
        let text =
            if *kind == Type::JSONB { raw.strip_prefix(&[1]).ok_or("unknown jsonb format version")? } else { raw };
        Ok(Json(kernel::exact::read_stored(text)?))
    }

    accepts!(JSON, JSONB);
}
