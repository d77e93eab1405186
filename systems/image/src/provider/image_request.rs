//! Image requests and generated images.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Size of a square image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ImageSize {
    #[serde(rename = "256x256")]
    S256,
    #[serde(rename = "512x512")]
    S512,
    #[default]
    #[serde(rename = "1024x1024")]
    S1024,
}

impl ImageSize {
    pub const ALL: [Self; 3] = [Self::S256, Self::S512, Self::S1024];

    /// Returns the pixels along a side.
    pub const fn side(self) -> u32 {
        match self {
            Self::S256 => 256,
            Self::S512 => 512,
            Self::S1024 => 1024,
        }
    }

    /// Returns the size as a request spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S256 => "256x256",
            Self::S512 => "512x512",
            Self::S1024 => "1024x1024",
        }
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A request for one image.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRequest {
    pub prompt: String,
    #[serde(default)]
    pub size: ImageSize,
}

/// Omits the prompt, because prompts are never logged.
impl fmt::Debug for ImageRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ImageRequest").field("size", &self.size).finish_non_exhaustive()
    }
}

/// A complete image.
#[derive(Clone, PartialEq, Eq)]
pub struct GeneratedImage {
    pub bytes: Arc<[u8]>,
    /// `image/png`, `image/jpeg` or `image/webp`.
    pub media_type: &'static str,
}

impl fmt::Debug for GeneratedImage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("GeneratedImage")
            .field("media_type", &self.media_type)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}
