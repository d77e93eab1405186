//! API keys: creation, authentication, revocation, and log entries without secrets.

use onceward_core::record::Actor;
use onceward_core::time::Duration;
use onceward_engine::{EngineConfig, EngineError, NewApiKey};
use onceward_store::Store as _;
use onceward_testkit::{operator, user, worker};
use serde_json::json;

use crate::support::{
    JOB_LIFECYCLE, config_without_polling, create_job, json_object, lease_one, on_each_store, operator_actor,
    reply_code, start_time,
};

fn new_key(owner: &str, roles: &[&str]) -> NewApiKey {
    NewApiKey { owner: owner.into(), roles: roles.iter().map(|role| (*role).into()).collect(), ..NewApiKey::default() }
}

fn status_and_code<T>(answer: Result<T, EngineError>) -> (u16, String) {
    let error = answer.err().expect("a refusal");
    (error.status(), error.code().to_owned())
}

/// INV-8
#[test]
fn api_key_authenticates_as_its_owner_until_expiry() {
    on_each_store(EngineConfig::default(), async |engine, clock| {
        let keys = engine.api_keys();
        assert!(!keys.is_auth_required().await.unwrap());
        let ends = start_time().checked_add(Duration::from_secs(100)).unwrap();
        let (first, text) =
            keys.create(&operator_actor(), new_key("ann", &["producer", "operator", "producer"])).await.unwrap();
        let (_, other) = keys
            .create(&operator_actor(), NewApiKey { expires_at: Some(ends), ..new_key("bob", &["worker"]) })
            .await
            .unwrap();
        assert!(keys.is_auth_required().await.unwrap());
        let identity = keys.authenticate(&text.reveal()).await.unwrap();
        assert_eq!(
            (identity.actor, identity.api_key_id.as_ref()),
            (Actor::new("ann", &["operator", "producer"]), Some(&first.id))
        );
        assert_eq!(keys.authenticate(&other.reveal()).await.unwrap().actor, worker("bob"));
        let mut wrong = text.reveal();
        wrong.pop();
        wrong.push(if text.reveal().ends_with('0') { '1' } else { '0' });
        let mixed = text.reveal().replace(&**text.id(), other.id());
        for wrong in ["", "ow_", &wrong, &mixed] {
            assert_eq!(status_and_code(keys.authenticate(wrong).await), (401, "unauthorized".to_owned()));
        }
        // The expiry time itself counts as expired.
        clock.set(ends);
        assert_eq!(status_and_code(keys.authenticate(&other.reveal()).await).0, 401);
        assert_eq!(keys.list(&operator_actor()).await.unwrap().len(), 2, "a revoked key is still listed");
    });
}

/// The first key ends open access, and only an operator's can create the next.
#[test]
fn first_key_without_operator_role_is_refused() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let keys = engine.api_keys();
        for roles in [&["worker"][..], &["producer", "viewer"], &["metrics"]] {
            let refused = keys.create(&operator_actor(), new_key("ann", roles)).await;
            assert_eq!(status_and_code(refused), (409, "operator_key_required".to_owned()));
        }
        assert!(!keys.is_auth_required().await.unwrap(), "a refused key leaves the server open");
        let (first, _) = keys.create(&operator_actor(), new_key("ops", &["operator", "worker"])).await.unwrap();
        keys.create(&operator_actor(), new_key("ann", &["worker"])).await.unwrap();
        // Once keys are required, a program with access to the database may do without an operator.
        keys.revoke(&operator_actor(), &first.id).await.unwrap();
        keys.create(&operator_actor(), new_key("bob", &["worker"])).await.unwrap();
    });
}

/// Authentication stays required when no key is left.
#[test]
fn revoked_key_is_rejected_immediately() {
    on_each_store(EngineConfig::default(), async |engine, clock| {
        let keys = engine.api_keys();
        let (key, text) = keys.create(&operator_actor(), new_key("ann", &["operator"])).await.unwrap();
        keys.authenticate(&text.reveal()).await.unwrap();
        clock.set(start_time().checked_add(Duration::from_secs(5)).unwrap());
        let revoked = keys.revoke(&operator_actor(), &key.id).await.unwrap();
        assert_eq!(revoked.key.revoked_at, Some(clock.now()));
        assert_eq!(status_and_code(keys.authenticate(&text.reveal()).await), (401, "unauthorized".to_owned()));
        clock.set(start_time().checked_add(Duration::from_secs(9)).unwrap());
        assert_eq!(keys.revoke(&operator_actor(), &key.id).await.unwrap(), revoked, "a second revoke changes nothing");
        assert_eq!(
            status_and_code(keys.revoke(&operator_actor(), "unknown").await),
            (404, "api_key_not_found".to_owned())
        );
        assert!(keys.is_auth_required().await.unwrap());
    });
}

/// Revoked and expired keys do not count, nor do other roles.
#[test]
fn revoke_reports_remaining_operator_keys() {
    on_each_store(EngineConfig::default(), async |engine, clock| {
        let keys = engine.api_keys();
        let ends = start_time().checked_add(Duration::from_secs(100)).unwrap();
        let (first, _) = keys.create(&operator_actor(), new_key("ann", &["viewer", "operator"])).await.unwrap();
        let (second, _) = keys.create(&operator_actor(), new_key("bob", &["operator"])).await.unwrap();
        keys.create(&operator_actor(), NewApiKey { expires_at: Some(ends), ..new_key("carl", &["operator"]) })
            .await
            .unwrap();
        let (other, _) = keys.create(&operator_actor(), new_key("eve", &["producer", "worker"])).await.unwrap();
        let left = async |id: &str| keys.revoke(&operator_actor(), id).await.unwrap().operators_left;
        assert_eq!(left(&other.id).await, 3);
        assert_eq!(left(&first.id).await, 2);
        clock.set(ends);
        assert_eq!(left(&first.id).await, 1, "carl's key has expired meanwhile");
        assert_eq!(left(&second.id).await, 0);
    });
}

/// INV-9
#[test]
fn creating_keys_requires_operator_and_valid_fields() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let keys = engine.api_keys();
        for actor in [user("ann"), worker("bob"), Actor::new("eve", &["viewer"]), Actor::new("eve", &[])] {
            assert_eq!(
                status_and_code(keys.create(&actor, new_key("ann", &["operator"])).await),
                (403, "forbidden".to_owned())
            );
            assert_eq!(status_and_code(keys.list(&actor).await).0, 403);
            assert_eq!(status_and_code(keys.revoke(&actor, "x").await).0, 403);
        }
        let narrow = NewApiKey { lifecycles: vec![JOB_LIFECYCLE.into()], ..new_key("ann", &["producer"]) };
        let over = NewApiKey { expires_at: Some(start_time()), ..new_key("ann", &["producer"]) };
        for wrong in [
            new_key("", &["viewer"]),
            new_key("engine", &["viewer"]),
            new_key("a\nb", &["viewer"]),
            new_key(&"a".repeat(1_001), &["viewer"]),
            new_key("ann", &[]),
            new_key("ann", &["engine"]),
            new_key("ann", &["view er"]),
            NewApiKey { name: "n".repeat(101).into(), ..new_key("ann", &["viewer"]) },
            narrow,
            over,
        ] {
            assert_eq!(
                status_and_code(keys.create(&operator_actor(), wrong).await),
                (422, "invalid_api_key".to_owned())
            );
        }
        assert!(keys.list(&operator_actor()).await.unwrap().is_empty() && !keys.is_auth_required().await.unwrap());
    });
}

/// INV-9: also requires the role `worker`.
#[test]
fn restricted_key_leases_only_from_its_lifecycles() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let keys = engine.api_keys();
        let narrow = NewApiKey { lifecycles: vec![JOB_LIFECYCLE.into()], ..new_key("bob", &["worker"]) };
        keys.create(&operator_actor(), new_key("ops", &["operator"])).await.unwrap();
        let mut identities = Vec::new();
        for new in [narrow, new_key("bob", &["worker"]), new_key("ann", &["producer"]), new_key("eve", &["viewer"])] {
            let (_, text) = keys.create(&operator_actor(), new).await.unwrap();
            identities.push(keys.authenticate(&text.reveal()).await.unwrap());
        }
        let may = |lifecycles: &[&str]| {
            let lifecycles: Vec<std::sync::Arc<str>> = lifecycles.iter().map(|name| (*name).into()).collect();
            identities.iter().map(|who| who.require_lease(&lifecycles).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(may(&[JOB_LIFECYCLE]), [true, true, false, false]);
        assert_eq!(may(&["race.errand"]), [false, true, false, false]);
        assert_eq!(may(&[JOB_LIFECYCLE, "race.errand"]), [false, true, false, false]);
    });
}

/// INV-9: denials are logged.
#[test]
fn worker_and_viewer_cannot_create_records() {
    on_each_store(config_without_polling(), async |engine, _| {
        for actor in [worker("ann"), Actor::new("ann", &["viewer"]), Actor::new("ann", &["metrics", "viewer"])] {
            assert_eq!(reply_code(&engine.create(&actor, JOB_LIFECYCLE, json_object(json!({}))).await), "not_allowed");
        }
        let log = engine.store().log(0, 10).await.unwrap();
        let denials = log.iter().filter(|entry| entry.body().unwrap().refusal.is_some_and(|refusal| refusal.denial));
        assert_eq!(denials.count(), 3);
        engine
            .create(&Actor::new("ann", &["worker", "producer"]), JOB_LIFECYCLE, json_object(json!({})))
            .await
            .unwrap();
    });
}

/// INV-9: a worker that never held the job gets the reply of an unknown job; a former holder sees the state.
#[test]
fn report_of_other_worker_reveals_nothing() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let id = create_job(engine).await;
        let held = lease_one(engine).await.expect("the job");
        let unknown_id =
            onceward_core::value::RecordId(uuid::Uuid::from_u128(0x0199_0000_0000_7000_8000_0000_0000_0001));
        let (bob, mallory) = (worker("bob"), worker("mallory"));
        for number in 0..2 {
            let error =
                engine.heartbeat(&mallory, id, held.token).await.expect_err("the lease belongs to another worker");
            let missing = engine.heartbeat(&mallory, unknown_id, held.token).await.expect_err("no record");
            let refusal = error.refusal().expect("a refusal").clone();
            assert_eq!(format!("{refusal:?}"), format!("{:?}", missing.refusal().expect("a refusal")));
            assert_eq!((&*refusal.code, refusal.record, refusal.state), ("lease_lost", None, None));
            if number == 0 {
                engine.commit(&bob, id, held.token, json!(1), true).await.unwrap();
            }
        }
        let late = engine.heartbeat(&bob, id, held.token).await.expect_err("the lease has ended");
        assert_eq!(
            late.refusal().expect("a refusal").record,
            Some(id),
            "the refusal names the record to its own worker"
        );
        assert_eq!(reply_code(&engine.heartbeat(&user("eve"), id, held.token).await), "not_found");
    });
}

/// A log stream is woken.
#[test]
fn key_changes_are_logged_without_secret_for_operators() {
    on_each_store(config_without_polling(), async |engine, _| {
        let mut stream = engine.stream(&operator_actor(), 0);
        let next = tokio::spawn(async move { stream.next().await });
        let (key, text) = engine.api_keys().create(&operator("olga"), new_key("ann", &["operator"])).await.unwrap();
        let entry = next.await.unwrap().unwrap().unwrap();
        let change = entry.body().unwrap().api_key_change.unwrap().into_owned();
        assert_eq!((&*change.actor.id, &change.created.as_ref().unwrap().id), ("olga", &key.id));
        let secret = text.reveal().rsplit('_').next().unwrap().to_owned();
        assert!(!entry.text.contains(&secret) && !format!("{key:?}{text:?}{entry:?}").contains(&secret));
        let id = create_job(engine).await;
        let mut own = engine.stream(&user("ann"), 0);
        assert_eq!(own.next().await.unwrap().unwrap().record, Some(id), "the first record that the owner may read");
    });
}
