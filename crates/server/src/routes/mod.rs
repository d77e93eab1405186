//! Handlers, one file per resource.

pub(crate) mod accounts;
pub(crate) mod api_keys;
pub(crate) mod clock;
pub(crate) mod events;
pub(crate) mod executions;
pub(crate) mod health;
pub(crate) mod home;
pub(crate) mod leases;
pub(crate) mod lifecycle_versions;
pub(crate) mod lifecycles;
pub(crate) mod links;
pub(crate) mod metrics;
pub(crate) mod prune;
pub(crate) mod record_reads;
pub(crate) mod records;
pub(crate) mod stream;
pub(crate) mod webhook_secret;
pub(crate) mod workers;
