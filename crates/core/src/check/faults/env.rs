//! What is known at one place of a row: the facts of the state, sharpened by the guards passed on the way there.

use std::rc::Rc;

use super::domain::Known;
use crate::expr::{Path, Root, Step};
use crate::model::Slot;

#[derive(Clone)]
pub(crate) struct Env {
    /// The record's fields by slot.
    pub(crate) facts: Rc<[Known]>,
    /// Paths of which more is known.
    known: Vec<(Path, Known)>,
    /// The first is at least so much above the second.
    above: Vec<(Path, Path, i128)>,
    locals: Vec<(u16, Known)>,
}

impl Env {
    pub(crate) fn new(facts: Rc<[Known]>) -> Self {
        Self { facts, known: Vec::new(), above: Vec::new(), locals: Vec::new() }
    }

    pub(crate) fn known(&self, root: Root, steps: &[Step]) -> Option<&Known> {
        self.known.iter().find(|(path, _)| path.root == root && path.steps == steps).map(|(_, known)| known)
    }

    pub(crate) fn learn(&mut self, path: &Path, known: Known) {
        match self.known.iter_mut().find(|(own, _)| own == path) {
            Some((_, old)) => *old = known,
            None => self.known.push((path.clone(), known)),
        }
    }

    pub(crate) fn learn_above(&mut self, more: &Path, less: &Path, by: i128) {
        self.above.push((more.clone(), less.clone(), by));
    }

    /// The least that `more - less` can be, where a guard has said so.
    pub(crate) fn least_difference(&self, more: &Path, less: &Path) -> Option<i128> {
        self.above.iter().filter(|(a, b, _)| a == more && b == less).map(|(_, _, by)| *by).max()
    }

    pub(crate) fn local(&self, local: u16) -> Option<&Known> {
        self.locals.iter().rev().find(|(own, _)| *own == local).map(|(_, known)| known)
    }

    /// Inside a comprehension's body: what was known of an older variable of the same number no longer counts.
    pub(crate) fn with_local(&self, local: u16, known: Known) -> Self {
        let mut inside = self.clone();
        let old = |path: &Path| path.root == Root::Local(local);
        inside.known.retain(|(path, _)| !old(path));
        inside.above.retain(|(more, less, _)| !old(more) && !old(less));
        inside.locals.push((local, known));
        inside
    }

    /// The record's fields as sharpened so far.
    pub(crate) fn sharpened(&self) -> Vec<Known> {
        let mut facts = self.facts.to_vec();
        for (path, known) in &self.known {
            if let (Root::Record, [Step::Field { slot, .. }]) = (path.root, path.steps.as_slice())
                && let Some(fact) = facts.get_mut(usize::from(*slot))
            {
                *fact = known.clone();
            }
        }
        facts
    }

    /// Where two ways meet, what both know.
    pub(crate) fn join(self, other: &Self) -> Self {
        let known = self.known.into_iter().filter_map(|(path, known)| {
            let theirs = other.known(path.root, &path.steps)?;
            let joined = known.join(theirs);
            Some((path, joined))
        });
        let above = self.above.into_iter().filter_map(|(more, less, by)| {
            let theirs = other.least_difference(&more, &less)?;
            Some((more, less, by.min(theirs)))
        });
        Self { facts: self.facts, known: known.collect(), above: above.collect(), locals: self.locals }
    }

    pub(crate) fn join_maybe(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.join(&b)),
            (a, b) => a.or(b),
        }
    }
}

/// The path `record.FIELD`.
pub(crate) fn own_field(name: &std::sync::Arc<str>, slot: Slot) -> Path {
    Path { root: Root::Record, steps: vec![Step::Field { name: name.clone(), slot }], doubtful: Vec::new() }
}
