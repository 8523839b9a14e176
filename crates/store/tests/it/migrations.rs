//! The first process creates the schema, once. The schema equals `schema.sql`.

use std::path::{Path, PathBuf};
use std::process::Command;

use kernel::queue::Stage;
use store::migrate::{MigrateError, Report, migrate};
use store::testing::Database;

use crate::support::World;

#[tokio::test]
async fn five_processes_migrate_at_once_and_one_does_it() {
    let database = Database::empty().await;
    let at = || migrate(&database.target);
    let (a, b, c, d, e) = tokio::join!(at(), at(), at(), at(), at());
    let mut applied: Vec<usize> = [a, b, c, d, e].map(|done| done.expect("a migration").applied.len()).to_vec();
    applied.sort_unstable();
    let all = std::fs::read_dir(root().join("migrations")).expect("migrations").count();
    assert_eq!(applied, [0, 0, 0, 0, all]);
}

#[tokio::test]
async fn a_second_run_applies_nothing_and_leaves_the_data() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 3).await;
    assert_eq!(migrate(&world.database.target).await.expect("a migration"), Report { applied: vec![] });
    assert_eq!(world.stages(workspace).await, "ready 3");
}

#[tokio::test]
async fn the_command_recreates_functions_and_a_start_of_the_same_build_changes_none() {
    let world = World::new().await;
    let functions = "SELECT string_agg(own.xmin::text, ' ' ORDER BY own.oid) FROM pg_proc own
        WHERE own.pronamespace IN (to_regnamespace('forebay'), to_regnamespace('forebay_r1'))";
    let before: String = world.get(functions, &[]).await;
    migrate(&world.database.target).await.expect("a migration");
    assert_eq!(world.get::<String>(functions, &[]).await, before, "every function is unchanged");
    world.client.batch_execute("DROP FUNCTION forebay.enqueue").await.expect("a function to drop");
    store::migrate::migrate_again(&world.database.target).await.expect("a migration");
    assert_eq!(world.count("pg_proc WHERE proname = 'enqueue'").await, 1);
}

#[tokio::test]
async fn a_build_whose_functions_differ_from_those_in_place_replaces_them() {
    let world = World::new().await;
    world.run_sql("UPDATE release SET functions = 'other', shared_functions = 'other'", &[]).await;
    world.client.batch_execute("DROP FUNCTION forebay.enqueue").await.expect("a function to drop");
    migrate(&world.database.target).await.expect("a migration");
    assert_eq!(world.count("pg_proc WHERE proname = 'enqueue'").await, 1);
    assert_eq!(world.count("release WHERE functions = 'other' OR shared_functions = 'other'").await, 0);
}

#[tokio::test]
async fn shared_functions_are_closed_to_others_even_if_those_of_the_release_cannot_be_created() {
    let database = Database::empty().await;
    let client = database.client().await;
    let in_the_way = "CREATE SCHEMA forebay_r1; CREATE FUNCTION forebay_r1.older_processes(p_release int, \
                      p_dead_after_s float8) RETURNS int LANGUAGE sql AS 'SELECT 1'";
    client.batch_execute(in_the_way).await.expect("a function of another type");
    assert!(migrate(&database.target).await.is_err(), "a function's type cannot be changed");
    let open = "SELECT count(*) FILTER (WHERE has_function_privilege('public', own.oid, 'EXECUTE')), count(*)
                  FROM pg_proc own WHERE own.pronamespace = 'forebay'::regnamespace";
    let row = client.query_one(open, &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 0, "open to everybody");
    assert!(row.get::<_, i64>(1) > 0, "there are functions");
}

#[tokio::test]
async fn a_database_without_the_functions_of_this_release_is_not_migrated_to_it() {
    let world = World::new().await;
    store::migrate::check(&world.database.target).await.expect("it is migrated");
    world.client.batch_execute("DROP SCHEMA forebay_r1 CASCADE").await.expect("no functions");
    let refused = store::migrate::check(&world.database.target).await.expect_err("its functions are gone");
    assert!(matches!(refused, MigrateError::Behind), "{refused:?}");
}

/// What marks a database as that of a newer release: a migration that this build does not know, or only its functions.
const NEWER: [&str; 2] = [
    "INSERT INTO migration (version, name, checksum) VALUES (999, 'of a newer build', '')",
    "INSERT INTO release (number) VALUES (999)",
];

#[tokio::test]
async fn a_build_older_than_the_database_runs_on_it() {
    for newer in NEWER {
        let world = World::new().await;
        world.run_sql(newer, &[]).await;
        world.client.batch_execute("DROP FUNCTION forebay.enqueue").await.expect("a function to drop");
        assert_eq!(migrate(&world.database.target).await.expect("a migration"), Report { applied: vec![] });
        assert_eq!(world.count("pg_proc WHERE proname = 'enqueue'").await, 0, "the newer build's functions stay");
        let own = format!("pg_proc WHERE pronamespace = to_regnamespace('{}')", store::release::SCHEMA);
        let functions = world.count(&own).await;
        world.client.batch_execute(&format!("DROP SCHEMA {} CASCADE", store::release::SCHEMA)).await.expect("a schema");
        assert_eq!(migrate(&world.database.target).await.expect("a migration"), Report { applied: vec![] });
        assert_eq!(world.count(&own).await, functions, "it has its own");
    }
}

#[tokio::test]
async fn a_migration_with_another_text_than_the_one_applied_is_refused() {
    let world = World::new().await;
    world.run_sql("UPDATE migration SET checksum = 'another' WHERE version = 1", &[]).await;
    let error = migrate(&world.database.target).await.expect_err("another build's");
    assert!(matches!(&error, MigrateError::Diverged(name) if name == "V1__baseline"), "{error:?}");
    // Also by a process that does not migrate: its statements would fail one by one.
    let error = store::migrate::check(&world.database.target).await.expect_err("another build's");
    assert!(matches!(&error, MigrateError::Diverged(name) if name == "V1__baseline"), "{error:?}");
}

#[tokio::test]
async fn nothing_that_stays_refers_to_the_functions_of_a_release() {
    let world = World::new().await;
    let own = format!("'{}'::regnamespace", store::release::SCHEMA);
    let outside = format!(
        "pg_depend d JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid AND p.pronamespace = {own}
          WHERE NOT EXISTS (SELECT 1 FROM pg_proc o WHERE d.classid = 'pg_proc'::regclass AND d.objid = o.oid AND o.pronamespace = {own})"
    );
    assert_eq!(world.count(&outside).await, 0, "no table, trigger, view or default");
    let named =
        format!("pg_proc p WHERE p.pronamespace = 'forebay'::regnamespace AND p.prosrc ~ '{}'", store::release::SCHEMA);
    assert_eq!(world.count(&named).await, 0, "no function that other programs call, nor one that it calls");
}

/// The history table of refinery.
const HISTORY: &str =
    "CREATE TABLE public.refinery_schema_history (version int PRIMARY KEY, name text, applied_on text, checksum text);
    INSERT INTO public.refinery_schema_history VALUES (1, 'NAME', 'long ago', '7')";

#[tokio::test]
async fn a_database_from_before_the_first_release_is_refused_and_left_as_it_is() {
    let database = Database::empty().await;
    let client = database.client().await;
    client.batch_execute(&HISTORY.replace("NAME", "spine")).await.expect("a history");
    for refused in [migrate(&database.target).await.map(drop), store::migrate::check(&database.target).await] {
        let error = refused.expect_err("its tables cannot be migrated");
        assert!(matches!(error, MigrateError::BeforeRelease), "{error:?}");
        assert!(error.to_string().contains("Create another database"), "{error}");
    }
    let row = client.query_one("SELECT to_regnamespace('forebay') IS NULL", &[]).await.expect("a catalogue");
    assert!(row.get::<_, bool>(0), "nothing was made");
}

#[tokio::test]
async fn a_database_in_which_something_else_has_our_public_names_is_refused_and_left_as_it_is() {
    let database = Database::empty().await;
    let client = database.client().await;
    client.batch_execute("CREATE TABLE public.domain_events (id int)").await.expect("their table");
    let error = migrate(&database.target).await.expect_err("two cannot share it");
    assert!(matches!(error, MigrateError::Taken { .. }), "{error:?}");
    assert!(error.to_string().starts_with("there is domain_events in the schema public"), "{error}");
    let row = client.query_one("SELECT to_regnamespace('forebay') IS NULL", &[]).await.expect("a catalogue");
    assert!(row.get::<_, bool>(0), "nothing was made");
}

/// Tables of another product with the same names as ours.
const THEIRS: &str = "
    CREATE TABLE public.workspace (id int, tier int);
    CREATE TABLE public.webhook (id int, url int);
    CREATE TABLE public.secret (name int);
    CREATE TABLE public.process (id int);
    CREATE FUNCTION public.enqueue(uuid, uuid, jsonb) RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid';
    INSERT INTO public.workspace VALUES (7, 7)";

#[tokio::test]
async fn a_products_own_tables_and_history_are_no_obstacle() {
    let database = Database::empty().await;
    let client = database.client().await;
    client.batch_execute(THEIRS).await.expect("their tables");
    client.batch_execute(&HISTORY.replace("NAME", "products")).await.expect("their history");
    migrate(&database.target).await.expect("a migration");
    let world = World::of(database).await;
    let (workspace, definition) = world.tenant("PRO").await;
    let execution = world.accept_many(workspace, definition, 1).await[0];
    let start = "SELECT forebay.enqueue($1, $2, '{}')";
    let _started: uuid::Uuid = world.get(start, &[&workspace.0, &definition.0]).await;
    assert_eq!(world.run(workspace, 5).await.len(), 2);
    world.finish(execution, kernel::execution::Status::Completed).await;
    let theirs = client.query("SELECT id, tier FROM public.workspace", &[]).await.expect("their rows");
    assert_eq!(theirs.iter().map(|row| (row.get(0), row.get(1))).collect::<Vec<(i32, i32)>>(), [(7, 7)]);
}

#[tokio::test]
async fn the_shard_of_a_workspace_in_sql_equals_the_kernels() {
    let world = World::new().await;
    for last in [0, 1, 63, 64, 127, 200, 255] {
        let id = world.workspace_weighing("FREE", 1, Some(last)).await;
        let shard: i16 = world.get("SELECT shard FROM workspace WHERE id = $1", &[&id.0]).await;
        assert_eq!(shard, id.shard());
    }
}

#[tokio::test]
async fn the_seeded_tiers_equal_the_kernels() {
    let world = World::new().await;
    for tier in kernel::workspace::SEEDED {
        let stored: i32 = world.get("SELECT max_running FROM tier WHERE name = $1", &[&tier.name]).await;
        assert_eq!(stored, tier.max_running, "{}", tier.name);
        let stored: i32 = world.get("SELECT max_backlog FROM tier WHERE name = $1", &[&tier.name]).await;
        assert_eq!(stored, tier.max_backlog, "{}", tier.name);
    }
    assert_eq!(world.count("tier").await, 3);
}

#[tokio::test]
async fn the_rules_in_sql_equal_the_kernels() {
    let world = World::new().await;
    assert_eq!(world.get::<i32>("SELECT forebay.semantics()", &[]).await, kernel::SEMANTICS);
    assert_eq!(world.get::<i64>("SELECT forebay.priority_step_ms()", &[]).await, kernel::queue::PRIORITY_STEP_MS);
    assert_eq!(world.get::<i32>("SELECT forebay.max_job_failures()", &[]).await, kernel::job::MAX_FAILURES);
    assert_eq!(world.get::<i32>("SELECT forebay.shards()", &[]).await, i32::from(kernel::ids::SHARDS));
    let stages = [
        ("ready", Stage::Ready),
        ("delayed", Stage::Delayed),
        ("waits_for_key", Stage::WaitsForKey),
        ("waits_for_definition", Stage::WaitsForDefinition),
        ("slot", Stage::HoldsSlot),
        ("failed", Stage::Failed),
    ];
    for (name, stage) in stages {
        let stored: i32 = world.get(&format!("SELECT forebay.stage_{name}()"), &[]).await;
        assert_eq!(stored, i32::from(stage.code()), "{name}");
    }
    let usual = i32::from(kernel::queue::Priority::USUAL.value());
    assert_eq!(world.get::<i32>("SELECT forebay.default_priority()", &[]).await, usual);
    let longest: i32 = world.get("SELECT extract(epoch FROM forebay.max_execution_duration())::int", &[]).await;
    assert_eq!(u64::try_from(longest), Ok(kernel::definition::parse::LONGEST_TIMEOUT.as_secs()));
    let lease: i32 = world.get("SELECT forebay.default_job_lease_s()", &[]).await;
    assert_eq!(u64::try_from(lease), Ok(kernel::job::USUAL_LEASE.as_secs()));
    let defaults = "SELECT string_agg(DISTINCT column_default, ', ') FROM information_schema.columns
        WHERE table_schema = 'forebay' AND table_name IN ('event_binding', 'workflow_queue_job')
        AND column_name = 'lease_s'";
    assert_eq!(world.get::<String>(defaults, &[]).await, lease.to_string());
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_unavailable() {
    let target = store::connect::Target::new("postgresql:///postgres?host=/nowhere&user=nobody").expect("a URL");
    let error = migrate(&target).await.expect_err("no server is there");
    assert!(matches!(&error, MigrateError::Store(error) if error.is_unavailable()), "{error:?}");
}

#[tokio::test]
async fn schema_sql_equals_what_the_migrations_make() {
    let database = Database::new().await;
    let dumped = Command::new(pg_dump())
        .args(["--schema-only", "--no-owner", "--no-privileges", "--exclude-table=forebay.migration", "--dbname"])
        .arg(&database.url)
        .output()
        .expect("pg_dump runs");
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    let schema = normal(&String::from_utf8(dumped.stdout).expect("text"));
    let file = root().join("schema.sql");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&file, &schema).expect("a file to write");
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = schema.lines().zip(written.lines()).find(|(now, then)| now != then);
    assert!(
        schema == written,
        "schema.sql is stale at {differs:?}: run UPDATE_EXPECT=1 ./dev/test -p forebay-store schema_sql"
    );
}

/// Removes what depends on the version of PostgreSQL or on the moment: its comments, the restore token, session
/// settings, and repeated empty lines.
fn normal(dump: &str) -> String {
    let head = "-- The schema as the migrations make it, dumped by a test: UPDATE_EXPECT=1 regenerates it.\n";
    let mut text = head.to_owned();
    let mut blank = true;
    for line in dump.lines() {
        let noise = ["--", "\\restrict", "\\unrestrict", "SET ", "SELECT pg_catalog.set_config"];
        // Comments inside functions are kept: only pg_dump's own start at column one with a bare dash pair.
        let dropped = noise.iter().any(|start| line.starts_with(start));
        if dropped || (blank && line.is_empty()) {
            continue;
        }
        blank = line.is_empty();
        text.push_str(line);
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

/// Searches where `dev/lib/postgres.sh` does, and takes the newest.
fn pg_dump() -> PathBuf {
    let mut places: Vec<PathBuf> = Vec::new();
    if let Some(only) = std::env::var_os("FOREBAY_PG_BIN") {
        places.push(only.into());
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let real = |dir: PathBuf| dir.join("postgres").canonicalize().ok()?.parent().map(Path::to_path_buf);
        places.extend(std::env::split_paths(&path).filter_map(real));
        for parent in ["/usr/lib/postgresql", "/usr", "/opt/homebrew/opt", "/usr/local/opt"] {
            let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
            places.extend(entries.map(|entry| entry.path().join("bin")));
        }
    }
    let found = places.into_iter().map(|dir| dir.join("pg_dump")).filter(|tool| tool.is_file());
    found.max_by_key(|tool| major(tool)).expect("PostgreSQL's pg_dump")
}

fn major(tool: &Path) -> u32 {
    let outcome = Command::new(tool).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let outcome = String::from_utf8_lossy(&outcome).into_owned();
    let number = outcome.split_whitespace().find_map(|word| word.split('.').next()?.parse().ok());
    number.unwrap_or(0)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
