//! The document system's way in over HTTP. Its rules stand in `job.toml`; here calls of the engine get the shape that its users know.
//!
//! | file | duty |
//! | --- | --- |
//! | `upload.rs` | a document comes in, piece by piece, and a job is made of it |
//! | `jobs.rs` | submitting, cancelling and looking |
//! | `shape.rs` | what is shown of a job |

mod jobs;
mod shape;
mod upload;

use std::time::Duration;

use axum::Extension;
use onceward_server::Part;

use upload::Uploads;

/// The lifecycle that all of this is about.
const JOB: &str = "document.job";

/// How much may come, and how slowly. What a document may be is for its lifecycle to say.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Uploads at the same time.
    pub at_once: usize,
    /// For the next piece of one to come.
    pub piece_time: Duration,
    /// For all of one to come.
    pub whole_time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        // A hundred megabytes in a quarter of an hour: about a megabit a second.
        Self { at_once: 16, piece_time: Duration::from_secs(30), whole_time: Duration::from_mins(15) }
    }
}

/// What this system adds to a server.
pub fn part(bounds: Bounds) -> Part {
    let routes = jobs::routes().merge(upload::routes()).layer(Extension(Uploads::new(bounds)));
    Part { routes, unhurried: vec![upload::PATH], bytes: vec![upload::PATH] }
}
