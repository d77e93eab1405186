//! Which server a verb speaks to, and how its answers end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use onceward_worker::{Client, ClientError, Patience, Problem};
use serde::Serialize;
use serde_json::json;

use crate::answer::{Outcome, complain, say};

/// For a server that is just being restarted; somebody waits at a terminal.
const RETRIES: Duration = Duration::from_secs(5);

/// As every verb that asks a server takes it.
#[derive(Args)]
pub(crate) struct Remote {
    /// The server's address
    #[arg(long, env = "ONCEWARD_URL", default_value = "http://127.0.0.1:7171", value_name = "URL")]
    server: String,
    /// The key to speak with; better left in the environment, where others cannot read it
    #[arg(long, env = "ONCEWARD_KEY", hide_env_values = true, value_name = "KEY")]
    key: Option<String>,
    /// Over https, trust those who are in this file (PEM), too
    #[arg(long, env = "ONCEWARD_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Remote {
    pub(crate) fn client(&self) -> Result<Client> {
        Ok(client(&self.server, self.key(), self.ca.as_deref())?)
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref().filter(|key| !key.is_empty())
    }

    /// Ask, and print what came back: as JSON, or as people read it.
    pub(crate) fn ask<T: Serialize, F>(
        &self,
        as_json: bool,
        ask: impl FnOnce(Client) -> F,
        shown: impl FnOnce(&T) -> String,
    ) -> Result<Outcome>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let client = self.client()?;
        match runtime()?.block_on(ask(client)) {
            Ok(answer) if as_json => {
                say(&format!("{}\n", serde_json::to_string_pretty(&answer)?)).map(|()| Outcome::Done)
            }
            Ok(answer) => say(&shown(&answer)).map(|()| Outcome::Done),
            Err(error) => self.refused(error, as_json),
        }
    }

    /// A server's no is an answer; that there was none is not.
    pub(crate) fn refused(&self, error: ClientError, as_json: bool) -> Result<Outcome> {
        let ClientError::Problem(problem) = error else { return Err(hinted(error)) };
        if as_json {
            say(&format!("{:#}\n", json!({ "error": problem })))?;
        }
        complain(&format!("error: {}\n", told(&problem, self.key())));
        Ok(Outcome::Wanting)
    }
}

/// A server by its address, whom to trust for it, and the key to speak with.
pub(crate) fn client(server: &str, key: Option<&str>, ca: Option<&Path>) -> Result<Client, ClientError> {
    let client = match ca {
        Some(file) => Client::trusting(server, key, file),
        None => Client::new(server, key),
    };
    Ok(client?.with(Patience { retries: RETRIES, ..Patience::default() }))
}

/// The server's words, and what it cannot know: whether there was a key to be sent at all.
pub(crate) fn told(problem: &Problem, key: Option<&str>) -> String {
    match key {
        None if problem.code == "unauthorized" => {
            format!("{problem}; no key was given: set ONCEWARD_KEY, or give --key")
        }
        _ => problem.to_string(),
    }
}

/// Where nobody answers: what may be done about it.
pub(crate) fn hinted(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Unreachable { .. } => {
            anyhow!("{error}; is a server running there? `onceward serve` starts one; --server names another")
        }
        error => error.into(),
    }
}

/// For one question, or a stream of answers.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever verb it is: somebody waits at a terminal.
    #[test]
    fn all_verbs_are_equally_patient() {
        let client = client("http://127.0.0.1:7171", None, None).expect("an address");
        assert!(format!("{client:?}").contains("retries: 5s"), "{client:?}");
    }
}
