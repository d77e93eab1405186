//! Shows and rotates the secret that signs the deliveries of the caller's owner.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use onceward_api_types as wire;
use onceward_engine::reveal_webhook_secret;
use onceward_store::WebhookSecrets;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::problem::{self, Problem};
use crate::response::{json_ok, timestamp};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(show)).routes(routes!(rotate))
}

/// Show the webhook secret
///
/// The secret that signs the deliveries of the caller's owner. The first call creates it. Needs the role `producer`.
#[utoipa::path(
    get, path = "/v1/webhook-secret", operation_id = "show_webhook_secret", tag = "deliveries",
    responses((status = 200, description = "The secrets of the caller's owner", body = wire::WebhookSecretJson))
)]
async fn show(State(app): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    secrets_response(&app.engine().webhook_secrets(&caller.actor).await?)
}

/// Rotate the webhook secret
///
/// Creates a new secret. For 24 hours each delivery has the signatures of both secrets, so that receivers can change to the new one.
/// Needs the role `producer`.
#[utoipa::path(
    post, path = "/v1/webhook-secret/rotate", operation_id = "rotate_webhook_secret", tag = "deliveries",
    responses(
        (status = 200, description = "The new secret and the previous one", body = wire::WebhookSecretJson),
        (status = 409, description = "`secret_rotation_pending`: the secret was rotated less than 24 hours ago", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn rotate(State(app): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    secrets_response(&app.engine().rotate_webhook_secret(&caller.actor).await?)
}

fn secrets_response(secrets: &WebhookSecrets) -> Result<Response, Problem> {
    let mut response = json_ok(&wire::WebhookSecretJson {
        secret: reveal_webhook_secret(&secrets.current),
        previous_secret: secrets.previous.as_ref().map(|(secret, _)| reveal_webhook_secret(secret)),
        previous_until: secrets.previous.map(|(_, until)| timestamp(until)),
    })?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
