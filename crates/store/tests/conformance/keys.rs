//! API keys are kept, changed one at a time, and told in the log without a secret.

use std::sync::Arc;

use onceward_core::hex;
use onceward_core::time::{Duration, Time};
use onceward_store::{AnyStore, ApiKey, KeyEdit, KeySave, Store, StoreError};
use onceward_testkit::{operator, user};
use serde_json::json;

use crate::stage::driver::Driver;
use crate::stage::{on_each, start, suite};

fn later(seconds: i64) -> Time {
    start().checked_add(Duration::from_secs(seconds)).unwrap()
}

fn key(number: u8) -> ApiKey {
    ApiKey {
        id: format!("key{number}").into(),
        hash: [number; 32],
        owner: "ann".into(),
        roles: vec!["producer".into(), "a \"quoted\" role".into()],
        lifecycles: (number == 2).then(|| vec!["suite.task".into()]),
        name: "Ann's \u{1f600}".into(),
        created_at: later(i64::from(number)),
        expires_at: (number == 2).then(|| later(1_000)),
        revoked_at: None,
    }
}

fn nothing(since: u64, now: Time) -> KeyEdit {
    KeyEdit { actor: operator("olga"), since, now, made: None, revoked: None, forgotten: Vec::new() }
}

async fn make(store: &AnyStore, since: u64, number: u8) -> Result<KeySave, StoreError> {
    let made = key(number);
    store.edit_keys(&Arc::new(KeyEdit { made: Some(made.clone()), ..nothing(since, made.created_at) })).await
}

/// What was made is there, with all that belongs to it; what was revoked says when; what is forgotten is gone.
#[test]
fn keys_are_kept() {
    on_each(async |store, _| {
        let kept = store.keys().await.unwrap();
        assert_eq!((kept.changes, kept.keys.len(), store.key_changes().await.unwrap()), (0, 0, 0));
        for number in 1..=3 {
            let saved = make(store, u64::from(number) - 1, number).await.unwrap();
            assert_eq!(saved, KeySave::Saved(number.into()));
        }
        assert_eq!(store.keys().await.unwrap().keys, [key(1), key(2), key(3)]);
        let revoked = KeyEdit { revoked: Some("key2".into()), ..nothing(3, later(50)) };
        assert_eq!(store.edit_keys(&Arc::new(revoked)).await.unwrap(), KeySave::Saved(4));
        let forgotten = KeyEdit { forgotten: vec!["key1".into()], made: Some(key(4)), ..nothing(4, later(60)) };
        assert_eq!(store.edit_keys(&Arc::new(forgotten)).await.unwrap(), KeySave::Saved(5));
        let kept = store.keys().await.unwrap();
        assert_eq!(kept.keys, [ApiKey { revoked_at: Some(later(50)), ..key(2) }, key(3), key(4)]);
        assert_eq!((kept.changes, store.key_changes().await.unwrap()), (5, 5));
    });
}

/// Two who change the keys at once do not both: the second looks again. Nothing of it is written.
#[test]
fn a_change_rests_on_what_was_read() {
    on_each(async |store, _| {
        make(store, 0, 1).await.unwrap();
        assert_eq!(make(store, 0, 2).await.unwrap(), KeySave::Conflict);
        assert_eq!(make(store, 2, 2).await.unwrap(), KeySave::Conflict);
        assert_eq!(store.keys().await.unwrap().keys, [key(1)]);
        assert_eq!(store.log(0, 10).await.unwrap().len(), 1);
        assert_eq!(make(store, 1, 2).await.unwrap(), KeySave::Saved(2));
    });
}

/// INV-8: no two keys have one id or one secret, whatever our code does. Nothing of it is written.
#[test]
fn no_two_keys_share_an_id_or_a_secret() {
    on_each(async |store, _| {
        make(store, 0, 1).await.unwrap();
        let same_secret = ApiKey { hash: [1; 32], ..key(2) };
        let same_id = ApiKey { id: "key1".into(), ..key(2) };
        for made in [same_secret, same_id] {
            let edit = KeyEdit { made: Some(made), ..nothing(1, later(9)) };
            let refused = store.edit_keys(&Arc::new(edit)).await;
            assert!(matches!(refused, Err(StoreError::Rejected(_))), "{refused:?}");
        }
        let kept = store.keys().await.unwrap();
        assert_eq!((kept.changes, kept.keys), (1, vec![key(1)]));
        assert_eq!(store.log(0, 10).await.unwrap().len(), 1);
    });
}

/// Each change has an entry of its own among those of records, with who did it, and neither a secret nor its hash.
#[test]
fn changes_are_told_in_the_log() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        driver.create(&user("ann"), "suite.box", json!({}), start()).await;
        make(store, 0, 7).await.unwrap();
        driver.create(&user("ann"), "suite.box", json!({}), start()).await;
        let revoked = KeyEdit { revoked: Some("key7".into()), ..nothing(1, later(50)) };
        assert_eq!(store.edit_keys(&Arc::new(revoked)).await.unwrap(), KeySave::Saved(4));
        let log = store.log(0, 10).await.unwrap();
        assert_eq!(log.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(log.iter().all(|entry| !entry.text.contains(&hex::encode(&[7; 32]))));
        let (made, revoked) = (log[1].body().unwrap().key.unwrap(), log[3].body().unwrap().key.unwrap());
        assert_eq!((log[1].record, log[1].at, &*made.actor.id), (None, later(7), "olga"));
        let made = made.made.clone().expect("a key");
        assert_eq!(
            (&*made.id, &*made.owner, made.roles, &*made.name),
            ("key7", "ann", key(7).roles, "Ann's \u{1f600}")
        );
        assert_eq!((log[3].at, revoked.revoked.as_deref()), (later(50), Some("key7")));
    });
}
