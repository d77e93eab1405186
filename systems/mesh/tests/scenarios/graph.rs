//! MSH-7, MSH-8, MSH-9 and MSH-11 on a large scale: a claim with ten thousand dependents in a random graph, Facts in the way,
//! held against a plain walk over the graph that knows nothing of lifecycles.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::decide::{Call, Changes, Create, Decision, Operation, Snapshot, decide};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_testkit::random::{Chance, seeds};
use onceward_testkit::systems;
use serde_json::{Map, Value, json};

use super::{ids, machine, you};

/// Dependents of the record that is lost.
const DEPENDENTS: usize = 10_000;

/// The stage looks at every record after every operation; this many want a plain world.
#[derive(Clone)]
struct World {
    definitions: Definitions,
    snapshot: Snapshot,
    now: Time,
    chance: Chance,
}

impl World {
    fn new(seed: u64) -> Self {
        let now = "2026-11-15T20:00:00Z".parse().expect("a time");
        Self { definitions: systems::load("mesh"), snapshot: Snapshot::world(), now, chance: Chance::new(seed) }
    }

    fn play(&mut self, actor: &Actor, call: Call) -> Box<Changes> {
        let operation =
            Operation { seed: self.chance.seed(), actor: actor.clone(), call, answers: Vec::new(), trace: None };
        match decide(&self.definitions, &self.snapshot, &operation, self.now) {
            Decision::Changes(changes) => {
                self.snapshot.apply(&changes);
                changes
            }
            other => panic!("{operation:?}: {other:?}"),
        }
    }

    fn create(&mut self, lifecycle: &str, given: Value) -> RecordId {
        let Value::Object(fields) = given else { panic!("no object") };
        let create = Create { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None };
        self.play(&machine(), Call::Create(create)).subject
    }

    fn fire(&mut self, record: RecordId, event: &str, by: &Actor) -> Box<Changes> {
        let call = Call::Fire { record, event: event.into(), input: Map::new(), token: None, if_version: None };
        self.play(by, call)
    }

    fn state(&self, id: RecordId) -> Arc<str> {
        Arc::clone(self.snapshot.record(id).expect("a record").state_name())
    }
}

/// What the walk knows of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Evidence,
    /// A Hint or a Claim.
    Belief,
    Fact,
    /// A claim that another has taken the place of since.
    Replaced,
    Episode,
    Action,
    /// An action that the user has accepted.
    Wanted,
    Snapshot,
}

struct Graph {
    nodes: Vec<(RecordId, Kind)>,
    /// By number: what rests on it.
    above: Vec<Vec<usize>>,
}

/// Number 0 is evidence and number 1 the claim on it; every other record rests, perhaps through others, on that claim.
fn grow(world: &mut World, seed: u64) -> Graph {
    let mut chance = Chance::new(seed);
    let mut graph = Graph { nodes: Vec::new(), above: Vec::new() };
    let root = world.create("mesh.evidence", json!({ "digest": "root" }));
    graph.nodes.push((root, Kind::Evidence));
    graph.above.push(Vec::new());
    // What each kind may rest on: beliefs on beliefs, episodes on beliefs, the rest also on episodes.
    let (mut beliefs, mut told) = (vec![0], Vec::new());
    for number in 1..=DEPENDENTS + 1 {
        let kind = match chance.below(100) {
            _ if number == 1 => Kind::Belief,
            0..54 => Kind::Belief,
            54..60 => Kind::Replaced,
            60..70 => Kind::Fact,
            70..80 => Kind::Episode,
            80..86 => Kind::Action,
            86..92 => Kind::Wanted,
            _ => Kind::Snapshot,
        };
        let high = matches!(kind, Kind::Action | Kind::Wanted | Kind::Snapshot);
        let mut on = Vec::new();
        for _ in 0..=chance.below(3) {
            let from = if high && chance.yes(30) && !told.is_empty() { &told } else { &beliefs };
            // Half of the edges are short, so that the graph is deep as well as wide.
            let reach = if chance.yes(50) { from.len().min(20) } else { from.len() };
            let picked = from[from.len() - 1 - chance.below(reach)];
            // Only the claim itself rests on the evidence.
            let picked = if number > 1 { picked.max(1) } else { picked };
            if !on.contains(&picked) {
                on.push(picked);
            }
        }
        let support = ids(&on.iter().map(|below| graph.nodes[*below].0).collect::<Vec<_>>());
        let belief = json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": if chance.yes(20) { 0.3 } else { 0.7 }, "support": support });
        let id = match kind {
            Kind::Evidence => unreachable!("there is one"),
            Kind::Belief | Kind::Fact | Kind::Replaced => world.create("mesh.claim", belief),
            Kind::Episode => world.create("mesh.episode", json!({ "title": "t", "support": support })),
            Kind::Action | Kind::Wanted => world.create("mesh.action", json!({ "title": "t", "support": support })),
            Kind::Snapshot => world.create("mesh.snapshot", json!({ "artifact": "a", "support": support })),
        };
        match kind {
            Kind::Fact => drop(world.fire(id, "confirm", &you())),
            Kind::Wanted => drop(world.fire(id, "accept", &you())),
            _ => {}
        }
        match kind {
            Kind::Belief | Kind::Fact | Kind::Replaced => beliefs.push(number),
            Kind::Episode => told.push(number),
            _ => {}
        }
        graph.nodes.push((id, kind));
        graph.above.push(Vec::new());
        for below in on {
            graph.above[below].push(number);
        }
    }
    let better = json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": 0.7, "support": ids(&[root]) });
    let better = world.create("mesh.claim", better);
    for (id, _) in graph.nodes.iter().filter(|(_, kind)| *kind == Kind::Replaced) {
        let input = Map::from_iter([("replacement".to_owned(), json!(better.to_string()))]);
        let call = Call::Fire { record: *id, event: "supersede".into(), input, token: None, if_version: None };
        world.play(&machine(), call);
    }
    graph
}

type States = HashMap<RecordId, Arc<str>>;

fn states(world: &World, graph: &Graph) -> States {
    graph.nodes.iter().map(|(id, _)| (*id, world.state(*id))).collect()
}

/// What must become of every record, found by walking: from the lost one upwards, through everything, but for a machine
/// not through Facts.
fn walk(graph: &Graph, before: &States, lost: usize, users: bool) -> States {
    let mut reached = vec![false; graph.nodes.len()];
    let mut open = graph.above[lost].clone();
    while let Some(number) = open.pop() {
        let stops = graph.nodes[number].1 == Kind::Fact && !users;
        if !std::mem::replace(&mut reached[number], true) && !stops {
            open.extend(&graph.above[number]);
        }
    }
    let mut after = before.clone();
    for (number, (id, kind)) in graph.nodes.iter().enumerate().filter(|(number, _)| reached[*number]) {
        assert_ne!(number, lost, "no circles");
        let becomes = match kind {
            Kind::Belief | Kind::Episode | Kind::Snapshot => "Stale",
            Kind::Action => "Rejected",
            Kind::Fact if users => "Stale",
            Kind::Wanted if users => "Rejected",
            Kind::Fact | Kind::Wanted | Kind::Replaced | Kind::Evidence => continue,
        };
        after.insert(*id, becomes.into());
    }
    let (id, kind) = graph.nodes[lost];
    after.insert(id, if kind == Kind::Evidence { "Tombstoned" } else { "Rejected" }.into());
    after
}

#[track_caller]
fn same(found: &States, expected: &States) {
    let wrong: Vec<_> = expected.iter().filter(|(id, state)| found[*id] != **state).collect();
    assert!(wrong.is_empty(), "{} records differ from the walk, among them {:?}", wrong.len(), wrong.first());
}

/// Lose one record on a copy of the world and compare everything with the walk; the copy, and how many records changed.
fn lose(world: &World, graph: &Graph, lost: usize, event: &str, by: &Actor) -> (World, usize) {
    let before = states(world, graph);
    let expected = walk(graph, &before, lost, by.user);
    let mut world = world.clone();
    let changes = world.fire(graph.nodes[lost].0, event, by);
    let after = states(&world, graph);
    same(&after, &expected);
    (world, changes.records.len())
}

/// MSH-8, MSH-9, MSH-11: ten thousand dependents in a random graph: rejected by the user, withdrawn by the user and by a machine.
#[test]
fn ten_thousand_dependents() {
    for seed in seeds("mesh-graph", 1).into_iter().take(3) {
        println!("play it again with ONCEWARD_SEED={seed}");
        let mut world = World::new(seed);
        let graph = grow(&mut world, seed);
        let stay = graph.nodes.iter().filter(|(_, kind)| *kind == Kind::Replaced).count();
        let (rejected, by_user) = lose(&world, &graph, 1, "reject", &you());
        assert_eq!(by_user, 1 + DEPENDENTS - stay, "one entry for each that changes, in one step");
        lose(&world, &graph, 0, "tombstone", &you());
        let (withdrawn, by_machine) = lose(&world, &graph, 0, "tombstone", &machine());
        println!("by the user {by_user} records change, by a machine {by_machine}");
        assert!(
            (DEPENDENTS / 10..by_user).contains(&by_machine),
            "Facts in the way, and ways round them: {by_machine}"
        );
        // A machine was quicker: the user's word reaches as far as if it had been the only one.
        let mut late = withdrawn;
        late.fire(graph.nodes[1].0, "reject", &you());
        let (mut late, first) = (states(&late, &graph), states(&rejected, &graph));
        late.insert(graph.nodes[0].0, "Live".into());
        same(&late, &first);
    }
}

/// MSH-8: a chain as long as it may be: one record on another, ten thousand times.
#[test]
fn a_chain_of_ten_thousand() {
    let mut world = World::new(1);
    let ground = world.create("mesh.evidence", json!({ "digest": "root" }));
    let mut top = ground;
    for _ in 0..DEPENDENTS {
        let support = ids(&[top]);
        let belief = json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": 0.7, "support": support });
        top = world.create("mesh.claim", belief);
    }
    assert_eq!(world.fire(ground, "tombstone", &machine()).records.len(), DEPENDENTS + 1);
    assert_eq!(&*world.state(top), "Stale");
}
