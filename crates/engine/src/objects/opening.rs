//! Which place a URL names, and whether it can be reached.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};

use super::bucket::Bucket;
use super::line::Line;
use super::name::Name;
use super::trouble::refusal;
use super::{ObjectError, Objects, Place, blocking};

/// What is sent again, after the first try: a bucket that is down is told to callers within seconds.
const RETRIES: usize = 3;

/// No more is tried after this time, whatever it waited for.
const PATIENCE: Duration = Duration::from_secs(20);

impl Objects {
    /// The place that a URL names: a folder by its path (or `file://PATH`), or `s3://BUCKET/PREFIX` with what the `AWS_…` variables
    /// of this process say: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` and so on. A bucket is
    /// asked whether it lets us in.
    pub async fn open(url: &str) -> Result<Self, ObjectError> {
        // What is no text is no setting of ours.
        let set =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::open_with(url, set).await
    }

    /// The same, with settings that are given.
    pub async fn open_with(
        url: &str,
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ObjectError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return if url.is_empty() { Err(wrong(url)) } else { Ok(Self::folder(url)) };
        };
        match scheme {
            "file" if !rest.is_empty() => Ok(Self::folder(rest)),
            "s3" => {
                let bucket = bucket(url, rest, settings)?;
                bucket.look().await.map_err(|error| refusal(url, &error))?;
                Ok(Self { place: Place::Bucket(Arc::new(bucket)) })
            }
            _ => Err(wrong(url)),
        }
    }

    /// Whether we may write there: something is, and is taken out again.
    pub async fn try_writing(&self) -> Result<(), ObjectError> {
        match &self.place {
            Place::Folder(folder) => {
                let folder = Arc::clone(folder);
                let path = folder.root().display().to_string();
                let tried = blocking(move || folder.draft().map(drop)).await;
                tried.map_err(|error| ObjectError::Misconfigured(format!("cannot write to {path}: {error}")))
            }
            Place::Bucket(bucket) => bucket.now().await.map(drop).map_err(|error| refusal(bucket.url(), &error)),
        }
    }
}

fn wrong(url: &str) -> ObjectError {
    let text = format!("`{url}` is no place for objects: name a folder, or a bucket as s3://BUCKET/PREFIX");
    ObjectError::Misconfigured(text)
}

fn bucket(url: &str, rest: &str, settings: impl IntoIterator<Item = (String, String)>) -> Result<Bucket, ObjectError> {
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_end_matches('/');
    // A bucket is named as plainly as an object.
    let (Ok(name), Ok(prefix)) =
        (Name::new(name), Some(prefix).filter(|prefix| !prefix.is_empty()).map(Name::new).transpose())
    else {
        return Err(wrong(url));
    };
    let backoff = BackoffConfig { max_backoff: Duration::from_secs(2), ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: RETRIES, retry_timeout: PATIENCE };
    let mut builder = AmazonS3Builder::new().with_retry(retry).with_disable_bulk_delete(true);
    for (name, value) in settings {
        // Set to nothing, it is not set.
        if name.starts_with("AWS_")
            && !value.is_empty()
            && let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
        {
            builder = builder.with_config(key, value);
        }
    }
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    if let Some(endpoint) = endpoint.iter().find_map(|key| builder.get_config_value(key)) {
        let allowed = builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
        if allowed.as_deref() != Some("true") && !is_private(&endpoint) {
            return Err(ObjectError::Misconfigured(format!(
                "{url}: AWS_ENDPOINT_URL has no https:// before it, and payloads would go unencrypted to another machine; \
                 AWS_ALLOW_HTTP=true permits that"
            )));
        }
        builder = builder.with_allow_http(true);
    }
    let line = Line::new().map_err(|error| ObjectError::Misconfigured(format!("{url}: {error}")))?;
    let built = builder.with_bucket_name(name.as_str()).with_http_connector(line).build();
    let store = built.map_err(|error| refusal(url, &error))?;
    Ok(Bucket::new(store, prefix.as_ref(), url))
}

/// Whether nobody can listen: it is encrypted, or stays on this machine.
fn is_private(endpoint: &str) -> bool {
    let Some(rest) = endpoint.strip_prefix("http://") else { return endpoint.starts_with("https://") };
    let authority = rest.split('/').next().unwrap_or_default();
    let Ok(authority) = authority.parse::<http::uri::Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(url: &str, settings: &[(&str, &str)]) -> Result<(), String> {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        bucket(url, url.strip_prefix("s3://").unwrap(), settings).map(drop).map_err(|error| error.to_string())
    }

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "hidden")];

    #[test]
    fn a_bucket_is_named_by_a_url() {
        for good in ["s3://bucket", "s3://bucket/", "s3://my.bucket-1/a/b", "s3://bucket/a/"] {
            assert_eq!(open(good, &KEYS), Ok(()), "{good}");
        }
        for bad in ["s3://", "s3:///a", "s3://b/../c", "s3://b//c", "s3://me:key@b"] {
            assert!(open(bad, &KEYS).unwrap_err().contains("is no place for objects"), "{bad}");
        }
    }

    /// Half of a pair of keys is none; and what a message says is never the other half.
    #[test]
    fn keys_come_in_pairs_and_are_not_told() {
        let error = open("s3://bucket", &KEYS[1..]).unwrap_err();
        assert!(error.contains("AWS_ACCESS_KEY_ID") && !error.contains("hidden"), "{error}");
        let error = open("s3://bucket", &KEYS[..1]).unwrap_err();
        assert!(error.contains("AWS_SECRET_ACCESS_KEY"), "{error}");
        let made = bucket("s3://bucket", "bucket", KEYS.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(!format!("{:?}", made.unwrap()).contains("hidden"));
    }

    #[test]
    fn what_is_not_encrypted_stays_on_this_machine() {
        let with = |endpoint: &str, allowed: &str| {
            let more = [("AWS_ENDPOINT_URL", endpoint), ("AWS_ALLOW_HTTP", allowed)];
            open("s3://bucket", &[&KEYS[..], &more[..]].concat())
        };
        for good in ["http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000", "https://s3.example.org"] {
            assert_eq!(with(good, ""), Ok(()), "{good}");
        }
        for bad in
            ["http://s3.example.org", "http://localhost.example.org", "http://127.0.0.1@example.org", "s3.example.org"]
        {
            assert!(with(bad, "").unwrap_err().contains("AWS_ALLOW_HTTP"), "{bad}");
        }
        assert_eq!(with("http://s3.example.org", "true"), Ok(()));
    }

    #[tokio::test]
    async fn a_folder_is_named_by_its_path() {
        for good in ["objects", "/var/objects", "file:///var/objects"] {
            let opened = Objects::open_with(good, []).await.unwrap();
            assert!(matches!(opened.place, Place::Folder(_)), "{good}");
        }
        for bad in ["", "file://", "gs://bucket", "http://host/bucket"] {
            assert_eq!(Objects::open_with(bad, []).await.unwrap_err().code(), "objects_misconfigured", "{bad}");
        }
    }
}
