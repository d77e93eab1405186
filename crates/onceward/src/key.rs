//! `onceward key`: API keys, through a server or in a database that none has open.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use clap::{Args, Subcommand};
use onceward_core::compile::declared;
use onceward_core::nearest;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_engine::{EngineError, KeyDesk, Keys, NewKey, Revoked};
use onceward_store::{AnyStore, ApiKey, Clock, PostgresStore, SqliteStore, Store as _, StoreError};
use onceward_worker::{Client, ClientError};
use serde_json::{Value, json};

use crate::answer::{Outcome, complain, say};
use crate::database::Database;
use crate::place::{Chosen, Place};
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
pub(crate) struct Key {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a key, and print it: this once
    #[command(
        after_help = "Example:\n  onceward key create --owner mail --role worker --lifecycle mail.send --name mailer"
    )]
    Create(Create),
    /// All keys, live or not, without their secrets
    #[command(after_help = "Example:\n  onceward key list --json")]
    List(List),
    /// Let nobody in with a key any more
    #[command(after_help = "Example:\n  onceward key revoke 5f0c3a9be1d24c77")]
    Revoke(Revoke),
}

#[derive(Args)]
struct Create {
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
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires: Option<Time>,
    #[command(flatten)]
    desk: Desk,
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    desk: Desk,
}

#[derive(Args)]
struct Revoke {
    /// The key's id: what stands between `ow_` and the second `_`; of a whole key that is taken
    id: String,
    #[command(flatten)]
    desk: Desk,
}

/// Who has the whole key at hand need not cut it up; its secret goes nowhere.
fn id_of(text: &str) -> &str {
    text.strip_prefix("ow_").and_then(|rest| rest.split_once('_')).map_or(text, |(id, _)| id)
}

fn time(text: &str) -> Result<Time, String> {
    text.parse().map_err(|_| format!("`{text}` is no time: write 2030-01-01T00:00:00Z"))
}

/// Where the keys are, and how they are shown.
#[derive(Args)]
struct Desk {
    #[command(flatten)]
    place: Place,
    /// Print JSON on standard output
    #[arg(long)]
    json: bool,
}

/// What to do, and where it comes to.
enum Asked {
    Create(NewKey),
    List,
    Revoke(String),
}

impl Key {
    pub(crate) fn run(self) -> Result<Outcome> {
        let (asked, Desk { place, json }) = match self.what {
            What::Create(Create { owner, roles, lifecycles, name, expires, desk }) => {
                (Asked::Create(NewKey { owner, roles, lifecycles, name, expires_at: expires }), desk)
            }
            What::List(List { desk }) => (Asked::List, desk),
            What::Revoke(Revoke { id, desk }) => (Asked::Revoke(id_of(&id).to_owned()), desk),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(carry_out(&place, &asked))? {
            Ok(done) => {
                for role in done["unknown_roles"].as_array().into_iter().flatten() {
                    let role = role.as_str().unwrap_or_default();
                    complain(&format!(
                        "warning: no lifecycle here names the role `{role}` yet: until one does, the key makes and reads its owner's \
                         records as a producer's does\n"
                    ));
                }
                if done["operators_left"] == 0 {
                    complain(
                        "warning: no operator's key is left: nobody can make or revoke keys through a server any more. `onceward key \
                         create --db … --owner … --role operator` makes one in the database itself (a SQLite one when its server has stopped)\n",
                    );
                }
                say(&if json { format!("{done:#}\n") } else { told(&asked, &done) })?;
                if matches!(asked, Asked::Create(_)) && !json {
                    complain("This key is shown once. Send it as `Authorization: Bearer …`, or set ONCEWARD_KEY.\n");
                }
                Ok(Outcome::Done)
            }
            Err(refused) => {
                if json {
                    say(&format!("{:#}\n", json!({ "error": refused.error })))?;
                }
                complain(&format!("error: {}\n", refused.reason));
                Ok(Outcome::Wanting)
            }
        }
    }
}

/// Done, or refused; an error where nobody could even be asked.
type Came = Result<Result<Value, Refused>>;

/// In these words, and as JSON.
struct Refused {
    reason: String,
    error: Value,
}

impl Refused {
    fn because(reason: String) -> Self {
        let error = json!({ "reason": reason });
        Self { reason, error }
    }
}

async fn carry_out(place: &Place, asked: &Asked) -> Came {
    if let Chosen::Database(database) = place.chosen() {
        return in_database(&database, asked).await;
    }
    match through(&place.client()?, asked).await {
        Ok(done) => Ok(Ok(done)),
        Err(ClientError::Problem(problem)) => {
            Ok(Err(Refused { reason: remote::told(&problem, place.key()), error: serde_json::to_value(problem)? }))
        }
        Err(error) => Err(place.hinted(error)),
    }
}

async fn through(client: &Client, asked: &Asked) -> Result<Value, ClientError> {
    match asked {
        Asked::Create(new) => {
            let expires_at = new.expires_at.map(|time| time.to_string());
            let NewKey { owner, roles, lifecycles, name, .. } = new;
            let body = json!({ "owner": owner, "roles": roles, "lifecycles": lifecycles, "name": name, "expires_at": expires_at });
            let made = client.create_key(&body).await?;
            // It is made: whatever becomes of this, it is shown.
            if !lifecycles.is_empty()
                && let Ok(all) = client.lifecycles().await
            {
                let names = all["lifecycles"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str());
                mind(lifecycles, &names.map(Into::into).collect());
            }
            Ok(made)
        }
        Asked::List => Ok(json!({ "keys": client.keys().await? })),
        Asked::Revoke(id) => client.revoke_key(id).await,
    }
}

async fn in_database(database: &Database, asked: &Asked) -> Came {
    let opened = match database {
        // Only a first key makes a database.
        Database::Sqlite(path) if !path.exists() && !matches!(asked, Asked::Create(_)) => {
            return Err(anyhow!("{database}: there is no such file"));
        }
        Database::Sqlite(path) => SqliteStore::open(path, Clock::machine()).map(AnyStore::Sqlite),
        Database::Postgres(url) => PostgresStore::open(url).await.map(AnyStore::Postgres),
    };
    let store = match opened {
        Err(error @ StoreError::Locked { .. }) => {
            let reason = format!("{database}: {error}; or ask the server that has it open, with --server and --key");
            return Ok(Err(Refused::because(reason)));
        }
        opened => opened.with_context(|| database.to_string())?,
    };
    let (desk, console) = (KeyDesk::default(), Actor::new("console", &["operator"]));
    let keys = Keys::on(&store, &desk);
    let done = match asked {
        Asked::Create(new) => match keys.create(&console, new.clone()).await {
            Ok((key, text)) => {
                let mut shown = as_json(&key);
                shown["key"] = text.reveal().into();
                shown["unknown_roles"] = json!(keys.unknown_roles(&key.roles).await.unwrap_or_default());
                Ok(shown)
            }
            Err(error) => Err(error),
        },
        Asked::List => {
            keys.list(&console).await.map(|keys| json!({ "keys": keys.iter().map(as_json).collect::<Vec<_>>() }))
        }
        Asked::Revoke(id) => keys.revoke(&console, id).await.map(|Revoked { key, operators_left }| {
            let mut shown = as_json(&key);
            shown["operators_left"] = operators_left.into();
            shown
        }),
    };
    match done {
        Ok(done) => {
            if let (Asked::Create(new), Ok(catalog)) = (asked, store.definitions().await) {
                mind(&new.lifecycles, &catalog.definitions.lifecycles.keys().cloned().collect());
            }
            Ok(Ok(done))
        }
        Err(EngineError::Store(error)) => Err(anyhow!("{database}: {error}")),
        Err(refused) => {
            let error = json!({ "status": refused.status(), "code": refused.code(), "reason": refused.to_string() });
            Ok(Err(Refused { reason: format!("{refused} [{}]", refused.code()), error }))
        }
    }
}

/// A worker would wait in vain for jobs of a lifecycle that is mistyped. But it may also come later.
fn mind(lifecycles: &[Arc<str>], known: &BTreeSet<Arc<str>>) {
    let shipped = declared(&shipped::files());
    for name in lifecycles.iter().filter(|name| !known.contains(*name) && !shipped.contains(*name)) {
        let near = nearest(name, known.union(&shipped).map(|known| &**known));
        let near = near.map_or_else(String::new, |near| format!("; is `{near}` meant?"));
        complain(&format!("warning: there is no lifecycle `{name}` here yet{near}\n"));
    }
}

/// As the server shows one.
fn as_json(key: &ApiKey) -> Value {
    let time = |time: Option<Time>| time.map(|time| time.to_string());
    json!({
        "id": key.id, "owner": key.owner, "roles": key.roles, "lifecycles": key.lifecycles, "name": key.name,
        "created_at": key.created_at.to_string(), "expires_at": time(key.expires_at), "revoked_at": time(key.revoked_at),
    })
}

fn told(asked: &Asked, done: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match asked {
        Asked::Create(_) => format!("{}\n", text(&done["key"])),
        Asked::Revoke(id) => format!("{id} is revoked\n"),
        Asked::List => {
            let mut table = String::new();
            for key in done["keys"].as_array().into_iter().flatten() {
                let names =
                    |list: &Value| list.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(",");
                let mut line = format!("{}  {}  {}", text(&key["id"]), text(&key["owner"]), names(&key["roles"]));
                if key["lifecycles"].is_array() {
                    let _ = write!(line, "  for {}", names(&key["lifecycles"]));
                }
                if key["name"] != "" {
                    let _ = write!(line, "  {:?}", text(&key["name"]));
                }
                for (word, when) in [("expires", &key["expires_at"]), ("revoked", &key["revoked_at"])] {
                    if when.is_string() {
                        let _ = write!(line, "  {word} {}", text(when));
                    }
                }
                let _ = writeln!(table, "{line}");
            }
            if table.is_empty() { "there are no keys\n".to_owned() } else { table }
        }
    }
}
