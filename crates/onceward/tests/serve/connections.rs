//! Connections while file handles or a peer's machine fail.

use std::net::TcpStream;
use std::process::Command;

use onceward_testkit::TempDir;
use onceward_testkit::http::{self, TEST_TIMEOUT};
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};

use crate::server::{BINARY, start_server};

/// Idle connections take all file handles. The next ones get an answer, not silence.
#[test]
fn server_without_file_handles_answers_connections() {
    let folder = TempDir::new();
    let usual = server_process::serve_command(BINARY, &DatabaseKind::Sqlite.new_url(&folder));
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(usual.get_program()).args(usual.get_args());
    let server = ServerProcess::start(command.args(["--address-share", "100"])).with_temp_dir(folder);
    let idle: Vec<TcpStream> = (0..60).map(|_| server.connect()).collect();
    for _ in 0..3 {
        server.get("/v1/records").assert_problem(503, "too_many_connections");
        assert_eq!(server.get("/livez").status, 200);
    }
    drop(idle);
    let created =
        || http::send_request(&*server.address, "POST", "/v1/lifecycles/execution.job/records", &[], Some(b"{}"));
    let began = std::time::Instant::now();
    while created().status != 201 {
        assert!(began.elapsed() < TEST_TIMEOUT, "the handles are free again");
    }
}

/// The system ends connections to machines that are gone. Long polls and streams would wait for them.
#[test]
fn accepted_connections_have_keepalive() {
    let server = start_server(DatabaseKind::Sqlite);
    let client = server.connect();
    let port = |address: std::net::SocketAddr| format!("{:04X}", address.port());
    let (local, remote) =
        (port(client.peer_addr().expect("an address")), port(client.local_addr().expect("an address")));
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("the system's sockets");
    let is_servers = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        let mut ends_with = |port: &str| fields.next().is_some_and(|address| address.ends_with(&format!(":{port}")));
        ends_with(&local) && ends_with(&remote)
    };
    let line = sockets.lines().find(is_servers).expect("the accepted socket");
    let timer = line.split_whitespace().nth(5).expect("the timer");
    // 2 is the keepalive timer, in hundredths of a second.
    let left = timer.strip_prefix("02:").map(|left| u64::from_str_radix(left, 16).expect("a number"));
    assert!(left.is_some_and(|left| left <= 6_000), "{line}");
}
