//! The engine over HTTP. It shapes what comes in and goes out, bounds both, and decides nothing: what a call does is for the
//! engine and its lifecycles to say.
//!
//! | file | duty |
//! | --- | --- |
//! | `serve.rs` | the listener: connections bounded in number and time, and the way out when the process is to end |
//! | `repoll.rs` | a connection that wakes itself goes on at once |
//! | `write_timeout.rs` | a connection whose other side must take what is written to it |
//! | `request_service.rs` | around every request: counted, timed, and answered also where a handler breaks |
//! | `router.rs` | which path leads where |
//! | `route_hints.rs` | paths and methods that are not here, and what is |
//! | `system_routes.rs` | what a system adds: routes of its own |
//! | `routes/` | one file a resource; each has `routes()` |
//! | `auth.rs` | who is let in, before any handler: keys, and this machine while there are none |
//! | `rate_limiter.rs` | how many requests a key may send |
//! | `caller.rs` | who asks |
//! | `extract.rs` | what comes in: JSON bodies, ids in paths, questions, and their bounds |
//! | `response.rs`, `shape/` | what goes out: records, executions, entries |
//! | `problem.rs` | errors as problem+json |
//! | `pages.rs` | the page of each error code, carried in the binary |
//! | `capacity.rs` | how much may be under way at once, and whether the server is leaving |
//! | `openapi.rs` | the contract, made from the routes |
//! | `observe/` | what can be seen from outside: metrics, a line for each request, traces |
//! | `config.rs` | what can be set |

mod app;
mod auth;
mod caller;
mod capacity;
mod config;
mod error_pages;
mod extract;
mod known_names;
mod openapi;
mod problem;
mod rate_limiter;
mod repoll;
mod request_service;
mod response;
mod route_hints;
mod router;
mod routes;
mod serve;
mod system_routes;
mod telemetry;
mod write_timeout;

pub use app::AppState;
pub use caller::Caller;
pub use config::ServerConfig;
pub use error_pages::error_pages;
pub use extract::{
    JsonBody, PathParams, QueryParams, StrictObject, header_text, parse_cursor, parse_limit, require_octet_stream,
    with_idempotency_key,
};
pub use openapi::openapi_document;
pub use problem::{Problem, ProblemBody};
pub use response::{Rfc3339, bytes_response, effect_response, json_ok, json_response};
pub use serve::serve;
pub use system_routes::{EmptyBody, SystemRoutes, fire_event, require_visible};
pub use telemetry::{Telemetry, TraceExport, current_trace};
