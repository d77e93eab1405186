//! Embeds an engine in a program: `cargo run -p onceward-engine --example embedded`.

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::Actor;
use onceward_engine::{Engine, EngineConfig, WorkerConfig, WorkerJob};
use onceward_store::{Clock, SqliteStore};
use serde_json::{Map, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Builder::new_multi_thread().enable_time().build()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join("onceward-embedded.db");
    let engine = Engine::open(SqliteStore::open(&file, Clock::machine())?, EngineConfig::default());
    let files = vec![InputFile { name: "greeting.toml".to_owned(), text: include_str!("greeting.toml").into() }];
    engine.put_lifecycles(&InputFiles { files }).await?;

    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    engine.work(WorkerConfig::for_lifecycle("example.greeting"), move |job: WorkerJob| {
        let _ = sender.send(format!("hello, {}", job.field("name").as_str().unwrap_or("you")));
        async { Ok(json!({ "said": "hello" })) }
    });
    let ann = Actor::new("ann", &["producer"]);
    for name in ["Ada", "Grace", "Barbara"] {
        engine.create(&ann, "example.greeting", Map::from_iter([("name".to_owned(), json!(name))])).await?;
        println!("{}", receiver.recv().await.unwrap_or_default());
    }
    engine.close().await;
    println!("the data is in {}", file.display());
    Ok(())
}
