//! Responses of raw bytes: payloads and effects.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onceward_core::decide::Effect;
use onceward_engine::{EngineError, PayloadReader};
use serde_json::Value as Json;

use super::{json_response, unwrap_base64};
use crate::extract;
use crate::problem::Problem;

/// Up to this size, the server buffers a payload to detect JSON. Larger ones are streamed.
const MAX_BUFFERED_BYTES: u64 = 256 << 10;

/// Responds with a payload's bytes. Without a `content_type`, small payloads that are valid JSON are sent as JSON,
/// all others as `application/octet-stream`.
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
    // The bytes are untrusted: browsers must not render them as a page.
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Responds with an effect's result: base64 as bytes, a string as plain text, null as an empty body, anything else
/// as JSON.
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

/// Streams a payload. If a chunk cannot be read or the hash does not match, the response ends before its
/// `Content-Length`, so the client notices: the reader holds back the last chunk until it has verified the hash.
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
