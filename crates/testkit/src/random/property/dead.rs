//! A row of which the checker says that it is never taken never is.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use onceward_core::check::check;
use onceward_core::decide::Decision;
use onceward_core::diagnostic::Span;
use onceward_core::model::{Definitions, Row};

use super::{Broken, Property, ensure};
use crate::random::play::Step;

/// What the checker may say of a row that is never taken.
const CODES: [&str; 3] = ["dead-row", "always-refused", "shadowed-row"];

/// A row, by lifecycle, event and number.
type Which = (Arc<str>, Arc<str>, u16);

#[derive(Debug, Default)]
pub struct Dead {
    dead: Option<HashSet<Which>>,
    /// How many rows were called dead, over all cases that share it.
    pub met: Rc<Cell<usize>>,
}

impl Dead {
    pub fn counted(met: &Rc<Cell<usize>>) -> Self {
        Self { dead: None, met: Rc::clone(met) }
    }
}

impl Property for Dead {
    fn before(&mut self, step: &Step) -> Result<(), Broken> {
        let met = &self.met;
        let dead = self.dead.get_or_insert_with(|| {
            let dead = called_dead(step.definitions);
            met.set(met.get() + dead.len());
            dead
        });
        let Decision::Changes(changes) = step.decision else { return Ok(()) };
        for change in &changes.records {
            for (event, number) in &change.rows {
                let which = (change.after.lifecycle.name.clone(), event.clone(), *number);
                ensure(!dead.contains(&which), "a row that is called dead is never taken", || format!("{which:?}"))?;
            }
        }
        Ok(())
    }
}

fn called_dead(definitions: &Definitions) -> HashSet<Which> {
    let spans: HashSet<Span> =
        check(definitions).iter().filter(|found| CODES.contains(&found.code)).map(|found| found.at).collect();
    let mut dead = HashSet::new();
    for lifecycle in definitions.lifecycles.values() {
        for event in &lifecycle.events {
            for (number, row) in (0..).zip(&event.rows) {
                if places(row).any(|place| spans.contains(&place)) {
                    dead.insert((lifecycle.name.clone(), event.name.clone(), number));
                }
            }
        }
    }
    dead
}

/// Where a message about the whole row may point.
fn places(row: &Row) -> impl Iterator<Item = Span> {
    let when = row.when.iter().map(|when| when.expr.at);
    when.chain(row.refuse.iter().map(|refuse| refuse.condition.expr.at)).chain([row.at])
}
