//! The image system: image generation paid for with credits. The lifecycle files contain the rules; this crate contains
//! the workers, providers and HTTP routes.
//!
//! | file | content |
//! | --- | --- |
//! | `prompt_payload.rs` | canonical encoding and parsing of an image request |
//! | `prompt_filter/` | external check `prompt`: word list, then an optional moderation service |
//! | `provider/` | image generation: built in, or a service with the OpenAI protocol |
//! | `worker.rs` | in-process worker: generates, stores, then commits |
//! | `cleanup.rs` | deletes removed and orphaned images from the bucket |
//! | `verify.rs` | verifies that the bucket contains the image of each asset |
//! | `bucket.rs` | object names in the private bucket |
//! | `routes/` | jobs, assets and credits over HTTP |

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

pub(crate) const JOB_LIFECYCLE: &str = "image.job";
pub(crate) const ASSET_LIFECYCLE: &str = "image.asset";
pub(crate) const GRANT_LIFECYCLE: &str = "image.grant";

/// Ledger asset of credits.
pub(crate) const CREDIT_ASSET: &str = "credit";
