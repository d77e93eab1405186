//! Standard error for programs that run for long. Lines go out by a thread of their own: whoever does not read them must stop neither
//! hearts from beating nor requests from being answered. What comes while too many wait is left out, and counted.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use onceward_core::counted;

/// Lines that wait to be read.
const LINES: usize = 10_000;

/// For the last of them to be read.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Between tries to be heard by the thread.
const GLANCE: Duration = Duration::from_millis(5);

static VOICE: OnceLock<SyncSender<Word>> = OnceLock::new();
static LEFT_OUT: AtomicUsize = AtomicUsize::new(0);

enum Word {
    Line(Vec<u8>),
    /// All that came before it is out.
    Mark(SyncSender<()>),
}

/// From here on nothing that is said waits for its readers.
pub(crate) fn start() {
    let (sender, words) = sync_channel(LINES);
    if VOICE.set(sender).is_err() {
        return;
    }
    std::thread::spawn(move || {
        for word in words {
            match LEFT_OUT.swap(0, Ordering::Relaxed) {
                0 => {}
                lines => {
                    let lines = counted(
                        lines,
                        "line is left out: it came faster than lines were read",
                        "lines are left out: they came faster than they were read",
                    );
                    write(format!("{lines}\n").as_bytes());
                }
            }
            match word {
                Word::Line(line) => write(&line),
                // Nobody may wait for it any more.
                Word::Mark(heard) => drop(heard.send(())),
            }
        }
    });
}

/// Whole lines, at once where this has not been started.
pub(crate) fn tell(lines: &[u8]) {
    let Some(voice) = VOICE.get() else { return write(lines) };
    if let Err(TrySendError::Full(_)) = voice.try_send(Word::Line(lines.to_vec())) {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Before the process ends: gives the last lines time to be read, but not for ever.
pub(crate) fn end() {
    let Some(voice) = VOICE.get() else { return };
    let until = Instant::now() + LAST_LINES;
    let (heard, all) = sync_channel(1);
    let mut mark = Word::Mark(heard);
    while let Err(TrySendError::Full(again)) = voice.try_send(mark) {
        if Instant::now() > until {
            return;
        }
        mark = again;
        std::thread::sleep(GLANCE);
    }
    let _ = all.recv_timeout(until.saturating_duration_since(Instant::now()));
}

/// There is nowhere left to say that this failed.
fn write(bytes: &[u8]) {
    let _ = io::stderr().lock().write_all(bytes);
}

/// For the log: each line of it comes in one piece.
pub(crate) struct Voice;

impl Write for Voice {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        tell(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
