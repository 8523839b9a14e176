//! Settings of the connection to Temporal, for `engine.kind = "temporal"`.
//!
//! Invariants
//! - No secret is shown by `Debug` or by `masked`.
//! - A secret is sent only over an encrypted connection.

use serde::{Deserialize, Serialize};

use super::{Invalid, at_least};

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
            let problem = format!("must start with http:// or https://, but is {:?}", self.address);
            return fail("engine.temporal.address", &problem);
        }
        if self.address.contains('@') {
            let problem =
                "must not contain credentials, because each execution stores the address: use engine.temporal.api_key";
            return fail("engine.temporal.address", problem);
        }
        if self.api_key.is_some() && self.api_key_file.is_some() {
            let problem = "cannot be set together with engine.temporal.api_key: remove one of the two settings";
            return fail("engine.temporal.api_key_file", problem);
        }
        if self.encryption_key.is_some() && self.encryption_key_file.is_some() {
            let problem = "cannot be set together with engine.temporal.encryption_key: remove one of the two settings";
            return fail("engine.temporal.encryption_key_file", problem);
        }
        if (self.api_key.is_some() || self.api_key_file.is_some()) && !encrypted {
            let problem = "is sent only over https: write https:// in engine.temporal.address";
            return fail("engine.temporal.api_key", problem);
        }
        if self.client_cert_file.is_some() != self.client_key_file.is_some() {
            let problem = "must be set together with engine.temporal.client_cert_file: set both, or neither";
            return fail("engine.temporal.client_key_file", problem);
        }
        let for_tls = [&self.ca_file, &self.server_name, &self.client_cert_file];
        if !encrypted && for_tls.iter().any(|setting| setting.is_some()) {
            let problem = "must start with https://, because certificates or engine.temporal.server_name are set";
            return fail("engine.temporal.address", problem);
        }
        if self.namespace.is_empty() {
            return fail("engine.temporal.namespace", "must not be empty: write the namespace, such as default");
        }
        if self.task_queue.is_empty() {
            return fail("engine.temporal.task_queue", "must not be empty: write a name, such as workflows.default");
        }
        at_least("engine.temporal.heartbeat_ms", self.heartbeat_ms, 500)
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
    fn an_invalid_setting_is_named_by_its_key() {
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
            (Temporal { task_queue: String::new(), ..good.clone() }, "engine.temporal.task_queue"),
            (Temporal { heartbeat_ms: 10, ..good }, "engine.temporal.heartbeat_ms"),
        ];
        for (bad, key) in table {
            assert_eq!(bad.check().expect_err("invalid").key, key);
        }
    }
}
