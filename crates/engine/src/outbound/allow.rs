//! Parses the operator's entries. One opens a host to tenants: `host`, `host:port`, `address`, `address:port`. Or it
//! opens every address of a range: `range`, `range:port`, such as 10.1.0.0/16:8080 or [fd00:1::/32]:8080.
//!
//! Invariants
//! - An entry opens exactly what it names. A name is opened only under that name. An address is opened only where a URL
//!   contains that address. A name that resolves to the address stays blocked.
//! - Without a port an entry opens ports 80 and 443, the defaults of URLs. Any other port is opened by naming it, even
//!   one that is refused in general.
//! - There are no wildcards, and no range may cover every address.
//! - An entry for an IPv4 address or range may be written as IPv6 (`::ffff:10.0.0.5`) and means the same.
//!
//! Not here: what the guard does with an opened host (`guard`).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use serde_with::{DeserializeFromStr, SerializeDisplay};
use url::Host;

/// One allowed host, or the addresses of a range.
#[derive(Clone, Debug, PartialEq, Eq, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct AllowEntry {
    opened: EntryScope,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum EntryScope {
    Host(Host<String>),
    Range(IpNet),
}

/// Why a text is not a valid entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid entry: {reason}")]
pub struct InvalidEntry {
    text: String,
    reason: &'static str,
}

impl AllowEntry {
    /// True if this entry opens the host at the port.
    pub(super) fn opens(&self, host: Host<&str>, port: u16) -> bool {
        let same_port = match self.port {
            Some(open) => open == port,
            None => port == 80 || port == 443,
        };
        same_port && self.is_for(host)
    }

    fn is_for(&self, host: Host<&str>) -> bool {
        match (&self.opened, host) {
            (EntryScope::Host(Host::Domain(open)), Host::Domain(name)) => open == absolute(name),
            (EntryScope::Host(Host::Ipv4(open)), Host::Ipv4(address)) => *open == address,
            (EntryScope::Host(Host::Ipv6(open)), Host::Ipv6(address)) => *open == address,
            (EntryScope::Range(range), Host::Ipv4(address)) => range.contains(&IpAddr::V4(address)),
            (EntryScope::Range(range), Host::Ipv6(address)) => range.contains(&IpAddr::V6(address)),
            _ => false,
        }
    }
}

/// An entry that blocks a host, an address or a range on every port. An entry cannot name a port: it is also compared
/// with the addresses that a host name resolves to, and the resolver does not know the port of the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct DenyEntry(AllowEntry);

impl DenyEntry {
    /// True if this entry blocks the host.
    pub(super) fn closes(&self, host: Host<&str>) -> bool {
        self.0.is_for(canonical(host))
    }

    /// True if this entry blocks the address, whatever host name resolves to it.
    pub(super) fn closes_address(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.0.is_for(Host::Ipv4(address)),
            IpAddr::V6(address) => self.0.is_for(Host::Ipv6(address)),
        }
    }
}

impl FromStr for DenyEntry {
    type Err = InvalidEntry;

    fn from_str(text: &str) -> Result<Self, InvalidEntry> {
        let entry: AllowEntry = text.parse()?;
        match entry.port {
            None => Ok(DenyEntry(entry)),
            Some(_) => {
                Err(InvalidEntry { text: text.to_owned(), reason: "a deny entry blocks every port; remove the port" })
            }
        }
    }
}

impl fmt::Display for DenyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Treats an IPv4 address in IPv6 form as that IPv4 address.
fn canonical(host: Host<&str>) -> Host<&str> {
    match host {
        Host::Ipv6(address) => address.to_ipv4_mapped().map_or(Host::Ipv6(address), Host::Ipv4),
        other => other,
    }
}

/// A name without its trailing dot, which does not change its meaning.
pub(super) fn absolute(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

impl FromStr for AllowEntry {
    type Err = InvalidEntry;

    fn from_str(text: &str) -> Result<Self, InvalidEntry> {
        parse(text).map_err(|reason| InvalidEntry { text: text.chars().take(80).collect(), reason })
    }
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.opened {
            EntryScope::Host(host) => host.fmt(f)?,
            EntryScope::Range(range @ IpNet::V4(_)) => range.fmt(f)?,
            EntryScope::Range(range @ IpNet::V6(_)) => write!(f, "[{range}]")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn parse(text: &str) -> Result<AllowEntry, &'static str> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(AllowEntry { opened: EntryScope::Host(of_address(address)), port: None });
    }
    if let Ok(range) = text.parse() {
        return Ok(AllowEntry { opened: parse_range(range)?, port: None });
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or("the bracket is not closed")?;
        let opened = match (address.parse::<Ipv6Addr>(), address.parse()) {
            (Ok(address), _) => EntryScope::Host(of_address(address.into())),
            (_, Ok(range @ IpNet::V6(_))) => parse_range(range)?,
            _ => return Err("only an IPv6 address or range may be in brackets"),
        };
        let port = match rest {
            "" => None,
            _ => Some(parse_port(rest.strip_prefix(':').ok_or("only a port may follow the bracket")?)?),
        };
        return Ok(AllowEntry { opened, port });
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(parse_port(port)?)),
        None => (text, None),
    };
    let opened = match host.parse() {
        Ok(range) => parse_range(range)?,
        Err(_) => EntryScope::Host(parse_host(host)?),
    };
    Ok(AllowEntry { opened, port })
}

fn parse_range(range: IpNet) -> Result<EntryScope, &'static str> {
    let range = canonical_range(range);
    if range.prefix_len() == 0 {
        return Err("the range covers every address; name a smaller range");
    }
    if range.trunc() != range {
        return Err("the range does not start at its first address; write it as the network address");
    }
    Ok(EntryScope::Range(range))
}

/// Treats a range of IPv4 addresses in IPv6 form as that IPv4 range.
fn canonical_range(range: IpNet) -> IpNet {
    let IpNet::V6(mapped) = range else { return range };
    let (address, length) = (mapped.addr().to_ipv4_mapped(), mapped.prefix_len().checked_sub(96));
    let canonical = address.zip(length).and_then(|(address, length)| IpNet::new(address.into(), length).ok());
    canonical.unwrap_or(range)
}

/// Treats an IPv4 address in IPv6 form as the same host.
fn of_address(address: IpAddr) -> Host<String> {
    match address.to_canonical() {
        IpAddr::V4(address) => Host::Ipv4(address),
        IpAddr::V6(address) => Host::Ipv6(address),
    }
}

fn parse_host(text: &str) -> Result<Host<String>, &'static str> {
    if text.contains('*') {
        return Err("wildcards are not supported; name one host per entry");
    }
    if text.contains('/') {
        return Err("write a host, an address or a range, with or without a port, and no URL");
    }
    match Host::parse(text).map_err(|_| "not a host name or an address")? {
        Host::Domain(name) => Ok(Host::Domain(absolute(&name).to_owned())),
        // URLs read 010.0.0.1 as 8.0.0.1, which is surely not what the operator meant.
        Host::Ipv4(address) if address.to_string() != text => Err("write it as four decimal numbers, no leading zeros"),
        address => Ok(address),
    }
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    match text.parse() {
        Ok(0) | Err(_) => Err("the port must be a number from 1 to 65535"),
        Ok(port) => Ok(port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opens(entry: &str, host: &str, port: u16) -> bool {
        let entry: AllowEntry = entry.parse().expect("an entry");
        let host = Host::parse(host).expect("a host");
        match &host {
            Host::Domain(name) => entry.opens(Host::Domain(name), port),
            Host::Ipv4(address) => entry.opens(Host::Ipv4(*address), port),
            Host::Ipv6(address) => entry.opens(Host::Ipv6(*address), port),
        }
    }

    #[test]
    fn an_entry_opens_exactly_what_it_names() {
        for (entry, host, port, expected) in [
            ("api.corp.example", "api.corp.example", 443, true),
            ("api.corp.example", "api.corp.example", 80, true),
            ("api.corp.example", "api.corp.example", 8080, false),
            ("API.corp.example.", "api.corp.example", 443, true),
            ("api.corp.example", "api.corp.example.", 443, true),
            ("api.corp.example", "x.api.corp.example", 443, false),
            ("api.corp.example", "corp.example", 443, false),
            ("api.corp.example:8080", "api.corp.example", 8080, true),
            ("api.corp.example:8080", "api.corp.example", 443, false),
            ("10.0.0.5", "10.0.0.5", 80, true),
            ("10.0.0.5:22", "10.0.0.5", 22, true),
            ("10.0.0.5:22", "10.0.0.6", 22, false),
            ("10.0.0.5", "[::ffff:10.0.0.5]", 80, false),
            ("::1", "[::1]", 443, true),
            ("[::1]:8080", "[::1]", 8080, true),
            ("[::1]:8080", "[::1]", 80, false),
            ("10.1.0.0/16", "10.1.255.255", 80, true),
            ("10.1.0.0/16", "10.1.0.1", 8080, false),
            ("10.1.0.0/16:8080", "10.1.0.1", 8080, true),
            ("10.1.0.0/16:8080", "10.1.0.1", 80, false),
            ("10.1.0.0/16", "10.2.0.0", 80, false),
            ("10.1.0.0/16", "10.0.255.255", 80, false),
            ("10.1.0.0/16", "[::ffff:10.1.0.1]", 80, false),
            ("10.1.0.0/16", "a.example", 80, false),
            ("fd00:1::/32", "[fd00:1::7]", 443, true),
            ("[fd00:1::/32]:8080", "[fd00:1::7]", 8080, true),
            ("[fd00:1::/32]:8080", "[fd00:2::7]", 8080, false),
        ] {
            assert_eq!(opens(entry, host, port), expected, "{entry} for {host} at {port}");
        }
    }

    #[test]
    fn an_entry_that_closes_has_no_port() {
        for text in ["10.0.0.5:8080", "shop.example:443", "10.1.0.0/16:80", "[fd00::1]:80"] {
            let refused = text.parse::<DenyEntry>().expect_err(text).to_string();
            assert!(refused.contains("blocks every port; remove the port"), "{refused}");
        }
    }

    #[test]
    fn an_ipv4_entry_that_is_written_as_ipv6_is_the_same_entry() {
        for (mapped, plain) in [
            ("::ffff:10.0.0.5", "10.0.0.5"),
            ("[::ffff:10.0.0.5]", "10.0.0.5"),
            ("[::ffff:a00:5]:8080", "10.0.0.5:8080"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("[::ffff:10.1.0.0/112]:8080", "10.1.0.0/16:8080"),
        ] {
            let entry: AllowEntry = mapped.parse().expect("an entry");
            assert_eq!(entry, plain.parse().expect("an entry"), "{mapped}");
        }
        for denied in
            ["::ffff:10.0.0.5", "::ffff:10.0.0.0/104"].map(|text| text.parse::<DenyEntry>().expect("an entry"))
        {
            for text in ["10.0.0.5", "::ffff:10.0.0.5"] {
                assert!(denied.closes_address(text.parse().expect("an address")), "{text}");
            }
        }
        assert!(opens("::ffff:10.0.0.5", "10.0.0.5", 80));
        assert!("::ffff:0.0.0.0/96".parse::<AllowEntry>().is_err(), "every IPv4 address");
    }

    #[test]
    fn what_is_no_entry_is_refused_with_its_reason() {
        for text in [
            "",
            ":80",
            "a:",
            "a:0",
            "a:65536",
            "a:b",
            "a:80:90",
            "*.corp",
            "http://a",
            "a/b",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "0.0.0.0/0",
            "::/0",
            "[10.0.0.0/8]",
            "a b",
            "u@a",
            "[::1",
            "[::1]x",
            "[a]",
            "010.0.0.1",
            "127.1",
        ] {
            let error = text.parse::<AllowEntry>().expect_err(text);
            assert!(error.to_string().contains("is not a valid entry: "), "{error}");
        }
    }

    #[test]
    fn an_entry_is_written_as_it_is_read() {
        for text in [
            "a.example",
            "a.example:8080",
            "10.0.0.5",
            "10.0.0.5:1",
            "[::1]",
            "[::1]:8080",
            "10.0.0.0/8:80",
            "[fd00::/8]:80",
        ] {
            assert_eq!(text.parse::<AllowEntry>().expect("an entry").to_string(), text);
        }
    }
}
