//! Responses of the fake service.

use super::gate::TestGate;

#[derive(Clone, Debug, Default)]
pub enum FakeResponse {
    /// A generation with the image inline, a download with the image bytes, or a moderation without objection.
    #[default]
    Success,
    /// A generation with a URL of this service.
    ImageUrl,
    /// A generation with this URL.
    ImageUrlAt(String),
    /// A moderation that flags the prompt.
    Flagged,
    /// Any status except success.
    ErrorStatus(ErrorResponse),
    /// A success with this body.
    Body { content_type: &'static str, bytes: Vec<u8> },
    /// The head announces the whole body; only half of it follows.
    TruncatedWithLength,
    /// The head announces no length; half of the body follows, then the connection closes normally.
    TruncatedWithoutLength,
    /// One byte at a time, so that the whole body takes minutes.
    SlowBytes,
    /// An endless body without a length.
    Endless,
    /// The head and half of the body; the rest when the gate opens.
    StallMidBody(TestGate),
    /// A success when the gate opens; nothing before.
    Delayed(TestGate),
    /// No response at all.
    NoResponse,
    /// Closes the connection without a response.
    CloseConnection,
}

/// Status, headers, and `error` of the body.
#[derive(Clone, Debug)]
pub struct ErrorResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) error: serde_json::Value,
}

impl FakeResponse {
    /// Returns an error response with a body like that of real services, which quotes the request.
    pub fn error_status(status: u16) -> ErrorResponse {
        ErrorResponse { status, headers: Vec::new(), error: serde_json::json!({ "type": "error", "code": null }) }
    }

    /// Returns a redirect to another URL.
    pub fn redirect(to: &str) -> ErrorResponse {
        Self::error_status(302).header("Location", to)
    }

    /// Returns a success whose body is this text, which need not be JSON.
    pub fn success_text(text: &str) -> Self {
        Self::Body { content_type: "application/json", bytes: text.as_bytes().to_vec() }
    }
}

impl ErrorResponse {
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the error code in the body.
    pub fn code(mut self, code: &str) -> Self {
        self.error["code"] = code.into();
        self
    }

    /// Sets the whole `error` of the body.
    pub fn error(mut self, error: serde_json::Value) -> Self {
        self.error = error;
        self
    }
}

impl From<ErrorResponse> for FakeResponse {
    fn from(refusal: ErrorResponse) -> Self {
        Self::ErrorStatus(refusal)
    }
}
