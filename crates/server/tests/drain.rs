//! The drain while requests are still in flight.

mod support;

use std::io::Write as _;

use onceward_core::record::Actor;
use onceward_engine::{LeaseRequest, WorkerConfig, WorkerJob};
use onceward_server::ServerConfig;
use onceward_testkit::http::{self, JSON_CONTENT_TYPE};
use serde_json::{Map, json};
use support::{wait_until, with_sqlite_server};
use tokio::sync::mpsc;

#[test]
fn draining_server_gives_in_process_workers_no_jobs() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |mut server| {
        let (leased_sender, mut leased_jobs) = mpsc::unbounded_channel();
        server.engine.work(WorkerConfig::for_lifecycle("house.job"), move |job: WorkerJob| {
            let _ = leased_sender.send(job.record.id);
            async { Ok(json!("done")) }
        });
        let (engine, ann) = (server.engine.clone(), Actor::new("ann", &["producer"]));
        let job = async || engine.create(&ann, "house.job", Map::new()).await.expect("job").subject;
        let first = job().await;
        assert_eq!(leased_jobs.recv().await, Some(first), "worker runs");
        // This call keeps the server draining, but only once the server has registered it. Answers to other calls
        // do not prove that.
        let mut half_sent = http::connect(server.address());
        let path = "/v1/lifecycles/house.job/records";
        http::write_request_head(&mut half_sent, "POST", path, &[JSON_CONTENT_TYPE, ("content-length", "2")]);
        half_sent.write_all(b"{").expect("server listens");
        wait_until("half of the body arrived", || server.metric_value("onceward_http_body_bytes") == 1);
        server.request_shutdown();
        wait_until("server drains", || server.send(None, "GET", "/readyz", None).status == 503);
        // Many durable jobs in a row: a worker that still polled would have leased one by now.
        let mut ids = Vec::new();
        for _ in 0..50 {
            ids.push(job().await);
        }
        assert!(leased_jobs.try_recv().is_err(), "no job is leased");
        // The engine itself still leases, and no worker leased a job before.
        let wanted = LeaseRequest { max_jobs: ids.len(), ..LeaseRequest::single_job("house.job", "w") };
        let leased = engine.lease(&Actor::new("w", &["worker"]), &wanted).await.expect("leases");
        assert_eq!(leased.iter().map(|leased| leased.record.id).collect::<Vec<_>>(), ids);
        half_sent.write_all(b"}").expect("server listens");
        assert_eq!(http::read_response(&half_sent).status, 201);
        server.close().await;
    });
}
