//! HTTP routes of the document system. The rules are in `job.toml`; the routes map HTTP requests to engine calls.
//!
//! | file | content |
//! | --- | --- |
//! | `upload.rs` | streaming upload, which creates a job; limits concurrent uploads, in total and per owner |
//! | `min_rate.rs` | minimum transfer rate of an upload |
//! | `jobs.rs` | read, submit, cancel and result |
//! | `response.rs` | JSON representation of a job |

mod jobs;
mod min_rate;
mod response;
mod upload;

use std::time::Duration;

use axum::Extension;
use onceward_server::SystemRoutes;

use upload::UploadState;

const JOB_LIFECYCLE: &str = "document.job";

/// Limits on the number and speed of uploads. The lifecycle limits the document's size.
#[derive(Clone, Copy, Debug)]
pub struct UploadLimits {
    /// Maximum number of concurrent uploads of all owners.
    pub max_concurrent: usize,
    /// Maximum number of concurrent uploads of one owner.
    pub max_concurrent_per_owner: usize,
    /// Maximum wait for the next chunk of the body.
    pub chunk_timeout: Duration,
    /// Maximum duration of one upload.
    pub total_timeout: Duration,
    pub min_rate: MinRate,
}

/// Minimum transfer rate of an upload. Only time that the server spends waiting for the sender counts.
#[derive(Clone, Copy, Debug)]
pub struct MinRate {
    /// The rate is not enforced during this time, because connections start slowly.
    pub grace_period: Duration,
    /// Length of one measurement window.
    pub window: Duration,
    /// Minimum number of bytes received in each window.
    pub bytes_per_window: u64,
}

impl Default for UploadLimits {
    fn default() -> Self {
        Self {
            max_concurrent: 16,
            // No owner can take all slots.
            max_concurrent_per_owner: 4,
            chunk_timeout: Duration::from_secs(30),
            // 100 MB in 15 minutes is about 1 Mbit/s.
            total_timeout: Duration::from_mins(15),
            // 16 KB/s: a slow connection reaches it, a client that trickles single bytes does not.
            min_rate: MinRate {
                grace_period: Duration::from_mins(1),
                window: Duration::from_secs(30),
                bytes_per_window: 480 << 10,
            },
        }
    }
}

/// Returns the routes of the document system.
pub fn system_routes(limits: UploadLimits) -> SystemRoutes {
    let routes = jobs::routes().merge(upload::routes()).layer(Extension(UploadState::new(limits)));
    SystemRoutes {
        router: routes,
        self_timed_paths: vec![upload::UPLOAD_PATH],
        binary_paths: vec![upload::UPLOAD_PATH],
    }
}
