//! A real server that speaks S3, for tests: `rclone serve s3` on a folder of its own, gone with the process that started it. Each
//! folder in that folder is a bucket, so that a test can also look at what is there, and do harm to it.
//!
//! As for PostgreSQL, a small shell script stands between, which ends the server when its standard input ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whoever has these may do everything there.
pub const KEY: &str = "onceward";
pub const SECRET: &str = "not-so-secret";

/// Nothing is remembered of what the folder holds: tests change it behind the server's back.
const SCRIPT: &str = r#"
rclone=$1 dir=$2 address=$3 key=$4
trap '' INT TERM HUP
export HOME=$dir RCLONE_CONFIG=/dev/null
begin() {
    : >"$dir/log"
    "$rclone" serve s3 --addr "$address" --auth-key "$key" --dir-cache-time 0 --poll-interval 0 --log-file "$dir/log" \
        "$dir/data" >>"$dir/log" 2>&1 &
    pid=$!
    until grep -q 'Starting s3 server on' "$dir/log"; do
        kill -0 $pid 2>/dev/null || { tail -n 5 "$dir/log"; echo failed; break; }
        sleep 0.02
    done
    echo started
}
begin
while read -r word; do
    case $word in
    start) begin ;;
    kill) kill -KILL $pid; wait $pid 2>/dev/null; echo killed ;;
    hold) kill -STOP $pid; echo held ;;
    resume) kill -CONT $pid; echo resumed ;;
    esac
done
kill -KILL $pid 2>/dev/null
wait $pid 2>/dev/null
rm -rf "$dir"
"#;

/// A running server.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    address: String,
    own: Mutex<Own>,
}

#[derive(Debug)]
struct Own {
    script: Child,
    words: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Server {
    pub fn start() -> Self {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("onceward-s3-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("data")).expect("a folder for the server");
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.expect("a free port").to_string();
        let rclone = program().expect("an rclone that serves S3 is installed: `cargo xtask test` sees to it");
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(rclone).arg(&folder).arg(&address).arg(format!("{KEY},{SECRET}"));
        let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let words = script.stdin.take();
        let said = BufReader::new(script.stdout.take().expect("a pipe"));
        let mut own = Own { script, words, said };
        own.hear("started");
        Self { folder, address, own: Mutex::new(own) }
    }

    /// Where it listens: `http://127.0.0.1:…`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The variables under which a program finds it and is let in.
    pub fn settings(&self) -> Vec<(String, String)> {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            set("AWS_ENDPOINT_URL", &self.endpoint()),
            set("AWS_REGION", "us-east-1"),
            set("AWS_ACCESS_KEY_ID", KEY),
            set("AWS_SECRET_ACCESS_KEY", SECRET),
        ]
    }

    /// A new bucket: its URL, and the folder that it is.
    pub fn bucket(&self) -> (String, PathBuf) {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("bucket-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let folder = self.folder.join("data").join(&name);
        std::fs::create_dir(&folder).expect("a folder for the bucket");
        (format!("s3://{name}"), folder)
    }

    /// SIGKILL: nothing is finished, nobody is told.
    pub fn kill(&self) {
        self.tell("kill", "killed");
    }

    /// As it was before, at the same address.
    pub fn start_again(&self) {
        self.tell("start", "started");
    }

    /// It is there, and does not answer.
    pub fn hold(&self) {
        self.tell("hold", "held");
    }

    /// It goes on.
    pub fn resume(&self) {
        self.tell("resume", "resumed");
    }

    fn tell(&self, word: &str, answer: &str) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let words = own.words.as_mut().expect("it is still there");
        writeln!(words, "{word}").and_then(|()| words.flush()).expect("the script listens");
        own.hear(answer);
    }
}

impl Own {
    fn hear(&mut self, expected: &str) {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let read = self.said.read_line(&mut line).expect("the script's words");
            said += &line;
            assert!(read > 0 && line.trim() != "failed", "the server did not say `{expected}`:\n{said}");
            if line.trim() == expected {
                return;
            }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.words.take());
        let _ = self.script.wait();
    }
}

/// Debian's is too old to serve S3. So the gate puts one beside what it builds, in `target`, where this very program stands, too.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let places = own.ancestors().map(Path::to_owned).chain([here]);
    let mut found = places.map(|place| place.join("rclone/bin/rclone"));
    found.find(|program| program.is_file())
}
