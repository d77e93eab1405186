//! The engine: load, decide, save, for many callers at once.
//!
//! Callers hand in operations; one loop takes all that wait, decides them on one base, saves them in one transaction and
//! only then answers. Each is taken or refused on its own. The engine holds no rule: what an operation does is for core's
//! `decide` to say, and whether it still holds is for the store's `save` to find out.
//!
//! # One duty a file
//!
//! | file | duty |
//! | --- | --- |
//! | `engine.rs` | what a program calls |
//! | `queue.rs` | the bounded way in: a full queue answers [`EngineError::Overloaded`] at once |
//! | `admission.rs` | calls that are too large, and bytes that are not what they are said to be, are turned away |
//! | `batch.rs` | the loop that saves: takes what is there, never waits for company; conflicts decide again, losses halve |
//! | `deciding.rs` | one batch decided: what is missing is loaded for all together, what is due is done first |
//! | `once.rs` | calls that carry a key are carried out once, and answered the same again |
//! | `objects/` | large payloads, beside the database |
//! | `reading.rs` | who sees what, and never a state whose time is over |
//! | `rehearsal.rs` | calls with large payloads that have no hope, turned away before their bytes are written |
//! | `relations.rs` | whom a record names, and who names it |
//! | `ledger.rs` | what named accounts hold, and what moved there |
//! | `leasing.rs` | jobs for workers: candidates from the store, each leased by an operation of its own |
//! | `roll.rs` | who comes for jobs, in this process and others |
//! | `working.rs` | workers inside the process: a closure for each job, its lease kept alive |
//! | `timers.rs` | what is due is done when it is due, also what fell due while nobody was there |
//! | `checks.rs` | questions to the outside, bounded in time and number |
//! | `delivery.rs`, `http.rs` | messages to the outside, posted until they are acknowledged or dead |
//! | `inbox.rs` | calls that users' own transactions left in the database |
//! | `keys/` | API keys: making and revoking them, and telling who calls |
//! | `elsewhere.rs` | what other processes write wakes whoever waits here |
//! | `signals.rs` | who is woken by what was saved |
//! | `waiting.rs` | who waits for jobs: as many are woken as there may be jobs |
//! | `trail.rs` | how many denials and audited refusals are logged: so many of each a minute for each owner |
//! | `turns.rs` | so much of something at once, and a share of it for one owner |
//! | `complaint.rs` | what goes wrong again and again is told once |
//! | `shared.rs` | what these parts share |
//! | `counted.rs` | what the engine has done, counted |
//! | `spans.rs` | what it tells of operations and executions that stand in a trace |
//! | `stream.rs` | the log, in order, as it grows |
//! | `lifecycles.rs` | which versions there are, and which one is current |
//! | `moving.rs` | records moved to another version, so many at a time |
//! | `retention.rs`, `prune.rs` | how long what has ended is kept, and taking it out when that is over |
//! | `verify/` | everything that a store keeps, worked out again from its log |
//!
//! # What can be relied on
//!
//! - An answer means that the operation is durable. No answer means that nobody knows: ask again, or look.
//! - The operations of one call of [`Engine::submit_all`] are decided in their order, but for those that ask the outside
//!   first, which come when that has answered; those of different calls in any order.
//! - A refusal writes nothing but its log entry, where it has one. It was true of what had been loaded for its batch.
//! - [`Engine::get`] and [`Engine::list`] never show a record on which something is overdue, nor one that the actor may not see.
//! - A call with a key ([`Submission::once`]) is carried out once, also when it is sent again after a restart. A refusal is not
//!   remembered.
//! - Time is the store's: [`Store::now`](onceward_store::Store::now). The engine itself reads no wall clock.

mod admission;
mod batch;
mod checks;
mod complaint;
mod config;
mod counted;
mod deciding;
mod delivery;
mod elsewhere;
mod engine;
mod error;
mod http;
mod inbox;
mod keys;
mod leasing;
mod ledger;
mod lifecycles;
mod moving;
mod objects;
mod once;
mod prune;
mod queue;
mod reading;
mod rehearsal;
mod relations;
mod retention;
mod roll;
mod shared;
mod signals;
mod spans;
mod stream;
mod timers;
mod trail;
mod trust;
mod turns;
mod verify;
mod waiting;
mod weight;
mod working;

pub use checks::{Asked, Checks, Unanswered};
pub use config::Config;
pub use counted::{Lived, Measures, Tally};
pub use delivery::{DELIVERY, Message, NotPosted, Post, Posted};
pub use engine::Engine;
pub use error::EngineError;
pub use http::Http;
pub use keys::{Identity, KeyDesk, KeyText, Keys, NewKey, Revoked};
pub use leasing::{GoesOn, Leased, Wanted};
pub use ledger::{AccountStatement, Line, Onward};
pub use lifecycles::version_of;
pub use moving::{Left, MOST_MOVED, MovePlan, Moved, Moving};
pub use objects::{
    Arrived, Arriving, Collected, LARGE, ObjectError, ObjectWriter, Objects, OldNames, PayloadReader, collect,
    verify_objects,
};
pub use once::Once;
pub use prune::{PruneOptions, Pruned, prune, prune_watched};
pub use queue::{Answer, Submission};
pub use reading::{Attempts, History};
pub use relations::{Linked, Neighbour, Relations, RelationsQuery};
pub use retention::Retention;
pub use roll::{WorkerNow, Workers};
pub use spans::{ExecutionSpan, OperationSpan, Spans, trace_of};
pub use stream::LogStream;
pub use trust::trusted;
pub use verify::{Beyond, Drift, Report, Watch, verify};
pub use working::{Done, Job, Worker, Working};
