//! The document system's way in over HTTP. Its rules stand in `job.toml`; here calls of the engine get the shape that its users know.
//!
//! | file | duty |
//! | --- | --- |
//! | `upload.rs` | a document comes in, piece by piece, and a job is made of it |
//! | `slots.rs` | how many come at once, of all and of each owner |
//! | `min_rate.rs` | how slowly one may come |
//! | `jobs.rs` | submitting, cancelling and looking |
//! | `response.rs` | what is shown of a job |

mod jobs;
mod min_rate;
mod response;
mod slots;
mod upload;

use std::time::Duration;

use axum::Extension;
use onceward_server::SystemRoutes;

use upload::UploadState;

/// The lifecycle that all of this is about.
const JOB_LIFECYCLE: &str = "document.job";

/// How much may come, and how slowly. What a document may be is for its lifecycle to say.
#[derive(Clone, Copy, Debug)]
pub struct UploadLimits {
    /// Uploads at the same time.
    pub max_concurrent: usize,
    /// Of these, one owner's.
    pub max_concurrent_per_owner: usize,
    /// For the next piece of one to come.
    pub chunk_timeout: Duration,
    /// For all of one to come.
    pub total_timeout: Duration,
    pub min_rate: MinRate,
}

/// The least that must come. Only the time in which the server waits for the sender counts.
#[derive(Clone, Copy, Debug)]
pub struct MinRate {
    /// Not asked for before: lines begin slowly.
    pub grace_period: Duration,
    /// From then on, in each such time...
    pub window: Duration,
    /// ...so many bytes.
    pub bytes_per_window: u64,
}

impl Default for UploadLimits {
    fn default() -> Self {
        Self {
            max_concurrent: 16,
            // However an owner holds them, others find a place.
            max_concurrent_per_owner: 4,
            chunk_timeout: Duration::from_secs(30),
            // A hundred megabytes in a quarter of an hour: about a megabit a second.
            total_timeout: Duration::from_mins(15),
            // 16 KB a second: a poor line has that, and who sends a byte now and then has not.
            min_rate: MinRate {
                grace_period: Duration::from_mins(1),
                window: Duration::from_secs(30),
                bytes_per_window: 480 << 10,
            },
        }
    }
}

/// What this system adds to a server.
pub fn system_routes(limits: UploadLimits) -> SystemRoutes {
    let routes = jobs::routes().merge(upload::routes()).layer(Extension(UploadState::new(limits)));
    SystemRoutes {
        router: routes,
        self_timed_paths: vec![upload::UPLOAD_PATH],
        binary_paths: vec![upload::UPLOAD_PATH],
    }
}
