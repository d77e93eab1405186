//! A log in the making, and ways to ask what came of it.

use std::sync::Arc;

use onceward_core::decide::Question;
use onceward_core::fold::{Applied, Bounds, Fold, Grant, LogOperation, Outside, Reason, Standing};
use onceward_core::record::Record;
use onceward_testkit::fold::{compare, fold_plainly, id_of, with};
use onceward_testkit::systems;
use serde_json::{Map, Value as Json};

pub(crate) const EVERYTHING: [&str; 20] = [
    "Evidence.Write",
    "Evidence.Read",
    "Claim.Write",
    "Claim.Read",
    "Episode.Write",
    "Episode.Read",
    "Action.Write",
    "Action.Read",
    "Artifact.Write",
    "Artifact.Read",
    "Job.Read",
    "Job.Schedule",
    "Job.Claim",
    "Job.Complete",
    "Mesh.Read",
    "Mesh.Write",
    "Entity.Write",
    "Registration.Read",
    "Registration.Write",
    "UserAssertion.Write",
];

/// A node that may do all that machines may.
pub(crate) fn machine() -> Standing {
    with(&EVERYTHING)
}

/// A node that speaks for the user.
pub(crate) fn user() -> Standing {
    let Standing::Held(grant) = machine() else { unreachable!("a machine holds its rights") };
    Standing::Held(Grant { user: true, ..grant })
}

/// Whoever reads the delegation graph and says what it makes of nodes.
pub(crate) fn registrar() -> Standing {
    Standing::Held(Grant { roles: vec!["fold".into()], ..Grant::default() })
}

pub(crate) fn suspended() -> Standing {
    Standing::Suspended { why: "its delegation ended at noon".into() }
}

pub(crate) fn revoked() -> Standing {
    Standing::Withdrawn { why: "its parent was revoked".into() }
}

pub(crate) struct Log {
    pub(crate) fold: Fold,
    definitions: Arc<onceward_core::model::Definitions>,
}

impl Log {
    pub(crate) fn new() -> Self {
        let definitions = Arc::new(systems::load("mesh"));
        let fold = Fold::new(Arc::clone(&definitions), Bounds::default()).expect("the mesh can be folded");
        Self { fold, definitions }
    }

    /// These arrive, one after another.
    pub(crate) fn of(arrived: &[(&LogOperation, Standing)]) -> Self {
        let mut log = Self::new();
        log.hears(arrived);
        log
    }

    pub(crate) fn hears(&mut self, arrived: &[(&LogOperation, Standing)]) {
        self.hears_asking(arrived, &());
    }

    pub(crate) fn hears_asking(&mut self, arrived: &[(&LogOperation, Standing)], outside: &dyn Outside) {
        for (operation, standing) in arrived {
            self.fold.insert(outside, [((*operation).clone(), standing.clone())]).expect("room for it");
        }
        self.agrees(outside);
    }

    pub(crate) fn rejudges(&mut self, anew: &[(&LogOperation, Standing)]) {
        let anew: Vec<_> = anew.iter().map(|(operation, standing)| (operation.id, standing.clone())).collect();
        self.fold.rejudge(&(), anew).expect("all of them are on the log");
        self.agrees(&());
    }

    /// The plain second opinion is the same.
    fn agrees(&self, outside: &dyn Outside) {
        let all: Vec<_> = self.fold.operations().map(|(said, standing, _)| (said.clone(), standing.clone())).collect();
        compare(&self.fold, &fold_plainly(&self.definitions, &all, outside));
    }

    pub(crate) fn record(&self, name: &str) -> &Record {
        self.fold.world().record(id_of(name)).unwrap_or_else(|| panic!("there is no {name}"))
    }

    pub(crate) fn state(&self, name: &str) -> String {
        self.record(name).state_name().to_string()
    }

    pub(crate) fn field(&self, name: &str, field: &str) -> Json {
        self.record(name).field(field).unwrap_or_else(|| panic!("{name} has no {field}")).to_json()
    }

    pub(crate) fn applied(&self, operation: &LogOperation) -> Applied {
        self.fold.verdict(operation.id).expect("it is on the log").applied
    }

    /// The lifecycle's code where it refused.
    pub(crate) fn refused(&self, operation: &LogOperation) -> String {
        match self.applied(operation) {
            Applied::Refused(Reason::Decided(refusal)) => refusal.code.to_string(),
            other => panic!("not refused by its lifecycle: {other}"),
        }
    }
}

/// Every order of a few things.
pub(crate) fn orders<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for at in 0..items.len() {
        let mut rest = items.to_vec();
        let first = rest.remove(at);
        all.extend(orders(&rest).into_iter().map(|mut order| {
            order.insert(0, first.clone());
            order
        }));
    }
    all
}

/// A delegation graph that says this of every node.
pub(crate) fn graph(valid: bool, key: &str) -> impl Fn(&LogOperation, &Question) -> Option<Map<String, Json>> {
    let answer = serde_json::json!({ "valid": valid, "key": key, "userBearing": false, "why": "as the graph has it" });
    move |_, question| {
        assert_eq!(*question.check, *"chain", "nodes ask for nothing else");
        answer.as_object().cloned()
    }
}
