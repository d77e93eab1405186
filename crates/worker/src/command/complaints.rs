//! A program's standard error: passed on line by line, bounded, and its last line kept for the job's message.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// A longer line is passed on in its first part.
const LONGEST_LINE: usize = 4 << 10;

/// Of one job; what comes after is read, so that the program is not held up, and left out.
const MOST: usize = 1 << 20;

/// Where lines go.
pub(super) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Reads to the end. Gives the last line that says something.
pub(super) async fn pass_on(mut from: impl AsyncRead + Unpin, prefix: String, tell: Tell) -> String {
    let mut lines = Lines { prefix: &prefix, tell: &tell, line: Vec::new(), cut: false, told: 0, last: String::new() };
    let mut buffer = vec![0; 8 << 10];
    // What cannot be read is at its end.
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        lines.take(&buffer[..count]);
    }
    lines.end_of_line();
    lines.last
}

struct Lines<'a> {
    prefix: &'a str,
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
        let line = line.trim_end();
        if !line.is_empty() {
            if self.told <= MOST {
                self.told += line.len();
                let more = if self.cut { " …" } else { "" };
                (self.tell)(&format!("{}{line}{more}", self.prefix));
                if self.told > MOST {
                    (self.tell)(&format!("{}… more is left out", self.prefix));
                }
            }
            // A message is for people and for JSON: no colours, no bells.
            self.last = line.trim().chars().filter(|char| !char.is_control()).collect();
        }
        self.line.clear();
        self.cut = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    async fn told(bytes: &[u8]) -> (Vec<String>, String) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let tell: Tell = Arc::new(move |line| kept.lock().expect("one at a time").push(line.to_owned()));
        let last = pass_on(bytes, "> ".to_owned(), tell).await;
        let lines = lines.lock().expect("one at a time").clone();
        (lines, last)
    }

    #[tokio::test]
    async fn the_last_line_that_says_something_is_the_message() {
        let (lines, last) = told(b"one\n\x1b[31mBAD: two\x1b[0m\r\n\n  \n").await;
        assert_eq!(lines, ["> one", "> \u{1b}[31mBAD: two\u{1b}[0m"]);
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
