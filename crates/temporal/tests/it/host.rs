//! Runs the scenarios on Temporal. All tests share one server, and each test has its own task queue and worker.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::liveness::Liveness;
use engine::nodes::call::CallResources;
use engine::outbound::Outbound;
use engine::vault::Vault;
use engine::{Engine as _, RunDescription};
use expect_test::Expect;
use kernel::ids::ProcessId;
use store::Store;
use temporal::{PayloadKeys, Temporal, TemporalSettings, Tls, Worker, WorkerSetup, testing};

use crate::world::{Act, Scenario, World, until};

/// The environment variable with the test server's address.
const SERVER: &str = "FOREBAY_TEST_TEMPORAL";

/// The environment variable with the path of its program.
pub(crate) const PROGRAM: &str = "FOREBAY_TEST_TEMPORAL_BIN";

pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) engine: Temporal,
    pub(crate) worker: Worker,
}

/// Runs a scenario and compares its trace.
pub(crate) async fn check(scenario: Scenario, expected: Expect) {
    let world = World::new().await;
    let settings = settings();
    let process = world.process(settings.clone()).await;
    let (id, trace) = world.play(process.id, &process.engine, &scenario).await;
    expected.assert_eq(&trace);
    // The row ends before the workflow closes.
    let is_open = async || matches!(process.engine.describe(id).await, Ok(RunDescription::Running { .. }));
    until("its workflow has closed", async || !is_open().await).await;
    process.worker.stop().await;
    if scenario.act != Act::CancelFirst {
        let history = testing::history(&settings, id).await.expect("a history");
        assert_eq!(testing::replay(&history, &settings.keys).await.expect("a replay"), None);
        kept(&history);
    }
}

/// A history of every scenario is stored, so that later builds can show that they still replay it.
fn kept(history: &[u8]) {
    let test = std::thread::current().name().unwrap_or_default().rsplit("::").next().unwrap_or_default().to_owned();
    let file = Path::new(HISTORIES).join(format!("{test}.pb"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(HISTORIES).expect("a directory");
        std::fs::write(&file, history).expect("a file");
    }
    assert!(file.exists(), "no history of {test} is stored: run with UPDATE_EXPECT=1 to store one");
}

/// Where histories are stored.
pub(crate) const HISTORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/histories");

pub(crate) fn settings() -> TemporalSettings {
    let address = std::env::var(SERVER).unwrap_or_else(|_| panic!("{SERVER} is not set: run tests with ./dev/test"));
    TemporalSettings {
        address,
        namespace: "default".to_owned(),
        task_queue: format!("test-{}", store::new_id()),
        api_key: None,
        tls: Tls::default(),
        keys: PayloadKeys::default(),
        local_below: Duration::ZERO,
        max_calls: 100,
        max_generations: 3,
        heartbeat: Duration::from_secs(2),
        drain: Duration::from_secs(1),
    }
}

impl World {
    /// A separate process with a worker.
    pub(crate) async fn process(&self, settings: TemporalSettings) -> Process {
        let (id, outbound) = self.register().await;
        self.process_of(settings, id, outbound)
    }

    /// The same, with its outbound rules in a separate database.
    pub(crate) async fn process_ruled_by(&self, settings: TemporalSettings, rules: Store) -> Process {
        let (id, outbound) = self.register().await;
        self.process_of(settings, id, outbound.ruled_by(rules))
    }

    fn process_of(&self, settings: TemporalSettings, id: ProcessId, outbound: Outbound) -> Process {
        let (store, liveness) = (self.database.store.clone(), Arc::new(Liveness::new(Duration::from_secs(3600))));
        let engine = Temporal::new(settings.clone(), store.clone(), Arc::new(|_, _| {}));
        let vault = Vault::new(store.clone(), engine::vault::OuterKeys::default());
        let resources = CallResources { store, outbound, vault, liveness };
        let setup = WorkerSetup { resources, on_run_exit: Arc::new(|_, _| {}), on_ready: Arc::new(|_| {}) };
        let worker = Worker::start(settings, setup).expect("a worker");
        Process { id, engine, worker }
    }
}
