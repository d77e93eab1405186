//! A program with an engine inside: `cargo run -p onceward-engine --example embedded`.

use onceward_core::diagnostic::{File, Files};
use onceward_core::record::Actor;
use onceward_core::value::Value;
use onceward_engine::{Config, Engine, EngineError, Wanted};
use onceward_store::{Clock, SqliteStore};
use serde_json::{Map, json};

const GREETING: &str = r#"
language  = 1
lifecycle = "example.greeting"
about     = "Somebody to be greeted, once"

[states]
waiting = { about = "for a worker", ready = true }
greeted = { about = "done", final = true }

[fields]
name = { type = "string", max = 100 }

[work]
lease = "30s"

[[on.create]]
go   = "-> waiting"
take = ["name"]

[[on.lease]]
go = "waiting"

[[on.commit]]
go = "waiting -> greeted"

[[on.fail]]
go      = "waiting"
forever = true
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Builder::new_multi_thread().enable_time().build()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join("onceward-embedded.db");
    let engine = Engine::open(SqliteStore::open(&file, Clock::machine())?, Config::default());
    let files = vec![File { name: "greeting.toml".to_owned(), text: GREETING.into() }];
    engine.define(&Files { files }).await?;

    let worker = tokio::spawn(greet(engine.clone()));
    let ann = Actor::new("ann", &["producer"]);
    for name in ["Ada", "Grace", "Barbara"] {
        let made = engine.create(&ann, "example.greeting", Map::from_iter([("name".to_owned(), json!(name))])).await?;
        println!("to be greeted: {}", made.subject);
    }
    let greeted = worker.await??;
    engine.close().await;
    println!("{greeted} greeted; all of it stands in {}", file.display());
    Ok(())
}

/// A worker: takes jobs until none comes for a moment.
async fn greet(engine: Engine<SqliteStore>) -> Result<usize, EngineError> {
    let bob = Actor::new("bob", &["worker"]);
    let wait = std::time::Duration::from_millis(500);
    let wanted = Wanted { wait, ..Wanted::one("example.greeting", "greeter") };
    let mut greeted = 0;
    while let Some(held) = engine.lease(&bob, &wanted).await?.pop() {
        let name = held.record.field("name").map(Value::to_json).unwrap_or_default();
        println!("hello, {}", name.as_str().unwrap_or("you"));
        engine.commit(&bob, held.record.id, held.token, json!({ "said": "hello" }), true).await?;
        greeted += 1;
    }
    Ok(greeted)
}
