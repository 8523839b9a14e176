//! JSON that others may have written with SQL: an integer that 64 bits do not hold is text with its digits, never
//! rounded.
//!
//! Not here: how such an integer is found (`kernel::exact`).

use std::error::Error;

use serde_json::Value;
use tokio_postgres::types::{FromSql, Type, accepts};

/// A value of a column of JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Json(pub(crate) Value);

impl<'a> FromSql<'a> for Json {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Json, Box<dyn Error + Sync + Send>> {
        // PostgreSQL sends jsonb with the number of its format before it.
        let text = if *kind == Type::JSONB {
            raw.strip_prefix(&[1]).ok_or("jsonb in a format that is not known")?
        } else {
            raw
        };
        Ok(Json(kernel::exact::read_stored(text)?))
    }

    accepts!(JSON, JSONB);
}
