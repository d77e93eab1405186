//! The artist that is built in: the same picture for the same prompt, another for another, and always a real PNG.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Cursor;

use onceward_system_image::provider::local::{pixels, png};
use onceward_system_image::provider::{Order, Provider, Size};
use sha2::{Digest as _, Sha256};

use super::wait;

async fn drawn(prompt: &str, size: Size) -> Vec<u8> {
    let order = Order { prompt: prompt.to_owned(), size };
    let picture = Provider::Local.draw(&order).await.expect("the artist draws everything");
    assert_eq!(picture.kind, "image/png");
    picture.bytes.to_vec()
}

fn decoded(file: &[u8]) -> (png::OutputInfo, Vec<u8>) {
    let mut reader = png::Decoder::new(Cursor::new(file)).read_info().expect("a PNG");
    let mut found = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut found).expect("pixels");
    (info, found)
}

/// Read again by a decoder, it has the ordered size and the pixels that were painted.
#[test]
fn it_draws_real_pictures() {
    wait(async {
        for size in Size::ALL {
            let file = drawn("a lighthouse", size).await;
            let (info, found) = decoded(&file);
            assert_eq!((info.width, info.height), (size.side(), size.side()));
            assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
            assert!(found == pixels("a lighthouse", size.side()), "{size}: other pixels than were painted");
            // Ten times less than what a service may answer with.
            assert!(file.len() < 3 << 20, "{size}: {} bytes", file.len());
        }
    });
}

#[test]
fn the_same_prompt_is_the_same_picture() {
    wait(async {
        for prompt in ["a lighthouse", "", "🦊 in the snow", "a\0b\u{202e}c"] {
            assert!(drawn(prompt, Size::S256).await == drawn(prompt, Size::S256).await, "{prompt}");
        }
    });
}

/// The pixels of a few prompts, one for each scene, as they were when they were last looked at. `ONCEWARD_BLESS=1` prints new ones.
#[test]
fn pictures_stay_as_they_are() {
    let golden = include_str!("golden.txt");
    let mut found = String::new();
    for line in golden.lines() {
        let (_, prompt) = line.split_once("  ").expect("a hash and a prompt");
        let hash = Sha256::digest(pixels(prompt, 128));
        let mut hex = onceward_core::hex::encode(&hash);
        hex.truncate(24);
        let _ = writeln!(found, "{hex}  {prompt}");
    }
    if std::env::var_os("ONCEWARD_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provider/golden.txt");
        std::fs::write(path, &found).expect("golden.txt can be written");
        return;
    }
    assert_eq!(found, golden, "look at the pictures, then run this again with ONCEWARD_BLESS=1");
}

/// The samples in the documentation are what it draws. Written anew by `ONCEWARD_BLESS=1`.
#[test]
fn samples_are_its_own() {
    for (name, prompt) in [
        ("hills", "rolling hills at dawn"),
        ("town", "an old town at night"),
        ("flowers", "a rose garden"),
        ("planet", "a planet and its stars"),
    ] {
        let path = format!("{}/../../docs/samples/{name}.png", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("ONCEWARD_BLESS").is_some() {
            std::fs::write(&path, png(prompt, 256).expect("a file")).expect("a sample can be written");
        }
        let file = std::fs::read(&path).expect("a sample");
        assert!(decoded(&file).1 == pixels(prompt, 256), "{name}.png is not what it draws: look, and bless");
    }
}

/// Prompts that differ in a letter, and that no word steers, give pictures that differ almost everywhere.
#[test]
fn other_prompts_are_other_pictures() {
    let pictures: Vec<Vec<u8>> = (0..24).map(|number| pixels(&format!("thing {number}"), 64)).collect();
    for (index, one) in pictures.iter().enumerate() {
        for other in &pictures[..index] {
            let same = one.chunks(3).zip(other.chunks(3)).filter(|(one, other)| one == other).count();
            assert!(same * 4 < 64 * 64, "{index}: {same} pixels are the same");
        }
    }
}

/// Two pictures of one scene by one mood are still two pictures.
#[test]
fn the_same_words_around_another_name_are_another_picture() {
    let (one, other) = (pixels("Anna by the sea at night", 128), pixels("Berta by the sea at night", 128));
    let same = one.chunks(3).zip(other.chunks(3)).filter(|(one, other)| one == other).count();
    assert!(same * 3 < 128 * 128, "{same} pixels are the same");
}

/// No picture is a single colour, or nearly one.
#[test]
fn there_is_something_to_see() {
    for number in 0..24 {
        let picture = pixels(&format!("thing {number}"), 64);
        let colours: BTreeSet<[u8; 3]> =
            picture.chunks(3).map(|pixel| [pixel[0] >> 3, pixel[1] >> 3, pixel[2] >> 3]).collect();
        assert!(colours.len() >= 12, "thing {number} has {} colours", colours.len());
    }
}

/// A word for a colour shows: the red picture is redder than the blue one.
#[test]
fn colours_are_heard() {
    let warmth = |prompt: &str| -> i64 {
        pixels(prompt, 64).chunks(3).map(|pixel| i64::from(pixel[0]) - i64::from(pixel[2])).sum()
    };
    for thing in ["hills", "a mountain", "a forest", "the sea", "a city", "wind", "a flower", "a mosaic"] {
        let (red, blue) = (warmth(&format!("{thing} in red")), warmth(&format!("{thing} in blue")));
        assert!(red > blue, "{thing}: {red} and {blue}");
    }
}

#[test]
fn nights_are_darker_than_days() {
    let light = |prompt: &str| -> u64 { pixels(prompt, 64).iter().map(|part| u64::from(*part)).sum() };
    for thing in ["hills", "a mountain", "a forest", "the sea", "a city"] {
        assert!(light(&format!("{thing} at night")) < light(&format!("{thing} at noon")), "{thing}");
    }
}

/// Orders are written as the protocol writes them.
#[test]
fn sizes_have_names() {
    for size in Size::ALL {
        assert_eq!(serde_json::to_value(size).expect("JSON"), size.name());
        assert_eq!(size.name(), format!("{0}x{0}", size.side()));
    }
    let order: Order = serde_json::from_str(r#"{"prompt":"a","size":"256x256"}"#).expect("an order");
    assert_eq!(order, Order { prompt: "a".to_owned(), size: Size::S256 });
    assert!(serde_json::from_str::<Order>(r#"{"prompt":"a","size":"257x257"}"#).is_err());
    assert_eq!(png("a", 16).expect("a file")[..4], *b"\x89PNG");
}
