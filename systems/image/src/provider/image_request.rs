//! What is ordered, and what comes of it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longer and the shorter side: pictures are square.
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

    /// Pixels along a side.
    pub const fn side(self) -> u32 {
        match self {
            Self::S256 => 256,
            Self::S512 => 512,
            Self::S1024 => 1024,
        }
    }

    /// As it is written in an order.
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

/// One picture, please.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRequest {
    pub prompt: String,
    #[serde(default)]
    pub size: ImageSize,
}

/// A prompt is never logged, so it is not shown here either.
impl fmt::Debug for ImageRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Order").field("size", &self.size).finish_non_exhaustive()
    }
}

/// A picture, whole.
#[derive(Clone, PartialEq, Eq)]
pub struct GeneratedImage {
    pub bytes: Arc<[u8]>,
    /// `image/png`, `image/jpeg` or `image/webp`.
    pub media_type: &'static str,
}

impl fmt::Debug for GeneratedImage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Picture").field("kind", &self.media_type).field("bytes", &self.bytes.len()).finish()
    }
}
