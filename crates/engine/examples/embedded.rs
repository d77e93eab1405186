//! A program with an engine inside: `cargo run -p onceward-engine --example embedded`.

use onceward_core::diagnostic::{File, Files};
use onceward_core::record::Actor;
use onceward_engine::{Config, Engine, Job, Working};
use onceward_store::{Clock, SqliteStore};
use serde_json::{Map, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Builder::new_multi_thread().enable_time().build()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join("onceward-embedded.db");
    let engine = Engine::open(SqliteStore::open(&file, Clock::machine())?, Config::default());
    let files = vec![File { name: "greeting.toml".to_owned(), text: include_str!("greeting.toml").into() }];
    engine.define(&Files { files }).await?;

    let (greeted, mut greetings) = tokio::sync::mpsc::unbounded_channel();
    engine.work(Working::on("example.greeting"), move |job: Job| {
        let _ = greeted.send(format!("hello, {}", job.field("name").as_str().unwrap_or("you")));
        async { Ok(json!({ "said": "hello" })) }
    });
    let ann = Actor::new("ann", &["producer"]);
    for name in ["Ada", "Grace", "Barbara"] {
        engine.create(&ann, "example.greeting", Map::from_iter([("name".to_owned(), json!(name))])).await?;
        println!("{}", greetings.recv().await.unwrap_or_default());
    }
    engine.close().await;
    println!("all of it stands in {}", file.display());
    Ok(())
}
