//! The peers that are measured: their programs, what they keep, and how they limit a tenant.
//!
//! Not here: what their programs do (`bench/peers`).

use serde_json::{Value, json};

/// How many jobs of a tenant may run, in the parts where a tenant has a limit.
pub(super) const LIMIT: usize = 5;

/// The language of a peer's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Node,
    Python,
    Rust,
}

/// What a peer offers to limit the running jobs of one tenant over all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TenantLimit {
    /// Any number.
    Any,
    /// Jobs of a tenant can only run one after the other.
    One,
    /// Nothing: a worker limits only itself.
    Nothing,
}

/// Another queue on PostgreSQL.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) language: Language,
    /// The file of its program, or its name for the program in Rust.
    pub(super) program: &'static str,
    /// Whether a job that has ended is still stored, with its outcome.
    pub(super) keeps_history: bool,
    pub(super) limit: TenantLimit,
    /// Which of its means limits a tenant.
    pub(super) means: &'static str,
    /// How many jobs run at a time when it works in batches.
    pub(super) fast: usize,
    /// How many jobs run at a time when it fetches them one by one: the number with which it picks jobs up soonest.
    pub(super) steady: usize,
    /// Its settings where throughput is measured.
    pub(super) settings: &'static str,
    /// Whether any job has not ended.
    pub(super) left: &'static str,
}

impl Peer {
    /// The options of a worker. Batches are for throughput.
    pub(super) fn work(&self, is_fast: bool) -> Value {
        json!({ "batches": is_fast, "concurrency": if is_fast { self.fast } else { self.steady } })
    }
}

const GRAPHILE_LEFT: &str = "SELECT EXISTS (SELECT 1 FROM graphile_worker._private_jobs)";

pub(super) static PEERS: [Peer; 7] = [
    Peer {
        name: "graphile_worker (Rust)",
        language: Language::Rust,
        program: "graphile_worker",
        keeps_history: false,
        limit: TenantLimit::One,
        means: "queue name",
        fast: 100,
        steady: 10,
        settings: "local queue of 1,000, completions gathered for 5 ms, 100 at a time",
        left: GRAPHILE_LEFT,
    },
    Peer {
        name: "graphile-worker",
        language: Language::Node,
        program: "graphile-worker.mjs",
        keeps_history: false,
        limit: TenantLimit::One,
        means: "queue name",
        fast: 100,
        steady: 10,
        settings: "local queue of 1,000, completions gathered for 5 ms, 100 at a time",
        left: GRAPHILE_LEFT,
    },
    Peer {
        name: "pg-boss",
        language: Language::Node,
        program: "pg-boss.mjs",
        keeps_history: true,
        limit: TenantLimit::Any,
        means: "group concurrency",
        fast: 4,
        steady: 4,
        settings: "notifications, 4 local workers with batches of 2,000",
        left: "SELECT EXISTS (SELECT 1 FROM pgboss.job WHERE state IN ('created', 'retry', 'active'))",
    },
    Peer {
        name: "apalis",
        language: Language::Rust,
        program: "apalis",
        keeps_history: true,
        limit: TenantLimit::Nothing,
        means: "none over processes",
        fast: 1_000,
        steady: 10,
        settings: "notifications, polled every 100 ms, batches of 1,000, 1,000 at a time",
        left: "SELECT EXISTS (SELECT 1 FROM apalis.jobs WHERE status IN ('Pending', 'Queued', 'Running'))",
    },
    Peer {
        name: "PgQueuer",
        language: Language::Python,
        program: "run_pgqueuer.py",
        keeps_history: true,
        limit: TenantLimit::Any,
        means: "concurrency limit of an entrypoint",
        fast: 1_000,
        steady: 10,
        settings: "asyncpg, uvloop, batches of 1,000",
        left: "SELECT EXISTS (SELECT 1 FROM public.pgqueuer)",
    },
    Peer {
        name: "Procrastinate",
        language: Language::Python,
        program: "run_procrastinate.py",
        keeps_history: true,
        limit: TenantLimit::One,
        means: "lock",
        fast: 20,
        steady: 10,
        settings: "psycopg, uvloop, 20 at a time",
        left: "SELECT EXISTS (SELECT 1 FROM public.procrastinate_jobs WHERE status IN ('todo', 'doing'))",
    },
    Peer {
        name: "DBOS (TypeScript)",
        language: Language::Node,
        program: "dbos.mjs",
        keeps_history: true,
        limit: TenantLimit::Any,
        means: "partition concurrency",
        fast: 500,
        steady: 20,
        settings: "polled every 10 ms, 500 at a time",
        left: "SELECT EXISTS (SELECT 1 FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING'))",
    },
];
