//! Prepares each kind of operation: the command for an engine process, and the observable change.

use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::diagnostic::InputFiles;
use onceward_core::record::{Actor, FencingToken};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{NewApiKey, Submission};
use onceward_store::{ListQuery, Store};
use onceward_testkit::{operator, user, worker};
use serde_json::{Value as Json, json};

use crate::support::lab_engine::{LabEngine, empty_fields, time_at};

/// A minimal lifecycle. The test replaces NUMBER to create another one.
const PLAIN_LIFECYCLE: &str = "language = 1\nlifecycle = \"lab.plainNUMBER\"\nabout = \"Is there\"\n[states]\nthere = { about = \"it is\", rest = true }\n[[on.create]]\ngo = \"-> there\"\n";

/// An operation that is ready to run.
pub(super) struct PendingOperation {
    pub(super) command: String,
    pub(super) at_secs: i64,
    pub(super) record: Option<RecordId>,
    /// Repeating it has no further effect.
    pub(super) is_idempotent: bool,
}

/// Creates the records that an operation of this kind needs.
pub(super) async fn prepare_database(kind: &str, lab: &LabEngine) {
    // Other records, so that they share pages with the tested one.
    for _ in 0..3 {
        lab.create("lab.seat", json!({ "room": "a", "size": 9 })).await;
        lab.create("execution.job", empty_fields()).await;
    }
    if kind == "resolve" {
        let files = InputFiles { files: onceward_testkit::systems::source_files("relay") };
        lab.engine.put_lifecycles(&files).await.expect("valid lifecycle files");
    }
}

/// Prepares one operation of a kind. `number` makes it unique.
pub(super) async fn prepare_operation(kind: &str, lab: &LabEngine, number: usize) -> PendingOperation {
    let ask_command = |actor: &Actor, call: &Call| format!("ask {}", json!({ "actor": actor, "call": call }));
    let operation =
        |words: String, is_safe| PendingOperation { command: words, at_secs: 0, record: None, is_idempotent: is_safe };
    let (ann, bob) = (user("ann"), worker("bob"));
    match kind {
        "create" => return operation("create lab.charge".to_owned(), false),
        "key" => return operation(format!("key k{number}"), false),
        "define" => {
            return operation(
                format!("define {}", json!(PLAIN_LIFECYCLE.replace("NUMBER", &number.to_string()))),
                true,
            );
        }
        // With an idempotency key.
        "once" => {
            let create = create_call("lab.charge", json!({}));
            let key = format!("key-{number}");
            return operation(format!("ask {}", json!({ "actor": ann, "key": key, "call": create })), true);
        }
        "revoke" => {
            let (owner, roles, name) = ("ann".into(), vec!["operator".into()], "old".into());
            let key = NewApiKey { owner, roles, lifecycles: Vec::new(), name, expires_at: None };
            let made = lab.engine.api_keys().create(&operator("olga"), key).await.expect("a key").0;
            return operation(format!("revoke {}", made.id), true);
        }
        "event" => {
            let record = lab.create("lab.seat", json!({ "room": format!("r{number}"), "size": 9 })).await;
            let input = serde_json::Map::new();
            let call = Call::Fire { record, event: "vacate".into(), input, token: None, if_version: None };
            return operation(ask_command(&ann, &call), false);
        }
        "resolve" => return operation(ask_command(&worker("oracle"), &prepare_verdict(lab, number).await), true),
        _ => {}
    }
    let record = lab.create_charge().await;
    let operation = |words, at, is_safe| PendingOperation {
        command: words,
        at_secs: at,
        record: Some(record),
        is_idempotent: is_safe,
    };
    if kind == "lease" {
        return operation(format!("lease {}", record.0), 0, false);
    }
    let lease = Some(Duration::from_secs(30));
    let lease = Call::Lease { record, worker: "bob".into(), lease, start: kind != "start" };
    let leased = lab.engine.submit(Submission::new(&bob, lease)).await.expect("job is ready");
    let token = leased.token.expect("a token");
    let error =
        FailureReport { code: "broken".into(), message: "broken".into(), retryable: Some(true), retry_after: None };
    let (call, is_safe) = match kind {
        "start" => (Call::Start { record, token }, true),
        "heartbeat" => (Call::Heartbeat { record, token, lease: Some(Duration::from_secs(60)) }, true),
        "commit" => return operation(format!("commit {} {} finish", record.0, token.0), 0, true),
        "finish" => {
            commit_job(lab, record, token, false).await;
            (Call::Finish { record, token }, true)
        }
        "fail" => (Call::Fail { record, token, error }, false),
        "yield" => (Call::Yield { record, token }, false),
        // Deletes all ended records.
        "prune" => {
            commit_job(lab, record, token, true).await;
            return operation("prune".to_owned(), 0, true);
        }
        // The lease has expired, so reading the job returns it to the queue.
        "due" => return operation(format!("look {}", record.0), 30, true),
        other => panic!("unknown kind: {other}"),
    };
    operation(ask_command(&bob, &call), 0, is_safe)
}

async fn commit_job(lab: &LabEngine, record: RecordId, token: FencingToken, finish: bool) {
    let commit = Call::Commit { record, token, result: json!("done"), finish };
    assert_eq!(lab.report("bob", commit).await, "ok");
}

fn create_call(lifecycle: &str, fields: Json) -> Call {
    let Json::Object(fields) = fields else { panic!("fields are an object") };
    Call::Create(CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None })
}

/// Relay: three submissions to a funded job, all being judged. The verdict on one of them resolves the job, pays, and
/// fails the others in one operation.
async fn prepare_verdict(lab: &LabEngine, number: usize) -> Call {
    let create = async |who: &str, lifecycle: &str, fields: Json| {
        let Call::Create(create) = create_call(lifecycle, fields) else { unreachable!() };
        let bytes = if lifecycle == "relay.submission" { b"a reply".to_vec() } else { Vec::new() };
        let done = if bytes.is_empty() {
            lab.engine.submit(Submission::new(&user(who), Call::Create(create))).await
        } else {
            lab.engine.create_with_payload(&user(who), create, bytes).await
        };
        done.expect("the record is created").subject
    };
    let fire = async |who: &str, record: RecordId, event: &str, input: Json| {
        let Json::Object(input) = input else { panic!("input is an object") };
        let call = Call::Fire { record, event: event.into(), input, token: None, if_version: None };
        lab.engine.submit(Submission::new(&user(who), call)).await.expect(event);
    };
    let (buyer, seller) = (format!("buyer{number}"), format!("seller{number}"));
    for name in [&buyer, &seller] {
        create(name, "relay.agent", json!({ "agent_id": name })).await;
    }
    let fields =
        json!({ "title": "t", "description": "d", "price": 1_000_000, "max_submissions": 9, "max_retries": 9 });
    let job = create(&buyer, "relay.job", fields).await;
    fire(&buyer, job, "fund", json!({ "tx_hash": format!("0x{number:064x}") })).await;
    fire(&seller, job, "claim", json!({})).await;
    let mut last_verdict = None;
    for _ in 0..3 {
        let record = create(&seller, "relay.submission", json!({ "job": job })).await;
        let lease = Call::Lease { record, worker: "oracle".into(), lease: None, start: true };
        let leased = lab.engine.submit(Submission::new(&worker("oracle"), lease)).await.expect("a lease");
        let (token, result) = (leased.token.expect("a token"), json!({ "score": 100, "steps": [] }));
        last_verdict = Some(Call::Commit { record, token, result, finish: true });
    }
    last_verdict.expect("three submissions")
}

/// Numbers that describe a database; each kind of operation changes at least one. They are: log entries, records, their
/// versions, lease ends, lifecycles, API keys and live API keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreSummary([i64; 7]);

impl StoreSummary {
    pub(super) const UNCHANGED: Self = Self([0; 7]);

    pub(super) async fn read<S: Store>(store: &S) -> Self {
        let query = ListQuery { limit: usize::MAX >> 1, ..ListQuery::default() };
        let records = store.list(&query).await.expect("a list").records;
        let versions = records.iter().map(|record| to_i64(record.version)).sum();
        let ends = records.iter().filter_map(|record| record.execution.as_ref());
        // Relative to the start of the test, so that the sum stays small.
        let ends = ends.map(|execution| execution.expires_at.micros() - time_at(0).micros()).sum();
        let keys = store.api_keys().await.expect("keys").keys;
        let live = keys.iter().filter(|key| key.revoked_at.is_none()).count();
        let lifecycles = store.refresh_catalog().await.expect("lifecycles").revision();
        let last = store.last_seq().await.expect("the log is readable");
        Self([to_i64(last), to_i64(records.len()), versions, ends, lifecycles.into(), to_i64(keys.len()), to_i64(live)])
    }

    /// Returns the difference to an earlier summary.
    pub(super) fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index] - before.0[index]))
    }
}

fn to_i64(number: impl TryInto<i64, Error: std::fmt::Debug>) -> i64 {
    number.try_into().expect("count fits")
}
