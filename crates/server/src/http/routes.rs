//! Groups of routes below `/api/v1`. Each function returns one group.
//!
//! Not here: the whole router (`http::v1`), the required scopes (`http::access`).

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Api, jobs, schedules, tasks, triggers, waits, webhooks};

/// Jobs.
pub(super) fn jobs() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::claim))
        .routes(routes!(jobs::get))
        .routes(routes!(jobs::heartbeat))
        .routes(routes!(jobs::complete))
        .routes(routes!(jobs::fail))
        .routes(routes!(jobs::retry))
}

/// Waits and tasks.
pub(super) fn waits() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(waits::list))
        .routes(routes!(waits::answer))
        .routes(routes!(waits::create_token))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::claim))
        .routes(routes!(tasks::get))
        .routes(routes!(tasks::heartbeat))
        .routes(routes!(tasks::complete))
        .routes(routes!(tasks::fail))
}

/// Schedules.
pub(super) fn schedules() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(schedules::create, schedules::list))
        .routes(routes!(schedules::next))
        .routes(routes!(schedules::get, schedules::change, schedules::delete))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::run))
        .routes(routes!(schedules::ticks))
}

/// Webhooks and triggers.
pub(super) fn webhooks() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(webhooks::create, webhooks::list))
        .routes(routes!(webhooks::get, webhooks::change, webhooks::delete))
        .routes(routes!(webhooks::rotate))
        .routes(routes!(webhooks::deliveries))
        .routes(routes!(webhooks::retry))
        .routes(routes!(triggers::create, triggers::list))
        .routes(routes!(triggers::get))
        .routes(routes!(triggers::rotate))
        .routes(routes!(triggers::revoke))
}
