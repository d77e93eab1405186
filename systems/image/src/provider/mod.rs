//! Image providers: the built-in generator, or a service with OpenAI's protocol for images. Also contains the
//! [`ModerationClient`] of that protocol.
//!
//! A provider returns a [`GeneratedImage`] or a [`FailureReport`] with a code of the lifecycle's error table, so no
//! other part handles HTTP statuses. A report never quotes the prompt, the provider's message or the API key.

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

/// An image provider. Cheap to clone.
#[derive(Clone, Debug)]
pub enum ImageProvider {
    /// The built-in generator: no network, no API key, the same image for the same prompt.
    Local,
    OpenAi(OpenAiClient),
}

impl ImageProvider {
    /// Generates an image, or reports why it could not.
    pub async fn generate(&self, request: &ImageRequest) -> Result<GeneratedImage, FailureReport> {
        match self {
            Self::Local => local::generate(request).await,
            Self::OpenAi(service) => service.generate(request).await,
        }
    }
}
