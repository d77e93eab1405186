//! A program's standard error: passed on line by line, bounded, and its last line kept for the job's message.

use std::fmt;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use uuid::Uuid;

/// A longer line is passed on in its first part.
const LONGEST_LINE: usize = 4 << 10;

/// Of one job; what comes after is read, so that the program is not held up, and left out.
const MOST: usize = 1 << 20;

/// A line of a program's standard error. Written out, it has enough of its job in front to tell one from another.
#[derive(Clone, Copy, Debug)]
pub struct Complaint<'a> {
    pub record: Uuid,
    pub token: u64,
    /// Without anything that a terminal would take for an order: a job's data are mostly a stranger's.
    pub line: &'a str,
}

impl fmt::Display for Complaint<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.record.simple().to_string();
        write!(out, "[{}.{}] {}", &id[24..], self.token, self.line)
    }
}

/// Where lines go.
pub(super) type Tell = Arc<dyn Fn(&Complaint<'_>) + Send + Sync>;

/// Reads to the end. Gives the last line that says something.
pub(super) async fn pass_on(mut from: impl AsyncRead + Unpin, record: Uuid, token: u64, tell: &Tell) -> String {
    let mut lines = Lines { record, token, tell, line: Vec::new(), cut: false, told: 0, last: String::new() };
    let mut buffer = vec![0; 8 << 10];
    // What cannot be read is at its end.
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        lines.take(&buffer[..count]);
    }
    lines.end_of_line();
    lines.last
}

struct Lines<'a> {
    record: Uuid,
    token: u64,
    tell: &'a Tell,
    line: Vec<u8>,
    /// The line is longer than what is kept of it.
    cut: bool,
    told: usize,
    last: String,
}

impl Lines<'_> {
    fn take(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.add(&bytes[..end]);
            self.end_of_line();
            bytes = &bytes[end + 1..];
        }
        self.add(bytes);
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = LONGEST_LINE - self.line.len();
        self.cut |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_of_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        // For people and for JSON: no colours, no bells.
        let line: String = line.chars().filter(|char| *char == '\t' || !char.is_control()).collect();
        let line = line.trim_end();
        if !line.is_empty() {
            if self.told <= MOST {
                self.told += line.len();
                self.pass(&if self.cut { format!("{line} …") } else { line.to_owned() });
                if self.told > MOST {
                    self.pass("… more is left out");
                }
            }
            self.last = line.trim().replace('\t', " ");
        }
        self.line.clear();
        self.cut = false;
    }

    fn pass(&self, line: &str) {
        (self.tell)(&Complaint { record: self.record, token: self.token, line });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    async fn told(bytes: &[u8]) -> (Vec<String>, String) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let tell: Tell = Arc::new(move |said| kept.lock().expect("one at a time").push(said.to_string()));
        let last = pass_on(bytes, Uuid::nil(), 7, &tell).await;
        let lines = lines.lock().expect("one at a time").clone();
        (lines, last)
    }

    #[tokio::test]
    async fn the_last_line_that_says_something_is_the_message() {
        let (lines, last) = told(b"one\ttwo\n\x1b[31mBAD: two\x1b[0m\r\n\n  \n").await;
        assert_eq!(lines, ["[00000000.7] one\ttwo", "[00000000.7] [31mBAD: two[0m"]);
        assert_eq!(last, "[31mBAD: two[0m");
        assert_eq!(told(b"no end").await.1, "no end");
        assert_eq!(told(b"").await, (Vec::new(), String::new()));
        assert_eq!(told(b"\xff\xfe!\n").await.1, "\u{fffd}\u{fffd}!");
    }

    #[tokio::test]
    async fn what_is_passed_on_is_bounded_in_length_and_in_number() {
        let (lines, _) = told(&vec![b'x'; 100_000]).await;
        assert_eq!(lines.len(), 1);
        assert!(lines[0].len() < LONGEST_LINE + 20, "{}", lines[0].len());
        let mut many = b"word ".repeat(100);
        many.push(b'\n');
        many = many.repeat(10_000);
        many.extend(b"FINE: the end\n");
        let (lines, last) = told(&many).await;
        let all: usize = lines.iter().map(String::len).sum();
        assert!(all < MOST + 10 * LONGEST_LINE, "{all}");
        assert_eq!(last, "FINE: the end");
    }
}
