//! Classifies the addresses that are not reachable from the public internet.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    Unspecified,
    Loopback,
    Private,
    /// Includes the metadata service of clouds, 169.254.169.254.
    LinkLocal,
    CarrierGradeNat,
    UniqueLocal,
    Multicast,
    Documentation,
    Reserved,
}

impl AddressClass {
    /// Returns the class of an address, or `None` if it is public.
    pub fn of(address: IpAddr) -> Option<Self> {
        match embedded_ipv4(address) {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Option<Self> {
        match address.octets() {
            [0, ..] => Some(Self::Unspecified),
            [127, ..] => Some(Self::Loopback),
            [100, 64..128, ..] => Some(Self::CarrierGradeNat),
            _ if address.is_private() => Some(Self::Private),
            _ if address.is_link_local() => Some(Self::LinkLocal),
            _ if address.is_multicast() => Some(Self::Multicast),
            _ if address.is_documentation() => Some(Self::Documentation),
            // Protocol assignments, 6to4 relays, benchmarks, future use and broadcast; and Azure's wire server, a public
            // number at which every virtual machine reaches its own host.
            [192, 0, 0, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [240..=255, ..] | [168, 63, 129, 16] => {
                Some(Self::Reserved)
            }
            _ => None,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Option<Self> {
        match address.segments() {
            [0x2001, 0xdb8, ..] | [0x3fff, 0..0x1000, ..] => Some(Self::Documentation),
            // Teredo and 6to4 embed other addresses; the rest is for protocols.
            [0x2001, 0..0x200, ..] | [0x2002, ..] => Some(Self::Reserved),
            [0x2000..0x4000, ..] => None,
            [0xfc00..0xfe00, ..] => Some(Self::UniqueLocal),
            [0xfe80..0xfec0, ..] => Some(Self::LinkLocal),
            [0xff00..=0xffff, ..] => Some(Self::Multicast),
            _ if address.is_unspecified() => Some(Self::Unspecified),
            _ if address.is_loopback() => Some(Self::Loopback),
            _ => Some(Self::Reserved),
        }
    }
}

/// Returns the IPv4 address inside an IPv6 one that reaches it (mapped, NAT64); any other address unchanged.
pub(crate) fn embedded_ipv4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(outer) = address else { return address };
    if let Some(inner) = outer.to_ipv4_mapped() {
        return inner.into();
    }
    match outer.segments() {
        // NAT64: the last four octets are the IPv4 address.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            let [.., a, b, c, d] = outer.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => address,
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::CarrierGradeNat => "carrier-grade NAT",
            Self::UniqueLocal => "unique-local",
            Self::Multicast => "multicast",
            Self::Documentation => "documentation",
            Self::Reserved => "reserved",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(text: &str) -> Option<AddressClass> {
        AddressClass::of(text.parse().expect("an address"))
    }

    #[test]
    fn public_addresses_have_no_class() {
        let public = "8.8.8.8 1.1.1.1 172.32.0.1 100.63.255.255 100.128.0.1 168.63.129.15 192.0.1.1 198.17.0.1 198.20.0.1 \
                      2606:4700::1111 64:ff9b::808:808 ::ffff:8.8.8.8";
        for address in public.split_whitespace() {
            assert_eq!(class_of(address), None, "{address}");
        }
    }

    #[test]
    fn private_and_reserved_addresses_have_their_class() {
        for (class, addresses) in [
            (AddressClass::Unspecified, "0.0.0.0 0.1.2.3 0.255.255.255 :: ::ffff:0.0.0.0"),
            (AddressClass::Loopback, "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1"),
            (AddressClass::Private, "10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 ::ffff:10.0.0.1 64:ff9b::c0a8:101"),
            (AddressClass::LinkLocal, "169.254.169.254 fe80::1 febf::1 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe"),
            (AddressClass::CarrierGradeNat, "100.64.0.1 100.127.255.255 ::ffff:100.64.0.1 64:ff9b::6464:64c8"),
            (AddressClass::UniqueLocal, "fc00::1 fd12::1 fd00:ec2::254"),
            (AddressClass::Multicast, "224.0.0.1 239.255.255.255 ff02::1 ::ffff:224.0.0.1"),
            (AddressClass::Documentation, "192.0.2.1 198.51.100.7 203.0.113.9 2001:db8::1 3fff::1"),
            (AddressClass::Reserved, "192.0.0.1 198.18.0.1 198.19.0.1 192.88.99.1 240.0.0.1 255.255.255.255"),
            (AddressClass::Reserved, "168.63.129.16 ::ffff:168.63.129.16 64:ff9b::a83f:8110 ::ffff:198.18.0.1"),
            (AddressClass::Reserved, "2001::1 2002:7f00:1::1 ::7f00:1 64:ff9b:1::1 fec0::1 4000::1"),
        ] {
            for address in addresses.split_whitespace() {
                assert_eq!(class_of(address), Some(class), "{address}");
            }
        }
    }
}
