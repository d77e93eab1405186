//! Targets that the operator allows although their addresses come from data.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use crate::address_class::embedded_ipv4;

/// A host name, an address or a network that the operator allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedTarget {
    /// In lower case. All addresses of the name are allowed.
    Host(String),
    /// All addresses with the same first `prefix_bits` bits.
    Network { base: IpAddr, prefix_bits: u32 },
}

/// An invalid [`AllowedTarget`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a host or network: {reason}")]
pub struct InvalidTarget {
    text: String,
    reason: String,
}

impl AllowedTarget {
    fn contains(&self, host: &str, address: IpAddr) -> bool {
        match self {
            Self::Host(name) => is_same_host(name, host),
            Self::Network { base, prefix_bits } => is_in_network(embedded_ipv4(address), *base, *prefix_bits),
        }
    }
}

fn is_same_host(name: &str, host: &str) -> bool {
    host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case(name)
}

fn is_in_network(address: IpAddr, base: IpAddr, prefix_bits: u32) -> bool {
    match (address, base) {
        (IpAddr::V4(address), IpAddr::V4(base)) => {
            let host_bits = u32::BITS - prefix_bits;
            address.to_bits().checked_shr(host_bits) == base.to_bits().checked_shr(host_bits)
        }
        (IpAddr::V6(address), IpAddr::V6(base)) => {
            let host_bits = u128::BITS - prefix_bits;
            address.to_bits().checked_shr(host_bits) == base.to_bits().checked_shr(host_bits)
        }
        _ => false,
    }
}

impl FromStr for AllowedTarget {
    type Err = InvalidTarget;

    /// Parses `hooks.internal`, `10.1.2.3`, `10.0.0.0/8`, `::1` or `fd00::/8`.
    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let invalid = |reason: &str| InvalidTarget { text: text.to_owned(), reason: reason.to_owned() };
        if text.contains("://") {
            return Err(invalid("write only the host of the URL, such as hooks.internal"));
        }
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix)),
            None => (text, None),
        };
        let unbracketed = base.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(base);
        if let Ok(base) = unbracketed.parse::<IpAddr>() {
            return parse_network(base, prefix, text);
        }
        if prefix.is_some() {
            return Err(invalid("before the slash it needs an IP address, such as 10.0.0.0/8"));
        }
        if base.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(invalid("leave out the port; all ports of the host are allowed"));
        }
        let name = base.strip_suffix('.').unwrap_or(base);
        let is_name = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if name.len() > 253 || !name.split('.').all(is_name) {
            return Err(invalid("write a host name without wildcards, an IP address, or a network such as 10.0.0.0/8"));
        }
        // Resolvers read such names as addresses: 127.1 is 127.0.0.1.
        if name.rsplit('.').next().is_some_and(|last| last.starts_with(|first: char| first.is_ascii_digit())) {
            return Err(invalid("write the IPv4 address with four decimal numbers, such as 127.0.0.1"));
        }
        Ok(Self::Host(name.to_ascii_lowercase()))
    }
}

fn parse_network(base: IpAddr, prefix: Option<&str>, text: &str) -> Result<AllowedTarget, InvalidTarget> {
    let invalid = |reason: String| InvalidTarget { text: text.to_owned(), reason };
    if embedded_ipv4(base) != base {
        return Err(invalid(format!("the address contains an IPv4 address; write {}", embedded_ipv4(base))));
    }
    let max_bits = if base.is_ipv4() { u32::BITS } else { u128::BITS };
    let prefix_bits = match prefix {
        None => max_bits,
        Some(prefix) => prefix
            .parse()
            .ok()
            .filter(|bits| *bits <= max_bits)
            .ok_or_else(|| invalid(format!("after the slash it needs a number of bits from 0 to {max_bits}")))?,
    };
    let first = match base {
        IpAddr::V4(base) => {
            IpAddr::from((base.to_bits() & u32::MAX.checked_shl(u32::BITS - prefix_bits).unwrap_or(0)).to_be_bytes())
        }
        IpAddr::V6(base) => {
            IpAddr::from((base.to_bits() & u128::MAX.checked_shl(u128::BITS - prefix_bits).unwrap_or(0)).to_be_bytes())
        }
    };
    if first != base {
        return Err(invalid(format!("the network begins at another address; write {first}/{prefix_bits}")));
    }
    Ok(AllowedTarget::Network { base, prefix_bits })
}

/// A list of allowed targets. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedTargets(Arc<[AllowedTarget]>);

impl AllowedTargets {
    /// Whether the operator allows this address of a host.
    pub(crate) fn contains(&self, host: &str, address: IpAddr) -> bool {
        self.0.iter().any(|target| target.contains(host, address))
    }

    /// Whether an address of the name can be allowed.
    pub(crate) fn may_match_name(&self, host: &str) -> bool {
        self.0.iter().any(|target| match target {
            AllowedTarget::Host(name) => is_same_host(name, host),
            AllowedTarget::Network { .. } => true,
        })
    }
}

impl FromIterator<AllowedTarget> for AllowedTargets {
    fn from_iter<I: IntoIterator<Item = AllowedTarget>>(targets: I) -> Self {
        Self(targets.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(target: &str, host: &str, address: &str) -> bool {
        let target: AllowedTarget = target.parse().expect("a target");
        target.contains(host, address.parse().expect("an address"))
    }

    #[test]
    fn target_contains_only_its_host_or_network() {
        for (target, host, address, expected) in [
            ("hooks.internal", "HOOKS.internal.", "10.0.0.1", true),
            ("Hooks.Internal.", "hooks.internal", "10.0.0.1", true),
            ("hooks.internal", "evil.hooks.internal", "10.0.0.1", false),
            ("hooks.internal", "10.0.0.1", "10.0.0.1", false),
            ("10.0.0.0/8", "any.example", "10.255.0.1", true),
            ("10.0.0.0/8", "any.example", "11.0.0.1", false),
            ("10.0.0.0/8", "any.example", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "any.example", "64:ff9b::a00:1", true),
            ("127.0.0.1", "localhost", "127.0.0.1", true),
            ("127.0.0.1", "localhost", "127.0.0.2", false),
            ("::1", "localhost", "::1", true),
            ("[::1]", "localhost", "::1", true),
            ("fd00::/8", "any.example", "fd12::1", true),
            ("fd00::/8", "any.example", "fe80::1", false),
            ("0.0.0.0/0", "any.example", "169.254.169.254", true),
            ("0.0.0.0/0", "any.example", "::1", false),
            ("::/0", "any.example", "::1", true),
        ] {
            assert_eq!(contains(target, host, address), expected, "{target} {host} {address}");
        }
    }

    #[test]
    fn invalid_target_is_refused_with_correction() {
        for (text, expected) in [
            ("", "write a host name"),
            ("*.internal", "without wildcards"),
            ("hooks internal", "write a host name"),
            ("http://hooks.internal/x", "only the host of the URL"),
            ("hooks.internal:8080", "leave out the port"),
            ("127.0.0.1:80", "leave out the port"),
            ("hooks.internal/24", "before the slash it needs an IP address"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("fd00::/129", "from 0 to 128"),
            ("10.0.0.0/", "from 0 to 32"),
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("fd12::1/8", "write fd00::/8"),
            ("::ffff:10.0.0.1", "write 10.0.0.1"),
            ("127.1", "four decimal numbers"),
            ("2130706433", "four decimal numbers"),
        ] {
            let error = text.parse::<AllowedTarget>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("`{text}` is not a host or network: ")), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }
}
