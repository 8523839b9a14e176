//! Tasks that are activities of the user: a Python worker that knows nothing about Forebay performs them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use kernel::execution::Status;
use serde_json::{Value, json};
use temporal::{PayloadKeys, TemporalSettings, testing};

use crate::host::settings;
use crate::world::{Act, Scenario, World};

/// A Python with Temporal's package.
const PYTHON: &str = "FOREBAY_TEST_TEMPORAL_PYTHON";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker.py");

/// A worker of the user, which polls. It stops when dropped.
struct Worker(Child);

impl Worker {
    fn start(settings: &TemporalSettings, task_queue: &str) -> Worker {
        let python = std::env::var(PYTHON).unwrap_or_else(|_| panic!("{PYTHON} is not set: run tests with ./dev/test"));
        let mut child = Command::new(python)
            .args([SCRIPT, settings.address.trim_start_matches("http://"), task_queue])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its words")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Worker(child)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn task(queue: &str, name: &str, needs: Option<&str>) -> Value {
    let activity = json!({ "task_queue": queue, "type": name });
    let retry = json!({ "max_attempts": 2, "initial": "10ms" });
    let mut node = json!({ "kind": "TASK", "retry": retry, "on_error": "continue",
                           "with": { "activity": activity, "input": { "name": "${{ inputs.name }}" } } });
    if let Some(needs) = needs {
        node["needs"] = json!(needs);
    }
    node
}

/// With keys, Forebay's own payloads are encrypted, and the input of the user's worker is not.
#[tokio::test]
async fn a_task_is_an_activity_of_a_python_worker() {
    let keys = PayloadKeys::parse(&"5a".repeat(32)).expect("a key");
    let sealed = TemporalSettings { keys: keys.clone(), ..settings() };
    let queue = format!("python-{}", store::new_id());
    let _worker = Worker::start(&sealed, &queue);
    let world = World::new().await;
    let process = world.process(sealed.clone()).await;
    let mut silent = task(&queue, "silent", Some("refuses.error"));
    silent["with"]["lease"] = json!("1s");
    silent["retry"] = json!({ "max_attempts": 1 });
    let mut nobody = task(&format!("{queue}-nobody"), "silent", Some("silent.error"));
    nobody["timeout"] = json!("500ms");
    nobody["retry"] = json!({ "max_attempts": 1 });
    let mut does = task(&queue, "thumbnail", None);
    does.as_object_mut().expect("a node").remove("on_error");
    does["with"]["input"] = json!({ "name": "${{ item }}" });
    let document = json!({ "nodes": {
        "thumbnail": task(&queue, "thumbnail", None),
        "flaky": task(&queue, "flaky", Some("thumbnail")),
        "refuses": task(&queue, "refuses", Some("flaky")),
        "silent": silent,
        "nobody": nobody,
        "all": { "kind": "FOR_EACH", "needs": "nobody.error", "with": { "items": ["a", "b"], "do": does } },
        "hidden": { "kind": "LOG", "needs": "all", "with": { "message": "${{ nodes.thumbnail.output.made }}" } },
    }, "outputs": { "why": "${{ nodes.refuses.error.message }}", "said": "${{ nodes.hidden.output.message }}" } });
    let scenario = Scenario { document, input: json!({ "name": "cat.png" }), act: Act::Nothing };
    let (id, trace) = world.play(process.id, &process.engine, &scenario).await;
    expect_test::expect![[r#"
        thumbnail COMPLETED {"made":"cat.png","attempt":1}
        flaky COMPLETED at attempt 2 after EXECUTION_ERROR "at last"
        refuses FAILED: VALIDATION_ERROR
        silent FAILED: TIMEOUT
        nobody FAILED: TIMEOUT
        all COMPLETED {"count":2,"items":[{"made":"a","attempt":1},{"made":"b","attempt":1}],"failed":0}
          [1] all COMPLETED {"made":"a","attempt":1}
          [2] all COMPLETED {"made":"b","attempt":1}
        hidden COMPLETED {"data":null,"level":"info","message":"cat.png"}
        ended COMPLETED {"why":"there is no such order","said":"cat.png"}
        audited execution.start
    "#]]
    .assert_eq(&trace);
    let history = testing::history(&sealed, id).await.expect("a history");
    let says = |word: &str| history.windows(word.len()).any(|some| some == word.as_bytes());
    assert!(says("cat.png") && !says("hidden"), "only the worker's input and answer are in clear");
    assert_eq!(testing::replay(&history, &keys).await.expect("a replay"), None);
}

#[tokio::test]
async fn a_task_that_nobody_serves_ends_with_its_execution() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let mut lonely = task(&format!("nobody-{}", store::new_id()), "thumbnail", None);
    lonely["on_error"] = json!("fail");
    let document = json!({ "timeout": "1s", "nodes": { "lonely": lonely } });
    let id = world.enqueue(world.publish(&document).await, json!({ "name": "x" })).await;
    world.claim(process.id, &process.engine).await;
    assert_eq!(world.ended(id).await.status, Status::TimedOut);
}
