//! Health checks are answered while the database, the engine's threads or all connections are in use, and they tell of a
//! dead task.

mod support;

use std::io::{ErrorKind, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use futures_util::FutureExt as _;
use onceward_engine::{Engine, EngineConfig};
use onceward_server::ServerConfig;
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore};
use onceward_testkit::http::{self, JSON_CONTENT_TYPE};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{MessageFate, PostgresProxy, TempDir};
use support::{TestServer, run_blocking, wait_until, with_sqlite_server};

const CREATE_RECORD_PATH: &str = "/v1/lifecycles/house.job/records";

/// Also the other public paths. Before the first API key and after it.
#[test]
fn public_paths_do_not_wait_for_database() {
    run_blocking(async {
        for has_keys in [false, true] {
            let is_silent = Arc::new(AtomicBool::new(false));
            let swallows = Arc::clone(&is_silent);
            let database = PostgresServer::shared();
            let proxy = PostgresProxy::with_fates(database, move |_| {
                if swallows.load(Ordering::SeqCst) { MessageFate::Swallow } else { MessageFate::Forward }
            });
            let store = PostgresStore::open(&proxy.url(&database.create_database())).await.expect("a new database");
            let config = ServerConfig { drain_timeout: Duration::from_millis(100), ..ServerConfig::default() };
            let server = TestServer::start(AnyStore::Postgres(store), config).await;
            if has_keys {
                server.create_api_key("ops", &["operator"], &[]).await;
            }
            assert_eq!(server.send(None, "GET", "/readyz", None).status, 200);
            is_silent.store(true, Ordering::SeqCst);
            // The API keys are cached for a moment.
            while server.engine.api_keys().is_auth_required().now_or_never().is_some() {
                tokio::task::yield_now().await;
            }
            for path in ["/livez", "/openapi.json", "/errors", "/errors/overloaded"] {
                assert_eq!(server.send(None, "GET", path, None).status, 200, "{path}");
            }
            server.send(None, "GET", "/readyz", None).assert_problem(503, "store_unavailable");
            // A call that waits for the database may outlast the drain.
            let _ = server.stop().await;
        }
    });
}

/// A save that a slow disk blocks, blocks the engine's only thread in the same way. Connections, health checks and the
/// shutdown do not depend on it.
#[test]
fn health_and_shutdown_do_not_wait_for_engine_threads() {
    let engine_runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let folder = TempDir::new();
    let store = SqliteStore::open(folder.database_path(), Clock::machine()).expect("new database file");
    let engine = engine_runtime.block_on(async { Engine::open(AnyStore::Sqlite(store), EngineConfig::default()) });
    let (release, released) = channel::<()>();
    run_blocking(async {
        let config = ServerConfig { drain_timeout: Duration::from_millis(100), ..ServerConfig::default() };
        let server = TestServer::serve_engine(engine.clone(), config, Vec::new()).await;
        assert_eq!(server.send(None, "GET", "/readyz", None).status, 200);
        let (blocked, is_blocked) = channel();
        engine.runtime().spawn(async move {
            let _ = blocked.send(());
            let _ = released.recv();
        });
        is_blocked.recv().expect("the task runs");
        let mut waiting = http::connect(server.address());
        http::write_request(&mut waiting, "POST", CREATE_RECORD_PATH, &[], Some(b"{}"));
        assert_eq!(server.send(None, "GET", "/livez", None).status, 200);
        server.send(None, "GET", "/readyz", None).assert_problem(503, "store_unavailable");
        let stopped = server.stop().await;
        assert_eq!(stopped.expect_err("the engine cannot close").kind(), ErrorKind::TimedOut);
    });
    drop(release);
}

/// Connections that send nothing take all places, and then all of one address.
#[test]
fn health_check_is_answered_beyond_connection_limits() {
    let all = ServerConfig { max_connections: 2, address_share_percent: 100, ..ServerConfig::default() };
    let of_address = ServerConfig { max_connections: 10, address_share_percent: 20, ..ServerConfig::default() };
    for (config, status, code) in [(all, 503, "too_many_connections"), (of_address, 429, "address_share_exceeded")] {
        with_sqlite_server(config, Vec::new(), async |server| {
            let idle: Vec<_> = (0..2).map(|_| http::connect(server.address())).collect();
            // Accepted in order, so both hold their places when this connection is rejected.
            let rejected = http::send_request(server.address(), "GET", "/v1/records", &[], None);
            rejected.assert_problem(status, code);
            assert_eq!((rejected.header("retry-after"), rejected.header("connection")), (Some("1"), Some("close")));
            for path in ["/livez", "/readyz"] {
                let mut stream = http::connect(server.address());
                http::write_request(&mut stream, "GET", path, &[], None);
                let response = http::read_response(&stream);
                assert_eq!((response.status, response.header("connection")), (200, Some("close")), "{path}");
            }
            drop(idle);
            wait_until("free place", || server.send(None, "GET", "/v1/records", None).status == 200);
            server.close().await;
        });
    }
}

/// The connection of a health check serves other requests too.
#[test]
fn connection_serves_requests_after_health_check() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |server| {
        let mut stream = http::connect(server.address());
        for _ in 0..2 {
            http::write_request(&mut stream, "GET", "/livez", &[], None);
            assert_eq!(http::read_response(&stream).status, 200);
            http::write_request(&mut stream, "POST", CREATE_RECORD_PATH, &[], Some(b"{}"));
            assert_eq!(http::read_response(&stream).status, 201);
        }
        drop(stream);
        server.close().await;
    });
}

#[test]
fn dead_engine_task_fails_readiness_and_ends_server() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |server| {
        assert_eq!(server.send(None, "GET", "/readyz", None).status, 200);
        // This call keeps the server draining.
        let mut half_sent = http::connect(server.address());
        let headers = [JSON_CONTENT_TYPE, ("content-length", "2")];
        http::write_request_head(&mut half_sent, "POST", CREATE_RECORD_PATH, &headers);
        half_sent.write_all(b"{").expect("server listens");
        wait_until("half of the body arrived", || server.metric_value("onceward_http_body_bytes") == 1);
        server.engine.spawn_periodic("broken", Duration::ZERO, Duration::MAX, async |_| panic!("simulated bug"));
        wait_until("readiness fails", || server.send(None, "GET", "/readyz", None).status == 503);
        let ready = server.send(None, "GET", "/readyz", None);
        ready.assert_problem(503, "engine_task_died");
        assert!(ready.json()["detail"].as_str().expect("text").contains("`broken`"));
        assert_eq!(server.send(None, "GET", "/livez", None).status, 200);
        half_sent.write_all(b"}").expect("server listens");
        assert_eq!(http::read_response(&half_sent).status, 201);
        let error = server.stop().await.expect_err("a task died");
        assert_eq!(error.to_string(), "the task `broken` ended unexpectedly");
    });
}
