//! Pages bounded in bytes: rows are read a few at a time, and no more are read once a page is large.
//!
//! Invariants
//! - A page has at least one row if there is one, and ends with the row that makes it larger than its bound.
//! - What is not shown is not read: the database stops there, however many rows were asked for.
//!
//! Not here: how many rows a page may have, and cursors (`server::http::page`).

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::{Error, Params, Store};

/// About the most bytes of one page.
pub const MOST_BYTES: usize = 1024 * 1024;
/// Rows that are read at once.
const STEP: i32 = 8;

/// The rows of one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paged<T> {
    pub rows: Vec<T>,
    /// It was cut: there are more rows, though fewer than were asked for are here.
    pub cut: bool,
}

impl Store {
    /// The rows of a list, cut where the page becomes large.
    pub(crate) async fn paged<T>(
        &self,
        sql: &'static str,
        params: Params<'_>,
        read: impl Fn(&Row) -> Result<T, Error>,
    ) -> Result<Paged<T>, Error> {
        let mut client = self.pool.get().await?;
        let statement = client.prepare_cached(sql).await?;
        let transaction = client.transaction().await?;
        let portal = transaction.bind(&statement, params).await?;
        let (mut rows, mut bytes, mut cut, mut over) = (Vec::new(), 0, false, false);
        while !cut && !over {
            let found = transaction.query_portal(&portal, STEP).await?;
            over = found.len() < usize::try_from(STEP).unwrap_or_default();
            for row in &found {
                cut = bytes > MOST_BYTES;
                if cut {
                    break;
                }
                bytes += size(row)?;
                rows.push(read(row)?);
            }
            // Whether there are more is not asked: the next page may be empty.
            cut |= bytes > MOST_BYTES && !over;
        }
        transaction.commit().await?;
        Ok(Paged { rows, cut })
    }
}

/// How many bytes a row came in.
fn size(row: &Row) -> Result<usize, Error> {
    (0..row.len()).map(|column| Ok(row.try_get::<_, Option<Size>>(column)?.map_or(0, |size| size.0))).sum()
}

/// How many bytes a value came in, whatever its type.
struct Size(usize);

impl<'a> FromSql<'a> for Size {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Size, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Size(raw.len()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
