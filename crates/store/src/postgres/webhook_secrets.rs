//! Webhook secrets in PostgreSQL.

use onceward_core::time::Time;

use super::PostgresInner;
use super::pipeline::{Pipeline, param};
use super::rows;
use crate::error::StoreError;
use crate::webhook_secrets::{WebhookSecret, WebhookSecrets, owner_digest};

const SELECT_SECRETS_SQL: &str =
    "SELECT current, previous, previous_until FROM onceward.webhook_secrets WHERE owner_digest = $1";

const SAVE_SECRETS_SQL: &str = "INSERT INTO onceward.webhook_secrets AS w (owner_digest, current, previous, previous_until) \
     VALUES ($1, $2, $3, $4) ON CONFLICT (owner_digest) DO UPDATE SET current = excluded.current, \
     previous = excluded.previous, previous_until = excluded.previous_until WHERE w.current = $5 RETURNING 1";

pub(super) async fn webhook_secrets(inner: &PostgresInner, owner: &str) -> Result<Option<WebhookSecrets>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_SECRETS_SQL, vec![param(owner_digest(owner).to_vec())]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let Some(row) = answers[0].first() else { return Ok(None) };
    let previous = match row.try_get::<_, Option<&[u8]>>(1)?.zip(rows::optional_time_column(row, 2)?) {
        Some((secret, until)) => Some((WebhookSecret(rows::to_hash(secret)?), until)),
        None => None,
    };
    Ok(Some(WebhookSecrets { current: WebhookSecret(rows::to_hash(row.try_get(0)?)?), previous }))
}

pub(super) async fn save_webhook_secrets(
    inner: &PostgresInner,
    owner: &str,
    expected: Option<WebhookSecret>,
    secrets: &WebhookSecrets,
) -> Result<bool, StoreError> {
    let mut pipeline = Pipeline::default();
    let parameters = vec![
        param(owner_digest(owner).to_vec()),
        param(secrets.current.0.to_vec()),
        param(secrets.previous.map(|(secret, _)| secret.0.to_vec())),
        param(secrets.previous.map(|(_, until)| until).map(Time::micros)),
        param(expected.map(|secret| secret.0.to_vec())),
    ];
    pipeline.add(SAVE_SECRETS_SQL, parameters);
    Ok(!inner.run_pipeline(&pipeline).await?[0].is_empty())
}
