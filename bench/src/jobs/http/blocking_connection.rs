//! A connection that blocks, for what is timed call by call: no runtime of ours stands between the wire and the clock.

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
        // Longer than anybody waits for a job.
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, buffered: Vec::with_capacity(64 << 10), host: host.to_owned() })
    }

    /// Post a body; the body of a good answer, or what the server said instead.
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> Result<Vec<u8>, SendableError> {
        self.stream.write_all(&post_request(&self.host, path, body))?;
        let mut part = [0; 16 << 10];
        loop {
            if let Some(body) = take_response(&mut self.buffered)? {
                return Ok(body);
            }
            match self.stream.read(&mut part)? {
                0 => return Err("the server hung up".into()),
                count => self.buffered.extend_from_slice(&part[..count]),
            }
        }
    }
}
