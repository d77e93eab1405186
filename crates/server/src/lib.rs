//! The engine over HTTP. It shapes what comes in and goes out, bounds both, and decides nothing: what a call does is for the
//! engine and its lifecycles to say.
//!
//! | file | duty |
//! | --- | --- |
//! | `serve.rs` | the listener: connections bounded in number and time, and the way out when the process is to end |
//! | `own_turn.rs` | a connection that wakes itself goes on at once |
//! | `patient.rs` | a connection whose other side must take what is written to it |
//! | `door.rs` | around every request: counted, timed, and answered also where a handler breaks |
//! | `router.rs` | which path leads where |
//! | `near_miss.rs` | paths and methods that are not here, and what is |
//! | `part.rs` | what a system adds: routes of its own |
//! | `routes/` | one file a resource; each has `routes()` |
//! | `admission.rs` | who is let in, before any handler: keys, and this machine while there are none |
//! | `limits.rs` | how many requests a key may send |
//! | `caller.rs` | who asks |
//! | `input.rs` | what comes in: JSON bodies, ids in paths, questions, and their bounds |
//! | `shape.rs`, `shape/` | what goes out: records, executions, entries |
//! | `problem.rs` | errors as problem+json |
//! | `pages.rs` | the page of each error code, carried in the binary |
//! | `gate.rs` | how much may be under way at once, and whether the server is leaving |
//! | `openapi.rs` | the contract, made from the routes |
//! | `observe/` | what can be seen from outside: metrics, a line for each request, traces |
//! | `settings.rs` | what can be set |

mod admission;
mod app;
mod caller;
mod door;
mod gate;
mod input;
mod limits;
mod named;
mod near_miss;
mod observe;
mod openapi;
mod own_turn;
mod pages;
mod part;
mod patient;
mod problem;
mod router;
mod routes;
mod serve;
mod settings;
mod shape;

pub use app::App;
pub use caller::Caller;
pub use input::{Asked, At, Given, Object, cursor, keyed, limit, must_be_bytes, text};
pub use observe::{Observe, Tracing, trace};
pub use openapi::contract;
pub use pages::pages;
pub use part::{Nothing, Part, fire, seen};
pub use problem::{Problem, Shape as ProblemShape};
pub use serve::serve;
pub use settings::Settings;
pub use shape::{When, answer, bytes, ok, result};
