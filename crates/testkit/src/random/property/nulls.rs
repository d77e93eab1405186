//! Where the checker says of no operand that it may be null, none is: no caller is told of such a fault.

use std::cell::Cell;
use std::rc::Rc;

use onceward_core::check::check;
use onceward_core::decide::{Call, Decision};
use onceward_core::model::{By, Definitions};

use super::{Broken, Property, ensure};
use crate::random::play::Step;

#[derive(Debug, Default)]
pub struct Nulls {
    promised: Option<bool>,
    /// How many sets of lifecycles were promised to be free of them.
    pub met: Rc<Cell<usize>>,
}

impl Nulls {
    pub fn counted(met: &Rc<Cell<usize>>) -> Self {
        Self { promised: None, met: Rc::clone(met) }
    }
}

impl Property for Nulls {
    fn before(&mut self, step: &Step) -> Result<(), Broken> {
        let met = &self.met;
        let promised = *self.promised.get_or_insert_with(|| {
            let promised = is_promised(step.definitions);
            met.set(met.get() + usize::from(promised));
            promised
        });
        let called = matches!(step.operation.call, Call::Fire { .. } | Call::Create(_));
        let Decision::Refusal(refusal) = step.decision else { return Ok(()) };
        let null = &*refusal.code == "fault" && refusal.reason.contains("an operand is null");
        ensure(!(promised && called && null), "no operand is null unless the checker says that it may be", || {
            format!("{:?}", step.operation.call)
        })
    }
}

/// Nothing is said of rows that only records fire for a caller, so they may not be there.
fn is_promised(definitions: &Definitions) -> bool {
    let mut rows = definitions
        .lifecycles
        .values()
        .filter(|lifecycle| !lifecycle.name.starts_with("onceward."))
        .flat_map(|lifecycle| &lifecycle.events)
        .flat_map(|event| &event.rows);
    rows.all(|row| row.by != [By::Record])
        && check(definitions).iter().all(|diagnostic| diagnostic.code != "may-be-null")
}
