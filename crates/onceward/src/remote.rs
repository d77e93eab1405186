//! Calls a server for a command and reports the result.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use onceward_worker::{Client, ClientError, Problem, RetryPolicy};
use serde::Serialize;
use serde_json::json;

use crate::output::{CommandStatus, print_stderr, print_stdout};

/// Covers a server's restart. Kept short because a person waits at the terminal.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// A person notices a wait of this length.
const RETRY_NOTICE_DELAY: Duration = Duration::from_millis(500);

/// The address that `onceward serve` listens on by default.
pub(crate) const DEFAULT_SERVER_URL: &str = "http://127.0.0.1:7171";

/// Arguments of every command that calls a server.
#[derive(Args)]
pub(crate) struct ServerArgs {
    #[arg(
        long,
        env = "ONCEWARD_URL",
        value_name = "URL",
        help = "Address of the server [default: http://127.0.0.1:7171]"
    )]
    server: Option<String>,
    /// API key. Prefer the environment variable: other users of the machine can read arguments
    #[arg(long, env = "ONCEWARD_KEY", hide_env_values = true, value_name = "KEY")]
    key: Option<String>,
    /// File with additional root certificates (PEM) for https
    #[arg(long, env = "ONCEWARD_CA", value_name = "FILE")]
    ca: Option<OsString>,
}

impl ServerArgs {
    /// Creates a client that prints a notice if the server is unreachable.
    pub(crate) fn client(&self) -> Result<Client> {
        let notice = Once::new();
        Ok(self.worker_client()?.with_retry_observer(move |error, elapsed| {
            if elapsed >= RETRY_NOTICE_DELAY && matches!(error, ClientError::Unreachable { .. }) {
                notice.call_once(|| {
                    print_stderr(&format!("{error}; retrying for up to {} s\n", RETRY_TIMEOUT.as_secs()));
                });
            }
        }))
    }

    /// Creates a client that prints nothing: a worker logs its retries.
    pub(crate) fn worker_client(&self) -> Result<Client> {
        let url = self.named_server().unwrap_or(DEFAULT_SERVER_URL);
        // An empty `ONCEWARD_CA` counts as unset.
        let ca_file = self.ca.as_deref().filter(|file| !file.is_empty()).map(Path::new);
        Ok(build_client(url, self.api_key(), ca_file)?)
    }

    pub(crate) fn is_server_named(&self) -> bool {
        self.named_server().is_some()
    }

    /// An empty `ONCEWARD_URL` counts as unset.
    fn named_server(&self) -> Option<&str> {
        self.server.as_deref().filter(|url| !url.is_empty())
    }

    pub(crate) fn api_key(&self) -> Option<&str> {
        self.key.as_deref().filter(|key| !key.is_empty())
    }

    /// Runs a request and prints its result as JSON or as text.
    pub(crate) fn run_request<T: Serialize, F>(
        &self,
        as_json: bool,
        send: impl FnOnce(Client) -> F,
        render: impl FnOnce(&T) -> String,
    ) -> Result<CommandStatus>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let client = self.client()?;
        match build_runtime()?.block_on(send(client)) {
            Ok(response) if as_json => print_stdout(&format!("{}\n", serde_json::to_string_pretty(&response)?))
                .map(|()| CommandStatus::Success),
            Ok(response) => print_stdout(&render(&response)).map(|()| CommandStatus::Success),
            Err(error) => self.report_error(error, as_json),
        }
    }

    /// Prints a server's refusal and returns failure; returns an error if there was no reply.
    pub(crate) fn report_error(&self, error: ClientError, as_json: bool) -> Result<CommandStatus> {
        let ClientError::Problem(problem) = error else { return Err(with_hint(error)) };
        report_problem(&problem, self.api_key(), as_json)
    }
}

/// Prints a server's refusal and returns failure.
pub(crate) fn report_problem(problem: &Problem, api_key: Option<&str>, as_json: bool) -> Result<CommandStatus> {
    if as_json {
        print_stdout(&format!("{:#}\n", json!({ "error": problem })))?;
    }
    print_stderr(&format!("error: {}\n", problem_text(problem, api_key)));
    Ok(CommandStatus::Failure)
}

/// Creates a client with the server's address, its CA file and the API key.
pub(crate) fn build_client(server: &str, api_key: Option<&str>, ca_file: Option<&Path>) -> Result<Client, ClientError> {
    let client = match ca_file {
        Some(file) => Client::with_ca_file(server, api_key, file),
        None => Client::new(server, api_key),
    };
    Ok(client?.with_retry_policy(RetryPolicy { retry_timeout: RETRY_TIMEOUT, ..RetryPolicy::default() }))
}

/// Returns the server's message, and says if the caller sent no API key.
pub(crate) fn problem_text(problem: &Problem, api_key: Option<&str>) -> String {
    match api_key {
        None if problem.code == "unauthorized" => {
            format!("{problem}; no API key was sent: set ONCEWARD_KEY or use --key")
        }
        _ => problem.to_string(),
    }
}

/// Adds a hint if the server is unreachable.
pub(crate) fn with_hint(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Unreachable { .. } => {
            anyhow!("{error}; start a server with `onceward serve`, or choose another with --server")
        }
        error => error.into(),
    }
}

pub(crate) fn build_runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the async runtime")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_server_url_counts_as_unset() {
        for (server, is_named) in [(None, false), (Some(""), false), (Some("http://127.0.0.1:1"), true)] {
            let args = ServerArgs { server: server.map(str::to_owned), key: None, ca: None };
            assert_eq!(args.is_server_named(), is_named, "{server:?}");
            let expected = server.filter(|_| is_named).unwrap_or(DEFAULT_SERVER_URL);
            assert_eq!(args.client().expect("valid URL").server_url(), expected);
        }
    }

    #[test]
    fn client_gives_up_retrying_after_five_seconds() {
        let client = build_client("http://127.0.0.1:7171", None, None).expect("valid address");
        assert!(format!("{client:?}").contains("retry_timeout: 5s"), "{client:?}");
    }
}
