//! A minimal HTTP client for load generation: one connection, one request at a time, bodies of known length.

use std::error::Error;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(super) type SendableError = Box<dyn Error + Send + Sync>;

pub(crate) struct HttpConnection {
    stream: TcpStream,
    /// Received bytes that are not parsed yet.
    buffered: Vec<u8>,
    host: String,
}

impl HttpConnection {
    pub(crate) async fn connect(host: &str) -> Result<Self, SendableError> {
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffered: Vec::with_capacity(64 << 10), host: host.to_owned() })
    }

    /// Posts a body. Returns the response body, or an error with the server's message.
    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> Result<Vec<u8>, SendableError> {
        self.stream.write_all(&post_request(&self.host, path, body)).await?;
        self.read_response().await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Vec<u8>, SendableError> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.host);
        self.stream.write_all(request.as_bytes()).await?;
        self.read_response().await
    }

    async fn read_response(&mut self) -> Result<Vec<u8>, SendableError> {
        loop {
            if let Some(body) = take_response(&mut self.buffered)? {
                return Ok(body);
            }
            if self.stream.read_buf(&mut self.buffered).await? == 0 {
                return Err("the server closed the connection".into());
            }
        }
    }
}

/// Builds a request for a single write, so that a small one is a single packet.
pub(super) fn post_request(host: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Removes the first response from `buffered` and returns its body, or `None` if it is incomplete. An error status
/// becomes an error with the server's message.
pub(super) fn take_response(buffered: &mut Vec<u8>) -> Result<Option<Vec<u8>>, SendableError> {
    let Some(end) = buffered.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else { return Ok(None) };
    let head = String::from_utf8_lossy(&buffered[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.ok_or("a response without content length")?.trim().parse()?;
    if buffered.len() < end + length {
        return Ok(None);
    }
    let rest = buffered.split_off(end + length);
    let body = std::mem::replace(buffered, rest).split_off(end);
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status.starts_with('2') {
        Ok(Some(body))
    } else {
        Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into())
    }
}
