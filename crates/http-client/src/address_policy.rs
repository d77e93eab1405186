//! Decides which addresses a client may connect to.

use std::net::IpAddr;

use http::Uri;

use crate::address_class::AddressClass;

/// Says where the addresses of a client come from, and so which ones it may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPolicy {
    /// The operator configured the address. It may be private.
    Configured,
    /// The address comes from a record, a caller or another service. Without a guard, it could make the server call
    /// hosts that only the server can reach: itself, its private network, a cloud's metadata service. So it must be
    /// public, unless the operator allows private ones.
    FromData { allow_private: bool },
}

/// The policy forbids all addresses of a host. Nothing was sent.
///
/// The text is the same for a literal address and for a name, and does not say why: it may reach the owner of a record,
/// who should not learn which names resolve to internal addresses. `class` is for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address of `{host}` is not allowed")]
pub struct AddressRefused {
    pub host: String,
    pub class: AddressClass,
    /// Whether the host is an address itself. A name may resolve to other addresses later.
    pub is_literal: bool,
}

impl AddressPolicy {
    /// Checks a URL whose host is a literal address: the connector does not pass it to the resolver.
    pub(crate) fn check_literal(self, uri: &Uri) -> Result<(), AddressRefused> {
        let host = uri.host().unwrap_or_default();
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) => self.check(host, address, true),
            Err(_) => Ok(()),
        }
    }

    /// Checks an address of a name.
    pub(crate) fn check_resolved(self, name: &str, address: IpAddr) -> Result<(), AddressRefused> {
        self.check(name, address, false)
    }

    fn check(self, host: &str, address: IpAddr, is_literal: bool) -> Result<(), AddressRefused> {
        match (self, AddressClass::of(address)) {
            (Self::FromData { allow_private: false }, Some(class)) => {
                Err(AddressRefused { host: host.to_owned(), class, is_literal })
            }
            _ => Ok(()),
        }
    }
}
