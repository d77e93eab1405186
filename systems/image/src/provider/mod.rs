//! Who draws: the artist that is built in, or a service that speaks OpenAI's protocol for images. Beside it stands the
//! [`ModerationClient`] of the same protocol.
//!
//! A provider gives a [`Picture`] or an [`FailureReport`] whose code the lifecycle's error table knows, so nobody between
//! the two has to understand HTTP. What it reports never quotes the prompt, the provider's words or the key.

mod address_policy;
mod download;
mod http_client;
mod image_request;
pub mod local;
mod media_type;
mod moderation;
mod openai;
mod provider_error;
mod retry_after;

use onceward_core::decide::FailureReport;

pub use http_client::ProviderConfigError;
pub use image_request::{GeneratedImage, ImageRequest, ImageSize};
pub use moderation::ModerationClient;
pub use openai::{OpenAiClient, OpenAiConfig};

/// Who draws. Cheap to clone.
#[derive(Clone, Debug)]
pub enum ImageProvider {
    /// The artist that is built in: no network, no key, the same picture for the same prompt.
    Local,
    OpenAi(OpenAiClient),
}

impl ImageProvider {
    /// Draw what is ordered, or say why not.
    pub async fn generate(&self, request: &ImageRequest) -> Result<GeneratedImage, FailureReport> {
        match self {
            Self::Local => local::generate(request).await,
            Self::OpenAi(service) => service.generate(request).await,
        }
    }
}
