//! Decides from the URL alone whether a tenant may call it, and why not.
//!
//!     text ──parse once──▶ scheme ▶ user-info ▶ opened? ▶ port ▶ host ──▶ CheckedUrl
//!                                                  └──────────────────────▲
//!
//! Invariants
//! - The connection goes to the parsed URL that was checked. Nothing is parsed twice.
//! - Addresses in a URL are checked here, because the resolver never sees them.
//! - A refusal names the host of the URL, never an address that the host resolved to.
//! - An `allow` entry permits the port and the address of its host. It permits no other scheme and no user-info.
//! - Hosts and addresses that a `deny` entry names are never called, even if an `allow` entry names them too.
//!
//! Not here: addresses behind names (`resolver`), the ranges (`address`), header rules (`request`).

use std::net::IpAddr;

use kernel::run::failure::{Class, Failure};
use url::{Host, Url};

use super::address;
use super::allow::{AllowEntry, DenyEntry, absolute};
use super::rules::HostRules;

/// The maximum length of a URL.
const MAX_URL_LEN: usize = 16_384;

/// Ports that serve something other than HTTP: those that browsers refuse, then databases, brokers and control planes.
/// Port 0 is invalid.
const REFUSED_PORTS: [u16; 99] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
    110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
    532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
    5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, // as in browsers
    445, 1433, 1521, 2375, 2379, 3306, 3389, 5432, 5672, 6379, 6432, 7233, 9042, 9092, 11211, 27017,
];

/// Names that mean the machine, its network or its cloud, whatever they resolve to. All names below them are refused
/// too.
const REFUSED_NAMES: [&str; 9] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "home.arpa",
    "instance-data",
    "metadata.goog",
    "metadata.tencentyun.com",
];

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    #[error("the URL cannot be used: {0}; correct it")]
    Url(url::ParseError),
    #[error("the URL is longer than {MAX_URL_LEN} bytes")]
    Length,
    #[error("scheme {0:?} may not be called; use http or https")]
    Scheme(String),
    #[error("the URL of {0:?} carries a user name or password; send a header instead")]
    UserInfo(String),
    #[error("port {port} of {host:?} may not be called; the operator can allow it: outbound.allow={host}:{port}")]
    Port { host: String, port: u16 },
    #[error("{host:?} may not be called: it is not public; the operator can allow it: outbound.allow={host}:{port}")]
    Host { host: String, port: u16 },
    #[error(
        "{host:?} may not be called: it has an address that is not public; the operator can allow the name: \
         outbound.allow={host}:{port}"
    )]
    Address { host: String, port: u16 },
    #[error("{0:?} may not be called: outbound.deny of the service or of this workspace lists it or its address")]
    Closed(String),
    #[error("an HTTP_REQUEST may not set the header {0:?}; remove it")]
    Header(String),
    #[error("the redirect leads to another origin, {0:?}, and the body contains a secret; call the final URL directly")]
    SecretBody(String),
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        Failure::new(Class::SecurityError, format!("egress_denied: {denied}"))
    }
}

/// A URL that passed the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckedUrl {
    pub(super) url: Url,
    /// True if an `allow` entry names the host. Its addresses need not be public then, but `deny` entries still apply.
    pub(super) opened: bool,
}

impl CheckedUrl {
    /// The host to name in messages.
    pub(super) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The host and the port.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.host(), self.port())
    }

    fn port(&self) -> u16 {
        // A URL that passed the guard always has a port.
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// The refusal of this target because its name has an address that is not public.
    pub(super) fn denied_address(&self) -> Denied {
        Denied::Address { host: self.host().to_owned(), port: self.port() }
    }
}

/// The rules for calls: the operator's, and those of a workspace if they were added (`with`).
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    pub(super) allow: Vec<AllowEntry>,
    /// Treats this machine's loopback addresses, and the name `localhost`, as public.
    pub(super) allow_loopback: bool,
    /// Hosts and addresses that are never called, even if `allow` names them.
    pub(super) deny: Vec<DenyEntry>,
    /// The fingerprint of the workspace's rules that this guard includes; 0 for none.
    pub(super) of: u64,
}

impl Guard {
    /// Adds a workspace's own rules to these rules. A host is blocked if a `deny` entry of either names it.
    pub(super) fn with(&self, rules: &HostRules) -> Guard {
        Guard {
            allow: [self.allow.as_slice(), &rules.allow].concat(),
            allow_loopback: self.allow_loopback,
            deny: [self.deny.as_slice(), &rules.deny].concat(),
            of: rules.fingerprint(),
        }
    }

    /// Parses a URL and checks it.
    pub(super) fn parse(&self, text: &str) -> Result<CheckedUrl, Denied> {
        if text.len() > MAX_URL_LEN {
            return Err(Denied::Length);
        }
        self.check(Url::parse(text).map_err(Denied::Url)?)
    }

    /// Checks a URL, also that of a redirect.
    pub(super) fn check(&self, url: Url) -> Result<CheckedUrl, Denied> {
        if url.as_str().len() > MAX_URL_LEN {
            return Err(Denied::Length);
        }
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Denied::Scheme(url.scheme().chars().take(40).collect()));
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(Denied::Url(url::ParseError::EmptyHost));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Denied::UserInfo(host.to_string()));
        }
        if self.deny.iter().any(|entry| entry.closes(host.clone())) {
            return Err(Denied::Closed(host.to_string()));
        }
        let opened = self.allow.iter().any(|entry| entry.opens(host.clone(), port));
        if !opened {
            if REFUSED_PORTS.contains(&port) {
                return Err(Denied::Port { host: host.to_string(), port });
            }
            if !self.permits_host(&host) {
                return Err(Denied::Host { host: host.to_string(), port });
            }
        }
        Ok(CheckedUrl { url, opened })
    }

    /// True if this address may be called, as part of a URL or behind a name.
    pub(super) fn permits(&self, address: IpAddr) -> bool {
        let public = address::is_global(address) || self.allow_loopback && address.is_loopback();
        public && !self.is_closed(address)
    }

    /// True if a `deny` entry blocks this address, even if an `allow` entry names its host.
    pub(super) fn is_closed(&self, address: IpAddr) -> bool {
        self.deny.iter().any(|entry| entry.closes_address(address))
    }

    fn permits_host(&self, host: &Host<&str>) -> bool {
        match *host {
            Host::Ipv4(address) => self.permits(address.into()),
            Host::Ipv6(address) => self.permits(address.into()),
            Host::Domain(name) if self.allow_loopback && absolute(name) == "localhost" => true,
            Host::Domain(name) => permits_name(absolute(name)),
        }
    }
}

/// Refuses a name without a dot too: only the search list of the local network resolves it.
fn permits_name(name: &str) -> bool {
    let refused = REFUSED_NAMES.iter().any(|below| name.strip_suffix(below).is_some_and(is_whole_labels));
    name.contains('.') && !name.starts_with('.') && !refused
}

fn is_whole_labels(head: &str) -> bool {
    head.is_empty() || head.ends_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Guard {
            allow: vec!["10.0.0.5:8080".parse().expect("an entry"), "db.corp.internal:22".parse().expect("an entry")],
            deny: vec!["9.9.9.0/24".parse().expect("a range")],
            ..Guard::default()
        }
    }

    #[test]
    fn what_is_closed_is_never_called_whoever_opens_it() {
        let entries =
            |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an entry")).collect::<Vec<AllowEntry>>();
        let closed =
            |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an entry")).collect::<Vec<DenyEntry>>();
        let of_service = Guard {
            allow: entries(&["10.0.0.5:8080", "db.corp.internal:8080"]),
            deny: closed(&["10.0.0.6", "evil.example", "93.184.0.0/16"]),
            ..Guard::default()
        };
        let rules = HostRules {
            allow: entries(&["10.0.0.6:8080", "10.0.0.7:8080"]),
            deny: closed(&["10.0.0.5", "shop.example"]),
        };
        let guard = of_service.with(&rules);
        assert_ne!(guard.of, 0);
        for (url, passes) in [
            ("http://10.0.0.7:8080/", true),
            ("http://db.corp.internal:8080/", true),
            ("http://10.0.0.6:8080/", false),
            ("http://10.0.0.5:8080/", false),
            ("http://evil.example/", false),
            ("http://evil.example.:8443/", false),
            ("http://93.184.1.1/", false),
            ("http://[::ffff:93.184.1.1]/", false),
            ("https://shop.example/", false),
            ("https://shop.example:8443/", false),
        ] {
            assert_eq!(guard.parse(url).is_ok(), passes, "{url}");
        }
        assert!(of_service.parse("http://10.0.0.7:8080/").is_err(), "one workspace's rules open nothing to others");
        assert!(guard.is_closed("93.184.7.7".parse().expect("an address")), "also behind a name that is open");
    }

    fn verdict(text: &str) -> String {
        match guard().parse(text) {
            Ok(target) => format!("{} {}", if target.opened { "opened" } else { "passed" }, target.url),
            Err(denied) => Failure::from(denied).message,
        }
    }

    #[test]
    fn every_written_form_of_a_forbidden_address_is_refused() {
        for host in [
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "127.1",
            "0x7f.1",
            "127.0.0.1.",
            "127。0。0。1",
            "１２７.0.0.1",
            "0",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[::ffff:0:127.0.0.1]",
            "[64:ff9b::a9fe:a9fe]",
            "[64:ff9b:1::a9fe:a9fe]",
            "[2002:7f00:1::]",
            "[2001::1]",
            "[fec0::1]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "9.9.9.9",
            "0xa9fea9fe",
            "2852039166",
            "10.0.0.5",
            "localhost",
            "localhost.",
            "LOCALHOST",
            "a.localhost",
            "localhost.localdomain",
            "metadata",
            "metadata.google.internal",
            "metadata.google.internal.",
            "Metadata.Google.Internal",
            "instance-data",
            "metadata.goog",
            "printer.local",
            "router.home.arpa",
            "postgres",
            "db.corp.internal",
        ] {
            for url in [format!("http://{host}/"), format!("https://{host}:8443/x?y")] {
                let verdict = verdict(&url);
                assert!(
                    verdict.starts_with("egress_denied: ") && verdict.contains("may not be called"),
                    "{url}: {verdict}"
                );
            }
        }
    }

    #[test]
    fn every_refusal_says_its_reason() {
        for (url, reason) in [
            (
                "http:127.0.0.1/",
                "\"127.0.0.1\" may not be called: it is not public; the operator can allow it: \
                 outbound.allow=127.0.0.1:80",
            ),
            (
                "http:/127.0.0.1/",
                "\"127.0.0.1\" may not be called: it is not public; the operator can allow it: \
                 outbound.allow=127.0.0.1:80",
            ),
            (
                "http://127.0.0.1#@example.com/",
                "\"127.0.0.1\" may not be called: it is not public; the operator can allow it: \
                 outbound.allow=127.0.0.1:80",
            ),
            ("http://127.0.0.1:9000/", "the operator can allow it: outbound.allow=127.0.0.1:9000"),
            ("http://[::1]:9000/", "the operator can allow it: outbound.allow=[::1]:9000"),
            ("https://wiki/", "the operator can allow it: outbound.allow=wiki:443"),
            ("http://example.com:6379/", "the operator can allow it: outbound.allow=example.com:6379"),
            ("http://foo@127.0.0.1/", "carries a user name"),
            ("http://:pw@example.com/", "carries a user name"),
            ("http://foo@10.0.0.5:8080/", "carries a user name"),
            ("http://1.1.1.1 &@127.0.0.1/", "carries a user name"),
            ("http://a%00b/", "cannot be used"),
            ("http://[fe80::1%25eth0]/", "cannot be used"),
            ("http://[fe80::1%eth0]/", "cannot be used"),
            ("http:///", "cannot be used"),
            ("/only/a/path", "cannot be used"),
            ("", "cannot be used"),
            ("file:///etc/passwd", "scheme \"file\""),
            ("gopher://127.0.0.1:70/", "scheme \"gopher\""),
            ("ftp://example.com/", "scheme \"ftp\""),
            ("data:text/plain,x", "scheme \"data\""),
            ("http://example.com:0/", "port 0"),
            ("http://example.com:22/", "port 22"),
            ("http://example.com:25/", "port 25"),
            ("http://example.com:5432/", "port 5432"),
            ("http://example.com:7233/", "port 7233"),
            ("http://db.corp.internal:25/", "port 25"),
        ] {
            let verdict = verdict(url);
            assert!(verdict.starts_with("egress_denied: ") && verdict.contains(reason), "{url}: {verdict}");
        }
        assert!(verdict(&format!("http://example.com/{}", "a".repeat(MAX_URL_LEN))).contains("longer than"));
    }

    #[test]
    fn the_setting_that_a_refusal_names_allows_the_call() {
        for url in
            ["http://127.0.0.1:9000/a", "http://[::1]/", "https://wiki/", "http://example.com:6379/", "http://0/"]
        {
            let refused = guard().parse(url).expect_err(url).to_string();
            let (_, entry) = refused.split_once("outbound.allow=").expect("the setting and its value");
            let observed = Guard { allow: vec![entry.parse().expect("an entry")], ..Guard::default() };
            assert!(observed.parse(url).is_ok_and(|target| target.opened), "{url}: {refused}");
        }
    }

    #[test]
    fn where_loopback_is_allowed_nothing_else_is() {
        let guard = Guard { allow_loopback: true, ..guard() };
        let loopback = ["http://127.0.0.1:9000/", "http://127.1:3000/", "http://[::1]:9000/", "http://localhost:3000/"];
        for url in loopback {
            assert!(guard.parse(url).is_ok_and(|target| !target.opened), "{url}");
        }
        for url in [
            "http://10.0.0.1/",
            "http://169.254.169.254/",
            "http://0.0.0.0:9000/",
            "http://[::ffff:127.0.0.1]:9000/",
            "http://a.localhost:3000/",
            "http://127.0.0.1:5432/",
            "http://localhost:6379/",
            "file:///etc/passwd",
        ] {
            assert!(guard.parse(url).is_err(), "{url}");
        }
        assert!(guard.permits("127.0.0.1".parse().expect("an address")));
        assert!(!guard.permits("10.0.0.1".parse().expect("an address")));
    }

    #[test]
    fn what_may_be_called_passes() {
        for (url, expected) in [
            ("https://example.com/", "passed https://example.com/"),
            ("https://example.com./", "passed https://example.com./"),
            ("http://example.com:8080/a?b=c", "passed http://example.com:8080/a?b=c"),
            ("http://example.com\\@127.0.0.1/", "passed http://example.com/@127.0.0.1/"),
            ("http://mylocalhost.com/", "passed http://mylocalhost.com/"),
            ("http://notinternal.example/", "passed http://notinternal.example/"),
            ("http://1.1.1.1/", "passed http://1.1.1.1/"),
            ("http://[2606:4700:4700::1111]/", "passed http://[2606:4700:4700::1111]/"),
            ("http://10.0.0.5:8080/", "opened http://10.0.0.5:8080/"),
            ("http://0x0a.5:8080/", "opened http://10.0.0.5:8080/"),
            ("http://db.corp.internal.:22/", "opened http://db.corp.internal.:22/"),
        ] {
            assert_eq!(verdict(url), expected, "{url}");
        }
    }
}
