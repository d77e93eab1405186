//! A key that one process revokes is turned away by the others within a second or so.

use std::time::{Duration, Instant};

use onceward_engine::{Config, NewKey};
use onceward_store::Clock;
use onceward_testkit::postgres::Server;

use crate::stage::{LONG, ops, start, wait};
use crate::{engines, proven};

#[test]
fn a_key_is_revoked_everywhere() {
    wait(async {
        let url = Server::shared().database();
        let engines = engines(2, &url, &Clock::manual(start()), &Config::default()).await;
        let (here, there) = (engines[0].keys(), engines[1].keys());
        assert!(!there.are_asked_for().await.unwrap());
        let asked = NewKey { owner: "ann".into(), roles: vec!["producer".into()], ..NewKey::default() };
        let (key, text) = here.create(&ops(), asked.clone()).await.unwrap();
        let until = |live: bool| {
            let (there, text) = (&there, text.reveal());
            async move {
                let since = Instant::now();
                while there.authenticate(&text).await.is_ok() != live {
                    tokio::task::yield_now().await;
                    assert!(since.elapsed() < LONG, "in time");
                }
                since.elapsed()
            }
        };
        until(true).await;
        here.revoke(&ops(), &key.id).await.unwrap();
        assert!(here.authenticate(&text.reveal()).await.is_err(), "at once here");
        let took = until(false).await;
        assert!(took < Duration::from_secs(20), "{took:?}");
        // Two who make keys at once both do.
        let ops = ops();
        let both = tokio::join!(here.create(&ops, asked.clone()), there.create(&ops, asked));
        assert!(both.0.is_ok() && both.1.is_ok());
        assert_eq!(here.list(&ops).await.unwrap().len(), 3);
        proven(&url, start()).await;
    });
}
