//! End-to-end tests of the image system: the real binary, HTTP, both databases, and a scripted provider.

mod concurrent_orders;
mod crash;
mod damaged_pictures;
mod library_pages;
mod log_privacy;
mod moderation;
mod orders;
mod oversized_responses;
mod quotas;
mod support;
mod tenant_isolation;
mod tls_provider;
mod withdrawals;
