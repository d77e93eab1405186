//! The built-in generator: deterministic, different for each prompt, and always a valid PNG.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Cursor;

use onceward_system_image::provider::local::{render_pixels, render_png};
use onceward_system_image::provider::{ImageProvider, ImageRequest, ImageSize};
use sha2::{Digest as _, Sha256};

async fn generate_png(prompt: &str, size: ImageSize) -> Vec<u8> {
    let request = ImageRequest { prompt: prompt.to_owned(), size };
    let image = ImageProvider::Local.generate(&request).await.expect("the generator succeeds");
    assert_eq!(image.media_type, "image/png");
    image.bytes.to_vec()
}

fn decode_png(file: &[u8]) -> (png::OutputInfo, Vec<u8>) {
    let mut reader = png::Decoder::new(Cursor::new(file)).read_info().expect("a PNG");
    let mut pixel_bytes = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixel_bytes).expect("pixels");
    (info, pixel_bytes)
}

#[tokio::test]
async fn generated_png_has_requested_size_and_pixels() {
    for size in ImageSize::ALL {
        let file = generate_png("a lighthouse", size).await;
        let (info, found) = decode_png(&file);
        assert_eq!((info.width, info.height), (size.side(), size.side()));
        assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
        assert!(found == render_pixels("a lighthouse", size.side()), "{size}: the PNG has other pixels");
        // A tenth of the maximum size of a service's response.
        assert!(file.len() < 3 << 20, "{size}: {} bytes", file.len());
    }
}

#[tokio::test]
async fn same_prompt_gives_identical_image() {
    for prompt in ["a lighthouse", "", "🦊 in the snow", "a\0b\u{202e}c"] {
        assert!(generate_png(prompt, ImageSize::S256).await == generate_png(prompt, ImageSize::S256).await, "{prompt}");
    }
}

/// Hashes of one prompt per scene. `ONCEWARD_BLESS=1` prints new ones.
#[test]
fn generated_pixels_match_golden_hashes() {
    let golden = include_str!("golden.txt");
    let mut found = String::new();
    for line in golden.lines() {
        let (_, prompt) = line.split_once("  ").expect("a hash and a prompt");
        let hash = Sha256::digest(render_pixels(prompt, 128));
        let mut hex = onceward_core::hex::encode(&hash);
        hex.truncate(24);
        let _ = writeln!(found, "{hex}  {prompt}");
    }
    if std::env::var_os("ONCEWARD_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provider/golden.txt");
        std::fs::write(path, &found).expect("golden.txt is writable");
        return;
    }
    assert_eq!(found, golden, "the images changed; check them, then rerun with ONCEWARD_BLESS=1");
}

/// `ONCEWARD_BLESS=1` rewrites the samples.
#[test]
fn documentation_samples_match_generated_images() {
    for (name, prompt) in [
        ("hills", "rolling hills at dawn"),
        ("town", "an old town at night"),
        ("flowers", "a rose garden"),
        ("planet", "a planet and its stars"),
    ] {
        let path = format!("{}/../../docs/samples/{name}.png", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("ONCEWARD_BLESS").is_some() {
            std::fs::write(&path, render_png(prompt, 256).expect("a file")).expect("the sample is writable");
        }
        let file = std::fs::read(&path).expect("a sample");
        assert!(
            decode_png(&file).1 == render_pixels(prompt, 256),
            "{name}.png differs; check it, then rerun with ONCEWARD_BLESS=1"
        );
    }
}

/// The prompts differ in one character, contain no hint, and the images differ almost everywhere.
#[test]
fn different_prompts_give_different_images() {
    let pictures: Vec<Vec<u8>> = (0..24).map(|number| render_pixels(&format!("thing {number}"), 64)).collect();
    for (index, one) in pictures.iter().enumerate() {
        for other in &pictures[..index] {
            let same = one.chunks(3).zip(other.chunks(3)).filter(|(one, other)| one == other).count();
            assert!(same * 4 < 64 * 64, "{index}: {same} pixels are equal");
        }
    }
}

#[test]
fn same_hints_with_other_name_give_different_image() {
    let (one, other) =
        (render_pixels("Anna by the sea at night", 128), render_pixels("Berta by the sea at night", 128));
    let same = one.chunks(3).zip(other.chunks(3)).filter(|(one, other)| one == other).count();
    assert!(same * 3 < 128 * 128, "{same} pixels are equal");
}

#[test]
fn image_has_at_least_twelve_colors() {
    for number in 0..24 {
        let picture = render_pixels(&format!("thing {number}"), 64);
        let colors: BTreeSet<[u8; 3]> =
            picture.chunks(3).map(|pixel| [pixel[0] >> 3, pixel[1] >> 3, pixel[2] >> 3]).collect();
        assert!(colors.len() >= 12, "thing {number} has {} colors", colors.len());
    }
}

/// The red image is redder than the blue one.
#[test]
fn color_word_changes_hue() {
    let warmth = |prompt: &str| -> i64 {
        render_pixels(prompt, 64).chunks(3).map(|pixel| i64::from(pixel[0]) - i64::from(pixel[2])).sum()
    };
    for thing in ["hills", "a mountain", "a forest", "the sea", "a city", "wind", "a flower", "a mosaic"] {
        let (red, blue) = (warmth(&format!("{thing} in red")), warmth(&format!("{thing} in blue")));
        assert!(red > blue, "{thing}: {red} and {blue}");
    }
}

#[test]
fn night_image_is_darker_than_noon_image() {
    let brightness = |prompt: &str| -> u64 { render_pixels(prompt, 64).iter().map(|part| u64::from(*part)).sum() };
    for thing in ["hills", "a mountain", "a forest", "the sea", "a city"] {
        assert!(brightness(&format!("{thing} at night")) < brightness(&format!("{thing} at noon")), "{thing}");
    }
}

#[test]
fn size_serializes_as_protocol_name() {
    for size in ImageSize::ALL {
        assert_eq!(serde_json::to_value(size).expect("JSON"), size.name());
        assert_eq!(size.name(), format!("{0}x{0}", size.side()));
    }
    let request: ImageRequest = serde_json::from_str(r#"{"prompt":"a","size":"256x256"}"#).expect("an accepted order");
    assert_eq!(request, ImageRequest { prompt: "a".to_owned(), size: ImageSize::S256 });
    assert!(serde_json::from_str::<ImageRequest>(r#"{"prompt":"a","size":"257x257"}"#).is_err());
    assert_eq!(render_png("a", 16).expect("a file")[..4], *b"\x89PNG");
}
