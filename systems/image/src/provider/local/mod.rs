//! The artist that is built in: a real PNG from the prompt, with no network and no model.
//!
//! It does not understand a prompt. A few dozen words steer it (`words.rs`); everything else comes from the SHA-256 of the
//! prompt. The same prompt gives the same picture on every machine: all arithmetic is integers and the five operations on
//! floats that IEEE 754 defines to the last bit (`+ - * /` and the square root), so sines and roots are ours (`exact.rs`).
//! The size changes how fine a picture is, not what it shows.

// Pixels are counted in whole numbers and places in floats: the numbers are small, and rounding is meant.
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod canvas;
mod chance;
mod colour;
mod encode;
mod exact;
mod noise;
mod palette;
mod scenes;
mod shapes;
mod words;

use onceward_core::decide::ErrorReport;

use super::order::{Order, Picture};

/// Draws beside the threads that serve requests: a large picture takes a tenth of a second of pure arithmetic.
pub(super) async fn draw(order: &Order) -> Result<Picture, ErrorReport> {
    let (prompt, side) = (order.prompt.clone(), order.size.side());
    let drawn = tokio::task::spawn_blocking(move || png(&prompt, side)).await;
    let bytes = drawn.ok().and_then(Result::ok);
    let bytes = bytes.ok_or_else(|| ErrorReport::new("500", "the local artist could not finish the picture"))?;
    Ok(Picture { bytes: bytes.into(), kind: "image/png" })
}

/// The prompt as a PNG of so many pixels a side.
pub fn png(prompt: &str, side: u32) -> Result<Vec<u8>, png::EncodingError> {
    encode::png(&pixels(prompt, side), side)
}

/// The same before it is a file: red, green, blue, row by row from the top.
pub fn pixels(prompt: &str, side: u32) -> Vec<u8> {
    scenes::paint(prompt, side).finish()
}
