//! The document system as its users meet it: the real program, real HTTP, both databases, and real programs that read documents.

mod access_control;
mod damaged_objects;
mod jobs;
mod large_documents;
mod log_privacy;
mod retries;
mod support;
mod tenant_isolation;
mod tour;
mod upload_slots;
mod uploads;
mod worker;
