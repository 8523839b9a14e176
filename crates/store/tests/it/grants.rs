//! Other programs use the database with their own roles. For them, the rights that `docs/reference/operations.md` lists
//! are sufficient, and each right is necessary.

use std::fs;
use std::path::Path;

use tokio_postgres::Client;

use crate::support::{Limits, World};

/// One right, as it is granted and revoked: `SELECT ON workspace`.
type Right = String;

/// The rights of the block that begins with this word.
fn rights(of: &str) -> Vec<Right> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/operations.md");
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

/// Does what a program does, in a transaction that is rolled back; returns the database's refusal, if any.
async fn tried(client: &mut Client, role: &str, statements: &[String]) -> Result<(), String> {
    let transaction = client.transaction().await.expect("a transaction");
    transaction.batch_execute(&format!("SET LOCAL ROLE {role}")).await.expect("a role");
    for statement in statements {
        let done = transaction.batch_execute(statement).await;
        done.map_err(|error| format!("{statement}: {}", error.as_db_error().map_or("", |error| error.message())))?;
    }
    Ok(())
}

/// Everything works with these rights, and not without any one of them.
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
async fn a_program_that_starts_executions_needs_exactly_the_documented_rights() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let limited = world.definition(workspace, Limits { concurrency: Some(1), ..Limits::default() }).await;
    world.run_sql("UPDATE workspace SET max_backlog = 100 WHERE id = $1", &[&workspace.0]).await;
    let start = |definition: uuid::Uuid, more: &str| {
        format!("SELECT forebay.enqueue('{workspace}', '{definition}', '{{}}'{more})")
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
async fn a_program_that_appends_events_needs_exactly_the_documented_rights() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    world.run_sql(BIND, &[&workspace.0]).await;
    let poison = "ALTER TABLE workflow_queue_projection ADD CONSTRAINT poison CHECK (event_type <> 'order.poison')";
    world.client.batch_execute(poison).await.expect("a constraint");
    let of = workspace.to_string();
    let next = format!(
        "INSERT INTO domain_events (id, workspace_id, stream_id, stream_type, stream_version, event_type, event_data, event_metadata)
         SELECT gen_random_uuid(), '{of}', stream_id, stream_type, stream_version + 1, 'order.paid', '{{}}', '{{}}'
           FROM domain_events WHERE event_type = 'order.placed' RETURNING id, sequence"
    );
    let statements = [
        event(&of, "placed"),
        event(&of, "poison"),
        next,
        holds("(SELECT count(*) FROM domain_events WHERE event_type = 'workflow.queue.pending') = 2"),
        holds("(SELECT count(*) FROM domain_events WHERE processing_error LIKE '23514:%') = 1"),
    ];
    exactly(&world, "events", &statements).await;
}

#[tokio::test]
async fn a_program_that_works_on_jobs_needs_exactly_the_documented_rights() {
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

/// A role with every right listed on the page.
async fn worker(world: &World) -> String {
    let role = format!("shop_{}", store::new_id().simple());
    world.client.batch_execute(&format!("CREATE ROLE {role}")).await.expect("a role");
    for right in ["starts", "events", "jobs"].into_iter().flat_map(rights) {
        world.client.batch_execute(&format!("GRANT {right} TO {role}")).await.expect("a right");
    }
    role
}

/// A trigger of the role's own on a table of its own, which executes this.
fn in_a_trigger(statement: &str) -> Vec<String> {
    vec![
        "CREATE TEMP TABLE mine (n int)".to_owned(),
        format!(
            "CREATE FUNCTION pg_temp.mine() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN {statement}; RETURN NEW; END $f$"
        ),
        "CREATE TRIGGER mine BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION pg_temp.mine()".to_owned(),
        "INSERT INTO mine VALUES (1)".to_owned(),
    ]
}

const FACT: &str = "INSERT INTO domain_events (stream_id, stream_type, stream_version, event_type, event_data)
     VALUES (gen_random_uuid(), 'workflow_queue', 1, 'workflow.queue.pending', '{}')";

/// What a worker's role attempts, and the refusal.
fn forgeries(job: uuid::Uuid, other: uuid::Uuid) -> Vec<(Vec<String>, &'static str)> {
    let one = |statement: &str| vec![statement.to_owned()];
    let attached = |function: &str, like: &str| {
        let make = format!("CREATE TEMP TABLE mine (LIKE {like})");
        vec![make, format!("CREATE TRIGGER mine AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION {function}()")]
    };
    let ended = "UPDATE workflow_queue_projection SET status = 'completed', result = '{}'";
    vec![
        (
            one(
                "INSERT INTO activity (actor, action, subject_type, subject_id) VALUES ('key:x', 'workspace.delete', 'workspace', gen_random_uuid())",
            ),
            "permission denied",
        ),
        (
            one("INSERT INTO change_log (topic, op, refs, workspaces) VALUES ('execution', 'UPDATE', '{}', '{}')"),
            "permission denied",
        ),
        (one("INSERT INTO execution_queue (id) SELECT gen_random_uuid()"), "permission denied"),
        (one(&format!("UPDATE workflow_queue_job SET workspace_id = '{other}'")), "permission denied"),
        (one("UPDATE domain_events SET processing_error = 'x', processing_failed_at = now()"), "permission denied"),
        (
            one(
                "INSERT INTO domain_events (stream_id, stream_type, stream_version, event_type, event_data, created_at)
              VALUES (gen_random_uuid(), 's', 1, 'a.b', '{}', 'epoch')",
            ),
            "permission denied",
        ),
        (one("UPDATE workflow_queue_projection SET event_id = gen_random_uuid()"), "permission denied"),
        (one("INSERT INTO workflow_queue_projection SELECT * FROM workflow_queue_projection"), "permission denied"),
        (one("SELECT * FROM event_secret"), "permission denied"),
        (one("SELECT forebay_r1.derived_event_id(NULL, gen_random_uuid())"), "permission denied"),
        (one(FACT), "reserved for the queue"),
        (in_a_trigger(FACT), "reserved for the queue"),
        (attached("forebay.log_projection", "workflow_queue_projection"), "permission denied"),
        (attached("forebay.job_changed", "workflow_queue_projection"), "permission denied"),
        (attached("forebay.fold_new_event", "domain_events"), "permission denied"),
        (attached("forebay.add_event_candidate", "domain_events"), "permission denied"),
        (
            vec!["SET LOCAL forebay.projection = 'rebuild'".to_owned(), format!("{ended} WHERE status = 'pending'")],
            "claim it first",
        ),
        (
            vec![
                format!(
                    "SELECT set_config('forebay.claim', workflow_run_id, true) FROM workflow_queue_projection WHERE id = '{job}'"
                ),
                format!("{ended} WHERE id = '{job}'"),
            ],
            "claimed by host-1",
        ),
    ]
}

#[tokio::test]
async fn a_role_with_the_documented_rights_can_forge_nothing() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let other = world.workspace("PRO").await;
    world.store.bind(Some(workspace), Some(definition), &crate::events::rule("ours.*"), "test").await.expect("bound");
    world.run_sql(BIND, &[&workspace.0]).await;
    let ours = format!(
        "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
         VALUES ('{workspace}', gen_random_uuid(), 'order', 1, 'ours.placed', '{{}}')"
    );
    world.run_sql(&ours, &[]).await;
    let begins = crate::jobs::begins(&world.store, crate::jobs::start).await;
    world.store.begin_jobs(&begins, "host-1", None).await.expect("the projector has it");
    world.run_sql(&event(&workspace.to_string(), "waits"), &[]).await;
    let role = worker(&world).await;
    let mut client = world.database.client().await;
    for (statements, outcome) in forgeries(begins[0].job, other.0) {
        let refused = tried(&mut client, &role, &statements).await.expect_err(&statements[statements.len() - 1]);
        assert!(refused.contains(outcome), "{refused}");
    }
    client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.expect("no role");
}

#[tokio::test]
async fn temporary_tables_do_not_shadow_ours() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.run_sql(BIND, &[&workspace.0]).await;
    let role = worker(&world).await;
    let mut statements: Vec<String> = [
        "event_binding",
        "workflow_queue_job",
        "change_log",
        "workspace",
        "activity",
        "workflow_execution",
        "pg_class",
    ]
    .map(|table| format!("CREATE TEMP TABLE {table} (id uuid, workspace_id uuid, relowner oid, oid oid)"))
    .to_vec();
    statements.push("SET LOCAL search_path = pg_temp, forebay, public, pg_catalog".to_owned());
    statements.push(event(&workspace.to_string(), "placed"));
    statements.push(holds("(SELECT count(*) FROM workflow_queue_projection) = 1"));
    statements.push("UPDATE workflow_queue_projection SET status = 'processing', worker_id = 'w'".to_owned());
    statements.push(format!("SELECT forebay.enqueue('{workspace}', '{definition}', '{{}}')"));
    for table in ["workflow_queue_job", "change_log", "activity", "workflow_execution"] {
        statements.push(holds(&format!("(SELECT count(*) FROM pg_temp.{table}) = 0")));
    }
    let mut client = world.database.client().await;
    assert_eq!(tried(&mut client, &role, &statements).await, Ok(()));
    // Committed this time: the audit row names the role.
    let start = format!("SET ROLE {role}; SELECT forebay.enqueue('{workspace}', '{definition}', '{{}}'); RESET ROLE");
    client.batch_execute(&start).await.expect("a start");
    assert_eq!(world.count(&format!("audit WHERE actor = 'sql:{role}' AND action = 'execution.start'")).await, 1);
    client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.expect("no role");
}

/// A schema with our names and other functions.
const HOSTILE: &str = "
    CREATE SCHEMA hostile;
    CREATE TABLE hostile.workspace (id uuid, tier text);
    CREATE TABLE hostile.workflow_definition (id uuid);
    CREATE TABLE hostile.workflow_execution (id uuid);
    CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
";

#[tokio::test]
async fn a_start_by_sql_does_not_depend_on_the_search_path() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.client.batch_execute(HOSTILE).await.expect("a schema");
    let role = format!("shop_{}", store::new_id().simple());
    let right = format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA hostile TO {role}; GRANT EXECUTE ON FUNCTION forebay.enqueue TO {role}"
    );
    world.client.batch_execute(&right).await.expect("a role");
    let mut client = world.database.client().await;
    for path in ["''", "hostile", "hostile, pg_catalog, forebay, public", "pg_temp, hostile"] {
        let keyed = format!("SELECT forebay.enqueue('{workspace}', '{definition}', '{{}}', concurrency_key => 'k')");
        let statements = [format!("SET LOCAL search_path = {path}"), keyed];
        assert_eq!(tried(&mut client, &role, &statements).await, Ok(()), "with the path {path}");
    }
    client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.expect("no role");
}

#[tokio::test]
async fn our_functions_are_closed_to_public_and_security_definers_have_a_fixed_path() {
    let world = World::new().await;
    let ours = "pg_proc p WHERE p.pronamespace IN ('forebay'::regnamespace, 'forebay_r1'::regnamespace)";
    let open = format!("{ours} AND has_function_privilege('public', p.oid, 'EXECUTE')");
    assert_eq!(world.count(&open).await, 0, "functions that anybody may call");
    let loose = format!(
        "{ours} AND p.prosecdef AND NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)"
    );
    assert_eq!(world.count(&loose).await, 0, "functions with rights and without a fixed search path");
    assert!(world.count(&format!("{ours} AND p.prosecdef")).await >= 6);
}
