//! The image system: pictures drawn to order and paid for in credits. What may happen to an order is said by its lifecycle files
//! alone; here is what stands between them and the world.
//!
//! | file | duty |
//! | --- | --- |
//! | `order.rs` | an order as a job keeps it, and as everybody reads it |
//! | `guard/` | the prompt guard: words, then a moderation service where there is one |
//! | `provider/` | who draws: the local artist, or a service that speaks OpenAI's protocol |
//! | `studio.rs` | the worker inside the process: draws, stores, then commits |
//! | `clearing.rs` | what leaves the bucket: removed pictures, and those that nobody has |
//! | `verify.rs` | whether the bucket has the picture of each asset |
//! | `bucket.rs` | how a picture is called in the private bucket |
//! | `routes/` | orders, pictures and credits over HTTP |

mod bucket;
mod clearing;
mod guard;
mod order;
pub mod provider;
mod routes;
mod studio;
mod verify;

pub use clearing::{clear_leftovers, open_clearing};
pub use guard::{Guard, Unfit, Words, checks};
pub use routes::part;
pub use studio::{Studio, open_studio};
pub use verify::verify_pictures;

/// The lifecycles.
pub(crate) const JOB: &str = "image.job";
pub(crate) const ASSET: &str = "image.asset";
pub(crate) const GRANT: &str = "image.grant";

/// What credits are called in the ledger.
pub(crate) const CREDIT: &str = "credit";
