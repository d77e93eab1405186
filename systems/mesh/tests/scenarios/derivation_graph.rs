//! MSH-7, MSH-8, MSH-9 and MSH-11 at scale: compares cascades over ten thousand dependents with a plain graph walk that
//! does not use lifecycles.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::decide::{Call, Changes, CreateRecord, Decision, Operation, Snapshot, decide};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_testkit::random::{Rng, theme_seeds};
use onceward_testkit::systems;
use serde_json::{Map, Value, json};

use super::{id_list, machine_actor, user_actor};

/// Number of dependents of the lost record.
const DEPENDENT_COUNT: usize = 10_000;

/// A minimal world without the simulator, which checks every record after every operation and is too slow here.
#[derive(Clone)]
struct PlainWorld {
    definitions: Definitions,
    snapshot: Snapshot,
    now: Time,
    rng: Rng,
}

impl PlainWorld {
    fn new(seed: u64) -> Self {
        let now = "2026-11-15T20:00:00Z".parse().expect("a time");
        Self {
            definitions: systems::load_system("mesh"),
            snapshot: Snapshot::empty_complete(),
            now,
            rng: Rng::new(seed),
        }
    }

    fn apply(&mut self, actor: &Actor, call: Call) -> Box<Changes> {
        let operation = Operation {
            seed: self.rng.next_seed(),
            actor: actor.clone(),
            call,
            check_answers: Vec::new(),
            trace: None,
        };
        match decide(&self.definitions, &self.snapshot, &operation, self.now) {
            Decision::Changes(changes) => {
                self.snapshot.apply(&changes);
                changes
            }
            other => panic!("{operation:?}: {other:?}"),
        }
    }

    fn create(&mut self, lifecycle: &str, json_fields: Value) -> RecordId {
        let Value::Object(fields) = json_fields else { panic!("no object") };
        let create = CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None };
        self.apply(&machine_actor(), Call::Create(create)).subject
    }

    fn fire(&mut self, record: RecordId, event: &str, author: &Actor) -> Box<Changes> {
        let call = Call::Fire { record, event: event.into(), input: Map::new(), token: None, if_version: None };
        self.apply(author, call)
    }

    fn state(&self, id: RecordId) -> Arc<str> {
        Arc::clone(self.snapshot.record(id).expect("a record").state_name())
    }
}

/// Kind of a record, as the graph walk sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GraphNodeKind {
    Evidence,
    HintOrClaim,
    Fact,
    /// A claim that was superseded after the graph was built.
    Superseded,
    Episode,
    Action,
    /// An action that the user accepted.
    UserAccepted,
    Snapshot,
}

struct DerivationGraph {
    nodes: Vec<(RecordId, GraphNodeKind)>,
    /// Indexes of the dependents of each node.
    dependents: Vec<Vec<usize>>,
}

/// Builds the graph: 0 is evidence, 1 the claim on it, and every other record depends on that claim.
fn build_graph(world: &mut PlainWorld, seed: u64) -> DerivationGraph {
    let mut rng = Rng::new(seed);
    let mut graph = DerivationGraph { nodes: Vec::new(), dependents: Vec::new() };
    let root = world.create("mesh.evidence", json!({ "digest": "root" }));
    graph.nodes.push((root, GraphNodeKind::Evidence));
    graph.dependents.push(Vec::new());
    // Claims rest on claims, episodes on claims, the others also on episodes.
    let (mut beliefs, mut episodes) = (vec![0], Vec::new());
    for number in 1..=DEPENDENT_COUNT + 1 {
        let kind = match rng.below(100) {
            _ if number == 1 => GraphNodeKind::HintOrClaim,
            0..54 => GraphNodeKind::HintOrClaim,
            54..60 => GraphNodeKind::Superseded,
            60..70 => GraphNodeKind::Fact,
            70..80 => GraphNodeKind::Episode,
            80..86 => GraphNodeKind::Action,
            86..92 => GraphNodeKind::UserAccepted,
            _ => GraphNodeKind::Snapshot,
        };
        let is_top_level =
            matches!(kind, GraphNodeKind::Action | GraphNodeKind::UserAccepted | GraphNodeKind::Snapshot);
        let mut support_numbers = Vec::new();
        for _ in 0..=rng.below(3) {
            let candidates = if is_top_level && rng.percent(30) && !episodes.is_empty() { &episodes } else { &beliefs };
            // Half of the edges are short, so that the graph is deep as well as wide.
            let window = if rng.percent(50) { candidates.len().min(20) } else { candidates.len() };
            let picked = candidates[candidates.len() - 1 - rng.below(window)];
            // Only claim 1 rests directly on the evidence.
            let picked = if number > 1 { picked.max(1) } else { picked };
            if !support_numbers.contains(&picked) {
                support_numbers.push(picked);
            }
        }
        let support = id_list(&support_numbers.iter().map(|below| graph.nodes[*below].0).collect::<Vec<_>>());
        let belief = json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": if rng.percent(20) { 0.3 } else { 0.7 }, "support": support });
        let id = match kind {
            GraphNodeKind::Evidence => unreachable!("a candidate exists"),
            GraphNodeKind::HintOrClaim | GraphNodeKind::Fact | GraphNodeKind::Superseded => {
                world.create("mesh.claim", belief)
            }
            GraphNodeKind::Episode => world.create("mesh.episode", json!({ "title": "t", "support": support })),
            GraphNodeKind::Action | GraphNodeKind::UserAccepted => {
                world.create("mesh.action", json!({ "title": "t", "support": support }))
            }
            GraphNodeKind::Snapshot => world.create("mesh.snapshot", json!({ "artifact": "a", "support": support })),
        };
        match kind {
            GraphNodeKind::Fact => drop(world.fire(id, "confirm", &user_actor())),
            GraphNodeKind::UserAccepted => drop(world.fire(id, "accept", &user_actor())),
            _ => {}
        }
        match kind {
            GraphNodeKind::HintOrClaim | GraphNodeKind::Fact | GraphNodeKind::Superseded => beliefs.push(number),
            GraphNodeKind::Episode => episodes.push(number),
            _ => {}
        }
        graph.nodes.push((id, kind));
        graph.dependents.push(Vec::new());
        for below in support_numbers {
            graph.dependents[below].push(number);
        }
    }
    let better =
        json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": 0.7, "support": id_list(&[root]) });
    let better = world.create("mesh.claim", better);
    for (id, _) in graph.nodes.iter().filter(|(_, kind)| *kind == GraphNodeKind::Superseded) {
        let input = Map::from_iter([("replacement".to_owned(), json!(better.to_string()))]);
        let call = Call::Fire { record: *id, event: "supersede".into(), input, token: None, if_version: None };
        world.apply(&machine_actor(), call);
    }
    graph
}

type RecordStates = HashMap<RecordId, Arc<str>>;

fn record_states(world: &PlainWorld, graph: &DerivationGraph) -> RecordStates {
    graph.nodes.iter().map(|(id, _)| (*id, world.state(*id))).collect()
}

/// Computes the expected states: a walk over all dependents of the lost record. A machine's walk stops at Facts.
fn expected_states(graph: &DerivationGraph, before: &RecordStates, lost: usize, is_user: bool) -> RecordStates {
    let mut reached = vec![false; graph.nodes.len()];
    let mut pending = graph.dependents[lost].clone();
    while let Some(number) = pending.pop() {
        let is_barrier = graph.nodes[number].1 == GraphNodeKind::Fact && !is_user;
        if !std::mem::replace(&mut reached[number], true) && !is_barrier {
            pending.extend(&graph.dependents[number]);
        }
    }
    let mut after = before.clone();
    for (number, (id, kind)) in graph.nodes.iter().enumerate().filter(|(number, _)| reached[*number]) {
        assert_ne!(number, lost, "no cycles");
        let new_state = match kind {
            GraphNodeKind::HintOrClaim | GraphNodeKind::Episode | GraphNodeKind::Snapshot => "Stale",
            GraphNodeKind::Action => "Rejected",
            GraphNodeKind::Fact if is_user => "Stale",
            GraphNodeKind::UserAccepted if is_user => "Rejected",
            GraphNodeKind::Fact | GraphNodeKind::UserAccepted | GraphNodeKind::Superseded | GraphNodeKind::Evidence => {
                continue;
            }
        };
        after.insert(*id, new_state.into());
    }
    let (id, kind) = graph.nodes[lost];
    after.insert(id, if kind == GraphNodeKind::Evidence { "Tombstoned" } else { "Rejected" }.into());
    after
}

#[track_caller]
fn assert_states_equal(found: &RecordStates, expected: &RecordStates) {
    let differing: Vec<_> = expected.iter().filter(|(id, state)| found[*id] != **state).collect();
    assert!(differing.is_empty(), "{} records differ from the walk, such as {:?}", differing.len(), differing.first());
}

/// Loses a record on a copy of the world and compares all states with the walk. Returns the copy and the number of
/// changed records.
fn lose_and_compare(
    world: &PlainWorld,
    graph: &DerivationGraph,
    lost: usize,
    event: &str,
    author: &Actor,
) -> (PlainWorld, usize) {
    let before = record_states(world, graph);
    let expected = expected_states(graph, &before, lost, author.user);
    let mut world = world.clone();
    let changes = world.fire(graph.nodes[lost].0, event, author);
    let after = record_states(&world, graph);
    assert_states_equal(&after, &expected);
    (world, changes.records.len())
}

/// MSH-8, MSH-9, MSH-11: for a user's reject, and for tombstones by the user and by a machine.
#[test]
fn cascade_over_ten_thousand_dependents_matches_plain_walk() {
    for seed in theme_seeds("mesh-graph", 1).into_iter().take(3) {
        println!("repeat with ONCEWARD_SEED={seed}");
        let mut world = PlainWorld::new(seed);
        let graph = build_graph(&mut world, seed);
        let unchanged = graph.nodes.iter().filter(|(_, kind)| *kind == GraphNodeKind::Superseded).count();
        let (rejected, by_user) = lose_and_compare(&world, &graph, 1, "reject", &user_actor());
        assert_eq!(by_user, 1 + DEPENDENT_COUNT - unchanged, "one entry per changed record, in one operation");
        lose_and_compare(&world, &graph, 0, "tombstone", &user_actor());
        let (withdrawn, by_machine) = lose_and_compare(&world, &graph, 0, "tombstone", &machine_actor());
        println!("the user changes {by_user} records, a machine {by_machine}");
        assert!(
            (DEPENDENT_COUNT / 10..by_user).contains(&by_machine),
            "Facts stop some paths, but not all: {by_machine}"
        );
        // After a machine's tombstone, the user's reject reaches the same records as without it.
        let mut withdrawn_twice = withdrawn;
        withdrawn_twice.fire(graph.nodes[1].0, "reject", &user_actor());
        let (mut late, first) = (record_states(&withdrawn_twice, &graph), record_states(&rejected, &graph));
        late.insert(graph.nodes[0].0, "Live".into());
        assert_states_equal(&late, &first);
    }
}

/// MSH-8
#[test]
fn cascade_over_chain_of_ten_thousand_completes() {
    let mut world = PlainWorld::new(1);
    let ground = world.create("mesh.evidence", json!({ "digest": "root" }));
    let mut top = ground;
    for _ in 0..DEPENDENT_COUNT {
        let support = id_list(&[top]);
        let belief = json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": 0.7, "support": support });
        top = world.create("mesh.claim", belief);
    }
    assert_eq!(world.fire(ground, "tombstone", &machine_actor()).records.len(), DEPENDENT_COUNT + 1);
    assert_eq!(&*world.state(top), "Stale");
}
