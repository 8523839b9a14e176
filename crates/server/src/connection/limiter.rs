//! Limits the number of connections, and decides which connection a new one replaces.
//!
//! Invariants
//! - There are never more permits than the limits allow. A connection holds its permit until its socket is closed, even
//!   after it was upgraded to a WebSocket.
//! - Only a connection without a request in progress is replaced: of these, the connection that has been idle longest.
//!   If the address of the new connection is at its limit, a connection of that address is replaced, otherwise a
//!   connection of any address.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use kernel::signals::metrics;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::{CloseReason, ConnectionLimits};

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    limits: ConnectionLimits,
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    /// The connections by their number, which increases: the oldest connection is first.
    by_number: BTreeMap<u64, Arc<ConnectionState>>,
    by_address: BTreeMap<IpAddr, usize>,
    next: u64,
}

/// The state of one connection that the limiter reads: whether it is idle, and since when.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// None for a connection of a trusted proxy, which the limit per address does not count.
    address: Option<IpAddr>,
    activity: Mutex<Activity>,
    replaced: CancellationToken,
}

#[derive(Debug)]
struct Activity {
    /// The number of requests in progress.
    requests: usize,
    /// The connection was upgraded to another protocol.
    upgraded: bool,
    /// True if a part of the next request has arrived, or if the connection has never had a request.
    begun: bool,
    since: Instant,
}

impl ConnectionLimiter {
    pub(super) fn new(limits: ConnectionLimits) -> ConnectionLimiter {
        ConnectionLimiter { limits, connections: Mutex::default() }
    }

    /// Admits a new connection, or returns why the connection is closed.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPermit, CloseReason> {
        let address = (!self.limits.is_proxy(address)).then(|| group(address));
        let mut connections = locked(&self.connections);
        if let Some(address) = address
            && connections.by_address.get(&address).copied().unwrap_or_default() >= self.limits.per_address
        {
            connections.evict(|state| state.address == Some(address)).ok_or(CloseReason::Address)?;
        }
        if connections.by_number.len() >= self.limits.total {
            connections.evict(|_| true).ok_or(CloseReason::Total)?;
        }
        let activity = Activity { requests: 0, upgraded: false, begun: true, since: Instant::now() };
        let state =
            Arc::new(ConnectionState { address, activity: Mutex::new(activity), replaced: CancellationToken::new() });
        let number = connections.next;
        connections.next += 1;
        connections.by_number.insert(number, Arc::clone(&state));
        if let Some(address) = address {
            *connections.by_address.entry(address).or_default() += 1;
        }
        ::metrics::gauge!(metrics::HTTP_CONNECTIONS.name).increment(1);
        Ok(ConnectionPermit { limiter: Arc::clone(self), number, state })
    }
}

impl Connections {
    /// Closes the matching connection that has been idle longest; none if every matching connection has a request in
    /// progress.
    fn evict(&mut self, matches: impl Fn(&ConnectionState) -> bool) -> Option<()> {
        let waiting =
            |(number, state): (&u64, &Arc<ConnectionState>)| state.waiting_since().map(|(since, _)| (since, *number));
        let (_, number) = self.by_number.iter().filter(|(_, state)| matches(state)).filter_map(waiting).min()?;
        self.remove(number)?.replaced.cancel();
        Some(())
    }

    fn remove(&mut self, number: u64) -> Option<Arc<ConnectionState>> {
        let state = self.by_number.remove(&number)?;
        ::metrics::gauge!(metrics::HTTP_CONNECTIONS.name).decrement(1);
        if let Some(address) = state.address
            && let Some(count) = self.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
        Some(state)
    }
}

/// The right of one connection to stay open, until this permit is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    number: u64,
    state: Arc<ConnectionState>,
}

impl ConnectionPermit {
    pub(super) fn state(&self) -> Arc<ConnectionState> {
        Arc::clone(&self.state)
    }

    /// Records that the next request has begun to arrive: from now on the header timeout applies.
    pub(super) fn request_arriving(&self) {
        let mut activity = locked(&self.state.activity);
        if activity.requests == 0 && !activity.begun {
            activity.begun = true;
            activity.since = Instant::now();
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        locked(&self.limiter.connections).remove(self.number);
    }
}

impl ConnectionState {
    /// Counts a request as in progress until the returned value is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        locked(&self.activity).requests += 1;
        ActiveRequest(Arc::clone(self))
    }

    /// Since when no request has been in progress, and whether the next request has begun to arrive. None while a
    /// request is in progress, and after an upgrade.
    pub(super) fn waiting_since(&self) -> Option<(Instant, bool)> {
        let activity = locked(&self.activity);
        (activity.requests == 0 && !activity.upgraded).then_some((activity.since, activity.begun))
    }

    /// Records that the connection was upgraded to another protocol, so that it is never replaced.
    pub(super) fn mark_upgraded(&self) {
        locked(&self.activity).upgraded = true;
    }

    /// Completes when a new connection has replaced this connection.
    pub(super) fn wait_until_replaced(&self) -> WaitForCancellationFuture<'_> {
        self.replaced.cancelled()
    }
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct ActiveRequest(Arc<ConnectionState>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut activity = locked(&self.0.activity);
        activity.requests -= 1;
        if activity.requests == 0 {
            (activity.begun, activity.since) = (false, Instant::now());
        }
    }
}

/// The address under which the limit per address counts a connection. All addresses of an IPv6 /64 network count as
/// one, because a single client may use any address of its network.
fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 => v4,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Timeouts;
    use super::*;

    fn new_limiter(total: usize, per_address: usize) -> Arc<ConnectionLimiter> {
        let timeouts = Timeouts { head: Duration::ZERO, idle: Duration::ZERO, write: Duration::ZERO };
        let proxies = vec!["10.9.0.0/16".parse().expect("a network")];
        Arc::new(ConnectionLimiter::new(ConnectionLimits { total, per_address, proxies, timeouts }))
    }

    fn at(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[tokio::test]
    async fn a_new_connection_replaces_the_one_that_was_idle_longest() {
        let limiter = new_limiter(4, 2);
        let first = limiter.admit(at("10.0.0.1")).expect("a permit");
        let second = limiter.admit(at("10.0.0.1")).expect("a permit");
        let other = limiter.admit(at("10.0.0.2")).expect("a permit");
        let third = limiter.admit(at("10.0.0.1")).expect("the first's permit");
        assert!(first.state.replaced.is_cancelled() && !second.state.replaced.is_cancelled());
        assert!(!other.state.replaced.is_cancelled(), "a connection of another address is not replaced");
        let active_request = [second.state.begin_request(), third.state.begin_request()];
        assert_eq!(
            limiter.admit(at("10.0.0.1")).map(|_| ()),
            Err(CloseReason::Address),
            "each has a request in progress"
        );
        drop(active_request);
        drop((first, second, third, other));
        assert!(
            locked(&limiter.connections).by_number.is_empty() && locked(&limiter.connections).by_address.is_empty()
        );
    }

    #[tokio::test]
    async fn the_total_is_never_exceeded_and_an_upgraded_connection_stays() {
        let limiter = new_limiter(2, 2);
        let socket = limiter.admit(at("10.0.0.1")).expect("a permit");
        socket.state.mark_upgraded();
        let idle = limiter.admit(at("10.0.0.2")).expect("a permit");
        let next = limiter.admit(at("10.0.0.3")).expect("the idle one's permit");
        assert!(idle.state.replaced.is_cancelled() && !socket.state.replaced.is_cancelled());
        let _busy = next.state.begin_request();
        assert_eq!(limiter.admit(at("10.0.0.4")).map(|_| ()), Err(CloseReason::Total));
    }

    #[tokio::test]
    async fn a_proxy_is_bounded_in_total_alone_and_an_ipv6_network_is_one_client() {
        let limiter = new_limiter(3, 1);
        let _behind =
            [limiter.admit(at("10.9.0.1")).expect("a permit"), limiter.admit(at("10.9.0.1")).expect("a permit")];
        let one = limiter.admit(at("2001:db8::1")).expect("a permit");
        let _busy = one.state.begin_request();
        assert_eq!(limiter.admit(at("2001:db8::ffff")).map(|_| ()), Err(CloseReason::Address));
    }
}
