//! Builds worlds in which one operation reaches many records.

use std::sync::Arc;

use onceward_core::decide::{Call, Changes, CreateRecord, Decision, Operation, Snapshot, decide};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json, json};

use crate::shipped_systems::{SYSTEM_FILES, ShippedWorldBuilder};

pub(crate) const NOW: Time = Time::from_secs(1_800_000_000);

/// How the records refer to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FanoutShape {
    /// Offers for one escrow. One passes and is paid, a payout is spawned, and the others are discarded.
    Siblings,
    /// Beliefs that depend on one to three random older ones. The first is rejected.
    Graph,
    /// Each belief depends on the one before.
    Chain,
    /// All beliefs depend on the first.
    Star,
    /// The shipped relay: one of many submissions passes, and its job is resolved.
    Relay,
    /// The shipped mesh: claims that depend on each other as in `Graph`. The first is rejected.
    Mesh,
}

pub(crate) const NAMED_SHAPES: [(&str, FanoutShape); 6] = [
    ("siblings", FanoutShape::Siblings),
    ("graph", FanoutShape::Graph),
    ("chain", FanoutShape::Chain),
    ("star", FanoutShape::Star),
    ("relay", FanoutShape::Relay),
    ("mesh", FanoutShape::Mesh),
];

/// A snapshot, and the operation that reaches all of its records.
pub(crate) struct FanoutWorld {
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) snapshot: Snapshot,
    pub(crate) operation: Operation,
}

/// Loads the benchmark's own small lifecycles or the shipped systems.
pub(crate) fn load_definitions(shape: FanoutShape) -> Arc<Definitions> {
    let bench_files = [
        ("escrow.toml", include_str!("../../lifecycles/escrow.toml")),
        ("offer.toml", include_str!("../../lifecycles/offer.toml")),
        ("payout.toml", include_str!("../../lifecycles/payout.toml")),
        ("belief.toml", include_str!("../../lifecycles/belief.toml")),
    ];
    let texts =
        if matches!(shape, FanoutShape::Relay | FanoutShape::Mesh) { &SYSTEM_FILES[..] } else { &bench_files[..] };
    let files = texts.iter().map(|(name, text)| InputFile { name: (*name).to_owned(), text: (*text).into() });
    let loaded = onceward_core::load_definitions(&InputFiles { files: files.collect() })
        .unwrap_or_else(|found| panic!("the lifecycles are not sound: {found:#?}"));
    Arc::new(loaded.definitions)
}

impl FanoutWorld {
    /// Creates `size` offers, or `size` beliefs besides the first.
    pub(crate) fn new(definitions: &Arc<Definitions>, shape: FanoutShape, size: usize) -> Self {
        if matches!(shape, FanoutShape::Relay | FanoutShape::Mesh) {
            return Self::from_shipped_system(definitions, shape, size);
        }
        let mut builder = WorldBuilder { definitions, snapshot: Snapshot::empty_complete(), operations_made: 0 };
        let operation = match shape {
            FanoutShape::Siblings => builder.prepare_verdict(size),
            FanoutShape::Chain => builder.prepare_reject(size, |at| vec![at - 1]),
            FanoutShape::Star => builder.prepare_reject(size, |_| vec![0]),
            _ => {
                let mut rng = LcgRng(7);
                builder.prepare_reject(size, |at| rng.pick_earlier(at))
            }
        };
        Self { definitions: Arc::clone(definitions), snapshot: builder.snapshot, operation }
    }

    fn from_shipped_system(definitions: &Arc<Definitions>, shape: FanoutShape, size: usize) -> Self {
        let (mut builder, mut chance) = (ShippedWorldBuilder::new(definitions), LcgRng(7));
        let operation = match shape {
            FanoutShape::Relay => builder.prepare_resolve(size),
            _ => builder.prepare_reject(size, |at| chance.pick_earlier(at)),
        };
        Self { definitions: Arc::clone(definitions), snapshot: builder.snapshot, operation }
    }

    pub(crate) fn decide(&self) -> Decision {
        decide(&self.definitions, &self.snapshot, &self.operation, NOW)
    }
}

struct WorldBuilder<'d> {
    definitions: &'d Definitions,
    snapshot: Snapshot,
    operations_made: u128,
}

impl WorldBuilder<'_> {
    fn create(&mut self, owner: &str, lifecycle: &str, fields: Json) -> RecordId {
        let Json::Object(fields) = fields else { panic!("fields are an object") };
        let call =
            Call::Create(CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None });
        self.operations_made += 1;
        let operation = Operation {
            seed: self.operations_made << 20,
            actor: Actor::new(owner, &["producer"]),
            call,
            check_answers: Vec::new(),
            trace: None,
        };
        let changes = expect_changes(decide(self.definitions, &self.snapshot, &operation, NOW));
        self.snapshot.apply(&changes);
        changes.subject
    }

    fn prepare_verdict(&mut self, size: usize) -> Operation {
        let escrow = self.create("buyer", "bench.escrow", json!({ "price": 1_000_003 }));
        let fields = json!({ "escrow": escrow.to_string() });
        let offers: Vec<_> =
            (0..size.max(1)).map(|at| self.create(&format!("agent-{at}"), "bench.offer", fields.clone())).collect();
        let mut input = Map::new();
        input.insert("score".to_owned(), Json::from(90));
        fire_operation(offers[size / 2], "verdict", input, Actor::new("oracle", &["operator", "producer"]))
    }

    fn prepare_reject(&mut self, size: usize, mut support: impl FnMut(usize) -> Vec<usize>) -> Operation {
        let mut beliefs = vec![self.create("ann", "bench.belief", json!({ "subject": "the first" }))];
        for at in 1..=size {
            let support: Vec<_> = support(at).into_iter().map(|other| Json::from(beliefs[other].to_string())).collect();
            let subject = format!("belief number {at}");
            beliefs.push(self.create("ann", "bench.belief", json!({ "subject": subject, "support": support })));
        }
        fire_operation(beliefs[0], "reject", Map::new(), Actor::new("ann", &["producer"]))
    }
}

fn fire_operation(record: RecordId, event: &str, input: Map<String, Json>, actor: Actor) -> Operation {
    let call = Call::Fire { record, event: event.into(), input, token: None, if_version: None };
    Operation { seed: 1, actor, call, check_answers: Vec::new(), trace: None }
}

pub(crate) fn expect_changes(decision: Decision) -> Box<Changes> {
    match decision {
        Decision::Changes(changes) => changes,
        Decision::Refusal(refusal) => panic!("refused: {} {}: {}", refusal.status, refusal.code, refusal.reason),
        _ => panic!("neither changes nor a refusal"),
    }
}

/// A deterministic random number generator.
struct LcgRng(u64);

impl LcgRng {
    /// Picks one to three earlier indexes.
    fn pick_earlier(&mut self, at: usize) -> Vec<usize> {
        (0..=self.below(3)).map(|_| self.below(at)).collect()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }
}
