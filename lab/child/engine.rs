//! An engine on a file or a server's database, under a clock that stands still: one line a call, one line an answer. It never closes what it
//! opened: it ends as if it had been killed.

use std::process::ExitCode;

use onceward_core::decide::{Call, Create, ErrorReport};
use onceward_core::diagnostic::{File, Files};
use onceward_core::record::{Actor, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_engine::{Answer, Config, Engine, EngineError, NewKey, PruneOptions, Retention, Submission};
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, StoreError};
use serde_json::{Map, json};

use crate::{hear, outside, server};

pub(crate) fn run(place: &str, micros: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let (Ok(runtime), Ok(micros)) = (runtime, micros.parse()) else { return ExitCode::FAILURE };
    if let Err(error) = runtime.block_on(serve(place, Time::from_micros(micros))) {
        eprintln!("{error}");
    }
    ExitCode::FAILURE
}

async fn open(place: &str, clock: Clock) -> Result<AnyStore, StoreError> {
    if place.starts_with("postgres://") {
        return Ok(AnyStore::Postgres(PostgresStore::open_with_clock(place, clock).await?));
    }
    Ok(AnyStore::Sqlite(SqliteStore::open(place, clock)?))
}

async fn serve(place: &str, now: Time) -> Result<(), EngineError> {
    let poll = std::time::Duration::from_hours(1);
    let clock = Clock::manual(now);
    let config = Config { poll, checks: outside::checks(), ..Config::default() };
    let engine = Engine::open(open(place, clock.clone()).await?, config);
    println!("open");
    while let Some(line) = hear() {
        // What JSON follows these words is one word, whatever is in it.
        let words: Vec<&str> = match line.split_once(' ') {
            Some((first @ ("ask" | "define"), rest)) => vec![first, rest],
            _ => line.split(' ').collect(),
        };
        if let ["at", micros] = words[..] {
            clock.set(Time::from_micros(micros.parse().unwrap_or_default()));
            println!("ok at");
            continue;
        }
        match answer(&engine, &words).await {
            Ok(words) => println!("ok {words}"),
            Err(error) => match error.refusal() {
                Some(refusal) => println!("no {}", refusal.code),
                None => println!("no {error}"),
            },
        }
    }
    // Here, while the engine is still there: nothing is closed, and nothing more is written.
    std::process::exit(0)
}

async fn answer(engine: &Engine<AnyStore>, words: &[&str]) -> Result<String, EngineError> {
    let (ann, bob) = (Actor::new("ann", &["producer"]), Actor::new("bob", &["worker"]));
    let olga = Actor::new("olga", &["operator"]);
    let done = |answer: Answer| answer.subject.0.to_string();
    let submit = async |actor: &Actor, call| engine.submit(Submission::new(actor, call)).await.map(done);
    match *words {
        ["create", lifecycle] => {
            let fields = Map::new();
            submit(
                &ann,
                Call::Create(Create { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None }),
            )
            .await
        }
        ["lease", id] => {
            let (record, worker) = (record(id), "bob".into());
            submit(&bob, Call::Lease { record, worker, lease: None, start: true }).await
        }
        ["commit", id, token, finish] => {
            let (record, token, result) = (record(id), number(token), json!("done"));
            submit(&bob, Call::Commit { record, token, result, finish: finish == "finish" }).await
        }
        ["fail", id, token] => {
            let (record, token) = (record(id), number(token));
            let error = ErrorReport {
                code: "broken".into(),
                message: "broken".into(),
                retryable: Some(true),
                retry_after: None,
            };
            submit(&bob, Call::Fail { record, token, error }).await
        }
        // Any call, as the torture asks it.
        ["ask", question] => match serde_json::from_str(question) {
            Ok(question) => Ok(server::answer(engine, question).await?.to_string()),
            Err(error) => Ok(format!("what? {error}")),
        },
        // A lifecycle's file.
        ["define", text] => {
            let text: String = serde_json::from_str(text).unwrap_or_default();
            let files = Files { files: vec![File { name: "new.toml".to_owned(), text: text.into() }] };
            Ok(engine.define(&files).await?.number().to_string())
        }
        ["key", name] => {
            let (owner, roles, name) = ("ann".into(), vec!["producer".into()], name.into());
            let asked = NewKey { owner, roles, lifecycles: Vec::new(), name, expires_at: None };
            Ok(engine.keys().create(&olga, asked).await?.0.id.to_string())
        }
        ["revoke", id] => Ok(engine.keys().revoke(&olga, id).await?.key.id.to_string()),
        // What is due on it is done first.
        ["look", id] => {
            let found = engine.get(&ann, record(id)).await?;
            Ok(found.map_or_else(|| "nothing".to_owned(), |record| record.state_name().to_string()))
        }
        // Whatever has ended, at once.
        ["prune"] => {
            let retention = Retention { records: Some(std::time::Duration::ZERO), ..Retention::default() };
            let options = PruneOptions { retention, ..PruneOptions::default() };
            Ok(engine.prune(&options).await?.records.to_string())
        }
        _ => Ok("what?".to_owned()),
    }
}

fn record(id: &str) -> RecordId {
    RecordId(id.parse().unwrap_or_default())
}

fn number(token: &str) -> Token {
    Token(token.parse().unwrap_or_default())
}
