//! Serves one HTTP connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::problem::Problem;
use crate::repoll::RepollOnSelfWake;
use crate::request_service::RequestService;
use crate::write_timeout::WriteTimeoutStream;

/// Time for the client to read the last response before the server closes the connection.
const CLOSE_LINGER: Duration = Duration::from_secs(1);

/// Serves one connection until it closes.
pub(crate) async fn serve_connection(service: RequestService, stream: TcpStream) {
    let app = service.app.clone();
    let config = app.config();
    let saw_request = Arc::new(AtomicBool::new(false));
    let service = service.for_connection(Arc::clone(&saw_request));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .max_buf_size(config.max_head_bytes.max(8 << 10))
        .serve_connection(TokioIo::new(WriteTimeoutStream::new(stream, config, Arc::clone(&saw_request))), service);
    // A connection opened during the drain still gets one response, with `connection: close`.
    let opened_while_draining = app.capacity().is_draining();
    let shutdown = async {
        if opened_while_draining {
            app.capacity().wait_idle().await;
        } else {
            app.capacity().wait_drain().await;
        }
    };
    // Errors of the client need no logging.
    let ended = tokio::select! {
        ended = RepollOnSelfWake::new(poll_fn(|cx| connection.poll_without_shutdown(cx))) => Some(ended),
        () = shutdown => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        Pin::new(&mut connection).graceful_shutdown();
        poll_fn(|cx| connection.poll_without_shutdown(cx)).await
    };
    let rest = connection.into_parts();
    let stream = rest.io.into_inner();
    // Stop discarding writes: the server itself writes from here on.
    let had_request = saw_request.swap(true, Ordering::Relaxed);
    match ended {
        // If part of a request arrived, the client gets a response. An idle connection is closed without one.
        Err(error) if error.is_timeout() && !rest.read_buf.is_empty() => {
            let slow = Problem::new(408, "request_head_timeout", "the request line and headers did not arrive in time");
            close_with_response(stream, &slow.to_http_response()).await;
        }
        Err(error) if error.is_parse() && !had_request => {
            let problem = if error.is_parse_too_large() {
                let max_head_bytes = config.max_head_bytes;
                let detail = format!(
                    "the request head is too large: the request line may have {max_head_bytes} bytes, and up to 100 headers may have twice as many"
                );
                Problem::new(431, "request_head_too_large", detail).with_member("max_bytes", max_head_bytes)
            } else {
                Problem::new(400, "invalid_request_head", "the request head is not valid HTTP/1.1")
            };
            close_with_response(stream, &problem.to_http_response()).await;
        }
        _ if app.capacity().is_draining() => {}
        _ => close_with_response(stream, &[]).await,
    }
}

/// Writes the last response and gives the client time to read it. Closing a socket with unread input would reset
/// the connection, and the client could lose the response.
pub(crate) async fn close_with_response(mut stream: impl AsyncRead + AsyncWrite + Unpin, response: &[u8]) {
    let closing = async {
        stream.write_all(response).await?;
        stream.shutdown().await?;
        let mut unread = [0; 4 << 10];
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(CLOSE_LINGER, closing).await;
}
