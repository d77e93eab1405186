//! The document system's way in over HTTP. Its rules stand in `job.toml`; here calls of the engine get the shape that its users know.
//!
//! | file | duty |
//! | --- | --- |
//! | `upload.rs` | a document comes in, piece by piece, and a job is made of it |
//! | `places.rs` | how many come at once, of all and of each owner |
//! | `pace.rs` | how slowly one may come |
//! | `jobs.rs` | submitting, cancelling and looking |
//! | `shape.rs` | what is shown of a job |

mod jobs;
mod pace;
mod places;
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
    /// Of these, one owner's.
    pub of_one_owner: usize,
    /// For the next piece of one to come.
    pub piece_time: Duration,
    /// For all of one to come.
    pub whole_time: Duration,
    pub pace: Pace,
}

/// The least that must come. Only the time in which the server waits for the sender counts.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Not asked for before: lines begin slowly.
    pub after: Duration,
    /// From then on, in each such time...
    pub window: Duration,
    /// ...so many bytes.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            at_once: 16,
            // However an owner holds them, others find a place.
            of_one_owner: 4,
            piece_time: Duration::from_secs(30),
            // A hundred megabytes in a quarter of an hour: about a megabit a second.
            whole_time: Duration::from_mins(15),
            // 16 KB a second: a poor line has that, and who sends a byte now and then has not.
            pace: Pace { after: Duration::from_mins(1), window: Duration::from_secs(30), bytes: 480 << 10 },
        }
    }
}

/// What this system adds to a server.
pub fn part(bounds: Bounds) -> Part {
    let routes = jobs::routes().merge(upload::routes()).layer(Extension(Uploads::new(bounds)));
    Part { routes, unhurried: vec![upload::PATH], bytes: vec![upload::PATH] }
}
