//! The database server itself stops and starts again, in order and by a crash, and whoever follows goes on.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use store::connect::Target;
use store::embedded::{Embedded, Launcher, Options};

use super::{TABLE, all_told, subscribed, watch};
use crate::support::{Server, until};

/// A database server of the test's own, over one directory.
async fn start(data: &Path) -> Embedded {
    let launcher =
        Launcher { program: PathBuf::from(env!("CARGO_BIN_EXE_forebay")), args: vec!["postgres-child".into()] };
    let mut options = Options::new(data, launcher);
    options.postgres_bin = std::env::var_os("FOREBAY_PG_BIN").map(PathBuf::from);
    options.search_path = std::env::var_os("PATH");
    Embedded::start(options).await.expect("PostgreSQL")
}

/// Ends it as a power cut would: nothing is written any more, and what is unlogged is lost.
async fn crash(database: Embedded) {
    let lock = std::fs::read_to_string(database.data_dir().join("pg/postmaster.pid")).expect("it runs");
    let pid = lock.lines().next().and_then(|pid| pid.parse().ok()).expect("a process id");
    kill(Pid::from_raw(pid), Signal::SIGQUIT).expect("it is there");
    let _ended_by_itself = database.stop().await;
}

async fn insert(database: &Embedded) -> String {
    let client = Target::new(&database.url()).expect("a URL").connect().await.expect("a connection");
    let row = format!(
        "INSERT INTO {TABLE} (event_id, event_type, event_data, stream_id, stream_type)
        VALUES (gen_random_uuid(), 'x', '{{}}', gen_random_uuid(), 's') RETURNING id::text"
    );
    client.query_one(&row, &[]).await.expect("a row").get(0)
}

#[tokio::test]
async fn a_subscription_outlives_a_restart_and_a_crash_of_the_database_server() {
    let dir = tempfile::Builder::new().prefix("forebay-restart-").tempdir_in("/tmp").expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("open to the server's user");
    let data = dir.path().join("data");
    let mut database = start(&data).await;
    let server = Server::start(&database.url(), &[]).await;
    let node = watch(&server.base, server.root_key().expose(), &[]).await;
    let mut ids = vec![insert(&database).await];
    all_told(&node, "pending", &ids).await;

    // In order: the log is kept, the feed goes on where it was, and what is written before it is back is told too.
    database.stop().await.expect("it stops");
    until("it is noticed", async || (server.anonymous().get("/readyz").await.status == 503).then_some(())).await;
    let away = server.api().get(&format!("/rest/v1/{TABLE}?select=id")).await;
    assert_eq!((away.status, &away.body["code"]), (503, &json!("PGRST000")), "{}", away.text);
    assert_eq!(away.header("retry-after"), "2", "the client asks again by itself");
    database = start(&data).await;
    for _ in 0..3 {
        ids.push(insert(&database).await);
    }
    all_told(&node, "pending", &ids).await;
    assert_eq!(node.count("status", "SUBSCRIBED"), 1, "nobody had to come back");

    // By a crash: the log is empty, so everybody is sent away, comes back, and looks.
    ids.push(insert(&database).await);
    all_told(&node, "pending", &ids).await;
    crash(database).await;
    let database = start(&data).await;
    subscribed(&node, 2).await;
    ids.push(insert(&database).await);
    all_told(&node, "pending", &ids).await;
    let api = server.api();
    let rows = api.get(&format!("/rest/v1/{TABLE}?select=id&status=eq.pending&order=created_at")).await.expect(200);
    assert_eq!(rows.as_array().map(Vec::len), Some(ids.len()), "the table itself lost nothing");
    drop(server);
    database.stop().await.expect("it stops");
}
