//! What a user says of the programs to run, and the worker that runs them.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::client::Client;
use crate::command::complaints::{Complaint, Tell};
use crate::command::orphans;
use crate::command::running;
use crate::command::verdict::{self, ResultKind, Verdict};
use crate::error::ClientError;
use crate::work::{Failure, Run, Working};

/// How this very program is started anew, in another part: as the supervisor it must call [`supervise`](crate::supervise), and as
/// what becomes the program [`execute`](crate::execute).
#[derive(Clone, Debug)]
pub struct Launcher {
    pub program: PathBuf,
    /// What it is called in lists of processes.
    pub name: Option<OsString>,
    /// Which part it has.
    pub arguments: Vec<OsString>,
}

impl Launcher {
    /// This program, with these arguments.
    pub fn this_program(arguments: &[&str]) -> std::io::Result<Self> {
        let program = this_program()?;
        let name = std::env::args_os().next();
        Ok(Self { program, name, arguments: arguments.iter().map(Into::into).collect() })
    }
}

/// Also when its file has been replaced by a newer one meanwhile.
fn this_program() -> std::io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// Which program to run for each job, and how.
#[derive(Clone)]
pub struct Commands {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    pub supervisor: Launcher,
    /// A program that runs longer is stopped, and its job fails retryably.
    pub timeout: Option<Duration>,
    /// Between asking a program to end and ending it.
    pub kill_after: Duration,
    /// How long programs may go on when the worker is to end.
    pub grace: Duration,
    pub result: ResultKind,
    /// Whether programs get a payload that is a JSON string as it is, quotes and all; else they get its text.
    pub raw: bool,
    /// A key that programs get in their environment; they get none otherwise.
    pub key: Option<String>,
    /// Where the lines go that programs write to standard error.
    pub tell: Arc<dyn Fn(&Complaint<'_>) + Send + Sync>,
}

impl fmt::Debug for Commands {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Commands").field("command", &self.command).finish_non_exhaustive()
    }
}

/// How a worker that runs programs came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// It was told to, or there was nothing left to do.
    Closed,
    /// The program cannot be run here at all.
    CannotRun(String),
}

impl Commands {
    pub fn new(command: Vec<OsString>, supervisor: Launcher) -> Self {
        let tell: Tell = Arc::new(|said| tracing::info!("{said}"));
        Self {
            command,
            supervisor,
            timeout: None,
            kill_after: Duration::from_secs(5),
            grace: Duration::from_secs(30),
            result: ResultKind::Auto,
            raw: false,
            key: None,
            tell,
        }
    }

    /// Run the program for each job until `shutdown` comes, and let what then runs finish within the grace. From here on orphans of
    /// this process's children become its own children (on Linux), so that what a killed supervisor left can be ended.
    pub async fn run(
        self,
        client: &Client,
        working: Working,
        shutdown: impl Future<Output = ()>,
    ) -> Result<CommandEnd, ClientError> {
        orphans::adopt();
        let grace = self.grace;
        let (cannot, mut told) = watch::channel(None::<String>);
        let (commands, url) = (Arc::new(self), client.server());
        let run: Run = Arc::new(move |job| {
            let (commands, url, cannot) = (Arc::clone(&commands), url.clone(), cannot.clone());
            Box::pin(async move {
                match running::run(&commands, &url, &job).await {
                    Verdict::Done(output) => verdict::result(output, commands.result),
                    Verdict::Failed(failure) => Err(failure),
                    Verdict::CannotRun(why) => {
                        cannot.send_replace(Some(why));
                        Err(Failure::yielded())
                    }
                }
            })
        });
        // A moment more than programs get: theirs ends before they are dropped.
        let working = Working { grace: grace + Duration::from_secs(1), ..working };
        let worker = client.start(working, run);
        tokio::select! {
            ended = worker.ended() => ended?,
            () = shutdown => worker.close().await?,
            () = is_told(&mut told) => worker.close().await?,
        }
        let why = told.borrow().clone();
        Ok(why.map_or(CommandEnd::Closed, CommandEnd::CannotRun))
    }
}

async fn is_told(told: &mut watch::Receiver<Option<String>>) {
    if told.wait_for(Option::is_some).await.is_err() {
        // Nobody is left who could say so.
        std::future::pending::<()>().await;
    }
}
