//! Decides which hosts an image may be downloaded from, to prevent server-side request forgery.
//!
//! A provider may answer with a URL. Without a restriction, such a URL could make the server call hosts that only it
//! can reach: itself, its private network, a cloud's metadata service. So only two kinds of URLs are allowed: at the
//! configured service, and https URLs at public hosts. The resolver of the connection itself filters the addresses of a
//! host name, so a second DNS lookup cannot return a different address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::uri::{Scheme, Uri};
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

/// Returns whether a URL outside the service is allowed. [`PublicResolver`] checks host names when it resolves them.
pub(super) fn is_allowed_url(uri: &Uri) -> bool {
    let Some(host) = uri.host() else { return false };
    let has_user_info = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if uri.scheme() != Some(&Scheme::HTTPS) || has_user_info {
        return false;
    }
    // The connector does not resolve literal addresses, so they are checked here.
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().map_or(!host.is_empty(), is_public)
}

/// Returns whether an address is reachable from the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_protocol_assignment = first == 192 && second == 0 && third == 0;
    let is_benchmarking = first == 198 && (second == 18 || second == 19);
    let is_relay = first == 192 && second == 88 && third == 99;
    !(first == 0
        || first >= 240
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || is_shared
        || is_protocol_assignment
        || is_benchmarking
        || is_relay)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    // NAT64: the last four octets are the IPv4 address.
    if parts[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        let [.., a, b, c, d] = address.octets();
        return is_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    let is_global = (0x2000..0x4000).contains(&parts[0]);
    // Teredo and 6to4 tunnels, which embed other addresses, and ranges reserved for protocols and documentation.
    let is_reserved = parts[0] == 0x2001 && (parts[1] < 0x200 || parts[1] == 0xdb8);
    let is_tunneled = parts[0] == 0x2002;
    let is_documentation = parts[0] == 0x3fff && parts[1] < 0x1000;
    is_global && !is_reserved && !is_tunneled && !is_documentation
}

/// A host name resolved to no public address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host is in a private network")]
pub(super) struct PrivateAddressError;

/// Resolves host names and drops addresses that are not public.
#[derive(Clone, Debug)]
pub(super) struct PublicResolver(GaiResolver);

impl PublicResolver {
    pub(super) fn new(resolver: GaiResolver) -> Self {
        Self(resolver)
    }
}

type ResolvedAddrs = std::vec::IntoIter<SocketAddr>;
type ResolveError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Name> for PublicResolver {
    type Response = ResolvedAddrs;
    type Error = ResolveError;
    type Future = Pin<Box<dyn Future<Output = Result<ResolvedAddrs, ResolveError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ResolveError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookup = self.0.call(name);
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = lookup.await?.filter(|address| is_public(address.ip())).collect();
            if addresses.is_empty() { Err(PrivateAddressError.into()) } else { Ok(addresses.into_iter()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_reserved_addresses_are_not_public() {
        let public = |text: &str| is_public(text.parse().expect("an address"));
        for address in ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808"] {
            assert!(public(address), "{address}");
        }
        let private = "0.0.0.0 127.0.0.1 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1 \
                   192.0.0.1 192.0.2.1 198.18.0.1 198.51.100.7 203.0.113.9 192.88.99.1 224.0.0.1 240.0.0.1 \
                   255.255.255.255 :: ::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 fe80::1 fc00::1 fd12::1 ff02::1 \
                   2001:db8::1 2001::1 2002:7f00:1::1 64:ff9b::7f00:1 3fff::1 ::7f00:1";
        for address in private.split_whitespace() {
            assert!(!public(address), "{address}");
        }
    }

    #[test]
    fn only_public_https_urls_are_allowed() {
        let is_allowed = |text: &str| text.parse().is_ok_and(|uri| is_allowed_url(&uri));
        assert!(is_allowed("https://files.example.org/a.png") && is_allowed("https://8.8.8.8:8443/a.png"));
        for forbidden in [
            "http://files.example.org/a.png",
            "https://me@files.example.org/a.png",
            "https://127.0.0.1/a.png",
            "https://[::1]/a.png",
            "https://[::ffff:169.254.169.254]/a.png",
            "ftp://files.example.org/a.png",
            "file:///etc/passwd",
            "/a.png",
        ] {
            assert!(!is_allowed(forbidden), "{forbidden}");
        }
    }
}
