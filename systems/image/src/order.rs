//! An order as a job keeps it. Its payload is the prompt with its parameters, written in one way only, so that the same order has the
//! same hash whoever sends it and however it was spelled.

use onceward_core::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::provider::{Order, Size};

/// As it is written: nothing that is not said here is an order's, and each name comes once.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Written {
    prompt: String,
    #[serde(default)]
    size: Option<Size>,
}

/// What can be made of a payload.
#[derive(Debug)]
pub(crate) enum Read {
    Order(Order),
    /// Nothing that can be drawn; the text that it holds all the same.
    Unreadable(String),
}

/// The bytes of an order.
pub(crate) fn canonical(order: &Order) -> Vec<u8> {
    let written = Written { prompt: order.prompt.clone(), size: Some(order.size) };
    // Text and a name: it can always be written.
    serde_json::to_vec(&written).unwrap_or_default()
}

/// What a payload orders. The guard and whoever draws read it by this and nothing else, so that what is drawn is what was looked at. Besides
/// what `canonical` writes, a text is taken as a prompt, plain or as JSON.
pub(crate) fn read(payload: &[u8]) -> Read {
    let Ok(text) = std::str::from_utf8(payload) else {
        return Read::Unreadable(String::from_utf8_lossy(payload).into_owned());
    };
    let written = if text.trim_start().starts_with('{') {
        serde_json::from_str::<Written>(text).ok()
    } else {
        let prompt = serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned());
        Some(Written { prompt, size: None })
    };
    match written {
        Some(Written { prompt, size }) if !prompt.trim().is_empty() => {
            Read::Order(Order { prompt, size: size.unwrap_or_default() })
        }
        _ => Read::Unreadable(text.to_owned()),
    }
}

impl Read {
    /// All words that are in it.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Order(order) => &order.prompt,
            Self::Unreadable(text) => text,
        }
    }

    /// IMG-9: the hash of prompt and parameters, the same for the same order however it is spelled.
    pub(crate) fn sha256(&self) -> String {
        let bytes = match self {
            Self::Order(order) => canonical(order),
            Self::Unreadable(text) => text.as_bytes().to_vec(),
        };
        hex::encode(&Sha256::digest(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(payload: &str) -> String {
        read(payload.as_bytes()).sha256()
    }

    fn prompt(payload: &str) -> Option<String> {
        match read(payload.as_bytes()) {
            Read::Order(order) => Some(order.prompt),
            Read::Unreadable(_) => None,
        }
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

    #[test]
    fn what_cannot_be_drawn_is_no_order() {
        for bad in
            ["", " ", "\"\"", "{}", r#"{"prompt":""}"#, r#"{"prompt":"a","prompt":"b"}"#, r#"{"prompt":"a","n":2}"#]
        {
            assert_eq!(prompt(bad), None, "{bad}");
        }
        assert_eq!(prompt("5").as_deref(), Some("5"));
        assert_eq!(prompt("[1]").as_deref(), Some("[1]"));
        assert!(matches!(read(&[0xff, b'a']), Read::Unreadable(text) if text.contains('a')));
    }
}
