//! What the worker tells a supervisor, over its standard input: first the payload, then how long the lease lasts, and when to stop.
//! That the line ends means that the worker is gone, whatever became of it.

use std::io::{self, Read};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;

const LEASED: u8 = b'L';
const TERMINATE: u8 = b'T';
const KILL: u8 = b'K';

/// The worker's end.
#[derive(Debug)]
pub(super) struct Lifeline(pub(super) ChildStdin);

impl Lifeline {
    pub(super) async fn send_payload(&mut self, payload: &[u8]) -> io::Result<()> {
        let length = u64::try_from(payload.len()).map_err(io::Error::other)?;
        self.0.write_all(&length.to_le_bytes()).await?;
        self.0.write_all(payload).await?;
        self.0.flush().await
    }

    /// Ask the program to end, and end it after the grace.
    pub(super) async fn terminate(&mut self, grace: Duration) {
        self.say(TERMINATE, grace).await;
    }

    /// The program may run for so long from now on, unless more is said.
    pub(super) async fn leased(&mut self, rest: Duration) {
        self.say(LEASED, rest).await;
    }

    async fn say(&mut self, what: u8, length: Duration) {
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let mut word = [what; 9];
        word[1..].copy_from_slice(&millis.to_le_bytes());
        // A supervisor that does not hear it has ended.
        let _ = self.0.write_all(&word).await;
    }

    pub(super) async fn kill(&mut self) {
        let _ = self.0.write_all(&[KILL]).await;
    }
}

/// What the supervisor hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Leased(Duration),
    Terminate(Duration),
    /// Or the worker is gone.
    Kill,
}

pub(super) fn payload(line: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    line.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut payload = Vec::new();
    if line.take(length).read_to_end(&mut payload)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(payload)
}

pub(super) fn word(line: &mut impl Read) -> Word {
    let mut first = [0];
    if line.read_exact(&mut first).is_err() {
        return Word::Kill;
    }
    let mut millis = [0; 8];
    let mut length = || line.read_exact(&mut millis).map(|()| Duration::from_millis(u64::from_le_bytes(millis)));
    match first[0] {
        TERMINATE => length().map_or(Word::Kill, Word::Terminate),
        LEASED => length().map_or(Word::Kill, Word::Leased),
        _ => Word::Kill,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_ends_is_a_word_too() {
        let mut line =
            &[3, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c', b'L', 2, 0, 0, 0, 0, 0, 0, 0, b'T', 1, 1, 0, 0, 0, 0, 0, 0][..];
        assert_eq!(payload(&mut line).expect("three bytes"), b"abc");
        assert_eq!(word(&mut line), Word::Leased(Duration::from_millis(2)));
        assert_eq!(word(&mut line), Word::Terminate(Duration::from_millis(257)));
        assert_eq!(word(&mut line), Word::Kill);
        assert!(payload(&mut &[9, 0, 0, 0, 0, 0, 0, 0, b'a'][..]).is_err());
        assert_eq!(word(&mut &b"T12"[..]), Word::Kill);
    }
}
