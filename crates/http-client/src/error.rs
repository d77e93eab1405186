//! Errors of requests.

use std::error::Error;
use std::io;

use hyper_util::client::legacy::Error as PoolError;

use crate::address_policy::AddressRefused;

/// Why a request got no response head.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The policy forbids the address. Nothing was sent. A retry helps only if a name resolves to another address then.
    #[error(transparent)]
    AddressRefused(#[from] AddressRefused),
    /// The deadline passed. The receiver may have got the request.
    #[error("the response did not arrive in time")]
    Timeout,
    /// No connection was established, so nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// The connection broke. The receiver may have got the request.
    #[error("the connection broke: {0}")]
    Interrupted(#[source] io::Error),
}

impl From<PoolError> for SendError {
    fn from(error: PoolError) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(inner) = cause {
            if let Some(refused) = inner.downcast_ref::<AddressRefused>() {
                return Self::AddressRefused(refused.clone());
            }
            cause = inner.source();
        }
        let cause = root_cause(&error);
        if error.is_connect() { Self::Connect(cause) } else { Self::Interrupted(cause) }
    }
}

/// Returns the innermost error of a chain, because the outer ones only say that the request failed. Its kind is the
/// kind of the first I/O error in the chain.
pub fn root_cause(error: &(dyn Error + 'static)) -> io::Error {
    let mut kind = None;
    let mut cause = error;
    loop {
        let io_error = cause.downcast_ref::<io::Error>();
        kind = kind.or_else(|| io_error.map(io::Error::kind));
        // An I/O error does not name the error that it wraps as its source.
        let wrapped = io_error.and_then(io::Error::get_ref).map(|wrapped| wrapped as &(dyn Error + 'static));
        let Some(inner) = wrapped.or_else(|| cause.source()) else { break };
        cause = inner;
    }
    let is_plain_http =
        matches!(cause.downcast_ref(), Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)));
    let text = if is_plain_http {
        "the server does not speak TLS; check the port, or use http:// instead of https://".to_owned()
    } else {
        cause.to_string()
    };
    io::Error::new(kind.unwrap_or(io::ErrorKind::Other), text)
}
