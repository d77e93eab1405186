//! Bytes as they are: payloads, and what systems keep beside them.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onceward_core::decide::Effect;
use onceward_engine::{EngineError, PayloadReader};
use serde_json::Value as Json;

use super::{json_response, unwrap_base64};
use crate::extract;
use crate::problem::Problem;

/// Up to this, bytes are looked at before they are sent, and sent as one.
const MAX_BUFFERED_BYTES: u64 = 256 << 10;

/// An answer of bytes, of this kind; where none is named, of JSON if they are few and all JSON, else of any.
pub async fn bytes_response(reader: PayloadReader, content_type: Option<HeaderValue>) -> Result<Response, Problem> {
    let length = reader.payload().bytes;
    let (body, detected_type) = if length <= MAX_BUFFERED_BYTES {
        let bytes =
            reader.read_all(MAX_BUFFERED_BYTES).await.map_err(EngineError::from)?.ok_or_else(Problem::not_found)?;
        let kind = if extract::as_raw_json(&bytes).is_some() { "application/json" } else { "application/octet-stream" };
        (Body::from(bytes.to_vec()), kind)
    } else {
        (stream_body(reader), "application/octet-stream")
    };
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    let kind = content_type.unwrap_or_else(|| HeaderValue::from_static(detected_type));
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    // Somebody else's bytes: no browser is to make a page of them.
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// What a commit left, as it is: bytes as bytes, a text as text, nothing as nothing, and anything else as JSON.
pub fn effect_response(effect: &Effect) -> Result<Response, Problem> {
    let (body, kind) = match (unwrap_base64(&effect.result), &effect.result) {
        (Some(base64), _) => (extract::decode_base64(base64, "result_base64")?, "application/octet-stream"),
        (None, Json::String(text)) => (text.as_bytes().to_vec(), "text/plain; charset=utf-8"),
        (None, Json::Null) => (Vec::new(), "application/octet-stream"),
        (None, json) => return json_response(StatusCode::OK, json),
    };
    let mut response = Body::from(body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Where a piece cannot be had, or all of them are not what they should be, the answer breaks off before its length, since the reader
/// keeps the last one back until it knows: nobody takes it for the whole.
fn stream_body(reader: PayloadReader) -> Body {
    let chunks = futures_util::stream::unfold(Some(reader), async |reader| {
        let mut reader = reader?;
        match reader.next_chunk().await {
            Ok(Some(piece)) => Some((Ok(Bytes::from_owner(piece)), Some(reader))),
            Ok(None) => None,
            Err(error) => {
                tracing::error!(code = error.code(), "{error}");
                Some((Err(error), None))
            }
        }
    });
    Body::from_stream(chunks)
}
