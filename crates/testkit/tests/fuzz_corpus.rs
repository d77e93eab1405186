//! Replays the fuzz corpus and small mutations of it in a child process. A crash, a stack overflow, a hang or excessive
//! memory fails the test and names the input. `cargo xtask fuzz` searches for new inputs.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use onceward_testkit::fuzz::FuzzTarget;

/// Generous, because the build is unoptimized and the machine may be busy. This does not measure speed.
const INPUT_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum address space of the child process.
const MAX_MEMORY_KB: u64 = 1024 * 1024;

fn replay_corpus(target: FuzzTarget, mutations: u32) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assurance/fuzz/corpus").join(target.name());
    let program = env!("CARGO_BIN_EXE_fuzz_replay");
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -v {MAX_MEMORY_KB} 2>/dev/null; exec \"$@\""))
        .args(["sh", program, target.name()])
        .arg(&corpus)
        .args(["--mutations", &mutations.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    let (lines, stdout) = (mpsc::channel(), child.stdout.take().expect("piped"));
    let (sender, receiver) = lines;
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    // Read concurrently: a full pipe would block the child.
    let mut stderr = child.stderr.take().expect("piped");
    let stderr_thread = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let (mut last_line, mut inputs) = (String::from("nothing yet"), 0);
    loop {
        match receiver.recv_timeout(INPUT_TIMEOUT) {
            Ok(line) => (last_line, inputs) = (line, inputs + 1),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                panic!("hangs: fuzz_replay {last_line}");
            }
        }
    }
    let status = child.wait().expect("the child process");
    let stderr_text = stderr_thread.join().unwrap_or_default();
    assert!(status.success(), "{status} at: fuzz_replay {last_line}\n{stderr_text}");
    assert!(inputs > 10, "the corpus of {} has too few inputs", target.name());
}

#[test]
fn lifecycle_file_corpus_replays_without_crash() {
    replay_corpus(FuzzTarget::LifecycleFile, 20);
}

#[test]
fn expression_corpus_replays_without_crash() {
    replay_corpus(FuzzTarget::Expression, 40);
}

#[test]
fn operation_corpus_replays_without_crash() {
    replay_corpus(FuzzTarget::Decide, 25);
}
