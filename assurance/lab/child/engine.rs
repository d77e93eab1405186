//! Runs an engine on a file or on a server's database, with a fixed clock: one line per call, one line per reply. Exits
//! without closing, as if killed.

use std::process::ExitCode;

use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::{Actor, FencingToken};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_engine::{
    Engine, EngineConfig, EngineError, NewApiKey, PruneOptions, Receipt, RetentionPolicy, Submission,
};
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, StoreError};
use serde_json::{Map, json};

use crate::{outside, read_line, server};

pub(crate) fn run(database: &str, micros: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let (Ok(runtime), Ok(micros)) = (runtime, micros.parse()) else { return ExitCode::FAILURE };
    if let Err(error) = runtime.block_on(serve(database, Time::from_micros(micros))) {
        eprintln!("{error}");
    }
    ExitCode::FAILURE
}

async fn open_store(database: &str, clock: Clock) -> Result<AnyStore, StoreError> {
    if database.starts_with("postgres://") {
        return Ok(AnyStore::Postgres(PostgresStore::open_with_clock(database, clock).await?));
    }
    Ok(AnyStore::Sqlite(SqliteStore::open(database, clock)?))
}

async fn serve(database: &str, now: Time) -> Result<(), EngineError> {
    let poll = std::time::Duration::from_hours(1);
    let clock = Clock::manual(now);
    let config = EngineConfig { poll_interval: poll, checks: outside::checks(), ..EngineConfig::default() };
    let engine = Engine::open(open_store(database, clock.clone()).await?, config);
    println!("open");
    while let Some(line) = read_line() {
        // The JSON after these commands may contain spaces.
        let words: Vec<&str> = match line.split_once(' ') {
            Some((first @ ("ask" | "define"), rest)) => vec![first, rest],
            _ => line.split(' ').collect(),
        };
        if let ["at", micros] = words[..] {
            clock.set(Time::from_micros(micros.parse().unwrap_or_default()));
            println!("ok at");
            continue;
        }
        match execute(&engine, &words).await {
            Ok(words) => println!("ok {words}"),
            Err(error) => match error.refusal() {
                Some(refusal) => println!("no {}", refusal.code),
                None => println!("no {error}"),
            },
        }
    }
    // Exit while the engine is open, so that it neither closes nor writes anything more.
    std::process::exit(0)
}

async fn execute(engine: &Engine<AnyStore>, words: &[&str]) -> Result<String, EngineError> {
    let (ann, bob) = (Actor::new("ann", &["producer"]), Actor::new("bob", &["worker"]));
    let olga = Actor::new("olga", &["operator"]);
    let done = |answer: Receipt| answer.subject.0.to_string();
    let submit = async |actor: &Actor, call| engine.submit(Submission::new(actor, call)).await.map(done);
    match *words {
        ["create", lifecycle] => {
            let fields = Map::new();
            submit(
                &ann,
                Call::Create(CreateRecord {
                    lifecycle: lifecycle.into(),
                    id: None,
                    owner: None,
                    fields,
                    payload: None,
                }),
            )
            .await
        }
        ["lease", id] => {
            let (record, worker) = (parse_record(id), "bob".into());
            submit(&bob, Call::Lease { record, worker, lease: None, start: true }).await
        }
        ["commit", id, token, finish] => {
            let (record, token, result) = (parse_record(id), parse_token(token), json!("done"));
            submit(&bob, Call::Commit { record, token, result, finish: finish == "finish" }).await
        }
        ["fail", id, token] => {
            let (record, token) = (parse_record(id), parse_token(token));
            let error = FailureReport {
                code: "broken".into(),
                message: "broken".into(),
                retryable: Some(true),
                retry_after: None,
            };
            submit(&bob, Call::Fail { record, token, error }).await
        }
        // Any call, in the format of the torture tests.
        ["ask", question] => match serde_json::from_str(question) {
            Ok(question) => Ok(server::execute(engine, question).await?.to_string()),
            Err(error) => Ok(format!("what? {error}")),
        },
        // Puts a lifecycle file.
        ["define", text] => {
            let text: String = serde_json::from_str(text).unwrap_or_default();
            let files = InputFiles { files: vec![InputFile { name: "new.toml".to_owned(), text: text.into() }] };
            Ok(engine.put_lifecycles(&files).await?.revision().to_string())
        }
        ["key", name] => {
            let (owner, roles, name) = ("ann".into(), vec!["operator".into()], name.into());
            let new_key = NewApiKey { owner, roles, lifecycles: Vec::new(), name, expires_at: None };
            Ok(engine.api_keys().create(&olga, new_key).await?.0.id.to_string())
        }
        ["revoke", id] => Ok(engine.api_keys().revoke(&olga, id).await?.key.id.to_string()),
        // Reading a record fires its due events first.
        ["look", id] => {
            let found = engine.get(&ann, parse_record(id)).await?;
            Ok(found.map_or_else(|| "nothing".to_owned(), |record| record.state_name().to_string()))
        }
        // Prunes all ended records at once.
        ["prune"] => {
            let retention =
                RetentionPolicy { records_ttl: Some(std::time::Duration::ZERO), ..RetentionPolicy::default() };
            let options = PruneOptions { retention, ..PruneOptions::default() };
            Ok(engine.prune(&options).await?.records.to_string())
        }
        _ => Ok("what?".to_owned()),
    }
}

fn parse_record(id: &str) -> RecordId {
    RecordId(id.parse().unwrap_or_default())
}

fn parse_token(token: &str) -> FencingToken {
    FencingToken(token.parse().unwrap_or_default())
}
