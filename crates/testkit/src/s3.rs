//! A real S3 server for tests: `rclone serve s3` on a temporary folder, stopped with its process.
//!
//! Each subfolder is a bucket, so tests can inspect and damage stored objects.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::http;
use crate::server_script::{ScriptedServer, new_server_dir};

/// Credentials with full access.
pub const ACCESS_KEY_ID: &str = "onceward";
pub const SECRET_ACCESS_KEY: &str = "not-so-secret";

/// All buckets are created before the server starts, because the server caches its folders.
const MAX_BUCKETS: u64 = 40;

const SERVER_SCRIPT: &str = r#"
rclone=$1 dir=$2 address=$3 key=$4 control=$5
trap '' INT TERM HUP
export HOME=$dir RCLONE_CONFIG=/dev/null
begin() {
    : >"$dir/log"
    "$rclone" serve s3 --addr "$address" --auth-key "$key" --rc --rc-addr "$control" --rc-no-auth --log-file "$dir/log" \
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
    hold)
        kill -STOP $pid
        # The signal goes to one thread, and until that has its turn the others go on.
        while grep -L '^State:.T' /proc/$pid/task/*/status | grep -q .; do sleep 0.01; done
        echo held
        ;;
    resume) kill -CONT $pid; echo resumed ;;
    esac
done
kill -KILL $pid 2>/dev/null
wait $pid 2>/dev/null
rm -rf "$dir"
"#;

#[derive(Debug)]
pub struct S3Server {
    folder: PathBuf,
    address: String,
    control_address: String,
    /// Number of buckets handed out.
    next_bucket: AtomicU64,
    script: ScriptedServer,
}

impl S3Server {
    pub fn start() -> Self {
        let folder = new_server_dir("s3");
        for number in 0..MAX_BUCKETS {
            std::fs::create_dir_all(folder.join(format!("data/bucket-{number}"))).expect("a folder for a bucket");
        }
        let free = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let [address, control] = free.map(|socket| socket.local_addr().expect("the server's address").to_string());
        let rclone = find_rclone().expect("rclone with S3 is installed; `cargo xtask test` installs it");
        let mut command = Command::new("sh");
        command
            .args(["-c", SERVER_SCRIPT, "sh"])
            .arg(rclone)
            .arg(&folder)
            .arg(&address)
            .arg(format!("{ACCESS_KEY_ID},{SECRET_ACCESS_KEY}"));
        let script = ScriptedServer::start(command.arg(&control));
        Self { folder, address, control_address: control, next_bucket: AtomicU64::new(0), script }
    }

    /// Returns the base URL: `http://127.0.0.1:…`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the environment variables with endpoint and credentials.
    pub fn env_vars(&self) -> Vec<(String, String)> {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            set("AWS_ENDPOINT_URL", &self.endpoint()),
            set("AWS_REGION", "us-east-1"),
            set("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID),
            set("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY),
        ]
    }

    /// Returns an unused bucket: its URL and its folder.
    pub fn new_bucket(&self) -> (String, PathBuf) {
        let number = self.next_bucket.fetch_add(1, Ordering::Relaxed);
        assert!(number < MAX_BUCKETS, "a bucket is left");
        let name = format!("bucket-{number}");
        (format!("s3://{name}"), self.folder.join("data").join(name))
    }

    /// Clears the server's cache of a bucket. Call it after changing the bucket's folder directly.
    pub fn invalidate_cache(&self, url: &str) {
        let bucket = url.trim_start_matches("s3://").split('/').next().unwrap_or_default();
        let body = format!(r#"{{"dir":"{bucket}"}}"#);
        let forgot = http::send_request(&*self.control_address, "POST", "/vfs/forget", &[], Some(body.as_bytes()));
        assert_eq!(forgot.status, 200, "{}", forgot.text());
    }

    /// Sends SIGKILL to the server.
    pub fn kill(&self) {
        self.script.send_command("kill", "killed");
    }

    /// Restarts the server at the same address.
    pub fn restart(&self) {
        self.script.send_command("start", "started");
    }

    /// Suspends the server, so that it does not reply.
    pub fn pause(&self) {
        self.script.send_command("hold", "held");
    }

    pub fn resume(&self) {
        self.script.send_command("resume", "resumed");
    }
}

/// Finds rclone. Debian's version cannot serve S3, so the gate installs one in `target`, where this program also is.
fn find_rclone() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let search_dirs = own.ancestors().map(Path::to_owned).chain([here]);
    let mut found = search_dirs.map(|place| place.join("rclone/bin/rclone"));
    found.find(|program| program.is_file())
}
