//! Builds worlds of the shipped systems: a relay job that is resolved among its submissions, and a mesh claim that is
//! rejected below many dependent claims.

use onceward_core::decide::{Call, CheckAnswer, CreateRecord, Decision, Operation, Snapshot, decide};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, FencingToken, PayloadRef};
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json, json};

use crate::worlds::{NOW, expect_changes};

/// The shipped files of `systems/relay` and `systems/mesh`, so that the benchmark measures what users run.
pub(crate) const SYSTEM_FILES: [(&str, &str); 13] = [
    ("relay/agent.toml", include_str!("../../../../systems/relay/agent.toml")),
    ("relay/dispute.toml", include_str!("../../../../systems/relay/dispute.toml")),
    ("relay/job.toml", include_str!("../../../../systems/relay/job.toml")),
    ("relay/settlement.toml", include_str!("../../../../systems/relay/settlement.toml")),
    ("relay/submission.toml", include_str!("../../../../systems/relay/submission.toml")),
    ("mesh/action.toml", include_str!("../../../../systems/mesh/action.toml")),
    ("mesh/claim.toml", include_str!("../../../../systems/mesh/claim.toml")),
    ("mesh/episode.toml", include_str!("../../../../systems/mesh/episode.toml")),
    ("mesh/evidence.toml", include_str!("../../../../systems/mesh/evidence.toml")),
    ("mesh/job.toml", include_str!("../../../../systems/mesh/job.toml")),
    ("mesh/node.toml", include_str!("../../../../systems/mesh/node.toml")),
    ("mesh/route.toml", include_str!("../../../../systems/mesh/route.toml")),
    ("mesh/snapshot.toml", include_str!("../../../../systems/mesh/snapshot.toml")),
];

pub(crate) struct ShippedWorldBuilder<'d> {
    pub(crate) definitions: &'d Definitions,
    pub(crate) snapshot: Snapshot,
    operations_made: u128,
}

impl<'d> ShippedWorldBuilder<'d> {
    pub(crate) fn new(definitions: &'d Definitions) -> Self {
        Self { definitions, snapshot: Snapshot::empty_complete(), operations_made: 0 }
    }

    /// Decides an operation and applies it at once. The check of a deposit confirms its exact amount.
    fn run_operation(&mut self, actor: Actor, call: Call) -> RecordId {
        self.operations_made += 1;
        let mut operation =
            Operation { seed: self.operations_made << 20, actor, call, check_answers: Vec::new(), trace: None };
        loop {
            match decide(self.definitions, &self.snapshot, &operation, NOW) {
                Decision::NeedsChecks(questions) => {
                    operation.check_answers.extend(questions.into_iter().map(|asked| {
                        let answer = object(json!({
                            "ok": true, "on_chain": true, "amount": asked.arguments["at_least"],
                            "sender": format!("0x{:040x}", 7), "tx_hash": asked.arguments["tx_hash"],
                        }));
                        let (lifecycle, check) = (asked.lifecycle, asked.check);
                        CheckAnswer { lifecycle, check, arguments: asked.arguments, payload: asked.payload, answer }
                    }));
                }
                done => {
                    let changes = expect_changes(done);
                    self.snapshot.apply(&changes);
                    return changes.subject;
                }
            }
        }
    }

    fn create(&mut self, actor: Actor, lifecycle: &str, fields: Json, payload: Option<PayloadRef>) -> RecordId {
        let create =
            CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields: object(fields), payload };
        self.run_operation(actor, Call::Create(create))
    }

    /// Creates `size` submissions (relay accepts at most a hundred) and returns the commit that lets the middle one
    /// pass.
    pub(crate) fn prepare_resolve(&mut self, size: usize) -> Operation {
        let alice = || Actor::new("alice", &["producer"]);
        self.create(alice(), "relay.agent", json!({ "agent_id": "alice" }), None);
        let task =
            json!({ "title": "A haiku", "description": "About relays", "price": 10_000_003, "max_submissions": 100 });
        let job = self.create(alice(), "relay.job", task, None);
        self.run_operation(alice(), fire(job, "fund", json!({ "tx_hash": format!("0x{:064x}", 9) })));
        let mut submissions = Vec::new();
        for at in 0..size.max(1) {
            let name = format!("agent-{at}");
            let agent = || Actor::new(&name, &["producer"]);
            let wallet = format!("0x{at:040x}");
            self.create(agent(), "relay.agent", json!({ "agent_id": name, "wallet": wallet }), None);
            self.run_operation(agent(), fire(job, "claim", json!({})));
            let content = PayloadRef { sha256: [7; 32], bytes: 17 };
            submissions.push(self.create(
                agent(),
                "relay.submission",
                json!({ "job": job.to_string() }),
                Some(content),
            ));
        }
        let oracle = || Actor::new("oracle", &["worker"]);
        for record in &submissions {
            let call = Call::Lease { record: *record, worker: "oracle".into(), lease: None, start: false };
            self.run_operation(oracle(), call);
        }
        let record = submissions[submissions.len() / 2];
        let result = json!({ "score": 90, "steps": [{ "step": 1, "name": "guard", "passed": true }] });
        let call = Call::Commit { record, token: FencingToken(1), result, finish: true };
        Operation { seed: 1, actor: oracle(), call, check_answers: Vec::new(), trace: None }
    }

    /// Creates a claim on evidence and `size` claims that depend on it and on one another. Returns the user's rejection
    /// of the first.
    pub(crate) fn prepare_reject(&mut self, size: usize, mut support: impl FnMut(usize) -> Vec<usize>) -> Operation {
        let node = |user: bool| {
            let capabilities = ["Evidence.Write", "Claim.Write"].map(Into::into).into();
            Actor { capabilities, user, ..Actor::new("laptop", &["producer"]) }
        };
        let evidence = self.create(node(false), "mesh.evidence", json!({ "digest": "sha256:ab" }), None);
        let mut claims = Vec::new();
        for at in 0..=size {
            let support_ids: Vec<Json> = match at {
                0 => vec![Json::from(evidence.to_string())],
                _ => support(at)
                    .into_iter()
                    .map(|other: usize| Json::from(RecordId::to_string(&claims[other])))
                    .collect(),
            };
            let fields = json!({
                "subject": format!("subject {at}"), "predicate": "lives in", "object": "Bern", "confidence": 0.9, "support": support_ids
            });
            claims.push(self.create(node(false), "mesh.claim", fields, None));
        }
        Operation {
            seed: 1,
            actor: node(true),
            call: fire(claims[0], "reject", json!({})),
            check_answers: Vec::new(),
            trace: None,
        }
    }
}

fn fire(record: RecordId, event: &str, input: Json) -> Call {
    Call::Fire { record, event: event.into(), input: object(input), token: None, if_version: None }
}

fn object(value: Json) -> Map<String, Json> {
    let Json::Object(map) = value else { panic!("a JSON object") };
    map
}
