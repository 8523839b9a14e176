//! The sorts of poison: their definitions, and the reason each must end with.

use anyhow::Context;
use serde_json::{Value, json};
use store::connect::Client;
use uuid::Uuid;

use crate::receiver::Receiver;

/// The text that makes a build with the feature `test-engine` panic.
const PANIC: &str = "forebay-test-panic";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poison {
    /// Its output contains a NUL.
    Nul,
    /// Its graph was stored by hand, and is invalid.
    Graph,
    /// Its node panics.
    Panic,
    /// Its process is killed each time it runs.
    Killer,
}

impl Poison {
    pub(super) const ALL: [Poison; 4] = [Poison::Nul, Poison::Graph, Poison::Panic, Poison::Killer];

    pub(super) fn name(self) -> &'static str {
        match self {
            Poison::Nul => "nul",
            Poison::Graph => "graph",
            Poison::Panic => "panic",
            Poison::Killer => "killer",
        }
    }

    /// The failure class it must end with.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Poison::Nul => "UNSTORABLE_OUTPUT",
            Poison::Graph => "BAD_GRAPH",
            Poison::Panic => "PANICKED",
            Poison::Killer => "CRASH_LOOP",
        }
    }

    pub(super) fn document(self, receiver: &Receiver) -> Value {
        let call = |path: &str| {
            json!({ "kind": "HTTP_REQUEST", "with": { "url": receiver.url(path) },
            "retry": { "max_attempts": 1 } })
        };
        let node = match self {
            Poison::Nul => call("/nul"),
            // A valid graph, which `spoil` makes invalid after it was published.
            Poison::Graph => json!({ "kind": "LOG", "with": { "message": "hello" } }),
            Poison::Panic => call(&format!("/{PANIC}")),
            Poison::Killer => call("/deadly"),
        };
        json!({ "version": 1, "name": self.name(), "nodes": { "poison": node } })
    }

    /// Stores an invalid graph by hand, because publishing would refuse it.
    pub(super) async fn spoil(self, client: &Client, definition: Uuid) -> anyhow::Result<()> {
        if self == Poison::Graph {
            let sql = "UPDATE workflow_definition_version SET graph = '{\"nodes\": [{\"key\": \"a\"}]}' WHERE \
                workflow_definition_id = $1";
            client.execute(sql, &[&definition]).await.context("spoil a graph")?;
        }
        Ok(())
    }
}
