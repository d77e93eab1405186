//! API keys: storage, edits and log entries.

use std::sync::Arc;

use onceward_core::hex;
use onceward_core::time::{Duration, Time};
use onceward_store::{AnyStore, ApiKey, ApiKeyEdit, ApiKeySaveResult, Store, StoreError};
use onceward_testkit::{operator, user};
use serde_json::json;

use crate::support::driver::StoreDriver;
use crate::support::{on_each_store, start_time, suite_files};

fn after_seconds(seconds: i64) -> Time {
    start_time().checked_add(Duration::from_secs(seconds)).unwrap()
}

fn api_key(number: u8) -> ApiKey {
    ApiKey {
        id: format!("key{number}").into(),
        hash: [number; 32],
        owner: "ann".into(),
        roles: vec!["producer".into(), "a \"quoted\" role".into()],
        lifecycles: (number == 2).then(|| vec!["suite.task".into()]),
        name: "Ann's \u{1f600}".into(),
        created_at: after_seconds(i64::from(number)),
        expires_at: (number == 2).then(|| after_seconds(1_000)),
        revoked_at: None,
    }
}

fn empty_edit(revision: u64, now: Time) -> ApiKeyEdit {
    ApiKeyEdit {
        actor: operator("olga"),
        expected_revision: revision,
        now,
        created: None,
        revoked: None,
        deleted: Vec::new(),
    }
}

async fn create_key(store: &AnyStore, revision: u64, number: u8) -> Result<ApiKeySaveResult, StoreError> {
    let made = api_key(number);
    store
        .edit_api_keys(&Arc::new(ApiKeyEdit { created: Some(made.clone()), ..empty_edit(revision, made.created_at) }))
        .await
}

#[test]
fn created_revoked_and_removed_keys_are_stored() {
    on_each_store(async |store, _| {
        let key_set = store.api_keys().await.unwrap();
        assert_eq!((key_set.revision, key_set.keys.len(), store.api_keys_revision().await.unwrap()), (0, 0, 0));
        for number in 1..=3 {
            let saved = create_key(store, u64::from(number) - 1, number).await.unwrap();
            assert_eq!(saved, ApiKeySaveResult::Saved(number.into()));
        }
        assert_eq!(store.api_keys().await.unwrap().keys, [api_key(1), api_key(2), api_key(3)]);
        let revocation = ApiKeyEdit { revoked: Some("key2".into()), ..empty_edit(3, after_seconds(50)) };
        assert_eq!(store.edit_api_keys(&Arc::new(revocation)).await.unwrap(), ApiKeySaveResult::Saved(4));
        let removal =
            ApiKeyEdit { deleted: vec!["key1".into()], created: Some(api_key(4)), ..empty_edit(4, after_seconds(60)) };
        assert_eq!(store.edit_api_keys(&Arc::new(removal)).await.unwrap(), ApiKeySaveResult::Saved(5));
        let key_set = store.api_keys().await.unwrap();
        assert_eq!(
            key_set.keys,
            [ApiKey { revoked_at: Some(after_seconds(50)), ..api_key(2) }, api_key(3), api_key(4)]
        );
        assert_eq!((key_set.revision, store.api_keys_revision().await.unwrap()), (5, 5));
    });
}

/// Nothing of the second edit is written.
#[test]
fn key_edit_on_stale_revision_conflicts() {
    on_each_store(async |store, _| {
        create_key(store, 0, 1).await.unwrap();
        assert_eq!(create_key(store, 0, 2).await.unwrap(), ApiKeySaveResult::Conflict);
        assert_eq!(create_key(store, 2, 2).await.unwrap(), ApiKeySaveResult::Conflict);
        assert_eq!(store.api_keys().await.unwrap().keys, [api_key(1)]);
        assert_eq!(store.log(0, 10).await.unwrap().len(), 1);
        assert_eq!(create_key(store, 1, 2).await.unwrap(), ApiKeySaveResult::Saved(2));
    });
}

/// INV-8: nothing of the edit is written.
#[test]
fn duplicate_key_id_or_secret_is_rejected() {
    on_each_store(async |store, _| {
        create_key(store, 0, 1).await.unwrap();
        let same_secret = ApiKey { hash: [1; 32], ..api_key(2) };
        let same_id = ApiKey { id: "key1".into(), ..api_key(2) };
        for made in [same_secret, same_id] {
            let edit = ApiKeyEdit { created: Some(made), ..empty_edit(1, after_seconds(9)) };
            let refused = store.edit_api_keys(&Arc::new(edit)).await;
            assert!(matches!(refused, Err(StoreError::Rejected(_))), "{refused:?}");
        }
        let key_set = store.api_keys().await.unwrap();
        assert_eq!((key_set.revision, key_set.keys), (1, vec![api_key(1)]));
        assert_eq!(store.log(0, 10).await.unwrap().len(), 1);
    });
}

/// Each change has its own log entry, with the actor and without the hash of the secret.
#[test]
fn key_changes_are_logged_without_secrets() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        driver.create_record(&user("ann"), "suite.box", json!({}), start_time()).await;
        create_key(store, 0, 7).await.unwrap();
        driver.create_record(&user("ann"), "suite.box", json!({}), start_time()).await;
        let revoked = ApiKeyEdit { revoked: Some("key7".into()), ..empty_edit(1, after_seconds(50)) };
        assert_eq!(store.edit_api_keys(&Arc::new(revoked)).await.unwrap(), ApiKeySaveResult::Saved(4));
        let log = store.log(0, 10).await.unwrap();
        assert_eq!(log.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(log.iter().all(|entry| !entry.text.contains(&hex::encode(&[7; 32]))));
        let (made, revoked) =
            (log[1].body().unwrap().api_key_change.unwrap(), log[3].body().unwrap().api_key_change.unwrap());
        assert_eq!((log[1].record, log[1].at, &*made.actor.id), (None, after_seconds(7), "olga"));
        let made = made.created.clone().expect("a key");
        assert_eq!(
            (&*made.id, &*made.owner, made.roles, &*made.name),
            ("key7", "ann", api_key(7).roles, "Ann's \u{1f600}")
        );
        assert_eq!((log[3].at, revoked.revoked.as_deref()), (after_seconds(50), Some("key7")));
    });
}
