//! Failed authentication: counted, logged with the client's address, and limited per address.
//!
//! Invariants
//! - Only failures count. Requests with valid keys are never limited here.
//! - An address that reached the limit gets 429 for keys that are not in this process's cache of valid keys. A key in
//!   the cache still works from this address. So, behind a proxy or a NAT, the failures of one client do not lock out
//!   other clients with the same address.
//! - Tokens of triggers and answer links follow the same rule: unknown tokens count as failures, and a token that this
//!   process has found valid before works from any address.
//! - At most `REMEMBERED` addresses are remembered, and at most `LINES` lines are logged per second. No key is logged.
//!
//! Not here: which keys are valid (`auth`).

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};
use ipnet::IpNet;
use kernel::signals::metrics;
use sha2::{Digest, Sha256};

use super::{Api, Code, Problem};

/// The period in which failures are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The largest number of addresses in memory.
const REMEMBERED: usize = 10_000;
/// The largest number of lines logged per second.
const LINES: u32 = 5;
/// The largest number of hops in `X-Forwarded-For` that are read.
const MOST_HOPS: usize = 16;

/// Why authentication failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The request has no key.
    Missing,
    /// The text is not in the form of a key.
    Malformed,
    /// The key or token is unknown, expired or revoked.
    Unknown,
    /// The address had too many failures, so the key was not looked up.
    Limited,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Reason::Missing => "missing",
            Reason::Malformed => "malformed",
            Reason::Unknown => "unknown",
            Reason::Limited => "rate_limited",
        }
    }
}

/// The failures of each address in its current minute, in this process.
#[derive(Debug)]
pub(crate) struct Failures {
    most: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_address: BTreeMap<IpAddr, (Instant, u32)>,
    /// The hashes of tokens that this process has found valid.
    opened: BTreeSet<[u8; 32]>,
    /// The second in which lines were last logged, and their number.
    logged: Option<(Instant, u32)>,
}

impl Failures {
    pub(crate) fn new(most: u32) -> Failures {
        Failures { most, state: Mutex::default() }
    }

    /// Checks whether this address may send an unknown key. The error is how long the address must wait.
    pub(crate) fn check(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let state = self.state.lock();
        match state.by_address.get(&network(address)) {
            Some((began, count)) if *count >= self.most && now.duration_since(*began) < WINDOW => {
                Err(WINDOW.saturating_sub(now.duration_since(*began)))
            }
            _ => Ok(()),
        }
    }

    /// Counts a failure. The first, tenth, hundredth … failure of an address in a minute is logged.
    pub(crate) fn note(&self, address: IpAddr, reason: Reason, now: Instant) {
        ::metrics::counter!(metrics::AUTH_FAILURES.name, "reason" => reason.name()).increment(1);
        // A request without a key does not count: its sender did not try to guess a key.
        if reason == Reason::Missing {
            return;
        }
        let mut state = self.state.lock();
        let failures = state.count(network(address), now);
        if is_power_of_ten(failures) && state.may_log(now) {
            tracing::warn!(%address, reason = reason.name(), failures, "Authentication failed");
        }
    }

    fn is_known_token(&self, token: &[u8; 32]) -> bool {
        self.state.lock().opened.contains(token)
    }

    fn remember(&self, token: [u8; 32]) {
        let opened = &mut self.state.lock().opened;
        if opened.len() >= REMEMBERED && !opened.contains(&token) {
            opened.clear();
        }
        opened.insert(token);
    }

    fn forget(&self, token: &[u8; 32]) {
        self.state.lock().opened.remove(token);
    }
}

/// Looks up a token of a trigger or an answer link. None: the token is unknown, which counts as a failure of the
/// address. After too many failures, a token is refused without a lookup, unless this process has found it valid
/// before.
pub(crate) async fn look_up_token<T>(
    api: &Api,
    from: IpAddr,
    token: &str,
    look_up: impl Future<Output = Result<T, store::Error>>,
) -> Result<Option<T>, Problem> {
    let failures = &api.failures;
    let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    if !failures.is_known_token(&hash)
        && let Err(wait) = failures.check(from, Instant::now())
    {
        failures.note(from, Reason::Limited, Instant::now());
        return Err(limited(
            "too many requests with unknown tokens or invalid keys came from this address: wait, then try again",
            wait,
        ));
    }
    match look_up.await {
        Ok(found) => {
            failures.remember(hash);
            Ok(Some(found))
        }
        Err(store::Error::NotFound) => {
            failures.forget(&hash);
            failures.note(from, Reason::Unknown, Instant::now());
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The error for an address with too many failures.
pub(crate) fn limited(detail: &str, wait: Duration) -> Problem {
    let wait = u32::try_from(wait.as_secs()).unwrap_or(60).max(1);
    Problem { retry_after_s: Some(wait), ..Problem::new(Code::RateLimited, detail) }
}

impl State {
    /// Counts a failure. Returns the number of failures of the address in its current minute.
    fn count(&mut self, address: IpAddr, now: Instant) -> u32 {
        if self.by_address.len() >= REMEMBERED && !self.by_address.contains_key(&address) {
            self.by_address.retain(|_, (began, _)| now.duration_since(*began) < WINDOW);
            // The memory for counts is full within one minute: forget all counts and start again.
            if self.by_address.len() >= REMEMBERED {
                self.by_address.clear();
            }
        }
        let (began, count) = self.by_address.entry(address).or_insert((now, 0));
        if now.duration_since(*began) >= WINDOW {
            (*began, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count
    }

    fn may_log(&mut self, now: Instant) -> bool {
        let (second, lines) = self.logged.get_or_insert((now, 0));
        if now.duration_since(*second) >= Duration::from_secs(1) {
            (*second, *lines) = (now, 0);
        }
        *lines += 1;
        *lines <= LINES
    }
}

fn is_power_of_ten(number: u32) -> bool {
    number.checked_ilog10().is_some_and(|exponent| 10u32.pow(exponent) == number)
}

/// The network that counts as one address: for IPv6 the first 64 bits, which belong to one customer.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// The address of the client, as an extractor.
pub(crate) struct Origin(pub(crate) IpAddr);

impl FromRequestParts<Api> for Origin {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Origin, Infallible> {
        Ok(Origin(client(&parts.extensions, &parts.headers, &api.settings.http.trusted_proxies)))
    }
}

/// The address of the client: the peer of the connection. If the peer is a trusted proxy: the last address in
/// `X-Forwarded-For` that is not a trusted proxy.
pub(crate) fn client(extensions: &Extensions, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip().to_canonical());
    let peer = peer.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let is_trusted = |address: &IpAddr| trusted.iter().any(|range| range.contains(address));
    if !is_trusted(&peer) {
        return peer;
    }
    let lines = headers.get_all("x-forwarded-for").iter().rev().filter_map(|line| line.to_str().ok());
    let hops = lines.flat_map(|line| line.rsplit(',')).map(str::trim).take(MOST_HOPS);
    let mut last = peer;
    for hop in hops {
        // A proxy always writes an address. So the client wrote this text, and everything before it.
        let Ok(address) = hop.parse::<IpAddr>() else { return last };
        last = address.to_canonical();
        if !is_trusted(&last) {
            return last;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_with_too_many_failures_is_limited_for_a_minute() {
        let (failures, now) = (Failures::new(3), Instant::now());
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        for _ in 0..3 {
            assert_eq!(failures.check(one, now), Ok(()));
            failures.note(one, Reason::Unknown, now);
        }
        assert_eq!(failures.check(one, now), Err(WINDOW));
        assert_eq!(
            failures.check(address("::ffff:192.0.2.1"), now),
            Err(WINDOW),
            "the same address in another notation"
        );
        assert_eq!(failures.check(other, now), Ok(()));
        assert_eq!(failures.check(one, now + WINDOW), Ok(()));
        for _ in 0..9 {
            failures.note(other, Reason::Missing, now);
        }
        assert_eq!(failures.check(other, now), Ok(()), "a request without a key does not count");
    }

    #[test]
    fn the_addresses_of_one_ipv6_customer_are_one_and_memory_is_bounded() {
        let (failures, now) = (Failures::new(1), Instant::now());
        failures.note(address("2001:db8:1:2::1"), Reason::Malformed, now);
        assert!(failures.check(address("2001:db8:1:2:ffff::9"), now).is_err());
        assert!(failures.check(address("2001:db8:1:3::1"), now).is_ok());
        for number in 0..50_000u32 {
            failures.note(IpAddr::V4(number.into()), Reason::Unknown, now);
            let state = failures.state.lock();
            assert!(state.by_address.len() <= REMEMBERED);
        }
    }

    #[test]
    fn few_lines_are_logged_however_many_fail() {
        let (mut state, now) = (State::default(), Instant::now());
        let logged = (0..10_000).filter(|_| state.may_log(now)).count();
        assert_eq!(logged, LINES as usize);
        assert!(state.may_log(now + Duration::from_secs(1)));
        assert_eq!(
            [0u32, 1, 2, 10, 11, 100, 4_000_000_000].map(is_power_of_ten),
            [false, true, false, true, false, true, false]
        );
    }

    #[test]
    fn a_forwarded_address_counts_from_trusted_proxies_only() {
        let trusted = ["10.0.0.0/8".parse().expect("a range")];
        for (peer, forwarded, expected) in [
            ("192.0.2.1", "203.0.113.9", "192.0.2.1"),
            ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
            ("10.0.0.1", "1.1.1.1, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
            ("10.0.0.1", "203.0.113.9, nonsense", "10.0.0.1"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ] {
            let mut extensions = Extensions::new();
            extensions.insert(ConnectInfo(SocketAddr::new(address(peer), 1)));
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", forwarded.parse().expect("a header"));
            assert_eq!(client(&extensions, &headers, &trusted), address(expected), "{peer} {forwarded}");
        }
    }
}
