//! The database server restarts, after a clean stop and after a crash. Clients that follow changes continue.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_postgres::{Launcher, Options, PrivatePostgres};
use serde_json::json;
use store::connect::Target;

use super::many::read;
use super::{TABLE, all_reported, subscribed, watch};
use crate::support::{PATIENCE, Server, until};

/// A database server of the test's own, over one directory.
async fn start(data: &Path) -> PrivatePostgres {
    let launcher =
        Launcher { program: PathBuf::from(env!("CARGO_BIN_EXE_forebay")), args: vec!["postgres-child".into()] };
    let mut options = Options::new(data, launcher);
    options.postgres_bin = std::env::var_os("FOREBAY_PG_BIN").map(PathBuf::from);
    options.search_path = std::env::var_os("PATH");
    PrivatePostgres::start(options).await.expect("PostgreSQL")
}

/// Ends it as a power cut would: nothing is written any more, and what is unlogged is lost.
async fn crash(database: PrivatePostgres) {
    let lock = std::fs::read_to_string(database.data_dir().join("pg/postmaster.pid")).expect("it runs");
    let pid = lock.lines().next().and_then(|pid| pid.parse().ok()).expect("a process id");
    kill(Pid::from_raw(pid), Signal::SIGQUIT).expect("it is there");
    let _ended_by_itself = database.stop().await;
}

async fn insert(database: &PrivatePostgres) -> String {
    let client = Target::new(&database.url()).expect("a URL").connect().await.expect("a connection");
    let row = format!(
        "INSERT INTO public.{TABLE} (event_id, event_type, event_data, stream_id, stream_type)
        VALUES (gen_random_uuid(), 'x', '{{}}', gen_random_uuid(), 's') RETURNING id::text"
    );
    client.query_one(&row, &[]).await.expect("a row").get(0)
}

/// A directory for one, which the server's user may enter.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("forebay-restart-").tempdir_in("/tmp").expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("open to the server's user");
    dir
}

/// It holds a transaction open, which everybody on a server waits for: so on one of its own.
#[tokio::test]
async fn a_mass_of_changes_behind_one_transaction_is_delivered_in_full() {
    const MANY: usize = 20_100;
    const EXECUTIONS: &str = "/api/v1/workflow/executions/events";
    let dir = directory();
    let database = start(&dir.path().join("data")).await;
    let server = Server::start(&database.url(), &[]).await;
    let (root, mut last) = (server.api(), None);
    read(&root, EXECUTIONS, &mut last, 1, Duration::from_secs(1)).await;
    let reader = tokio::spawn({
        let (root, mut last) = (root.clone(), last.clone());
        async move { (read(&root, EXECUTIONS, &mut last, usize::MAX, Duration::from_secs(60)).await, last) }
    });
    let target = Target::new(&database.url()).expect("a URL");
    let (open, writer) = (target.connect().await.expect("a connection"), target.connect().await.expect("a connection"));
    let long = "SET idle_in_transaction_session_timeout = 0; BEGIN; SELECT pg_current_xact_id()";
    open.batch_execute(long).await.expect("a transaction");
    // As a burst of ends writes it.
    let entry = "INSERT INTO forebay.change_log (topic, op, refs, workspaces, status)
        SELECT 'execution', 'UPDATE', array_agg(gen_random_uuid()), array_agg(NULL::uuid), 'COMPLETED' FROM generate_series(1, 300)";
    for _ in 0..MANY / 300 {
        writer.execute(entry, &[]).await.expect("an entry");
    }
    let waiting = format!("forebay_changes_pending {MANY}");
    until("all wait", async || server.anonymous().get("/metrics").await.text.contains(&waiting).then_some(())).await;
    open.batch_execute("COMMIT").await.expect("a commit");
    let (mut observed, mut last) = reader.await.expect("a reader");
    let closed = server
        .anonymous()
        .get("/metrics")
        .await
        .text
        .contains("forebay_change_subscribers_dropped_total{reason=\"behind\"} 1");
    assert!(
        observed.len() < MANY && closed,
        "{} were delivered before the subscriber was too far behind",
        observed.len()
    );
    // On a busy machine it may be too far behind once more.
    let returned = Instant::now();
    while observed.len() < MANY {
        let more = read(&root, EXECUTIONS, &mut last, MANY - observed.len(), Duration::from_secs(5)).await;
        observed.extend(more);
        assert!(returned.elapsed() < PATIENCE, "{} of {MANY} were delivered", observed.len());
    }
    let rows: BTreeSet<&String> = observed.iter().map(|(_, row, _)| row).collect();
    assert_eq!((observed.len(), rows.len()), (MANY, MANY), "each once");
    database.stop().await.expect("it stops");
}

#[tokio::test]
async fn a_subscription_outlives_a_restart_and_a_crash_of_the_database_server() {
    let dir = directory();
    let data = dir.path().join("data");
    let mut database = start(&data).await;
    let server = Server::start(&database.url(), &[]).await;
    let node = watch(&server.base, server.root_key().expose(), &[]).await;
    let mut ids = vec![insert(&database).await];
    all_reported(&node, "pending", &ids).await;

    // In order: the log is kept, the feed goes on where it was, and what is written before it is back is delivered too.
    database.stop().await.expect("it stops");
    until("it is noticed", async || (server.anonymous().get("/readyz").await.status == 503).then_some(())).await;
    let away = server.api().get(&format!("/rest/v1/{TABLE}?select=id")).await;
    assert_eq!((away.status, &away.body["code"]), (503, &json!("PGRST000")), "{}", away.text);
    assert_eq!(away.header("retry-after"), "2", "the client asks again by itself");
    database = start(&data).await;
    for _ in 0..3 {
        ids.push(insert(&database).await);
    }
    all_reported(&node, "pending", &ids).await;
    assert_eq!(node.count("status", "SUBSCRIBED"), 1, "nobody had to come back");

    // By a crash: the log is empty, so everybody is sent away, comes back, and looks.
    ids.push(insert(&database).await);
    all_reported(&node, "pending", &ids).await;
    crash(database).await;
    let database = start(&data).await;
    subscribed(&node, 2).await;
    ids.push(insert(&database).await);
    all_reported(&node, "pending", &ids).await;
    let api = server.api();
    let rows = api.get(&format!("/rest/v1/{TABLE}?select=id&status=eq.pending&order=created_at")).await.expect(200);
    assert_eq!(rows.as_array().map(Vec::len), Some(ids.len()), "the table itself lost nothing");
    drop(server);
    database.stop().await.expect("it stops");
}
