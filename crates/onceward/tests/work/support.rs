//! Starts servers and workers, and provides named pipes to synchronize with the programs that workers run.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use onceward_testkit::server_process::ServerProcess;
use onceward_worker::{Client, NewRecord, Payload, Record, StreamOptions};
use rustix::process::{Pid, Signal};
use uuid::Uuid;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

/// A process that is killed on drop.
pub(crate) struct ChildGuard(pub(crate) Child);

impl ChildGuard {
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.0), signal).expect("start process");
    }

    /// Waits for this text on standard error, and reads no further.
    pub(crate) fn wait_for_stderr(&mut self, expected: &str) {
        let printed = BufReader::new(self.0.stderr.as_mut().expect("pipe"));
        assert!(printed.lines().map_while(Result::ok).any(|line| line.contains(expected)), "the worker exited");
    }

    /// Waits for the end and returns the exit code.
    pub(crate) fn wait_exit_code(mut self) -> Option<i32> {
        self.0.wait().expect("child").code()
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to a process by its id.
pub(crate) fn signal(process: &str, signal: Signal) {
    let process = process.parse().ok().and_then(Pid::from_raw).expect("a process");
    rustix::process::kill_process(process, signal).expect("start process");
}

/// A server with a database in a temporary folder.
pub(crate) struct WorkerTestServer {
    pub(crate) folder: PathBuf,
    pub(crate) url: String,
    server: Option<ServerProcess>,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) client: Client,
}

impl WorkerTestServer {
    pub(crate) fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("work").join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("lifecycles")).expect("folder");
        std::fs::write(folder.join("lifecycles/job.toml"), include_str!("job.toml")).expect("file");
        let server = start_server(&folder, "127.0.0.1:0");
        let url = server.url();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("one");
        let client = Client::new(&url, None).expect("address");
        Self { folder, url, server: Some(server), runtime, client }
    }

    /// Sends SIGKILL.
    pub(crate) fn kill_server(&mut self) {
        self.server = None;
    }

    /// Restarts the server at the same address.
    pub(crate) fn restart_server(&mut self) {
        let address = self.url.strip_prefix("http://").expect("http").to_owned();
        self.server = Some(start_server(&self.folder, &address));
    }

    pub(crate) fn run_onceward(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(arguments).env("ONCEWARD_URL", &self.url).env_remove("ONCEWARD_KEY").current_dir(&self.folder);
        command.stdin(Stdio::null()).output().expect("the binary runs")
    }

    /// Runs the binary, asserts success and returns its output.
    pub(crate) fn stdout_of_success(&self, arguments: &[&str]) -> String {
        let output = self.run_onceward(arguments);
        let (out, err) = (lossy_utf8(&output.stdout), lossy_utf8(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        out
    }

    /// Starts `watch` and returns its output stream. It ends when the stream is closed.
    pub(crate) fn spawn_watch(&self, arguments: &[&str]) -> (ChildGuard, BufReader<ChildStdout>) {
        let mut command = Command::new(BINARY);
        command.arg("watch").args(arguments).env("ONCEWARD_URL", &self.url);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the binary runs");
        let out = BufReader::new(child.stdout.take().expect("pipe"));
        (ChildGuard(child), out)
    }

    /// Starts a worker that runs a job's payload as a shell script.
    pub(crate) fn spawn_worker(&self, arguments: &[&str]) -> ChildGuard {
        self.spawn_worker_with(arguments, &["sh"], Stdio::null())
    }

    pub(crate) fn spawn_worker_with(&self, arguments: &[&str], command: &[&str], stderr: Stdio) -> ChildGuard {
        // Resets SIGHUP, because CI may run the tests under `nohup`.
        self.spawn_worker_under(&["env", "--default-signal=HUP"], arguments, command, stderr)
    }

    /// Starts a worker through another program, which then executes it.
    pub(crate) fn spawn_worker_under(
        &self,
        launcher: &[&str],
        arguments: &[&str],
        command: &[&str],
        stderr: Stdio,
    ) -> ChildGuard {
        let mut worker = Command::new(launcher[0]);
        worker.args(&launcher[1..]).arg(BINARY).args(["work", "desk.job"]).args(arguments).arg("--").args(command);
        worker.env("ONCEWARD_URL", &self.url).env("ONCEWARD_KEY", "").current_dir(&self.folder);
        ChildGuard(worker.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().expect("the binary runs"))
    }

    /// Creates a job whose payload is a script.
    pub(crate) fn create_job(&self, script: &str) -> Uuid {
        let record = NewRecord { payload: Some(Payload::text(script)), ..NewRecord::default() };
        self.runtime.block_on(self.client.create("desk.job", &record)).expect("a job").id
    }

    /// Creates a job that writes `up` to the first pipe, and ends when the test releases it through the second.
    pub(crate) fn create_gated_job(&self) -> (Uuid, NamedPipe, NamedPipe) {
        let (up, go) = (self.create_pipe("up"), self.create_pipe("go"));
        let id = self.create_job(&format!("exec 4<>{}; echo up >{}; read x <&4; echo fine", go.path(), up.path()));
        (id, up, go)
    }

    pub(crate) fn get(&self, id: Uuid) -> Record {
        self.runtime.block_on(self.client.get(id)).expect("a record")
    }

    pub(crate) fn fire(&self, id: Uuid, event: &str) {
        let call = onceward_worker::EventRequest::new(id, event);
        self.runtime.block_on(self.client.fire(&call)).expect("taken");
    }

    /// Waits until the record is in this state.
    pub(crate) fn wait_for_state(&self, id: Uuid, state: &str) -> Record {
        self.runtime.block_on(async {
            let mut stream =
                self.client.follow(&StreamOptions { after: Some(0), record: Some(id), ..StreamOptions::default() });
            loop {
                let entry = stream.next().await.expect("log entry");
                if entry.state.as_deref() == Some(state) {
                    return self.client.get(id).await.expect("a record");
                }
                // Another final state would let this wait forever.
                let is_over = ["DONE", "FAILED", "CANCELLED"].contains(&entry.state.as_deref().unwrap_or_default());
                assert!(!is_over, "{id} is in {:?} {:?}, expected {state}", entry.state, entry.fields);
            }
        })
    }

    pub(crate) fn effect(&self, id: Uuid) -> serde_json::Value {
        serde_json::json!(self.runtime.block_on(self.client.effect(id)).expect("effect"))
    }

    /// Counts the commits in the job's history.
    pub(crate) fn commit_count(&self, id: Uuid) -> usize {
        let history = self.runtime.block_on(self.client.history(id)).expect("a story");
        history.iter().filter(|entry| entry.event == "commit").count()
    }

    pub(crate) fn create_pipe(&self, name: &str) -> NamedPipe {
        let path = self.folder.join(name);
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success());
        NamedPipe(path)
    }
}

fn start_server(folder: &Path, address: &str) -> ServerProcess {
    let mut command = Command::new(BINARY);
    ServerProcess::start(command.args(["serve", "--listen", address, "--lifecycles", "lifecycles"]).current_dir(folder))
}

/// A named pipe that synchronizes programs and tests.
pub(crate) struct NamedPipe(PathBuf);

impl NamedPipe {
    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }

    /// Blocks until a program opens the pipe for writing.
    pub(crate) fn open_reader(&self) -> PipeReader {
        PipeReader(BufReader::new(File::open(&self.0).expect("pipe")))
    }

    /// Lets `count` programs continue that wait at the pipe.
    pub(crate) fn release(&self, count: usize) {
        let mut pipe = OpenOptions::new().read(true).write(true).open(&self.0).expect("pipe");
        pipe.write_all(&b"\n".repeat(count)).expect("room");
        // An open read and write end keeps the data until a program reads it.
        std::mem::forget(pipe);
    }
}

pub(crate) struct PipeReader(BufReader<File>);

impl PipeReader {
    pub(crate) fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Blocks until every process that had the write end is gone.
    pub(crate) fn read_until_closed(mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).expect("text");
        rest
    }
}

pub(crate) fn lossy_utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
