//! API keys: made once, shown once, let in while they live, and told in the log without a secret.

use onceward_core::record::Actor;
use onceward_core::time::Duration;
use onceward_engine::{Config, EngineError, NewKey};
use onceward_store::Store as _;
use onceward_testkit::{operator, user, worker};
use serde_json::json;

use crate::stage::{JOB, code, job, leased, object, on_each, ops, start, unpolled};

fn asked(owner: &str, roles: &[&str]) -> NewKey {
    NewKey { owner: owner.into(), roles: roles.iter().map(|role| (*role).into()).collect(), ..NewKey::default() }
}

fn refused<T>(answer: Result<T, EngineError>) -> (u16, String) {
    let error = answer.err().expect("a refusal");
    (error.status(), error.code().to_owned())
}

/// INV-8: one key is one identity: its owner and its roles, and no others, as long as it lives.
#[test]
fn a_key_tells_who_calls_while_it_lives() {
    on_each(Config::default(), async |engine, clock| {
        let keys = engine.keys();
        assert!(!keys.are_asked_for().await.unwrap());
        let ends = start().checked_add(Duration::from_secs(100)).unwrap();
        let (first, text) = keys.create(&ops(), asked("ann", &["producer", "viewer", "producer"])).await.unwrap();
        let (_, other) =
            keys.create(&ops(), NewKey { expires_at: Some(ends), ..asked("bob", &["worker"]) }).await.unwrap();
        assert!(keys.are_asked_for().await.unwrap());
        let who = keys.authenticate(&text.reveal()).await.unwrap();
        assert_eq!((who.actor, who.key.as_ref()), (Actor::new("ann", &["producer", "viewer"]), Some(&first.id)));
        assert_eq!(keys.authenticate(&other.reveal()).await.unwrap().actor, worker("bob"));
        let mut wrong = text.reveal();
        wrong.pop();
        wrong.push(if text.reveal().ends_with('0') { '1' } else { '0' });
        let mixed = text.reveal().replace(&**text.id(), other.id());
        for wrong in ["", "ow_", &wrong, &mixed] {
            assert_eq!(refused(keys.authenticate(wrong).await), (401, "unauthorized".to_owned()));
        }
        // It ends at its very time.
        clock.set(ends);
        assert_eq!(refused(keys.authenticate(&other.reveal()).await).0, 401);
        assert_eq!(keys.list(&ops()).await.unwrap().len(), 2, "it is still listed");
    });
}

/// A revoked key is turned away at once. The door stays closed when no key is left.
#[test]
fn a_revoked_key_is_turned_away_at_once() {
    on_each(Config::default(), async |engine, clock| {
        let keys = engine.keys();
        let (key, text) = keys.create(&ops(), asked("ann", &["producer"])).await.unwrap();
        keys.authenticate(&text.reveal()).await.unwrap();
        clock.set(start().checked_add(Duration::from_secs(5)).unwrap());
        let revoked = keys.revoke(&ops(), &key.id).await.unwrap();
        assert_eq!(revoked.key.revoked_at, Some(clock.now()));
        assert_eq!(refused(keys.authenticate(&text.reveal()).await), (401, "unauthorized".to_owned()));
        clock.set(start().checked_add(Duration::from_secs(9)).unwrap());
        assert_eq!(keys.revoke(&ops(), &key.id).await.unwrap(), revoked, "it stays as it is");
        assert_eq!(refused(keys.revoke(&ops(), "nobody").await), (404, "no_such_key".to_owned()));
        assert!(keys.are_asked_for().await.unwrap());
    });
}

/// Who takes the last operator's key away is told so: keys that are revoked or over do not count, nor do others' roles.
#[test]
fn revoking_tells_how_many_operators_are_left() {
    on_each(Config::default(), async |engine, clock| {
        let keys = engine.keys();
        let ends = start().checked_add(Duration::from_secs(100)).unwrap();
        let (first, _) = keys.create(&ops(), asked("ann", &["viewer", "operator"])).await.unwrap();
        let (second, _) = keys.create(&ops(), asked("bob", &["operator"])).await.unwrap();
        keys.create(&ops(), NewKey { expires_at: Some(ends), ..asked("carl", &["operator"]) }).await.unwrap();
        let (other, _) = keys.create(&ops(), asked("eve", &["producer", "worker"])).await.unwrap();
        let left = async |id: &str| keys.revoke(&ops(), id).await.unwrap().operators_left;
        assert_eq!(left(&other.id).await, 3);
        assert_eq!(left(&first.id).await, 2);
        clock.set(ends);
        assert_eq!(left(&first.id).await, 1, "once more, and meanwhile carl's is over");
        assert_eq!(left(&second.id).await, 0);
    });
}

/// INV-9: keys are for operators; what cannot be one is refused.
#[test]
fn only_operators_make_keys_and_only_sound_ones() {
    on_each(Config::default(), async |engine, _| {
        let keys = engine.keys();
        for actor in [user("ann"), worker("bob"), Actor::new("eve", &["viewer"]), Actor::new("eve", &[])] {
            assert_eq!(refused(keys.create(&actor, asked("ann", &["operator"])).await), (403, "forbidden".to_owned()));
            assert_eq!(refused(keys.list(&actor).await).0, 403);
            assert_eq!(refused(keys.revoke(&actor, "x").await).0, 403);
        }
        let narrow = NewKey { lifecycles: vec![JOB.into()], ..asked("ann", &["producer"]) };
        let over = NewKey { expires_at: Some(start()), ..asked("ann", &["producer"]) };
        for wrong in [
            asked("", &["viewer"]),
            asked("engine", &["viewer"]),
            asked("a\nb", &["viewer"]),
            asked(&"a".repeat(1_001), &["viewer"]),
            asked("ann", &[]),
            asked("ann", &["engine"]),
            asked("ann", &["view er"]),
            NewKey { name: "n".repeat(101).into(), ..asked("ann", &["viewer"]) },
            narrow,
            over,
        ] {
            assert_eq!(refused(keys.create(&ops(), wrong).await), (422, "bad_api_key".to_owned()));
        }
        assert!(keys.list(&ops()).await.unwrap().is_empty() && !keys.are_asked_for().await.unwrap());
    });
}

/// INV-9: leasing is for workers, and a narrow key leases from its own lifecycles only.
#[test]
fn a_narrow_key_leases_narrowly() {
    on_each(Config::default(), async |engine, _| {
        let keys = engine.keys();
        let narrow = NewKey { lifecycles: vec![JOB.into()], ..asked("bob", &["worker"]) };
        let mut who = Vec::new();
        for new in [narrow, asked("bob", &["worker"]), asked("ann", &["producer"]), asked("eve", &["viewer"])] {
            let (_, text) = keys.create(&ops(), new).await.unwrap();
            who.push(keys.authenticate(&text.reveal()).await.unwrap());
        }
        let may = |lifecycles: &[&str]| {
            let lifecycles: Vec<std::sync::Arc<str>> = lifecycles.iter().map(|name| (*name).into()).collect();
            who.iter().map(|who| who.may_lease(&lifecycles).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(may(&[JOB]), [true, true, false, false]);
        assert_eq!(may(&["race.errand"]), [false, true, false, false]);
        assert_eq!(may(&[JOB, "race.errand"]), [false, true, false, false]);
    });
}

/// INV-9: a worker's key creates nothing and moves nothing of its owner's; viewers look only. Denials are in the log.
#[test]
fn a_worker_works_and_a_viewer_looks() {
    on_each(unpolled(), async |engine, _| {
        for actor in [worker("ann"), Actor::new("ann", &["viewer"]), Actor::new("ann", &["metrics", "viewer"])] {
            assert_eq!(code(&engine.create(&actor, JOB, object(json!({}))).await), "not_allowed");
        }
        let log = engine.store().log(0, 10).await.unwrap();
        let denials = log.iter().filter(|entry| entry.body().unwrap().refusal.is_some_and(|refusal| refusal.denial));
        assert_eq!(denials.count(), 3);
        engine.create(&Actor::new("ann", &["worker", "producer"]), JOB, object(json!({}))).await.unwrap();
    });
}

/// INV-9: a worker that never held a job hears of it what it would hear of none; one that did is told how it stands.
#[test]
fn a_report_tells_a_stranger_nothing() {
    on_each(Config::default(), async |engine, _| {
        let id = job(engine).await;
        let held = leased(engine).await.expect("the job");
        let nobody = onceward_core::value::RecordId(uuid::Uuid::from_u128(0x0199_0000_0000_7000_8000_0000_0000_0001));
        let (bob, mallory) = (worker("bob"), worker("mallory"));
        for number in 0..2 {
            let told = engine.heartbeat(&mallory, id, held.token).await.expect_err("not its lease");
            let missing = engine.heartbeat(&mallory, nobody, held.token).await.expect_err("no record");
            let told = told.refusal().expect("a refusal").clone();
            assert_eq!(format!("{told:?}"), format!("{:?}", missing.refusal().expect("a refusal")));
            assert_eq!((&*told.code, told.record, told.state), ("lease_lost", None, None));
            if number == 0 {
                engine.commit(&bob, id, held.token, json!(1), true).await.unwrap();
            }
        }
        let late = engine.heartbeat(&bob, id, held.token).await.expect_err("it is over");
        assert_eq!(late.refusal().expect("a refusal").record, Some(id), "its own worker is told");
        assert_eq!(code(&engine.heartbeat(&user("eve"), id, held.token).await), "not_found");
    });
}

/// Changes of keys are in the log, and only operators read them there; a follower is woken.
#[test]
fn changes_are_in_the_log_for_operators() {
    on_each(unpolled(), async |engine, _| {
        let mut stream = engine.stream(&ops(), 0);
        let next = tokio::spawn(async move { stream.next().await });
        let (key, text) = engine.keys().create(&operator("olga"), asked("ann", &["producer"])).await.unwrap();
        let entry = next.await.unwrap().unwrap().unwrap();
        let told = entry.body().unwrap().key.unwrap().into_owned();
        assert_eq!((&*told.actor.id, &told.made.as_ref().unwrap().id), ("olga", &key.id));
        let secret = text.reveal().rsplit('_').next().unwrap().to_owned();
        assert!(!entry.text.contains(&secret) && !format!("{key:?}{text:?}{entry:?}").contains(&secret));
        let id = job(engine).await;
        let mut own = engine.stream(&user("ann"), 0);
        assert_eq!(own.next().await.unwrap().unwrap().record, Some(id), "the first that an owner sees");
    });
}
