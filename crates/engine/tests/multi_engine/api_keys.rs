//! A key that one process revokes is rejected by the others within about a second.

use std::time::{Duration, Instant};

use onceward_engine::{EngineConfig, NewApiKey};
use onceward_store::Clock;
use onceward_testkit::postgres::PostgresServer;

use crate::support::{TEST_TIMEOUT, operator_actor, start_time};
use crate::{assert_verified, open_engines};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn revoked_key_is_rejected_by_other_engines() {
    let url = PostgresServer::shared().create_database();
    let engines = open_engines(2, &url, &Clock::manual(start_time()), &EngineConfig::default()).await;
    let (here, there) = (engines[0].api_keys(), engines[1].api_keys());
    assert!(!there.is_auth_required().await.unwrap());
    let new_key = NewApiKey { owner: "ann".into(), roles: vec!["operator".into()], ..NewApiKey::default() };
    let (key, text) = here.create(&operator_actor(), new_key.clone()).await.unwrap();
    let wait_until_live = |live: bool| {
        let (there, text) = (&there, text.reveal());
        async move {
            let since = Instant::now();
            while there.authenticate(&text).await.is_ok() != live {
                tokio::task::yield_now().await;
                assert!(since.elapsed() < TEST_TIMEOUT, "no timeout");
            }
            since.elapsed()
        }
    };
    wait_until_live(true).await;
    here.revoke(&operator_actor(), &key.id).await.unwrap();
    assert!(here.authenticate(&text.reveal()).await.is_err(), "the revoking engine rejects the key at once");
    let took = wait_until_live(false).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    // Two concurrent creations both succeed.
    let ops = operator_actor();
    let both = tokio::join!(here.create(&ops, new_key.clone()), there.create(&ops, new_key));
    assert!(both.0.is_ok() && both.1.is_ok());
    assert_eq!(here.list(&ops).await.unwrap().len(), 3);
    assert_verified(&url, start_time()).await;
}
