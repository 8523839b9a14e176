//! An operator's entry that opens one host to tenants: `host`, `host:port`, `address`, `address:port`.
//!
//! Invariants
//! - An entry opens exactly what it names. A name is opened only as that name, an address only
//!   where a URL writes that address: another name for it stays shut.
//! - Without a port an entry opens 80 and 443, the two a URL need not write; any other port,
//!   even one that is refused to everybody, is opened by writing it.
//! - There are no wildcards and no ranges.
//!
//! Not here: what the guard does with an opened host (`guard`).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use url::Host;

/// One opened host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Allow {
    host: Host<String>,
    port: Option<u16>,
}

/// Why a text is no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} opens no host: {reason}")]
pub struct BadAllow {
    text: String,
    reason: &'static str,
}

impl Allow {
    /// Does this entry open that host at that port?
    pub(super) fn opens(&self, host: Host<&str>, port: u16) -> bool {
        let same_port = match self.port {
            Some(open) => open == port,
            None => port == 80 || port == 443,
        };
        same_port && self.is_for(host)
    }

    fn is_for(&self, host: Host<&str>) -> bool {
        match (&self.host, host) {
            (Host::Domain(open), Host::Domain(name)) => open == absolute(name),
            (Host::Ipv4(open), Host::Ipv4(address)) => *open == address,
            (Host::Ipv6(open), Host::Ipv6(address)) => *open == address,
            _ => false,
        }
    }
}

/// A name without the dot that may end it, which changes nothing of what it means.
pub(super) fn absolute(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

impl FromStr for Allow {
    type Err = BadAllow;

    fn from_str(text: &str) -> Result<Self, BadAllow> {
        parse(text).map_err(|reason| BadAllow { text: text.chars().take(80).collect(), reason })
    }
}

impl TryFrom<String> for Allow {
    type Error = BadAllow;

    fn try_from(text: String) -> Result<Self, BadAllow> {
        text.parse()
    }
}

impl From<Allow> for String {
    fn from(allow: Allow) -> String {
        allow.to_string()
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => self.host.fmt(f),
        }
    }
}

fn parse(text: &str) -> Result<Allow, &'static str> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Allow { host: of_address(address), port: None });
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or("the bracket is not closed")?;
        let address: Ipv6Addr = address.parse().map_err(|_| "brackets hold an IPv6 address")?;
        let port = match rest {
            "" => None,
            _ => Some(parse_port(rest.strip_prefix(':').ok_or("after the bracket only a port may follow")?)?),
        };
        return Ok(Allow { host: Host::Ipv6(address), port });
    }
    match text.split_once(':') {
        Some((host, port)) => Ok(Allow { host: parse_host(host)?, port: Some(parse_port(port)?) }),
        None => Ok(Allow { host: parse_host(text)?, port: None }),
    }
}

fn of_address(address: IpAddr) -> Host<String> {
    match address {
        IpAddr::V4(address) => Host::Ipv4(address),
        IpAddr::V6(address) => Host::Ipv6(address),
    }
}

fn parse_host(text: &str) -> Result<Host<String>, &'static str> {
    if text.contains('*') {
        return Err("an entry names one host, without wildcards");
    }
    if text.contains('/') {
        return Err("an entry is a host or an address, with or without a port, not a URL or a range");
    }
    match Host::parse(text).map_err(|_| "that is not a host name or an address")? {
        Host::Domain(name) => Ok(Host::Domain(absolute(&name).to_owned())),
        // 010.0.0.1 is 8.0.0.1 to a URL: whoever writes such a thing means something else.
        Host::Ipv4(address) if address.to_string() != text => Err("write the address as four decimal numbers"),
        address => Ok(address),
    }
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a port is a number from 1 to 65535"),
        Ok(port) => Ok(port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opens(entry: &str, host: &str, port: u16) -> bool {
        let entry: Allow = entry.parse().expect("an entry");
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
        ] {
            assert_eq!(opens(entry, host, port), expected, "{entry} for {host} at {port}");
        }
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
            "10.0.0.0/8",
            "a b",
            "u@a",
            "[::1",
            "[::1]x",
            "[a]",
            "010.0.0.1",
            "127.1",
        ] {
            let error = text.parse::<Allow>().expect_err(text);
            assert!(error.to_string().contains("opens no host: "), "{error}");
        }
    }

    #[test]
    fn an_entry_is_written_as_it_is_read() {
        for text in ["a.example", "a.example:8080", "10.0.0.5", "10.0.0.5:1", "[::1]", "[::1]:8080"] {
            assert_eq!(text.parse::<Allow>().expect("an entry").to_string(), text);
        }
    }
}
