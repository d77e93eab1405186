//! Trace context of a request (W3C Trace Context). Records created by the request keep it; no decision depends on it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use crate::hex;

/// Bytes of [`TraceContext::to_bytes`].
pub const TRACE_CONTEXT_BYTES: usize = 25;

/// Trace id, span id and flags, as in the `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// Id of the whole trace; never all zero.
    pub trace_id: [u8; 16],
    /// Id of the request's span; never all zero.
    pub span_id: [u8; 8],
    pub flags: u8,
}

impl TraceContext {
    /// Whether the caller records this trace.
    pub const fn is_sampled(self) -> bool {
        self.flags & 1 == 1
    }

    /// Parses a `traceparent` header. Versions after 00 may append fields, which are ignored.
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
        Self { trace_id: hex::decode(id)?, span_id: hex::decode(span)?, flags }.if_valid()
    }

    /// Binary form for a database column.
    pub fn to_bytes(self) -> [u8; TRACE_CONTEXT_BYTES] {
        let mut bytes = [0; TRACE_CONTEXT_BYTES];
        bytes[..16].copy_from_slice(&self.trace_id);
        bytes[16..24].copy_from_slice(&self.span_id);
        bytes[24] = self.flags;
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (span, rest) = rest.split_first_chunk()?;
        let [flags] = rest else { return None };
        Self { trace_id: *id, span_id: *span, flags: *flags }.if_valid()
    }

    fn if_valid(self) -> Option<Self> {
        (self.trace_id != [0; 16] && self.span_id != [0; 8]).then_some(self)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "00-{}-{}-{:02x}", hex::encode(&self.trace_id), hex::encode(&self.span_id), self.flags)
    }
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not a traceparent"))
    }
}

#[cfg(test)]
mod tests {
    use super::TraceContext;

    const VALID_TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_round_trips_through_text_bytes_and_json() {
        let trace = TraceContext::parse(VALID_TRACEPARENT).expect("the standard's own example");
        assert!(trace.is_sampled());
        assert_eq!(trace.to_string(), VALID_TRACEPARENT);
        assert_eq!(TraceContext::from_bytes(&trace.to_bytes()), Some(trace));
        assert_eq!(serde_json::from_str::<TraceContext>(&serde_json::to_string(&trace).unwrap()).unwrap(), trace);
        // Fields appended by a later version are ignored.
        assert_eq!(TraceContext::parse(&format!("{}-more", VALID_TRACEPARENT.replacen("00", "01", 1))), Some(trace));
    }

    #[test]
    fn malformed_traceparent_is_rejected() {
        for text in [
            "",
            "00",
            "----",
            &VALID_TRACEPARENT.to_uppercase(),
            &VALID_TRACEPARENT[1..],
            &format!("{VALID_TRACEPARENT}-more"),
            &VALID_TRACEPARENT.replacen("00", "ff", 1),
            &VALID_TRACEPARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &VALID_TRACEPARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &VALID_TRACEPARENT.replace("4b", "ä"),
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
        assert_eq!(TraceContext::from_bytes(&[1; 24]), None);
        assert_eq!(TraceContext::from_bytes(&[1; 26]), None);
        assert_eq!(TraceContext::from_bytes(&[0; 25]), None);
    }
}
