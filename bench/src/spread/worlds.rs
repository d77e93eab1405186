//! Worlds in which one operation reaches many records.

use std::sync::Arc;

use onceward_core::decide::{Call, Changes, Create, Decision, Operation, Snapshot, decide};
use onceward_core::diagnostic::{File, Files};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json, json};

use crate::shipped::{FILES, Player};

pub(crate) const NOW: Time = Time::from_secs(1_800_000_000);

/// How the records hang together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Offers for one escrow, of which one passes: it is paid, a payout is spawned, the others are discarded.
    Siblings,
    /// Beliefs that rest on one to three older ones, chosen by chance; the first is rejected.
    Graph,
    /// Each belief rests on the one before.
    Chain,
    /// All beliefs rest on the first.
    Star,
    /// The shipped relay: a submission among others passes, and its job is resolved.
    Relay,
    /// The shipped mesh: claims that rest on one another as in the graph; the first is rejected.
    Mesh,
}

pub(crate) const SHAPES: [(&str, Shape); 6] = [
    ("siblings", Shape::Siblings),
    ("graph", Shape::Graph),
    ("chain", Shape::Chain),
    ("star", Shape::Star),
    ("relay", Shape::Relay),
    ("mesh", Shape::Mesh),
];

/// A world, and the operation that reaches all of it.
pub(crate) struct World {
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) snapshot: Snapshot,
    pub(crate) operation: Operation,
}

/// The bench's own small lifecycles, or the shipped systems.
pub(crate) fn definitions(shape: Shape) -> Arc<Definitions> {
    let own = [
        ("escrow.toml", include_str!("../../lifecycles/escrow.toml")),
        ("offer.toml", include_str!("../../lifecycles/offer.toml")),
        ("payout.toml", include_str!("../../lifecycles/payout.toml")),
        ("belief.toml", include_str!("../../lifecycles/belief.toml")),
    ];
    let texts = if matches!(shape, Shape::Relay | Shape::Mesh) { &FILES[..] } else { &own[..] };
    let files = texts.iter().map(|(name, text)| File { name: (*name).to_owned(), text: (*text).into() });
    let loaded = onceward_core::load(&Files { files: files.collect() })
        .unwrap_or_else(|found| panic!("the lifecycles are not sound: {found:#?}"));
    Arc::new(loaded.definitions)
}

impl World {
    /// `size` offers, or `size` beliefs beside the first.
    pub(crate) fn new(definitions: &Arc<Definitions>, shape: Shape, size: usize) -> Self {
        if matches!(shape, Shape::Relay | Shape::Mesh) {
            return Self::shipped(definitions, shape, size);
        }
        let mut maker = Maker { definitions, snapshot: Snapshot::world(), made: 0 };
        let operation = match shape {
            Shape::Siblings => maker.offers(size),
            Shape::Chain => maker.beliefs(size, |at| vec![at - 1]),
            Shape::Star => maker.beliefs(size, |_| vec![0]),
            _ => {
                let mut chance = Chance(7);
                maker.beliefs(size, |at| chance.some(at))
            }
        };
        Self { definitions: Arc::clone(definitions), snapshot: maker.snapshot, operation }
    }

    fn shipped(definitions: &Arc<Definitions>, shape: Shape, size: usize) -> Self {
        let (mut player, mut chance) = (Player::new(definitions), Chance(7));
        let operation = match shape {
            Shape::Relay => player.resolve(size),
            _ => player.reject(size, |at| chance.some(at)),
        };
        Self { definitions: Arc::clone(definitions), snapshot: player.snapshot, operation }
    }

    pub(crate) fn decide(&self) -> Decision {
        decide(&self.definitions, &self.snapshot, &self.operation, NOW)
    }
}

struct Maker<'d> {
    definitions: &'d Definitions,
    snapshot: Snapshot,
    made: u128,
}

impl Maker<'_> {
    fn create(&mut self, owner: &str, lifecycle: &str, fields: Json) -> RecordId {
        let Json::Object(fields) = fields else { panic!("fields are an object") };
        let call = Call::Create(Create { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None });
        self.made += 1;
        let operation = Operation {
            seed: self.made << 20,
            actor: Actor::new(owner, &["producer"]),
            call,
            answers: Vec::new(),
            trace: None,
        };
        let changes = changes(decide(self.definitions, &self.snapshot, &operation, NOW));
        self.snapshot.apply(&changes);
        changes.subject
    }

    fn offers(&mut self, size: usize) -> Operation {
        let escrow = self.create("buyer", "bench.escrow", json!({ "price": 1_000_003 }));
        let fields = json!({ "escrow": escrow.to_string() });
        let offers: Vec<_> =
            (0..size.max(1)).map(|at| self.create(&format!("agent-{at}"), "bench.offer", fields.clone())).collect();
        let mut input = Map::new();
        input.insert("score".to_owned(), Json::from(90));
        fire(offers[size / 2], "verdict", input, Actor::new("oracle", &["operator", "producer"]))
    }

    fn beliefs(&mut self, size: usize, mut support: impl FnMut(usize) -> Vec<usize>) -> Operation {
        let mut beliefs = vec![self.create("ann", "bench.belief", json!({ "subject": "the first" }))];
        for at in 1..=size {
            let support: Vec<_> = support(at).into_iter().map(|other| Json::from(beliefs[other].to_string())).collect();
            let subject = format!("belief number {at}");
            beliefs.push(self.create("ann", "bench.belief", json!({ "subject": subject, "support": support })));
        }
        fire(beliefs[0], "reject", Map::new(), Actor::new("ann", &["producer"]))
    }
}

fn fire(record: RecordId, event: &str, input: Map<String, Json>, actor: Actor) -> Operation {
    let call = Call::Fire { record, event: event.into(), input, token: None, if_version: None };
    Operation { seed: 1, actor, call, answers: Vec::new(), trace: None }
}

pub(crate) fn changes(decision: Decision) -> Box<Changes> {
    match decision {
        Decision::Changes(changes) => changes,
        Decision::Refusal(refusal) => panic!("refused: {} {}: {}", refusal.status, refusal.code, refusal.reason),
        _ => panic!("neither done nor refused"),
    }
}

/// Numbers by chance, the same each time.
struct Chance(u64);

impl Chance {
    /// One to three of those before.
    fn some(&mut self, at: usize) -> Vec<usize> {
        (0..=self.below(3)).map(|_| self.below(at)).collect()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }
}
