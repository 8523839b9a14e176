//! `forebay dev`: from nothing to a finished execution, and everything gone or kept as promised.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::dev::Place;
use crate::support::tenant::text;
use crate::support::{Receiver, Tenant, until};

fn is_alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

#[tokio::test]
async fn a_first_start_makes_a_database_a_key_and_a_demo_and_ctrl_c_stops_it_all() {
    let place = Place::new();
    let mut dev = place.start(&[]).await;
    let said = dev.process.stdout.all();
    let key = said.iter().find_map(|line| line.strip_prefix("root key, shown this once: ")).expect("a key");
    assert!(key.starts_with("fbk_"), "{key}");
    assert!(said.iter().any(|line| line.contains(" run hello --workspace demo-pro -i name=Ada --watch")), "{said:?}");

    let cli = &place.user;
    let hello = cli.ok(&["run", "hello", "--workspace", "demo-pro", "-i", "name=Ada", "--watch"]).await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&hello).expect("JSON"), json!({ "greeting": "Hello, Ada!" }));
    let url = format!("url={}/healthz", dev.base);
    let orders = cli.ok(&["run", "orders", "--workspace", "demo-free", "-i", &url, "--watch"]).await;
    assert!(orders.contains("200"), "it may call itself, whatever its port: {orders}");
    let listed = cli.ok(&["workspace", "ls"]).await;
    assert!(["demo-free", "demo-pro", "demo-enterprise"].iter().all(|name| listed.contains(name)), "{listed}");

    let mut second = place.spawn(&[]);
    assert_eq!(second.ended().await.code(), Some(1), "one at a time");
    let told = format!("is in use by process {}: stop that one, or start this one with", dev.process.pid());
    until("it says why", async || second.stderr.contain(&told).then_some(())).await;
    assert!(["--data-dir", "--ephemeral", "--listen"].iter().all(|flag| second.stderr.contain(flag)));

    let postgres = place.postgres().expect("a database server");
    dev.process.signal(Signal::SIGINT);
    assert!(dev.process.ended().await.success());
    assert!(!is_alive(postgres) && place.postgres().is_none(), "the database is stopped too");

    let again = place.start(&[]).await;
    assert!(!again.process.stdout.contain("shown this once"), "the key is kept, not shown again");
    let place_of_key = format!("The root key is kept in {}", place.data().join("root-key").display());
    assert!(again.process.stdout.contain(&place_of_key), "{:?}", again.process.stdout.all());
    assert_eq!(cli.ok(&["workspace", "ls"]).await, listed, "data survives, and the demo is made once");
}

#[tokio::test]
async fn after_a_sigkill_the_next_start_goes_on_at_once() {
    let place = Place::new();
    let receiver = Receiver::start().await;
    let settings = receiver.allowed(&[]);
    let arguments = ["--no-demo", "--set", &settings[0]];
    let mut dev = place.start(&arguments).await;
    let tenant = Tenant::new(dev.api(&place), "FREE").await;
    let nodes = json!({ "a": receiver.node("/count/a"), "b": receiver.after("a", "/hold/b") });
    let definition = tenant.apply("held", nodes).await;
    let id = tenant.start(&definition).await;
    receiver.until_called("/hold/b", 1).await;
    let postgres = place.postgres().expect("a database server");
    dev.process.sigkill();
    until("the database server goes with it", async || (!is_alive(postgres)).then_some(())).await;

    let again = place.start(&arguments).await;
    let started = Instant::now();
    receiver.until_called("/hold/b", 2).await;
    // Its leases are fifteen seconds, not a tenth of it.
    assert!(started.elapsed() < Duration::from_secs(10), "resumed after {:?}", started.elapsed());
    receiver.open();
    let ended = tenant.at(&again.base).completed(&id).await;
    assert_eq!(text(&ended["status"]), "COMPLETED");
    assert_eq!(receiver.calls("/count/a").len(), 1, "a completed node never runs again");
}

#[tokio::test]
async fn an_ephemeral_start_leaves_nothing() {
    let place = Place::new();
    std::fs::create_dir(place.data()).expect("a directory");
    std::fs::set_permissions(place.data(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("permissions");
    let mut dev = place.start(&["--ephemeral"]).await;
    let cli = &place.user;
    let output = cli.run(&["run", "failure", "--workspace", "demo-free", "-i", "order_id=A1", "--watch"]).await;
    assert_eq!(output.code, 3, "{output:?}");
    assert!(place.profile().exists());
    dev.process.signal(Signal::SIGINT);
    assert!(dev.process.ended().await.success());
    let left: Vec<_> =
        std::fs::read_dir(place.data()).expect("a directory").map(|entry| entry.expect("it").path()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!place.profile().exists(), "nor the key");
}
