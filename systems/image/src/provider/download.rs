//! Downloads an image from the URL in the provider's answer.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION};
use http::uri::{Scheme, Uri};
use onceward_core::decide::FailureReport;
use tokio::time::Instant;

use super::http_client::{ProviderHttpClient, read_response};
use super::image_request::GeneratedImage;
use super::media_type;
use super::provider_error::{ProviderError, download_failure};

/// Enough for a gateway and a bucket.
const MAX_REDIRECTS: u32 = 3;

/// Downloads an image. The rules for URLs apply to each redirect, and the API key is never sent.
pub(super) async fn download_image(
    client: &ProviderHttpClient,
    url: &str,
    deadline: Instant,
    max_bytes: usize,
) -> Result<GeneratedImage, FailureReport> {
    let mut uri: Uri = url.parse().map_err(|_| ProviderError::InvalidResponse.to_failure_report())?;
    for _ in 0..=MAX_REDIRECTS {
        if !client.is_service_url(&uri) && !is_plain_https_url(&uri) {
            return Err(ProviderError::AddressNotAllowed.to_failure_report());
        }
        let response = client.get(&uri, deadline).await.map_err(ProviderError::to_failure_report)?;
        let status = response.status();
        if status.is_redirection() {
            uri = redirect_target(&uri, response.headers())
                .ok_or_else(|| ProviderError::InvalidResponse.to_failure_report())?;
            continue;
        }
        if status.as_u16() != 200 {
            return Err(download_failure(status, response.headers()));
        }
        let declared =
            declared_media_type(response.headers()).ok_or_else(|| ProviderError::NotAnImage.to_failure_report())?;
        if content_length(response.headers()).is_some_and(|length| length > max_bytes as u64) {
            return Err(ProviderError::ResponseTooLarge.to_failure_report());
        }
        let downloaded =
            read_response(response, deadline, max_bytes).await.map_err(ProviderError::to_failure_report)?;
        return match media_type::detect_complete_image(&downloaded.body) {
            Some(detected) if detected == declared => {
                Ok(GeneratedImage { bytes: downloaded.body.as_ref().into(), media_type: detected })
            }
            _ => Err(ProviderError::NotAnImage.to_failure_report()),
        };
    }
    Err(ProviderError::TooManyRedirects.to_failure_report())
}

/// Returns whether a URL outside the service is https and without user info. The client checks its address.
fn is_plain_https_url(uri: &Uri) -> bool {
    let has_user_info = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    uri.scheme() == Some(&Scheme::HTTPS) && !has_user_info && uri.host().is_some_and(|host| !host.is_empty())
}

/// Returns the declared media type. A compressed body is rejected, because the request did not accept one.
fn declared_media_type(headers: &HeaderMap) -> Option<&'static str> {
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return None;
    }
    media_type::parse_content_type(headers.get(CONTENT_TYPE)?.to_str().ok()?)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Resolves a redirect: to an absolute URL, to another host with the same scheme, or to a path on the same host.
fn redirect_target(from: &Uri, headers: &HeaderMap) -> Option<Uri> {
    let location = headers.get(LOCATION)?.to_str().ok()?.trim();
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    if location.starts_with("//") {
        return format!("{scheme}:{location}").parse().ok();
    }
    if location.starts_with('/') {
        return format!("{scheme}://{authority}{location}").parse().ok();
    }
    let absolute: Uri = location.parse().ok()?;
    absolute.scheme().is_some().then_some(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_outside_the_service_must_be_https_without_user_info() {
        let is_allowed = |text: &str| text.parse().is_ok_and(|uri| is_plain_https_url(&uri));
        assert!(is_allowed("https://files.example.org/a.png") && is_allowed("https://8.8.8.8:8443/a.png"));
        for forbidden in [
            "http://files.example.org/a.png",
            "https://me@files.example.org/a.png",
            "ftp://files.example.org/a.png",
            "file:///etc/passwd",
            "/a.png",
        ] {
            assert!(!is_allowed(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn redirect_target_accepts_absolute_and_rooted_locations() {
        let resolve = |to: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, to.parse().expect("a header"));
            redirect_target(&"https://a.example:8443/x/y?z".parse().expect("an address"), &headers)
                .map(|uri| uri.to_string())
        };
        assert_eq!(resolve("/b.png").as_deref(), Some("https://a.example:8443/b.png"));
        assert_eq!(resolve("//b.example/c.png").as_deref(), Some("https://b.example/c.png"));
        assert_eq!(resolve("http://b.example/c.png").as_deref(), Some("http://b.example/c.png"));
        for invalid in ["", "c.png", "?q", "javascript:alert(1)"] {
            assert_eq!(resolve(invalid), None, "{invalid}");
        }
        assert_eq!(redirect_target(&"https://a.example/".parse().expect("an address"), &HeaderMap::new()), None);
    }
}
