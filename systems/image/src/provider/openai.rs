//! Client of an image service with OpenAI's protocol: OpenAI itself or a compatible service.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_core::decide::FailureReport;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::Instant;

use super::http_client::{ProviderConfigError, ProviderHttpClient};
use super::image_request::{GeneratedImage, ImageRequest, ImageSize};
use super::provider_error::{ProviderError, status_failure};
use super::{download, media_type};

/// Location, credentials and limits of a service.
#[derive(Clone)]
pub struct OpenAiConfig {
    /// Base URL, for example `https://api.openai.com`; the client appends the path.
    pub url: String,
    pub api_key: Option<String>,
    pub model: String,
    /// Time limit for a whole image, from the request to the last byte of a download. Capped at a day.
    pub timeout: Duration,
    /// Maximum size of an image; for moderation, of a response.
    pub max_bytes: usize,
}

/// Omits the URL and the API key.
impl fmt::Debug for OpenAiConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OpenAiConfig")
            .field("model", &self.model)
            .field("timeout", &self.timeout)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

/// Longer than any caller waits for an image. An unbounded timeout would overflow the deadline.
const MAX_GENERATION_TIMEOUT: Duration = Duration::from_hours(24);

impl OpenAiConfig {
    pub(super) fn bounded_timeout(&self) -> Duration {
        self.timeout.min(MAX_GENERATION_TIMEOUT)
    }
}

/// Client of an image service. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct OpenAiClient {
    client: ProviderHttpClient,
    model: String,
    timeout: Duration,
    max_bytes: usize,
}

/// JSON body of a generation request.
#[derive(Serialize)]
struct GenerationRequest<'a> {
    model: &'a str,
    prompt: &'a str,
    n: u8,
    size: ImageSize,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<&'static str>,
}

#[derive(Deserialize)]
struct GenerationResponse<'a> {
    #[serde(borrow, deserialize_with = "first")]
    data: Option<GeneratedItem<'a>>,
}

/// Borrowed from the response, so that a base64 image is not copied before it is decoded.
#[derive(Deserialize)]
struct GeneratedItem<'a> {
    #[serde(borrow, default)]
    b64_json: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    url: Option<Cow<'a, str>>,
}

/// Deserializes the first item and skips the others: the request asks for one image, but services may return more.
fn first<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<GeneratedItem<'de>>, D::Error> {
    struct FirstItemVisitor;

    impl<'de> Visitor<'de> for FirstItemVisitor {
        type Value = Option<GeneratedItem<'de>>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a list of images")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let first = list.next_element()?;
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }

    deserializer.deserialize_seq(FirstItemVisitor)
}

impl OpenAiClient {
    pub fn open(config: OpenAiConfig) -> Result<Self, ProviderConfigError> {
        let client = ProviderHttpClient::open(&config.url, config.api_key.as_deref())?;
        let timeout = config.bounded_timeout();
        let OpenAiConfig { model, max_bytes, .. } = config;
        Ok(Self { client, model, timeout, max_bytes })
    }

    /// Sends one request and, if the answer is a URL, downloads the image. It does not retry; the lifecycle does.
    pub async fn generate(&self, request: &ImageRequest) -> Result<GeneratedImage, FailureReport> {
        let deadline = Instant::now() + self.timeout;
        let result = self.request_image(request, deadline).await;
        if let Err(report) = &result {
            // The message is a fixed text and the provider prints as its host, so the log contains nothing of the
            // request.
            tracing::warn!(code = %report.code, provider = ?self.client, reason = %report.message, "image generation failed");
        }
        result
    }

    async fn request_image(&self, request: &ImageRequest, deadline: Instant) -> Result<GeneratedImage, FailureReport> {
        let body_json = GenerationRequest {
            model: &self.model,
            prompt: &request.prompt,
            n: 1,
            size: if supports_small_sizes(&self.model) { request.size } else { ImageSize::S1024 },
            response_format: supports_response_format(&self.model).then_some("b64_json"),
        };
        // Serializing strings and numbers cannot fail.
        let body = serde_json::to_vec(&body_json).unwrap_or_default();
        // Base64 takes a third more; the rest is for the JSON around it.
        let max_response_bytes = self.max_bytes.saturating_mul(4) / 3 + (64 << 10);
        let response = self
            .client
            .post("/images/generations", body, deadline, max_response_bytes)
            .await
            .map_err(ProviderError::to_failure_report)?;
        if !response.status.is_success() {
            return Err(status_failure(response.status, &response.headers, &response.body));
        }
        let generated: GenerationResponse<'_> =
            serde_json::from_slice(&response.body).map_err(|_| ProviderError::InvalidResponse.to_failure_report())?;
        let item = generated.data.ok_or_else(|| ProviderError::InvalidResponse.to_failure_report())?;
        // Some services fill both fields, one of them with an empty string.
        match (item.b64_json.filter(|text| !text.is_empty()), item.url) {
            (Some(text), _) => self.decode_image(&text).map_err(ProviderError::to_failure_report),
            (None, Some(url)) if url.starts_with("data:") => {
                self.decode_image(&url).map_err(ProviderError::to_failure_report)
            }
            (None, Some(url)) => download::download_image(&self.client, &url, deadline, self.max_bytes).await,
            (None, None) => Err(ProviderError::InvalidResponse.to_failure_report()),
        }
    }

    fn decode_image(&self, text: &str) -> Result<GeneratedImage, ProviderError> {
        // Some services send a data URL.
        let text = text.split_once(";base64,").map_or(text, |(_, text)| text);
        let bytes = STANDARD.decode(text).map_err(|_| ProviderError::InvalidResponse)?;
        if bytes.len() > self.max_bytes {
            return Err(ProviderError::ResponseTooLarge);
        }
        let media_type = media_type::detect_complete_image(&bytes).ok_or(ProviderError::NotAnImage)?;
        Ok(GeneratedImage { bytes: bytes.into(), media_type })
    }
}

/// Returns whether the model supports sizes below 1024x1024. OpenAI's newer models refuse them; they are asked for a
/// large image instead, so that the job does not fail.
fn supports_small_sizes(model: &str) -> bool {
    supports_response_format(model) && model != "dall-e-3"
}

/// Returns whether the model accepts `response_format`. OpenAI's newer models always answer with the image and refuse
/// the parameter; other models answer with a URL unless it is set.
fn supports_response_format(model: &str) -> bool {
    !model.starts_with("gpt-image") && !model.starts_with("chatgpt-image")
}
