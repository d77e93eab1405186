//! Client of a moderation service with OpenAI's protocol.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::http_client::{ProviderConfigError, ProviderHttpClient};
use super::openai::OpenAiConfig;
use super::provider_error::ProviderError;

/// Client of a moderation service. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct ModerationClient {
    client: ProviderHttpClient,
    model: String,
    timeout: Duration,
    max_bytes: usize,
}

#[derive(Serialize)]
struct ModerationRequest<'a> {
    input: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    model: &'a str,
}

#[derive(Deserialize)]
struct ModerationResponse {
    results: Vec<ModerationResult>,
}

#[derive(Deserialize)]
struct ModerationResult {
    flagged: bool,
}

impl ModerationClient {
    /// Creates a client. With an empty model, the service chooses one.
    pub fn open(config: OpenAiConfig) -> Result<Self, ProviderConfigError> {
        let client = ProviderHttpClient::open(&config.url, config.api_key.as_deref())?;
        let timeout = config.bounded_timeout();
        let OpenAiConfig { model, max_bytes, .. } = config;
        Ok(Self { client, model, timeout, max_bytes })
    }

    /// Returns whether the service flags the prompt. The error gives the reason without quoting the prompt.
    pub async fn is_flagged(&self, prompt: &str) -> Result<bool, String> {
        let result = self.request_verdict(prompt).await;
        if let Err(reason) = &result {
            tracing::warn!(service = ?self.client, reason, "moderation request failed");
        }
        result
    }

    async fn request_verdict(&self, prompt: &str) -> Result<bool, String> {
        let deadline = Instant::now() + self.timeout;
        let request = ModerationRequest { input: prompt, model: &self.model };
        // Serializing strings cannot fail.
        let body = serde_json::to_vec(&request).unwrap_or_default();
        let response =
            self.client.post("/moderations", body, deadline, self.max_bytes).await.map_err(describe_error)?;
        if !response.status.is_success() {
            return Err(format!("the moderation service answered with status {}", response.status.as_u16()));
        }
        let verdicts: ModerationResponse =
            serde_json::from_slice(&response.body).map_err(|_| describe_error(ProviderError::InvalidResponse))?;
        // IMG-15: one flagged result flags the prompt; an empty list is an error, not a pass.
        if verdicts.results.is_empty() {
            return Err(describe_error(ProviderError::InvalidResponse));
        }
        Ok(verdicts.results.iter().any(|verdict| verdict.flagged))
    }
}

fn describe_error(error: ProviderError) -> String {
    let problem = match error {
        ProviderError::Timeout => "did not answer in time",
        ProviderError::Unreachable => "is unreachable",
        _ => "sent an unreadable answer",
    };
    format!("the moderation service {problem}")
}
