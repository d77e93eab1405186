//! The image system as its users meet it: the real program, real HTTP, both databases, and a provider that does what the test says.

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
