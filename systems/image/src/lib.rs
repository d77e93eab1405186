//! The image system: pictures drawn to order and paid for in credits. What may happen to an order is said by its lifecycle files
//! alone; here is what stands between them and the world.
//!
//! | file | duty |
//! | --- | --- |
//! | `order.rs` | an order as a job keeps it, and as everybody reads it |
//! | `guard/` | the prompt guard: words, then a moderation service where there is one |
//! | `provider/` | who draws: the local artist, or a service that speaks OpenAI's protocol |
//! | `worker.rs` | the worker inside the process: draws, stores, then commits |
//! | `cleanup.rs` | what leaves the bucket: removed pictures, and those that nobody has |
//! | `verify.rs` | whether the bucket has the picture of each asset |
//! | `bucket.rs` | how a picture is called in the private bucket |
//! | `routes/` | orders, pictures and credits over HTTP |

mod bucket;
mod cleanup;
mod prompt_filter;
mod prompt_payload;
pub mod provider;
mod routes;
mod verify;
mod worker;

pub use cleanup::{delete_orphaned_images, start_cleanup};
pub use prompt_filter::{PromptFilter, WordList, WordListError, register_prompt_check};
pub use routes::system_routes;
pub use verify::verify_images;
pub use worker::{ImageWorkerConfig, start_image_worker};

/// The lifecycles.
pub(crate) const JOB_LIFECYCLE: &str = "image.job";
pub(crate) const ASSET_LIFECYCLE: &str = "image.asset";
pub(crate) const GRANT_LIFECYCLE: &str = "image.grant";

/// What credits are called in the ledger.
pub(crate) const CREDIT_ASSET: &str = "credit";
