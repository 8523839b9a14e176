//! Reads the log that the judge's triggers write, inside the transactions of the service.
//!
//! Not here: what the log proves (`judge`).

use std::collections::HashMap;

use anyhow::Context;
use store::connect::Client;
use tokio_postgres::Row;
use uuid::Uuid;

/// One event, in the order of the log.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) at: i64,
    pub(super) what: SlotChange,
}

/// The limits that an item counts against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitedItem {
    pub(super) item: Uuid,
    pub(super) workspace: Uuid,
    pub(super) definition: Uuid,
    pub(super) key: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotChange {
    Taken(LimitedItem),
    Freed(LimitedItem),
    Begun {
        execution: Uuid,
        owner: Option<Uuid>,
    },
    Owned {
        execution: Uuid,
        owner: Option<Uuid>,
    },
    Ended {
        execution: Uuid,
    },
    /// The execution went back to PENDING after it had begun.
    Rewound {
        execution: Uuid,
    },
    /// The execution changed after its end.
    Revived {
        execution: Uuid,
    },
    /// An attempt was counted.
    Attempt {
        execution: Uuid,
    },
    /// A process wrote an event of a run that it did not own.
    Zombie {
        execution: Uuid,
        name: String,
    },
    Workspace {
        id: Uuid,
        tier: String,
        limit: Option<i32>,
        closed: bool,
    },
    Definition {
        id: Uuid,
        concurrency: Option<i32>,
        key_concurrency: i32,
    },
    Tier {
        name: String,
        limit: i32,
    },
}

impl SlotChange {
    pub(super) fn is_limit(&self) -> bool {
        matches!(self, SlotChange::Workspace { .. } | SlotChange::Definition { .. } | SlotChange::Tier { .. })
    }
}

/// Installs the triggers. Call this function before creating the workspaces and definitions that the triggers must log.
pub(super) async fn install(client: &Client) -> anyhow::Result<()> {
    client.batch_execute(include_str!("../../sql/judge.sql")).await.context("install the judge's triggers")
}

/// The whole log, in order.
pub(super) async fn load(client: &Client) -> anyhow::Result<Vec<Entry>> {
    client.batch_execute("SET statement_timeout = 0").await?;
    let rows = client
        .query(
            "SELECT (extract(epoch FROM at) * 1000000)::bigint AS at, what, id, workspace, definition, key, name, \
             number,
                    other, owner FROM chaos_log ORDER BY seq",
            &[],
        )
        .await
        .context("read the judge's log")?;
    rows.iter().map(entry).collect()
}

/// The ids of each start of a process.
pub(super) async fn processes(client: &Client) -> anyhow::Result<HashMap<Uuid, String>> {
    let rows = client.query("SELECT id, name FROM chaos_process", &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

fn entry(row: &Row) -> anyhow::Result<Entry> {
    let id = || row.get::<_, Option<Uuid>>("id").unwrap_or_default();
    let owner = || row.get::<_, Option<Uuid>>("owner");
    let text = || row.get::<_, Option<String>>("name").unwrap_or_default();
    let number = || row.get::<_, Option<i32>>("number");
    let other = || row.get::<_, Option<i32>>("other").unwrap_or_default();
    let limited_item = || LimitedItem {
        item: id(),
        workspace: row.get::<_, Option<Uuid>>("workspace").unwrap_or_default(),
        definition: row.get::<_, Option<Uuid>>("definition").unwrap_or_default(),
        key: row.get("key"),
    };
    let what = match row.get::<_, &str>("what") {
        "taken" => SlotChange::Taken(limited_item()),
        "freed" => SlotChange::Freed(limited_item()),
        "begun" => SlotChange::Begun { execution: id(), owner: owner() },
        "owned" => SlotChange::Owned { execution: id(), owner: owner() },
        "ended" => SlotChange::Ended { execution: id() },
        "rewound" => SlotChange::Rewound { execution: id() },
        "revived" => SlotChange::Revived { execution: id() },
        "attempt" => SlotChange::Attempt { execution: id() },
        "zombie" => SlotChange::Zombie { execution: id(), name: text() },
        "workspace" => SlotChange::Workspace { id: id(), tier: text(), limit: number(), closed: other() != 0 },
        "definition" => SlotChange::Definition { id: id(), concurrency: number(), key_concurrency: other() },
        "tier" => SlotChange::Tier { name: text(), limit: number().unwrap_or_default() },
        what => anyhow::bail!("the log contains an unknown entry: {what:?}"),
    };
    Ok(Entry { at: row.get("at"), what })
}
