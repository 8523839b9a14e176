//! Answers that arrive while a run opens a wait.

use engine::Engine;
use kernel::execution::Status;
use kernel::ids::NodeKey;
use serde_json::json;
use store::wait::WaitKey;

use crate::world::World;

/// A wait whose confirmation arrives late: the function waits for a lock, and then returns the status at its creation.
/// The test plays its creator.
const LATE: &str = "
ALTER FUNCTION forebay_r1.open_wait(uuid, uuid, bigint, uuid, text, int, uuid, int, text, text, text, text, float8, jsonb, float8) RENAME TO open_wait_now;
CREATE FUNCTION forebay_r1.open_wait(uuid, uuid, bigint, uuid, text, int, uuid, int, text, text, text, text, float8, jsonb, float8)
RETURNS TABLE (held boolean, status text, attempt int, expires_in_s float8, outcome text, output jsonb, error jsonb, answered_by text,
               answered_at timestamptz)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4242);
    RETURN QUERY SELECT true, 'OPEN', 1, NULL::float8, NULL::text, NULL::jsonb, NULL::jsonb, NULL::text, NULL::timestamptz;
END $$";

const ASK: &str = "SELECT a.status FROM workflow_execution e CROSS JOIN LATERAL forebay_r1.open_wait_now(e.id, e.owner, e.owner_epoch, e.id, 'ask', 0,
    e.workspace_id, 1, 'WAIT', NULL, NULL, NULL, NULL, '{}', NULL) a";

#[tokio::test]
async fn an_answer_that_is_read_while_its_wait_is_being_stored_is_not_lost() {
    let world = World::new().await;
    let client = world.database.client().await;
    client.batch_execute(LATE).await.expect("a late wait");
    client.batch_execute("SELECT pg_advisory_lock(4242)").await.expect("a lock");
    let definition = world.publish(&json!({ "nodes": { "ask": { "kind": "WAIT_FOR_EVENT" } } })).await;
    let id = world.enqueue(definition, json!(null)).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    world.until_count("pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").await;
    // The wait is created and answered, and the run polls, before the run knows that the wait is open.
    client.query_one(ASK, &[]).await.expect("a wait");
    let place = WaitKey { execution: id, node: NodeKey::new("ask").expect("a key"), iteration: 0 };
    world.database.store.answer(&place, None, &json!({ "n": 1 }), "key:test").await.expect("an answer");
    process.engine.signal(id);
    world.until_count("workflow_execution_wait WHERE status = 'RECEIVED'").await;
    client.batch_execute("SELECT pg_advisory_unlock(4242)").await.expect("unlocked");
    assert_eq!(world.ended(id).await.status, Status::Completed);
}
