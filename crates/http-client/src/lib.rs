//! The HTTP/1.1 client of Onceward, over hyper and rustls.
//!
//! A client follows no redirect, uses no proxy and stores no cookie. Every request has a deadline. Each client has an
//! [`AddressPolicy`]: an address that the operator configured may be private; an address that comes from data is
//! guarded against server-side request forgery.

mod address_class;
mod address_policy;
mod allowed_target;
mod client;
mod error;
mod resolver;
#[cfg(test)]
mod tests;
mod tls_roots;

pub use address_class::AddressClass;
pub use address_policy::{AddressPolicy, AddressRefused};
pub use allowed_target::{AllowedTarget, AllowedTargets, InvalidTarget};
pub use client::{HttpClient, HttpClientConfig, TcpKeepalive};
pub use error::{SendError, root_cause};
pub use tls_roots::{TlsRoots, TlsRootsError};
