//! Which scope a request needs: one rule for every route, those that will be added included.
//!
//! Invariants
//! - Whatever may change something needs more than `read`; what is not known to belong to `run` needs
//!   `manage`.
//!
//! Not here: what only a root key may do (the handlers say so), whose things a key sees (`auth`).

use axum::http::Method;
use kernel::access::Scope;

/// Where the work of `run` is done.
const RUN: [&str; 7] = [
    "/api/v1/workflow/executions",
    "/api/v1/workflow/queue",
    "/api/v1/events",
    "/api/v1/projection",
    "/api/v1/schedules/{id}/trigger",
    "/api/v1/tasks",
    "/rest/v1",
];
/// Requests that are no GET and yet change nothing.
const LOOKS: [&str; 2] = ["/api/v1/workflow/definitions/validate", "/api/v1/workflow/expressions/evaluate"];

/// The scope that a request to this route needs.
pub(crate) fn needed(method: &Method, route: &str) -> Scope {
    let below = |top: &&str| route.strip_prefix(*top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if method.is_safe() || LOOKS.contains(&route) {
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
            (Method::POST, "/api/v1/projection/{id}/complete", Scope::Run),
            (Method::PATCH, "/rest/v1/{table}", Scope::Run),
            (Method::POST, "/api/v1/tasks/claim", Scope::Run),
            (Method::GET, "/api/v1/tasks", Scope::Read),
            (Method::POST, "/api/v1/workflow/executions/{id}/answers/{node}/token", Scope::Run),
            (Method::POST, "/api/v1/bindings", Scope::Manage),
            (Method::POST, "/api/v1/schedules/{id}/trigger", Scope::Run),
            (Method::POST, "/api/v1/schedules/{id}/pause", Scope::Manage),
            (Method::POST, "/api/v1/workflow/definitions", Scope::Manage),
            (Method::DELETE, "/api/v1/keys/{id}", Scope::Manage),
            (Method::PUT, "/api/v1/anything", Scope::Manage),
        ] {
            assert_eq!(needed(&method, route), scope, "{method} {route}");
        }
    }
}
