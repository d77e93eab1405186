//! Opens object storage from a URL and probes it.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};

use super::bucket::S3Bucket;
use super::errors::open_error;
use super::http_client::BucketHttpClient;
use super::name::ObjectName;
use super::{ObjectBackend, ObjectError, ObjectStorage, run_blocking};

/// Callers learn within seconds that a bucket is down.
const MAX_RETRIES: usize = 3;

/// Bounds all retries of one request.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

impl ObjectStorage {
    /// Opens object storage: a folder by path (or `file://PATH`), or `s3://BUCKET/PREFIX` with the `AWS_…` variables of
    /// this process: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` and so on. A bucket
    /// is probed for access.
    pub async fn open(url: &str) -> Result<Self, ObjectError> {
        // A variable that is not UTF-8 is none of these settings.
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::open_with(url, variables).await
    }

    /// Like [`open`](Self::open), with explicit settings.
    pub async fn open_with(
        url: &str,
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ObjectError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return if url.is_empty() { Err(invalid_url(url)) } else { Ok(Self::folder(url)) };
        };
        match scheme {
            "file" if !rest.is_empty() => Ok(Self::folder(rest)),
            "s3" => {
                let bucket = build_bucket(url, rest, settings)?;
                bucket.probe().await.map_err(|error| open_error(url, &error))?;
                Ok(Self { backend: ObjectBackend::Bucket(Arc::new(bucket)) })
            }
            _ => Err(invalid_url(url)),
        }
    }

    /// Checks write access: writes an object and deletes it.
    pub async fn probe_write(&self) -> Result<(), ObjectError> {
        match &self.backend {
            ObjectBackend::Folder(folder) => {
                let folder = Arc::clone(folder);
                let path = folder.root().display().to_string();
                let created = run_blocking(move || folder.create_draft().map(drop)).await;
                created.map_err(|error| ObjectError::Misconfigured(format!("cannot write to {path}: {error}")))
            }
            ObjectBackend::Bucket(bucket) => {
                bucket.now().await.map(drop).map_err(|error| open_error(bucket.url(), &error))
            }
        }
    }
}

fn invalid_url(url: &str) -> ObjectError {
    let text = format!("`{url}` is not object storage; name a folder, or a bucket as s3://BUCKET/PREFIX");
    ObjectError::Misconfigured(text)
}

fn build_bucket(
    url: &str,
    rest: &str,
    settings: impl IntoIterator<Item = (String, String)>,
) -> Result<S3Bucket, ObjectError> {
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_end_matches('/');
    // A bucket name follows the rules of object names.
    let (Ok(name), Ok(prefix)) =
        (ObjectName::new(name), Some(prefix).filter(|prefix| !prefix.is_empty()).map(ObjectName::new).transpose())
    else {
        return Err(invalid_url(url));
    };
    let backoff = BackoffConfig { max_backoff: Duration::from_secs(2), ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT };
    let mut builder = AmazonS3Builder::new().with_retry(retry).with_disable_bulk_delete(true);
    for (name, value) in settings {
        // An empty value counts as unset.
        if name.starts_with("AWS_")
            && !value.is_empty()
            && let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
        {
            builder = builder.with_config(key, value);
        }
    }
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    let endpoint = endpoint.iter().find_map(|key| builder.get_config_value(key));
    let is_https = endpoint.as_ref().is_none_or(|endpoint| !endpoint.starts_with("http://"));
    if let Some(endpoint) = endpoint {
        let allowed = builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
        if allowed.as_deref() != Some("true") && !is_encrypted_or_loopback(&endpoint) {
            return Err(ObjectError::Misconfigured(format!(
                "{url}: AWS_ENDPOINT_URL does not start with https://, so payloads would be sent unencrypted; \
                 set AWS_ALLOW_HTTP=true to allow it"
            )));
        }
        builder = builder.with_allow_http(true);
    }
    let http_client =
        BucketHttpClient::new(is_https).map_err(|error| ObjectError::Misconfigured(format!("{url}: {error}")))?;
    let built = builder.with_bucket_name(name.as_str()).with_http_connector(http_client).build();
    let store = built.map_err(|error| open_error(url, &error))?;
    Ok(S3Bucket::new(store, prefix.as_ref(), url))
}

/// Returns whether the traffic is encrypted or stays on this machine.
fn is_encrypted_or_loopback(endpoint: &str) -> bool {
    let Some(rest) = endpoint.strip_prefix("http://") else { return endpoint.starts_with("https://") };
    let authority = rest.split('/').next().unwrap_or_default();
    let Ok(authority) = authority.parse::<http::uri::Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_build(url: &str, settings: &[(&str, &str)]) -> Result<(), String> {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        build_bucket(url, url.strip_prefix("s3://").unwrap(), settings).map(drop).map_err(|error| error.to_string())
    }

    const TEST_CREDENTIALS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "hidden")];

    #[test]
    fn s3_url_with_plain_bucket_and_prefix_is_accepted() {
        for good in ["s3://bucket", "s3://bucket/", "s3://my.bucket-1/a/b", "s3://bucket/a/"] {
            assert_eq!(try_build(good, &TEST_CREDENTIALS), Ok(()), "{good}");
        }
        for bad in ["s3://", "s3:///a", "s3://b/../c", "s3://b//c", "s3://me:key@b"] {
            assert!(try_build(bad, &TEST_CREDENTIALS).unwrap_err().contains("is not object storage"), "{bad}");
        }
    }

    #[test]
    fn incomplete_credentials_error_hides_secret() {
        let error = try_build("s3://bucket", &TEST_CREDENTIALS[1..]).unwrap_err();
        assert!(error.contains("AWS_ACCESS_KEY_ID") && !error.contains("hidden"), "{error}");
        let error = try_build("s3://bucket", &TEST_CREDENTIALS[..1]).unwrap_err();
        assert!(error.contains("AWS_SECRET_ACCESS_KEY"), "{error}");
        let bucket_debug = build_bucket(
            "s3://bucket",
            "bucket",
            TEST_CREDENTIALS.map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        assert!(!format!("{:?}", bucket_debug.unwrap()).contains("hidden"));
    }

    #[test]
    fn plain_http_endpoint_requires_loopback_or_allow_http() {
        let build_with_endpoint = |endpoint: &str, allowed: &str| {
            let more = [("AWS_ENDPOINT_URL", endpoint), ("AWS_ALLOW_HTTP", allowed)];
            try_build("s3://bucket", &[&TEST_CREDENTIALS[..], &more[..]].concat())
        };
        for good in ["http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000", "https://s3.example.org"] {
            assert_eq!(build_with_endpoint(good, ""), Ok(()), "{good}");
        }
        for bad in
            ["http://s3.example.org", "http://localhost.example.org", "http://127.0.0.1@example.org", "s3.example.org"]
        {
            assert!(build_with_endpoint(bad, "").unwrap_err().contains("AWS_ALLOW_HTTP"), "{bad}");
        }
        assert_eq!(build_with_endpoint("http://s3.example.org", "true"), Ok(()));
    }

    #[tokio::test]
    async fn path_or_file_url_opens_folder() {
        for good in ["objects", "/var/objects", "file:///var/objects"] {
            let opened = ObjectStorage::open_with(good, []).await.unwrap();
            assert!(matches!(opened.backend, ObjectBackend::Folder(_)), "{good}");
        }
        for bad in ["", "file://", "gs://bucket", "http://host/bucket"] {
            assert_eq!(
                ObjectStorage::open_with(bad, []).await.unwrap_err().code(),
                "object_storage_misconfigured",
                "{bad}"
            );
        }
    }
}
