//! What a system adds to a server: routes of its own, which shape calls of the engine as its users know them.
//!
//! A part is written as the server's own routes are: handlers that take [`Caller`](crate::Caller) and [`App`], answer with
//! [`Problem`](crate::Problem), and say their share of the contract. It decides nothing either.

use std::fmt;

use utoipa_axum::router::OpenApiRouter;

use crate::app::App;

/// A system's routes.
#[derive(Default)]
pub struct Part {
    /// With their share of the contract.
    pub routes: OpenApiRouter<App>,
    /// Paths of these whose calls may take longer than others, and bound themselves: an upload.
    pub unhurried: Vec<&'static str>,
    /// Paths of these that take bytes in place of JSON.
    pub bytes: Vec<&'static str>,
}

impl fmt::Debug for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A router does not show itself.
        out.debug_struct("Part").field("unhurried", &self.unhurried).finish_non_exhaustive()
    }
}
