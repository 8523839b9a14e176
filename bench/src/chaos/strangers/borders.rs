//! Requests for objects of another workspace. Each request must be answered as if the object did not exist.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ground::Ground;

/// Requests an object of the victim in each way. Returns true if any request succeeded, or its answer named the other
/// workspace.
pub(super) async fn borders(ground: Arc<Ground>, _n: usize) -> bool {
    reads(&ground).await || writes(&ground).await || lists(&ground).await
}

async fn reads(ground: &Ground) -> bool {
    let victim = &ground.victim;
    let (execution, definition, workspace) = (victim.execution, victim.definition, victim.workspace);
    let paths = [
        format!("workflow/executions/{execution}"),
        format!("workflow/executions/{execution}/nodes?payloads=true"),
        format!("workflow/executions/{execution}/logs"),
        format!("workflow/executions/{execution}/tree"),
        format!("workflow/executions/{execution}/graph"),
        format!("workflow/queue/{execution}"),
        format!("workflow/definitions/{definition}"),
        format!("workflow/definitions/{definition}/versions"),
        format!("workflow/definitions/{definition}/versions/1"),
        format!("workflow/definitions/{definition}/graph"),
        format!("workspaces/{workspace}"),
        format!("workspaces/{workspace}/capacity"),
        format!("workflow/definitions?workspaceId={workspace}"),
        format!("workflow/executions?workspaceId={workspace}"),
        format!("events?workspaceId={workspace}"),
        format!("activity?workspaceId={workspace}"),
        format!("keys?workspaceId={workspace}"),
        format!("secrets?workspaceId={workspace}"),
    ];
    any_succeeds(ground, paths.iter().map(|path| (path.as_str(), None))).await
}

async fn writes(ground: &Ground) -> bool {
    let victim = &ground.victim;
    let (execution, definition, workspace) = (victim.execution, victim.definition, victim.workspace);
    let input = json!({ "n": 1 });
    let requests: Vec<(String, Value)> = vec![
        (format!("workflow/executions/{execution}/cancel"), json!({})),
        (format!("workflow/executions/{execution}/terminate"), json!({})),
        (format!("workflow/executions/{execution}/rerun"), json!({})),
        (format!("workflow/executions/{execution}/waits/call/answer"), json!({})),
        ("workflow/executions/start".to_owned(), json!({ "workflowDefinitionId": definition, "input": input })),
        (
            "workflow/executions/start".to_owned(),
            json!({ "workflowDefinitionId": definition, "workspaceId": workspace }),
        ),
        ("workflow/expressions/evaluate".to_owned(), json!({ "expression": "inputs.n", "executionId": execution })),
        (format!("workflow/definitions/{definition}/pause"), json!({})),
        (format!("workflow/definitions/{definition}/publish"), json!({})),
        (format!("workspaces/{workspace}/pause"), json!({})),
        ("keys".to_owned(), json!({ "name": "mine", "workspaceId": workspace })),
        ("schedules".to_owned(), json!({ "workflowDefinitionId": definition, "cron": "0 0 * * *" })),
        (
            "events".to_owned(),
            json!({ "workspaceId": workspace,
                "events": [{ "type": "a.b", "streamId": workspace, "streamType": "a" }] }),
        ),
    ];
    any_succeeds(ground, requests.iter().map(|(path, body)| (path.as_str(), Some(body)))).await
}

async fn any_succeeds<'a>(ground: &Ground, requests: impl Iterator<Item = (&'a str, Option<&'a Value>)>) -> bool {
    for (path, body) in requests {
        let answer = match body {
            None => ground.get(&ground.own.key, path).await,
            Some(body) => ground.post(&ground.own.key, path, body).await,
        };
        // A response that names the workspace reveals something; an empty list does not.
        let victim = ground.victim.workspace.to_string();
        if let Ok((status, shown)) = answer
            && (200..300).contains(&status)
            && (body.is_some() || shown.to_string().contains(&victim) || shown["items"].is_null())
        {
            crate::report::say(format!("{path} answered {status} to a client of another workspace"));
            return true;
        }
    }
    false
}

/// Returns true if a list without a filter contains objects of another workspace.
async fn lists(ground: &Ground) -> bool {
    let victim = ground.victim.workspace.to_string();
    for path in
        ["workflow/executions", "workflow/definitions", "events?limit=5", "activity", "keys", "webhooks", "tasks"]
    {
        if let Ok((200, shown)) = ground.get(&ground.own.key, path).await
            && shown.to_string().contains(&victim)
        {
            crate::report::say(format!("{path} shows objects of another workspace"));
            return true;
        }
    }
    false
}
