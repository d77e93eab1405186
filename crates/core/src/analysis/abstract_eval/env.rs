//! Facts at one point of a transition: those of the state, narrowed by the guards passed before.

use std::rc::Rc;

use super::abstract_value::AbstractValue;
use crate::expr::{PathRoot, PathStep, ValuePath};
use crate::model::FieldIndex;

#[derive(Clone)]
pub(crate) struct AbstractEnv {
    /// The record's fields by index.
    pub(crate) field_facts: Rc<[AbstractValue]>,
    /// Narrower facts about paths.
    path_facts: Vec<(ValuePath, AbstractValue)>,
    /// Minimum of the first path minus the second.
    min_differences: Vec<(ValuePath, ValuePath, i128)>,
    locals: Vec<(u16, AbstractValue)>,
}

impl AbstractEnv {
    pub(crate) fn new(facts: Rc<[AbstractValue]>) -> Self {
        Self { field_facts: facts, path_facts: Vec::new(), min_differences: Vec::new(), locals: Vec::new() }
    }

    pub(crate) fn path_fact(&self, root: PathRoot, steps: &[PathStep]) -> Option<&AbstractValue> {
        self.path_facts.iter().find(|(path, _)| path.root == root && path.steps == steps).map(|(_, value)| value)
    }

    pub(crate) fn set_path_fact(&mut self, path: &ValuePath, value: AbstractValue) {
        match self.path_facts.iter_mut().find(|(own, _)| own == path) {
            Some((_, old)) => *old = value,
            None => self.path_facts.push((path.clone(), value)),
        }
    }

    pub(crate) fn add_min_difference(&mut self, more: &ValuePath, less: &ValuePath, difference: i128) {
        self.min_differences.push((more.clone(), less.clone(), difference));
    }

    /// Returns the minimum of `more - less`, if a guard implies one.
    pub(crate) fn min_difference(&self, more: &ValuePath, less: &ValuePath) -> Option<i128> {
        self.min_differences.iter().filter(|(a, b, _)| a == more && b == less).map(|(_, _, by)| *by).max()
    }

    pub(crate) fn local_value(&self, local: u16) -> Option<&AbstractValue> {
        self.locals.iter().rev().find(|(own, _)| *own == local).map(|(_, value)| value)
    }

    /// Environment of a comprehension's body. Facts about an outer variable of the same number no longer apply.
    pub(crate) fn with_local(&self, local: u16, value: AbstractValue) -> Self {
        let mut inner = self.clone();
        let is_shadowed = |path: &ValuePath| path.root == PathRoot::Local(local);
        inner.path_facts.retain(|(path, _)| !is_shadowed(path));
        inner.min_differences.retain(|(more, less, _)| !is_shadowed(more) && !is_shadowed(less));
        inner.locals.push((local, value));
        inner
    }

    /// Returns the record's fields with all facts applied.
    pub(crate) fn narrowed_fields(&self) -> Vec<AbstractValue> {
        let mut facts = self.field_facts.to_vec();
        for (path, value) in &self.path_facts {
            if let (PathRoot::Record, [PathStep::Field { index: slot, .. }]) = (path.root, path.steps.as_slice())
                && let Some(fact) = facts.get_mut(usize::from(*slot))
            {
                *fact = value.clone();
            }
        }
        facts
    }

    /// Joins two branches: keeps the facts that hold in both.
    pub(crate) fn join(self, other: &Self) -> Self {
        let joined_facts = self.path_facts.into_iter().filter_map(|(path, value)| {
            let other_fact = other.path_fact(path.root, &path.steps)?;
            let joined = value.join(other_fact);
            Some((path, joined))
        });
        let above = self.min_differences.into_iter().filter_map(|(more, less, by)| {
            let other_difference = other.min_difference(&more, &less)?;
            Some((more, less, by.min(other_difference)))
        });
        Self {
            field_facts: self.field_facts,
            path_facts: joined_facts.collect(),
            min_differences: above.collect(),
            locals: self.locals,
        }
    }

    pub(crate) fn join_options(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.join(&b)),
            (a, b) => a.or(b),
        }
    }
}

/// Returns the path `record.FIELD`.
pub(crate) fn own_field_path(name: &std::sync::Arc<str>, field_index: FieldIndex) -> ValuePath {
    ValuePath {
        root: PathRoot::Record,
        steps: vec![PathStep::Field { name: name.clone(), index: field_index }],
        nullable_steps: Vec::new(),
    }
}
