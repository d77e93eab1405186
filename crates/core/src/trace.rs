//! Where a request stands in a distributed trace. Core carries it from what was asked to what that made, and decides nothing
//! by it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use crate::hex;

/// Bytes of the short form.
pub const BYTES: usize = 25;

/// A request's place in a trace, as W3C's `traceparent` writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trace {
    /// Of the whole trace; never all zero.
    pub id: [u8; 16],
    /// Of the request in it; never all zero.
    pub span: [u8; 8],
    pub flags: u8,
}

impl Trace {
    /// Whoever began the trace keeps its spans.
    pub const fn is_sampled(self) -> bool {
        self.flags & 1 == 1
    }

    /// As the header has it. A later version of the standard may say more after what we know; `None` where it is none at all.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        let [version] = hex::decode::<1>(version)?;
        if version == 0xff || version == 0 && parts.next().is_some() {
            return None;
        }
        let [flags] = hex::decode::<1>(flags)?;
        Self { id: hex::decode(id)?, span: hex::decode(span)?, flags }.sound()
    }

    /// The short form, for a column.
    pub fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..16].copy_from_slice(&self.id);
        bytes[16..24].copy_from_slice(&self.span);
        bytes[24] = self.flags;
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (span, rest) = rest.split_first_chunk()?;
        let [flags] = rest else { return None };
        Self { id: *id, span: *span, flags: *flags }.sound()
    }

    fn sound(self) -> Option<Self> {
        (self.id != [0; 16] && self.span != [0; 8]).then_some(self)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "00-{}-{}-{:02x}", hex::encode(&self.id), hex::encode(&self.span), self.flags)
    }
}

impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Trace {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not a traceparent"))
    }
}

#[cfg(test)]
mod tests {
    use super::Trace;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_and_written_alike() {
        let trace = Trace::parse(GOOD).expect("the standard's own example");
        assert!(trace.is_sampled());
        assert_eq!(trace.to_string(), GOOD);
        assert_eq!(Trace::from_bytes(&trace.to_bytes()), Some(trace));
        assert_eq!(serde_json::from_str::<Trace>(&serde_json::to_string(&trace).unwrap()).unwrap(), trace);
        // What a later version adds is passed over.
        assert_eq!(Trace::parse(&format!("{}-more", GOOD.replacen("00", "01", 1))), Some(trace));
    }

    #[test]
    fn what_is_none_is_not_taken_for_one() {
        for text in [
            "",
            "00",
            "----",
            &GOOD.to_uppercase(),
            &GOOD[1..],
            &format!("{GOOD}-more"),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GOOD.replace("4b", "ä"),
        ] {
            assert_eq!(Trace::parse(text), None, "{text}");
        }
        assert_eq!(Trace::from_bytes(&[1; 24]), None);
        assert_eq!(Trace::from_bytes(&[1; 26]), None);
        assert_eq!(Trace::from_bytes(&[0; 25]), None);
    }
}
