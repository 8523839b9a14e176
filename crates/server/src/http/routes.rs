//! Routes below `/api/v1` that belong together, a function for each group.
//!
//! Not here: the whole of them (`http::v1`), who may ask (`http::access`).

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Api, answers, hooks, projection, schedules, tasks, webhooks};

/// The jobs of events.
pub(super) fn jobs() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(projection::list))
        .routes(routes!(projection::claim))
        .routes(routes!(projection::get))
        .routes(routes!(projection::heartbeat))
        .routes(routes!(projection::complete))
        .routes(routes!(projection::fail))
        .routes(routes!(projection::retry))
}

/// What nodes ask of the world outside.
pub(super) fn asks() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(answers::list))
        .routes(routes!(answers::answer))
        .routes(routes!(answers::mint))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::claim))
        .routes(routes!(tasks::get))
        .routes(routes!(tasks::heartbeat))
        .routes(routes!(tasks::complete))
        .routes(routes!(tasks::fail))
}

/// What starts by the clock.
pub(super) fn times() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(schedules::create, schedules::list))
        .routes(routes!(schedules::next))
        .routes(routes!(schedules::get, schedules::change, schedules::delete))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::trigger))
        .routes(routes!(schedules::ticks))
}

/// Webhooks, out and in.
pub(super) fn webhooks() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(webhooks::create, webhooks::list))
        .routes(routes!(webhooks::get, webhooks::change, webhooks::delete))
        .routes(routes!(webhooks::rotate))
        .routes(routes!(webhooks::deliveries))
        .routes(routes!(webhooks::retry))
        .routes(routes!(hooks::create, hooks::list))
        .routes(routes!(hooks::get, hooks::revoke))
        .routes(routes!(hooks::rotate))
}
