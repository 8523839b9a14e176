//! Where Temporal is, for `engine.kind = "temporal"`.
//!
//! Invariants
//! - No secret is shown by `Debug` or by `masked`.
//! - A secret goes over an encrypted connection only.

use serde::{Deserialize, Serialize};

use super::Invalid;

#[derive(Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Temporal {
    pub address: String,
    pub namespace: String,
    pub task_queue: String,
    pub api_key: Option<String>,
    pub api_key_file: Option<String>,
    pub ca_file: Option<String>,
    pub server_name: Option<String>,
    pub client_cert_file: Option<String>,
    pub client_key_file: Option<String>,
    pub encryption_key: Option<String>,
    pub encryption_key_file: Option<String>,
    pub local_activity_below_ms: u64,
    pub heartbeat_ms: u64,
}

impl Default for Temporal {
    fn default() -> Self {
        Temporal {
            address: "http://127.0.0.1:7233".to_owned(),
            namespace: "default".to_owned(),
            task_queue: "workflows.default".to_owned(),
            api_key: None,
            api_key_file: None,
            ca_file: None,
            server_name: None,
            client_cert_file: None,
            client_key_file: None,
            encryption_key: None,
            encryption_key_file: None,
            local_activity_below_ms: 1_000,
            heartbeat_ms: 10_000,
        }
    }
}

impl std::fmt::Debug for Temporal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (address, namespace) = (&self.address, &self.namespace);
        f.debug_struct("Temporal").field("address", address).field("namespace", namespace).finish_non_exhaustive()
    }
}

impl Temporal {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let fail = |key, problem: &str| Err(Invalid { key, problem: problem.to_owned() });
        let encrypted = self.address.starts_with("https://");
        if !encrypted && !self.address.starts_with("http://") {
            return fail("engine.temporal.address", "must start with http:// or https://");
        }
        if self.address.contains('@') {
            return fail("engine.temporal.address", "must hold no credentials: executions note where they run");
        }
        if self.api_key.is_some() && self.api_key_file.is_some() {
            return fail("engine.temporal.api_key_file", "and engine.temporal.api_key say the same: give one of them");
        }
        if self.encryption_key.is_some() && self.encryption_key_file.is_some() {
            let problem = "and engine.temporal.encryption_key say the same: give one of them";
            return fail("engine.temporal.encryption_key_file", problem);
        }
        if (self.api_key.is_some() || self.api_key_file.is_some()) && !encrypted {
            return fail("engine.temporal.api_key", "is sent over https only: change engine.temporal.address");
        }
        if self.client_cert_file.is_some() != self.client_key_file.is_some() {
            return fail("engine.temporal.client_key_file", "goes together with engine.temporal.client_cert_file");
        }
        let for_tls = [&self.ca_file, &self.server_name, &self.client_cert_file];
        if !encrypted && for_tls.iter().any(|setting| setting.is_some()) {
            return fail("engine.temporal.address", "must be https for certificates and engine.temporal.server_name");
        }
        if self.namespace.is_empty() || self.task_queue.is_empty() {
            return fail("engine.temporal.namespace", "must not be empty, nor engine.temporal.task_queue");
        }
        if self.heartbeat_ms < 500 {
            return fail("engine.temporal.heartbeat_ms", "must be at least 500");
        }
        Ok(())
    }

    pub(super) fn mask(&mut self) {
        for secret in [&mut self.api_key, &mut self.encryption_key].into_iter().flatten() {
            "***".clone_into(secret);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named_by_its_key() {
        let good = Temporal::default();
        assert_eq!(good.check(), Ok(()));
        let some = || Some("x".to_owned());
        let table = [
            (Temporal { address: "127.0.0.1:7233".to_owned(), ..good.clone() }, "engine.temporal.address"),
            (
                Temporal { address: "http://user:x@127.0.0.1:7233".to_owned(), ..good.clone() },
                "engine.temporal.address",
            ),
            (Temporal { api_key: some(), ..good.clone() }, "engine.temporal.api_key"),
            (Temporal { api_key_file: some(), ..good.clone() }, "engine.temporal.api_key"),
            (Temporal { api_key: some(), api_key_file: some(), ..good.clone() }, "engine.temporal.api_key_file"),
            (
                Temporal { encryption_key: some(), encryption_key_file: some(), ..good.clone() },
                "engine.temporal.encryption_key_file",
            ),
            (Temporal { client_cert_file: some(), ..good.clone() }, "engine.temporal.client_key_file"),
            (Temporal { server_name: some(), ..good.clone() }, "engine.temporal.address"),
            (Temporal { task_queue: String::new(), ..good.clone() }, "engine.temporal.namespace"),
            (Temporal { heartbeat_ms: 10, ..good }, "engine.temporal.heartbeat_ms"),
        ];
        for (bad, key) in table {
            assert_eq!(bad.check().expect_err("cannot work").key, key);
        }
    }
}
