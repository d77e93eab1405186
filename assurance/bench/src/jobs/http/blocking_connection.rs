//! A blocking HTTP connection for latency measurements, so that no async runtime adds to the measured time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::http_connection::{SendableError, post_request, take_response};

pub(crate) struct BlockingHttpConnection {
    stream: TcpStream,
    buffered: Vec<u8>,
    host: String,
}

impl BlockingHttpConnection {
    pub(crate) fn connect(host: &str) -> Result<Self, SendableError> {
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        // Longer than any lease call waits for a job.
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, buffered: Vec::with_capacity(64 << 10), host: host.to_owned() })
    }

    /// Posts a body. Returns the response body, or an error with the server's message.
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> Result<Vec<u8>, SendableError> {
        self.stream.write_all(&post_request(&self.host, path, body))?;
        let mut part = [0; 16 << 10];
        loop {
            if let Some(body) = take_response(&mut self.buffered)? {
                return Ok(body);
            }
            match self.stream.read(&mut part)? {
                0 => return Err("the server closed the connection".into()),
                count => self.buffered.extend_from_slice(&part[..count]),
            }
        }
    }
}
