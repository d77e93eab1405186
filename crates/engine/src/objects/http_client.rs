//! HTTP client for S3: adapts our client to `object_store`. Every wait has a timeout.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use object_store::client::{
    HttpClient as StoreHttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use onceward_http_client::{AddressPolicy, HttpClient, HttpClientConfig, SendError, TlsRoots, root_cause};
use tokio::time::{Instant, Sleep};

/// Closes idle connections before the bucket does so in the middle of a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// A reachable server accepts within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time to the first byte of the response, and between two chunks of it.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Slowest upload rate: the timeout of a request grows with its size.
const MIN_BYTES_PER_SECOND: u64 = 256 << 10;

/// Clones share their connections.
#[derive(Clone)]
pub(super) struct BucketHttpClient {
    client: HttpClient<HttpRequestBody>,
    /// Allows plain HTTP. Requests to the instance metadata service always use it; others only if permitted.
    allow_http: bool,
}

impl fmt::Debug for BucketHttpClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("BucketHttpClient")
    }
}

impl BucketHttpClient {
    pub(super) fn new(is_https: bool) -> Result<Self, String> {
        let config = HttpClientConfig {
            address_policy: AddressPolicy::Configured,
            tls_roots: TlsRoots::for_configured_url(is_https).map_err(|error| error.to_string())?,
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: Some(IDLE_TIMEOUT),
            keepalive: None,
        };
        Ok(Self { client: HttpClient::new(&config), allow_http: false })
    }
}

impl HttpConnector for BucketHttpClient {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<StoreHttpClient> {
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        Ok(StoreHttpClient::new(Self { allow_http, ..self.clone() }))
    }
}

type HttpCallFuture<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for BucketHttpClient {
    fn call<'life0, 'async_trait>(&'life0 self, request: HttpRequest) -> HttpCallFuture<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        let bytes = u64::try_from(request.body().content_length()).unwrap_or(u64::MAX);
        let response_timeout = RESPONSE_TIMEOUT + Duration::from_secs(bytes / MIN_BYTES_PER_SECOND);
        Box::pin(async move {
            if !self.allow_http && request.uri().scheme() != Some(&Scheme::HTTPS) {
                let refused = io::Error::new(io::ErrorKind::PermissionDenied, "the connection is not encrypted");
                return Err(HttpError::new(HttpErrorKind::Unknown, refused));
            }
            let answer = self.client.send(request, Instant::now() + response_timeout).await.map_err(send_error)?;
            Ok(answer.map(|body| {
                HttpResponseBody::new(TimedBody { body, deadline: Box::pin(tokio::time::sleep(RESPONSE_TIMEOUT)) })
            }))
        })
    }
}

fn timeout_error() -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, io::Error::new(io::ErrorKind::TimedOut, "the request timed out"))
}

fn send_error(error: SendError) -> HttpError {
    match error {
        SendError::Timeout => timeout_error(),
        SendError::AddressRefused(refused) => HttpError::new(HttpErrorKind::Connect, refused),
        SendError::Connect(cause) => HttpError::new(HttpErrorKind::Connect, cause),
        SendError::Interrupted(cause) => HttpError::new(HttpErrorKind::Interrupted, cause),
    }
}

/// A response body with a timeout for each chunk.
struct TimedBody {
    body: Incoming,
    deadline: Pin<Box<Sleep>>,
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                self.deadline.as_mut().reset(Instant::now() + RESPONSE_TIMEOUT);
                let interrupted = |error| HttpError::new(HttpErrorKind::Interrupted, root_cause(&error));
                Poll::Ready(frame.map(|frame| frame.map_err(interrupted)))
            }
            Poll::Pending => self.deadline.as_mut().poll(context).map(|()| Some(Err(timeout_error()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
