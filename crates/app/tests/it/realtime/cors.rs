//! Tests CORS: the answers to a browser's preflight requests, and the headers that let a page read other responses.

use reqwest::Method;

use super::TABLE;
use crate::support::World;
use crate::support::http::{Reply, begin, send};

const PAGE: &str = "https://app.example.com";
const STREAMS: [&str; 3] = ["jobs/events", "workflow/executions/events", "workflow/queue/events"];

async fn asks_first(world: &World, path: &str, method: &str, origin: &str) -> Reply {
    let request = world.server.anonymous().request(Method::OPTIONS, path);
    let request = request.header("origin", origin).header("access-control-request-method", method);
    send(request.header("access-control-request-headers", "apikey, authorization")).await
}

async fn reads(world: &World, path: &str, origin: &str) -> Reply {
    begin(world.server.api().request(Method::GET, path).header("origin", origin)).await
}

const ORIGIN: &str = "access-control-allow-origin";

#[tokio::test]
async fn by_default_any_page_with_a_key_may_use_the_table_and_none_anything_else() {
    let world = World::new().await;
    let table = format!("/rest/v1/{TABLE}");
    let first = asks_first(&world, &table, "PATCH", PAGE).await;
    assert_eq!((first.status, first.header(ORIGIN)), (204, "*"));
    assert_eq!(first.header("access-control-allow-methods"), "GET, HEAD, PATCH, OPTIONS");
    for name in
        "apikey authorization content-type prefer accept-profile content-profile x-client-info x-retry-count".split(' ')
    {
        assert!(first.header("access-control-allow-headers").split(", ").any(|known| known == name), "{name}");
    }
    let read = reads(&world, &table, PAGE).await;
    assert_eq!((read.status, read.header(ORIGIN)), (200, "*"));
    assert!(read.header("access-control-expose-headers").contains("content-range"));
    // A page may read why it was refused.
    let refused = send(world.server.anonymous().request(Method::GET, &table).header("origin", PAGE)).await;
    assert_eq!((refused.status, refused.header(ORIGIN)), (401, "*"));
    for path in STREAMS.into_iter().chain(["jobs", "events", "keys"]) {
        assert_eq!(asks_first(&world, path, "GET", PAGE).await.status, 401, "{path}");
        assert_eq!(reads(&world, path, PAGE).await.header(ORIGIN), "", "{path}");
    }
    for reply in [first, read] {
        assert_eq!(reply.header("access-control-allow-credentials"), "");
    }
}

#[tokio::test]
async fn origins_that_are_named_may_read_streams_and_the_table_and_no_other_may() {
    let world = World::with(&[&format!("http.cors_origins=[\"{PAGE}\"]")]).await;
    let table = format!("/rest/v1/{TABLE}");
    for (path, method) in STREAMS.into_iter().map(|path| (path, "GET")).chain([(table.as_str(), "PATCH")]) {
        let first = asks_first(&world, path, method, PAGE).await;
        assert_eq!((first.status, first.header(ORIGIN), first.header("vary")), (204, PAGE, "origin"), "{path}");
        let read = reads(&world, path, PAGE).await;
        assert_eq!((read.status, read.header(ORIGIN)), (200, PAGE), "{path}");
        for other in ["https://app.example.com.evil.com", "http://app.example.com", "null", "https://APP.example.com"] {
            assert_eq!(asks_first(&world, path, method, other).await.header(ORIGIN), "", "{path} {other}");
            assert_eq!(reads(&world, path, other).await.header(ORIGIN), "", "{path} {other}");
        }
    }
    for path in ["jobs", "events", "keys", "workspaces"] {
        assert_eq!(asks_first(&world, path, "GET", PAGE).await.status, 401, "{path}");
        assert_eq!(reads(&world, path, PAGE).await.header(ORIGIN), "", "{path}");
    }
}
