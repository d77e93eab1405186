//! Payloads of jobs: bytes that Onceward stores but does not interpret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// JSON, kept byte for byte, or bytes.
#[derive(Clone, Debug)]
pub enum Payload {
    Json(Box<RawValue>),
    Bytes(Bytes),
}

impl Payload {
    /// Serializes a value as JSON payload.
    pub fn json(value: &impl serde::Serialize) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(Self::Json)
    }

    /// A JSON string, which a command reads as plain text.
    pub fn text(text: &str) -> Self {
        // Serializing a string cannot fail.
        Self::json(&text).unwrap_or_else(|_| Self::Bytes(Bytes::copy_from_slice(text.as_bytes())))
    }

    /// Detects JSON in downloaded bytes. The server does so only for small payloads, but handlers must not see a
    /// difference by size.
    pub(crate) fn from_stored_bytes(bytes: Bytes) -> Self {
        match serde_json::from_slice::<&RawValue>(&bytes) {
            // Whitespace around the value would be lost.
            Ok(json) if json.get().len() == bytes.len() => Self::Json(json.to_owned()),
            _ => Self::Bytes(bytes),
        }
    }

    /// Parses the payload as JSON, even if it is stored as bytes.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        match self {
            Self::Json(json) => serde_json::from_str(json.get()),
            Self::Bytes(bytes) => serde_json::from_slice(bytes),
        }
    }

    /// Returns the bytes as stored.
    pub fn into_raw_bytes(self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Json(json) => Bytes::copy_from_slice(json.get().as_bytes()),
        }
    }

    /// Returns the bytes for a command's standard input: a JSON string becomes plain text.
    pub fn into_stdin_bytes(self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Json(json) => match serde_json::from_str::<String>(json.get()) {
                Ok(text) => text.into(),
                Err(_) => Bytes::copy_from_slice(json.get().as_bytes()),
            },
        }
    }
}

/// Splits a payload into its JSON and its base64 member.
pub(crate) fn wire_members(payload: Option<&Payload>) -> (Option<Box<RawValue>>, Option<String>) {
    match payload {
        None => (None, None),
        Some(Payload::Json(json)) => (Some(json.clone()), None),
        Some(Payload::Bytes(bytes)) => (None, Some(STANDARD.encode(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stdin_bytes_unquote_json_strings_only() {
        assert_eq!(Payload::text("a \"b\"\n").into_stdin_bytes(), "a \"b\"\n");
        let json = |text: &str| Payload::Json(RawValue::from_string(text.to_owned()).expect("JSON"));
        assert_eq!(json("{ \"a\" :1.50}").into_stdin_bytes(), "{ \"a\" :1.50}");
        assert_eq!(Payload::Bytes(Bytes::from_static(b"\0\xff")).into_stdin_bytes(), &b"\0\xff"[..]);
        assert_eq!(json("\"a\"").into_stdin_bytes(), "a");
        assert_eq!(json("\"a\"").into_raw_bytes(), "\"a\"", "raw bytes keep the quotes");
    }

    #[test]
    fn stored_bytes_are_json_only_if_exact() {
        assert_eq!(Payload::from_stored_bytes("\"a\\nb\"".into()).into_stdin_bytes(), "a\nb");
        for stored in ["{ \"a\" :1.50}", " 1\n", "1\n", "", "a", "\"a", "\u{feff}1"] {
            assert_eq!(Payload::from_stored_bytes(stored.into()).into_stdin_bytes(), stored);
        }
    }

    #[test]
    fn parse_reads_json_and_byte_payloads() {
        assert_eq!(Payload::json(&[1, 2]).expect("JSON").parse::<Vec<u8>>().expect("JSON array"), [1, 2]);
        assert_eq!(Payload::Bytes("[1]".into()).parse::<Vec<u8>>().expect("JSON array"), [1]);
        assert!(Payload::text("[1]").parse::<Vec<u8>>().is_err());
    }
}
