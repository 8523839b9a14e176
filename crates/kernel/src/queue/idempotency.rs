//! Idempotency keys that the service derives, and which a client may therefore not choose.
//!
//! Invariants
//! - Each derived key is `{prefix}{uuid}/…`, with the prefix of its source and the id of what it is derived from, in
//!   lower case. A client's key of that form is refused, so neither can stand in the other's way.
//!
//! Not here: where they are derived: `server::http::hooks`, `store::schedule::fire`, a detached WORKFLOW of both
//! engines, and `functions/work.sql` for jobs. `functions/shared/enqueue.sql` refuses the same forms.

use uuid::Uuid;

/// What a derived key begins with: a hook's request, a schedule's tick, a node's detached start, a job's try.
const PREFIXES: [&str; 4] = ["hook/", "schedule:", "node/", "event:"];

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
            assert!(!is_reserved(&format!("{prefix}{id}")), "nothing is derived so: {prefix}");
            assert!(!is_reserved(&format!("{prefix}{}/x", id.to_uppercase())), "it is compared letter by letter");
            assert!(!is_reserved(&format!("{prefix}42/x")));
        }
        for kind in ["id", "mac", "key"] {
            assert!(is_reserved(&format!("hook/{id}/{kind}/x")), "a hook derives it: {kind}");
        }
        for key in ["", "order-42", "hook", "my/hook/x", id] {
            assert!(!is_reserved(key), "{key}");
        }
    }
}
