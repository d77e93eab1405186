//! Webhook secrets in SQLite.

use onceward_core::time::Time;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::save::SqliteWriter;
use crate::error::StoreError;
use crate::webhook_secrets::{WebhookSecret, WebhookSecrets, owner_digest};

pub(super) fn webhook_secrets(connection: &Connection, owner: &str) -> Result<Option<WebhookSecrets>, StoreError> {
    let sql = "SELECT current, previous, previous_until FROM webhook_secrets WHERE owner_digest = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let read = |row: &rusqlite::Row| {
        let previous = row.get::<_, Option<_>>(1)?.zip(row.get(2)?);
        Ok(WebhookSecrets {
            current: WebhookSecret(row.get(0)?),
            previous: previous.map(|(secret, until)| (WebhookSecret(secret), Time::from_micros(until))),
        })
    };
    Ok(statement.query_row([owner_digest(owner)], read).optional()?)
}

impl SqliteWriter {
    pub(super) fn save_webhook_secrets(
        &mut self,
        owner: &str,
        expected: Option<WebhookSecret>,
        secrets: &WebhookSecrets,
    ) -> Result<bool, StoreError> {
        let sql = "INSERT INTO webhook_secrets (owner_digest, current, previous, previous_until) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (owner_digest) DO UPDATE SET current = excluded.current, previous = excluded.previous, \
                   previous_until = excluded.previous_until WHERE current = ?5";
        let (previous, until) = secrets.previous.map(|(secret, until)| (secret.0, until.micros())).unzip();
        let values = params![owner_digest(owner), secrets.current.0, previous, until, expected.map(|secret| secret.0)];
        Ok(self.connection.prepare_cached(sql)?.execute(values)? == 1)
    }
}
