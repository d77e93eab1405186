//! Runs this test binary as a child process that can be killed or measured.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use onceward_engine::ObjectStorage;

use crate::support::block_on;
use crate::test_storage::TestStorage;

const STORAGE_URL_VARIABLE: &str = "ONCEWARD_OBJECTS_AGAIN";

/// Runs the test in the child process. Without the variable it does nothing.
#[allow(clippy::needless_pass_by_value, reason = "callers pass closures")]
pub(crate) fn run_in_child(test: impl AsyncFn(&ObjectStorage)) {
    let Ok(url) = std::env::var(STORAGE_URL_VARIABLE) else { return };
    block_on(async { test(&ObjectStorage::open(&url).await.expect("object storage opens")).await });
}

pub(crate) struct ChildTest {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl ChildTest {
    /// Starts one test by name on a storage.
    pub(crate) fn start(test: &str, storage: &TestStorage<'_>) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("the path of the test binary"))
            .args(["--exact", test, "--nocapture"])
            .env(STORAGE_URL_VARIABLE, &storage.url)
            .envs(storage.settings.iter().cloned())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child process starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, out }
    }

    pub(crate) fn wait_for_lines(&mut self, lines: usize) {
        for _ in 0..lines {
            self.read_line_after(&["written", "finished"]);
        }
    }

    /// Returns the rest of the next line that begins with one of these words.
    pub(crate) fn read_line_after(&mut self, prefixes: &[&str]) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.out.read_line(&mut line).expect("text") > 0,
                "the process ended before it printed {prefixes:?}"
            );
            if let Some(rest) = prefixes.iter().find_map(|prefix| line.strip_prefix(prefix)) {
                return rest.trim().to_owned();
            }
        }
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("SIGKILL");
        let status = self.child.wait().expect("the process ended");
        assert!(!status.success(), "the process was not killed");
    }

    pub(crate) fn wait_for_success(mut self) {
        assert!(self.child.wait().expect("the process ended").success());
    }
}
