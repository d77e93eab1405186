//! Resolves host names and drops the addresses that the policy forbids.
//!
//! The connector connects to the addresses that it gets from here. There is no second lookup, so a name server cannot
//! pass the check with one address and then return another (DNS rebinding).

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

use crate::address_policy::AddressPolicy;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Looks up the addresses of a host name.
pub(crate) type Lookup = Arc<dyn Fn(Name) -> BoxFuture<io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Uses the system's resolver.
pub(crate) fn system_lookup() -> Lookup {
    Arc::new(|name| {
        let lookup = GaiResolver::new().call(name);
        Box::pin(async { Ok(lookup.await?.collect()) })
    })
}

#[derive(Clone)]
pub(crate) struct PolicyResolver {
    pub(crate) policy: AddressPolicy,
    pub(crate) lookup: Lookup,
}

impl Service<Name> for PolicyResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let policy = self.policy.clone();
        let lookup = (self.lookup)(name.clone());
        Box::pin(async move {
            let mut allowed = Vec::new();
            let mut refused = None;
            for address in lookup.await? {
                match policy.check_resolved(name.as_str(), address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(error) => refused = Some(error),
                }
            }
            match refused {
                Some(error) if allowed.is_empty() => Err(error.into()),
                _ => Ok(allowed.into_iter()),
            }
        })
    }
}
