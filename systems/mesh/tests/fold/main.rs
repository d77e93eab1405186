//! The mesh's lifecycles as a fold over a log: stories of nodes that hear of things late, twice, or of what no longer counts.

mod any_order;
mod authority;
mod beliefs;
mod jobs;
mod log;
