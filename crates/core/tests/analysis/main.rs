//! Tests static analysis: sound files that it must accept, and near misses that it must reject.

mod engine_transitions;
mod hold_balance;
mod leases;
mod reachability;
mod runtime_faults;
mod shadowing;
mod support;
mod worst_case_files;
