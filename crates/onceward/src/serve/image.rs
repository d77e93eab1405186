//! The image system, as it is set up by flags and the environment.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use onceward_engine::{Checks, Engine};
use onceward_store::AnyStore;
use onceward_system_image::provider::{Moderation, OpenAi, OpenAiConfig, Provider};
use onceward_system_image::{Guard, Studio, Words, checks, open_clearing, open_studio};

/// Where the provider's key is: not a flag, which everybody on the machine could read.
const KEY: &str = "ONCEWARD_IMAGE_KEY";
const MODERATION_KEY: &str = "ONCEWARD_IMAGE_MODERATION_KEY";

/// How long moderation may take. The engine waits no longer for a check.
const MODERATION_TIME: Duration = Duration::from_secs(8);

/// Bytes of moderation's answer.
const MODERATION_BYTES: usize = 1 << 20;

/// Who draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Drawn {
    /// This program itself, without a network
    Local,
    /// A service with OpenAI's images endpoint, at --image-url
    Openai,
    /// Nobody here: workers of one's own lease the jobs
    None,
}

// No doc comment: clap would take it for the verb's own help. A field is called as its flag is.
#[allow(clippy::struct_field_names, reason = "flags of one system begin alike")]
#[derive(Args)]
pub(super) struct Image {
    /// Who draws; `local` unless there is an --image-url
    #[arg(long, value_enum, value_name = "WHO", env = "ONCEWARD_IMAGE_PROVIDER")]
    image_provider: Option<Drawn>,
    /// The base address of a service that speaks OpenAI's images protocol, such as `https://host/v1`. Its key stands in the variable
    /// `ONCEWARD_IMAGE_KEY`
    #[arg(long, value_name = "URL", env = "ONCEWARD_IMAGE_URL")]
    image_url: Option<String>,
    /// The model that draws there
    #[arg(long, value_name = "NAME", env = "ONCEWARD_IMAGE_MODEL", default_value = "gpt-image-1")]
    image_model: String,
    /// How many seconds the service may take for a picture
    #[arg(long, value_name = "SECONDS", env = "ONCEWARD_IMAGE_TIME", default_value_t = 120)]
    image_time: u64,
    /// How many megabytes a picture may have
    #[arg(long, value_name = "MB", env = "ONCEWARD_IMAGE_MEGABYTES", default_value_t = 20)]
    image_megabytes: usize,
    /// How many pictures are drawn at the same time
    #[arg(long, value_name = "N", env = "ONCEWARD_IMAGE_AT_ONCE", default_value_t = 4)]
    image_at_once: usize,
    /// The base address of a service with OpenAI's moderation endpoint, asked about every prompt. Its key stands in
    /// `ONCEWARD_IMAGE_MODERATION_KEY`; at the same address as the other, that one's will do
    #[arg(long, value_name = "URL", env = "ONCEWARD_IMAGE_MODERATION_URL")]
    image_moderation_url: Option<String>,
    /// The model that judges there
    #[arg(
        long,
        value_name = "NAME",
        env = "ONCEWARD_IMAGE_MODERATION_MODEL",
        default_value = "omni-moderation-latest"
    )]
    image_moderation_model: String,
    /// Words that no prompt may have, one a line, in place of the few that are built in
    #[arg(long, value_name = "FILE", env = "ONCEWARD_IMAGE_WORDS")]
    image_words: Option<PathBuf>,
}

/// The image system as it was asked for: what can be wrong with that was told.
pub(super) struct Ready {
    studio: Option<Studio>,
}

impl Image {
    /// Read what is configured; the guard answers orders' check from here on.
    pub(super) fn ready(&self, all: Checks) -> Result<(Checks, Ready)> {
        let guard = Guard { words: self.words()?, moderation: self.moderation()? };
        let studio = self.provider()?.map(|provider| Studio { provider, at_once: self.image_at_once.max(1) });
        Ok((checks(all, guard), Ready { studio }))
    }

    fn words(&self) -> Result<Words> {
        let Some(path) = set(self.image_words.as_ref(), |path| path.as_os_str().is_empty()) else {
            return Ok(Words::default());
        };
        let place = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(place)?;
        Words::read(&text).with_context(place)
    }

    fn moderation(&self) -> Result<Option<Moderation>> {
        let Some(url) = set(self.image_moderation_url.as_ref(), String::is_empty) else { return Ok(None) };
        let config = OpenAiConfig {
            url: url.clone(),
            key: key(MODERATION_KEY).or_else(|| self.is_the_same_service(url).then(|| key(KEY)).flatten()),
            model: self.image_moderation_model.clone(),
            time: MODERATION_TIME,
            most_bytes: MODERATION_BYTES,
        };
        Moderation::open(config).map(Some).context("--image-moderation-url")
    }

    /// One service's key is nothing for another to see: without a service that draws, the key is nobody's here.
    fn is_the_same_service(&self, url: &str) -> bool {
        let other = set(self.image_url.as_ref(), String::is_empty);
        other.is_some_and(|other| origin(other).eq_ignore_ascii_case(origin(url)))
    }

    fn provider(&self) -> Result<Option<Provider>> {
        let url = set(self.image_url.as_ref(), String::is_empty);
        let usual = if url.is_some() { Drawn::Openai } else { Drawn::Local };
        match (self.image_provider.unwrap_or(usual), url) {
            (Drawn::None, _) => Ok(None),
            (Drawn::Local, _) => Ok(Some(Provider::Local)),
            (Drawn::Openai, None) => bail!("--image-provider openai needs an --image-url"),
            (Drawn::Openai, Some(url)) => {
                let config = OpenAiConfig {
                    url: url.clone(),
                    key: key(KEY),
                    model: self.image_model.clone(),
                    time: Duration::from_secs(self.image_time.max(1)),
                    most_bytes: self.image_megabytes.clamp(1, 1 << 10) << 20,
                };
                let service = OpenAi::open(config).context("--image-url")?;
                Ok(Some(Provider::OpenAi(service)))
            }
        }
    }
}

impl Ready {
    /// Where there is a place for pictures: begin to take out what is removed, and to draw, where somebody here does.
    pub(super) fn open(self, engine: &Engine<AnyStore>) {
        let Some(objects) = engine.objects().cloned() else { return };
        open_clearing(engine, &objects);
        if let Some(studio) = self.studio {
            open_studio(engine, &objects, studio);
        }
    }
}

/// A variable that is set to nothing is none.
fn set<T>(value: Option<&T>, is_nothing: impl Fn(&T) -> bool) -> Option<&T> {
    value.filter(|value| !is_nothing(value))
}

fn key(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|key| !key.is_empty())
}

/// Scheme, host and port.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let path = url[host..].find('/').map_or(url.len(), |at| host + at);
    &url[..path]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_begins_with_its_origin() {
        for (url, is) in [
            ("https://a.example/v1", "https://a.example"),
            ("https://a.example:8443", "https://a.example:8443"),
            ("http://a.example/x/y/", "http://a.example"),
            ("a/b", "a"),
        ] {
            assert_eq!(origin(url), is);
        }
    }
}
