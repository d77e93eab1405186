//! Writes standard error from a thread of its own, so that a reader that stalls blocks neither heartbeats nor replies.
//! If the queue is full, lines are dropped and counted.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use onceward_core::count_noun;

/// Bounds the memory while the reader is stalled.
const MAX_QUEUED_LINES: usize = 10_000;

/// Bounds the end of the process while the reader of standard error is stalled.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// A full queue is tried again after this delay. Short against [`FINAL_FLUSH_TIMEOUT`].
const SEND_RETRY_INTERVAL: Duration = Duration::from_millis(5);

static LINE_SENDER: OnceLock<SyncSender<StderrMessage>> = OnceLock::new();
static DROPPED_LINES: AtomicUsize = AtomicUsize::new(0);

enum StderrMessage {
    Line(Vec<u8>),
    /// Acknowledged once all earlier lines are written.
    Flush(SyncSender<()>),
}

/// Starts the thread. From then on writers never block.
pub(crate) fn start() {
    let (sender, messages) = sync_channel(MAX_QUEUED_LINES);
    if LINE_SENDER.set(sender).is_err() {
        return;
    }
    std::thread::spawn(move || {
        for message in messages {
            match DROPPED_LINES.swap(0, Ordering::Relaxed) {
                0 => {}
                lines => {
                    let lines = count_noun(
                        lines,
                        "line was dropped, because standard error was not read fast enough",
                        "lines were dropped, because standard error was not read fast enough",
                    );
                    write_now(format!("{lines}\n").as_bytes());
                }
            }
            match message {
                StderrMessage::Line(line) => write_now(&line),
                // The flushing thread may have timed out.
                StderrMessage::Flush(flushed) => drop(flushed.send(())),
            }
        }
    });
}

/// Queues whole lines, or writes them directly if the thread was not started.
pub(crate) fn write_lines(lines: &[u8]) {
    let Some(sender) = LINE_SENDER.get() else { return write_now(lines) };
    if let Err(TrySendError::Full(_)) = sender.try_send(StderrMessage::Line(lines.to_vec())) {
        DROPPED_LINES.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits for queued lines to be written, up to [`FINAL_FLUSH_TIMEOUT`].
pub(crate) fn flush() {
    let Some(sender) = LINE_SENDER.get() else { return };
    let deadline = Instant::now() + FINAL_FLUSH_TIMEOUT;
    let (flushed_sender, flushed) = sync_channel(1);
    let mut message = StderrMessage::Flush(flushed_sender);
    while let Err(TrySendError::Full(unsent)) = sender.try_send(message) {
        if Instant::now() > deadline {
            return;
        }
        message = unsent;
        std::thread::sleep(SEND_RETRY_INTERVAL);
    }
    let _ = flushed.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

/// Ignores errors, because they could be reported nowhere else.
fn write_now(bytes: &[u8]) {
    let _ = io::stderr().lock().write_all(bytes);
}

/// Lets the log write its lines, each in one piece.
pub(crate) struct StderrWriter;

impl Write for StderrWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_lines(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
