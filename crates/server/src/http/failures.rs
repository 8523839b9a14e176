//! Failed authentication: counted, logged with the client's address, and limited per address.
//!
//! Invariants
//! - Only failures count. A client is never limited for what it does with good keys.
//! - An address that reached the bound is answered 429 for keys that this process does not know. A key that it knows as
//!   good still works from there: behind a proxy or a NAT, one client's failures do not lock the others out.
//! - The same goes for tokens of hooks and answers: misses count, and a token that opened here before works from
//!   anywhere.
//! - At most `REMEMBERED` addresses are remembered, and at most `LINES` lines are logged a second. No key is logged.
//!
//! Not here: which keys are good (`auth`).

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

/// What failures are counted in.
const WINDOW: Duration = Duration::from_secs(60);
/// The most addresses remembered at once.
const REMEMBERED: usize = 10_000;
/// The most lines logged in a second.
const LINES: u32 = 5;
/// The most hops of a forwarded request that are looked at.
const MOST_HOPS: usize = 16;

/// Why a request was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It showed no key.
    Missing,
    /// What it showed cannot be a key.
    Malformed,
    /// The key or token is not known, or not any more.
    Unknown,
    /// Too many failures came from its address; the key was not looked up.
    Limited,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Reason::Missing => "missing",
            Reason::Malformed => "malformed",
            Reason::Unknown => "unknown",
            Reason::Limited => "limited",
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
    /// The hashes of tokens that opened here.
    opened: BTreeSet<[u8; 32]>,
    /// The second in which lines were last logged, and how many.
    logged: Option<(Instant, u32)>,
}

impl Failures {
    pub(crate) fn new(most: u32) -> Failures {
        Failures { most, state: Mutex::default() }
    }

    /// May this address show a key that is not known? If not, for how long.
    pub(crate) fn check(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let state = self.state.lock();
        match state.by_address.get(&network(address)) {
            Some((began, count)) if *count >= self.most && now.duration_since(*began) < WINDOW => {
                Err(WINDOW.saturating_sub(now.duration_since(*began)))
            }
            _ => Ok(()),
        }
    }

    /// Counts a failure, and logs some of them: the first of an address in a minute, its tenth, its hundredth.
    pub(crate) fn note(&self, address: IpAddr, reason: Reason, now: Instant) {
        ::metrics::counter!(metrics::AUTH_FAILURES.name, "reason" => reason.name()).increment(1);
        // Whoever shows no key guesses none.
        if reason == Reason::Missing {
            return;
        }
        let mut state = self.state.lock();
        let failures = state.count(network(address), now);
        if is_power_of_ten(failures) && state.may_log(now) {
            tracing::warn!(%address, reason = reason.name(), failures, "Authentication failed");
        }
    }

    fn has_opened(&self, token: &[u8; 32]) -> bool {
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

/// Looks up a token of a hook or an answer that came from this address; none if it opens nothing. A miss is counted;
/// after too many of an address, a token that never opened here is answered without a look-up.
pub(crate) async fn open<T>(
    api: &Api,
    from: IpAddr,
    token: &str,
    look_up: impl Future<Output = Result<T, store::Error>>,
) -> Result<Option<T>, Problem> {
    let failures = &api.failures;
    let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    if !failures.has_opened(&hash)
        && let Err(wait) = failures.check(from, Instant::now())
    {
        failures.note(from, Reason::Limited, Instant::now());
        return Err(limited("too many requests with unknown tokens or bad keys came from this address", wait));
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

/// What an address is told that failed too often.
pub(crate) fn limited(detail: &str, wait: Duration) -> Problem {
    let wait = u32::try_from(wait.as_secs()).unwrap_or(60).max(1);
    Problem { retry_after_s: Some(wait), ..Problem::new(Code::RateLimited, detail) }
}

impl State {
    /// The failures of an address in its minute, this one included.
    fn count(&mut self, address: IpAddr, now: Instant) -> u32 {
        if self.by_address.len() >= REMEMBERED && !self.by_address.contains_key(&address) {
            self.by_address.retain(|_, (began, _)| now.duration_since(*began) < WINDOW);
            // So many at once are not one client; memory is worth more than their counts.
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

/// What is counted as one address: of IPv6 the 64 bits that one customer of a provider gets.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// The address that a request comes from, as a handler is told it.
pub(crate) struct Origin(pub(crate) IpAddr);

impl FromRequestParts<Api> for Origin {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Origin, Infallible> {
        Ok(Origin(client(&parts.extensions, &parts.headers, &api.settings.http.trusted_proxies)))
    }
}

/// Whom a request comes from: the other end of its connection, or, if that is a proxy that is trusted, the last address
/// in `X-Forwarded-For` that is not.
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
        // Whatever stands behind what no proxy writes was written by a stranger.
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
    fn an_address_is_limited_for_the_rest_of_its_minute_and_no_other_is() {
        let (failures, now) = (Failures::new(3), Instant::now());
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        for _ in 0..3 {
            assert_eq!(failures.check(one, now), Ok(()));
            failures.note(one, Reason::Unknown, now);
        }
        assert_eq!(failures.check(one, now), Err(WINDOW));
        assert_eq!(failures.check(address("::ffff:192.0.2.1"), now), Err(WINDOW), "the same, written otherwise");
        assert_eq!(failures.check(other, now), Ok(()));
        assert_eq!(failures.check(one, now + WINDOW), Ok(()));
        for _ in 0..9 {
            failures.note(other, Reason::Missing, now);
        }
        assert_eq!(failures.check(other, now), Ok(()), "whoever shows no key guesses none");
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
    fn a_forwarded_address_is_believed_from_trusted_proxies_only() {
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
