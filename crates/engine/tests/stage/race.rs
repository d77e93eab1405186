//! Many after the same thing at once.

use std::sync::Arc;

use onceward_engine::{Answer, Engine, EngineError, Submission};
use onceward_store::AnyStore;
use tokio::sync::Barrier;

use super::code;

/// So many tasks, each at an engine in turn, all at once; how many had it, and what the others were told.
pub(crate) async fn race<F>(
    engines: &[Engine<AnyStore>],
    tasks: usize,
    run: impl Fn(Engine<AnyStore>, usize) -> F,
) -> (usize, Vec<String>)
where
    F: Future<Output = Result<Answer, EngineError>> + Send + 'static,
{
    let line = Arc::new(Barrier::new(tasks));
    let runner = |number: usize| {
        let (line, running) = (Arc::clone(&line), run(engines[number % engines.len()].clone(), number));
        tokio::spawn(async move {
            line.wait().await;
            running.await
        })
    };
    let tasks: Vec<_> = (0..tasks).map(runner).collect();
    let (mut won, mut told) = (0, Vec::new());
    for task in tasks {
        match task.await.expect("no panic") {
            Ok(answer) if answer.already.is_none() => won += 1,
            reply => told.push(code(&reply)),
        }
    }
    (won, told)
}

pub(crate) async fn submit(engine: Engine<AnyStore>, submission: Submission) -> Result<Answer, EngineError> {
    engine.submit(submission).await
}
