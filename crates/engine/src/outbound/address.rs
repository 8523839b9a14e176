//! Which addresses a tenant may call: only global unicast addresses.
//!
//! Invariants
//! - IPv4: every range in [`V4`] is refused. IPv6: everything outside `2000::/3` is refused, and so is every range in
//!   [`V6`]. This covers mapped, compatible, translated (NAT64), unique local, site local, link local, loopback and
//!   unspecified addresses.
//! - An IPv6 address that embeds an IPv4 address is always refused, because the network may deliver the call to the
//!   embedded address. No public service is lost, because none has only such an address.
//!
//! Not here: what an operator allows (`allow`), names (`guard`), resolving them (`resolver`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// The IPv4 ranges that are not global unicast, and those that cloud providers use for their own services.
const V4: [Ipv4Net; 17] = [
    v4(0, 0, 0, 0, 8),        // this network; 0.0.0.0 reaches the machine itself
    v4(10, 0, 0, 0, 8),       // private
    v4(100, 64, 0, 0, 10),    // carrier-grade NAT; a cloud's metadata at 100.100.100.200
    v4(127, 0, 0, 0, 8),      // loopback
    v4(168, 63, 129, 16, 32), // a cloud's host agent, although in public space
    v4(169, 254, 0, 0, 16),   // link local; metadata services
    v4(172, 16, 0, 0, 12),    // private
    v4(192, 0, 0, 0, 24),     // protocol assignments; a cloud's metadata at 192.0.0.192
    v4(192, 0, 2, 0, 24),     // documentation
    v4(192, 31, 196, 0, 24),  // name service sink
    v4(192, 88, 99, 0, 24),   // 6to4 relays
    v4(192, 168, 0, 0, 16),   // private
    v4(198, 18, 0, 0, 15),    // benchmarks
    v4(198, 51, 100, 0, 24),  // documentation
    v4(203, 0, 113, 0, 24),   // documentation
    v4(224, 0, 0, 0, 4),      // multicast
    v4(240, 0, 0, 0, 4),      // reserved, and broadcast
];

/// The only IPv6 range that is assigned to the public.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0], 3);

/// The ranges within [`GLOBAL_V6`] that are not global unicast.
const V6: [Ipv6Net; 5] = [
    v6([0x2001, 0, 0], 23),     // protocol assignments: Teredo, benchmarks, ORCHID
    v6([0x2001, 0xdb8, 0], 32), // documentation
    v6([0x2002, 0, 0], 16),     // 6to4, carries an IPv4 address
    v6([0x3ffe, 0, 0], 16),     // the former 6bone test network
    v6([0x3fff, 0, 0], 20),     // documentation
];

/// True if a tenant may call this address.
pub(super) fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => V4.iter().all(|range| !range.contains(&address)),
        IpAddr::V6(address) => GLOBAL_V6.contains(&address) && V6.iter().all(|range| !range.contains(&address)),
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(head: [u16; 3], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(head[0], head[1], head[2], 0, 0, 0, 0, 0), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every address of the corpus, and the first and last of each range.
    const REFUSED: &str = "
        0.0.0.0 0.0.0.1 0.255.255.255
        10.0.0.0 10.0.0.1 10.255.255.255
        100.64.0.0 100.100.100.200 100.127.255.255
        127.0.0.1 127.0.0.2 127.1.2.3 127.255.255.255
        168.63.129.16
        169.254.0.0 169.254.169.254 169.254.170.2 169.254.255.255
        172.16.0.0 172.16.0.1 172.31.255.255
        192.0.0.0 192.0.0.192 192.0.0.255
        192.0.2.0 192.0.2.255 192.31.196.1
        192.88.99.1 192.168.0.0 192.168.1.1 192.168.255.255
        198.18.0.0 198.18.0.1 198.19.255.255
        198.51.100.1 203.0.113.1
        224.0.0.1 239.255.255.255
        240.0.0.1 250.1.2.3 255.255.255.254 255.255.255.255
        :: ::1
        ::ffff:127.0.0.1 ::ffff:a9fe:a9fe ::ffff:10.0.0.1 ::ffff:1.1.1.1
        ::127.0.0.1 ::1.1.1.1 ::ffff:0:127.0.0.1
        64:ff9b::a9fe:a9fe 64:ff9b::101:101 64:ff9b:1::a9fe:a9fe
        100::1 100:0:0:1::1
        2001::1 2001:0:7f00:1:: 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1
        2001:db8::1 2001:db8:ffff::1
        2002:7f00:1:: 2002:a9fe:a9fe::1 2002:101:101::
        3ffe::1 3fff::1 3fff:fff::1
        4000::1 5f00::1
        fc00::1 fd00:ec2::254 fdff::1
        fe80::1 febf::1 fec0::1 feff::1
        ff00::1 ff02::1 ff0e::1
    ";

    /// Addresses just outside the ranges, and well-known services. They must pass, or the list is too wide.
    const PASSED: &str = "
        1.0.0.0 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0
        100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
        168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0
        172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0
        198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0
        223.255.255.255
        2001:200::1 2001:4860:4860::8888 2606:4700:4700::1111 2a00:1450:4001:80e::200e
        2003::1 2400:cb00::1 3fff:1000::1
    ";

    #[test]
    fn only_global_unicast_passes() {
        for (table, expected) in [(REFUSED, false), (PASSED, true)] {
            for text in table.split_whitespace() {
                let address: IpAddr = text.parse().expect("the table holds addresses");
                assert_eq!(is_global(address), expected, "{text}");
            }
        }
    }
}
