//! A server that was told to end, while something is still under way.

mod house;

use std::io::Write as _;

use house::{on_sqlite, until};
use onceward_core::record::Actor;
use onceward_engine::{Job, Wanted, Working};
use onceward_server::Settings;
use onceward_testkit::http::{self, JSON};
use serde_json::{Map, json};
use tokio::sync::mpsc;

/// From then on nobody is handed a job: not over HTTP, and not inside the process either.
#[test]
fn workers_inside_the_process_take_no_more_jobs() {
    on_sqlite(Settings::default(), Vec::new(), async |mut house| {
        let (tell, mut told) = mpsc::unbounded_channel();
        house.engine.work(Working::on("house.job"), move |job: Job| {
            let _ = tell.send(job.record.id);
            async { Ok(json!("done")) }
        });
        let (engine, ann) = (house.engine.clone(), Actor::new("ann", &["producer"]));
        let job = async || engine.create(&ann, "house.job", Map::new()).await.expect("a job").subject;
        let first = job().await;
        assert_eq!(told.recv().await, Some(first), "it works");
        // A call whose body is still to come keeps the server, once it is under way: that others were answered meanwhile does not say so.
        let mut half = http::connect(house.address());
        let path = "/v1/lifecycles/house.job/records";
        http::begin(&mut half, "POST", path, &[JSON, ("content-length", "2")]);
        half.write_all(b"{").expect("it listens");
        until("half a body comes", || house.gauge("onceward_http_body_bytes") == 1);
        house.leave();
        until("it leaves", || house.send(None, "GET", "/readyz", None).status == 503);
        // Many, each on the disk before the next: a worker that looks for jobs would have had one of them by then.
        let mut ids = Vec::new();
        for _ in 0..50 {
            ids.push(job().await);
        }
        assert!(told.try_recv().is_err(), "no job more");
        // Whoever asks the engine itself still gets them, and nobody was before it.
        let wanted = Wanted { most: ids.len(), ..Wanted::one("house.job", "w") };
        let leased = engine.lease(&Actor::new("w", &["worker"]), &wanted).await.expect("leases");
        assert_eq!(leased.iter().map(|leased| leased.record.id).collect::<Vec<_>>(), ids);
        half.write_all(b"}").expect("it listens");
        assert_eq!(http::answer(&half).status, 201);
        house.close().await;
    });
}
