//! A server with a test engine, for tests in which the engine misbehaves.

use serde_json::Value;

use super::{Engine, Server, Tenant, World, until};

/// A server over a test engine, and a tenant with a workflow.
pub(crate) struct Scene {
    pub(crate) engine: Engine,
    pub(crate) world: World,
    pub(crate) tenant: Tenant,
    pub(crate) definition: String,
}

impl Scene {
    pub(crate) async fn new(mode: &str) -> Scene {
        Scene::with(mode, &[]).await
    }

    pub(crate) async fn with(mode: &str, settings: &[&str]) -> Scene {
        let engine = Engine::new();
        engine.mode(mode);
        let setting = engine.setting();
        let world = World::with(&[&[setting.as_str()], settings].concat()).await;
        let tenant = world.tenant("PRO").await;
        let definition = tenant.light().await;
        Scene { engine, world, tenant, definition }
    }

    pub(crate) async fn start(&self) -> String {
        self.tenant.start(&self.definition).await
    }

    pub(crate) async fn another(&self) -> Server {
        self.world.another(&[&self.engine.setting()]).await
    }

    pub(crate) async fn item(&self, id: &str) -> Value {
        self.tenant.queue(id).await
    }

    pub(crate) async fn until_item(&self, id: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{id}: {what}"), async || Some(self.item(id).await).filter(|item| holds(item))).await
    }

    /// What the engine's check of readiness says.
    pub(crate) async fn readiness(&self) -> String {
        self.check("engine").await
    }

    /// What one check of readiness says; trouble with the engine leaves the process ready.
    pub(crate) async fn check(&self, name: &str) -> String {
        let ready = self.world.server.anonymous().get("/readyz").await.expect(200);
        ready["checks"][name].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) async fn until_check(&self, name: &str, holds: impl Fn(&str) -> bool) -> String {
        until(&format!("{name} says so"), async || Some(self.check(name).await).filter(|text| holds(text))).await
    }

    pub(crate) async fn breaker(&self) -> String {
        let metrics = self.world.server.anonymous().get("/metrics").await.text;
        let line = metrics.lines().find_map(|line| line.strip_prefix("forebay_engine_breaker_state "));
        line.unwrap_or("none").to_owned()
    }
}
