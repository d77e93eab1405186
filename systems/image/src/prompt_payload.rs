//! Canonical payload of an image job: prompt and parameters in one encoding, so that equal requests have equal hashes.

use onceward_core::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::prompt_filter::is_invisible;
use crate::provider::{ImageRequest, ImageSize};

/// JSON form of the payload. Unknown and repeated fields are rejected.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PromptPayload {
    prompt: String,
    #[serde(default)]
    size: Option<ImageSize>,
}

/// Encodes a request in its canonical form.
pub(crate) fn encode_canonical(order: &ImageRequest) -> Vec<u8> {
    let payload = PromptPayload { prompt: order.prompt.clone(), size: Some(order.size) };
    // Serializing a string and an enum cannot fail.
    serde_json::to_vec(&payload).unwrap_or_default()
}

/// Parses a payload; returns `None` if it is not an unambiguous request.
///
/// The prompt filter and the worker both use this function, so the checked prompt is the one that is drawn. Besides the
/// canonical form, it accepts a prompt as plain text or as a JSON string. Malformed JSON is rejected, because another
/// worker's parser might read a different prompt from it, such as the last of two `prompt` fields.
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

/// Returns whether a prompt contains no visible character.
pub(crate) fn is_blank(prompt: &str) -> bool {
    prompt.chars().all(is_invisible_or_space)
}

fn is_invisible_or_space(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control() || is_invisible(letter)
}

/// IMG-9: Returns the hash of the request's canonical form.
pub(crate) fn hash_request(order: &ImageRequest) -> String {
    hex::encode(&Sha256::digest(encode_canonical(order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_payload(payload: &str) -> String {
        hash_request(&parse_payload(payload.as_bytes()).expect("a valid payload"))
    }

    fn parse_prompt(payload: &str) -> Option<String> {
        parse_payload(payload.as_bytes()).map(|order| order.prompt)
    }

    /// IMG-9
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

    /// IMG-15
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
            // Other parsers may accept these.
            r#"{"prompt":"\ud83d"}"#,
            r#""half a letter: \ud83d""#,
            r#""one" and more"#,
            r#"{"prompt":"a"} b"#,
            "{a",
            "[1]",
            r#" ["\u0061"]"#,
            "\u{feff}{\"prompt\":\"a\"}",
            // These contain no visible character.
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
