//! Background errors are logged when they begin, not each time.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use onceward_engine::{CheckError, CheckRegistry, CheckRequest, Engine, EngineConfig, WorkerConfig};
use onceward_store::{Clock, MemoryStore, Store};
use onceward_testkit::user;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, span};

use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, config_without_polling, create_job, json_object, lifecycle_files, reply_code,
    start_time,
};

/// Records warnings.
#[derive(Clone, Default)]
struct WarningRecorder(Arc<Mutex<Vec<String>>>);

struct EventText(String);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for WarningRecorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl WarningRecorder {
    fn events_containing(&self, what: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|text| text.contains(what)).cloned().collect()
    }

    /// Runs in one thread, so that the recorder gets all of its events and no others.
    fn record_during<T>(&self, future: impl Future<Output = T>) -> T {
        // With a single dispatcher, tracing caches the interest of a call site by the first thread that reaches it.
        static SECOND_DISPATCH: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(WarningRecorder::default()));
        LazyLock::force(&SECOND_DISPATCH);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tracing::subscriber::with_default(self.clone(), || runtime.block_on(future))
    }
}

async fn open_memory_engine(config: EngineConfig) -> Engine<MemoryStore> {
    let engine = Engine::open(MemoryStore::new(Clock::manual(start_time())), config);
    engine.put_lifecycles(&lifecycle_files()).await.expect("valid files");
    engine
}

/// DOC-15: the log contains no payload, even if the handler panics with it. A success or another reason logs again.
#[test]
fn check_failure_is_logged_once_per_reason_without_payload() {
    let turn = Arc::new(AtomicUsize::new(0));
    let turns = Arc::clone(&turn);
    let checks = CheckRegistry::default().register("race.note", "decent", move |request: CheckRequest| {
        let turn = turns.load(Ordering::SeqCst);
        async move {
            match turn {
                0 => Err(CheckError("the guard is down".to_owned())),
                1 => panic!("cannot read {:?}", request.query.arguments["text"]),
                _ => Ok(json_object(json!({ "fine": true }))),
            }
        }
    });
    let recorder = WarningRecorder::default();
    recorder.record_during(async {
        let engine = open_memory_engine(EngineConfig { checks, ..config_without_polling() }).await;
        for now in [0, 0, 0, 1, 1, 2, 0, 0] {
            turn.store(now, Ordering::SeqCst);
            let reply = engine.create(&user("ann"), "race.note", json_object(json!({ "text": "my secret" }))).await;
            assert_eq!(reply_code(&reply), if now == 2 { "ok" } else { "check_unavailable" });
        }
        engine.close().await;
    });
    let events = recorder.events_containing("external check failed");
    assert_eq!(events.len(), 3, "{events:?}");
    for (text, expected) in events.iter().zip(["the guard is down", "panicked", "the guard is down"]) {
        assert!(text.contains(expected) && text.contains("race.note") && text.contains("decent"), "{text}");
    }
    assert_eq!(recorder.events_containing("secret"), [""; 0], "the log contains no payload");
}

#[test]
fn worker_without_role_is_logged_once() {
    let recorder = WarningRecorder::default();
    recorder.record_during(async {
        let engine =
            open_memory_engine(EngineConfig { poll_interval: Duration::from_millis(1), ..EngineConfig::default() })
                .await;
        create_job(&engine).await;
        let working = WorkerConfig { actor: user("eve"), ..WorkerConfig::for_lifecycle(JOB_LIFECYCLE) };
        engine.work(working, |_| async { Ok(json!(null)) });
        let tried = async {
            while engine.store().log(0, 100).await.expect("the log").len() < 4 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, tried).await.expect("the worker tries three times");
        engine.close().await;
    });
    let events = recorder.events_containing("in-process worker could not lease jobs");
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains(JOB_LIFECYCLE) && events[0].contains("code"), "{events:?}");
}
