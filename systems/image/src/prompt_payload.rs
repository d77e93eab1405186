//! An order as a job keeps it. Its payload is the prompt with its parameters, written in one way only, so that the same order has the
//! same hash whoever sends it and however it was spelled.

use onceward_core::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::prompt_filter::is_invisible;
use crate::provider::{ImageRequest, ImageSize};

/// As it is written: nothing that is not said here is an order's, and each name comes once.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PromptPayload {
    prompt: String,
    #[serde(default)]
    size: Option<ImageSize>,
}

/// The bytes of an order.
pub(crate) fn encode_canonical(order: &ImageRequest) -> Vec<u8> {
    let payload = PromptPayload { prompt: order.prompt.clone(), size: Some(order.size) };
    // Text and a name: it can always be written.
    serde_json::to_vec(&payload).unwrap_or_default()
}

/// What a payload orders, if anything. The guard and whoever draws read it by this and nothing else, so that what is drawn is what was looked at.
/// Besides what `encode_canonical` writes, a text is taken as a prompt, plain or as JSON. What looks like JSON and is no order is none: a worker of
/// somebody else's may read more out of it, the last of two prompts or one with half a letter, than we can judge.
pub(crate) fn parse_payload(payload: &[u8]) -> Option<ImageRequest> {
    let text = std::str::from_utf8(payload).ok()?;
    let parsed = match text.trim_start_matches(is_invisible_or_space).chars().next()? {
        '{' => serde_json::from_str::<PromptPayload>(text).ok()?,
        '"' => PromptPayload { prompt: serde_json::from_str(text).ok()?, size: None },
        '[' => return None,
        _ => PromptPayload { prompt: text.to_owned(), size: None },
    };
    let PromptPayload { prompt, size } = parsed;
    (!is_blank(&prompt)).then(|| ImageRequest { prompt, size: size.unwrap_or_default() })
}

/// Whether there is nothing to be seen of a prompt.
pub(crate) fn is_blank(prompt: &str) -> bool {
    prompt.chars().all(is_invisible_or_space)
}

fn is_invisible_or_space(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control() || is_invisible(letter)
}

/// IMG-9: the hash of prompt and parameters, the same for the same order however it is spelled.
pub(crate) fn hash_request(order: &ImageRequest) -> String {
    hex::encode(&Sha256::digest(encode_canonical(order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_payload(payload: &str) -> String {
        hash_request(&parse_payload(payload.as_bytes()).expect("an order"))
    }

    fn parse_prompt(payload: &str) -> Option<String> {
        parse_payload(payload.as_bytes()).map(|order| order.prompt)
    }

    /// IMG-9: spelled otherwise, it is the same order; with another prompt or size, another.
    #[test]
    fn equivalent_payloads_have_same_hash() {
        let cat = hash_payload(r#"{"prompt":"a cat","size":"1024x1024"}"#);
        for equivalent in
            ["a cat", "\"a cat\"", r#"{"prompt":"a cat"}"#, r#" { "size": null, "prompt": "\u0061 cat" }"#]
        {
            assert_eq!(hash_payload(equivalent), cat, "{equivalent}");
        }
        for different in ["a cat ", "a Cat", r#"{"prompt":"a cat","size":"256x256"}"#] {
            assert_ne!(hash_payload(different), cat, "{different}");
        }
        let written = encode_canonical(&ImageRequest { prompt: "a cat".to_owned(), size: ImageSize::default() });
        assert_eq!(String::from_utf8(written).unwrap(), r#"{"prompt":"a cat","size":"1024x1024"}"#);
    }

    /// IMG-15: nothing is drawn that cannot be read in one way only.
    #[test]
    fn ambiguous_or_blank_payload_is_rejected() {
        for invalid in [
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
            assert_eq!(parse_prompt(invalid), None, "{invalid}");
        }
        assert_eq!(parse_prompt("5").as_deref(), Some("5"));
        assert_eq!(parse_prompt("a [b] {c} \"d\"").as_deref(), Some("a [b] {c} \"d\""));
        assert_eq!(parse_prompt("\u{200b}a").as_deref(), Some("\u{200b}a"));
        assert_eq!(parse_payload(&[0xff, b'a']), None);
    }
}
