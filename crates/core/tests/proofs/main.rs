//! What the checker proves: sound files that it must accept, and near misses that it must not.

mod engine;
mod faults;
mod guards;
mod house;
mod leases;
mod money;
mod robust;
mod states;
