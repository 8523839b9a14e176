//! `forebay dev` leads from an empty directory to a finished execution. Its data is deleted or kept as documented.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::dev::Place;
use crate::support::http::Api;
use crate::support::process::Process;
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
    let key = said.iter().find_map(|line| line.strip_prefix("root key (shown only once): ")).expect("a key");
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
    let observed = format!("is in use by process {}: stop that process, or start this one with", dev.process.pid());
    until("it says why", async || second.stderr.contain(&observed).then_some(())).await;
    assert!(["--data-dir", "--ephemeral", "--listen"].iter().all(|flag| second.stderr.contain(flag)));

    let postgres = place.postgres().expect("a database server");
    dev.process.signal(Signal::SIGINT);
    assert!(dev.process.ended().await.success());
    assert!(!is_alive(postgres) && place.postgres().is_none(), "the database is stopped too");

    let again = place.start(&[]).await;
    assert!(!again.process.stdout.contain("shown only once"), "the key is kept, not shown again");
    let place_of_key = format!("The root key is saved in {}", place.data().join("root-key").display());
    assert!(again.process.stdout.contain(&place_of_key), "{:?}", again.process.stdout.all());
    assert_eq!(cli.ok(&["workspace", "ls"]).await, listed, "data survives, and the demo is made once");
}

#[tokio::test]
async fn after_a_sigkill_the_next_start_goes_on_at_once() {
    let place = Place::new();
    let receiver = Receiver::start().await;
    let settings = receiver.allowed(&[]);
    // Its leases are longer than this test waits for anything.
    let lease = ["process.claim_lease_ms=400000", "process.run_lease_ms=500000"];
    let arguments = ["--no-demo", "--set", &settings[0], "--set", lease[0], "--set", lease[1]];
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
    receiver.until_called("/hold/b", 2).await;
    receiver.open();
    let ended = tenant.at(&again.base).completed(&id).await;
    assert_eq!(text(&ended["status"]), "COMPLETED");
    assert_eq!(receiver.calls("/count/a").len(), 1, "a completed node never runs again");
}

#[tokio::test]
async fn it_is_ready_only_when_commands_find_it_and_its_demo() {
    let place = Place::new();
    let config = place.user.home().join(".config/forebay");
    std::fs::create_dir_all(&config).expect("a directory");
    // Whoever holds this lock keeps the profile from being written.
    let held = std::fs::File::create(config.join(".lock")).expect("a file");
    held.lock().expect("nobody holds it");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let mut command = place.user.command(&["dev", "--ephemeral", "--listen", &free.to_string()]);
    command.arg("--data-dir").arg(place.data());
    let _dev = Process::spawn("dev", command);
    let ready = async || reqwest::get(format!("http://{free}/readyz")).await.ok();
    let early = until("it answers", async || ready().await).await;
    assert_eq!(early.status(), 503);
    let observed: serde_json::Value = early.json().await.expect("JSON");
    assert!(text(&observed["checks"]["startup"]).contains("profile"), "{observed}");
    assert!(!place.profile().exists());
    drop(held);
    until("it is ready", async || ready().await.filter(|reply| reply.status() == 200)).await;
    let listed = place.user.ok(&["workspace", "ls"]).await;
    assert!(listed.contains("demo-pro"), "{listed}");
}

#[tokio::test]
async fn workflows_may_call_programs_of_this_machine_and_callbacks_have_an_address() {
    let place = Place::new();
    let receiver = Receiver::start().await;
    let dev = place.start(&["--no-demo", "--ephemeral"]).await;
    let tenant = Tenant::new(dev.api(&place), "FREE").await;
    let by_name = receiver.url("/count/name").replace("127.0.0.1", "localhost");
    let nodes = json!({
        "address": receiver.node("/count/address"),
        "name": { "kind": "HTTP_REQUEST", "needs": "address", "with": { "url": by_name } },
    });
    tenant.completed(&tenant.start(&tenant.apply("calls", nodes).await).await).await;
    assert_eq!((receiver.calls("/count/address").len(), receiver.calls("/count/name").len()), (1, 1));
    // Not what databases listen on, and not the machine's other networks: the refusal says what to set.
    for (url, setting) in [
        ("http://127.0.0.1:5432/", "outbound.allow=127.0.0.1:5432"),
        ("http://10.0.0.1:8080/", "outbound.allow=10.0.0.1:8080"),
    ] {
        let nodes = json!({ "call": { "kind": "HTTP_REQUEST", "with": { "url": url } } });
        let ended = tenant.ended(&tenant.start(&tenant.apply("refused", nodes).await).await).await;
        assert!(text(&ended["error"]["message"]).contains(setting), "{ended}");
    }
    let asking = tenant.apply("asking", json!({ "approve": { "kind": "WAIT_FOR_EVENT" } })).await;
    let asking = tenant.start(&asking).await;
    let token = format!("workflow/executions/{asking}/waits/approve/token");
    let made = until("it waits", async || {
        let reply = tenant.api.post(&token, json!({})).await;
        (reply.status < 300).then_some(reply.body)
    })
    .await;
    assert!(text(&made["url"]).starts_with(&format!("{}/answers/", dev.base)), "{made}");
    let refused = place.start_at("strict", &["--no-demo", "--set", "outbound.allow_loopback=false"]).await;
    let key = std::fs::read_to_string(place.data().with_file_name("strict").join("root-key")).expect("a key");
    let tenant = Tenant::new(Api::new(&refused.base, Some(key.trim())), "FREE").await;
    let id = tenant.start(&tenant.apply("no", json!({ "a": receiver.node("/count/no") })).await).await;
    assert!(text(&tenant.ended(&id).await["error"]["message"]).contains("egress_denied"));
}

#[tokio::test]
async fn a_taken_port_is_reported_before_a_database_is_created() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let data = place.data().display().to_string();
    let refused = place.user.run(&["dev", "--listen", &address, "--data-dir", &data]).await;
    assert!(refused.code == 1 && refused.stderr.contains(&address), "{refused:?}");
    assert!(!place.data().exists());
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
