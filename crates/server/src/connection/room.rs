//! Who is connected, and who leaves for a newcomer.
//!
//! Invariants
//! - No more seats are given than the bounds say; a seat is given back when its socket is closed, also after an
//!   upgrade.
//! - Only a connection without a request under way leaves for a newcomer: the one that has waited longest, of the
//!   newcomer's own address if that is full, else of any.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use kernel::signals::metrics;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::{Bounds, Closed};

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct Room {
    bounds: Bounds,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    /// By number: the oldest first.
    peers: BTreeMap<u64, Arc<Peer>>,
    by_address: BTreeMap<IpAddr, usize>,
    next: u64,
}

/// One connection, as others see it.
#[derive(Debug)]
pub(super) struct Peer {
    /// Nothing for one that is not counted by its address.
    address: Option<IpAddr>,
    state: Mutex<State>,
    replaced: CancellationToken,
}

#[derive(Debug)]
struct State {
    /// Requests under way.
    requests: usize,
    /// It speaks another protocol by now.
    upgraded: bool,
    /// Something of a request came, or nothing ever did.
    begun: bool,
    since: Instant,
}

impl Room {
    pub(super) fn new(bounds: Bounds) -> Room {
        Room { bounds, seats: Mutex::default() }
    }

    /// Takes a newcomer in, or says why not.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Seat, Closed> {
        let address = (!self.bounds.is_proxy(address)).then(|| group(address));
        let mut seats = locked(&self.seats);
        if let Some(address) = address
            && seats.by_address.get(&address).copied().unwrap_or_default() >= self.bounds.per_address
        {
            seats.free(|peer| peer.address == Some(address)).ok_or(Closed::Address)?;
        }
        if seats.peers.len() >= self.bounds.total {
            seats.free(|_| true).ok_or(Closed::Total)?;
        }
        let state = State { requests: 0, upgraded: false, begun: true, since: Instant::now() };
        let peer = Arc::new(Peer { address, state: Mutex::new(state), replaced: CancellationToken::new() });
        let number = seats.next;
        seats.next += 1;
        seats.peers.insert(number, Arc::clone(&peer));
        if let Some(address) = address {
            *seats.by_address.entry(address).or_default() += 1;
        }
        ::metrics::gauge!(metrics::HTTP_CONNECTIONS.name).increment(1);
        Ok(Seat { room: Arc::clone(self), number, peer })
    }
}

impl Seats {
    /// Lets go whoever has waited longest, of those that are meant.
    fn free(&mut self, meant: impl Fn(&Peer) -> bool) -> Option<()> {
        let waiting = |(number, peer): (&u64, &Arc<Peer>)| peer.waiting().map(|(since, _)| (since, *number));
        let (_, number) = self.peers.iter().filter(|(_, peer)| meant(peer)).filter_map(waiting).min()?;
        self.remove(number)?.replaced.cancel();
        Some(())
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Peer>> {
        let peer = self.peers.remove(&number)?;
        ::metrics::gauge!(metrics::HTTP_CONNECTIONS.name).decrement(1);
        if let Some(address) = peer.address
            && let Some(count) = self.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
        Some(peer)
    }
}

/// The right to be connected, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    room: Arc<Room>,
    number: u64,
    peer: Arc<Peer>,
}

impl Seat {
    pub(super) fn peer(&self) -> Arc<Peer> {
        Arc::clone(&self.peer)
    }

    /// Bytes came.
    pub(super) fn read(&self) {
        let mut state = locked(&self.peer.state);
        if state.requests == 0 && !state.begun {
            state.begun = true;
            state.since = Instant::now();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        locked(&self.room.seats).remove(self.number);
    }
}

impl Peer {
    /// A request is under way until the answer is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        locked(&self.state).requests += 1;
        Busy(Arc::clone(self))
    }

    /// Since when no request has been under way, and whether one has begun to arrive; nothing while one is, or after an
    /// upgrade.
    pub(super) fn waiting(&self) -> Option<(Instant, bool)> {
        let state = locked(&self.state);
        (state.requests == 0 && !state.upgraded).then_some((state.since, state.begun))
    }

    /// It speaks another protocol from now on.
    pub(super) fn upgrade(&self) {
        locked(&self.state).upgraded = true;
    }

    /// Ends when a newcomer took its place.
    pub(super) fn replaced(&self) -> WaitForCancellationFuture<'_> {
        self.replaced.cancelled()
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Busy(Arc<Peer>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = locked(&self.0.state);
        state.requests -= 1;
        if state.requests == 0 {
            (state.begun, state.since) = (false, Instant::now());
        }
    }
}

/// Whom a connection is counted with: an IPv6 network of 64 bits is one client, as it may use any address of it.
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

    fn room(total: usize, per_address: usize) -> Arc<Room> {
        let timeouts = Timeouts { head: Duration::ZERO, idle: Duration::ZERO, write: Duration::ZERO };
        let proxies = vec!["10.9.0.0/16".parse().expect("a network")];
        Arc::new(Room::new(Bounds { total, per_address, proxies, timeouts }))
    }

    fn at(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[tokio::test]
    async fn a_newcomer_takes_the_place_of_the_one_that_waited_longest() {
        let room = room(4, 2);
        let first = room.enter(at("10.0.0.1")).expect("a seat");
        let second = room.enter(at("10.0.0.1")).expect("a seat");
        let other = room.enter(at("10.0.0.2")).expect("a seat");
        let third = room.enter(at("10.0.0.1")).expect("the first's seat");
        assert!(first.peer.replaced.is_cancelled() && !second.peer.replaced.is_cancelled());
        assert!(!other.peer.replaced.is_cancelled(), "another address is not asked to leave");
        let busy = [second.peer.begin(), third.peer.begin()];
        assert_eq!(room.enter(at("10.0.0.1")).map(|_| ()), Err(Closed::Address), "each has a request under way");
        drop(busy);
        drop((first, second, third, other));
        assert!(locked(&room.seats).peers.is_empty() && locked(&room.seats).by_address.is_empty());
    }

    #[tokio::test]
    async fn the_total_is_never_exceeded_and_an_upgraded_connection_stays() {
        let room = room(2, 2);
        let socket = room.enter(at("10.0.0.1")).expect("a seat");
        socket.peer.upgrade();
        let idle = room.enter(at("10.0.0.2")).expect("a seat");
        let next = room.enter(at("10.0.0.3")).expect("the idle one's seat");
        assert!(idle.peer.replaced.is_cancelled() && !socket.peer.replaced.is_cancelled());
        let _busy = next.peer.begin();
        assert_eq!(room.enter(at("10.0.0.4")).map(|_| ()), Err(Closed::Total));
    }

    #[tokio::test]
    async fn a_proxy_is_bounded_in_total_alone_and_an_ipv6_network_is_one_client() {
        let room = room(3, 1);
        let _behind = [room.enter(at("10.9.0.1")).expect("a seat"), room.enter(at("10.9.0.1")).expect("a seat")];
        let one = room.enter(at("2001:db8::1")).expect("a seat");
        let _busy = one.peer.begin();
        assert_eq!(room.enter(at("2001:db8::ffff")).map(|_| ()), Err(Closed::Address));
    }
}
