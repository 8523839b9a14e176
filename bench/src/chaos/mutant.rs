//! Wrong versions of the service. The judge must detect each, which proves that it can.
//!
//! Every run of `strict`, mutant or not, installs one thing in the database: records can be delayed (`late.sql`). So
//! the last record of a paused process arrives after its successor has begun.
//!
//! Invariants
//! - A mutant changes only the run's own database, what its engine is asked or answers, or a setting; texts are changed
//!   where they say what is expected, or not at all.
//! - The schedule of a mutant's run is the one of a run without it, except for its end: the run stops once the break
//!   has been found.

use std::time::Duration;

use anyhow::{Context, ensure};
use store::connect::{Client, Target};
use tokio_util::sync::CancellationToken;

/// How long a mutated claim waits between its count and its commit.
const HOLD: &str = "0.04";
/// How often a run looks whether its mutant has been found already.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a wrong recovery looks.
const RECOVER_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutant {
    /// Claims take no lock.
    NoLock,
    /// The lock is taken inside the claim statement: its snapshot is older than the lock.
    LockInClaim,
    /// A limit changes without waiting for the claims of its shard.
    UnfencedLimit,
    /// A silent process's items go back to the queue: the slot is freed while the run may be alive.
    FreeOnTimeout,
    /// A fact is accepted from any process.
    NoClaimFence,
    /// The requests of a silent process are started again under new ids.
    NewIdOnRepeat,
    /// An unavailable engine is treated as one that refuses the item.
    RefusalOnOutage,
    /// A start may run again what has closed, and each start is a separate request.
    AllowDuplicates,
    /// A node that is performed again because its worker died counts as another attempt.
    CrashIsAttempt,
    /// A job can be ended under any earlier claim.
    UnfencedEnd,
    /// Forebay's own worker starts a job that another worker claimed in the meantime.
    UnguardedStart,
    /// A worker that died counts as a failure of its job.
    RecoveryCounts,
    /// Facts do not contain the result of a job.
    LossyFact,
    /// The finished items of a loop are forgotten when its run gets another owner.
    ForgottenItems,
    /// A wait accepts every answer, even if it has one. A token can be used again.
    ManyAnswers,
    /// A task can be ended under any earlier claim.
    UnfencedTask,
    /// A node that is performed again makes another child.
    TwinChildren,
    /// A full process releases its shards.
    FullLetsGo,
    /// A lock timeout while a node opens its wait is treated as an answer: a refusal of the data.
    TroubleIsAnswer,
    /// Workflows may call an address that is forbidden.
    OpenOutbound,
    /// A migration waits for its lock, and everybody waits behind it.
    MigrateWaits,
}

impl Mutant {
    /// Those that `strict` must find.
    pub const OF_STRICT: [Mutant; 6] = [
        Mutant::NoLock,
        Mutant::LockInClaim,
        Mutant::UnfencedLimit,
        Mutant::FreeOnTimeout,
        Mutant::NoClaimFence,
        Mutant::NewIdOnRepeat,
    ];
    /// Those that `outage` must find.
    pub const OF_OUTAGE: [Mutant; 1] = [Mutant::RefusalOnOutage];
    /// Those that `temporal` must find.
    pub const OF_TEMPORAL: [Mutant; 2] = [Mutant::AllowDuplicates, Mutant::CrashIsAttempt];
    /// Those that `mixed-workers` must find.
    pub const OF_MIXED: [Mutant; 4] =
        [Mutant::UnfencedEnd, Mutant::UnguardedStart, Mutant::RecoveryCounts, Mutant::LossyFact];
    /// Those that `long` must find.
    pub const OF_LONG: [Mutant; 4] =
        [Mutant::ForgottenItems, Mutant::ManyAnswers, Mutant::UnfencedTask, Mutant::TwinChildren];

    /// Those that `crowded` must find.
    pub const OF_CROWDED: [Mutant; 1] = [Mutant::FullLetsGo];
    /// Those that `strays` must find.
    pub const OF_STRAYS: [Mutant; 1] = [Mutant::TroubleIsAnswer];
    /// Those that `strangers` must find.
    pub const OF_STRANGERS: [Mutant; 1] = [Mutant::OpenOutbound];
    /// Those that `upgrade` must find.
    pub const OF_UPGRADE: [Mutant; 1] = [Mutant::MigrateWaits];

    pub fn name(self) -> &'static str {
        match self {
            Mutant::NoLock => "no-lock",
            Mutant::LockInClaim => "lock-in-claim",
            Mutant::UnfencedLimit => "unfenced-limit",
            Mutant::FreeOnTimeout => "free-on-timeout",
            Mutant::NoClaimFence => "no-claim-fence",
            Mutant::NewIdOnRepeat => "new-id-on-repeat",
            Mutant::RefusalOnOutage => "refusal-on-outage",
            Mutant::AllowDuplicates => "allow-duplicates",
            Mutant::CrashIsAttempt => "crash-is-attempt",
            Mutant::UnfencedEnd => "unfenced-end",
            Mutant::UnguardedStart => "unguarded-start",
            Mutant::RecoveryCounts => "recovery-counts",
            Mutant::LossyFact => "lossy-fact",
            Mutant::ForgottenItems => "forgotten-items",
            Mutant::ManyAnswers => "many-answers",
            Mutant::UnfencedTask => "unfenced-task",
            Mutant::TwinChildren => "twin-children",
            Mutant::FullLetsGo => "full-lets-go",
            Mutant::TroubleIsAnswer => "trouble-is-answer",
            Mutant::OpenOutbound => "open-outbound",
            Mutant::MigrateWaits => "migrate-waits",
        }
    }

    /// Breaks the run's database in this mutant's way.
    async fn apply(self, client: &Client) -> anyhow::Result<()> {
        let text = match self {
            Mutant::NoLock => replaced("claim", &[LOCK, TRY_LOCK, HELD])?,
            Mutant::LockInClaim => replaced("claim", &[LOCK, TRY_LOCK, LATE, AFTER_LATE, HELD])?,
            Mutant::UnfencedLimit => {
                let claim = replaced("claim", &[HELD])?;
                format!("{claim}\n{}", fences("DISABLE"))
            }
            Mutant::NoClaimFence => {
                let record = replaced("record", &[LATE_RECORD, OWNED])?;
                format!(
                    "{record}\n{}",
                    replaced("begin", &[(GRANTED, "WHEN stored.status = 'RUNNING' THEN 'granted'")])?
                )
            }
            Mutant::FreeOnTimeout => include_str!("../../sql/free_on_timeout.sql").to_owned(),
            Mutant::NewIdOnRepeat => include_str!("../../sql/new_id_on_repeat.sql").to_owned(),
            Mutant::CrashIsAttempt => replaced("node", &[TAKEN_AGAIN])?,
            Mutant::UnfencedEnd => replaced("job_workers", &[SHOWN, NOT_OURS])?,
            Mutant::UnguardedStart => replaced("jobs", &[STILL_PENDING])?,
            Mutant::RecoveryCounts => replaced("job", &[COUNTED_ALREADY])?,
            Mutant::LossyFact => replaced("job", &[CHANGE_COLUMNS])?,
            Mutant::ForgottenItems => include_str!("../../sql/forgotten_items.sql").to_owned(),
            Mutant::ManyAnswers => replaced("wait", &[STILL_OPEN, STILL_OPEN_ROW, USED])?,
            Mutant::UnfencedTask => replaced("task", &[SHOWN_CLAIM, SHOWN_CLAIM_ROW])?,
            Mutant::TwinChildren => {
                format!("DROP INDEX forebay.workflow_execution_child;\n{}", replaced("child", &[FOUND_CHILD])?)
            }
            Mutant::FullLetsGo => replaced("heartbeat", &[DISPATCHES, TAKES_SHARDS])?,
            // These mutants change nothing in the database.
            Mutant::RefusalOnOutage
            | Mutant::AllowDuplicates
            | Mutant::TroubleIsAnswer
            | Mutant::OpenOutbound
            | Mutant::MigrateWaits => String::new(),
        };
        client.batch_execute(&text).await.with_context(|| format!("apply the mutant {}", self.name()))
    }

    /// Runs this mutant's recovery, if it has one, until stopped.
    pub(super) async fn recover(self, target: Target, silent: Duration, stop: CancellationToken) -> anyhow::Result<()> {
        if !matches!(self, Mutant::FreeOnTimeout | Mutant::NewIdOnRepeat) {
            return Ok(());
        }
        let client = target.connect().await?;
        while !stop.is_cancelled() {
            tokio::time::sleep(RECOVER_EVERY).await;
            // A deadlock with the service is as wrong as the rest, and is ignored.
            let _wrong = client.query("SELECT chaos_recover($1)", &[&silent.as_secs_f64()]).await;
        }
        Ok(())
    }
}

/// Lets records arrive late, and applies the mutant's change, if there is one.
pub(super) async fn prepare(client: &Client, mutant: Option<Mutant>) -> anyhow::Result<()> {
    let record = replaced("record", &[LATE_RECORD])?;
    let late = format!("{}\n{record}", include_str!("../../sql/late.sql"));
    client.batch_execute(&late).await.context("let records arrive late")?;
    mutate(client, mutant).await
}

/// Applies the mutant's change to the database, if there is one.
pub(super) async fn mutate(client: &Client, mutant: Option<Mutant>) -> anyhow::Result<()> {
    match mutant {
        Some(mutant) => mutant.apply(client).await,
        None => Ok(()),
    }
}

/// Restores every function.
pub(super) async fn whole(client: &Client) -> anyhow::Result<()> {
    let functions = store::migrate::FUNCTIONS.iter().chain(&store::migrate::SHARED);
    let functions: String = functions.map(|(_, text)| format!("{text}\n")).collect();
    client.batch_execute(&functions).await.context("restore the functions")
}

/// Restores the database, so that the run can end.
pub(super) async fn restore(client: &Client) -> anyhow::Result<()> {
    client.batch_execute("DELETE FROM chaos_late").await.context("let every record arrive")?;
    whole(client).await?;
    client.batch_execute(&fences("ENABLE")).await.context("restore the fences")
}

const LATE_RECORD: (&str, &str) = (
    "BEGIN\n    -- Rows are changed below",
    "BEGIN\n    PERFORM forebay.chaos_arrive();\n    -- Rows are changed below",
);
/// Both ways to the lock: to wait for it, and to ask for several.
const LOCK: (&str, &str) = ("PERFORM pg_advisory_xact_lock(forebay.lock_shard(), v_shards[1]);", "NULL;");
const TRY_LOCK: (&str, &str) = ("WHERE pg_try_advisory_xact_lock(forebay.lock_shard(), shard)", "");
const LATE: (&str, &str) = (
    "WITH workspaces AS MATERIALIZED (",
    "WITH late AS MATERIALIZED (SELECT max(pg_advisory_xact_lock(forebay.lock_shard(), shard)::text) AS held FROM \
     unnest(v_shards) AS shard),\n    workspaces AS MATERIALIZED (",
);
const AFTER_LATE: (&str, &str) =
    ("FROM unnest(p_workspaces, p_wanted)", "FROM late CROSS JOIN unnest(p_workspaces, p_wanted)");
/// Between the count and the update, so that the log shows in which order they came.
const HELD: (&str, &str) = (
    "candidates AS MATERIALIZED (\n        SELECT next.* FROM workspaces CROSS JOIN LATERAL (",
    "hold AS MATERIALIZED (SELECT pg_sleep(HOLD)::text AS held FROM (SELECT count(*) FROM workspaces) counted),\n    \
     candidates AS MATERIALIZED (\n        SELECT next.* FROM hold CROSS JOIN workspaces CROSS JOIN LATERAL (",
);
const OWNED: (&str, &str) = (
    "execution.owner = coalesce(p_process, execution.owner)\n              AND execution.owner_epoch = run.epoch AND \
     execution.status = 'RUNNING'\n              FOR UPDATE",
    "execution.status = 'RUNNING'\n              FOR UPDATE",
);
const TAKEN_AGAIN: (&str, &str) = ("attempt = greatest(node.attempt, 1)", "attempt = node.attempt + 1");
/// Whatever claim is shown, it is taken for the one that holds the job.
const SHOWN: (&str, &str) = (
    "forebay_r1.job_claim_state(p_id, p_workspace, p_claim);\nBEGIN\n    IF v_state = 'held' THEN\n        PERFORM \
     forebay_r1.finish_job",
    "forebay_r1.job_claim_state(p_id, p_workspace, (SELECT claim_id FROM forebay.workflow_queue_job WHERE id = \
     p_id));\nBEGIN\n    IF v_state = 'held' THEN\n        PERFORM forebay_r1.finish_job",
);
const NOT_OURS: (&str, &str) = (" OR v_job.claimed_via = 'projector' THEN 'lost'", " THEN 'lost'");
const STILL_PENDING: (&str, &str) = (
    "projection.status = 'pending' AND projection.retry_count = requested.retries",
    "projection.retry_count = requested.retries",
);
const COUNTED_ALREADY: (&str, &str) = (
    "p_new.result := NULL;\n        -- A retry",
    "p_new.result := NULL;\n        p_new.retry_count := p_old.retry_count + CASE p_old.status WHEN 'processing' THEN \
     1 ELSE 0 END;\n        -- A retry",
);
const CHANGE_COLUMNS: (&str, &str) =
    ("'{id,event_id,event_type,event_data,", "'{result,id,event_id,event_type,event_data,");
const STILL_OPEN: (&str, &str) = (
    "WHEN v_wait.status = 'OPEN' THEN coalesce(v_refusal, 'accepted')",
    "WHEN v_wait.status IN ('OPEN', 'ANSWERED', 'RECEIVED') THEN 'accepted'",
);
const STILL_OPEN_ROW: (&str, &str) = (
    "answered_at = clock_timestamp(), recheck = false
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND wait.status = 'OPEN' AND v_result = 'accepted';",
    "answered_at = clock_timestamp(), recheck = false, read_at = NULL
         WHERE wait.execution_id = p_execution AND wait.node = p_node AND wait.iteration = p_iteration
           AND v_result = 'accepted';",
);
const USED: (&str, &str) = (" WHEN v_token.used_at IS NOT NULL THEN 'token_used'", "");
const SHOWN_CLAIM: (&str, &str) = (
    "WHEN v_wait.claim_id = p_claim AND v_wait.status = 'CLAIMED' AND v_lives",
    "WHEN v_wait.status = 'CLAIMED' AND v_lives",
);
const SHOWN_CLAIM_ROW: (&str, &str) = (
    "WHERE wait.id = p_task AND wait.status = 'CLAIMED' AND wait.claim_id = p_claim AND v_result = 'accepted'",
    "WHERE wait.id = p_task AND wait.status = 'CLAIMED' AND v_result = 'accepted'",
);
const FOUND_CHILD: (&str, &str) =
    ("AND child.parent_attempt = p_attempt;", "AND child.parent_attempt = p_attempt AND p_definition IS NULL;");
const DISPATCHES: (&str, &str) = ("dispatching = p_dispatches,", "dispatching = p_dispatches AND p_has_room,");
const TAKES_SHARDS: (&str, &str) = ("IF p_dispatches THEN", "IF p_dispatches AND p_has_room THEN");
const GRANTED: &str = "WHEN stored.status = 'RUNNING' AND stored.owner = p_process THEN 'granted'";

/// A function's text with each needle replaced; each must be there exactly once.
fn replaced(function: &str, changes: &[(&str, &str)]) -> anyhow::Result<String> {
    let (_, text) = store::migrate::FUNCTIONS
        .iter()
        .chain(&store::migrate::SHARED)
        .find(|(name, _)| *name == function)
        .with_context(|| format!("there is no function {function}"))?;
    let mut text = (*text).to_owned();
    for (needle, instead) in changes {
        ensure!(text.matches(needle).count() == 1, "{function}.sql no longer says: {needle}");
        text = text.replace(needle, &instead.replace("HOLD", HOLD));
    }
    Ok(text)
}

fn fences(verb: &str) -> String {
    ["workspace", "workflow_definition", "tier"]
        .map(|table| format!("ALTER TABLE forebay.{table} {verb} TRIGGER lock_limit_change;"))
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_needle_is_in_the_text_it_is_to_change() {
        replaced("claim", &[LOCK, TRY_LOCK, LATE, AFTER_LATE, HELD]).expect("the claim");
        replaced("record", &[LATE_RECORD, OWNED]).expect("the record");
        replaced("begin", &[(GRANTED, "")]).expect("the begin");
        replaced("node", &[TAKEN_AGAIN]).expect("the node");
        replaced("job_workers", &[SHOWN, NOT_OURS]).expect("workers");
        replaced("jobs", &[STILL_PENDING]).expect("the projector");
        replaced("job", &[COUNTED_ALREADY, CHANGE_COLUMNS]).expect("the job");
        replaced("wait", &[STILL_OPEN, STILL_OPEN_ROW, USED]).expect("the wait");
        replaced("task", &[SHOWN_CLAIM, SHOWN_CLAIM_ROW]).expect("the task");
        replaced("child", &[FOUND_CHILD]).expect("the child");
        replaced("heartbeat", &[DISPATCHES, TAKES_SHARDS]).expect("the heartbeat");
    }
}
