//! Recognizes idempotency keys that the service itself derives. A client must not use such a key.
//!
//! Invariants
//! - Each derived key has the form `{prefix}{uuid}/…`. The prefix names the source of the key, and the lower-case UUID
//!   is the id of the object that the key is derived from. A client's key of that form is refused, so a client's key
//!   and a derived key never collide.
//!
//! Not here: deriving keys. That is done in `server::http::triggers`, `store::schedule::fire`, both engines (for a
//! detached WORKFLOW) and `functions/jobs.sql`. `functions/shared/enqueue.sql` refuses the same forms.

use uuid::Uuid;

/// The prefixes of derived keys, for: a trigger's request, a schedule's tick, a node's detached start, a job's attempt.
const PREFIXES: [&str; 4] = ["trigger/", "schedule:", "node/", "event:"];

/// Is this a key that only the service itself may use?
pub fn is_reserved(key: &str) -> bool {
    let rest = PREFIXES.iter().find_map(|prefix| key.strip_prefix(prefix));
    let id = rest.and_then(|rest| rest.split_once('/')).map(|(id, _)| id);
    id.is_some_and(|id| id.parse::<Uuid>().is_ok_and(|uuid| uuid.hyphenated().to_string() == id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_the_service_would_derive_is_reserved_and_no_other_is() {
        let id = "019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a";
        for prefix in PREFIXES {
            assert!(is_reserved(&format!("{prefix}{id}/x")), "{prefix}");
            assert!(!is_reserved(&format!("{prefix}{id}")), "the service derives no key of this form: {prefix}");
            assert!(!is_reserved(&format!("{prefix}{}/x", id.to_uppercase())), "derived keys are in lower case");
            assert!(!is_reserved(&format!("{prefix}42/x")));
        }
        for kind in ["id", "mac", "key"] {
            assert!(is_reserved(&format!("trigger/{id}/{kind}/x")), "a trigger derives this key: {kind}");
        }
        for key in ["", "order-42", "trigger", "my/trigger/x", id] {
            assert!(!is_reserved(key), "{key}");
        }
    }
}
