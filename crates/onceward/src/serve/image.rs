//! Configures the image system from flags and environment variables.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use onceward_engine::{CheckRegistry, Engine};
use onceward_store::AnyStore;
use onceward_system_image::provider::{ImageProvider, ModerationClient, OpenAiClient, OpenAiConfig};
use onceward_system_image::{
    ImageWorkerConfig, PromptFilter, WordList, register_prompt_check, start_cleanup, start_image_worker,
};

/// The provider's API key comes from a variable: other users of the machine can read flags.
const API_KEY_VAR: &str = "ONCEWARD_IMAGE_KEY";
const MODERATION_API_KEY_VAR: &str = "ONCEWARD_IMAGE_MODERATION_KEY";

/// Ends before the engine's own check timeout.
const MODERATION_TIMEOUT: Duration = Duration::from_secs(8);

/// A moderation response is a few kilobytes; this bounds a misbehaving service.
const MAX_MODERATION_RESPONSE_BYTES: usize = 1 << 20;

/// What generates images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ImageProviderKind {
    /// Built in, without a network
    Local,
    /// A service with OpenAI's images API at --image-url
    Openai,
    /// No built-in worker: your own workers lease the jobs
    None,
}

// No doc comment: clap would use it as the help text of `serve`. Field names follow the flags.
#[allow(clippy::struct_field_names, reason = "flags of one system share a prefix")]
#[derive(Args)]
pub(super) struct ImageArgs {
    /// Image generator. Default: openai if --image-url is set, otherwise local
    #[arg(long, value_enum, value_name = "PROVIDER", env = "ONCEWARD_IMAGE_PROVIDER")]
    image_provider: Option<ImageProviderKind>,
    /// Base URL of a service with OpenAI's images API, such as `https://host/v1`. Set its API key in `ONCEWARD_IMAGE_KEY`
    #[arg(long, value_name = "URL", env = "ONCEWARD_IMAGE_URL")]
    image_url: Option<String>,
    /// Model that generates images
    #[arg(long, value_name = "NAME", env = "ONCEWARD_IMAGE_MODEL", default_value = "gpt-image-1")]
    image_model: String,
    /// Timeout per image, in seconds
    #[arg(long, value_name = "SECONDS", env = "ONCEWARD_IMAGE_TIME", default_value_t = 120)]
    image_time: u64,
    /// Maximum size of an image, in megabytes
    #[arg(long, value_name = "MB", env = "ONCEWARD_IMAGE_MEGABYTES", default_value_t = 20)]
    image_megabytes: usize,
    /// Maximum number of images that are generated at the same time
    #[arg(long, value_name = "N", env = "ONCEWARD_IMAGE_AT_ONCE", default_value_t = 4)]
    image_at_once: usize,
    /// Base URL of a service with OpenAI's moderation API, which checks every prompt. Set its API key in
    /// `ONCEWARD_IMAGE_MODERATION_KEY`; if it is unset and the host is that of --image-url, `ONCEWARD_IMAGE_KEY` is used
    #[arg(long, value_name = "URL", env = "ONCEWARD_IMAGE_MODERATION_URL")]
    image_moderation_url: Option<String>,
    /// Model that checks prompts
    #[arg(
        long,
        value_name = "NAME",
        env = "ONCEWARD_IMAGE_MODERATION_MODEL",
        default_value = "omni-moderation-latest"
    )]
    image_moderation_model: String,
    /// File with blocked words, one per line. Replaces the built-in list
    #[arg(long, value_name = "FILE", env = "ONCEWARD_IMAGE_WORDS")]
    image_words: Option<PathBuf>,
}

/// The validated configuration of the image system.
pub(super) struct ImageSetup {
    worker_config: Option<ImageWorkerConfig>,
}

impl ImageArgs {
    /// Builds the configuration and registers the prompt check.
    pub(super) fn build(&self, registry: CheckRegistry) -> Result<(CheckRegistry, ImageSetup)> {
        let prompt_filter = PromptFilter { word_list: self.load_blocked_words()?, moderation: self.moderation()? };
        let worker_config =
            self.provider()?.map(|provider| ImageWorkerConfig { provider, concurrency: self.image_at_once.max(1) });
        Ok((register_prompt_check(registry, prompt_filter), ImageSetup { worker_config }))
    }

    fn load_blocked_words(&self) -> Result<WordList> {
        let Some(path) = non_empty(self.image_words.as_ref(), |path| path.as_os_str().is_empty()) else {
            return Ok(WordList::default());
        };
        let path_text = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(path_text)?;
        WordList::parse(&text).with_context(path_text)
    }

    fn moderation(&self) -> Result<Option<ModerationClient>> {
        let Some(url) = non_empty(self.image_moderation_url.as_ref(), String::is_empty) else { return Ok(None) };
        let config = OpenAiConfig {
            url: url.clone(),
            api_key: env_api_key(MODERATION_API_KEY_VAR)
                .or_else(|| self.shares_origin(url).then(|| env_api_key(API_KEY_VAR)).flatten()),
            model: self.image_moderation_model.clone(),
            timeout: MODERATION_TIMEOUT,
            max_bytes: MAX_MODERATION_RESPONSE_BYTES,
        };
        ModerationClient::open(config).map(Some).context("--image-moderation-url")
    }

    /// Returns whether the moderation service has the origin of the image service. Only then may it receive that
    /// service's API key.
    fn shares_origin(&self, url: &str) -> bool {
        let other = non_empty(self.image_url.as_ref(), String::is_empty);
        other.is_some_and(|other| origin(other).eq_ignore_ascii_case(origin(url)))
    }

    fn provider(&self) -> Result<Option<ImageProvider>> {
        let url = non_empty(self.image_url.as_ref(), String::is_empty);
        let default_kind = if url.is_some() { ImageProviderKind::Openai } else { ImageProviderKind::Local };
        match (self.image_provider.unwrap_or(default_kind), url) {
            (ImageProviderKind::None, _) => Ok(None),
            (ImageProviderKind::Local, _) => Ok(Some(ImageProvider::Local)),
            (ImageProviderKind::Openai, None) => bail!("--image-provider openai needs --image-url"),
            (ImageProviderKind::Openai, Some(url)) => {
                let config = OpenAiConfig {
                    url: url.clone(),
                    api_key: env_api_key(API_KEY_VAR),
                    model: self.image_model.clone(),
                    timeout: Duration::from_secs(self.image_time.max(1)),
                    max_bytes: self.image_megabytes.clamp(1, 1 << 10) << 20,
                };
                let service = OpenAiClient::open(config).context("--image-url")?;
                Ok(Some(ImageProvider::OpenAi(service)))
            }
        }
    }
}

impl ImageSetup {
    /// Starts the cleanup of removed pictures and, if a provider is configured, the image worker. Does nothing without
    /// object storage.
    pub(super) fn start(self, engine: &Engine<AnyStore>) {
        let Some(objects) = engine.object_storage().cloned() else { return };
        start_cleanup(engine, &objects);
        if let Some(config) = self.worker_config {
            start_image_worker(engine, &objects, config);
        }
    }
}

/// Returns `None` for an empty value: an empty environment variable counts as unset.
fn non_empty<T>(value: Option<&T>, is_empty: impl Fn(&T) -> bool) -> Option<&T> {
    value.filter(|value| !is_empty(value))
}

fn env_api_key(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|key| !key.is_empty())
}

/// Returns scheme, host and port.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let path = url[host..].find('/').map_or(url.len(), |at| host + at);
    &url[..path]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_scheme_host_and_port() {
        for (url, expected) in [
            ("https://a.example/v1", "https://a.example"),
            ("https://a.example:8443", "https://a.example:8443"),
            ("http://a.example/x/y/", "http://a.example"),
            ("a/b", "a"),
        ] {
            assert_eq!(origin(url), expected);
        }
    }
}
