//! Messages from the worker to a supervisor, over its standard input: the payload, then the remaining lease and
//! stop requests. The end of the pipe means that the worker has died.

use std::io::{self, Read};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;

const LEASE_TAG: u8 = b'L';
const TERMINATE_TAG: u8 = b'T';
const KILL_TAG: u8 = b'K';

/// The worker's end of the pipe.
#[derive(Debug)]
pub(super) struct ControlPipe(pub(super) ChildStdin);

impl ControlPipe {
    pub(super) async fn send_payload(&mut self, payload: &[u8]) -> io::Result<()> {
        let length = u64::try_from(payload.len()).map_err(io::Error::other)?;
        self.0.write_all(&length.to_le_bytes()).await?;
        self.0.write_all(payload).await?;
        self.0.flush().await
    }

    /// Asks the command to end, and kills it after the grace period.
    pub(super) async fn send_terminate(&mut self, grace: Duration) {
        self.send_message(TERMINATE_TAG, grace).await;
    }

    /// Limits the command's time to the remaining lease, until the next message.
    pub(super) async fn send_lease(&mut self, remaining: Duration) {
        self.send_message(LEASE_TAG, remaining).await;
    }

    async fn send_message(&mut self, tag: u8, duration: Duration) {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let mut message = [tag; 9];
        message[1..].copy_from_slice(&millis.to_le_bytes());
        // Fails only if the supervisor has ended.
        let _ = self.0.write_all(&message).await;
    }

    pub(super) async fn send_kill(&mut self) {
        let _ = self.0.write_all(&[KILL_TAG]).await;
    }
}

/// A message to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlMessage {
    LeaseRemaining(Duration),
    Terminate(Duration),
    /// Also if the pipe ends.
    Kill,
}

pub(super) fn read_payload(pipe: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    pipe.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut payload = Vec::new();
    if pipe.take(length).read_to_end(&mut payload)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(payload)
}

pub(super) fn read_message(pipe: &mut impl Read) -> ControlMessage {
    let mut tag = [0];
    if pipe.read_exact(&mut tag).is_err() {
        return ControlMessage::Kill;
    }
    let mut millis = [0; 8];
    let mut length = || pipe.read_exact(&mut millis).map(|()| Duration::from_millis(u64::from_le_bytes(millis)));
    match tag[0] {
        TERMINATE_TAG => length().map_or(ControlMessage::Kill, ControlMessage::Terminate),
        LEASE_TAG => length().map_or(ControlMessage::Kill, ControlMessage::LeaseRemaining),
        _ => ControlMessage::Kill,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_control_pipe_reads_as_kill() {
        let mut pipe =
            &[3, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c', b'L', 2, 0, 0, 0, 0, 0, 0, 0, b'T', 1, 1, 0, 0, 0, 0, 0, 0][..];
        assert_eq!(read_payload(&mut pipe).expect("three bytes"), b"abc");
        assert_eq!(read_message(&mut pipe), ControlMessage::LeaseRemaining(Duration::from_millis(2)));
        assert_eq!(read_message(&mut pipe), ControlMessage::Terminate(Duration::from_millis(257)));
        assert_eq!(read_message(&mut pipe), ControlMessage::Kill);
        assert!(read_payload(&mut &[9, 0, 0, 0, 0, 0, 0, 0, b'a'][..]).is_err());
        assert_eq!(read_message(&mut &b"T12"[..]), ControlMessage::Kill);
    }
}
