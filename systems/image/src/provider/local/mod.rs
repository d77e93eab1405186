//! The built-in image generator: a PNG from the prompt, without network or model.
//!
//! It recognizes a few dozen words (`prompt_hints.rs`); everything else follows from the SHA-256 of the prompt. The
//! same prompt gives the same image on every machine: the code uses only integers and the five float operations that
//! IEEE 754 defines exactly (`+ - * /` and the square root), so it has its own sine and roots (`portable_math.rs`). The
//! size changes only the resolution.

// Pixels are integers and coordinates floats; the numbers are small, and rounding is intended.
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod canvas;
mod color;
mod encode;
mod noise;
mod palette;
mod portable_math;
mod prompt_hints;
mod rng;
mod scenes;
mod shapes;

use onceward_core::decide::FailureReport;

use super::image_request::{GeneratedImage, ImageRequest};

/// Generates an image on a blocking thread, because a large one takes 100 ms of pure computation.
pub(super) async fn generate(request: &ImageRequest) -> Result<GeneratedImage, FailureReport> {
    let (prompt, side) = (request.prompt.clone(), request.size.side());
    let task_result = tokio::task::spawn_blocking(move || render_png(&prompt, side)).await;
    let bytes = task_result.ok().and_then(Result::ok);
    let bytes = bytes.ok_or_else(|| FailureReport::new("500", "the built-in generator failed"))?;
    Ok(GeneratedImage { bytes: bytes.into(), media_type: "image/png" })
}

/// Renders a prompt as a PNG with `side` pixels along each side.
pub fn render_png(prompt: &str, side: u32) -> Result<Vec<u8>, png::EncodingError> {
    encode::encode_png(&render_pixels(prompt, side), side)
}

/// Like [`render_png`], but returns the pixels: red, green and blue, row by row from the top.
pub fn render_pixels(prompt: &str, side: u32) -> Vec<u8> {
    scenes::paint_prompt(prompt, side).to_rgb_bytes()
}
