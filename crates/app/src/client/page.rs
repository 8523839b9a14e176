//! Lists that come in pages: as many as were asked for, or all.
//!
//! Invariants
//! - One page is shown as the server sent it; several are one list with every item, in their order.
//! - What is left out is said, with how to go on.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use server::wire::Page;

use super::Format;
use super::api::{Answer, Query};
use super::connection::{Place, Session};
use crate::output;

/// The most that a server gives at once.
const MOST: u32 = 200;

/// How much of a list to show.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Paging {
    /// The most to list
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Every one there is, however many
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Go on behind an earlier page
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

/// How much of a list to show, and of which workspace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// What was asked for of a list.
#[derive(Debug)]
pub(crate) struct Listing<T> {
    pub(crate) items: Vec<T>,
    next_cursor: Option<String>,
    body: String,
}

impl Paging {
    /// All of a list.
    pub(crate) fn every() -> Paging {
        Paging { limit: MOST, all: true, cursor: None }
    }

    /// Asks for page after page until there is enough.
    pub(crate) async fn fetch<T: DeserializeOwned>(
        &self,
        session: &Session,
        path: &str,
        query: Query<'_>,
    ) -> anyhow::Result<Listing<T>> {
        let (mut items, mut bodies, mut cursor) = (Vec::new(), Vec::new(), self.cursor.clone());
        loop {
            let left = usize::try_from(self.limit).unwrap_or(usize::MAX).saturating_sub(items.len());
            let size = if self.all { MOST } else { MOST.min(u32::try_from(left).unwrap_or(MOST)) }.to_string();
            let mut query = query.to_vec();
            query.push(("limit", &size));
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let Answer { value: page, body }: Answer<Page<T>> = session.api.get(path, &query).await?;
            items.extend(page.items);
            bodies.push(body);
            cursor = page.next_cursor;
            let enough = !self.all && items.len() as u64 >= u64::from(self.limit);
            if cursor.is_none() || enough {
                return Ok(Listing { items, body: whole(bodies, cursor.as_deref())?, next_cursor: cursor });
            }
        }
    }
}

impl Selection {
    /// What the workspace has in a list, or with a root key all of them, narrowed by what is given.
    pub(crate) async fn fetch<T: DeserializeOwned>(
        &self,
        session: &Session,
        path: &str,
        narrowed: &[(&str, Option<String>)],
    ) -> anyhow::Result<Listing<T>> {
        let workspace = ("workspaceId", session.workspace(&self.place).await?.map(|id| id.to_string()));
        let given = narrowed.iter().chain([&workspace]);
        let query: Vec<(&str, &str)> = given.filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        self.paging.fetch(session, path, &query).await
    }
}

/// One answer of several.
fn whole(mut bodies: Vec<String>, next: Option<&str>) -> anyhow::Result<String> {
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
    /// As one answer of the server.
    pub(crate) fn into_answer(self) -> Answer<Page<T>> {
        Answer { value: Page { items: self.items, next_cursor: self.next_cursor }, body: self.body }
    }

    /// Shows the list, and says whether there is more.
    pub(crate) fn show(
        &self,
        session: &Session,
        head: &[&str],
        row: impl Fn(&T) -> Vec<output::Cell>,
    ) -> anyhow::Result<()> {
        match session.format {
            Format::Json => output::json(&self.body, session.stdout)?,
            Format::Table => output::table(head, self.items.iter().map(row).collect(), session.stdout)?,
        }
        match &self.next_cursor {
            Some(next) => session.tell(format!("There are more: add --all, or --cursor {}", output::clean(next))),
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
        assert_eq!(whole(vec![page.clone()], Some("a"))?, page);
        let last = r#"{"items":[3]}"#.to_owned();
        assert_eq!(whole(vec![page.clone(), last], None)?, r#"{"items":[1,2,3]}"#);
        assert_eq!(whole(vec![page.clone(), page], Some("b"))?, r#"{"items":[1,2,1,2],"nextCursor":"b"}"#);
        Ok(())
    }
}
