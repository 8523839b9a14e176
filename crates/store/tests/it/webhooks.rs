//! Webhooks: the holder of the claim delivers the end of an execution once to each subscriber. Workspaces take turns.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::run::node;
use kernel::webhook::DeliveryDecision;
use serde_json::json;
use store::access::secret::Sealed;
use store::definition::NewVersion;
use store::retention::Section;
use store::run::Record;
use store::trigger::Token;
use store::webhook::delivery::{AttemptResult, ClaimLimits, ClaimedDelivery};
use store::webhook::{MAX_WEBHOOKS, NewWebhook, WebhookChange, secret_name};
use store::{Error, new_id};
use uuid::Uuid;

use crate::support::{Limits, World, end, fact, new_version, race, record};

const ROOM: ClaimLimits = ClaimLimits { each: 8, limit: 32, steps: 100, lease: Duration::from_secs(60) };

fn sealed(workspace: WorkspaceId, id: Uuid, version: i32) -> Sealed {
    let (value, key) = (format!("value {version}").into_bytes(), b"key".to_vec());
    Sealed { workspace, name: secret_name(id), version, value, key, key_id: "old".to_owned(), hosts: None }
}

async fn webhook(world: &World, workspace: WorkspaceId, events: &[Status], definition: Option<DefinitionId>) -> Uuid {
    let (id, url) = (new_id(), "https://x.example/secret?token=1".to_owned());
    let new = NewWebhook { id, workspace, url, events: events.to_vec(), definition, description: None };
    world.store.create_webhook(&new, &sealed(workspace, id, 1), "ann").await.expect("a webhook");
    id
}

/// Runs executions to these ends; returns how many deliveries there are then.
async fn end_some(world: &World, (workspace, definition): (WorkspaceId, DefinitionId), ends: &[Status]) -> i64 {
    for outcome in ends {
        let execution = world.accept_many(workspace, definition, 1).await[0];
        world.run(workspace, 1).await;
        world.finish(execution, *outcome).await;
    }
    world.count("webhook_delivery").await
}

async fn claim(world: &World) -> Vec<ClaimedDelivery> {
    world.store.claim_deliveries(None, ROOM).await.expect("a claim").deliveries
}

async fn settle(world: &World, of: &ClaimedDelivery, verdict: DeliveryDecision) -> bool {
    let result = AttemptResult { status: Some(500), error: Some("no".to_owned()), unsent: false };
    world.store.settle_delivery(of, verdict, &result).await.expect("an answer")
}

async fn all_due(world: &World) {
    world.run_sql("UPDATE webhook_delivery SET due_at = now() - interval '1 s' WHERE due_at IS NOT NULL", &[]).await;
}

#[tokio::test]
async fn an_end_is_delivered_to_its_subscribers_only() {
    let world = World::new().await;
    let (ours, other) = (world.tenant("PRO").await, world.tenant("PRO").await);
    let second = world.definition(ours.0, Limits::default()).await;
    let failed = webhook(&world, ours.0, &[Status::Failed, Status::TimedOut], None).await;
    let narrow = webhook(&world, ours.0, &[Status::Completed], Some(second)).await;
    assert_eq!(end_some(&world, other, &[Status::Failed]).await, 0, "another workspace's");
    assert_eq!(end_some(&world, ours, &[Status::Completed, Status::Canceled]).await, 0, "not subscribed");
    assert_eq!(end_some(&world, ours, &[Status::Failed, Status::TimedOut]).await, 2);
    assert_eq!(end_some(&world, (ours.0, second), &[Status::Completed]).await, 3);
    let of = |id: Uuid| format!("webhook_delivery WHERE webhook_id = '{id}'");
    assert_eq!((world.count(&of(failed)).await, world.count(&of(narrow)).await), (2, 1));
    let off = WebhookChange { enabled: Some(false), ..WebhookChange::default() };
    world.store.change_webhook(failed, None, &off, "ann").await.expect("off");
    assert_eq!(end_some(&world, ours, &[Status::Failed]).await, 3, "a disabled webhook gets nothing");
    world.store.delete_webhook(narrow, Some(ours.0), "ann").await.expect("deleted");
    let audits = "activity WHERE subject_type = 'webhook' AND detail::text NOT LIKE '%token%' AND detail::text NOT LIKE '%secret%'";
    assert_eq!(world.count(audits).await, 4);
}

#[tokio::test]
async fn the_end_of_a_run_adds_its_deliveries_in_the_same_commit_and_only_once() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let before = world.accept_many(workspace, definition, 1).await[0];
    world.run(workspace, 1).await;
    world.finish(before, Status::Completed).await;
    webhook(&world, workspace, &[Status::Completed], None).await;
    world.finish(before, Status::Completed).await;
    assert_eq!(world.count("webhook_delivery").await, 0, "it had ended before the subscription");
    let execution = world.accept_many(workspace, definition, 1).await[0];
    let run = world.run(workspace, 1).await.remove(0);
    let ended = Record { end: Some(end(Status::Completed)), ..record(&run, vec![fact("a", node::Status::Completed)]) };
    for _ in 0..2 {
        world.store.record(world.me, std::slice::from_ref(&ended), "test").await.expect("an answer");
    }
    world.finish(execution, Status::Failed).await;
    assert_eq!(world.count("webhook_delivery").await, 1);
    let claimed = claim(&world).await.remove(0);
    let result = claimed.ended.expect("kept");
    assert_eq!((result.execution, result.status, claimed.attempt), (execution, Status::Completed, 1));
}

#[tokio::test]
async fn a_webhook_that_is_deleted_while_executions_end_fails_none_of_them() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    let id = webhook(&world, tenant.0, &[Status::Completed], None).await;
    let execution = world.accept_many(tenant.0, tenant.1, 1).await[0];
    world.run(tenant.0, 1).await;
    // Deleted, but not committed before the end is.
    let mut client = world.database.client().await;
    let deleting = client.transaction().await.expect("a transaction");
    deleting.execute("DELETE FROM webhook WHERE id = $1", &[&id]).await.expect("deleted");
    world.finish(execution, Status::Completed).await;
    deleting.commit().await.expect("a commit");
    assert_eq!(world.state(execution).await, "COMPLETED, no item");
    let orphan = claim(&world).await.remove(0);
    assert_eq!(orphan.url, None, "there is no receiver");
    assert!(settle(&world, &orphan, DeliveryDecision::Failed).await);
}

#[tokio::test]
async fn only_the_current_claim_settles_and_an_expired_one_is_replaced_under_the_same_delivery_id() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    webhook(&world, tenant.0, &[Status::Completed], None).await;
    end_some(&world, tenant, &[Status::Completed]).await;
    let first = claim(&world).await.remove(0);
    assert!(claim(&world).await.is_empty(), "it is being sent");
    all_due(&world).await;
    let second = claim(&world).await.remove(0);
    assert_eq!((second.id, second.attempt), (first.id, 2));
    assert!(!settle(&world, &first, DeliveryDecision::Delivered).await, "a zombie's");
    assert!(settle(&world, &second, DeliveryDecision::RetryAfter(Duration::from_secs(60))).await);
    assert!(!settle(&world, &second, DeliveryDecision::Delivered).await, "settled once");
    assert!(claim(&world).await.is_empty(), "not due yet");
    let listed = world.store.deliveries(second.webhook, None, None, 10).await.expect("a list").remove(0);
    assert_eq!((listed.attempts, listed.last_status, listed.last_error.as_deref()), (2, Some(500), Some("no")));
    world.store.retry_delivery(second.webhook, tenant.0, second.id, "ann").await.expect("now");
    let third = claim(&world).await.remove(0);
    let busy = world.store.retry_delivery(second.webhook, tenant.0, second.id, "ann").await;
    assert!(matches!(busy, Err(Error::Conflict(_))), "it is being sent");
    assert!(settle(&world, &third, DeliveryDecision::Delivered).await);
    assert_eq!(world.count("webhook_delivery WHERE status = 'DELIVERED' AND due_at IS NULL").await, 1);
    world.store.retry_delivery(second.webhook, tenant.0, second.id, "ann").await.expect("once more");
    assert_eq!(claim(&world).await.remove(0).id, first.id);
}

#[tokio::test]
async fn concurrent_claimers_claim_each_delivery_once_and_rotate_over_the_workspaces() {
    let world = World::new().await;
    let (busy, quiet) = (world.tenant("ENTERPRISE").await, world.tenant("PRO").await);
    for tenant in [busy, quiet] {
        webhook(&world, tenant.0, &[Status::Canceled], None).await;
    }
    for execution in world.accept_many(busy.0, busy.1, 40).await {
        world.finish(execution, Status::Canceled).await;
    }
    end_some(&world, quiet, &[Status::Canceled]).await;
    let result = race(&world.store, 6, |_, store| async move {
        store.claim_deliveries(None, ROOM).await.expect("a claim").deliveries
    })
    .await
    .concat();
    let mut ids: Vec<Uuid> = result.iter().map(|delivery| delivery.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), result.len(), "none twice");
    assert_eq!(
        result.iter().filter(|delivery| delivery.workspace == quiet.0).count(),
        1,
        "the quiet workspace has its turn"
    );
    assert_eq!(result.len() - 1, 8, "the limit of one workspace holds, however many processes claim at once");
    assert!(claim(&world).await.is_empty(), "and no more of it later");
    let one = ClaimLimits { limit: 1, ..ROOM };
    all_due(&world).await;
    let first = world.store.claim_deliveries(None, one).await.expect("a claim");
    let second = world.store.claim_deliveries(first.next, one).await.expect("a claim");
    assert_ne!(first.deliveries[0].workspace, second.deliveries[0].workspace, "it continues after the last workspace");
}

#[tokio::test]
async fn concurrent_claims_for_one_workspace_count_each_other() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    webhook(&world, workspace, &[Status::Canceled], None).await;
    for execution in world.accept_many(workspace, definition, 20).await {
        world.finish(execution, Status::Canceled).await;
    }
    let mut client = world.database.client().await;
    let claiming = client.transaction().await.expect("a transaction");
    let sql = "SELECT count(delivery) FROM forebay_r1.claim_deliveries(gen_random_uuid(), $1, 8, 20, 100, 60)";
    let first: i64 = claiming.query_one(sql, &[&Uuid::nil()]).await.expect("a claim").get(0);
    let beside = claim(&world).await.len();
    claiming.commit().await.expect("a commit");
    assert_eq!((first, beside), (5, 0));
    assert_eq!(claim(&world).await.len(), 3, "after its end, the rest of the eight");
}

#[tokio::test]
async fn a_workspace_leaves_three_quarters_of_what_is_free_to_others() {
    let world = World::new().await;
    let mut workspaces = Vec::new();
    for _ in 0..10 {
        let (workspace, definition) = world.tenant("PRO").await;
        webhook(&world, workspace, &[Status::Canceled], None).await;
        for execution in world.accept_many(workspace, definition, 9).await {
            world.finish(execution, Status::Canceled).await;
        }
        workspaces.push(workspace);
    }
    workspaces.sort();
    let claimed = claim(&world).await;
    let of = |workspace: &WorkspaceId| claimed.iter().filter(|delivery| delivery.workspace == *workspace).count();
    assert_eq!(workspaces.iter().map(of).collect::<Vec<_>>(), [8, 6, 4, 3, 2, 2, 1, 1, 1, 1]);
    let rest = ClaimLimits { limit: 3, ..ROOM };
    let more = world.store.claim_deliveries(None, rest).await.expect("a claim").deliveries;
    assert!(more.is_empty(), "the rest is for workspaces without a delivery in flight");
    let (workspace, definition) = world.tenant("PRO").await;
    webhook(&world, workspace, &[Status::Canceled], None).await;
    end_some(&world, (workspace, definition), &[Status::Canceled]).await;
    let late = world.store.claim_deliveries(None, rest).await.expect("a claim").deliveries;
    assert_eq!(late.iter().map(|delivery| delivery.workspace).collect::<Vec<_>>(), [workspace]);
}

#[tokio::test]
async fn a_webhook_that_fails_for_days_or_answers_410_is_disabled_with_its_reason() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    let id = webhook(&world, tenant.0, &[Status::Completed], None).await;
    end_some(&world, tenant, &[Status::Completed, Status::Completed, Status::Completed]).await;
    let claimed = claim(&world).await;
    assert!(settle(&world, &claimed[0], DeliveryDecision::Failed).await);
    let failing = world.store.webhook(id, None).await.expect("a webhook");
    assert!(failing.failing_since.is_some() && failing.disabled.is_none());
    assert!(settle(&world, &claimed[1], DeliveryDecision::Delivered).await);
    assert_eq!(world.store.webhook(id, None).await.expect("a webhook").failing_since, None, "one succeeded");
    world.run_sql("UPDATE webhook SET failing_since = now() - interval '6 days'", &[]).await;
    assert!(settle(&world, &claimed[2], DeliveryDecision::Failed).await);
    let (_, reason) = world.store.webhook(id, None).await.expect("a webhook").disabled.expect("off");
    assert_eq!(reason, "every delivery failed for 6 days");
    assert_eq!(world.count("activity WHERE action = 'webhook.disable' AND actor = 'webhooks'").await, 1);
    let on = WebhookChange { enabled: Some(true), ..WebhookChange::default() };
    world.store.change_webhook(id, Some(tenant.0), &on, "ann").await.expect("on");
    end_some(&world, tenant, &[Status::Completed]).await;
    assert!(settle(&world, &claim(&world).await[0], DeliveryDecision::ReceiverGone).await);
    assert!(world.store.webhook(id, None).await.expect("a webhook").disabled.expect("off").1.contains("410"));
}

#[tokio::test]
async fn a_rotation_keeps_the_previous_secret_for_a_time_and_of_two_at_once_one_wins() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let id = webhook(&world, workspace, &[Status::Completed], None).await;
    let versions = async || {
        let found = world.store.webhook_secrets(&[id]).await.expect("secrets");
        found.into_iter().map(|(_, sealed)| sealed.version).collect::<Vec<_>>()
    };
    let day = Duration::from_secs(86_400);
    world.store.rotate_webhook(id, &sealed(workspace, id, 2), day, "ann").await.expect("rotated");
    assert_eq!(versions().await, [2, 1]);
    let again = world.store.rotate_webhook(id, &sealed(workspace, id, 2), day, "ann").await;
    assert!(matches!(again, Err(Error::Conflict(_))), "overtaken");
    world.store.rotate_webhook(id, &sealed(workspace, id, 3), Duration::ZERO, "ann").await.expect("rotated");
    assert_eq!(versions().await, [3], "no overlap");
    let done = race(&world.store, 4, move |_, store| async move {
        store.rotate_webhook(id, &sealed(workspace, id, 4), day, "ann").await.is_ok()
    })
    .await;
    assert_eq!(done.into_iter().filter(|done| *done).count(), 1);
    assert_eq!(versions().await, [4, 3]);
    let (webhook, old) =
        world.store.webhook_secrets_to_reencrypt("new", (Uuid::nil(), 0), 10).await.expect("rows").remove(0);
    assert!(world.store.reencrypt_webhook_secret(webhook, &old, b"another", "new").await.expect("an answer"));
    assert!(!world.store.reencrypt_webhook_secret(webhook, &old, b"another", "new").await.expect("an answer"), "once");
}

#[tokio::test]
async fn webhooks_per_workspace_are_bounded_and_deleted_with_it() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    for _ in 0..MAX_WEBHOOKS {
        webhook(&world, workspace, &[Status::Failed], None).await;
    }
    let (id, url) = (new_id(), "https://x.example".to_owned());
    let new = NewWebhook { id, workspace, url, events: vec![Status::Failed], definition: None, description: None };
    let more = world.store.create_webhook(&new, &sealed(workspace, id, 1), "ann").await;
    assert!(matches!(more, Err(Error::Conflict(_))));
    triggered(&world, workspace, json!({})).await;
    world.store.delete_workspace(workspace, "root").await.expect("deleted");
    for table in ["webhook", "webhook_secret", "trigger"] {
        assert_eq!(world.count(table).await, 0, "{table}");
    }
}

#[tokio::test]
async fn ended_deliveries_are_deleted_after_their_retention() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    webhook(&world, tenant.0, &[Status::Completed], None).await;
    end_some(&world, tenant, &[Status::Completed, Status::Completed]).await;
    settle(&world, &claim(&world).await[0], DeliveryDecision::Delivered).await;
    let week = Duration::from_secs(7 * 86_400);
    assert_eq!(world.store.retire(Section::Deliveries, week, None, 10).await.expect("done").retired, 0, "too young");
    world.run_sql("UPDATE webhook_delivery SET created_at = now() - interval '8 days'", &[]).await;
    assert_eq!(
        world.store.retire(Section::Deliveries, week, None, 10).await.expect("done").retired,
        1,
        "the other has not ended"
    );
}

/// A definition that is published with a trigger of this rule.
async fn triggered(world: &World, workspace: WorkspaceId, rule: serde_json::Value) -> DefinitionId {
    let version = with_hook(Some(rule));
    let made = world.store.create_definition(workspace, &new_id().to_string(), &version, "test").await;
    let (id, stored) = made.expect("a definition");
    world.store.publish(workspace, id, stored.id, &version, "test").await.expect("published");
    id
}

fn with_hook(rule: Option<serde_json::Value>) -> NewVersion {
    let on = rule.map_or(json!({}), |rule| json!({ "http": rule }));
    NewVersion { graph: json!({ "nodes": [], "edges": [], "on": on }), ..new_version(Limits::default()) }
}

#[tokio::test]
async fn a_trigger_follows_its_definition_and_keeps_its_token() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let definition = triggered(&world, workspace, json!({})).await;
    let trigger = world.store.trigger_of_definition(definition, Some(workspace)).await.expect("a trigger");
    assert_eq!(trigger.token_prefix, None, "publishing makes no token");
    let token = Token::generate().expect("randomness");
    assert!(matches!(world.store.trigger_of_token(&token).await, Err(Error::NotFound)));
    world.store.create_trigger_token(trigger.id, Some(workspace), &token, "ann").await.expect("a token");
    let second = world.store.create_trigger_token(trigger.id, Some(workspace), &token, "ann").await;
    assert!(matches!(second, Err(Error::Conflict(_))), "it has a token");
    assert_eq!(world.store.trigger_of_token(&token).await.expect("open").definition, definition);
    let publish = async |rule| {
        let version = with_hook(rule);
        let stored = world.store.add_version(workspace, definition, &version, "test").await.expect("a version");
        world.store.publish(workspace, definition, stored.id, &version, "test").await.expect("published");
    };
    publish(Some(json!({ "rate_per_minute": 7 }))).await;
    let rate = world.store.trigger_of_token(&token).await.expect("open").rule.rate();
    assert_eq!(rate, 7, "the same token, another rule");
    publish(None).await;
    assert!(matches!(world.store.trigger_of_token(&token).await, Err(Error::NotFound)), "it no longer has a trigger");
    assert_eq!(world.count("trigger").await, 0);
}

#[tokio::test]
async fn a_token_is_replaced_with_or_without_overlap_and_revoked_at_once() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let definition = triggered(&world, workspace, json!({})).await;
    let id = world.store.trigger_of_definition(definition, None).await.expect("a trigger").id;
    let tokens: Vec<Token> = (0..3).map(|_| Token::generate().expect("randomness")).collect();
    let opens = async || {
        let mut open = Vec::new();
        for token in &tokens {
            open.push(world.store.trigger_of_token(token).await.is_ok());
        }
        open
    };
    let (hour, of) = (Duration::from_secs(3_600), Some(workspace));
    world.store.rotate_trigger_token(id, of, &tokens[0], hour, "ann").await.expect("a first one");
    assert_eq!(opens().await, [true, false, false]);
    world.store.rotate_trigger_token(id, of, &tokens[1], hour, "ann").await.expect("rotated");
    assert_eq!(opens().await, [true, true, false], "both, for an hour");
    world.run_sql("UPDATE trigger SET previous_expires_at = now()", &[]).await;
    assert_eq!(opens().await, [false, true, false], "the hour is over");
    world.store.rotate_trigger_token(id, of, &tokens[2], Duration::ZERO, "ann").await.expect("rotated");
    assert_eq!(opens().await, [false, false, true]);
    let other = world.workspace("PRO").await;
    assert!(matches!(world.store.revoke_trigger_token(id, Some(other), "eve").await, Err(Error::NotFound)), "not hers");
    world.store.revoke_trigger_token(id, of, "ann").await.expect("revoked");
    assert_eq!(opens().await, [false; 3]);
    let stored = world.count("activity WHERE subject_type = 'trigger' AND length(detail ->> 'prefix') = 12").await;
    assert_eq!(stored, 3, "the first characters, never more");
    world.store.rotate_trigger_token(id, of, &tokens[0], Duration::ZERO, "ann").await.expect("another");
    world.store.delete_definition(workspace, definition, "ann").await.expect("deleted");
    assert_eq!(opens().await, [false; 3], "deleted with its definition");
}

#[test]
fn a_mistyped_token_is_refused() {
    let token = Token::generate().expect("randomness");
    let text = token.expose();
    assert!(text.starts_with("fbt_") && text.len() == 76 && Token::parse(text).is_some());
    assert_eq!(format!("{token:?}"), "Token(…)");
    for bad in ["", "fbt_", &text[1..], &text[..75], &text.to_uppercase(), &text.replacen("fbt_", "fbk_", 1)] {
        assert!(Token::parse(bad).is_none(), "{bad}");
    }
    let flipped = text.replacen(&text[4..5], if &text[4..5] == "0" { "1" } else { "0" }, 1);
    assert!(flipped == text || Token::parse(&flipped).is_none());
}
