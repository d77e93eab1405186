//! Builds a log for a fold and queries the result.

use std::sync::Arc;

use onceward_core::decide::CheckQuery;
use onceward_core::fold::{
    ApplyStatus, Authority, AuthorityGrant, CheckResolver, Fold, FoldLimits, FoldRefusalReason, LogOperation,
};
use onceward_core::record::Record;
use onceward_testkit::fold::{assert_matches_reference, authority_with, named_record_id, reference_fold};
use onceward_testkit::systems;
use serde_json::{Map, Value as Json};

pub(crate) const ALL_CAPABILITIES: [&str; 20] = [
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

/// Returns the authority of a node with all capabilities of machines.
pub(crate) fn machine_authority() -> Authority {
    authority_with(&ALL_CAPABILITIES)
}

/// Returns the authority of a node that speaks for the user.
pub(crate) fn user_authority() -> Authority {
    let Authority::Held(grant) = machine_authority() else { unreachable!("the capabilities of a machine") };
    Authority::Held(AuthorityGrant { user: true, ..grant })
}

/// Returns the authority of the reader of the delegation graph, which reports the states of nodes.
pub(crate) fn registrar_authority() -> Authority {
    Authority::Held(AuthorityGrant { roles: vec!["fold".into()], ..AuthorityGrant::default() })
}

pub(crate) fn suspended_authority() -> Authority {
    Authority::Suspended { reason: "its delegation ended at noon".into() }
}

pub(crate) fn revoked_authority() -> Authority {
    Authority::Withdrawn { reason: "its parent was revoked".into() }
}

pub(crate) struct MeshLog {
    pub(crate) fold: Fold,
    definitions: Arc<onceward_core::model::Definitions>,
}

impl MeshLog {
    pub(crate) fn new() -> Self {
        let definitions = Arc::new(systems::load_system("mesh"));
        let fold =
            Fold::new(Arc::clone(&definitions), FoldLimits::default()).expect("the mesh lifecycles can be folded");
        Self { fold, definitions }
    }

    /// Inserts the operations one after another.
    pub(crate) fn from_operations(operations: &[(&LogOperation, Authority)]) -> Self {
        let mut log = Self::new();
        log.insert(operations);
        log
    }

    pub(crate) fn insert(&mut self, operations: &[(&LogOperation, Authority)]) {
        self.insert_with_resolver(operations, &());
    }

    pub(crate) fn insert_with_resolver(
        &mut self,
        operations: &[(&LogOperation, Authority)],
        resolver: &dyn CheckResolver,
    ) {
        for (operation, authority) in operations {
            self.fold.insert(resolver, [((*operation).clone(), authority.clone())]).expect("the log has room");
        }
        self.assert_matches_plain_fold(resolver);
    }

    pub(crate) fn rejudge(&mut self, changed: &[(&LogOperation, Authority)]) {
        let anew: Vec<_> = changed.iter().map(|(operation, standing)| (operation.id, standing.clone())).collect();
        self.fold.reevaluate(&(), anew).expect("all operations are on the log");
        self.assert_matches_plain_fold(&());
    }

    /// Compares the fold with the reference implementation.
    fn assert_matches_plain_fold(&self, resolver: &dyn CheckResolver) {
        let all: Vec<_> = self.fold.operations().map(|(said, standing, _)| (said.clone(), standing.clone())).collect();
        assert_matches_reference(&self.fold, &reference_fold(&self.definitions, &all, resolver));
    }

    pub(crate) fn record(&self, name: &str) -> &Record {
        self.fold.snapshot().record(named_record_id(name)).unwrap_or_else(|| panic!("there is no {name}"))
    }

    pub(crate) fn state(&self, name: &str) -> String {
        self.record(name).state_name().to_string()
    }

    pub(crate) fn field(&self, name: &str, field: &str) -> Json {
        self.record(name).field(field).unwrap_or_else(|| panic!("{name} has no {field}")).to_json()
    }

    pub(crate) fn apply_status(&self, operation: &LogOperation) -> ApplyStatus {
        self.fold.verdict(operation.id).expect("the operation is on the log").status
    }

    /// Returns the refusal's code.
    pub(crate) fn refusal_code(&self, operation: &LogOperation) -> String {
        match self.apply_status(operation) {
            ApplyStatus::Refused(FoldRefusalReason::RefusedByLifecycle(refusal)) => refusal.code.to_string(),
            other => panic!("not a lifecycle's refusal: {other}"),
        }
    }
}

pub(crate) fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for index in 0..items.len() {
        let mut rest = items.to_vec();
        let first = rest.remove(index);
        all.extend(permutations(&rest).into_iter().map(|mut order| {
            order.insert(0, first.clone());
            order
        }));
    }
    all
}

/// Returns a resolver with the same answer for every node.
pub(crate) fn delegation_graph(
    is_valid: bool,
    key: &str,
) -> impl Fn(&LogOperation, &CheckQuery) -> Option<Map<String, Json>> {
    let answer =
        serde_json::json!({ "valid": is_valid, "key": key, "userBearing": false, "why": "an answer of the graph" });
    move |_, query| {
        assert_eq!(*query.check, *"chain", "nodes have no other check");
        answer.as_object().cloned()
    }
}
