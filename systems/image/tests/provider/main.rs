//! Tests of the built-in generator and of the client of an image service.

mod downloads;
mod local_provider;
mod moderation;
mod openai_failures;

use std::time::Duration;

use onceward_system_image::provider::{ImageRequest, ImageSize, OpenAiClient, OpenAiConfig};
use onceward_testkit::fake_image_service::FakeImageService;

/// Must not appear in any message or log.
pub(crate) const SECRET_PROMPT: &str = "an unmistakable zebrafinch";
pub(crate) const TEST_API_KEY: &str = "sk-very-hidden";

pub(crate) fn image_request() -> ImageRequest {
    ImageRequest { prompt: SECRET_PROMPT.to_owned(), size: ImageSize::S512 }
}

/// Creates a client whose size limit is just above the service's image. The timeout is long for busy machines.
pub(crate) fn openai_client(service: &FakeImageService) -> OpenAiClient {
    openai_client_with(service, "a-model", Duration::from_secs(20))
}

pub(crate) fn openai_client_with(service: &FakeImageService, model: &str, timeout: Duration) -> OpenAiClient {
    OpenAiClient::open(openai_config(&service.url(), model, timeout)).expect("a valid configuration")
}

pub(crate) fn openai_config(url: &str, model: &str, timeout: Duration) -> OpenAiConfig {
    OpenAiConfig {
        url: url.to_owned(),
        api_key: Some(TEST_API_KEY.to_owned()),
        model: model.to_owned(),
        timeout,
        max_bytes: 64 << 10,
    }
}
