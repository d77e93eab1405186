//! One file a resource.

pub(crate) mod accounts;
pub(crate) mod events;
pub(crate) mod executions;
pub(crate) mod health;
pub(crate) mod home;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod lifecycles;
pub(crate) mod links;
pub(crate) mod looking;
pub(crate) mod metrics;
pub(crate) mod prune;
pub(crate) mod records;
pub(crate) mod stream;
pub(crate) mod versions;
pub(crate) mod workers;
