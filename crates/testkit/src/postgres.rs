//! A real PostgreSQL server for tests, in a folder of its own, reached through a socket, and stopped with its process.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::server_script::{ScriptedServer, new_server_dir};

/// Holds the URL, without a database, of a server that is already running. The gate starts one for all tests.
const SHARED_SERVER_ENV_VAR: &str = "ONCEWARD_POSTGRES";

/// Script that runs the server. The server syncs to disk before it replies, as it does for users.
///
/// A stopping server accepts connections until its processes have ended. PostgreSQL 15 then waits for their
/// authentication for up to a minute (`authentication_timeout`). A test may hold back the authentication until the
/// server has stopped. The script therefore kills processes that do not end soon.
const SERVER_SCRIPT: &str = r#"
bin=$1 dir=$2
shift 2
trap '' INT TERM HUP PIPE
begin() {
    "$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c max_connections=300 -c fsync=on \
        -c full_page_writes=on -c synchronous_commit=on -c shared_buffers=64MB -c max_wal_size=256MB "$@" >>"$dir/log" 2>&1 &
    pid=$!
    until "$bin/pg_isready" -q -h "$dir"; do
        kill -0 $pid 2>/dev/null || { tail -n 5 "$dir/log"; echo failed; break; }
        sleep 0.05
    done
    echo started
}
# A signal is minded when its process has its turn, and not before.
halt() {
    kill -STOP "$@"
    for one in "$@"; do
        while grep -q '^State:.[RSD]' /proc/$one/status; do sleep 0.01; done
    done
} 2>/dev/null
end() {
    [ -n "$pid" ] || return
    kill -QUIT $pid
    while sleep 0.05 && kill -0 $pid; do
        kill -KILL $(cat /proc/$pid/task/$pid/children)
    done 2>/dev/null
    wait $pid 2>/dev/null
    pid=
}
"$bin/initdb" -D "$dir/data" -U onceward -A trust -E UTF8 --locale=C --no-sync >"$dir/log" 2>&1 || { cat "$dir/log"; echo failed; }
begin "$@"
while read -r word; do
    case $word in
    start) begin "$@" ;;
    stop) end; echo stopped ;;
    freeze)
        # First the process that accepts connections, so that it starts no child that stays unsuspended.
        halt $pid
        halt $(cat /proc/$pid/task/$pid/children)
        echo frozen
        ;;
    thaw) kill -CONT $pid $(cat /proc/$pid/task/$pid/children); echo thawed ;;
    esac
done
kill -CONT $pid $(cat /proc/$pid/task/$pid/children 2>/dev/null) 2>/dev/null
end
rm -rf "$dir"
"#;

#[derive(Debug)]
pub struct PostgresServer {
    /// Without a database: `postgres://onceward@…`.
    url: String,
    script: Option<ScriptedServer>,
}

impl PostgresServer {
    /// Returns the server that all tests of this process share, each with its own databases.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<PostgresServer> = OnceLock::new();
        SERVER.get_or_init(|| Self::from_env().unwrap_or_else(Self::start))
    }

    /// Returns the server that the environment names, if any.
    pub fn from_env() -> Option<Self> {
        std::env::var(SHARED_SERVER_ENV_VAR).ok().map(|url| Self { url, script: None })
    }

    /// Starts a server of the test's own, which the test may stop.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Like [`Self::start`], but with settings such as `shared_buffers=1GB`.
    pub fn start_with(settings: &[&str]) -> Self {
        let folder = new_server_dir("pg");
        let settings: Vec<String> = settings.iter().map(|setting| format!("-c{setting}")).collect();
        let script = start_script(&folder, None, &settings.iter().map(String::as_str).collect::<Vec<_>>());
        let host = folder.to_string_lossy().replace('/', "%2F");
        Self { url: format!("postgres://onceward@{host}"), script: Some(script) }
    }

    /// Starts a server that also listens on `localhost` with TLS. Certificate and key are PEM. The URL uses
    /// `localhost`.
    pub fn start_with_tls(certificate: &str, key: &str) -> Self {
        let folder = new_server_dir("pg");
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).expect("a file for the server");
            // The server rejects a key that other users can read.
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
                .expect("permissions of the key file");
            path.display().to_string()
        };
        let (certificate, key) = (write("certificate.pem", certificate), write("key.pem", key));
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.expect("a free port").port().to_string();
        let script = start_script(
            &folder,
            Some(&port),
            &[
                "-clisten_addresses=localhost",
                "-cssl=on",
                &format!("-cssl_cert_file={certificate}"),
                &format!("-cssl_key_file={key}"),
            ],
        );
        Self { url: format!("postgres://onceward@localhost:{port}"), script: Some(script) }
    }

    /// Returns the URL under which other processes may create databases.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn socket_dir(&self) -> PathBuf {
        self.url.split('@').nth(1).expect("a host").replace("%2F", "/").into()
    }

    /// Creates a database and returns its URL.
    pub fn create_database(&self) -> String {
        static NEXT_DATABASE_NUMBER: AtomicU64 = AtomicU64::new(0);
        // Process ids repeat, and a server may outlive many processes.
        let random = RandomState::new().build_hasher().finish();
        let name = format!(
            "test_{}_{}_{random:016x}",
            std::process::id(),
            NEXT_DATABASE_NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        psql(&format!("{}/postgres", self.url), &format!("CREATE DATABASE {name}"));
        format!("{}/{name}", self.url)
    }

    /// Stops the server as a power failure would: it finishes nothing and notifies no client.
    pub fn stop_immediately(&self) {
        self.send_command("stop", "stopped");
    }

    pub fn restart(&self) {
        self.send_command("start", "started");
    }

    /// Suspends the server. Connections stay open, but get no reply.
    pub fn freeze(&self) {
        self.send_command("freeze", "frozen");
    }

    pub fn thaw(&self) {
        self.send_command("thaw", "thawed");
    }

    fn send_command(&self, command: &str, answer: &str) {
        self.script.as_ref().expect("a server that the test started").send_command(command, answer);
    }
}

fn start_script(folder: &Path, port: Option<&str>, settings: &[&str]) -> ScriptedServer {
    let binaries = find_binaries().expect("PostgreSQL is installed; `cargo xtask test` installs it");
    let mut command = unprivileged_command(folder);
    command.args(["sh", "-c", SERVER_SCRIPT, "sh"]).arg(binaries).arg(folder).args(settings).current_dir("/");
    // The server and its client programs read it.
    command.envs(port.map(|port| ("PGPORT", port)));
    ScriptedServer::start(&mut command)
}

/// Runs SQL through `psql`, as a user would, and returns the bare output.
pub fn psql(url: &str, sql: &str) -> String {
    let program = find_binaries().map(|folder| folder.join("psql")).filter(|path| path.exists());
    let mut command = Command::new(program.unwrap_or_else(|| "psql".into()));
    command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1", "-c", sql, url]);
    let output = command.output().expect("psql starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sql}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns the folder of the server's programs, of the newest version if there are several.
pub fn find_binaries() -> Option<PathBuf> {
    let has = |folder: &Path| ["postgres", "initdb", "pg_isready"].iter().all(|program| folder.join(program).exists());
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_unstable();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).collect::<Vec<_>>();
    versions.into_iter().rev().map(|(_, folder)| folder).chain(on_path).find(|folder| has(folder))
}

/// Returns a command that does not run as root, which PostgreSQL rejects. As root, it switches to a user that owns only
/// the folder.
fn unprivileged_command(folder: &Path) -> Command {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        let mut command = Command::new("env");
        command.arg("--");
        return command;
    }
    let is_there = |user: &&str| Command::new("id").arg(user).output().is_ok_and(|output| output.status.success());
    let user = ["postgres", "daemon"].into_iter().find(is_there).unwrap_or("daemon");
    let owned = Command::new("chown").arg("-R").arg(user).arg(folder).status();
    assert!(owned.is_ok_and(|status| status.success()), "chown to {user} succeeds");
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), &format!("--regid={}", primary_group(user)), "--clear-groups", "--"]);
    command
}

fn primary_group(user: &str) -> String {
    let output = Command::new("id").args(["-g", user]).output().expect("id starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
