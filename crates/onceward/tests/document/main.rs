//! End-to-end tests of the document system: the real binary, HTTP, both databases, and real extraction programs.

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
