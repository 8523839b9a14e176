//! Pages with a bounded size in bytes: rows are fetched a few at a time, until the page is large enough.
//!
//! Invariants
//! - A page has at least one row if any row matches, and ends with the row that exceeds the bound.
//! - Fetching stops there: at most a few rows beyond the page are read, whatever limit was requested.
//!
//! Not here: how many rows a page may have, and cursors (`server::http::page`).

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::{Error, Params, Store};

/// About the maximum size of one page.
pub const MAX_PAGE_BYTES: usize = 1024 * 1024;
/// How many rows are fetched at once.
const STEP: i32 = 8;

/// The rows of one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paged<T> {
    pub rows: Vec<T>,
    /// The page ended because of its size. More rows may follow, although it has fewer rows than requested.
    pub cut: bool,
}

impl Store {
    /// Fetches the rows of a list until the page is large enough.
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
                cut = bytes > MAX_PAGE_BYTES;
                if cut {
                    break;
                }
                bytes += size(row)?;
                rows.push(read(row)?);
            }
            // Whether more rows exist is not checked: the next page may be empty.
            cut |= bytes > MAX_PAGE_BYTES && !over;
        }
        transaction.commit().await?;
        Ok(Paged { rows, cut })
    }
}

/// The size of a row as received.
fn size(row: &Row) -> Result<usize, Error> {
    (0..row.len()).map(|column| Ok(row.try_get::<_, Option<Size>>(column)?.map_or(0, |size| size.0))).sum()
}

/// The size of a value as received, whatever its type.
struct Size(usize);

impl<'a> FromSql<'a> for Size {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Size, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Size(raw.len()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
