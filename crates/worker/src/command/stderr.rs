//! Forwards a command's standard error line by line with limits, and keeps its last line for the failure message.

use std::fmt;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use uuid::Uuid;

/// Longer lines are truncated.
const MAX_LINE_BYTES: usize = 4 << 10;

/// Limit per job. Later output is read, so that the command does not block, and discarded.
const MAX_FORWARDED_BYTES: usize = 1 << 20;

/// A line of a command's standard error. Its `Display` form begins with the job, to tell jobs apart.
#[derive(Clone, Copy, Debug)]
pub struct StderrLine<'a> {
    pub record: Uuid,
    pub token: u64,
    /// Without control characters, because job data is untrusted and a terminal would interpret them.
    pub line: &'a str,
}

impl fmt::Display for StderrLine<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.record.simple().to_string();
        write!(out, "[{}.{}] {}", &id[24..], self.token, self.line)
    }
}

/// Receives forwarded lines.
pub(super) type StderrSink = Arc<dyn Fn(&StderrLine<'_>) + Send + Sync>;

/// Forwards all lines and returns the last one that is not blank.
pub(super) async fn forward_stderr(
    mut stderr: impl AsyncRead + Unpin,
    record: Uuid,
    token: u64,
    sink: &StderrSink,
) -> String {
    let mut forwarder = StderrForwarder {
        record,
        token,
        sink,
        line: Vec::new(),
        is_truncated: false,
        forwarded_bytes: 0,
        last_line: String::new(),
    };
    let mut buffer = vec![0; 8 << 10];
    // A read error counts as the end.
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        forwarder.push(&buffer[..count]);
    }
    forwarder.finish_line();
    forwarder.last_line
}

struct StderrForwarder<'a> {
    record: Uuid,
    token: u64,
    sink: &'a StderrSink,
    line: Vec<u8>,
    /// Whether the line was longer than the limit.
    is_truncated: bool,
    forwarded_bytes: usize,
    last_line: String,
}

impl StderrForwarder<'_> {
    fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.append(&bytes[..end]);
            self.finish_line();
            bytes = &bytes[end + 1..];
        }
        self.append(bytes);
    }

    fn append(&mut self, bytes: &[u8]) {
        let capacity = MAX_LINE_BYTES - self.line.len();
        self.is_truncated |= bytes.len() > capacity;
        self.line.extend_from_slice(&bytes[..bytes.len().min(capacity)]);
    }

    fn finish_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        // Remove control characters such as colors and bells, for terminals and for JSON.
        let line: String = line.chars().filter(|char| *char == '\t' || !char.is_control()).collect();
        let line = line.trim_end();
        if !line.is_empty() {
            if self.forwarded_bytes <= MAX_FORWARDED_BYTES {
                self.forwarded_bytes += line.len();
                self.emit(&if self.is_truncated { format!("{line} …") } else { line.to_owned() });
                if self.forwarded_bytes > MAX_FORWARDED_BYTES {
                    self.emit("… further output is omitted");
                }
            }
            self.last_line = line.trim().replace('\t', " ");
        }
        self.line.clear();
        self.is_truncated = false;
    }

    fn emit(&self, line: &str) {
        (self.sink)(&StderrLine { record: self.record, token: self.token, line });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    async fn forwarded(bytes: &[u8]) -> (Vec<String>, String) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink_lines = Arc::clone(&lines);
        let sink: StderrSink = Arc::new(move |line| sink_lines.lock().expect("one at a time").push(line.to_string()));
        let last_line = forward_stderr(bytes, Uuid::nil(), 7, &sink).await;
        let lines = lines.lock().expect("one at a time").clone();
        (lines, last_line)
    }

    #[tokio::test]
    async fn last_nonblank_stderr_line_is_returned() {
        let (lines, last) = forwarded(b"one\ttwo\n\x1b[31mBAD: two\x1b[0m\r\n\n  \n").await;
        assert_eq!(lines, ["[00000000.7] one\ttwo", "[00000000.7] [31mBAD: two[0m"]);
        assert_eq!(last, "[31mBAD: two[0m");
        assert_eq!(forwarded(b"no end").await.1, "no end");
        assert_eq!(forwarded(b"").await, (Vec::new(), String::new()));
        assert_eq!(forwarded(b"\xff\xfe!\n").await.1, "\u{fffd}\u{fffd}!");
    }

    #[tokio::test]
    async fn forwarded_stderr_is_bounded_per_line_and_per_job() {
        let (lines, _) = forwarded(&vec![b'x'; 100_000]).await;
        assert_eq!(lines.len(), 1);
        assert!(lines[0].len() < MAX_LINE_BYTES + 20, "{}", lines[0].len());
        let mut many = b"word ".repeat(100);
        many.push(b'\n');
        many = many.repeat(10_000);
        many.extend(b"FINE: the end\n");
        let (lines, last) = forwarded(&many).await;
        let all: usize = lines.iter().map(String::len).sum();
        assert!(all < MAX_FORWARDED_BYTES + 10 * MAX_LINE_BYTES, "{all}");
        assert_eq!(last, "FINE: the end");
    }
}
