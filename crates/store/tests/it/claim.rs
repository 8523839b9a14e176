//! The claim: how many items it claims, in which order, and what it returns for the requested workspaces.

use kernel::ids::{ClaimId, ExecutionId, WorkspaceId};
use kernel::queue::round_robin::{Quota, RoundRobin};
use kernel::queue::{PRIORITY_STEP_MS, Priority};
use store::queue::claim::{Claims, LimitCursor};
use store::queue::enqueue::Start;
use store::{Error, new_id};

use crate::support::{ENGINE, Limits, World, keyed, start};

/// The items of a claim by id, which is by age.
fn claimed(claims: &Claims) -> Vec<ExecutionId> {
    let mut ids: Vec<ExecutionId> = claims.items.iter().map(|item| item.item.execution()).collect();
    ids.sort();
    ids
}

/// Claims the items one at a time: the order in which they would start.
async fn order(world: &World, workspace: WorkspaceId) -> Vec<ExecutionId> {
    let mut order = Vec::new();
    while let Some(item) = world.claim(workspace, 1).await.items.first() {
        order.push(item.item.execution());
    }
    order
}

#[tokio::test]
async fn a_tier_runs_as_many_as_it_allows() {
    let world = World::new().await;
    for (tier, limit) in [("FREE", 1), ("PRO", 5), ("ENTERPRISE", 20)] {
        let (workspace, definition) = world.tenant(tier).await;
        world.accept_many(workspace, definition, 25).await;
        let claims = world.claim(workspace, 100).await;
        assert_eq!(claims.items.len(), limit, "{tier}");
        let asked = &claims.workspaces[0];
        let outcome = (asked.workspace, asked.running, asked.limit, asked.more, asked.blocked_again, asked.weight);
        let limit = i32::try_from(limit).expect("small");
        assert_eq!(outcome, (workspace, limit, limit, true, false, 1), "{tier}");
        assert!(asked.is_full_with_items_waiting());
        assert_eq!(world.claim(workspace, 100).await.items.len(), 0, "{tier} is full");
    }
}

#[tokio::test]
async fn a_workspace_row_says_whether_it_is_full_empty_or_busy() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let outcome = async |want| {
        let claims = world.claim(workspace, want).await;
        let asked = &claims.workspaces[0];
        (claims.items.len(), asked.running, asked.more, asked.is_full_with_items_waiting())
    };
    assert_eq!(outcome(5).await, (0, 0, false, false), "empty");
    world.accept_many(workspace, definition, 7).await;
    assert_eq!(outcome(0).await, (0, 0, true, false), "wanted none");
    assert_eq!(outcome(2).await, (2, 2, true, false), "more is ready");
    assert_eq!(outcome(10).await, (3, 5, true, true), "full, with more ready");
    assert_eq!(outcome(10).await, (0, 5, true, true), "still full");
    world.limit(workspace, 7).await;
    assert_eq!(outcome(10).await, (2, 7, false, false), "full, and nothing is ready");
}

#[tokio::test]
async fn a_claim_of_several_shards_waits_for_none_and_returns_the_busy_ones() {
    let world = World::new().await;
    let mut asks = Vec::new();
    for shard in [3, 5] {
        let workspace = world.workspace_weighing("PRO", 1, Some(shard)).await;
        let definition = world.definition(workspace, Limits::default()).await;
        world.accept_many(workspace, definition, 2).await;
        asks.push(Quota { workspace, limit: 1 });
    }
    world
        .client
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(forebay.lock_shard(), 3)")
        .await
        .expect("a claim in progress");
    let claims = world.store.claim(&asks, ClaimId(new_id()), world.me, None).await.expect("a claim");
    world.client.batch_execute("COMMIT").await.expect("its end");
    let of: Vec<_> = claims.items.iter().map(|item| item.workspace).collect();
    assert_eq!((of, claims.workspaces.len(), claims.busy), (vec![asks[1].workspace], 1, vec![asks[0].workspace]));
    let claims = world.store.claim(&asks, ClaimId(new_id()), world.me, None).await.expect("a claim");
    assert_eq!((claims.items.len(), claims.workspaces.len(), claims.busy.len()), (2, 2, 0));
}

#[tokio::test]
async fn a_workspace_requested_twice_in_one_call_keeps_its_limit() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 20).await;
    let asks = [Quota { workspace, limit: 5 }, Quota { workspace, limit: 3 }, Quota { workspace, limit: 5 }];
    let claims = world.store.claim(&asks, ClaimId(new_id()), world.me, None).await.expect("a claim");
    assert_eq!(claims.items.len(), 5);
    assert_eq!(world.stages(workspace).await, "ready 15, slot 5");
}

#[tokio::test]
async fn limits_of_workspace_definition_and_key_hold_together() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let limits = Limits { concurrency: Some(3), key_concurrency: Some(2), ..Limits::default() };
    let limited = world.definition(workspace, limits).await;
    let free = world.definition(workspace, Limits::default()).await;
    let mut starts: Vec<Start> = (0..4).map(|_| keyed(workspace, limited, "a")).collect();
    starts.extend((0..4).map(|_| keyed(workspace, limited, "b")));
    starts.extend((0..4).map(|_| start(workspace, free)));
    world.accept(&starts).await;
    world.judge().await;
    let mut taken = Vec::new();
    for _ in 0..10 {
        taken.extend(world.claim(workspace, 10).await.items);
    }
    let of = |key: Option<&str>| {
        let keyed = starts.iter().filter(|start| start.concurrency_key.as_deref() == key);
        keyed.filter(|start| taken.iter().any(|item| item.item == start.execution.queue_item())).count()
    };
    assert_eq!((of(Some("a")), of(Some("b")), of(None)), (2, 1, 2));
}

#[tokio::test]
async fn an_item_that_passed_a_limit_that_is_full_now_is_blocked_again_by_the_claim() {
    let world = World::new().await;
    let of_a_key = Limits { key_concurrency: Some(2), ..Limits::default() };
    let of_a_definition = Limits { concurrency: Some(2), key_concurrency: Some(9), ..Limits::default() };
    for (limits, stages) in [(of_a_key, "key 3, slot 2"), (of_a_definition, "definition 3, slot 2")] {
        let workspace = world.workspace("ENTERPRISE").await;
        let definition = world.definition(workspace, limits).await;
        let accepted = world.accept(&[0; 5].map(|_| keyed(workspace, definition, "k"))).await;
        world.run_sql("UPDATE execution_queue SET stage = 0 WHERE workspace_id = $1", &[&workspace.0]).await;
        let claims = world.claim(workspace, 10).await;
        assert_eq!((claimed(&claims), claims.workspaces[0].blocked_again), (accepted[..2].to_vec(), true), "{stages}");
        assert_eq!(world.stages(workspace).await, stages);
    }
}

#[tokio::test]
async fn a_lowered_limit_ends_nothing_and_admits_nothing_until_below_it() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 20).await;
    let mut running = claimed(&world.claim(workspace, 10).await);
    world.limit(workspace, 2).await;
    for left in (2..5).rev() {
        let claims = world.claim(workspace, 10).await;
        assert_eq!((claims.items.len(), claims.workspaces[0].running, claims.workspaces[0].limit), (0, left + 1, 2));
        world.finish(running.pop().expect("one that runs"), kernel::execution::Status::Completed).await;
    }
    assert_eq!(world.claim(workspace, 10).await.items.len(), 0, "at the limit");
    world.finish(running.pop().expect("one that runs"), kernel::execution::Status::Completed).await;
    assert_eq!(world.claim(workspace, 10).await.items.len(), 1, "below it");
    world.limit(workspace, 4).await;
    assert_eq!(world.claim(workspace, 10).await.items.len(), 2, "raised");
}

#[tokio::test]
async fn a_paused_workspace_starts_nothing_until_it_goes_on() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 2).await;
    world.run_sql("UPDATE workspace SET paused = true WHERE id = $1", &[&workspace.0]).await;
    let claims = world.claim(workspace, 10).await;
    assert_eq!(
        (claims.items.len(), claims.workspaces[0].more, claims.workspaces[0].is_full_with_items_waiting()),
        (0, false, false)
    );
    assert_eq!(world.store.sweep(&[workspace.shard()]).await.expect("a sweep"), [], "nor does the sweep find it");
    world.run_sql("UPDATE workspace SET paused = false WHERE id = $1", &[&workspace.0]).await;
    assert_eq!(world.store.sweep(&[workspace.shard()]).await.expect("a sweep"), [(workspace, 1)]);
    assert_eq!(world.claim(workspace, 10).await.items.len(), 2);
}

#[tokio::test]
async fn a_paused_definition_starts_nothing_and_does_not_block_the_others() {
    let world = World::new().await;
    let (workspace, paused) = world.tenant("PRO").await;
    let other = world.definition(workspace, Limits::default()).await;
    world.accept_many(workspace, paused, 5).await;
    let behind = world.accept_many(workspace, other, 2).await;
    world.run_sql("UPDATE workflow_definition SET status = 'PAUSED' WHERE id = $1", &[&paused.0]).await;
    let first = world.claim(workspace, 10).await;
    assert_eq!(
        (first.items.len(), first.workspaces[0].blocked_definitions.clone(), first.workspaces[0].more),
        (0, vec![paused], true),
        "they have to be moved"
    );
    assert_eq!(world.store.block_definition(workspace, paused).await.expect("moved"), 5);
    assert_eq!(claimed(&world.claim(workspace, 10).await), behind);
    assert_eq!(world.stages(workspace).await, "definition 5, slot 2");
}

#[tokio::test]
async fn lower_priorities_go_first_and_equals_in_the_order_they_came() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    let with = |priority| Start { priority: Priority::new(priority).expect("1 to 5"), ..start(workspace, definition) };
    let starts = [5, 3, 1, 4, 1, 2, 3, 5].map(with);
    for start in &starts {
        world.accept(std::slice::from_ref(start)).await;
    }
    let expected = [2, 4, 5, 1, 6, 3, 0, 7].map(|at: usize| starts[at].execution);
    assert_eq!(order(&world, workspace).await, expected);
}

#[tokio::test]
async fn a_batch_of_several_definitions_runs_in_the_order_it_was_given() {
    let world = World::new().await;
    let workspace = world.workspace("ENTERPRISE").await;
    let one = world.definition(workspace, Limits::default()).await;
    let other = world.definition(workspace, Limits::default()).await;
    world.limit(workspace, 300).await;
    let starts: Vec<Start> = (0..300).map(|n| start(workspace, if n % 3 == 0 { one } else { other })).collect();
    let accepted = world.accept(&starts).await;
    assert!(order(&world, workspace).await == accepted, "another order than the batch's");
}

#[tokio::test]
async fn waiting_raises_priority() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    let with = |priority| Start { priority: Priority::new(priority).expect("1 to 5"), ..start(workspace, definition) };
    let starts = [with(5), with(5), with(1)];
    world.accept(&starts).await;
    // Four steps lie between the two priorities: one item has waited for longer than that, one not quite.
    for (start, waited_ms) in [(&starts[0], 4 * PRIORITY_STEP_MS + 1), (&starts[1], 4 * PRIORITY_STEP_MS - 1_000)] {
        let earlier = "UPDATE execution_queue SET rank = rank - $2 WHERE id = $1";
        world.run_sql(earlier, &[&start.execution.0, &waited_ms]).await;
    }
    let expected = [0, 2, 1].map(|at: usize| starts[at].execution);
    assert_eq!(order(&world, workspace).await, expected);
}

#[tokio::test]
async fn under_saturation_turns_follow_weights() {
    let world = World::new().await;
    let light = world.workspace_weighing("ENTERPRISE", 1, Some(7)).await;
    let heavy = world.workspace_weighing("ENTERPRISE", 3, Some(7)).await;
    let mut ring = RoundRobin::default();
    for workspace in [light, heavy] {
        world.limit(workspace, 1_000).await;
        let definition = world.definition(workspace, Limits::default()).await;
        world.accept_many(workspace, definition, 200).await;
    }
    for (workspace, weight) in world.store.sweep(&[7]).await.expect("a sweep") {
        ring.add(workspace, weight);
    }
    let mut served = [0, 0];
    for _ in 0..20 {
        let asks = ring.next_batch(8);
        let claims = world.store.claim(&asks, ClaimId(new_id()), world.me, Some(ENGINE)).await.expect("a claim");
        for item in &claims.items {
            served[usize::from(item.workspace == heavy)] += 1;
        }
        for asked in claims.workspaces.iter().filter(|asked| asked.more) {
            ring.add(asked.workspace, asked.weight);
        }
    }
    assert_eq!(served, [40, 120]);
}

#[tokio::test]
async fn an_item_of_a_deleted_definition_is_claimed_to_be_failed() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let limits = Limits { concurrency: Some(1), ..Limits::default() };
    let definition = world.definition(workspace, limits).await;
    let accepted = world.accept_many(workspace, definition, 3).await;
    let sql = "UPDATE workflow_definition SET deleted_at = now(), status = 'PAUSED' WHERE id = $1";
    world.run_sql(sql, &[&definition.0]).await;
    let limits = world.store.blocking_limits(workspace.shard(), &mut LimitCursor::default()).await.expect("limits");
    assert_eq!(
        world.store.unblock(&limits).await.expect("opened"),
        [],
        "a blocked item of a deleted definition is failed where it is"
    );
    let claim = ClaimId(new_id());
    let claims = world.claim_as(world.me, claim, Some(ENGINE), workspace, 10).await;
    assert_eq!(claimed(&claims), accepted[..1]);
    assert!(claims.items.iter().all(|item| item.definition_deleted && item.begun.is_none()), "{claims:?}");
    assert_eq!(world.state(accepted[0]).await, "PENDING, CLAIMED");
}

#[tokio::test]
async fn nothing_is_claimed_for_a_deleted_workspace_and_its_ready_items_are_found() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let accepted = world.accept_many(workspace, definition, 2).await;
    world.run_sql("UPDATE workspace SET deleted_at = now() WHERE id = $1", &[&workspace.0]).await;
    assert_eq!(world.claim(workspace, 5).await.items.len(), 0);
    assert_eq!(world.store.sweep(&[workspace.shard()]).await.expect("a sweep"), []);
    let found = world.store.items_of_deleted(workspace.shard()).await.expect("items of deleted workspaces");
    let found: Vec<_> = found.iter().map(|found| found.item).collect();
    assert_eq!(found, accepted.iter().map(|id| id.queue_item()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_claim_under_an_older_snapshot_is_refused() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        world.client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await.expect("begin");
        let sql = "SELECT * FROM forebay_r1.claim(ARRAY[$1::uuid], ARRAY[1], $2, $2, NULL, 1, 1)";
        let error =
            world.client.query(sql, &[&workspace.0, &new_id()]).await.expect_err("an older snapshot fences nothing");
        world.client.batch_execute("ROLLBACK").await.expect("rollback");
        let error = Error::from(error);
        assert!(matches!(&error, Error::Statement(source) if source.to_string().contains("db error")), "{error:?}");
    }
    assert_eq!(world.stages(workspace).await, "ready 1");
}

#[tokio::test]
async fn an_item_that_a_claim_blocks_again_does_not_delay_others() {
    let world = World::new().await;
    let (workspace, open) = world.tenant("ENTERPRISE").await;
    let keys = world.definition(workspace, Limits { key_concurrency: Some(1), ..Limits::default() }).await;
    world.accept(&[keyed(workspace, keys, "k"), keyed(workspace, keys, "k")]).await;
    world.run_sql("UPDATE execution_queue SET stage = 0 WHERE workspace_id = $1", &[&workspace.0]).await;
    world.accept_many(workspace, open, 50).await;
    let claims = world.claim(workspace, 10).await;
    let asked = &claims.workspaces[0];
    assert_eq!(
        (claims.items.len(), asked.blocked_again, asked.more, asked.blocked_definitions.len()),
        (9, true, true, 0)
    );
}

#[tokio::test]
async fn a_claim_by_another_protocol_is_refused_and_says_why() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    for number in [store::release::PROTOCOL - 1, store::release::PROTOCOL + 1] {
        world.run_sql("UPDATE protocol SET number = $1", &[&number]).await;
        let asks = [Quota { workspace, limit: 1 }];
        let claim = ClaimId(new_id());
        let refused = world.store.claim(&asks, claim, world.me, None).await.expect_err("another protocol");
        assert!(store::release::is_other_protocol(&refused) && !refused.is_answer(), "{refused:?}");
        assert!(format!("{refused:?}").contains(&format!("uses protocol {number}")), "{refused:?}");
    }
    world.run_sql("DELETE FROM protocol", &[]).await;
    let asks = [Quota { workspace, limit: 1 }];
    world.store.claim(&asks, ClaimId(new_id()), world.me, None).await.expect_err("a database without a protocol");
    assert_eq!(world.stages(workspace).await, "ready 1");
    world.run_sql("INSERT INTO protocol (number) VALUES ($1)", &[&store::release::PROTOCOL]).await;
    assert_eq!(world.run(workspace, 1).await.len(), 1);
}
