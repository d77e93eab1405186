//! What operators ask for: API keys, and pruning.

use std::time::Duration;

use http::Method;
use serde_json::Value as Json;

use crate::client::Client;
use crate::error::ClientError;
use crate::transport::{ApiRequest, RetrySafety};

/// Pruning rests as long as it works, and a database may be large; but whoever waits longer has lost the server.
const PRUNE_TIMEOUT: Duration = Duration::from_hours(24);

impl Client {
    /// Make a key: `{owner, roles, lifecycles?, name?, expires_at?}`. Its text is under `key` in the answer, and nowhere else. Never sent
    /// twice: an answer that got lost has left a key that nobody has.
    pub async fn create_api_key(&self, request: &Json) -> Result<Json, ClientError> {
        let api_request =
            ApiRequest { retry_safety: RetrySafety::Never, ..ApiRequest::post("/v1/keys".to_owned(), request)? };
        self.send_json(&api_request).await
    }

    /// All keys, the oldest first, live or not.
    pub async fn list_api_keys(&self) -> Result<Vec<Json>, ClientError> {
        let (mut keys, mut path) = (Vec::new(), "/v1/keys?limit=1000".to_owned());
        loop {
            let mut page: Json = self.send_json(&ApiRequest::get(path)).await?;
            if let Some(Json::Array(more)) = page.get_mut("keys").map(Json::take) {
                keys.extend(more);
            }
            match page["next"].as_str() {
                Some(next) => path = format!("/v1/keys?limit=1000&cursor={next}"),
                None => return Ok(keys),
            }
        }
    }

    /// Let nobody in with a key any more.
    pub async fn revoke_api_key(&self, id: &str) -> Result<Json, ClientError> {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            // It may be a whole key, which nobody should see.
            return Err(ClientError::InvalidRequest("this is no id of a key: letters and digits".to_owned()));
        }
        let api_request = ApiRequest { method: Method::DELETE, ..ApiRequest::get(format!("/v1/keys/{id}")) };
        self.send_json(&api_request).await
    }

    /// Take out what has ended long ago: `{older_than?, keys_older_than?, only?, dry_run?}`. The answer comes when it is done.
    pub async fn prune(&self, options: &Json) -> Result<Json, ClientError> {
        self.send_json(&ApiRequest {
            max_server_wait: PRUNE_TIMEOUT,
            ..ApiRequest::post("/v1/prune".to_owned(), options)?
        })
        .await
    }
}
