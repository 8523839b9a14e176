//! The database itself refuses rows whose columns do not match their status.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::support::World;

/// Sets columns of the one row, and returns whether the schema allowed it. Rolls back.
async fn allowed(client: &Client, table: &str, set: &str) -> bool {
    let statement = format!("BEGIN; UPDATE {table} SET {set}");
    let done = client.batch_execute(&statement).await;
    client.batch_execute("ROLLBACK").await.expect("a rollback");
    match done {
        Ok(()) => true,
        Err(error) if error.code() == Some(&SqlState::CHECK_VIOLATION) => false,
        Err(error) => panic!("{set}: {error:?}"),
    }
}

async fn check(table: &str, legal: &[&str], illegal: &[&str]) {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let execution = world.accept_many(workspace, definition, 1).await[0];
    world
        .run_sql(
            "INSERT INTO workflow_execution_node (execution_id, node, workspace_id, status) VALUES ($1, 'a', $2, 'RUNNING')",
            &[&execution.0, &workspace.0],
        )
        .await;
    for set in legal {
        assert!(allowed(&world.client, table, set).await, "{table}: {set} is legal");
    }
    for set in illegal {
        assert!(!allowed(&world.client, table, set).await, "{table}: {set} is illegal");
    }
}

#[tokio::test]
async fn a_queue_item_has_exactly_the_columns_of_its_status() {
    const CLAIM: &str =
        "claim_number = 1, claim_id = gen_random_uuid(), claimed_by = gen_random_uuid(), claimed_at = now()";
    let claimed = format!("status = 'CLAIMED', stage = 5, {CLAIM}");
    let dispatched = format!("status = 'DISPATCHED', stage = 5, {CLAIM}, dispatched_at = now()");
    let legal = [
        "stage = 0",
        "stage = 1",
        "stage = 2, concurrency_key = 'k'",
        "stage = 3",
        &claimed,
        &dispatched,
        &format!("{dispatched}, owner = gen_random_uuid()"),
        "status = 'FAILED', stage = 9, last_error = 'x'",
        "priority = 1",
        "priority = 5",
    ];
    let illegal = [
        "stage = 2",
        "stage = 4",
        "stage = 5",
        "stage = 9",
        "claim_number = 1",
        "claim_id = gen_random_uuid()",
        "claimed_by = gen_random_uuid()",
        "claimed_at = now()",
        "dispatched_at = now()",
        "status = 'CLAIMED'",
        "status = 'CLAIMED', stage = 5",
        "status = 'CLAIMED', stage = 5, claim_number = 1, claim_id = gen_random_uuid(), claimed_by = gen_random_uuid()",
        "status = 'CLAIMED', stage = 5, claim_number = 1, claim_id = gen_random_uuid(), claimed_at = now()",
        "status = 'CLAIMED', stage = 5, claim_number = 1, claimed_by = gen_random_uuid(), claimed_at = now()",
        &claimed.replace("stage = 5", "stage = 0"),
        &format!("{claimed}, dispatched_at = now()"),
        &dispatched.replace("stage = 5", "stage = 0"),
        &dispatched.replace(", dispatched_at = now()", ""),
        &dispatched.replace("claim_id = gen_random_uuid(), ", ""),
        &dispatched.replace("claim_number = 1, ", ""),
        &dispatched.replace("claim_number = 1", "claim_number = 0"),
        &dispatched.replace(", claimed_at = now()", ""),
        "status = 'FAILED', stage = 9",
        "status = 'FAILED', stage = 5, last_error = 'x'",
        "status = 'FAILED', last_error = 'x'",
        "status = 'GONE'",
        "status = 'pending'",
        "priority = 0",
        "priority = 6",
        "owner = gen_random_uuid()",
        &format!("{claimed}, owner = gen_random_uuid()"),
        "status = 'FAILED', stage = 9, last_error = 'x', owner = gen_random_uuid()",
    ];
    check("execution_queue", &legal, &illegal).await;
}

#[tokio::test]
async fn an_execution_has_exactly_the_columns_of_its_status() {
    let running = "status = 'RUNNING', started_at = now(), engine = 'embedded', owner = gen_random_uuid()";
    let legal = [
        running,
        "status = 'RUNNING', started_at = now(), engine = 'embedded'",
        "status = 'COMPLETED', completed_at = now()",
        "status = 'FAILED', completed_at = now()",
        "status = 'CANCELED', completed_at = now()",
        "status = 'TIMED_OUT', completed_at = now()",
        "idempotency_key = 'k', fingerprint = 'x'",
    ];
    let illegal = [
        "started_at = now()",
        "completed_at = now()",
        "owner = gen_random_uuid()",
        "status = 'RUNNING'",
        "status = 'RUNNING', started_at = now()",
        "status = 'RUNNING', engine = 'embedded'",
        &format!("{running}, completed_at = now()"),
        "status = 'COMPLETED'",
        "status = 'FAILED'",
        "status = 'CANCELED'",
        "status = 'TIMED_OUT'",
        "status = 'COMPLETED', completed_at = now(), owner = gen_random_uuid()",
        "status = 'DONE', completed_at = now()",
        "idempotency_key = 'k'",
        "fingerprint = 'x'",
    ];
    check("workflow_execution", &legal, &illegal).await;
}

#[tokio::test]
async fn a_node_has_a_sequence_number_exactly_when_it_has_settled() {
    let settled = ["COMPLETED", "FAILED", "SKIPPED", "CANCELED", "UNKNOWN"];
    let legal: Vec<String> = settled
        .iter()
        .map(|status| format!("status = '{status}', completed_at = now(), seq = 1"))
        .chain(["status = 'PENDING'".to_owned(), "status = 'RETRYING', next_at = now()".to_owned()])
        .collect();
    let illegal: Vec<String> = settled
        .iter()
        .flat_map(|status| {
            [
                format!("status = '{status}'"),
                format!("status = '{status}', completed_at = now()"),
                format!("status = '{status}', seq = 1"),
            ]
        })
        .chain(
            ["status = 'RETRYING'", "seq = 1", "completed_at = now(), seq = 1", "status = 'LOST'"].map(str::to_owned),
        )
        .collect();
    let texts = |list: &[String]| list.iter().map(|text| -> &'static str { text.clone().leak() }).collect::<Vec<_>>();
    check("workflow_execution_node", &texts(&legal), &texts(&illegal)).await;
}

#[tokio::test]
async fn a_definition_without_a_published_version_is_a_draft() {
    let legal =
        ["status = 'PAUSED'", "status = 'DRAFT'", "status = 'DRAFT', published_version = NULL", "concurrency = 0"];
    let illegal = [
        "published_version = NULL",
        "status = 'PAUSED', published_version = NULL",
        "status = 'GONE'",
        "concurrency = -1",
        "key_concurrency = -1",
        "max_attempts = 0",
        "name = ''",
    ];
    check("workflow_definition", &legal, &illegal).await;
}

#[tokio::test]
async fn a_workspace_has_positive_limits_and_weight() {
    let legal = ["limit_override = 0", "weight = 1", "weight = 100", "max_backlog = 0"];
    let illegal = ["limit_override = -1", "weight = 0", "weight = 101", "max_backlog = -1", "name = ''"];
    check("workspace", &legal, &illegal).await;
}
