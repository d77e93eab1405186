//! A stream that fails if the client does not read, or reads too slowly, so that a stalled client cannot hold a
//! connection and its response forever.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::config::ServerConfig;

#[derive(Debug)]
pub(crate) struct WriteTimeoutStream<S> {
    stream: S,
    write_timeout: Duration,
    /// Bytes that the client must read in each `write_timeout`, unless it reads everything.
    min_bytes: usize,
    /// Set from when a write blocks until the client has read everything, or enough.
    window: Option<BlockedWindow>,
    /// Whether a request arrived. Before that, writes are discarded: hyper answers an unreadable head with a bare
    /// status, and the server sends a better response instead.
    saw_request: Arc<AtomicBool>,
}

#[derive(Debug)]
struct BlockedWindow {
    deadline: Pin<Box<Sleep>>,
    /// Bytes written since it began.
    written: usize,
}

impl<S> WriteTimeoutStream<S> {
    pub(crate) fn new(stream: S, config: &ServerConfig, saw_request: Arc<AtomicBool>) -> Self {
        let write_timeout = config.write_timeout;
        let min_bytes = u128::from(config.min_read_bytes_per_second) * write_timeout.as_millis() / 1_000;
        let min_bytes = usize::try_from(min_bytes).unwrap_or(usize::MAX).max(1);
        Self { stream, write_timeout, min_bytes, window: None, saw_request }
    }

    /// Returns the result of a write of `offered` bytes, or an error if the client has read too little for too long.
    fn with_timeout(
        &mut self,
        cx: &mut Context<'_>,
        offered: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => {
                let is_enough = |window: &mut BlockedWindow| {
                    window.written = window.written.saturating_add(*bytes);
                    *bytes == offered || window.written >= self.min_bytes
                };
                self.window.take_if(is_enough);
                return written;
            }
            Poll::Ready(Err(_)) => return written,
            Poll::Pending => {}
        }
        let write_timeout = self.write_timeout;
        let window =
            self.window.get_or_insert_with(|| BlockedWindow { deadline: Box::pin(sleep(write_timeout)), written: 0 });
        window.deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.saw_request.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.with_timeout(cx, bytes.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let offered = bytes.iter().map(|slice| slice.len()).sum();
        if !self.saw_request.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(offered));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.with_timeout(cx, offered, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// The response of 1 MB, and what a client reads in each second. The clock is paused, so no time passes.
    async fn write_to_client(bytes_per_second: usize) -> io::Result<()> {
        let (mut client, server) = tokio::io::duplex(4 << 10);
        let config = ServerConfig::default();
        let mut server = WriteTimeoutStream::new(server, &config, Arc::new(AtomicBool::new(true)));
        let reading = tokio::spawn(async move {
            let mut chunk = vec![0; bytes_per_second];
            while client.read_exact(&mut chunk).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let written = server.write_all(&vec![0; 1 << 20]).await;
        reading.abort();
        written
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_reads_too_slowly_is_disconnected() {
        let rate = usize::try_from(ServerConfig::default().min_read_bytes_per_second).expect("a number");
        write_to_client(rate * 2).await.expect("fast enough");
        // It always makes progress within the timeout.
        for bytes_per_second in [1, rate / 2] {
            let slow = write_to_client(bytes_per_second).await.expect_err("too slow");
            assert_eq!(slow.kind(), io::ErrorKind::TimedOut, "{bytes_per_second} bytes per second");
        }
    }
}
