//! Maps S3 errors. Responses are not passed on: a signature error contains everything that was signed.

use std::error::Error as _;
use std::io;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

use super::ObjectError;

pub(super) fn none_if_missing<T>(result: Result<T, Error>) -> Result<Option<T>, ObjectError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(to_object_error(error)),
    }
}

/// Maps an error during use.
#[allow(clippy::needless_pass_by_value, reason = "`map_err` passes it by value")]
pub(super) fn to_object_error(error: Error) -> ObjectError {
    let details = S3ErrorDetails::from_error(&error);
    let is_full =
        details.status == Some(507) || STORAGE_FULL_CODES.iter().any(|full_code| details.code.contains(full_code));
    let kind = match details.connection_error {
        _ if is_full => io::ErrorKind::StorageFull,
        Some(HttpErrorKind::Timeout) => io::ErrorKind::TimedOut,
        Some(HttpErrorKind::Connect) => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::Other,
    };
    ObjectError::Unavailable(io::Error::new(kind, details.message(&error)))
}

/// Maps an error of `open`, with advice for the operator.
pub(super) fn open_error(url: &str, error: &Error) -> ObjectError {
    let details = S3ErrorDetails::from_error(error);
    if details.is_credential_lookup {
        return ObjectError::Misconfigured(format!(
            "{url}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
        ));
    }
    let advice = match (details.status, details.code.as_str()) {
        (_, "NoSuchBucket") => "; create the bucket, or check AWS_ENDPOINT_URL and AWS_REGION",
        (Some(401 | 403), _) => {
            "; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and the permissions of the access key"
        }
        (Some(301 | 307 | 400), _) => "; check AWS_REGION and AWS_ENDPOINT_URL",
        (None, _) if details.connection_error.is_some() => "; check AWS_ENDPOINT_URL",
        _ => "",
    };
    ObjectError::Misconfigured(format!("{url}: {}{advice}", details.message(error)))
}

/// Codes of stores without free space, or parts of such codes.
const STORAGE_FULL_CODES: [&str; 3] = ["StorageFull", "QuotaExceeded", "InsufficientStorage"];

/// Details of an S3 error. The client library has them only as text.
#[derive(Debug, Default, PartialEq)]
struct S3ErrorDetails {
    status: Option<u16>,
    /// S3's error code, such as `NoSuchBucket`; empty if there is none.
    code: String,
    /// The connection error, if the request got no response.
    connection_error: Option<HttpErrorKind>,
    reason: String,
    /// The failed request asked the instance metadata service for credentials.
    is_credential_lookup: bool,
}

impl S3ErrorDetails {
    fn from_error(error: &Error) -> Self {
        let text = error.to_string();
        let text_after = |mark: &str| text.split_once(mark).map(|(_, rest)| rest);
        let status = text_after("status code: ").and_then(|rest| rest.get(..3)?.parse().ok());
        let code = text_after("<Code>").and_then(|rest| rest.split_once('<')).map_or("", |(code, _)| code);
        let is_plain = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let code = if is_plain { code.to_owned() } else { String::new() };
        let is_credential_lookup = text.contains("/latest/api/token") || text.contains("/latest/meta-data");
        let mut details = Self { status, code, is_credential_lookup, ..Self::default() };
        let mut source = error.source();
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref::<HttpError>() {
                details.connection_error = Some(error.kind());
                details.reason = error.source().map_or_else(String::new, ToString::to_string);
            }
            source = error.source();
        }
        details
    }

    fn message(&self, error: &Error) -> String {
        if self.is_credential_lookup {
            return "the bucket has no credentials".to_owned();
        }
        match (self.connection_error, self.status) {
            (Some(HttpErrorKind::Timeout), _) => format!("the bucket did not answer: {}", self.reason),
            (Some(_), _) => format!("the bucket cannot be reached: {}", self.reason),
            (None, Some(status)) if self.code.is_empty() => format!("the bucket answered {status}"),
            (None, Some(status)) => format!("the bucket answered {status} {}", self.code),
            (None, None) => known_message(error).to_owned(),
        }
    }
}

/// Returns a message for errors that occur before a request. Other errors may contain the bucket's response.
fn known_message(error: &Error) -> &'static str {
    let text = error.to_string();
    if text.contains("Missing AccessKeyId") {
        "AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not"
    } else if text.contains("Missing SecretAccessKey") {
        "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not"
    } else if text.contains("redirect") {
        "the bucket is in another region; check AWS_REGION"
    } else if matches!(error, Error::NotFound { .. }) {
        "the object does not exist"
    } else {
        "the bucket gave an unexpected answer"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic_error(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn full_bucket_maps_to_object_storage_full() {
        for (text, code) in [
            ("Server returned non-2xx status code: 507 Insufficient Storage: ", "object_storage_full"),
            (
                "Server returned non-2xx status code: 400 Bad Request: <Code>XMinioStorageFull</Code>",
                "object_storage_full",
            ),
            ("Server returned non-2xx status code: 403 Forbidden: <Code>QuotaExceeded</Code>", "object_storage_full"),
            (
                "Server returned non-2xx status code: 503 Service Unavailable: <Code>SlowDown</Code>",
                "object_storage_unavailable",
            ),
            ("anything else", "object_storage_unavailable"),
        ] {
            assert_eq!(to_object_error(generic_error(text)).code(), code, "{text}");
        }
    }

    /// S3 returns what was signed, and the access key id.
    #[test]
    fn open_error_hides_bucket_response_body() {
        let response = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code>\
                    <AWSAccessKeyId>mine</AWSAccessKeyId><StringToSign>hidden</StringToSign></Error>";
        let text = open_error("s3://bucket", &generic_error(response)).to_string();
        assert!(text.starts_with("s3://bucket: the bucket answered 403 SignatureDoesNotMatch; check AWS_"), "{text}");
        assert!(!text.contains("hidden") && !text.contains("mine"), "{text}");
        let message = open_error("s3://bucket", &generic_error("status code: 500 x: <Code>hidden value</Code> hidden"))
            .to_string();
        assert_eq!(message, "s3://bucket: the bucket answered 500");
        assert!(!open_error("s3://bucket", &generic_error("hidden")).to_string().contains("hidden"));
    }

    #[test]
    fn failed_credential_lookup_names_missing_variables() {
        let response =
            "Error performing PUT http://169.254.169.254/latest/api/token in 5s - HTTP error: the request timed out";
        assert!(open_error("s3://bucket", &generic_error(response)).to_string().contains("AWS_ACCESS_KEY_ID"));
    }
}
