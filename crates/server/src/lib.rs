//! Serves the engine over HTTP. The server parses, limits and formats requests and responses; the engine and its
//! lifecycles decide what a call does.
//!
//! | file | content |
//! | --- | --- |
//! | `serve.rs` | the listener's loop and the graceful shutdown |
//! | `acceptor.rs` | accepts connections within the limits, and answers health checks beyond them |
//! | `connection.rs` | serves one connection within limits on time |
//! | `repoll.rs` | polls a connection again in place when it wakes itself |
//! | `write_timeout.rs` | closes connections whose client does not read the response |
//! | `request_service.rs` | wraps each request: counts it, limits its time, turns a panic into a response |
//! | `router.rs` | the routing table and its middleware |
//! | `route_hints.rs` | 404 and 405 responses with a hint at the right route |
//! | `system_routes.rs` | routes that a system adds |
//! | `routes/` | one file per resource; each has `routes()` |
//! | `auth.rs` | authentication, before any handler: API keys, or local access while there are none |
//! | `rate_limiter.rs` | request rate per API key |
//! | `caller.rs` | the authenticated caller |
//! | `extract.rs` | extractors for bodies, paths, queries and headers, and their limits |
//! | `known_names.rs` | 404 responses for unknown lifecycles and states |
//! | `response.rs`, `response/` | responses: records, executions, log entries |
//! | `problem.rs` | errors as problem+json |
//! | `error_pages.rs` | the page of each error code, embedded in the binary |
//! | `capacity.rs` | limits on concurrent calls, and the drain |
//! | `openapi.rs` | the OpenAPI document, generated from the routes |
//! | `telemetry/` | metrics, request log and traces |
//! | `config.rs` | the configuration |

mod acceptor;
mod app;
mod auth;
mod caller;
mod capacity;
mod config;
mod connection;
mod error_pages;
mod extract;
mod known_names;
mod openapi;
mod problem;
mod query_parameters;
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
pub use capacity::{Slot, SlotError, SlotPool};
pub use config::ServerConfig;
pub use error_pages::error_pages;
pub use extract::{
    JsonBody, PathParams, QueryParams, StrictObject, header_text, parse_cursor, require_octet_stream, validate_limit,
    with_idempotency_key,
};
pub use openapi::openapi_document;
pub use problem::{Problem, ProblemBody};
pub use response::{Rfc3339, bytes_response, effect_response, json_ok, json_response};
pub use routes::api_keys::api_key_json;
pub use routes::lifecycle_versions::{migrate_step, version_json};
pub use routes::prune::prune_report_json;
pub use serve::serve;
pub use system_routes::{EmptyBody, SystemRoutes, fire_event, require_visible};
pub use telemetry::{Telemetry, TraceExport, current_trace};
