//! The search attributes of the namespace: read once, and again after a failed read or a refused start.
//!
//! Invariants
//! - A start sets only attributes that the namespace last listed. Temporal refuses a start with an unknown attribute.
//! - While one start reads the list, other starts do not wait: their requests set no attributes. Reading takes at most
//!   `LIST_TIMEOUT`.
//! - If Temporal does not return the list, it is requested again after growing pauses, without an end.
//!
//! Not here: which attributes are set (`start`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use temporalio_client::Client;
use temporalio_client::tonic::Request;
use temporalio_common::protos::temporal::api::operatorservice::v1::ListSearchAttributesRequest;

/// How long reading the list may take: less than the time limit of a start.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// The first and the longest pause before the list is requested again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What is known about a namespace's search attributes.
pub(crate) struct SearchAttributeNames(Mutex<Known>);

enum Known {
    Listed(Arc<BTreeSet<String>>),
    Unlisted { retry_at: Instant, pause: Duration },
}

impl SearchAttributeNames {
    pub(crate) fn unread() -> SearchAttributeNames {
        SearchAttributeNames(Mutex::new(Known::Unlisted { retry_at: Instant::now(), pause: FIRST_PAUSE }))
    }

    /// The names of the search attributes. Empty while they are unknown.
    pub(crate) async fn names(&self, client: &Client) -> Arc<BTreeSet<String>> {
        if let Some(known) = self.known(Instant::now()) { known } else { self.read(client).await }
    }

    /// Reads the list, even if one is known. Called for the first read, and after a start with the known attributes was
    /// refused.
    pub(crate) async fn read(&self, client: &Client) -> Arc<BTreeSet<String>> {
        let listed = list_attributes(client).await;
        let mut known = self.0.lock();
        match (listed, &*known) {
            (Some(names), _) => {
                let names = Arc::new(names);
                *known = Known::Listed(Arc::clone(&names));
                return names;
            }
            (None, Known::Listed(_)) => {
                *known = Known::Unlisted { retry_at: Instant::now() + FIRST_PAUSE, pause: FIRST_PAUSE }
            }
            (None, Known::Unlisted { .. }) => {}
        }
        Arc::default()
    }

    /// None if the caller must read the list now. Until it has, other callers get an empty list.
    fn known(&self, now: Instant) -> Option<Arc<BTreeSet<String>>> {
        match &mut *self.0.lock() {
            Known::Listed(names) => Some(Arc::clone(names)),
            Known::Unlisted { retry_at, .. } if now < *retry_at => Some(Arc::default()),
            Known::Unlisted { retry_at, pause } => {
                *retry_at = now + *pause;
                *pause = (*pause * 2).min(LONGEST_PAUSE);
                None
            }
        }
    }
}

async fn list_attributes(client: &Client) -> Option<BTreeSet<String>> {
    let namespace = client.options().namespace.clone();
    let mut request = Request::new(ListSearchAttributesRequest { namespace });
    request.set_timeout(LIST_TIMEOUT);
    match client.connection().operator_service().list_search_attributes(request).await {
        Ok(answer) => Some(answer.into_inner().custom_attributes.into_keys().collect()),
        Err(status) => {
            tracing::info!(code = ?status.code(),
                "Temporal did not list its search attributes; start requests set none");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_reads_at_a_time_and_the_pause_grows() {
        let attributes = SearchAttributeNames::unread();
        let mut now = Instant::now();
        for pause in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            assert!(attributes.known(now).is_none(), "the first caller reads the list");
            assert_eq!(attributes.known(now).as_deref(), Some(&BTreeSet::new()), "the second goes without");
            assert!(attributes.known(now + pause - Duration::from_millis(1)).is_some());
            now += pause;
        }
    }
}
