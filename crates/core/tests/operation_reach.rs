//! Tests operations that reach many records: depth, number of records, and load rounds.

use onceward_core::decide::{Call, CreateRecord, Decision, Operation, ReadKey, Snapshot, decide};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde_json::{Map, json};

const BELIEF_LIFECYCLE: &str = include_str!("../../../assurance/bench/lifecycles/belief.toml");

const TEST_NOW: Time = Time::from_secs(1_800_000_000);

fn load_definitions() -> Definitions {
    let files = InputFiles { files: vec![InputFile { name: "belief.toml".to_owned(), text: BELIEF_LIFECYCLE.into() }] };
    onceward_core::load_definitions(&files).expect("a valid lifecycle").definitions
}

fn ann() -> Actor {
    Actor::new("ann", &["producer"])
}

/// Creates beliefs. `support` returns the older beliefs that each depends on.
fn create_beliefs(
    definitions: &Definitions,
    count: usize,
    support: impl Fn(usize) -> Vec<usize>,
) -> (Snapshot, Vec<RecordId>) {
    let mut world = Snapshot::empty_complete();
    let mut record_ids: Vec<RecordId> = Vec::with_capacity(count);
    for at in 0..count {
        let support: Vec<_> = support(at).into_iter().map(|older| record_ids[older].to_string()).collect();
        let mut fields = Map::new();
        fields.insert("subject".to_owned(), json!("what is so"));
        fields.insert("support".to_owned(), json!(support));
        let call = Call::Create(CreateRecord {
            lifecycle: "bench.belief".into(),
            id: None,
            owner: None,
            fields,
            payload: None,
        });
        let operation =
            Operation { seed: (at as u128) << 20, actor: ann(), call, check_answers: Vec::new(), trace: None };
        let Decision::Changes(changes) = decide(definitions, &world, &operation, TEST_NOW) else {
            panic!("belief {at}")
        };
        world.apply(&changes);
        record_ids.push(changes.subject);
    }
    (world, record_ids)
}

fn reject_operation(record: RecordId) -> Operation {
    let call = Call::Fire { record, event: "reject".into(), input: Map::new(), token: None, if_version: None };
    Operation { seed: 1, actor: ann(), call, check_answers: Vec::new(), trace: None }
}

/// The stack has 2 MB; one call frame per link would not fit.
#[test]
fn long_cascade_chain_fits_small_stack() {
    let run_chain = || {
        let definitions = load_definitions();
        let (world, made) = create_beliefs(&definitions, 60_000, |at| at.checked_sub(1).into_iter().collect());
        match decide(&definitions, &world, &reject_operation(made[0]), TEST_NOW) {
            Decision::Changes(changes) => {
                let order: Vec<_> = changes.records.iter().map(|change| change.after.id).collect();
                order == made
            }
            _ => false,
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run_chain).expect("a thread");
    assert!(thread.join().expect("the thread does not panic"), "each record changes once, in the order of the chain");
}

/// The bound is 100,000 records in addition to the first. The engine refuses the whole operation beyond it.
#[test]
fn cascade_beyond_record_bound_is_refused() {
    let definitions = load_definitions();
    let (mut world, made) = create_beliefs(&definitions, 100_001, |at| if at == 0 { Vec::new() } else { vec![0] });
    match decide(&definitions, &world, &reject_operation(made[0]), TEST_NOW) {
        Decision::Changes(changes) => assert_eq!(changes.records.len(), 100_001),
        _ => panic!("the operation is neither taken nor refused as expected"),
    }
    // One more at the end of the longest chain.
    let last = made[100_000];
    let mut fields = Map::new();
    fields.insert("subject".to_owned(), json!("one too many"));
    fields.insert("support".to_owned(), json!([last.to_string()]));
    let call =
        Call::Create(CreateRecord { lifecycle: "bench.belief".into(), id: None, owner: None, fields, payload: None });
    let operation = Operation { seed: 1 << 60, actor: ann(), call, check_answers: Vec::new(), trace: None };
    let Decision::Changes(changes) = decide(&definitions, &world, &operation, TEST_NOW) else {
        panic!("one record more than allowed")
    };
    world.apply(&changes);
    match decide(&definitions, &world, &reject_operation(made[0]), TEST_NOW) {
        Decision::Refusal(refusal) => assert_eq!((refusal.status, &*refusal.code), (409, "operation_too_large")),
        _ => panic!("the operation is neither taken nor refused as expected"),
    }
}

/// The bound counts records, not the paths to them.
#[test]
fn record_reached_by_many_paths_counts_once() {
    let definitions = load_definitions();
    // Each depends on the 200 before it: 1,500 records, and nearly 300,000 links between them.
    let (world, made) = create_beliefs(&definitions, 1_500, |at| (at.saturating_sub(200)..at).collect());
    match decide(&definitions, &world, &reject_operation(made[0]), TEST_NOW) {
        Decision::Changes(changes) => assert_eq!(changes.records.len(), 1_500),
        _ => panic!("the operation is neither taken nor refused as expected"),
    }
}

/// Each step away from the first record takes one or two load rounds. The decision equals that with the whole world
/// loaded.
#[test]
fn load_rounds_grow_with_depth_not_with_records() {
    let definitions = load_definitions();
    // Three depend on each, so seven steps reach more than a thousand.
    let (world, made) = create_beliefs(&definitions, 1_500, |at| if at == 0 { Vec::new() } else { vec![(at - 1) / 3] });
    let mut partial = Snapshot::default();
    let mut rounds = 0;
    let changes = loop {
        rounds += 1;
        match decide(&definitions, &partial, &reject_operation(made[0]), TEST_NOW) {
            Decision::Missing(keys) => {
                for key in keys {
                    match key {
                        ReadKey::Record(id) => {
                            partial.records.insert(id, world.records[&id].clone());
                        }
                        ReadKey::Links(key) => {
                            let linked = world.links.get(&key).cloned().unwrap_or_default();
                            partial.links.insert(key, linked);
                        }
                        other => panic!("unexpected read of {other:?}"),
                    }
                }
            }
            Decision::Changes(changes) => break changes,
            _ => panic!("the operation is neither taken nor refused as expected"),
        }
    };
    assert!(rounds <= 2 * 8 + 2, "{rounds} rounds");
    let Decision::Changes(whole) = decide(&definitions, &world, &reject_operation(made[0]), TEST_NOW) else {
        panic!("refused")
    };
    let ids = |changes: &onceward_core::decide::Changes| -> Vec<_> {
        changes.records.iter().map(|change| (change.after.id, change.after.state)).collect()
    };
    assert_eq!(ids(&changes), ids(&whole));
    assert_eq!(changes.read_keys, whole.read_keys);
}
