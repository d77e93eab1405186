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
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, Store as _, StoreError};
use onceward_worker::{Client, ClientError};
use serde::Serialize;
use serde_json::{Value, json};

use crate::database::DatabaseUrl;
use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::target::{Target, TargetArgs};
use crate::{remote, shipped};

/// Make, list and revoke API keys
///
/// With --db, in the database itself: that is how the first operator's key is made, before a server starts on any but a loopback
/// address. A database file must not be open in a server then; PostgreSQL may be. With --server, through that server, with an
/// operator's key. With neither: in onceward.db in this folder if no server has it open, else through the server at
/// 127.0.0.1:7171.
///
/// Exits with 0 when it is done; with 1 if it was refused, or a server has the file open; with 2 if nobody can be reached.
#[derive(Args)]
#[command(after_help = "Example:\n  onceward key create --db sqlite:onceward.db --owner ops --role operator\n  \
                        onceward key create --owner shop --role producer --name checkout\n  onceward key list\n  \
                        onceward key revoke 5f0c3a9be1d24c77")]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Make a key, and print it: this once
    #[command(
        after_help = "Example:\n  onceward key create --owner mail --role worker --lifecycle mail.send --name mailer"
    )]
    Create(KeyCreateArgs),
    /// All keys, live or not, without their secrets
    #[command(after_help = "Example:\n  onceward key list --json")]
    List(KeyListArgs),
    /// Let nobody in with a key any more
    #[command(after_help = "Example:\n  onceward key revoke 5f0c3a9be1d24c77")]
    Revoke(KeyRevokeArgs),
}

#[derive(Args)]
struct KeyCreateArgs {
    /// Whose records are seen and made with it
    #[arg(long)]
    owner: Arc<str>,
    /// operator, producer, worker, viewer, metrics, or one that a lifecycle names; may be given more than once
    #[arg(long = "role", required = true, value_name = "ROLE")]
    roles: Vec<Arc<str>>,
    /// A lifecycle that a worker may lease from with it; may be given more than once. Otherwise all of them
    #[arg(long = "lifecycle", value_name = "LIFECYCLE")]
    lifecycles: Vec<Arc<str>>,
    /// What people call it
    #[arg(long, default_value = "")]
    name: Arc<str>,
    /// When it ends by itself, as 2030-01-01T00:00:00Z
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
    /// The key's id: what stands between `ow_` and the second `_`; of a whole key that is taken
    id: String,
    #[command(flatten)]
    target_args: KeyTargetArgs,
}

/// Accepts a whole API key in place of its id, and drops the secret.
fn extract_key_id(text: &str) -> &str {
    text.strip_prefix("ow_").and_then(|rest| rest.split_once('_')).map_or(text, |(id, _)| id)
}

fn parse_time(text: &str) -> Result<Time, String> {
    text.parse().map_err(|_| format!("`{text}` is no time: write 2030-01-01T00:00:00Z"))
}

/// Where the keys are, and how they are shown.
#[derive(Args)]
struct KeyTargetArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Print JSON on standard output
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
        let (operation, KeyTargetArgs { target: place, json }) = match self.command {
            KeyCommand::Create(KeyCreateArgs { owner, roles, lifecycles, name, expires, target_args }) => {
                (KeyOperation::Create(NewApiKey { owner, roles, lifecycles, name, expires_at: expires }), target_args)
            }
            KeyCommand::List(KeyListArgs { target_args: desk }) => (KeyOperation::List, desk),
            KeyCommand::Revoke(KeyRevokeArgs { id, target_args: desk }) => {
                (KeyOperation::Revoke(extract_key_id(&id).to_owned()), desk)
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(run_operation(&place, &operation))? {
            Ok(done) => {
                let unknown_roles = if let KeyReply::Created(created) = &done { &*created.unknown_roles } else { &[] };
                for role in unknown_roles {
                    print_stderr(&format!(
                        "warning: no lifecycle here names the role `{role}` yet: until one does, the key makes and reads its owner's \
                         records as a producer's does\n"
                    ));
                }
                if matches!(&done, KeyReply::Revoked(revoked) if revoked.operators_left == 0) {
                    print_stderr(
                        "warning: no operator's key is left: nobody can make or revoke keys through a server any more. `onceward key \
                         create --db … --owner … --role operator` makes one in the database itself (a SQLite one when its server has stopped)\n",
                    );
                }
                print_stdout(&if json { format!("{:#}\n", json!(done)) } else { render(&done) })?;
                if matches!(done, KeyReply::Created(_)) && !json {
                    print_stderr(
                        "This key is shown once. Send it as `Authorization: Bearer …`, or set ONCEWARD_KEY.\n",
                    );
                }
                Ok(CommandStatus::Success)
            }
            Err(refused) => {
                if json {
                    print_stdout(&format!("{:#}\n", json!({ "error": refused.error })))?;
                }
                print_stderr(&format!("error: {}\n", refused.reason));
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
    match run_on_server(&target.client()?, operation).await {
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
        DatabaseUrl::Sqlite(path) => SqliteStore::open(path, Clock::machine()).map(AnyStore::Sqlite),
        DatabaseUrl::Postgres(url) => PostgresStore::open(url).await.map(AnyStore::Postgres),
    };
    let store = match opened {
        Err(error @ StoreError::Locked { .. }) => {
            let reason = format!("{database}: {error}; or ask the server that has it open, with --server and --key");
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
            let error = json!({ "status": refused.status(), "code": refused.code(), "reason": refused.to_string() });
            Ok(Err(KeyRefusal { reason: format!("{refused} [{}]", refused.code()), error }))
        }
    }
}

/// Warns about unknown lifecycles: a worker with a mistyped one would get no jobs. Not an error, because the lifecycle
/// may be added later.
fn warn_unknown_lifecycles(lifecycles: &[Arc<str>], known: &BTreeSet<Arc<str>>) {
    let shipped = declared_lifecycles(&shipped::files());
    for name in lifecycles.iter().filter(|name| !known.contains(*name) && !shipped.contains(*name)) {
        let near = closest_name(name, known.union(&shipped).map(|known| &**known));
        let near = near.map_or_else(String::new, |near| format!("; is `{near}` meant?"));
        print_stderr(&format!("warning: there is no lifecycle `{name}` here yet{near}\n"));
    }
}

fn render(done: &KeyReply) -> String {
    match done {
        KeyReply::Created(created) => format!("{}\n", created.key),
        KeyReply::Revoked(revoked) => format!("{} is revoked\n", revoked.about.id),
        KeyReply::Listed { keys } => {
            let mut table = String::new();
            for key in keys {
                let mut line = format!("{}  {}  {}", key.id, key.owner, key.roles.join(","));
                if let Some(lifecycles) = &key.lifecycles {
                    let _ = write!(line, "  for {}", lifecycles.join(","));
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
            if table.is_empty() { "there are no keys\n".to_owned() } else { table }
        }
    }
}
