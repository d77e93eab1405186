//! `onceward key`: manages API keys through a server, or directly in a database that no server has open.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use clap::{Args, Subcommand};
use onceward_api_types::{ApiKey, NewApiKeyBody, NewApiKeyJson, RevokedApiKey};
use onceward_core::closest_name;
use onceward_core::compile::declared_lifecycles;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_engine::{ApiKeyCache, ApiKeys, EngineError, NewApiKey};
use onceward_server::api_key_json;
use onceward_store::{Store as _, StoreError};
use onceward_worker::{Client, ClientError};
use serde::Serialize;
use serde_json::{Value, json};

use crate::database::DatabaseUrl;
use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::target::{Target, TargetArgs};
use crate::{remote, shipped};

/// Create, list and revoke API keys
///
/// The first API key must have the role `operator`, because it ends open access.
///
/// With --db, the command works on the database directly. Use it to create the first operator's API key before a server listens on a
/// public address. Stop the server that has a SQLite file open; servers on PostgreSQL may run. With --server, the command calls that server
/// with an operator's API key. With neither, it uses onceward.db in the current folder if no server has it open, otherwise the server at
/// 127.0.0.1:7171.
///
/// Exit codes: 0 done; 1 refused, or a server has the file open; 2 the server or the database cannot be reached.
#[derive(Args)]
#[command(after_help = "Examples:\n  onceward key create --db sqlite:onceward.db --owner ops --role operator\n  \
                        onceward key create --owner shop --role producer --name checkout\n  onceward key list\n  \
                        onceward key revoke 5f0c3a9be1d24c77")]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Create an API key and print its secret, which is shown only once
    #[command(
        after_help = "Example:\n  onceward key create --owner mail --role worker --lifecycle mail.send --name mailer"
    )]
    Create(KeyCreateArgs),
    /// List all API keys, including expired and revoked ones, without their secrets
    #[command(after_help = "Example:\n  onceward key list --json")]
    List(KeyListArgs),
    /// Revoke an API key
    #[command(after_help = "Example:\n  onceward key revoke 5f0c3a9be1d24c77")]
    Revoke(KeyRevokeArgs),
}

#[derive(Args)]
struct KeyCreateArgs {
    /// Owner that the API key acts as: it creates records for this owner and reads them
    #[arg(long)]
    owner: Arc<str>,
    /// Role: operator, producer, worker, viewer, metrics, or a role that a lifecycle defines. Repeatable
    #[arg(long = "role", required = true, value_name = "ROLE")]
    roles: Vec<Arc<str>>,
    /// Lifecycle whose jobs a worker may lease. Repeatable; default: all lifecycles
    #[arg(long = "lifecycle", value_name = "LIFECYCLE")]
    lifecycles: Vec<Arc<str>>,
    /// Label of the API key, shown by `onceward key list`
    #[arg(long, default_value = "", hide_default_value = true)]
    name: Arc<str>,
    /// When the API key expires, such as 2030-01-01T00:00:00Z; default: never
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    expires: Option<Time>,
    #[command(flatten)]
    target_args: KeyTargetArgs,
}

#[derive(Args)]
struct KeyListArgs {
    #[command(flatten)]
    target_args: KeyTargetArgs,
}

#[derive(Args)]
struct KeyRevokeArgs {
    /// Id of the API key: the part between `ow_` and the second `_`. A whole API key is accepted, too
    id: String,
    #[command(flatten)]
    target_args: KeyTargetArgs,
}

/// Accepts a whole API key in place of its id, and drops the secret.
fn extract_key_id(text: &str) -> &str {
    text.strip_prefix("ow_").and_then(|rest| rest.split_once('_')).map_or(text, |(id, _)| id)
}

fn parse_time(text: &str) -> Result<Time, String> {
    text.parse().map_err(|_| format!("`{text}` is not an RFC 3339 time, such as 2030-01-01T00:00:00Z"))
}

/// Where the keys are, and how they are shown.
#[derive(Args)]
struct KeyTargetArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A key command without its target.
enum KeyOperation {
    Create(NewApiKey),
    List,
    Revoke(String),
}

/// The reply, as the server sends it.
#[derive(Serialize)]
#[serde(untagged)]
enum KeyReply {
    Created(NewApiKeyJson),
    Listed { keys: Vec<ApiKey> },
    Revoked(RevokedApiKey),
}

impl KeyArgs {
    pub(crate) fn run(self) -> Result<CommandStatus> {
        let (operation, KeyTargetArgs { target, json }) = match self.command {
            KeyCommand::Create(KeyCreateArgs { owner, roles, lifecycles, name, expires, target_args }) => {
                (KeyOperation::Create(NewApiKey { owner, roles, lifecycles, name, expires_at: expires }), target_args)
            }
            KeyCommand::List(KeyListArgs { target_args }) => (KeyOperation::List, target_args),
            KeyCommand::Revoke(KeyRevokeArgs { id, target_args }) => {
                (KeyOperation::Revoke(extract_key_id(&id).to_owned()), target_args)
            }
        };
        match remote::build_runtime()?.block_on(run_operation(&target, &operation))? {
            Ok(done) => {
                let unknown_roles = if let KeyReply::Created(created) = &done { &*created.unknown_roles } else { &[] };
                for role in unknown_roles {
                    print_stderr(&format!(
                        "warning: no lifecycle defines the role `{role}` yet; until one does, the API key has the permissions of a \
                         producer\n"
                    ));
                }
                if matches!(&done, KeyReply::Revoked(revoked) if revoked.operators_left == 0) {
                    print_stderr(
                        "warning: no operator's API key is left, so API keys can no longer be managed through a server; create one with \
                         `onceward key create --db … --owner … --role operator` (for SQLite, stop the server first)\n",
                    );
                }
                print_stdout(&if json { format!("{:#}\n", json!(done)) } else { render(&done) })?;
                if matches!(done, KeyReply::Created(_)) && !json {
                    print_stderr(
                        "The API key is shown only once. Send it as `Authorization: Bearer …`, or set ONCEWARD_KEY.\n",
                    );
                }
                Ok(CommandStatus::Success)
            }
            Err(refusal) => {
                if json {
                    print_stdout(&format!("{:#}\n", json!({ "error": refusal.error })))?;
                }
                print_stderr(&format!("error: {}\n", refusal.reason));
                Ok(CommandStatus::Failure)
            }
        }
    }
}

/// The reply or the refusal; an error if the target could not be reached.
type KeyOperationResult = Result<Result<KeyReply, KeyRefusal>>;

/// A refusal as text and as JSON.
struct KeyRefusal {
    reason: String,
    error: Value,
}

impl KeyRefusal {
    fn from_reason(reason: String) -> Self {
        let error = json!({ "reason": reason });
        Self { reason, error }
    }
}

async fn run_operation(target: &TargetArgs, operation: &KeyOperation) -> KeyOperationResult {
    if let Target::Database(database) = target.resolve() {
        return run_in_database(&database, operation).await;
    }
    let client = target.client()?;
    match run_on_server(&client, operation).await {
        Ok(done) => Ok(Ok(done)),
        Err(ClientError::Problem(problem)) => Ok(Err(KeyRefusal {
            reason: remote::problem_text(&problem, target.api_key()),
            error: serde_json::to_value(problem)?,
        })),
        Err(error) => Err(target.with_hint(error)),
    }
}

async fn run_on_server(client: &Client, operation: &KeyOperation) -> Result<KeyReply, ClientError> {
    match operation {
        KeyOperation::Create(new) => {
            let names = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect();
            let body = NewApiKeyBody {
                owner: new.owner.to_string(),
                roles: names(&new.roles),
                lifecycles: names(&new.lifecycles),
                name: Some(new.name.to_string()),
                expires_at: new.expires_at.map(|time| time.to_string()),
            };
            let created = client.create_api_key(&body).await?;
            // The server has created the API key, so a failure of this lookup must not hide it.
            if !new.lifecycles.is_empty()
                && let Ok(all) = client.lifecycles().await
            {
                let names = all.lifecycles.into_iter().map(|lifecycle| lifecycle.name.into());
                warn_unknown_lifecycles(&new.lifecycles, &names.collect());
            }
            Ok(KeyReply::Created(created))
        }
        KeyOperation::List => Ok(KeyReply::Listed { keys: client.list_api_keys().await? }),
        KeyOperation::Revoke(id) => client.revoke_api_key(id).await.map(KeyReply::Revoked),
    }
}

async fn run_in_database(database: &DatabaseUrl, operation: &KeyOperation) -> KeyOperationResult {
    let opened = match database {
        // Only `key create` may create a database.
        DatabaseUrl::Sqlite(path) if !path.exists() && !matches!(operation, KeyOperation::Create(_)) => {
            return Err(anyhow!("{database}: the file does not exist"));
        }
        database => database.open().await,
    };
    let store = match opened {
        Err(StoreError::Locked { by }) => {
            let reason = format!(
                "{database}: {by} has the database open; stop that process, or call its server with --server and an operator's --key"
            );
            return Ok(Err(KeyRefusal::from_reason(reason)));
        }
        opened => opened.with_context(|| database.to_string())?,
    };
    let (key_cache, console) = (ApiKeyCache::default(), Actor::new("console", &["operator"]));
    let keys = ApiKeys::on_store(&store, &key_cache);
    let done = match operation {
        KeyOperation::Create(new) => match keys.create(&console, new.clone()).await {
            Ok((key, text)) => {
                let unknown_roles = keys.unknown_roles(&key.roles).await.unwrap_or_default();
                let unknown_roles = unknown_roles.iter().map(ToString::to_string).collect();
                Ok(KeyReply::Created(NewApiKeyJson { key: text.reveal(), about: api_key_json(&key), unknown_roles }))
            }
            Err(error) => Err(error),
        },
        KeyOperation::List => {
            keys.list(&console).await.map(|keys| KeyReply::Listed { keys: keys.iter().map(api_key_json).collect() })
        }
        KeyOperation::Revoke(id) => keys.revoke(&console, id).await.map(|revoked| {
            let about = api_key_json(&revoked.key);
            KeyReply::Revoked(RevokedApiKey { about, operators_left: revoked.operators_left })
        }),
    };
    match done {
        Ok(done) => {
            if let (KeyOperation::Create(new), Ok(catalog)) = (operation, store.catalog().await) {
                warn_unknown_lifecycles(&new.lifecycles, &catalog.definitions.lifecycles.keys().cloned().collect());
            }
            Ok(Ok(done))
        }
        Err(EngineError::Store(error)) => Err(anyhow!("{database}: {error}")),
        Err(refused) => {
            let mut reason = refused.to_string();
            if matches!(refused, EngineError::OperatorKeyRequired) {
                // The message ends with a command, which must work on the same database.
                let _ = write!(reason, " --db {}", database.without_password());
            }
            let error = json!({ "status": refused.status(), "code": refused.code(), "reason": reason });
            Ok(Err(KeyRefusal { reason: format!("{reason} [{}]", refused.code()), error }))
        }
    }
}

/// Warns about unknown lifecycles: a worker with a mistyped one would get no jobs. Not an error, because the lifecycle
/// may be added later.
fn warn_unknown_lifecycles(lifecycles: &[Arc<str>], known: &BTreeSet<Arc<str>>) {
    let shipped = declared_lifecycles(&shipped::files());
    for name in lifecycles.iter().filter(|name| !known.contains(*name) && !shipped.contains(*name)) {
        let near = closest_name(name, known.union(&shipped).map(|known| &**known));
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        print_stderr(&format!("warning: the lifecycle `{name}` does not exist yet{near}\n"));
    }
}

fn render(done: &KeyReply) -> String {
    match done {
        KeyReply::Created(created) => format!("{}\n", created.key),
        KeyReply::Revoked(revoked) => format!("revoked {}\n", revoked.about.id),
        KeyReply::Listed { keys } => {
            let mut table = String::new();
            for key in keys {
                let mut line = format!("{}  {}  {}", key.id, key.owner, key.roles.join(","));
                if let Some(lifecycles) = &key.lifecycles {
                    let _ = write!(line, "  lifecycles {}", lifecycles.join(","));
                }
                if !key.name.is_empty() {
                    let _ = write!(line, "  {:?}", key.name);
                }
                for (word, when) in [("expires", key.expires_at), ("revoked", key.revoked_at)] {
                    if let Some(when) = when {
                        let _ = write!(line, "  {word} {when}");
                    }
                }
                let _ = writeln!(table, "{line}");
            }
            if table.is_empty() { "no API keys\n".to_owned() } else { table }
        }
    }
}
