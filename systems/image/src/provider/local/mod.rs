//! The artist that is built in: a real PNG from the prompt, with no network and no model.
//!
//! It does not understand a prompt. A few dozen words steer it (`words.rs`); everything else comes from the SHA-256 of the
//! prompt. The same prompt gives the same picture on every machine: all arithmetic is integers and the five operations on
//! floats that IEEE 754 defines to the last bit (`+ - * /` and the square root), so sines and roots are ours (`portable_math.rs`).
//! The size changes how fine a picture is, not what it shows.

// Pixels are counted in whole numbers and places in floats: the numbers are small, and rounding is meant.
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

/// Draws beside the threads that serve requests: a large picture takes a tenth of a second of pure arithmetic.
pub(super) async fn generate(request: &ImageRequest) -> Result<GeneratedImage, FailureReport> {
    let (prompt, side) = (request.prompt.clone(), request.size.side());
    let task_result = tokio::task::spawn_blocking(move || render_png(&prompt, side)).await;
    let bytes = task_result.ok().and_then(Result::ok);
    let bytes = bytes.ok_or_else(|| FailureReport::new("500", "the local artist could not finish the picture"))?;
    Ok(GeneratedImage { bytes: bytes.into(), media_type: "image/png" })
}

/// The prompt as a PNG of so many pixels a side.
pub fn render_png(prompt: &str, side: u32) -> Result<Vec<u8>, png::EncodingError> {
    encode::encode_png(&render_pixels(prompt, side), side)
}

/// The same before it is a file: red, green, blue, row by row from the top.
pub fn render_pixels(prompt: &str, side: u32) -> Vec<u8> {
    scenes::paint_prompt(prompt, side).to_rgb_bytes()
}
