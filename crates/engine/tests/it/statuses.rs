//! Every HTTP status from 400 to 511 against a real server. Class, attempts and spacing must match
//! docs/reference/failures.md.

use std::time::Duration;

use kernel::ids::NodeKey;
use kernel::run::failure::{Failure, Policy};
use serde_json::{Value, json};

use crate::world::World;

/// The documented class of a status, and whether it is retried.
fn documented(status: u16) -> (String, bool) {
    let page = include_str!("../../../../docs/reference/failures.md");
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("HTTP_"));
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let numbers: Vec<u16> = cells[1].split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
        let family = if cells[1].contains("4xx") { 4 } else { 5 };
        if numbers.contains(&status) || numbers.is_empty() && status / 100 == family {
            return (cells[2].to_owned(), cells[3] == "yes");
        }
    }
    panic!("docs/reference/failures.md says nothing of {status}");
}

const POLICY: Policy = Policy { max_attempts: 3, initial_ms: 20, factor: 2, max_ms: 30 };

#[tokio::test]
async fn every_status_has_its_documented_type_attempts_and_spacing() {
    let world = World::new().await;
    let process = world.process().await;
    let retry = json!({ "max_attempts": 3, "initial": "20ms", "factor": 2, "max": "30ms" });
    let node = |status: u16| {
        let with = json!({ "url": format!("BASE/status/{status}") });
        json!({ "kind": "HTTP_REQUEST", "needs": "first", "on_error": "continue", "retry": retry, "with": with })
    };
    let mut nodes: serde_json::Map<String, Value> =
        (400..=511).map(|status| (format!("s{status}"), node(status))).collect();
    nodes.insert("first".to_owned(), json!({ "kind": "LOG", "with": { "message": "go" } }));
    let definition = world.publish(&json!({ "nodes": nodes })).await;
    let id = world.enqueue(definition, Value::Null).await;
    world.dispatch(&process).await;
    assert_eq!(world.ended(id).await.status, kernel::execution::Status::Completed);
    let rows = world.database.store.nodes(id).await.expect("nodes");
    for status in 400..=511_u16 {
        let (class, retried) = documented(status);
        let row = rows.iter().find(|row| row.node == format!("s{status}")).expect("its row");
        let error = row.error.as_ref().expect("an error");
        assert_eq!((&error["type"], &error["status"]), (&json!(class), &json!(status)));
        let attempts = if retried { 3 } else { 1 };
        assert_eq!((row.attempt, world.receiver.calls(&format!("/status/{status}"))), (attempts, attempts as usize));
        let key = NodeKey::new(row.node.as_str()).expect("a good name");
        let times = world.receiver.times(&format!("/status/{status}"));
        for (attempt, pair) in (1..).zip(times.windows(2)) {
            let failure = Failure::from_status(status, "", None).expect("a failure");
            let wait = POLICY.wait_after(&failure, attempt, id, &key).expect("another attempt");
            assert!(pair[1] - pair[0] >= wait, "{status}: {:?} after attempt {attempt}", pair[1] - pair[0]);
        }
    }
}

#[tokio::test]
async fn what_retry_after_asks_for_is_waited_for() {
    let world = World::new().await;
    let process = world.process().await;
    let retry = json!({ "max_attempts": 2, "initial": "1ms", "max": "1ms" });
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "retry": retry, "with": { "url": "BASE/again/503" } },
    } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, Value::Null).await;
    world.dispatch(&process).await;
    assert_eq!(world.ended(id).await.status, kernel::execution::Status::Completed);
    let times = world.receiver.times("/again/503");
    assert_eq!(times.len(), 2);
    assert!(times[1] - times[0] >= Duration::from_secs(1), "{:?}", times[1] - times[0]);
}
