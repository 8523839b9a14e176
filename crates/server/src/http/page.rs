//! Pages of lists: their size and their cursors.
//!
//! Invariants
//! - A cursor is opaque to clients. It contains the kind of its list, the position of the last item, and a checksum. So
//!   a truncated cursor, or a cursor of another list, is refused.
//! - A cursor grants no access: the key of each request decides which rows are read.

use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use sha2::{Digest, Sha256};
use store::execution::list::TimeCursor;
use store::page::Paged;
use uuid::Uuid;

use super::{Code, Problem};
use crate::wire::Page;

/// The default number of items of a page.
const DEFAULT: i64 = 50;
/// The largest page.
const MOST: i64 = 200;
const SUM: usize = 4;

/// All lists, by the first byte of their cursors. A number is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Executions = 1,
    Definitions = 2,
    Versions = 3,
    Workspaces = 4,
    Keys = 5,
    Activity = 6,
    DeadLetters = 7,
    Secrets = 8,
    Events = 20,
    Bindings = 21,
    Jobs = 22,
    Webhooks = 40,
    Deliveries = 41,
    Triggers = 42,
    Schedules = 30,
    Ticks = 31,
    Children = 50,
    Iterations = 51,
    Waits = 52,
    Tasks = 53,
    Nodes = 54,
    Logs = 55,
}

/// Declares the query parameters of a list: its filters, the cursor and the limit. It is a macro because serde does not
/// refuse unknown parameters in a type with flattened fields.
macro_rules! list_params {
    ($(#[$of_list:meta])* pub(crate) struct $name:ident { $($own:tt)* }) => {
        $(#[$of_list])*
        #[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(crate) struct $name {
            $($own)*
            /// The `nextCursor` of the previous page.
            cursor: Option<String>,
            /// The largest number of items. Default: 50.
            #[param(minimum = 1, maximum = 200)]
            limit: Option<i64>,
        }

        impl $name {
            /// The limit, and the position after which the page begins.
            pub(crate) fn page<T>(
                &self,
                list: $crate::http::page::ListKind,
                position: impl FnOnce(&[u8]) -> Option<T>,
            ) -> Result<(i64, Option<T>), $crate::http::Problem> {
                let limit = $crate::http::page::limit(self.limit)?;
                Ok((limit, $crate::http::page::read(list, self.cursor.as_deref(), position)?))
            }
        }
    };
}
pub(crate) use list_params;

list_params! {
    /// The parameters of a list without filters.
    pub(crate) struct PageParams {}
}

list_params! {
    /// The parameters of a list that a root key sees for all workspaces.
    pub(crate) struct WorkspaceListParams {
        /// With a root key: list only this workspace. Default: all workspaces.
        pub(crate) workspace_id: Option<WorkspaceId>,
    }
}

/// Checks the limit of a request.
pub(crate) fn limit(asked: Option<i64>) -> Result<i64, Problem> {
    match asked.unwrap_or(DEFAULT) {
        limit if (1..=MOST).contains(&limit) => Ok(limit),
        _ => Err(Problem::new(Code::ValidationFailed, format!("limit: must be between 1 and {MOST}"))),
    }
}

/// A page of at most `limit` items. `rows` was read with a limit of `limit + 1`, so one more row means another page.
pub(crate) fn page<R, T>(rows: Vec<R>, limit: i64, cursor: impl Fn(&R) -> String, wire: impl Fn(R) -> T) -> Page<T> {
    cut(Paged { rows, cut: false }, limit, cursor, wire)
}

/// Like `page`, for a query that may return fewer rows than `limit` because the rows are large.
pub(crate) fn cut<R, T>(found: Paged<R>, limit: i64, cursor: impl Fn(&R) -> String, wire: impl Fn(R) -> T) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let Paged { mut rows, cut } = found;
    let more = cut || rows.len() > limit;
    rows.truncate(limit);
    let next_cursor = rows.last().filter(|_| more).map(cursor);
    Page { items: rows.into_iter().map(wire).collect(), next_cursor }
}

/// Encodes a position in a list as a cursor.
pub(crate) fn write(list: ListKind, position: &[u8]) -> String {
    let mut bytes = vec![list as u8];
    bytes.extend_from_slice(position);
    let sum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&sum[..SUM]);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes the position from a cursor of this list.
pub(crate) fn read<T>(
    list: ListKind,
    cursor: Option<&str>,
    position: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let Some(cursor) = cursor else { return Ok(None) };
    let found = unhex(cursor).and_then(|bytes| {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM)?)?;
        let fits = Sha256::digest(body)[..SUM] == *sum && *body.first()? == list as u8;
        fits.then(|| position(&body[1..]))?
    });
    let bad = || {
        Problem::new(
            Code::ValidationFailed,
            "cursor: invalid; send the nextCursor of this list unchanged, or omit it for the first page",
        )
    };
    found.map(Some).ok_or_else(bad)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.len() > 4_096 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2)).collect()
}

/// Encodes a position that is a time and an id.
pub(crate) fn timed<const N: usize>(at: Timestamp, id: [u8; N]) -> Vec<u8> {
    let mut bytes = at.as_microsecond().to_be_bytes().to_vec();
    bytes.extend_from_slice(&id);
    bytes
}

/// Decodes a position that is a time and an id.
pub(crate) fn time_cursor_of<T, const N: usize>(bytes: &[u8], id: impl Fn([u8; N]) -> T) -> Option<TimeCursor<T>> {
    let (at, rest) = bytes.split_first_chunk::<8>()?;
    let at = Timestamp::from_microsecond(i64::from_be_bytes(*at)).ok()?;
    Some(TimeCursor { at, id: id(rest.try_into().ok()?) })
}

/// Decodes a position that is the number of rows before the page.
pub(crate) fn skip_of(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes).filter(|skip| *skip >= 0)
}

/// Decodes a position that is an id.
pub(crate) fn uuid_of(bytes: &[u8]) -> Option<Uuid> {
    Uuid::from_slice(bytes).ok()
}

/// Decodes a position that is a text.
pub(crate) fn text_of(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_by_its_own_list_and_by_no_other() {
        let id = Uuid::from_u128(7);
        let at = Timestamp::from_microsecond(1_767_605_400_123_456).expect("a time");
        let cursor = write(ListKind::Executions, &timed(at, *id.as_bytes()));
        let back = |list, cursor: &str| read(list, Some(cursor), |bytes| time_cursor_of(bytes, Uuid::from_bytes));
        assert_eq!(back(ListKind::Executions, &cursor).ok().flatten(), Some(TimeCursor { at, id }));
        assert!(back(ListKind::Activity, &cursor).is_err());
        assert!(read(ListKind::Executions, None, uuid_of).is_ok_and(|position| position.is_none()));
    }

    #[test]
    fn a_cursor_that_was_changed_or_made_up_is_refused() {
        let cursor = write(ListKind::Keys, Uuid::from_u128(7).as_bytes());
        assert!(read(ListKind::Keys, Some(&cursor), uuid_of).is_ok());
        let mut table: Vec<String> = (0..cursor.len()).map(|end| cursor[..end].to_owned()).collect();
        table.extend((0..cursor.len()).map(|at| {
            let mut changed = cursor.clone();
            changed.replace_range(at..=at, if &cursor[at..=at] == "0" { "1" } else { "0" });
            changed
        }));
        table.extend(["0é", "zz", "null", &"00".repeat(5_000)].map(str::to_owned));
        table.push(format!("{cursor}00"));
        for text in table {
            let problem = read(ListKind::Keys, Some(&text), uuid_of).expect_err(&text);
            assert_eq!(problem.code, Code::ValidationFailed, "{text}");
        }
        // The cursor is valid and of this list, but its content is not a position.
        assert!(read(ListKind::Keys, Some(&write(ListKind::Keys, &[1, 2, 3])), uuid_of).is_err());
    }

    #[test]
    fn a_page_says_that_there_is_more_only_when_there_is() {
        for (rows, limit, shown, next) in [(0, 2, 0, None), (2, 2, 2, None), (3, 2, 2, Some("1")), (1, 2, 1, None)] {
            let page = page((0..rows).collect(), limit, |row: &i32| row.to_string(), |row| row);
            assert_eq!((page.items.len(), page.next_cursor.as_deref()), (shown, next), "{rows}");
        }
        for (asked, given) in
            [(None, Some(50)), (Some(1), Some(1)), (Some(200), Some(200)), (Some(0), None), (Some(201), None)]
        {
            assert_eq!(limit(asked).ok(), given, "{asked:?}");
        }
    }
}
