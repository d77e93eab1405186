//! Who draws: the artist that is built in, or a service that speaks OpenAI's protocol for images. Beside it stands the
//! [`Moderation`] of the same protocol.
//!
//! A provider gives a [`Picture`] or an [`ErrorReport`] whose code the lifecycle's error table knows, so nobody between
//! the two has to understand HTTP. What it reports never quotes the prompt, the provider's words or the key.

mod download;
mod failure;
mod line;
pub mod local;
mod moderation;
mod openai;
mod order;
mod reach;
mod retry_after;
mod sniff;

use onceward_core::decide::ErrorReport;

pub use line::ConfigError;
pub use moderation::Moderation;
pub use openai::{OpenAi, OpenAiConfig};
pub use order::{Order, Picture, Size};

/// Who draws. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Provider {
    /// The artist that is built in: no network, no key, the same picture for the same prompt.
    Local,
    OpenAi(OpenAi),
}

impl Provider {
    /// Draw what is ordered, or say why not.
    pub async fn draw(&self, order: &Order) -> Result<Picture, ErrorReport> {
        match self {
            Self::Local => local::draw(order).await,
            Self::OpenAi(service) => service.draw(order).await,
        }
    }
}
