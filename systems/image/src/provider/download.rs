//! A picture fetched from where the service says it is.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION};
use http::uri::Uri;
use onceward_core::decide::ErrorReport;
use tokio::time::Instant;

use super::failure::{Trouble, not_there};
use super::line::{Line, read};
use super::order::Picture;
use super::{reach, sniff};

/// From the address to the file: a gateway and a bucket need no more.
const REDIRECTS: u32 = 3;

/// Every address on the way is judged anew, and none is told the key.
pub(super) async fn fetch(line: &Line, url: &str, until: Instant, most: usize) -> Result<Picture, ErrorReport> {
    let mut uri: Uri = url.parse().map_err(|_| Trouble::Broken.report())?;
    for _ in 0..=REDIRECTS {
        if !line.is_own(&uri) && !reach::may_ask(&uri) {
            return Err(Trouble::OffLimits.report());
        }
        let response = line.get(&uri, until).await.map_err(Trouble::report)?;
        let status = response.status();
        if status.is_redirection() {
            uri = next(&uri, response.headers()).ok_or_else(|| Trouble::Broken.report())?;
            continue;
        }
        if status.as_u16() != 200 {
            return Err(not_there(status, response.headers()));
        }
        let named = kind(response.headers()).ok_or_else(|| Trouble::NotAPicture.report())?;
        if told_length(response.headers()).is_some_and(|length| length > most as u64) {
            return Err(Trouble::TooLarge.report());
        }
        let answered = read(response, until, most).await.map_err(Trouble::report)?;
        return match sniff::whole_picture(&answered.body) {
            Some(found) if found == named => Ok(Picture { bytes: answered.body.as_ref().into(), kind: found }),
            _ => Err(Trouble::NotAPicture.report()),
        };
    }
    Err(Trouble::TooManyRedirects.report())
}

/// What the head says is coming. Nobody asked for a compressed body, so nobody undoes one.
fn kind(headers: &HeaderMap) -> Option<&'static str> {
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return None;
    }
    sniff::named(headers.get(CONTENT_TYPE)?.to_str().ok()?)
}

fn told_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Where a redirect leads: to a whole address, to another host by the same scheme, or to a path at the same host.
fn next(from: &Uri, headers: &HeaderMap) -> Option<Uri> {
    let to = headers.get(LOCATION)?.to_str().ok()?.trim();
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    if to.starts_with("//") {
        return format!("{scheme}:{to}").parse().ok();
    }
    if to.starts_with('/') {
        return format!("{scheme}://{authority}{to}").parse().ok();
    }
    let whole: Uri = to.parse().ok()?;
    whole.scheme().is_some().then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_addresses() {
        let led = |to: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, to.parse().expect("a header"));
            next(&"https://a.example:8443/x/y?z".parse().expect("an address"), &headers).map(|uri| uri.to_string())
        };
        assert_eq!(led("/b.png").as_deref(), Some("https://a.example:8443/b.png"));
        assert_eq!(led("//b.example/c.png").as_deref(), Some("https://b.example/c.png"));
        assert_eq!(led("http://b.example/c.png").as_deref(), Some("http://b.example/c.png"));
        for nowhere in ["", "c.png", "?q", "javascript:alert(1)"] {
            assert_eq!(led(nowhere), None, "{nowhere}");
        }
        assert_eq!(next(&"https://a.example/".parse().expect("an address"), &HeaderMap::new()), None);
    }
}
