//! Lists that the server sends in pages.
//!
//! Invariants
//! - A single page is shown as the server sent it; several pages are joined into one list, in their order.
//! - If there are more items, a message says so, with the flag that continues the list.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use server::wire::Page;

use super::Format;
use super::api::{Answer, Query};
use super::connection::{Session, WorkspaceArg};
use crate::output;

/// The largest page that the server sends.
const MAX_PAGE: u32 = 200;

/// Which part of a list to show.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PageArgs {
    /// The maximum number of items
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// All items
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Continue after an earlier page, with the cursor that it ended with
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

/// Which part of a list to show, and of which workspace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    paging: PageArgs,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceArg,
}

/// The fetched part of a list.
#[derive(Debug)]
pub(crate) struct Listing<T> {
    pub(crate) items: Vec<T>,
    next_cursor: Option<String>,
    body: String,
}

impl PageArgs {
    /// The arguments that request all items of a list.
    pub(crate) fn every() -> PageArgs {
        PageArgs { limit: MAX_PAGE, all: true, cursor: None }
    }

    /// Fetches pages until there are enough items.
    pub(crate) async fn fetch<T: DeserializeOwned>(
        &self,
        session: &Session,
        path: &str,
        query: Query<'_>,
    ) -> anyhow::Result<Listing<T>> {
        let (mut items, mut bodies, mut cursor) = (Vec::new(), Vec::new(), self.cursor.clone());
        loop {
            let left = usize::try_from(self.limit).unwrap_or(usize::MAX).saturating_sub(items.len());
            let size =
                if self.all { MAX_PAGE } else { MAX_PAGE.min(u32::try_from(left).unwrap_or(MAX_PAGE)) }.to_string();
            let mut query = query.to_vec();
            query.push(("limit", &size));
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let Answer { value: page, body }: Answer<Page<T>> = session.api.get(path, &query).await?;
            items.extend(page.items);
            bodies.push(body);
            cursor = page.next_cursor;
            let enough = !self.all && items.len() as u64 >= u64::from(self.limit);
            if cursor.is_none() || enough {
                return Ok(Listing { items, body: merge_bodies(bodies, cursor.as_deref())?, next_cursor: cursor });
            }
        }
    }
}

impl ListArgs {
    /// Fetches a list with these filters: that of the workspace, or with a root key and no workspace that of all.
    pub(crate) async fn fetch<T: DeserializeOwned>(
        &self,
        session: &Session,
        path: &str,
        filters: &[(&str, Option<String>)],
    ) -> anyhow::Result<Listing<T>> {
        let workspace = ("workspaceId", session.workspace(&self.workspace).await?.map(|id| id.to_string()));
        let given = filters.iter().chain([&workspace]);
        let query: Vec<(&str, &str)> = given.filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        self.paging.fetch(session, path, &query).await
    }
}

/// The bodies of several pages as one.
fn merge_bodies(mut bodies: Vec<String>, next: Option<&str>) -> anyhow::Result<String> {
    if let [_] = bodies.as_slice() {
        return Ok(bodies.swap_remove(0));
    }
    let mut items = Vec::new();
    for body in &bodies {
        let mut page: Value = serde_json::from_str(body)?;
        if let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) {
            items.extend(more);
        }
    }
    let mut all = json!({ "items": items });
    if let Some(next) = next {
        all["nextCursor"] = json!(next);
    }
    Ok(all.to_string())
}

impl<T> Listing<T> {
    /// The list as one answer of the server.
    pub(crate) fn into_answer(self) -> Answer<Page<T>> {
        Answer { value: Page { items: self.items, next_cursor: self.next_cursor }, body: self.body }
    }

    /// Shows the list, and a message if there are more items.
    pub(crate) fn show(
        &self,
        session: &Session,
        head: &[&str],
        row: impl Fn(&T) -> Vec<output::Cell>,
    ) -> anyhow::Result<()> {
        match session.format {
            Format::Json => output::print_json(&self.body, session.stdout)?,
            Format::Table => output::print_table(head, self.items.iter().map(row).collect(), session.stdout)?,
        }
        match &self.next_cursor {
            Some(next) => session.note(format!("There are more items: add --all, or --cursor {}", output::clean(next))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_pages_are_one_list_and_one_is_as_it_came() -> anyhow::Result<()> {
        let page = r#"{"items": [1, 2], "nextCursor": "a"}"#.to_owned();
        assert_eq!(merge_bodies(vec![page.clone()], Some("a"))?, page);
        let last = r#"{"items":[3]}"#.to_owned();
        assert_eq!(merge_bodies(vec![page.clone(), last], None)?, r#"{"items":[1,2,3]}"#);
        assert_eq!(merge_bodies(vec![page.clone(), page], Some("b"))?, r#"{"items":[1,2,1,2],"nextCursor":"b"}"#);
        Ok(())
    }
}
