//! Decides which addresses a client may connect to.

use std::net::IpAddr;

use http::Uri;

use crate::address_class::AddressClass;
use crate::allowed_target::AllowedTargets;

/// Says where the addresses of a client come from, and so which ones it may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressPolicy {
    /// The operator configured the address. It may be private.
    Configured,
    /// The address comes from a record, a caller or another service. Without a guard, it could make the server call
    /// hosts that only the server can reach: itself, its private network, a cloud's metadata service. So it must be a
    /// target that the operator allows, or public if `allow_public` is set.
    FromData { allow_public: bool, allowed_targets: AllowedTargets },
}

/// The policy forbids all addresses of a host. Nothing was sent.
///
/// The text is the same for a literal address and for a name, and does not say why: it may reach the owner of a record,
/// who should not learn which names resolve to internal addresses. `class` is for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address of `{host}` is not allowed")]
pub struct AddressRefused {
    pub host: String,
    /// `None` if the address is public, or if there was no lookup.
    pub class: Option<AddressClass>,
    /// Whether the policy refuses the host for good. Otherwise, another lookup may return an allowed address.
    pub is_final: bool,
}

impl AddressPolicy {
    /// The address comes from data and must be public.
    pub fn public_only() -> Self {
        Self::FromData { allow_public: true, allowed_targets: AllowedTargets::default() }
    }

    /// Checks what a URL shows without a lookup. A literal address is checked completely, because the connector does
    /// not pass it to the resolver.
    pub(crate) fn check_uri(&self, uri: &Uri) -> Result<(), AddressRefused> {
        let host = uri.host().unwrap_or_default();
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
            return self.check(host, address, true);
        }
        match self {
            Self::FromData { allow_public: false, allowed_targets } if !allowed_targets.may_match_name(host) => {
                Err(AddressRefused { host: host.to_owned(), class: None, is_final: true })
            }
            _ => Ok(()),
        }
    }

    /// Checks an address of a name.
    pub(crate) fn check_resolved(&self, name: &str, address: IpAddr) -> Result<(), AddressRefused> {
        self.check(name, address, false)
    }

    fn check(&self, host: &str, address: IpAddr, is_final: bool) -> Result<(), AddressRefused> {
        let Self::FromData { allow_public, allowed_targets } = self else { return Ok(()) };
        let class = AddressClass::of(address);
        if *allow_public && class.is_none() || allowed_targets.contains(host, address) {
            return Ok(());
        }
        Err(AddressRefused { host: host.to_owned(), class, is_final })
    }
}
