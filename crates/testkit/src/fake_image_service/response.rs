//! How the service answers.

use super::gate::TestGate;

#[derive(Clone, Debug, Default)]
pub enum FakeResponse {
    /// An order with the picture itself, a download with its bytes, a prompt with no objection.
    #[default]
    Success,
    /// An order with the address of the picture, at this service.
    ImageUrl,
    /// An order with an address of your choice.
    ImageUrlAt(String),
    /// A moderation's objection.
    Flagged,
    /// Any status but a success.
    ErrorStatus(ErrorResponse),
    /// A success with this body.
    Body { content_type: &'static str, bytes: Vec<u8> },
    /// The head promises the whole body; half of it comes.
    TruncatedWithLength,
    /// The head promises nothing; half of the body comes, and the connection ends as if that were all.
    TruncatedWithoutLength,
    /// A byte now and then: all of it takes minutes.
    SlowBytes,
    /// More and more, for ever, of no length told before.
    Endless,
    /// The head, half of the body, and the rest when the gate opens.
    StallMidBody(TestGate),
    /// Well, when the gate opens, and nothing before.
    Delayed(TestGate),
    /// Nothing, for ever.
    NoResponse,
    /// The connection ends without a word.
    CloseConnection,
}

/// A status, headers, and the `error` of the body.
#[derive(Clone, Debug)]
pub struct ErrorResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) error: serde_json::Value,
}

impl FakeResponse {
    /// With a body as real services write it, which quotes what it was asked.
    pub fn error_status(status: u16) -> ErrorResponse {
        ErrorResponse { status, headers: Vec::new(), error: serde_json::json!({ "type": "error", "code": null }) }
    }

    /// To another address.
    pub fn redirect(to: &str) -> ErrorResponse {
        Self::error_status(302).header("Location", to)
    }

    /// A success whose body is this text, as JSON or not.
    pub fn success_text(text: &str) -> Self {
        Self::Body { content_type: "application/json", bytes: text.as_bytes().to_vec() }
    }
}

impl ErrorResponse {
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The code of the error in the body.
    pub fn code(mut self, code: &str) -> Self {
        self.error["code"] = code.into();
        self
    }

    /// The whole `error` of the body.
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
