//! The mesh's lifecycles as a fold over a log: stories of nodes that hear of things late, twice, or of what no longer counts.

mod arrival_order;
mod authority;
mod claims;
mod fold_log;
mod jobs;
