//! Calls that manage a server: API keys, webhook secrets, accounts, workers, pruning and the clock.

use std::time::Duration;

use http::Method;
use onceward_api_types::{
    Account, AccountEntry, Accounts, ApiKey, ApiKeys, ClockState, NewApiKeyBody, NewApiKeyJson, PruneBody, PruneReport,
    RevokedApiKey, Statement, WebhookSecretJson, Workers,
};

use crate::client::Client;
use crate::error::ClientError;
use crate::transport::{ApiRequest, RetrySafety, percent_encode};

/// Pruning pauses between batches and takes long on a large database. After a day, the server is assumed lost.
const PRUNE_TIMEOUT: Duration = Duration::from_hours(24);

impl Client {
    /// Creates an API key. Only this response contains its text, as `key`. The call is never repeated, because a lost response leaves an API key whose text is unknown.
    pub async fn create_api_key(&self, request: &NewApiKeyBody) -> Result<NewApiKeyJson, ClientError> {
        let api_request =
            ApiRequest { retry_safety: RetrySafety::Never, ..ApiRequest::post("/v1/keys".to_owned(), request)? };
        self.send_json(&api_request).await
    }

    /// Lists all API keys, oldest first, including expired and revoked ones.
    pub async fn list_api_keys(&self) -> Result<Vec<ApiKey>, ClientError> {
        let (mut keys, mut path) = (Vec::new(), "/v1/keys?limit=1000".to_owned());
        loop {
            let page: ApiKeys = self.send_json(&ApiRequest::get(path)).await?;
            keys.extend(page.keys);
            match page.next {
                Some(next) => path = format!("/v1/keys?limit=1000&cursor={next}"),
                None => return Ok(keys),
            }
        }
    }

    /// Revokes an API key.
    pub async fn revoke_api_key(&self, id: &str) -> Result<RevokedApiKey, ClientError> {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            // Do not quote the argument: it may be a whole API key.
            return Err(ClientError::InvalidRequest("invalid API key id; expected letters and digits".to_owned()));
        }
        let api_request = ApiRequest { method: Method::DELETE, ..ApiRequest::get(format!("/v1/keys/{id}")) };
        self.send_json(&api_request).await
    }

    /// Returns the secret that signs the deliveries of the API key's owner.
    pub async fn webhook_secret(&self) -> Result<WebhookSecretJson, ClientError> {
        self.send_json(&ApiRequest::get("/v1/webhook-secret".to_owned())).await
    }

    /// Replaces the secret that signs the deliveries of the API key's owner. The call is never repeated, because the
    /// server refuses a second rotation; [`webhook_secret`](Self::webhook_secret) returns the result of a lost one.
    pub async fn rotate_webhook_secret(&self) -> Result<WebhookSecretJson, ClientError> {
        let api_request = ApiRequest::post("/v1/webhook-secret/rotate".to_owned(), &serde_json::json!({}))?;
        self.send_json(&ApiRequest { retry_safety: RetrySafety::Never, ..api_request }).await
    }

    /// Lists all accounts with their balances, sorted by asset and name.
    pub async fn accounts(&self) -> Result<Vec<Account>, ClientError> {
        let (mut accounts, mut path) = (Vec::new(), "/v1/accounts?limit=1000".to_owned());
        loop {
            let page: Accounts = self.send_json(&ApiRequest::get(path)).await?;
            accounts.extend(page.accounts);
            match page.next {
                Some(next) => path = format!("/v1/accounts?limit=1000&cursor={}", percent_encode(&next)),
                None => return Ok(accounts),
            }
        }
    }

    /// Returns an account's statement, newest line first.
    pub async fn statement(&self, account: &str) -> Result<Vec<AccountEntry>, ClientError> {
        let first = format!("/v1/accounts/{}/entries?limit=1000", percent_encode(account));
        let (mut lines, mut path) = (Vec::new(), first.clone());
        loop {
            let page: Statement = self.send_json(&ApiRequest::get(path)).await?;
            lines.extend(page.entries);
            match page.next {
                Some(next) => path = format!("{first}&cursor={}", percent_encode(&next)),
                None => return Ok(lines),
            }
        }
    }

    /// Lists the workers that asked for jobs within the last day, most recent first.
    pub async fn workers(&self) -> Result<Workers, ClientError> {
        self.send_json(&ApiRequest::get("/v1/workers?limit=1000".to_owned())).await
    }

    /// Prunes ended records. Returns when pruning is complete.
    pub async fn prune(&self, options: &PruneBody) -> Result<PruneReport, ClientError> {
        self.send_json(&ApiRequest {
            max_server_wait: PRUNE_TIMEOUT,
            ..ApiRequest::post("/v1/prune".to_owned(), options)?
        })
        .await
    }

    /// Returns whether the server follows its clock.
    pub async fn clock(&self) -> Result<ClockState, ClientError> {
        self.send_json(&ApiRequest::get("/v1/clock".to_owned())).await
    }

    /// Accepts the time that the server's clock shows after a jump.
    pub async fn accept_clock(&self) -> Result<ClockState, ClientError> {
        let api_request = ApiRequest::post("/v1/clock/accept".to_owned(), &serde_json::json!({}))?;
        self.send_json(&ApiRequest { retry_safety: RetrySafety::Never, ..api_request }).await
    }
}
