//! Property: if static analysis reports no nullable operand, no caller gets a null fault.

use std::cell::Cell;
use std::rc::Rc;

use onceward_core::analysis::analyze;
use onceward_core::decide::{Call, Decision};
use onceward_core::model::{AllowedCaller, Definitions};

use super::{Property, PropertyViolation, ensure};
use crate::random::simulation::DecisionStep;

#[derive(Debug, Default)]
pub struct NullOperandProperty {
    null_free: Option<bool>,
    /// Number of definitions without nullable operands.
    pub null_free_sets: Rc<Cell<usize>>,
}

impl NullOperandProperty {
    pub fn with_counter(null_free_sets: &Rc<Cell<usize>>) -> Self {
        Self { null_free: None, null_free_sets: Rc::clone(null_free_sets) }
    }
}

impl Property for NullOperandProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        let met = &self.null_free_sets;
        let promised = *self.null_free.get_or_insert_with(|| {
            let promised = promises_no_null_operands(step.definitions);
            met.set(met.get() + usize::from(promised));
            promised
        });
        let called = matches!(step.operation.call, Call::Fire { .. } | Call::Create(_));
        let Decision::Refusal(refusal) = step.decision else { return Ok(()) };
        let null = &*refusal.code == "fault" && refusal.reason.contains("an operand is null");
        ensure(!(promised && called && null), "no operand is null unless the analysis reports it", || {
            format!("{:?}", step.operation.call)
        })
    }
}

/// Returns whether the analysis covers all operands. It does not cover transitions that only records fire on behalf of
/// a caller, so there must be none.
fn promises_no_null_operands(definitions: &Definitions) -> bool {
    let mut rows = definitions
        .lifecycles
        .values()
        .filter(|lifecycle| !lifecycle.name.starts_with("onceward."))
        .flat_map(|lifecycle| &lifecycle.events)
        .flat_map(|event| &event.transitions);
    rows.all(|row| row.by != [AllowedCaller::Record])
        && analyze(definitions).iter().all(|diagnostic| diagnostic.code != "may-be-null")
}
