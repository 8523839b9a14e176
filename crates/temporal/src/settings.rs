//! The settings of the Temporal engine: its address, how to connect to it, and the limits of a worker.
//!
//! Invariants
//! - `Debug` shows no secret: not the API key, not a private key, not a codec key.
//!
//! Not here: where values come from (`server::config`).

use std::time::Duration;

use sha2::{Digest, Sha256};

/// The operator's settings.
#[derive(Clone)]
pub struct TemporalSettings {
    /// `http://host:7233`, or `https://` for TLS.
    pub address: String,
    pub namespace: String,
    pub task_queue: String,
    pub api_key: Option<String>,
    pub tls: Tls,
    /// The keys that encrypt every payload stored in Temporal. Empty for no encryption.
    pub keys: PayloadKeys,
    /// The call of a node whose time limit is below this runs as a local activity.
    pub local_below: Duration,
    /// How many nodes of this process may make calls at the same time.
    pub max_calls: usize,
    /// The maximum length of a chain of executions that start each other.
    pub max_generations: u32,
    /// How long a worker that sends no heartbeats keeps the node it performs.
    pub heartbeat: Duration,
    /// Grace period for running activities when a worker stops.
    pub drain: Duration,
}

/// TLS settings for an `https` address, in addition to the system's certificate authorities.
#[derive(Clone, Default)]
pub struct Tls {
    pub ca_pem: Option<Vec<u8>>,
    pub server_name: Option<String>,
    /// Certificate and private key.
    pub client_pem: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for TemporalSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (address, namespace, task_queue) = (&self.address, &self.namespace, &self.task_queue);
        write!(f, "Temporal {{ address: {address:?}, namespace: {namespace:?}, task_queue: {task_queue:?}, .. }}")
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl TemporalSettings {
    /// Where its runs live, as stored on executions.
    pub fn location(&self) -> String {
        let host = self.address.split_once("://").map_or(self.address.as_str(), |(_, host)| host);
        format!("{}/{}", host.trim_end_matches('/'), self.namespace)
    }
}

/// The codec's keys. The first one encrypts and all of them decrypt, so that a key can be replaced.
#[derive(Clone, Default)]
pub struct PayloadKeys(Vec<PayloadKey>);

/// One key, with the name that payloads carry.
#[derive(Clone)]
pub(crate) struct PayloadKey {
    pub(crate) id: String,
    pub(crate) bytes: [u8; 32],
}

/// Why the keys cannot be used. Contains the number of the bad key, never its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {0} is not 64 hexadecimal digits")]
pub struct InvalidKey(pub usize);

impl std::fmt::Debug for PayloadKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PayloadKeys({})", self.0.len())
    }
}

impl PayloadKeys {
    /// Parses keys of 64 hexadecimal digits each, separated by commas.
    pub fn parse(text: &str) -> Result<PayloadKeys, InvalidKey> {
        let key = |(at, text): (usize, &str)| {
            let bytes = bytes(text.trim()).ok_or(InvalidKey(at + 1))?;
            let id = Sha256::digest(bytes).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            Ok(PayloadKey { id, bytes })
        };
        text.split(',').enumerate().map(key).collect::<Result<_, _>>().map(PayloadKeys)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn all(&self) -> &[PayloadKey] {
        &self.0
    }
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_order_and_a_bad_one_is_named_by_its_place() {
        let (one, two) = ("01".repeat(32), "ab".repeat(32));
        let keys = PayloadKeys::parse(&format!("{one}, {two}")).expect("two keys");
        assert_eq!(keys.all().iter().map(|key| key.bytes[0]).collect::<Vec<_>>(), [0x01, 0xab]);
        assert_ne!(keys.all()[0].id, keys.all()[1].id);
        assert_eq!(PayloadKeys::parse(&format!("{one},short")).expect_err("a bad key"), InvalidKey(2));
        assert_eq!(PayloadKeys::parse(&"g".repeat(64)).expect_err("no digits"), InvalidKey(1));
    }

    #[test]
    fn no_secret_is_shown() {
        let secret = "5e".repeat(32);
        let settings = TemporalSettings {
            address: "https://cluster.test:7233/".to_owned(),
            namespace: "orders".to_owned(),
            task_queue: "workflows.default".to_owned(),
            api_key: Some("hunter2".to_owned()),
            tls: Tls { client_pem: Some((b"hunter2".to_vec(), b"hunter2".to_vec())), ..Tls::default() },
            keys: PayloadKeys::parse(&secret).expect("a key"),
            local_below: Duration::ZERO,
            max_calls: 1,
            max_generations: 1,
            heartbeat: Duration::ZERO,
            drain: Duration::ZERO,
        };
        let shown = format!("{settings:?} {:?} {:?}", settings.tls, settings.keys);
        assert!(!shown.contains("hunter2") && !shown.contains(&secret), "{shown}");
        assert_eq!(settings.location(), "cluster.test:7233/orders");
    }
}
