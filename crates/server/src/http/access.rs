//! The scope that a request needs. One rule covers every route, including routes that are added later.
//!
//! Invariants
//! - A request that may change something needs the scope `manage`. Only the routes listed in `RUN` need `run` instead.
//! - All other requests need `read`.
//!
//! Not here: requests that need a root key (the handlers check it), which workspace a key may read (`auth`).

use axum::http::Method;
use kernel::access::Scope;

/// Routes whose changes need only the scope `run`.
const RUN: [&str; 7] = [
    "/api/v1/workflow/executions",
    "/api/v1/workflow/queue",
    "/api/v1/events",
    "/api/v1/jobs",
    "/api/v1/schedules/{id}/run",
    "/api/v1/tasks",
    "/rest/v1",
];
/// POST requests that change nothing.
const READ_ONLY_POSTS: [&str; 2] = ["/api/v1/workflow/definitions/validate", "/api/v1/workflow/expressions/evaluate"];

/// The scope that a request to this route needs.
pub(crate) fn needed_scope(method: &Method, route: &str) -> Scope {
    let below = |top: &&str| route.strip_prefix(*top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if method.is_safe() || READ_ONLY_POSTS.contains(&route) {
        Scope::Read
    } else if RUN.iter().any(below) {
        Scope::Run
    } else {
        Scope::Manage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_needs_more_than_read() {
        for (method, route, scope) in [
            (Method::GET, "/api/v1/workflow/executions", Scope::Read),
            (Method::GET, "/api/v1/keys", Scope::Read),
            (Method::HEAD, "/api/v1/anything", Scope::Read),
            (Method::POST, "/api/v1/workflow/definitions/validate", Scope::Read),
            (Method::POST, "/api/v1/workflow/executions/start", Scope::Run),
            (Method::POST, "/api/v1/workflow/queue/{id}/anything", Scope::Run),
            (Method::POST, "/api/v1/workflow/executionsmore", Scope::Manage),
            (Method::POST, "/api/v1/events", Scope::Run),
            (Method::POST, "/api/v1/jobs/{id}/complete", Scope::Run),
            (Method::PATCH, "/rest/v1/{table}", Scope::Run),
            (Method::POST, "/api/v1/tasks/claim", Scope::Run),
            (Method::GET, "/api/v1/tasks", Scope::Read),
            (Method::POST, "/api/v1/workflow/executions/{id}/waits/{node}/token", Scope::Run),
            (Method::POST, "/api/v1/bindings", Scope::Manage),
            (Method::POST, "/api/v1/schedules/{id}/run", Scope::Run),
            (Method::POST, "/api/v1/schedules/{id}/pause", Scope::Manage),
            (Method::POST, "/api/v1/workflow/definitions", Scope::Manage),
            (Method::POST, "/api/v1/keys/{id}/revoke", Scope::Manage),
            (Method::PUT, "/api/v1/anything", Scope::Manage),
        ] {
            assert_eq!(needed_scope(&method, route), scope, "{method} {route}");
        }
    }
}
