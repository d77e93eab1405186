//! Runs the real binary as the measured server, in a process of its own.

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::http_connection::HttpConnection;
use crate::machine::server_cpu_seconds;

pub(crate) struct MeasuredServer {
    child: Child,
    pub(crate) host: String,
    /// The time from the start until the server was ready.
    pub(crate) startup_time: Duration,
}

impl MeasuredServer {
    /// Starts the binary in this program's folder on a database, and waits until it is ready.
    pub(crate) fn start(runtime: &Runtime, database: &str) -> Result<Self, Box<dyn Error>> {
        let program = std::env::current_exe()?.with_file_name("onceward");
        if !program.exists() {
            return Err(format!(
                "{} is missing; build it with `cargo build --profile dist -p onceward`",
                program.display()
            )
            .into());
        }
        let database = if database.contains("://") { database.to_owned() } else { format!("sqlite:{database}") };
        let began = Instant::now();
        let mut child = Command::new(program)
            .args(["serve", "--db", &database, "--listen", "127.0.0.1:0"])
            .env("ONCEWARD_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let host = loop {
            let mut line = String::new();
            if stdout.read_line(&mut line)? == 0 {
                return Err("the server exited before it printed its address".into());
            }
            if let Some(at) = line.find("http://127.0.0.1:") {
                let host = line[at + "http://".len()..].chars();
                break host
                    .take_while(|character| character.is_ascii_digit() || ".:".contains(*character))
                    .collect::<String>();
            }
        };
        // Drain standard output, so that the server never blocks on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let ready = async {
            let mut wire = HttpConnection::connect(&host).await?;
            wire.get("/readyz").await
        };
        runtime.block_on(ready).map_err(|error| error.to_string())?;
        Ok(Self { child, host, startup_time: began.elapsed() })
    }

    /// Returns the server's processor seconds so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, Box<dyn Error>> {
        server_cpu_seconds(self.child.id())
    }

    /// Returns the server's resident memory in megabytes.
    pub(crate) fn memory_mb(&self) -> Result<u64, Box<dyn Error>> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? >> 10)
    }
}

impl Drop for MeasuredServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
