//! An example of every body, by the name of its type. All examples are about the orders of a shop.

use serde_json::{Value, json};

/// A cursor as clients see it.
pub(super) const CURSOR: &str = "010006474b6a7b2a40019a8f2c1b3d7c4e8a5f0123456789ab5f2c9d10";

const WORKSPACE: &str = "019a8f00-0000-7000-8000-000000000001";
const DEFINITION: &str = "019a8f00-0000-7000-8000-000000000002";
const VERSION: &str = "019a8f00-0000-7000-8000-000000000003";
const KEY: &str = "019a8f00-0000-7000-8000-000000000004";
const EXECUTION: &str = "019a8f2c-1b3d-7c4e-8a5f-0123456789ab";
const HOLDER: &str = "019a8f2c-0a2b-7c4e-8a5f-0123456789ab";
const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const MORNING: &str = "2026-01-05T09:00:00Z";
const CREATED: &str = "2026-01-05T09:30:00Z";
const STARTED: &str = "2026-01-05T09:30:01Z";
const ENDED: &str = "2026-01-05T09:30:04Z";

/// The example of a type.
pub(super) fn of(name: &str) -> Option<Value> {
    workspaces(name)
        .or_else(|| definitions(name))
        .or_else(|| executions(name))
        .or_else(|| control(name))
        .or_else(|| events(name))
        .or_else(|| webhooks(name))
        .or_else(|| schedules(name))
        .or_else(|| waits(name))
        .or_else(|| inspection(name))
}

fn inspection(name: &str) -> Option<Value> {
    Some(match name {
        "ExecutionLogs" => json!({ "items": [{
            "at": STARTED, "node": "say", "iteration": 0, "attempt": 1, "source": "log", "level": "info",
            "message": "Order A42 is paid.",
        }] }),
        "ExecutionTree" => json!({ "rootExecutionId": EXECUTION, "more": false, "items": [
            {
                "executionId": EXECUTION, "depth": 0, "workflowDefinitionId": DEFINITION, "workflowName": "order",
                "status": "COMPLETED", "createdAt": CREATED, "startedAt": STARTED, "completedAt": ENDED,
                "durationMs": 3000,
            },
            {
                "executionId": "019a8f2c-1b3d-7c4e-8a5f-0123456789ac", "parentExecutionId": EXECUTION, "node": "ship",
                "iteration": 0,
                "attempt": 1, "depth": 1, "workflowDefinitionId": DEFINITION, "workflowName": "ship-order",
                "status": "COMPLETED", "createdAt": STARTED, "startedAt": STARTED, "completedAt": ENDED,
                "durationMs": 2000,
            },
        ] }),
        "EvaluateExpression" => json!({ "expression": "nodes.fetch.output.status == 200", "executionId": EXECUTION }),
        "ExpressionValue" => json!({ "value": true, "type": "a boolean" }),
        "VersionDocument" => json!({
            "version": 1, "graph": { "nodes": [], "edges": [] }, "source": "name: order\nnodes: {}\n",
        }),
        "VersionDiff" => json!({
            "from": 1, "to": 2, "changes": [{ "pointer": "/nodes/fetch/timeout_ms", "before": 10000, "after": 30000 }],
        }),
        _ => return None,
    })
}

fn workspaces(name: &str) -> Option<Value> {
    let none = json!({ "count": 0, "more": false });
    Some(match name {
        "CreateWorkspace" => json!({ "name": "acme", "tier": "PRO" }),
        "ChangeWorkspace" => json!({ "tier": "ENTERPRISE", "limit": 50 }),
        "Workspace" => json!({
            "id": WORKSPACE, "name": "acme", "tier": "PRO", "limit": 5, "limitOverride": null, "weight": 1,
            "paused": false,
            "running": 5, "ready": 12, "createdAt": MORNING,
        }),
        "Capacity" => json!({
            "workspaceId": WORKSPACE, "limit": 5, "running": { "count": 5, "more": false }, "free": 0, "paused": false,
            "waiting": { "ready": { "count": 1000, "more": true }, "delayed": none, "key": none, "definition": none },
            "oldestWaitingSeconds": 73.5, "failed": { "count": 1, "more": false },
        }),
        "CreateApiKey" => json!({ "name": "shop", "scopes": ["read", "run"], "expiresAt": "2099-01-01T00:00:00Z" }),
        "CreatedApiKey" => json!({
            "id": KEY, "name": "shop", "workspaceId": WORKSPACE, "scopes": ["read", "run"],
            "createdBy": "root", "expiresAt": "2099-01-01T00:00:00Z", "key": "fbk_…",
        }),
        "ApiKey" => json!({
            "id": KEY, "name": "shop", "workspaceId": WORKSPACE, "prefix": "fbk_1a2b3c4d", "scopes": ["read", "run"],
            "createdAt": MORNING, "createdBy": "root", "lastUsedAt": CREATED,
        }),
        "SetSecret" => json!({ "value": "…", "hosts": ["stock.example.com"] }),
        "OutboundRules" => json!({ "allow": ["stock.internal:8080"], "deny": ["tracker.example"] }),
        "Secret" => json!({
            "name": "STOCK_API_KEY", "version": 2, "createdAt": MORNING, "updatedAt": CREATED,
            "createdBy": format!("key:{KEY}"),
            "hosts": ["stock.example.com"],
        }),
        "ActivityEntry" => json!({
            "id": 4711, "at": ENDED, "workspaceId": WORKSPACE, "actor": format!("key:{KEY}"),
            "action": "execution.cancel",
            "subjectType": "execution", "subjectId": EXECUTION,
        }),
        "Readiness" => {
            json!({ "ready": true, "checks": { "database": "ok", "engine": "ok", "heartbeat": "ok", "secrets": "ok" } })
        }
        "ProblemBody" => json!({
            "type": "urn:forebay:problem:not_found", "title": "Not found", "status": 404, "code": "not_found",
            "detail": "there is no such execution",
        }),
        _ => return None,
    })
}

fn definitions(name: &str) -> Option<Value> {
    let definition = json!({
        "id": DEFINITION, "workspaceId": WORKSPACE, "name": "order", "status": "ACTIVE", "publishedVersion": 4,
        "publishedVersionId": VERSION, "concurrency": null, "keyConcurrency": 1, "maxAttempts": 3, "createdAt": MORNING,
        "updatedAt": MORNING,
    });
    Some(match name {
        "SubmitDefinition" => json!({
            "source": "name: order\nnodes:\n  tell: {kind: LOG, with: {message: 'Order ${{ inputs.id }} came in.'}}\n",
        }),
        "NodeKinds" => json!({ "items": [kernel::kind::describe(kernel::definition::Kind::Fail)] }),
        "PublishDefinition" => json!({}),
        "ValidatedDefinition" => json!({ "valid": true, "nodes": 1, "edges": 0, "contentHash": HASH }),
        "Definition" => definition,
        "AppliedDefinition" => {
            json!({ "definition": definition, "version": 4, "versionId": VERSION, "unchanged": false })
        }
        "Graph" => json!({
            "name": "order", "width": 240, "height": 84, "edges": [],
            "nodes": [{
                "key": "tell", "kind": "LOG", "when": "all_success", "layer": 0, "x": 16, "y": 16, "width": 208,
                "height": 52,
            }],
        }),
        "VersionListItem" => {
            json!({ "id": VERSION, "version": 4, "published": true, "contentHash": HASH, "createdAt": MORNING })
        }
        _ => return None,
    })
}

fn executions(name: &str) -> Option<Value> {
    let error = json!({ "type": "HTTP_STATUS", "message": "stock.example.com answered 500", "node": "check_stock",
         "status": 500 });
    Some(match name {
        "StartExecution" => json!({ "workflowDefinitionId": DEFINITION, "input": { "id": "A42", "total": 20 } }),
        "TreeExecution" => json!({
            "executionId": EXECUTION, "parentExecutionId": EXECUTION, "node": "each", "iteration": 2, "attempt": 1,
            "workflowDefinitionId": DEFINITION,
            "workflowName": "ship", "status": "COMPLETED", "depth": 1, "createdAt": CREATED, "startedAt": CREATED,
            "completedAt": ENDED,
            "durationMs": 3000,
        }),
        "StartedExecution" => json!({ "queueId": EXECUTION, "executionId": EXECUTION, "status": "PENDING" }),
        "QueueItem" => json!({
            "queueId": EXECUTION, "executionId": EXECUTION, "workspaceId": WORKSPACE,
            "workflowDefinitionId": DEFINITION,
            "status": "PENDING", "executionStatus": "PENDING", "position": 3, "priority": 3, "attempts": 0,
            "createdAt": CREATED,
            "waiting": {
                "reason": "workspace_full", "running": 5, "limit": 5, "heldByExecutionIds": [HOLDER],
                "message": "the workspace is full: 5 of 5 executions are running",
            },
        }),
        "Execution" => json!({
            "id": EXECUTION, "queueId": EXECUTION, "workspaceId": WORKSPACE, "workflowDefinitionId": DEFINITION,
            "workflowName": "order", "versionId": VERSION, "version": 4, "status": "COMPLETED", "engine": "embedded",
            "trigger": { "type": "api", "actor": format!("key:{KEY}") }, "input": { "id": "A42", "total": 20 },
            "output": { "message": "Order A42 is confirmed." }, "priority": 3, "createdAt": CREATED,
            "startedAt": STARTED,
            "completedAt": ENDED, "durationMs": 3000, "deadlineAt": "2026-02-04T09:30:00Z",
        }),
        "ExecutionListItem" => json!({
            "id": EXECUTION, "queueId": EXECUTION, "workspaceId": WORKSPACE, "workflowDefinitionId": DEFINITION,
            "workflowName": "order", "versionId": VERSION, "version": 4, "status": "FAILED", "error": error,
            "priority": 3,
            "createdAt": CREATED, "startedAt": STARTED, "completedAt": ENDED, "durationMs": 3000,
        }),
        "ExecutionNodes" => json!({ "items": [{
            "node": "check_stock", "kind": "HTTP_REQUEST", "iteration": 0, "status": "COMPLETED", "attempt": 1,
            "output": { "status": 200 }, "startedAt": STARTED, "completedAt": ENDED, "durationMs": 3000,
        }] }),
        "ExecutionSummary" => json!({
            "id": EXECUTION, "status": "FAILED", "phase": "FAILED", "durationMs": 3000, "totalNodes": 2,
            "nodes": { "FAILED": 1, "CANCELED": 1 }, "error": error,
        }),
        "CanceledExecution" => json!({ "executionId": EXECUTION, "status": "CANCELED" }),
        _ => return None,
    })
}

fn control(name: &str) -> Option<Value> {
    let start = |id: &str| json!({ "workflowDefinitionId": DEFINITION, "input": { "id": id, "total": 20 } });
    let problem = json!({
        "type": "urn:forebay:problem:queue_full", "title": "The workspace's backlog is full", "status": 429,
        "code": "queue_full", "detail": "the workspace's backlog limit is reached: try again when waiting \
             executions have started",
    });
    Some(match name {
        "BulkStartExecutions" => json!({ "items": [start("A42"), start("A43")] }),
        "BulkStartedExecutions" => json!({ "items": [
            { "status": 202, "started": executions("StartedExecution") },
            { "status": 429, "problem": problem },
        ] }),
        "RerunExecution" => json!({ "from": "start", "version": "latest" }),
        "DeadLetter" => json!({
            "queueId": EXECUTION, "executionId": EXECUTION, "workspaceId": WORKSPACE,
            "workflowDefinitionId": DEFINITION,
            "workflowName": "order", "executionStatus": "FAILED", "attempts": 0,
            "lastError": "stock.example.com answered 500",
            "error": executions("ExecutionListItem")?["error"], "createdAt": CREATED, "failedAt": ENDED,
        }),
        _ => return None,
    })
}

fn events(name: &str) -> Option<Value> {
    const EVENT: &str = "019a8f2c-1b3d-7c4e-8a5f-0000000000e1";
    const ORDER: &str = "019a8f2c-1b3d-7c4e-8a5f-00000000a042";
    const JOB: &str = "019a8f2c-1b3d-7c4e-8a5f-000000000007";
    const CLAIM: &str = "019a8f2c-1b3d-7c4e-8a5f-0000000000c1";
    let job = json!({
        "id": JOB, "workspaceId": WORKSPACE, "eventId": EVENT, "eventType": "order.placed",
        "eventData": { "total": 20 },
        "streamId": ORDER, "streamType": "order", "status": "processing", "workerId": "worker-1", "claimedAt": STARTED,
        "retryCount": 0, "createdAt": CREATED, "updatedAt": STARTED,
    });
    Some(match name {
        "AppendEvents" => json!({ "events": [{
            "type": "order.placed", "streamId": ORDER, "streamType": "order", "expectedVersion": 0,
            "data": { "total": 20 },
        }] }),
        "AppendedEvents" => json!({ "events": [{
            "id": EVENT, "sequence": 4711, "streamVersion": 1, "createdAt": CREATED, "repeated": false,
        }] }),
        "DomainEvent" => json!({
            "id": EVENT, "sequence": 4711, "workspaceId": WORKSPACE, "type": "order.placed", "streamId": ORDER,
            "streamType": "order",
            "streamVersion": 1, "data": { "total": 20 }, "metadata": { "actor": format!("key:{KEY}") },
            "createdAt": CREATED,
        }),
        "CreateBinding" => {
            json!({ "eventType": "order.*", "workflowDefinitionId": DEFINITION, "workflowId": "order-{eventId}" })
        }
        "ChangeBinding" => json!({ "workflowDefinitionId": DEFINITION, "filter": "trigger.event.data.total > 10" }),
        "Binding" => json!({
            "id": "019a8f00-0000-7000-8000-0000000000b1", "workspaceId": WORKSPACE, "eventType": "order.*",
            "workflowDefinitionId": DEFINITION, "workflowName": "order", "byDefinition": false,
            "workflowId": "order-{eventId}",
            "leaseSeconds": 900, "createdAt": MORNING, "updatedAt": MORNING,
        }),
        "Job" => job,
        "ClaimJobs" => {
            json!({ "workerId": "worker-1", "eventTypes": ["order.placed"], "limit": 10, "leaseSeconds": 60 })
        }
        "ClaimedJobs" => json!({ "items": [{ "claimId": CLAIM, "leaseExpiresAt": ENDED, "job": job }] }),
        "HeartbeatJob" => json!({ "claimId": CLAIM, "leaseSeconds": 60 }),
        "JobLease" => json!({ "leaseExpiresAt": ENDED }),
        "CompleteJob" => json!({ "claimId": CLAIM, "result": { "invoice": 7 } }),
        "FailJob" => json!({ "claimId": CLAIM, "errorMessage": "DNS verification timeout" }),
        _ => return None,
    })
}

fn webhooks(name: &str) -> Option<Value> {
    const WEBHOOK: &str = "019a8f00-0000-7000-8000-0000000000d1";
    let webhook = json!({
        "id": WEBHOOK, "workspaceId": WORKSPACE, "url": "https://shop.example/forebay",
        "events": ["COMPLETED", "FAILED"],
        "enabled": true, "secretVersion": 1, "createdAt": MORNING, "updatedAt": MORNING,
        "createdBy": format!("key:{KEY}"),
    });
    let trigger = json!({
        "id": "019a8f00-0000-7000-8000-0000000000d2", "workspaceId": WORKSPACE, "workflowDefinitionId": DEFINITION,
        "workflowName": "order", "tokenPrefix": "fbt_1a2b3c4d", "rotatedAt": MORNING,
        "rule": { "headers": ["x-event"] },
        "createdAt": MORNING, "updatedAt": MORNING,
    });
    Some(match name {
        "CreateWebhook" => json!({ "url": "https://shop.example/forebay", "events": ["COMPLETED", "FAILED"] }),
        "ChangeWebhook" => json!({ "enabled": true }),
        "Webhook" => webhook,
        "CreatedWebhook" => json!({ "webhook": webhook, "secret": "whsec_…" }),
        "Rotate" => json!({ "gracePeriodSeconds": 3600 }),
        "Delivery" => json!({
            "id": "019a8f2c-1b3d-7c4e-8a5f-0000000000d3", "webhookId": WEBHOOK, "executionId": EXECUTION,
            "event": "COMPLETED",
            "status": "PENDING", "attempts": 2, "nextAttemptAt": ENDED, "lastStatus": 503,
            "lastError": "shop.example answered 503", "createdAt": ENDED,
        }),
        "CreateTrigger" => json!({ "workflowDefinitionId": DEFINITION }),
        "Trigger" => trigger,
        "CreatedTrigger" => json!({ "trigger": trigger, "token": "fbt_…", "path": "/triggers/fbt_…" }),
        _ => return None,
    })
}

fn schedules(name: &str) -> Option<Value> {
    const SCHEDULE: &str = "019a8f00-0000-7000-8000-0000000000d4";
    let timing = json!({ "cron": "0 6 * * MON-FRI", "timezone": "Europe/Berlin", "input": { "region": "eu" },
        "overlap": "skip" });
    Some(match name {
        "CreateSchedule" => {
            let mut body = timing;
            body["workflowDefinitionId"] = json!(DEFINITION);
            body
        }
        "ChangeSchedule" => timing,
        "Schedule" => json!({
            "id": SCHEDULE, "workspaceId": WORKSPACE, "workflowDefinitionId": DEFINITION, "workflowName": "order",
            "byDefinition": false,
            "cron": "0 6 * * MON-FRI", "timezone": "Europe/Berlin", "input": { "region": "eu" }, "priority": 3,
            "overlap": "skip",
            "catchUp": "last", "status": "ACTIVE", "nextAt": "2026-01-06T05:00:00Z", "createdAt": MORNING,
            "updatedAt": MORNING,
        }),
        "Tick" => json!({
            "at": "2026-01-05T05:00:00Z", "manual": false, "status": "STARTED", "executionId": EXECUTION,
            "decidedAt": "2026-01-05T05:00:00.012Z",
        }),
        "NextTicks" => json!({ "items": ["2026-01-06T05:00:00Z", "2026-01-07T05:00:00Z"] }),
        _ => return None,
    })
}

fn waits(name: &str) -> Option<Value> {
    const TASK: &str = "019a8f2c-1b3d-7c4e-8a5f-0000000000f1";
    const CLAIM: &str = "019a8f2c-1b3d-7c4e-8a5f-0000000000f2";
    let data = json!({ "approved": { "type": "boolean", "required": true } });
    let place = |more: Value| {
        let mut all = json!({ "executionId": EXECUTION, "iteration": 0 });
        for (name, value) in more.as_object().into_iter().flatten() {
            all[name] = value.clone();
        }
        all
    };
    Some(match name {
        "Wait" => place(json!({
            "node": "approve", "status": "OPEN", "input": { "data": data }, "openedAt": STARTED, "expiresAt": ENDED,
        })),
        "AnswerWait" | "AnswerByToken" => json!({ "data": { "approved": true } }),
        "AnsweredWait" => place(json!({ "node": "approve", "early": false })),
        "CreateWaitToken" => json!({ "expiresInSeconds": 172_800 }),
        "CreatedWaitToken" => json!({
            "token": "fba_…", "path": "/answers/fba_…", "url": "https://forebay.example.com/answers/fba_…",
            "expiresAt": ENDED,
        }),
        "WaitToken" => json!({
            "workflow": "order", "node": "approve", "open": true, "used": false, "data": data, "expiresAt": ENDED,
        }),
        "AnsweredByToken" => json!({ "accepted": true }),
        "ClaimTasks" => {
            json!({
                "queues": ["invoices"], "workerId": "worker-1", "limit": 10, "waitSeconds": 30, "leaseSeconds": 60,
            })
        }
        "ClaimedTasks" => json!({ "items": [place(json!({
            "id": TASK, "claimId": CLAIM, "queue": "invoices", "workspaceId": WORKSPACE, "node": "invoice",
            "attempt": 1,
            "delivery": 1, "input": { "order": "A42" }, "leaseExpiresAt": ENDED, "leaseSeconds": 60.0,
        }))] }),
        "HeartbeatTask" => json!({ "claimId": CLAIM, "progress": { "pages": 3 } }),
        "TaskLease" => json!({ "leaseExpiresAt": ENDED, "canceling": false }),
        "CompleteTask" => json!({ "claimId": CLAIM, "output": { "invoice": 7 } }),
        "FailTask" => json!({ "claimId": CLAIM, "message": "the printer is out of paper", "retryable": true }),
        "Task" => place(json!({
            "id": TASK, "workspaceId": WORKSPACE, "queue": "invoices", "node": "invoice", "attempt": 1,
            "status": "CLAIMED", "input": { "order": "A42" }, "workerId": "worker-1", "leaseExpiresAt": ENDED,
            "deliveries": 1, "lostLeases": 0, "openedAt": STARTED,
        })),
        _ => return None,
    })
}
