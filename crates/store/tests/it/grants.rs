//! Programs with roles of their own: the rights that `docs/operations.md` lists are enough, and none of them is too much.

use std::fs;
use std::path::Path;

use tokio_postgres::Client;

use crate::support::{Limits, World};

/// One right, as it is granted and taken: `SELECT ON workspace`.
type Right = String;

/// The rights of the block that begins with this word.
fn rights(of: &str) -> Vec<Right> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = fs::read_to_string(page).expect("a page");
    let begin = format!("```sql\n-- {of}: ");
    let block = page.split(&begin).nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let mut rights = Vec::new();
    for line in block.lines().filter_map(|line| line.strip_prefix("GRANT ")) {
        let (what, rest) = line.split_once(" ON ").expect("rights");
        let tables = rest.strip_suffix(" TO shop;").expect("to whom");
        // Columns have commas of their own.
        let each: Vec<&str> = if what.contains('(') { vec![what] } else { what.split(", ").collect() };
        rights.extend(each.iter().flat_map(|right| tables.split(", ").map(move |table| format!("{right} ON {table}"))));
    }
    rights
}

/// Does what a program does, in a transaction that comes to nothing; what the database refused, if it did.
async fn tried(client: &mut Client, role: &str, statements: &[String]) -> Result<(), String> {
    let transaction = client.transaction().await.expect("a transaction");
    transaction.batch_execute(&format!("SET LOCAL ROLE {role}")).await.expect("a role");
    for statement in statements {
        let done = transaction.batch_execute(statement).await;
        done.map_err(|error| format!("{statement}: {}", error.as_db_error().map_or("", |error| error.message())))?;
    }
    Ok(())
}

/// All of it works with these rights, and not without any one of them.
async fn exactly(world: &World, of: &str, statements: &[String]) {
    let (rights, role) = (rights(of), format!("shop_{}", store::new_id().simple()));
    let mut client = world.database.client().await;
    client.batch_execute(&format!("CREATE ROLE {role}")).await.expect("a role");
    assert!(tried(&mut client, &role, statements).await.is_err(), "{of}: a role without rights");
    for right in &rights {
        client.batch_execute(&format!("GRANT {right} TO {role}")).await.expect(right);
    }
    assert_eq!(tried(&mut client, &role, statements).await, Ok(()), "{of}: with the rights of the page");
    for right in &rights {
        client.batch_execute(&format!("REVOKE {right} FROM {role}")).await.expect(right);
        assert!(tried(&mut client, &role, statements).await.is_err(), "{of}: nothing needs {right}");
        client.batch_execute(&format!("GRANT {right} TO {role}")).await.expect(right);
    }
    client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.expect("no role");
}

/// Fails if this does not hold.
fn holds(condition: &str) -> String {
    format!("DO $$ BEGIN ASSERT {condition}; END $$")
}

#[tokio::test]
async fn a_program_that_starts_executions_needs_the_rights_of_the_page_and_no_others() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let limited = world.definition(workspace, Limits { concurrency: Some(1), ..Limits::default() }).await;
    world.run_sql("UPDATE workspace SET max_backlog = 100 WHERE id = $1", &[&workspace.0]).await;
    let start = |definition: uuid::Uuid, more: &str| {
        format!("SELECT forebay_enqueue('{workspace}', '{definition}', '{{}}'{more})")
    };
    let statements = [
        start(definition.0, ""),
        start(definition.0, ", idempotency_key => 'a'"),
        start(definition.0, ", idempotency_key => 'a'"),
        start(definition.0, ", concurrency_key => 'k'"),
        start(definition.0, ", run_at => now() + interval '1 day'"),
        start(limited.0, ", priority => 1"),
    ];
    exactly(&world, "starts", &statements).await;
}

const BIND: &str = "INSERT INTO event_binding (id, workspace_id, event_type) VALUES (gen_random_uuid(), $1, 'order.*')";

fn event(of: &str, kind: &str) -> String {
    format!(
        "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
         VALUES ('{of}', gen_random_uuid(), 'order', 1, 'order.{kind}', '{{}}')"
    )
}

#[tokio::test]
async fn a_program_that_appends_events_needs_the_rights_of_the_page_and_no_others() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    world.run_sql(BIND, &[&workspace.0]).await;
    let poison = "ALTER TABLE workflow_queue_projection ADD CONSTRAINT poison CHECK (event_type <> 'order.poison')";
    world.client.batch_execute(poison).await.expect("a constraint");
    let of = workspace.to_string();
    let statements = [
        event(&of, "placed"),
        event(&of, "poison"),
        holds("(SELECT count(*) FROM workflow_queue_projection WHERE event_type = 'order.placed') = 1"),
        holds("(SELECT count(*) FROM domain_events WHERE processing_error LIKE '23514:%') = 1"),
    ];
    exactly(&world, "events", &statements).await;
}

#[tokio::test]
async fn a_program_that_works_on_jobs_needs_the_rights_of_the_page_and_no_others() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    world.run_sql(BIND, &[&workspace.0]).await;
    for kind in ["good", "bad"] {
        world.run_sql(&event(&workspace.to_string(), kind), &[]).await;
    }
    let update = |kind: &str, set: &str, from: &str| {
        format!(
            "UPDATE workflow_queue_projection SET {set}, updated_at = now() WHERE event_type = 'order.{kind}' AND status = '{from}' RETURNING *"
        )
    };
    let claim = "status = 'processing', worker_id = 'w', claimed_at = now()";
    let fail =
        "status = 'failed', failed_at = now(), error_message = 'no', error_stack = '', retry_count = retry_count + 1";
    let statements = [
        "SELECT * FROM workflow_queue_projection WHERE status = 'pending' ORDER BY created_at".to_owned(),
        update("good", claim, "pending"),
        update("good", "workflow_id = 'wf'", "processing"),
        update("good", "status = 'completed', completed_at = now(), result = '{}'", "processing"),
        update("bad", claim, "pending"),
        update("bad", fail, "processing"),
        update("bad", "status = 'pending'", "failed"),
        holds("(SELECT array_agg(status ORDER BY status) FROM workflow_queue_projection) = '{completed,pending}'"),
    ];
    exactly(&world, "jobs", &statements).await;
}
