//! An order as a job keeps it. Its payload is the prompt with its parameters, written in one way only, so that the same order has the
//! same hash whoever sends it and however it was spelled.

use onceward_core::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::guard::is_unseen;
use crate::provider::{Order, Size};

/// As it is written: nothing that is not said here is an order's, and each name comes once.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Written {
    prompt: String,
    #[serde(default)]
    size: Option<Size>,
}

/// The bytes of an order.
pub(crate) fn canonical(order: &Order) -> Vec<u8> {
    let written = Written { prompt: order.prompt.clone(), size: Some(order.size) };
    // Text and a name: it can always be written.
    serde_json::to_vec(&written).unwrap_or_default()
}

/// What a payload orders, if anything. The guard and whoever draws read it by this and nothing else, so that what is drawn is what was looked at.
/// Besides what `canonical` writes, a text is taken as a prompt, plain or as JSON. What looks like JSON and is no order is none: a worker of
/// somebody else's may read more out of it, the last of two prompts or one with half a letter, than we can judge.
pub(crate) fn read(payload: &[u8]) -> Option<Order> {
    let text = std::str::from_utf8(payload).ok()?;
    let written = match text.trim_start_matches(is_nothing).chars().next()? {
        '{' => serde_json::from_str::<Written>(text).ok()?,
        '"' => Written { prompt: serde_json::from_str(text).ok()?, size: None },
        '[' => return None,
        _ => Written { prompt: text.to_owned(), size: None },
    };
    let Written { prompt, size } = written;
    (!says_nothing(&prompt)).then(|| Order { prompt, size: size.unwrap_or_default() })
}

/// Whether there is nothing to be seen of a prompt.
pub(crate) fn says_nothing(prompt: &str) -> bool {
    prompt.chars().all(is_nothing)
}

fn is_nothing(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control() || is_unseen(letter)
}

/// IMG-9: the hash of prompt and parameters, the same for the same order however it is spelled.
pub(crate) fn sha256(order: &Order) -> String {
    hex::encode(&Sha256::digest(canonical(order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(payload: &str) -> String {
        sha256(&read(payload.as_bytes()).expect("an order"))
    }

    fn prompt(payload: &str) -> Option<String> {
        read(payload.as_bytes()).map(|order| order.prompt)
    }

    /// IMG-9: spelled otherwise, it is the same order; with another prompt or size, another.
    #[test]
    fn the_same_order_has_the_same_hash() {
        let cat = hash(r#"{"prompt":"a cat","size":"1024x1024"}"#);
        for same in ["a cat", "\"a cat\"", r#"{"prompt":"a cat"}"#, r#" { "size": null, "prompt": "\u0061 cat" }"#] {
            assert_eq!(hash(same), cat, "{same}");
        }
        for other in ["a cat ", "a Cat", r#"{"prompt":"a cat","size":"256x256"}"#] {
            assert_ne!(hash(other), cat, "{other}");
        }
        let written = canonical(&Order { prompt: "a cat".to_owned(), size: Size::default() });
        assert_eq!(String::from_utf8(written).unwrap(), r#"{"prompt":"a cat","size":"1024x1024"}"#);
    }

    /// IMG-15: nothing is drawn that cannot be read in one way only.
    #[test]
    fn what_cannot_be_drawn_is_no_order() {
        for bad in [
            "",
            " ",
            "\"\"",
            "{}",
            r#"{"prompt":""}"#,
            r#"{"prompt":"a","prompt":"b"}"#,
            r#"{"prompt":"a","n":2}"#,
            // Others may take these for more than they are.
            r#"{"prompt":"\ud83d"}"#,
            r#""half a letter: \ud83d""#,
            r#""one" and more"#,
            r#"{"prompt":"a"} b"#,
            "{a",
            "[1]",
            r#" ["\u0061"]"#,
            "\u{feff}{\"prompt\":\"a\"}",
            // There is nothing to be seen.
            "\u{200b}",
            r#"{"prompt":" \u200b\ufeff\u0007\u2800 "}"#,
        ] {
            assert_eq!(prompt(bad), None, "{bad}");
        }
        assert_eq!(prompt("5").as_deref(), Some("5"));
        assert_eq!(prompt("a [b] {c} \"d\"").as_deref(), Some("a [b] {c} \"d\""));
        assert_eq!(prompt("\u{200b}a").as_deref(), Some("\u{200b}a"));
        assert_eq!(read(&[0xff, b'a']), None);
    }
}
