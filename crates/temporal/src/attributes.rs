//! The search attributes that the namespace has: asked for once, and again when nothing was told.
//!
//! Invariants
//! - A start sets only what the namespace was last heard to have; another attribute would have every start refused.
//! - No start waits for one that asks: it goes without. Who asks waits for no longer than `ASKING`.
//! - A namespace that does not tell is asked less and less often, and never given up.
//!
//! Not here: which attributes are set (`start`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use temporalio_client::Client;
use temporalio_client::tonic::Request;
use temporalio_common::protos::temporal::api::operatorservice::v1::ListSearchAttributesRequest;

/// How long the question may take: less than what a start may take beside it.
const ASKING: Duration = Duration::from_secs(2);
/// How soon a namespace that told nothing is asked again: at first, and at last.
const AGAIN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(60);

/// What is known of a namespace's search attributes.
pub(crate) struct Attributes(Mutex<Known>);

enum Known {
    Told(Arc<BTreeSet<String>>),
    Untold { again_at: Instant, pause: Duration },
}

impl Attributes {
    pub(crate) fn unasked() -> Attributes {
        Attributes(Mutex::new(Known::Untold { again_at: Instant::now(), pause: AGAIN }))
    }

    /// Their names, as far as they are known.
    pub(crate) async fn names(&self, client: &Client) -> Arc<BTreeSet<String>> {
        if let Some(known) = self.known(Instant::now()) { known } else { self.ask(client).await }
    }

    /// Asks whatever is known: a start was refused with it.
    pub(crate) async fn ask(&self, client: &Client) -> Arc<BTreeSet<String>> {
        let told = told(client).await;
        let mut known = self.0.lock();
        match (told, &*known) {
            (Some(names), _) => {
                let names = Arc::new(names);
                *known = Known::Told(Arc::clone(&names));
                return names;
            }
            (None, Known::Told(_)) => *known = Known::Untold { again_at: Instant::now() + AGAIN, pause: AGAIN },
            (None, Known::Untold { .. }) => {}
        }
        Arc::default()
    }

    /// None if it is the caller's turn to ask; until that is answered the others go without.
    fn known(&self, now: Instant) -> Option<Arc<BTreeSet<String>>> {
        match &mut *self.0.lock() {
            Known::Told(names) => Some(Arc::clone(names)),
            Known::Untold { again_at, .. } if now < *again_at => Some(Arc::default()),
            Known::Untold { again_at, pause } => {
                *again_at = now + *pause;
                *pause = (*pause * 2).min(SELDOM);
                None
            }
        }
    }
}

async fn told(client: &Client) -> Option<BTreeSet<String>> {
    let namespace = client.options().namespace.clone();
    let mut request = Request::new(ListSearchAttributesRequest { namespace });
    request.set_timeout(ASKING);
    match client.connection().operator_service().list_search_attributes(request).await {
        Ok(answer) => Some(answer.into_inner().custom_attributes.into_keys().collect()),
        Err(status) => {
            tracing::info!(code = ?status.code(), "Temporal does not tell its search attributes; starts go without");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_asks_at_a_time_and_less_and_less_often() {
        let attributes = Attributes::unasked();
        let mut now = Instant::now();
        for pause in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            assert!(attributes.known(now).is_none(), "its turn to ask");
            assert_eq!(attributes.known(now).as_deref(), Some(&BTreeSet::new()), "another goes without");
            assert!(attributes.known(now + pause - Duration::from_millis(1)).is_some());
            now += pause;
        }
    }
}
