//! Temporal for the scenarios: one server for all tests, a task queue and a worker for each.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::nodes::call::Means;
use engine::outbound::Outbound;
use engine::pulse::Pulse;
use engine::vault::Vault;
use expect_test::Expect;
use kernel::ids::ProcessId;
use store::Store;
use temporal::{Hands, Keys, Settings, Temporal, Tls, Worker, testing};

use crate::world::{Act, Scenario, World};

/// Where the test server is.
const SERVER: &str = "FOREBAY_TEST_TEMPORAL";

/// Where its program is.
pub(crate) const PROGRAM: &str = "FOREBAY_TEST_TEMPORAL_BIN";

pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) engine: Temporal,
    pub(crate) worker: Worker,
}

/// Plays a scenario and compares its trace.
pub(crate) async fn check(scenario: Scenario, expected: Expect) {
    let world = World::new().await;
    let settings = settings();
    let process = world.process(settings.clone()).await;
    let (id, trace) = world.play(process.id, &process.engine, &scenario).await;
    expected.assert_eq(&trace);
    process.worker.stop().await;
    if scenario.act != Act::CancelFirst {
        let history = testing::history(&settings, id).await.expect("a history");
        assert_eq!(testing::replay(&history, &settings.keys).await.expect("a replay"), None);
        kept(&history);
    }
}

/// A history of every scenario is kept, so that later builds show that they still make the same of it.
fn kept(history: &[u8]) {
    let test = std::thread::current().name().unwrap_or_default().rsplit("::").next().unwrap_or_default().to_owned();
    let file = Path::new(HISTORIES).join(format!("{test}.pb"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(HISTORIES).expect("a directory");
        std::fs::write(&file, history).expect("a file");
    }
    assert!(file.exists(), "no history of {test} is kept: UPDATE_EXPECT=1 keeps this one");
}

/// Where histories are kept.
pub(crate) const HISTORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/histories");

pub(crate) fn settings() -> Settings {
    let address = std::env::var(SERVER).unwrap_or_else(|_| panic!("{SERVER} is not set: run tests with ./dev/test"));
    Settings {
        address,
        namespace: "default".to_owned(),
        task_queue: format!("test-{}", store::new_id()),
        api_key: None,
        tls: Tls::default(),
        keys: Keys::default(),
        local_below: Duration::ZERO,
        max_calls: 100,
        max_generations: 3,
        heartbeat: Duration::from_secs(2),
        drain: Duration::from_secs(1),
    }
}

impl World {
    /// A process of its own, with a worker.
    pub(crate) async fn process(&self, settings: Settings) -> Process {
        let (id, outbound) = self.register().await;
        self.process_of(settings, id, outbound)
    }

    /// The same, whose outbound rules are in a database of their own.
    pub(crate) async fn process_ruled_by(&self, settings: Settings, rules: Store) -> Process {
        let (id, outbound) = self.register().await;
        self.process_of(settings, id, outbound.ruled_by(rules))
    }

    fn process_of(&self, settings: Settings, id: ProcessId, outbound: Outbound) -> Process {
        let (store, pulse) = (self.database.store.clone(), Arc::new(Pulse::new(Duration::from_secs(3600))));
        let engine = Temporal::new(settings.clone(), store.clone(), Arc::new(|_, _| {}));
        let vault = Vault::new(store.clone(), engine::vault::Keys::default());
        let means = Means { store, outbound, vault, pulse };
        let hands = Hands { means, on_left: Arc::new(|_, _| {}), on_ready: Arc::new(|_| {}) };
        let worker = Worker::start(settings, hands).expect("a worker");
        Process { id, engine, worker }
    }
}
