//! Where a verb goes that may ask a server or open a database itself.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::Args;
use onceward_store::SqliteView;
use onceward_worker::{Client, ClientError};

use crate::answer::complain;
use crate::database::Database;
use crate::remote;

/// The file that a server makes where it is told nothing else.
const USUAL: &str = "onceward.db";

/// Where a server is looked for.
const SERVER: &str = "http://127.0.0.1:7171";

/// As such a verb is told it.
#[derive(Args)]
pub(crate) struct Place {
    /// The database itself
    #[arg(long, value_name = "URL")]
    db: Option<Database>,
    /// The server to ask
    #[arg(long, value_name = "URL", env = "ONCEWARD_URL")]
    server: Option<String>,
    /// An operator's key, for the server
    #[arg(long, value_name = "KEY", env = "ONCEWARD_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Over https, trust those who are in this file (PEM), too
    #[arg(long, env = "ONCEWARD_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

pub(crate) enum Chosen {
    Database(Database),
    /// The usual file is there, and this program cannot read it.
    Unreadable(Database),
    Server,
}

impl Place {
    /// What is named; else the usual file, unless a server has it open or it is not there: then that server.
    pub(crate) fn chosen(&self) -> Chosen {
        if let Some(database) = &self.db {
            return Chosen::Database(database.clone());
        }
        if self.server.is_some() || !Path::new(USUAL).exists() {
            return Chosen::Server;
        }
        match SqliteView::open(USUAL).map(|view| view.engine()) {
            Ok(None) => Chosen::Database(Database::Sqlite(USUAL.into())),
            Ok(Some(_)) => Chosen::Server,
            Err(_) => Chosen::Unreadable(Database::Sqlite(USUAL.into())),
        }
    }

    /// Where nobody named a server, it is told which one is asked: it may be another's.
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        if self.server.is_none() {
            complain(&format!("asking the server at {SERVER}\n"));
        }
        remote::client(self.server.as_deref().unwrap_or(SERVER), self.key(), self.ca.as_deref())
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref().filter(|key| !key.is_empty())
    }

    /// Where nobody answers: what may be done about it.
    pub(crate) fn hinted(&self, error: ClientError) -> anyhow::Error {
        if self.server.is_none() && !Path::new(USUAL).exists() {
            return anyhow!(
                "{error}, and there is no {USUAL} in this folder; name a database with --db, or a server with --server"
            );
        }
        remote::hinted(error)
    }
}
