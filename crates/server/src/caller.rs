//! Who asks.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use onceward_core::record::Actor;

use crate::app::App;
use crate::problem::Problem;

/// Whoever sent a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) actor: Actor,
}

impl Caller {
    /// Some calls are about the server itself, and for those who look after it.
    pub(crate) fn must_be_operator(&self) -> Result<(), Problem> {
        if self.actor.has_role("operator") {
            return Ok(());
        }
        Err(Problem::new(403, "not_allowed", "this is for operators"))
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Ok(Self { actor: actor_of(parts, app).await? })
    }
}

/// The one place where a request becomes an actor, or is turned away.
#[expect(clippy::unused_async, reason = "keys are looked up in the store")]
async fn actor_of(_parts: &Parts, app: &App) -> Result<Actor, Problem> {
    if app.settings().open {
        return Ok(Actor::new("local", &["operator", "producer", "worker", "viewer"]));
    }
    Err(Problem::new(401, "not_authenticated", "this server wants a key: Authorization: Bearer …"))
}
