//! The hosts that a secret may be sent to.
//!
//! Invariants
//! - A host is stored in the normal form that URLs use, so it can be compared with a URL's host byte by byte.
//! - The host is checked for the first URL of a call only: a redirect never carries a secret to another origin
//!   (`outbound::request`).

use kernel::run::failure::{Class, Failure};
use url::{Host, Url};

use super::Error;

/// The maximum number of hosts of one secret.
pub(super) const MOST: usize = 20;
const LONGEST: usize = 253;

/// A secret that may only be sent to certain hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLimit {
    pub name: String,
    pub hosts: Vec<String>,
}

impl HostLimit {
    /// Checks that the secret may be sent to this URL. The failure names the secret and the hosts, never the value.
    pub fn check(&self, url: &str) -> Result<(), Failure> {
        // An invalid URL is never called: the guard reports what is wrong with it.
        let Ok(url) = Url::parse(url) else { return Ok(()) };
        let host = url.host_str().unwrap_or_default();
        if self.hosts.iter().any(|bound| bound == host.strip_suffix('.').unwrap_or(host)) {
            return Ok(());
        }
        let message = format!(
            "egress_denied: secret {} may be sent to {} only, not to {host:?}",
            self.name,
            self.hosts.join(", ")
        );
        Err(Failure::new(Class::SecurityError, message))
    }
}

/// Converts hosts to the normal form that URLs use. Fails if a text is no host.
pub(super) fn normal(hosts: &[String]) -> Result<Vec<String>, Error> {
    if hosts.len() > MOST {
        return Err(Error::InvalidHosts);
    }
    let normal = |text: &String| {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() || text.len() > LONGEST || text.contains(['*', '/', '@', '%']) {
            return Err(Error::InvalidHosts);
        }
        Host::parse(text).map(|host| host.to_string()).map_err(|_| Error::InvalidHosts)
    };
    hosts.iter().map(normal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_secret_goes_to_its_hosts_and_nowhere_else() {
        let hosts = ["API.example.com.", "10.0.0.5", "[fd00::1]"].map(str::to_owned);
        let hosts = normal(&hosts).expect("hosts");
        assert_eq!(hosts, ["api.example.com", "10.0.0.5", "[fd00::1]"]);
        let bound = HostLimit { name: "KEY".to_owned(), hosts };
        for url in
            ["https://api.example.com/x", "https://API.EXAMPLE.com.:8443/", "http://10.0.0.5", "http://[fd00::1]:1/"]
        {
            assert_eq!(bound.check(url), Ok(()), "{url}");
        }
        for url in
            ["https://example.com", "https://api.example.com.evil.test", "https://x.api.example.com", "http://10.0.0.6"]
        {
            let failure = bound.check(url).expect_err(url);
            assert_eq!(failure.class, Class::SecurityError);
            assert!(failure.message.contains("secret KEY may be sent to api.example.com"), "{}", failure.message);
        }
        for bad in ["", "*.example.com", "https://example.com", "a:80", "u@a", "a b"] {
            assert!(normal(&[bad.to_owned()]).is_err(), "{bad}");
        }
        assert!(normal(&vec!["a".to_owned(); MOST + 1]).is_err());
    }
}
