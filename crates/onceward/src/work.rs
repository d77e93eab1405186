//! `onceward work`: run a program for each job.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration as Length;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use onceward_core::time::Duration;
use onceward_worker::{CommandEnd, Commands, Complaint, Launcher, ResultKind, Working};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::answer::{Outcome, complain};
use crate::hang_up::hang_up;
use crate::logging::{self, LogFormat};
use crate::remote::Remote;
use crate::supervise::SUPERVISE;

/// Run a program for each job
///
/// The payload comes on its standard input; what it writes to standard output is the result, 1 MB at most: JSON, or else text, or else
/// bytes. In its environment it finds `ONCEWARD_ID`, `ONCEWARD_LIFECYCLE`, `ONCEWARD_OWNER`, `ONCEWARD_EXECUTION`, `ONCEWARD_ATTEMPT`,
/// `ONCEWARD_TOKEN`, `ONCEWARD_FIELDS` (JSON) and `ONCEWARD_URL`.
///
/// Exit code 0 commits the result. 75, or death by a signal, fails retryably. 126 and 127 give the job back and stop the worker. Any
/// other code fails for good. The last line on standard error is the message; `CODE: message` names the error's code.
///
/// The lease is kept while the program runs. It and its children are ended when the lease is lost, the job is to stop, or the worker
/// ends, however it ends; docs/workers.md tells what can escape. SIGTERM or Ctrl-C lets programs that run finish within the grace, and
/// gives their jobs back after it; a second one ends at once.
///
/// Exits with 0 when it was told to end, or has nothing left to do; with 1 if the program cannot be run or the server refuses the
/// worker, or on the second signal; with 2 on misuse, or if with `--until-idle` the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward work execution.job -- wc -w\n  onceward work execution.job --concurrency 4 --timeout 5m -- sh -c 'convert - png:- > out/$ONCEWARD_ID.png'"
)]
pub(crate) struct Work {
    /// Jobs of this lifecycle
    lifecycle: String,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Jobs at the same time
    #[arg(long, default_value = "1", value_name = "N", value_parser = number)]
    concurrency: NonZeroUsize,
    /// What the worker calls itself; the machine's name and the process by default
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A shorter or longer lease than the lifecycle's own
    #[arg(long, value_name = "TIME", value_parser = while_it_lasts)]
    lease: Option<Length>,
    /// A program that runs longer is ended, and its job fails with TIMEOUT, retryably
    #[arg(long, value_name = "TIME", value_parser = while_it_lasts)]
    timeout: Option<Length>,
    /// How long programs may go on when the worker is to end; the last of it, as long as `--kill-after`, is for ending them
    #[arg(long, default_value = "25s", value_name = "TIME", value_parser = length)]
    grace: Length,
    /// Between asking a program to end (SIGTERM) and ending it (SIGKILL)
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = length)]
    kill_after: Length,
    /// How standard output becomes the result
    #[arg(long, default_value = "auto", value_name = "KIND")]
    result: Kind,
    /// End when there is no job left, instead of waiting for more; or when there is no server at first
    #[arg(long)]
    until_idle: bool,
    /// Give programs a payload that is a JSON string as it is, quotes and all, and not its text
    #[arg(long)]
    raw: bool,
    /// Let programs have the worker's key in `ONCEWARD_KEY`
    #[arg(long)]
    pass_key: bool,
    /// How the log is written; for people on a terminal, JSON otherwise. `ONCEWARD_LOG` says how much
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// JSON where it is some, else text, else bytes
    Auto,
    Json,
    Text,
    Bytes,
}

fn length(text: &str) -> Result<Length, String> {
    let wrong = || format!("`{text}` is no length of time: write 500ms, 30s, 5m or 2h");
    let micros = text.parse::<Duration>().map_err(|_| wrong())?.micros();
    u64::try_from(micros).map(Length::from_micros).map_err(|_| wrong())
}

/// In no time at all nobody gets anything done.
fn while_it_lasts(text: &str) -> Result<Length, String> {
    match length(text)? {
        Length::ZERO => Err("it must be longer than nothing".to_owned()),
        length => Ok(length),
    }
}

fn number(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "it is a whole number from 1 on".to_owned())
}

impl Work {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let format = logging::start(self.log_format)?;
        let client = self.remote.client()?;
        // Else every program could read the key in what the kernel tells of our environment.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
        let commands = Commands {
            timeout: self.timeout,
            kill_after: self.kill_after.min(self.grace),
            grace: self.grace,
            result: match self.result {
                Kind::Auto => ResultKind::Auto,
                Kind::Json => ResultKind::Json,
                Kind::Text => ResultKind::Text,
                Kind::Bytes => ResultKind::Bytes,
            },
            raw: self.raw,
            key: self.remote.key().filter(|_| self.pass_key).map(str::to_owned),
            tell: Arc::new(move |said| pass_on(said, format)),
            ..Commands::new(self.command.clone(), Launcher::this_program(&[SUPERVISE]).context("cannot find myself")?)
        };
        let working = Working {
            name: self.name.clone().unwrap_or_else(own_name),
            at_once: self.concurrency.get(),
            lease: self.lease,
            until_idle: self.until_idle,
            ..Working::on(&self.lifecycle)
        };
        // It mostly waits; a second thread keeps hearts beating while the first is busy.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        mention(format, &format!("{} works on {} at {}", working.name, self.lifecycle, client.server()));
        // Who waits for more waits for a server, too. Who is to end when nothing is left would wait in vain for one to say so.
        if self.until_idle
            && let Err(error) = runtime.block_on(client.lifecycles())
        {
            return self.remote.refused(error, false);
        }
        let ended = runtime.block_on(async {
            let shutdown = shutdown(format)?;
            anyhow::Ok(commands.run(&client, working, shutdown).await)
        })?;
        match ended {
            Ok(CommandEnd::Closed) => Ok(Outcome::Done),
            Ok(CommandEnd::CannotRun(why)) => {
                complain(&format!("error: the command cannot be run: {why}\n"));
                Ok(Outcome::Wanting)
            }
            Err(error) => self.remote.refused(error, false),
        }
    }
}

fn own_name() -> String {
    let machine = rustix::system::uname();
    format!("{}:{}", machine.nodename().to_string_lossy(), std::process::id())
}

/// For a program that reads the log it stands in the log.
fn mention(format: LogFormat, text: &str) {
    match format {
        LogFormat::Human => complain(&format!("{text}\n")),
        LogFormat::Json => tracing::info!("{text}"),
    }
}

/// A program's line, in the same form as the log but whatever of that is asked for.
fn pass_on(said: &Complaint<'_>, format: LogFormat) {
    match format {
        LogFormat::Human => complain(&format!("{said}\n")),
        LogFormat::Json => {
            let Complaint { record, token, line } = said;
            let time = jiff::Timestamp::now();
            let said = json!({ "timestamp": time, "level": "INFO", "message": line, "record": record, "token": token, "target": "program" });
            complain(&format!("{said}\n"));
        }
    }
}

/// Comes with the first signal to end, or when the terminal is closed, unless that is not to matter. The second signal ends everything at once: supervisors see to
/// the programs.
fn shutdown(format: LogFormat) -> Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let terminal_closed = hang_up()?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = terminal_closed => {}
        }
        mention(format, "ending: what runs may finish within the grace; a second signal ends at once");
        tokio::spawn(async move {
            // A shell and its terminal may both send a hang-up, which is meant once.
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(Outcome::Wanting as i32);
        });
    })
}
