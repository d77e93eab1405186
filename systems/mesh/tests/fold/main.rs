//! Folds of mesh logs with late, repeated and revoked operations.

mod arrival_order;
mod authority;
mod claims;
mod fold_log;
mod jobs;
