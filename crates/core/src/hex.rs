//! Hex encoding of bytes and large numbers in JSON: short, and exact in every JSON reader.

use std::fmt::Write as _;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;

/// Encodes bytes as lower-case hex.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Decodes hex of exactly `N` bytes.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    // `from_str_radix` also accepts a sign.
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// `#[serde(with = "hex::hash")]` for a SHA-256.
pub mod hash {
    use super::{Deserialize, Deserializer, Error, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8; 32], out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&super::encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        super::decode(&text).ok_or_else(|| D::Error::custom("not a SHA-256 in hex"))
    }
}

/// `#[serde(with = "hex::number")]` for a number that JSON readers would round.
pub(crate) mod number {
    use super::{Deserialize, Deserializer, Error, Serializer};

    pub(crate) fn serialize<S: Serializer>(number: &u128, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&format_args!("{number:032x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let text = String::deserialize(from)?;
        u128::from_str_radix(&text, 16).map_err(|_| D::Error::custom("not a number in hex"))
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn decode_accepts_only_exact_length_hex_digits() {
        assert_eq!(encode(&[0, 1, 254]), "0001fe");
        assert_eq!(decode::<3>("0001fe"), Some([0, 1, 254]));
        for text in ["0001f", "0001feff", "0001fg", "+001fe", "00ä1f"] {
            assert_eq!(decode::<3>(text), None, "{text}");
        }
    }
}
